// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/relay.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.h"
#include "wire/missing_ranks.h"

namespace mpix {

namespace {

using Hold = std::lock_guard<std::mutex>;

/// Dearer than a look.
constexpr unsigned looks_between_troubles = 256;

std::uint64_t slot_offset(const RelayPeer& peer, std::uint64_t epoch) {
  return static_cast<std::uint64_t>(reinterpret_cast<const char*>(slot_of(peer.outbox, epoch)) -
                                    reinterpret_cast<const char*>(peer.outbox.lines));
}

}  // namespace

Relay::Relay(std::shared_ptr<RelayPeers> peers, const void* window, StallHandler& stall,
             std::shared_ptr<const HostWords> words)
    : peers_(std::move(peers)), window_(window), stall_(stall), words_(std::move(words)) {}

void Relay::name(const std::vector<int>& ranks, Neighbourhood& neighbours) {
  peers_->name(ranks, neighbours);
  if (pairs_.size() == peers_->named().size()) return;
  Hold hold(mutex_);
  for (auto& [rank, peer] : peers_->named()) {
    const auto is_this = [its = &peer](const Pair& pair) { return pair.peer == its; };
    if (std::none_of(pairs_.begin(), pairs_.end(), is_this)) pairs_.emplace_back(peer);
  }
}

void Relay::begin() {
  if (listed_) return;
  begin_service(*this);
  listed_ = true;
}

void Relay::stop() {
  if (!std::exchange(listed_, false)) return;
  end_service(*this);
  Hold hold(mutex_);
  leave_lines();
}

void Relay::leave_lines() {
  for (Pair& pair : pairs_) {
    pair.posts_turn.leave();
    pair.sends_turn.leave();
    pair.answers_turn.leave();
  }
}

bool Relay::is_released() const { return __atomic_load_n(&words_->released, __ATOMIC_ACQUIRE) != 0; }

// ---- one round ---------------------------------------------------------------------------------------

Poller::Clock::duration Relay::look(Clock::time_point now) {
  const bool moved = serve_all();
  peers_->budget().progress_once(service_round());
  return back_off_.next(moved, peers_->budget().network().is_moving(), now);
}

void Relay::failed(const char* why) noexcept {
  stall_.failed(Call::complete, why);
  Hold hold(mutex_);
  leave_lines();
}

bool Relay::serve_all() {
  Hold hold(mutex_);
  if (is_released()) {
    leave_lines();
    return false;
  }
  bool moved = false;
  for (Pair& pair : pairs_)
    if (serve(pair)) moved = true;
  if (++looks_ % looks_between_troubles == 0) look_for_trouble();
  return moved;
}

bool Relay::serve(Pair& pair) {
  bool moved = end_shipments(pair);
  if (pass_posts_on(pair)) moved = true;
  if (take_post(pair)) moved = true;
  if (take_ask(pair)) moved = true;
  while (take_send(pair)) moved = true;
  return moved;
}

bool Relay::end_shipments(Pair& pair) {
  // All of them: each may have another stage to queue.
  for (const auto& shipment : pair.posts_under_way) (void)shipment->is_over();
  for (const auto& shipment : pair.sends_under_way) (void)shipment->is_over();
  bool moved = false;
  const auto pop = [&](auto& under_way) {
    if (under_way.empty() || !under_way.front()->is_over()) return false;
    under_way.pop_front();
    return moved = true;
  };
  while (pop(pair.posts_under_way)) {
  }
  while (pop(pair.sends_under_way)) store_release(&pair.peer->words->finished, ++pair.finished);
  return moved;
}

/// Their number is told modulo 2^32, and neither side is ever far ahead.
void Relay::count_posts(Pair& pair) const {
  pair.landed += peers_->doorsteps().posts(pair.peer->rank) - static_cast<std::uint32_t>(pair.landed);
}

bool Relay::pass_posts_on(Pair& pair) {
  count_posts(pair);
  const std::uint64_t posted = std::min(pair.landed, pair.finished + 1);
  if (posted <= pair.told) return false;
  pair.told = posted;
  store_release(&pair.peer->words->mine.posted, posted);
  return true;
}

bool Relay::take_post(Pair& pair) {
  const std::uint64_t posted = load_acquire(&pair.peer->words->there.posted);
  if (posted <= pair.posts) return false;
  const RelayPeer& peer = *pair.peer;
  const Doorsteps& doorsteps = peers_->doorsteps();
  Shipment::Content content{&peer, "post", posted, {}, std::nullopt};
  if (pair.posts == 0) {
    content.writes.push_back(doorsteps.tell(peer.rank, *peer.told, peer.registered));
    content.signal = doorsteps.first_posts(peer.rank, posted, 0);
  } else {
    content.signal = doorsteps.further_posts(peer.rank, posted - pair.posts);
  }
  auto shipment = dispatch(std::move(content), pair.posts_turn);
  if (!shipment) return false;
  pair.posts = posted;
  pair.posts_under_way.push_back(std::move(shipment));
  return true;
}

bool Relay::take_send(Pair& pair) {
  RelayPeer& peer = *pair.peer;
  const std::uint64_t epoch = pair.sends + 1;
  if (!pair.slot.look(peer.outbox, epoch) || !peers_->doorsteps().has_told(peer.rank) || !has_landing(pair))
    return false;
  auto shipment = dispatch(content_of_send(pair), pair.sends_turn);
  if (!shipment) return false;
  pair.sends = epoch;
  pair.slot.reset();
  pair.sends_under_way.push_back(std::move(shipment));
  return true;
}

/// For what is staged. Where there is none it is asked for.
bool Relay::has_landing(Pair& pair) {
  if (pair.slot.staged().empty()) return true;
  const RelayPeer& peer = *pair.peer;
  const std::uint64_t needed = peer.outgoing->source(pair.slot.staged().front().data).block_bytes;
  const std::uint64_t has = load_acquire(&peer.words->landing.bytes);
  if (has == LandingPlace::refused) {
    stall_.failed(Call::complete, "rank " + std::to_string(peer.rank) + " has no memory for " + std::to_string(needed) +
                                      " bytes that are put there");
    return false;
  }
  if (has >= needed || pair.awaits_answer()) return has >= needed;
  const NetworkSignal signal{NetworkSignal::Kind::add, needed - pair.asked, peers_->block_of(peer),
                             offsetof(RelayWords, asked)};
  const NetworkWrite asker{&peer.told->block, peer.registered, sizeof peer.told->block, peers_->block_of(peer),
                           offsetof(RelayWords, asker)};
  auto shipment = dispatch({&peer, "ask for memory", pair.sends + 1, {asker}, signal}, pair.sends_turn);
  if (!shipment) return false;
  pair.asked = needed;
  pair.asked_since = Clock::now();
  pair.posts_under_way.push_back(std::move(shipment));
  return false;
}

void Relay::make_room_for(const std::vector<int>& origins) {
  for (Pair& pair : pairs_) {
    RelayPeer& peer = *pair.peer;
    if (pair.room || std::find(origins.begin(), origins.end(), peer.rank) == origins.end()) continue;
    // Not under the lock: the service takes it.
    Landing room = peers_->new_landing();
    Hold hold(mutex_);
    pair.room = true;
    if (room.bytes() > peer.landing.bytes()) peer.landing = std::move(room);
  }
}

bool Relay::take_ask(Pair& pair) {
  RelayPeer& peer = *pair.peer;
  std::uint64_t asked = load_acquire(&peer.words->asked);
  if (asked <= pair.given || (pair.answer && !pair.answer->is_over())) return false;
  asked = std::max<std::uint64_t>(asked, peer.landing.bytes());
  std::string trouble;
  try {
    peers_->grow_landing(peer, asked);
  } catch (const Error& error) {
    trouble = error.what();
  }
  const RemoteMemory& asker = peer.words->asker;
  Shipment::Content content{&peer, "answer", pair.posts, {}, std::nullopt};
  if (trouble.empty()) {
    *peer.answer = peer.landing.place();
    content.writes.push_back(
        {peer.answer, peer.registered, LandingPlace::told_before, asker, offsetof(RelayWords, landing)});
  }
  content.signal = NetworkSignal{NetworkSignal::Kind::set, trouble.empty() ? asked : LandingPlace::refused, asker,
                                 offsetof(RelayWords, landing) + offsetof(LandingPlace, bytes)};
  auto shipment = dispatch(std::move(content), pair.answers_turn);
  if (!shipment) return false;
  pair.given = asked;
  pair.answer = shipment;
  pair.posts_under_way.push_back(std::move(shipment));
  if (!trouble.empty())
    stall_.failed(Call::wait, "there is no memory for what rank " + std::to_string(peer.rank) + " puts: " + trouble);
  return true;
}

Shipment::Content Relay::content_of_send(const Pair& pair) const {
  const RelayPeer& peer = *pair.peer;
  const std::uint64_t epoch = pair.sends + 1;
  const RemoteMemory& there = peers_->block_of(peer);
  const std::uint64_t in_ring = RelayPeers::inbox_offset + slot_offset(peer, epoch);
  Line* slot = slot_of(peer.outbox, epoch);
  Shipment::Content content{&peer, "data", epoch, {}, std::nullopt};
  // As the target does in its ring: no line may carry the flag of an epoch when that comes again.
  scrub(peer.outbox, epoch, pair.slot.lines(), pair.slot.direct_parts());
  if (!pair.slot.staged().empty()) {
    const LandingPlace& landing = peer.words->landing;
    const char* const begin = pair.slot.staged().front().data;  // puts lie one behind the other
    const RelaySlot::Staged& last = pair.slot.staged().back();
    const Outgoing::Source source = peer.outgoing->source(begin);
    content.writes.push_back({begin,
                              source.registration,
                              static_cast<std::size_t>(last.data - begin) + last.bytes,
                              {landing.key, landing.base},
                              source.position});
    const std::uint64_t lands = landing.address + source.position;
    for (std::size_t i = 0; i < pair.slot.staged().size(); ++i)
      write_line(slot + pair.slot.line_of_data(i),
                 lands + static_cast<std::uint64_t>(pair.slot.staged()[i].data - begin), flag_of(epoch));
  }
  Line header;
  write_line(&header, pair.slot.header_to_send().word, flag_of(epoch));
  slot->half[0] = header.half[0];
  slot->half[1] = 0;
  content.writes.push_back({slot, peer.registered, pair.slot.lines() * sizeof(Line), there, in_ring});
  content.signal = NetworkSignal{NetworkSignal::Kind::set, header.half[1], there, in_ring + sizeof header.half[0]};
  return content;
}

/// Null: not now.
std::shared_ptr<Shipment> Relay::dispatch(Shipment::Content content, OperationBudget::Turn& turn) {
  OperationBudget& budget = peers_->budget();
  const Grant wanted = content.wanted();
  const std::optional<Clock::time_point> waits_since = turn.since();
  const std::optional<Grant> grant = budget.try_admit(window_, wanted, turn, false);
  if (!grant) {
    if (!waits_since) ++effect_.throttle_waits;
    return nullptr;
  }
  if (waits_since)
    effect_.throttle_nanoseconds +=
        static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - *waits_since).count());
  auto shipment = std::make_shared<Shipment>(peers_, window_, words_, std::move(content), *grant);
  bool started = false;
  try {
    started = shipment->start();
  } catch (...) {
    budget.give_up(shipment);
    throw;
  }
  if (!started) {
    budget.give_up(shipment);
    if (!full_since_) full_since_ = Clock::now();
    return nullptr;
  }
  full_since_.reset();
  budget.enlist(shipment);
  effect_.network_operations += wanted.operations;
  return shipment;
}

