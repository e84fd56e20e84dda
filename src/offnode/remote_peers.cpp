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

/// So many small puts, with so many bytes, have room in a slot where each write costs an operation of the network: one
/// by one they took 400 µs each over sockets.
constexpr std::size_t most_small_puts = 8192, most_small_bytes = std::size_t{1} << 20;

/// Room for `eager_bytes` in puts of some 50 bytes or more; of smaller ones for less, but for those with room of their
/// own.
std::size_t slot_bytes_for(std::size_t window_bytes, std::size_t eager_bytes, bool gathers_small) {
  const std::size_t payload = std::min(eager_bytes, window_bytes);
  const std::size_t puts = gathers_small ? std::min(window_bytes / 8, most_small_puts) : 0;
  const std::size_t small = gathers_small ? std::min(window_bytes, most_small_bytes) : 0;
  return rounded_up(8 * MarkedMessage::words_for(RemoteMessage::head + RemoteMessage::share(payload) + payload / 2 +
                                                 puts * RemoteMessage::share(8) + small));
}

/// A post that could not ride costs those who wait for it: so many do not try then.
constexpr std::uint32_t rides_skipped = 16;

}  // namespace

RemotePeers::RemotePeers(const LocalMemory& memory, const Team& team, Device& device, OperationBudget* budget,
                         const std::string& why_not, const Settings& settings, bool relayed)
    : device_(device),
      team_(team),
      budget_(budget),
      window_(static_cast<char*>(memory.base)),
      window_bytes_(memory.bytes),
      depth_(settings.mailbox_slots),
      eager_bytes_(settings.nic_eager_bytes.value_or(preset_eager_bytes)),
      doorsteps_(team.why_not().empty() ? why_not : team.why_not()) {
  if (relayed || !team.spans_nodes() || !budget) return;
  marks_ = budget->network().keeps_words_whole();
  gathers_small_ = team.gathers_small();
  slot_bytes_ = slot_bytes_for(memory.bytes, eager_bytes_, gathers_small_);
}

void RemotePeers::offer(WindowCard& card) {
  if (slot_bytes_ > 0) doorsteps_.offer(team_, budget_->network(), card);
}

// ---- ranks that epochs name ----------------------------------------------------------------------------

RemotePeer& RemotePeers::peer(int rank) {
  const auto [at, is_new] = peers_.try_emplace(rank);
  RemotePeer& peer = at->second;
  if (!is_new) return peer;
  peer.rank = rank;
  peer.connection = team_.far(rank).connection;
  peer.next = newest_;
  __atomic_store_n(&newest_, &peer, __ATOMIC_RELEASE);
  return peer;
}

/// Those that have no memory for this yet.
std::vector<RemotePeer*> RemotePeers::of_other_nodes(const std::vector<int>& ranks, char* RemotePeer::*needs) {
  std::vector<RemotePeer*> peers;
  for (int rank : ranks)
    if (reaches(rank) && !(peer(rank).*needs)) peers.push_back(&peer(rank));
  return peers;
}

void RemotePeers::name_origins(const std::vector<int>& origins) {
  const std::vector<RemotePeer*> peers = of_other_nodes(origins, &RemotePeer::inbox);
  if (peers.empty()) return;
  Network& network = budget_->network();
  if (!window_exposed_ && window_bytes_ > 0) window_exposed_ = network.expose(window_, window_bytes_);
  const std::size_t half_bytes = inbox_offset() + depth_ * slot_bytes_, told_bytes = peers.size() * sizeof(FirstPost);
  Halves halves;
  halves.memory = device_.allocate_pinned(peers.size() * half_bytes + told_bytes);
  halves.exposed = network.expose(halves.memory.get(), peers.size() * half_bytes);
  char* const half = halves.memory.get();
  auto* const told = reinterpret_cast<FirstPost*>(half + peers.size() * half_bytes);
  halves.registered = network.register_source(told, told_bytes);
  for (std::size_t i = 0; marks_ && i < peers.size(); ++i) {
    halves.inlets.push_back(network.open_inlet(half + i * half_bytes + inbox_offset(), depth_, slot_bytes_));
    for (std::size_t slot = 0; halves.inlets[i] && slot < depth_; ++slot)
      if (!halves.inlets[i]->open(slot)) throw Error(Fault::memory, "the network has no room for receives");
  }
  halves_.push_back(std::move(halves));
  const Halves& kept = halves_.back();
  for (std::size_t i = 0; i < peers.size(); ++i) {
    RemotePeer& peer = *peers[i];
    told[i].block = kept.exposed->remote();
    told[i].block.base += i * half_bytes;
    if (window_exposed_) told[i].window = window_exposed_->remote();
    peer.told = &told[i];
    peer.told_registered = kept.registered.get();
    peer.inlet = marks_ ? kept.inlets[i].get() : nullptr;
    peer.arrived = reinterpret_cast<std::uint64_t*>(half + i * half_bytes);
    // Streams may look for posts there.
    __atomic_store_n(&peer.inbox, half + i * half_bytes + inbox_offset(), __ATOMIC_RELEASE);
  }
}

