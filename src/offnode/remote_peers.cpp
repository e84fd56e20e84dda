// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/remote_peers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/kept.h"
#include "base/log.h"
#include "offnode/remote_epoch.h"

namespace mpix {
namespace {

constexpr std::size_t preset_eager_bytes = 16 * 1024;
constexpr std::size_t line = 64;

std::size_t rounded_up(std::size_t bytes) { return (bytes + line - 1) / line * line; }

/// So many words, each put by itself, have room in a slot where each write costs an operation of the network: one by
/// one they took 400 µs each over sockets.
constexpr std::size_t most_single_words = 8192;

/// Room for `eager_bytes` in puts of some 50 bytes or more; of smaller ones for less, but for those with room of their
/// own.
std::size_t slot_bytes_for(std::size_t window_bytes, std::size_t eager_bytes, bool gathers_small) {
  const std::size_t payload = std::min(eager_bytes, window_bytes);
  const std::size_t words = gathers_small ? std::min(window_bytes / 8, most_single_words) : 0;
  return rounded_up(8 * MarkedMessage::words_for(RemoteMessage::head + RemoteMessage::share(payload) + payload / 2 +
                                                 words * RemoteMessage::share(8)));
}

/// A post that could not ride costs those who wait for it: so many do not try then.
constexpr std::uint32_t rides_skipped = 16;

}  // namespace

/// Offsets in the block of one rank.
struct RemotePeers::Offsets {
  std::size_t peers, depth, slot_bytes;

