// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/relay.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "wire/missing_ranks.h"

namespace mpix {

namespace {

using Hold = std::lock_guard<std::mutex>;

/// Dearer than a look.
constexpr unsigned looks_between_troubles = 256;

class RelayRecipient final : public Recipient {
 public:
  RelayRecipient(std::shared_ptr<RelayPeers> peers, const RelayPeer& peer, std::shared_ptr<const HostWords> words)
      : peers_(std::move(peers)), peer_(peer), words_(std::move(words)) {}
  Connection connection() const override { return peer_.connection; }
  std::string name() const override { return peer_.name(); }
  std::string probe() override { return peers_->probe(peer_); }
  bool is_broken() const override { return __atomic_load_n(&words_->released, __ATOMIC_ACQUIRE) != 0; }

 private:
  const std::shared_ptr<RelayPeers> peers_;  ///< the memory
  const RelayPeer& peer_;
  const std::shared_ptr<const HostWords> words_;
};

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
    if (std::none_of(pairs_.begin(), pairs_.end(), is_this))
      pairs_.emplace_back(peer, std::make_shared<RelayRecipient>(peers_, peer, words_));
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
  peers_->settle_thread();
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
  count_posts(pair);
  if (take_post(pair)) moved = true;
  if (take_ask(pair)) moved = true;
  while (take_send(pair)) moved = true;
  return moved;
}

bool Relay::end_shipments(Pair& pair) {
  // All of them: each may have another stage to queue.
  for (const auto& shipment : pair.posts_under_way) (void)shipment->is_over();
  for (const Pair::Send& send : pair.sends_under_way) (void)send.shipment->is_over();
  bool moved = false;
  while (!pair.posts_under_way.empty() && pair.posts_under_way.front()->is_over()) {
    pair.posts_under_way.pop_front();
    moved = true;
  }
  while (!pair.sends_under_way.empty() && pair.sends_under_way.front().shipment->is_over()) {
    if (pair.sends_under_way.front().is_last) store_release(&pair.peer->words->out.allowed, ++pair.finished + 1);
    pair.sends_under_way.pop_front();
    moved = true;
  }
  return moved;
}

/// Their number is told modulo 2^32, and neither side is ever far ahead.
void Relay::count_posts(Pair& pair) const {
  pair.landed += peers_->doorsteps().posts(pair.peer->rank) - static_cast<std::uint32_t>(pair.landed);
}

bool Relay::take_post(Pair& pair) {
  const std::uint64_t posted = load_acquire(&pair.peer->words->there.posted);
  if (posted <= pair.posts) return false;
  const RelayPeer& peer = *pair.peer;
  const Doorsteps& doorsteps = peers_->doorsteps();
  Shipment::Content content{pair.to, "post", posted, {}, std::nullopt};
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

/// Of the next epoch. False: it is not there.
bool Relay::take_task(Pair& pair) const {
  RelayPeer& peer = *pair.peer;
  Task task;
  if (!mpix::take_task(peer.words->out.lane(), pair.sends + 1, &task)) return false;
  if (task.what != task_of(TaskKind::send)) throw Error(Fault::other, "kernels post tasks that are not known");
  pair.message = &peer.outgoing->message(task.word[0]);
  pair.message_since = Clock::now();
  pair.reported = 0;
  pair.chunk = 0;
  return true;
}

bool Relay::take_send(Pair& pair) {
  RelayPeer& peer = *pair.peer;
  if (!pair.message && !take_task(pair)) return false;
  if (pair.awaits_post() || !has_landing(pair)) return false;
  const std::uint64_t epoch = pair.sends + 1;
  if (pair.chunk > 0 && load_acquire(&peer.words->out.packed[pair.chunk]) != epoch) return false;
  auto shipment = dispatch(pair.chunk == 0 ? content_of_message(pair) : content_of_chunk(pair), pair.sends_turn);
  if (!shipment) return false;
  ++pair.chunk;
  const PlannedMessage& planned = pair.message->planned;
  const bool is_last = pair.chunk == chunks_in(planned.bytes, planned.chunk_shift);
  pair.sends_under_way.push_back({std::move(shipment), is_last});
  if (!is_last) return true;
  pair.sends = epoch;
  pair.message = nullptr;
  return true;
}

/// For what goes apart. Where there is none it is asked for.
bool Relay::has_landing(Pair& pair) {
  if (pair.message->planned.chunk_shift == 0) return true;
  const RelayPeer& peer = *pair.peer;
  const std::uint64_t needed = Outgoing::range_bytes(pair.message->planned.bytes);
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
  auto shipment = dispatch({pair.to, "ask for memory", pair.sends + 1, {asker}, signal}, pair.sends_turn);
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
  Shipment::Content content{pair.to, "answer", pair.posts, {}, std::nullopt};
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

/// The entries, and with them the data, or the first chunk of these; and what goes direct.
Shipment::Content Relay::content_of_message(const Pair& pair) const {
  const RelayPeer& peer = *pair.peer;
  const Outgoing::Message& message = *pair.message;
  const PlannedMessage& planned = message.planned;
  const std::uint64_t epoch = pair.sends + 1;
  const RemoteMemory& there = peers_->block_of(peer);
  const LandingPlace& landing = peer.words->landing;
  const std::size_t count = planned.entries.size(), in_front = entries_bytes(count);
  const bool apart = planned.chunk_shift != 0;
  const std::uint64_t lands = apart ? landing.address : in_front;
  for (std::size_t i = 0; i < count; ++i) {
    MessageEntry entry = planned.entries[i];
    entry.data += lands;
    std::memcpy(message.entries + i * sizeof entry, &entry, sizeof entry);
  }
  Shipment::Content content{pair.to, "data", epoch, {}, std::nullopt};
  const std::size_t in_inbox = in_front + (apart ? 0 : planned.bytes);
  if (in_inbox > 0)
    content.writes.push_back(
        {message.entries, message.registration, in_inbox, there, RelayPeers::inbox_offset(peer, epoch)});
  if (apart)
    content.writes.push_back({message.data,
                              message.registration,
                              std::min<std::size_t>(planned.bytes, std::size_t{1} << planned.chunk_shift),
                              {landing.key, landing.base},
                              0});
  for (std::size_t i = 0; i < planned.direct.size(); ++i) {
    const DirectPut& put = planned.direct[i];
    content.writes.push_back({put.source, message.sources[i].get(), put.bytes, peers_->window_of(peer), put.offset});
  }
  content.signal =
      NetworkSignal{NetworkSignal::Kind::set, Arrival::of(epoch, planned.chunk_shift, count, planned.bytes).word, there,
                    offsetof(RelayWords, in) + offsetof(RelayedIn, arrival) + epoch % inboxes * sizeof(std::uint64_t)};
  return content;
}

Shipment::Content Relay::content_of_chunk(const Pair& pair) const {
  const RelayPeer& peer = *pair.peer;
  const PlannedMessage& planned = pair.message->planned;
  const std::uint64_t epoch = pair.sends + 1;
  const DataRange range = DataRange::of_chunk(pair.chunk, planned.chunk_shift);
  const LandingPlace& landing = peer.words->landing;
  Shipment::Content content{pair.to, "data", epoch, {}, std::nullopt};
  content.writes.push_back({pair.message->data + range.begin,
                            pair.message->registration,
                            std::min<std::uint64_t>(planned.bytes, range.end) - range.begin,
                            {landing.key, landing.base},
                            range.begin});
  content.signal =
      NetworkSignal{NetworkSignal::Kind::set, epoch, peers_->block_of(peer),
                    offsetof(RelayWords, in) + offsetof(RelayedIn, landed) + pair.chunk * sizeof(std::uint64_t)};
  return content;
}

/// Null: not now.
std::shared_ptr<Shipment> Relay::dispatch(Shipment::Content content, OperationBudget::Turn& turn) {
  const std::size_t operations = content.wanted().operations;
  const std::optional<Clock::time_point> waits_since = turn.since();
  Shipment::Dispatched sent = Shipment::dispatch(peers_->budget(), window_, std::move(content), turn);
  if (!sent.admitted) {
    if (!waits_since) ++effect_.throttle_waits;
    return nullptr;
  }
  if (waits_since)
    effect_.throttle_wait_ns +=
        static_cast<std::uint64_t>(std::max<std::chrono::nanoseconds>(Clock::now() - *waits_since, {}).count());
  if (!sent.shipment) {
    if (!full_since_) full_since_ = Clock::now();
    return nullptr;
  }
  full_since_.reset();
  effect_.network_operations += operations;
  return std::move(sent.shipment);
}

// ---- trouble -----------------------------------------------------------------------------------------

/// Kernels cannot ask: who owes data or a post, and has been silent for long, is asked for a sign of life.
std::string Relay::look_for_dead() {
  const auto now = Clock::now();
  const double patience = stall_.patience();
  if (patience <= 0) return "";
  for (Pair& pair : pairs_) {
    const std::uint64_t closed = load_acquire(&pair.peer->words->in.closed);
    const bool owes = pair.posts > closed || pair.last_task() > pair.landed || pair.awaits_answer();
    const std::uint64_t seen = pair.landed + closed + pair.posts + pair.sends + pair.asked;
    if (!owes || std::exchange(pair.seen, seen) != seen) pair.seen_since = now;
    if (std::chrono::duration<double>(now - pair.seen_since).count() < patience) continue;
    pair.seen_since = now;
    const std::string lost = peers_->probe(*pair.peer);
    if (!lost.empty()) return lost;
  }
  return "";
}

/// What is packed, and waits for posts that do not come: kernels are done with it, and cannot tell.
void Relay::look_for_posts() {
  const double patience = stall_.patience();
  if (patience <= 0) return;
  MissingRanks missing;
  double longest = 0;
  const auto now = Clock::now();
  for (Pair& pair : pairs_) {
    // Where something goes direct, the complete waits, and tells.
    if (!pair.awaits_post() || !pair.message->planned.direct.empty()) continue;
    const double waited = std::chrono::duration<double>(now - pair.message_since).count();
    if (waited - pair.reported < patience) continue;
    pair.reported = waited;
    longest = std::max(longest, waited);
    missing.add(pair.peer->rank, Missing::post, pair.post_needed(), stall_.farewell_of(pair.peer->rank));
  }
  if (longest > 0) (void)stall_.stalled(Call::complete, missing.text(), longest);
}

/// An error of the network, or something that has been under way for too long.
void Relay::look_for_trouble() {
  std::optional<Clock::time_point> oldest, refused;
  std::vector<int> unanswered;
  const auto note = [](std::optional<Clock::time_point>& first, const std::optional<Clock::time_point>& since) {
    if (since && (!first || *since < *first)) first = since;
  };
  for (const Pair& pair : pairs_) {
    for (const auto& shipment : pair.posts_under_way) {
      const std::string failure = shipment->failure();
      if (!failure.empty()) return stall_.failed(Call::post, failure);
    }
    for (const Pair::Send& send : pair.sends_under_way) {
      const std::string failure = send.shipment->failure();
      if (!failure.empty()) return stall_.failed(Call::complete, failure);
    }
    if (!pair.posts_under_way.empty()) note(oldest, pair.posts_under_way.front()->born());
    if (!pair.sends_under_way.empty()) note(oldest, pair.sends_under_way.front().shipment->born());
    for (const auto* turn : {&pair.posts_turn, &pair.sends_turn, &pair.answers_turn}) note(refused, turn->since());
    if (pair.awaits_answer()) note(oldest, pair.asked_since), unanswered.push_back(pair.peer->rank);
  }
  const std::string nothing_comes = peers_->budget().network().failure();
  if (!nothing_comes.empty()) return stall_.failed(Call::wait, nothing_comes);
  const std::string dead = look_for_dead();
  if (!dead.empty()) return stall_.failed(Call::complete, dead);
  look_for_posts();
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

bool Relay::has_run() {
  // Not under the lock, which the service takes. What has run is what the counters say: what kernels wrote before them
  // into memory of the host may come later.
  std::vector<PairCounters> counters;
  for (const Pair& pair : pairs_) counters.push_back(peers_->counters_of(*pair.peer));
  Hold hold(mutex_);
  auto own = counters.begin();
  return std::all_of(pairs_.begin(), pairs_.end(), [&](Pair& pair) {
    count_posts(pair);
    const std::uint64_t opened = own->opened.epochs, sent = own->sent.epochs[0];
    ++own;
    return pair.posts_under_way.empty() && pair.posts >= opened && pair.finished >= sent && pair.landed >= sent;
  });
}

std::string Relay::unposted() const {
  Hold hold(mutex_);
  MissingRanks missing;
  for (const Pair& pair : pairs_) {
    if (pair.landed < pair.last_task())
      missing.add(pair.peer->rank, Missing::post, pair.landed + 1, stall_.farewell_of(pair.peer->rank));
  }
  return missing.text();
}

void Relay::add_to(Stats& stats) const {
  Hold hold(mutex_);
  stats.add(effect_);
}

}  // namespace mpix