void RemotePeers::name_targets(const std::vector<int>& targets, const Neighbourhood& neighbours) {
  const std::vector<RemotePeer*> peers = of_other_nodes(targets, &RemotePeer::gather_buffer);
  std::size_t bytes = 0;
  for (RemotePeer* peer : peers) {
    peer->slot_bytes =
        slot_bytes_for(neighbours.peer(peer->rank).window_bytes, eager_bytes_, team_.far(peer->rank).gathers_small);
    bytes += depth_ * peer->slot_bytes;
  }
  if (bytes == 0) return;
  Halves halves;
  halves.memory = device_.allocate_pinned(bytes);
  halves.registered = budget_->network().register_source(halves.memory.get(), bytes);
  halves_.push_back(std::move(halves));
  char* next = halves_.back().memory.get();
  for (RemotePeer* peer : peers) {
    peer->gather_registered = halves_.back().registered.get();
    peer->gather_buffer = next;
    next += depth_ * peer->slot_bytes;
  }
}

// ---- what goes there -----------------------------------------------------------------------------------

NetworkWrite RemotePeers::message_to(const RemotePeer& peer, std::size_t slot, std::size_t bytes,
                                     bool as_message) const {
  const std::uint64_t inlet = as_message ? doorsteps_.inlet(peer.rank) : 0;
  const std::size_t offset = slot * peer.slot_bytes;
  return {peer.gather_buffer + offset,       peer.gather_registered,  bytes,
          doorsteps_.first(peer.rank).block, inbox_offset() + offset, inlet != 0 ? inlet + slot : 0};
}

NetworkSignal RemotePeers::arrival_at(const RemotePeer& peer, std::size_t slot, std::uint64_t value) const {
  return {NetworkSignal::Kind::set, value, doorsteps_.first(peer.rank).block, 8 * slot};
}

// ---- posts -------------------------------------------------------------------------------------------

/// Modulo 2^32: neither side is ever far ahead.
bool RemotePeers::has_posted(RemotePeer& peer, std::uint64_t epoch) const {
  const auto known = [&] {
    const std::uint32_t posts = doorsteps_.posts(peer.rank) + __atomic_load_n(&peer.posts_ridden, __ATOMIC_ACQUIRE);
    return static_cast<std::int32_t>(posts - static_cast<std::uint32_t>(epoch)) >= 0;
  };
  if (known()) return true;
  const char* const inbox = __atomic_load_n(&peer.inbox, __ATOMIC_ACQUIRE);
  if (!marks_ || !inbox) return false;
  // In messages that no wait has read yet; what those that are read said is known.
  budget_->network().read_still([&] {
    for (std::uint32_t slot = 0; slot < depth_; ++slot) {
      MarkedMessage::Front front;
      if (MarkedMessage::read_front(reinterpret_cast<const std::uint64_t*>(inbox + slot * slot_bytes_), &front))
        note_ridden(peer, front.posts);
    }
  });
  return known();
}

void RemotePeers::note_ridden(RemotePeer& peer, std::uint32_t posts) {
  std::uint32_t known = __atomic_load_n(&peer.posts_ridden, __ATOMIC_ACQUIRE);
  while (static_cast<std::int32_t>(posts - known) > 0 &&
         !__atomic_compare_exchange_n(&peer.posts_ridden, &known, posts, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
}

void RemotePeers::end_window() noexcept {
  window_exposed_ = nullptr;
  for_all([this](RemotePeer& peer) {
    HeldPost held;  // these end without the lock
    std::vector<HeldPost> refused;
    std::lock_guard<std::mutex> hold(held_mutex_);
    held = take_held(peer);
    held_count_ -= peer.refused.size();
    refused.swap(peer.refused);
  });
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
  for_all([this](RemotePeer& peer) {
    send_refused(peer);
    send_held(peer);
  });
}

HeldPosts::Late RemotePeers::send_late() {
  bool some_sent = false;
  for_all([&](RemotePeer& peer) {
    send_refused(peer);
    {
      std::lock_guard<std::mutex> hold(held_mutex_);
      if (!peer.held.operations || !std::exchange(peer.held_for_long, true)) return;
    }
    send_held(peer);
    some_sent = true;
  });
  return {some_sent, held_count_ > 0};
}

RemotePeers::~RemotePeers() {
  for (Halves& halves : halves_) {
    bool all_closed = true;
    for (const auto& inlet : halves.inlets)
      if (inlet && !inlet->close()) all_closed = false;
    if (all_closed) continue;
    log(LogLevel::info, "the slots of a window that broke stay allocated: a message may be half-way in");
    keep_for_ever(halves.memory);  // and never ends
  }
}

}  // namespace mpix