  std::size_t words_bytes() const { return rounded_up(8) + rounded_up(8 * depth); }
  std::size_t posted(std::size_t peer) const { return peer * words_bytes(); }
  std::size_t arrived(std::size_t peer) const { return posted(peer) + line; }
  std::size_t inbox(std::size_t peer) const { return peers * words_bytes() + peer * depth * slot_bytes; }
  std::size_t end_of_inboxes() const { return inbox(peers); }
};

RemotePeers::RemotePeers(const LocalMemory& memory, const Team& team, Device& device, OperationBudget* budget,
                         std::string why_not, const Settings& settings, bool relayed)
    : device_(device),
      budget_(budget),
      why_not_(std::move(why_not)),
      window_(static_cast<char*>(memory.base)),
      window_bytes_(memory.bytes),
      depth_(settings.mailbox_slots),
      eager_bytes_(settings.nic_eager_bytes.value_or(preset_eager_bytes)),
      index_(static_cast<std::size_t>(team.size()), -1) {
  if (relayed) return;
  for (int rank = 0; rank < team.size(); ++rank) {
    if (team.same_node(rank)) continue;
    index_[static_cast<std::size_t>(rank)] = static_cast<int>(peers_.size());
    peers_.emplace_back().rank = rank;
  }
  if (!team.why_not().empty()) why_not_ = team.why_not();
  if (!team.why_no_network().empty()) why_not_ = team.why_no_network();
  if (peers_.empty() || !budget || !team.why_no_network().empty()) return;
  gathers_small_ = team.gathers_small();
  slot_bytes_ = slot_bytes_for(memory.bytes, eager_bytes_, gathers_small_);
}

void RemotePeers::offer(WindowCard& card) {
  if (slot_bytes_ == 0) return;
  try {
    Network& network = budget_->network();
    marks_ = network.keeps_words_whole();
    const Offsets layout{peers_.size(), depth_, slot_bytes_};
    region_ = device_.allocate_pinned(layout.end_of_inboxes());
    region_exposed_ = network.expose(region_.get(), layout.end_of_inboxes());
    if (marks_) inlet_ = network.open_inlet(region_.get() + layout.inbox(0), peers_.size() * depth_, slot_bytes_);
    for (std::size_t place = 0; inlet_ && place < peers_.size() * depth_; ++place)
      if (!inlet_->open(place)) throw Error(Fault::memory, "the network has no room for receives");
    if (window_bytes_ > 0) {
      window_exposed_ = network.expose(window_, window_bytes_);
      card.set_window(window_exposed_->remote());
    }
    card.inlet = inlet_ ? inlet_->name() : 0;
    card.set_block(region_exposed_->remote());
  } catch (const Error& error) {
    why_not_ = error.what();
    log(LogLevel::info, why_not_);  // a call that needs it tells
  }
}

void RemotePeers::connect(RemotePeer& peer, std::size_t position, const WindowCard& card, std::size_t my_position_there,
                          std::size_t peers_there) {
  const Offsets here{peers_.size(), depth_, slot_bytes_};
  const Offsets there{peers_there, depth_, peer.slot_bytes};
  peer.control = card.block();
  peer.posted_offset = there.posted(my_position_there);
  peer.arrived_offset = there.arrived(my_position_there);
  peer.inbox_offset = there.inbox(my_position_there);
  peer.window = card.window();
  peer.place = card.inlet ? card.inlet + my_position_there * depth_ : 0;
  peer.posted = reinterpret_cast<std::uint64_t*>(region_.get() + here.posted(position));
  peer.arrived = reinterpret_cast<std::uint64_t*>(region_.get() + here.arrived(position));
  peer.inbox = region_.get() + here.inbox(position);
  peer.reachable = true;
}

/// A pair needs both sides: a rank that has a block has all that it takes, and the team knows which ranks reach each
/// other.
void RemotePeers::connect(const Team& team, const std::vector<WindowCard>& cards) {
  const NumbersElsewhere numbers(team);
  const bool usable = cards[static_cast<std::size_t>(team.rank())].has_block;
  for (std::size_t position = 0; usable && position < peers_.size(); ++position) {
    RemotePeer& peer = peers_[position];
    const WindowCard& card = cards[static_cast<std::size_t>(peer.rank)];
    const Team::Far& far = team.far(peer.rank);
    if (!card.has_block || !far.reachable) continue;
    peer.connection = far.connection;
    peer.slot_bytes = slot_bytes_for(card.bytes, eager_bytes_, far.gathers_small);
    connect(peer, position, card, numbers.number_at(peer.rank), numbers.count_at(peer.rank));
  }
  if (why_not_.empty()) why_not_ = "it has no network";
  try {
    make_staging();
  } catch (const Error& error) {
    why_not_ = error.what();
    for (RemotePeer& peer : peers_) peer.reachable = false;
  }
}

void RemotePeers::make_staging() {
  std::size_t bytes = 0;
  for (const RemotePeer& peer : peers_)
    if (peer.reachable) bytes += depth_ * peer.slot_bytes;
  if (bytes == 0) return;
  staging_ = device_.allocate_pinned(bytes);
  staging_registered_ = budget_->network().register_source(staging_.get(), bytes);
  char* next = staging_.get();
  for (RemotePeer& peer : peers_) {
    if (!peer.reachable) continue;
    peer.staging = next;
    next += depth_ * peer.slot_bytes;
  }
  connected_ = true;
}

std::string RemotePeers::probe(const RemotePeer& peer) {
  const std::string why = budget_->network().probe(peer.connection, peer.control, peer.posted_offset);
  return why.empty() ? why : peer.lost(why);
}

// ---- posts -------------------------------------------------------------------------------------------

bool RemotePeers::has_posted(RemotePeer& peer, std::uint64_t epoch) const {
  const auto known = [&] { return load_acquire(peer.posted) + load_acquire(&peer.posts_ridden) >= epoch; };
  if (known()) return true;
  if (!marks_) return false;
  // In messages that no wait has read yet; what those that are read said is known.
  budget_->network().read_still([&] {
    for (std::uint32_t slot = 0; slot < depth_; ++slot) {
      MarkedMessage::Front front;
      if (MarkedMessage::read_front(reinterpret_cast<const std::uint64_t*>(peer.inbox + slot * slot_bytes_), &front))
        note_ridden(peer, front.posts);
    }
  });
  return known();
}

void RemotePeers::note_ridden(RemotePeer& peer, std::uint32_t posts) {
  std::uint64_t known = load_acquire(&peer.posts_ridden);
  for (;;) {
    // The front has 32 bits of the number, and is never far behind.
    const auto more = static_cast<std::int32_t>(posts - static_cast<std::uint32_t>(known));
    if (more <= 0) return;
    if (__atomic_compare_exchange_n(&peer.posts_ridden, &known, known + static_cast<std::uint64_t>(more), true,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return;
  }
}

void RemotePeers::end_window() noexcept {
  window_exposed_ = nullptr;
  for (RemotePeer& peer : peers_) {
    HeldPost held;  // these end without the lock
    std::vector<HeldPost> refused;
    std::lock_guard<std::mutex> hold(held_mutex_);
    held = take_held(peer);
    held_count_ -= peer.refused.size();
    refused.swap(peer.refused);
  }
}

bool RemotePeers::may_ride(RemotePeer& peer) {
  if (!marks_) return false;
  std::lock_guard<std::mutex> hold(held_mutex_);
  if (peer.rides_to_skip == 0) return true;
  --peer.rides_to_skip;
  return false;
}

void RemotePeers::hold(RemotePeer& peer, HeldPost post) {
  send_held(peer);
  {
    std::lock_guard<std::mutex> hold(held_mutex_);
    peer.held = std::move(post);
    peer.held_for_long = false;
    ++held_count_;
  }
  budget_->late_posts().watch(weak_from_this());
}

HeldPost RemotePeers::take_held(RemotePeer& peer) {
  if (!peer.held.operations) return {};
  --held_count_;
  return std::exchange(peer.held, {});
}

std::uint32_t RemotePeers::give_ride(RemotePeer& peer) {
  std::vector<HeldPost> posts;
  std::uint32_t given;
  {
    std::lock_guard<std::mutex> hold(held_mutex_);
    posts.swap(peer.refused);
    held_count_ -= posts.size();
    if (HeldPost post = take_held(peer); post.operations) posts.push_back(std::move(post));
    peer.rides_given += static_cast<std::uint32_t>(posts.size());
    __atomic_store_n(&rides_, rides_ + posts.size(), __ATOMIC_RELAXED);
    given = peer.rides_given;
  }
  for (const HeldPost& post : posts) post.operations->post_rides(post.item);
  return given;
}

/// Not under the lock.
void RemotePeers::send(RemotePeer& peer, HeldPost post) {
  if (post.operations->send_post(post.item)) return;
  {
    std::lock_guard<std::mutex> hold(held_mutex_);
    peer.refused.push_back(std::move(post));
    ++held_count_;
  }
  budget_->late_posts().watch(weak_from_this());
}

void RemotePeers::send_refused(RemotePeer& peer) {
  std::vector<HeldPost> posts;
  {
    std::lock_guard<std::mutex> hold(held_mutex_);
    posts.swap(peer.refused);
    held_count_ -= posts.size();
  }
  for (HeldPost& post : posts) send(peer, std::move(post));
}

void RemotePeers::send_held(RemotePeer& peer) {
  HeldPost post;
  {
    std::lock_guard<std::mutex> hold(held_mutex_);
    post = take_held(peer);
    if (post.operations) peer.rides_to_skip = rides_skipped;
  }
  if (post.operations) send(peer, std::move(post));
}

void RemotePeers::send_all_held() {
  if (held_count_ == 0) return;
  for (RemotePeer& peer : peers_) {
    send_refused(peer);
    send_held(peer);
  }
}

HeldPosts::Late RemotePeers::send_late() {
  bool some_sent = false;
  for (RemotePeer& peer : peers_) {
    send_refused(peer);
    bool late;
    {
      std::lock_guard<std::mutex> hold(held_mutex_);
      late = peer.held.operations && std::exchange(peer.held_for_long, true);
    }
    if (!late) continue;
    send_held(peer);
    some_sent = true;
  }
  return {some_sent, held_count_ > 0};
}

RemotePeers::~RemotePeers() {
  window_exposed_ = region_exposed_ = staging_registered_ = nullptr;  // before the memory goes
  if (!inlet_ || inlet_->close()) return;
  log(LogLevel::info, "the slots of a window that broke stay allocated: a message may be half-way in");
  keep_for_ever(region_);  // and never ends
}

}  // namespace mpix