// ---- trouble -----------------------------------------------------------------------------------------

/// Kernels cannot ask: who owes data or a post, and has been silent for long, is asked for a sign of life.
std::string Relay::look_for_dead() {
  const auto now = Clock::now();
  const double patience = stall_.patience();
  if (patience <= 0) return "";
  for (Pair& pair : pairs_) {
    const RelayWords& words = *pair.peer->words;
    const std::uint64_t closed = load_acquire(words.mine.own.closed.epochs);
    const std::uint64_t sent = std::max(pair.sends, load_acquire(words.mine.own.sent.epochs));  // also what waits here
    const bool owes = pair.posts > closed || sent > pair.landed || pair.awaits_answer();
    const std::uint64_t seen = pair.landed + closed + pair.posts + pair.sends + pair.asked;
    if (!owes || std::exchange(pair.seen, seen) != seen) pair.seen_since = now;
    if (std::chrono::duration<double>(now - pair.seen_since).count() < patience) continue;
    pair.seen_since = now;
    const std::string lost = peers_->probe(*pair.peer);
    if (!lost.empty()) return lost;
  }
  return "";
}

/// An error of the network, or something that has been under way for too long.
void Relay::look_for_trouble() {
  std::optional<Clock::time_point> oldest, refused;
  std::vector<int> unanswered;
  const auto note = [](std::optional<Clock::time_point>& first, const std::optional<Clock::time_point>& since) {
    if (since && (!first || *since < *first)) first = since;
  };
  for (const Pair& pair : pairs_) {
    for (const auto* under_way : {&pair.posts_under_way, &pair.sends_under_way}) {
      for (const auto& shipment : *under_way) {
        const std::string failure = shipment->failure();
        if (!failure.empty())
          return stall_.failed(under_way == &pair.posts_under_way ? Call::post : Call::complete, failure);
      }
      if (!under_way->empty()) note(oldest, under_way->front()->born());
    }
    for (const auto* turn : {&pair.posts_turn, &pair.sends_turn, &pair.answers_turn}) note(refused, turn->since());
    if (pair.awaits_answer()) note(oldest, pair.asked_since), unanswered.push_back(pair.peer->rank);
  }
  const std::string nothing_comes = peers_->budget().network().failure();
  if (!nothing_comes.empty()) return stall_.failed(Call::wait, nothing_comes);
  const std::string dead = look_for_dead();
  if (!dead.empty()) return stall_.failed(Call::complete, dead);
  note(oldest, refused);
  note(oldest, full_since_);
  const double patience = stall_.patience();
  if (patience <= 0 || !oldest) return;
  const auto now = Clock::now();
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  if (seconds(now - std::max(*oldest, reported_)) < patience) return;
  reported_ = now;
  const std::string lost = peers_->budget().probe(window_);
  if (!lost.empty()) return stall_.failed(Call::complete, lost);
  std::string text = peers_->budget().missing(window_);
  if (refused)
    text += (text.empty() ? "" : "; ") + std::string("other epochs hold the budget of ") +
            std::to_string(peers_->budget().total()) + " triggered operations";
  for (int rank : unanswered)
    text += (text.empty() ? "" : "; ") + std::string("rank ") + std::to_string(rank) +
            " has not made room for what is put there";
  if (full_since_) text += (text.empty() ? "" : "; ") + std::string("the network has no room for more");
  stall_.stalled(Call::complete, text, seconds(now - *oldest));
}

// ---- the end -----------------------------------------------------------------------------------------

bool Relay::nothing_under_way(const Pair& pair) const {
  const RelayWords& words = *pair.peer->words;
  const std::uint64_t sent = load_acquire(words.mine.own.sent.epochs);
  return pair.posts_under_way.empty() && pair.posts == load_acquire(&words.there.posted) && pair.finished >= sent &&
         pair.landed >= sent;
}

bool Relay::has_run() {
  Hold hold(mutex_);
  for (Pair& pair : pairs_) count_posts(pair);
  return std::all_of(pairs_.begin(), pairs_.end(), [this](const Pair& pair) { return nothing_under_way(pair); });
}

std::string Relay::unposted() const {
  Hold hold(mutex_);
  MissingRanks missing;
  for (const Pair& pair : pairs_) {
    if (pair.landed < load_acquire(pair.peer->words->mine.own.sent.epochs))
      missing.add(pair.peer->rank, Missing::post, pair.landed + 1);
  }
  return missing.text();
}

void Relay::add_to(Stats& stats) const {
  Hold hold(mutex_);
  stats.add(effect_);
}

}  // namespace mpix
