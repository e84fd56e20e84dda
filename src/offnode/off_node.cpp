// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/off_node.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/block_pool.h"
#include "base/error.h"
#include "base/log.h"

namespace mpix {

/// To ask all epochs under way takes long, and is seldom of use.
constexpr auto time_between_errors = std::chrono::milliseconds(5);

namespace {

/// A rank that is told that this one's part has ended.
class LeftBehind final : public Recipient {
 public:
  LeftBehind(int rank, Connection connection) : rank_(rank), connection_(connection) {}
  Connection connection() const override { return connection_; }
  std::string name() const override { return "rank " + std::to_string(rank_); }
  std::string probe() override { return ""; }  // epochs with it ask
  bool is_broken() const override { return false; }

 private:
  const int rank_;
  const Connection connection_;
};

}  // namespace

OffNode::OffNode(const LocalMemory& memory, Device& device, const Settings& settings, OperationBudget* budget,
                 std::string why_not, Neighbourhood& neighbours, const EnqueuedEpochs& enqueued, const void* window,
                 StallReporter& stall, std::shared_ptr<HostWords> words)
    : window_(window),
      neighbours_(neighbours),
      enqueued_(enqueued),
      stall_(stall),
      words_(std::move(words)),
      remote_(std::make_shared<RemotePeers>(memory, neighbours.team(), device, budget, why_not, settings,
                                            neighbours.team().relays())) {
  if (neighbours.team().relays())
    relayed_ = std::make_shared<RelayPeers>(neighbours.team(), device, budget, why_not, settings);
}

WindowCard OffNode::offer(const LocalMemory& memory) {
  WindowCard card;
  remote_->offer(card);
  if (relayed_) relayed_->offer(memory, card);
  return card;
}

void OffNode::connect(const std::vector<WindowCard>& cards) {
  remote_->connect(cards);
  if (!relayed_) return;
  relayed_->connect(cards);
  if (relayed_->is_connected()) relay_ = std::make_unique<Relay>(relayed_, window_, stall_, words_);
}

std::string OffNode::trouble(int rank) const {
  if (doorsteps().reaches(rank)) return "";
  const bool other_device = neighbours_.team().far(rank).other_device;
  return "rank " + std::to_string(rank) + (other_device ? " works with another device" : " is on another node") +
         ", and cannot be reached: " + doorsteps().why_not();
}

// ---- its life ----------------------------------------------------------------------------------------

void OffNode::enter() {
  if (budget()) budget()->enter(window_);
}

void OffNode::abandon() {
  if (budget()) budget()->abandon(window_);
}

void OffNode::end() {
  if (relay_) relay_->stop();
  abandon();
  if (remote_->is_connected()) remote_->end_window();
  if (relay_) relay_->peers().withdraw();
}

void OffNode::retire() {
  if (relay_) relay_->peers().retire(Neighbourhood::retired_words());
}

void OffNode::say_finalize() {
  if (!budget() || is_broken()) return;
  const Team& team = neighbours_.team();
  // Before its first epoch it knows of nobody who may wait for it, and so tells all, if they are few.
  const bool tells_all = !has_begun_;
  constexpr int few = 256;
  if (tells_all) {
    if (team.size() > few) return;
    begin();
  }
  for (int rank = 0; rank < team.size(); ++rank) {
    if (!doorsteps().reaches(rank)) continue;
    const bool shares_epochs = tells_all || remote_->find(rank) || (relayed_ && relayed_->named().count(rank) > 0) ||
                               doorsteps().has_told(rank);
    if (!shares_epochs) continue;
    OperationBudget::Turn turn;  // a remark in a report is not worth a wait for room
    (void)Shipment::dispatch(
        *budget(), window_,
        {std::make_shared<LeftBehind>(rank, team.far(rank).connection), "farewell", 0, {}, doorsteps().farewell(rank)},
        turn);
  }
}

void OffNode::begin() {
  budget()->begin();
  if (relay_) relay_->begin();
  has_begun_ = true;
}

void OffNode::begin_with(const std::vector<int>& ranks) {
  const auto is_remote = [this](int rank) { return !neighbours_.same_node(rank); };
  if (!has_begun_ && std::any_of(ranks.begin(), ranks.end(), is_remote)) begin();
}

void OffNode::name_origins(const std::vector<int>& origins) {
  begin_with(origins);
  remote_->name_origins(origins);
  if (!relay_) return;
  relay_->name(origins, neighbours_);
  relay_->make_room_for(origins);
}

void OffNode::name_targets(const std::vector<int>& targets) {
  begin_with(targets);
  remote_->name_targets(targets, neighbours_);
  if (relay_) relay_->name(targets, neighbours_);
}

OperationBudget::Lease OffNode::admit(Lock& hold, const Grant& wanted, Call call,
                                      const std::function<void()>& check_again, Stats& stats) {
  if (wanted.empty()) return {};
  OperationBudget& budget = remote_->budget();
  OperationBudget::Turn turn;
  std::optional<Grant> granted = budget.try_admit(window_, wanted, turn);
  if (granted) return {budget, window_, *granted};

  using Clock = AwakeClock;
  const auto begin = Clock::now();
  auto ask_after = begin + time_between_errors;
  double reported = 0;
  while (!granted) {
    hold.unlock();
    budget.wait_for_room(turn);
    hold.lock();
    if (Clock::now() >= ask_after) {
      ask_after = Clock::now() + time_between_errors;
      const std::string failure = budget.failure_of(window_);
      if (!failure.empty()) stall_.failed(call, failure);
      report_throttling(call, wanted, std::chrono::duration<double>(Clock::now() - begin).count(), &reported);
    }
    check_again();
    granted = budget.try_admit(window_, wanted, turn);
  }
  ++stats.throttle_waits;
  stats.throttle_wait_ns +=
      static_cast<std::uint64_t>(std::max<std::chrono::nanoseconds>(Clock::now() - begin, {}).count());
  return {budget, window_, *granted};
}

/// The hang report of a call that waits for the budget, once nothing of its window has moved for long. What waits in a
/// stream reports by itself. And a stream that is busy with something else has not come to the epochs in front: that is
/// nobody's fault; nor is it if only other windows' are on their way, and move.
void OffNode::report_throttling(Call call, const Grant& wanted, double waited, double* reported) {
  const double patience = stall_.patience();
  if (patience <= 0) return;
  OperationBudget& budget = remote_->budget();
  using Whose = OperationBudget::Whose;
  const double still = budget.still_for(window_, Whose::own).count();
  if (std::min(still, waited - *reported) < patience) return;
  *reported = waited;
  const std::string lost = budget.probe(window_);
  if (!lost.empty()) {
    stall_.failed(call, lost);
    return;
  }
  const std::string what = "the epoch needs " + std::to_string(wanted.operations) +
                           " triggered operations of a budget of " + std::to_string(budget.total()) +
                           ", and earlier epochs hold them";
  const std::string missing = budget.missing(window_);
  const bool own = !budget.missing(window_, Whose::own).empty();
  if (missing.empty())
    stall_.late(call, what + ", which their streams have not come to", waited);
  else if (own || budget.still_for(window_, Whose::all).count() >= patience)
    stall_.stalled(call, what + ": " + missing, waited);
  else
    stall_.late(call, what + ": " + missing, waited);
}

std::shared_ptr<RemoteOperations> OffNode::queued(std::shared_ptr<RemoteOperations> operations, Call call,
                                                  OperationBudget::Lease lease) {
  try {
    operations->queue_ahead();
  } catch (const Error& error) {
    lease.give_up(operations);
    // Where there is no room now there may be later. Whom the network refuses will not come back.
    if (error.fault() == Fault::memory) throw;
    stall_.failed(call, error.what());
    if (is_broken()) throw Error(Fault::synchronization, "the window is broken: " + stall_.cause());
    throw;
  } catch (...) {
    lease.give_up(operations);
    throw;
  }
  lease.enlist(operations);
  return operations;
}

Grant OffNode::grant_for_posts(const std::vector<RemotePeer*>& origins) const {
  Grant grant;
  for (const RemotePeer* peer : origins)
    grant.add({RemotePeers::tells(enqueued_.with(peer->rank).opened + 1) ? 2u : 1u, 1});
  return grant;
}

std::shared_ptr<RemoteOperations> OffNode::queue_posts(const std::vector<RemotePeer*>& origins,
                                                       OperationBudget::Lease lease) {
  if (origins.empty()) return nullptr;
  auto operations = make_shared_in_block<RemoteOperations>(remote_, window_, words_, lease.grant());
  operations->expect(origins.size());
  for (RemotePeer* peer : origins) operations->add_post(*peer, enqueued_.with(peer->rank).opened + 1);
  return queued(std::move(operations), Call::post, std::move(lease));
}

std::shared_ptr<RemoteOperations> OffNode::queue_sends(const std::vector<RemoteSend>& sends,
                                                       std::shared_ptr<const void> keep, Call call,
                                                       OperationBudget::Lease lease) {
  if (sends.empty()) return nullptr;
  auto operations = make_shared_in_block<RemoteOperations>(remote_, window_, words_, lease.grant());
  operations->keep(std::move(keep));
  operations->expect(sends.size());
  for (const RemoteSend& send : sends) operations->add_send(send, enqueued_.with(send.peer->rank).sent + 1);
  return queued(std::move(operations), call, std::move(lease));
}

void OffNode::add_operations(Launch& launch, const std::shared_ptr<RemoteOperations>& operations, std::size_t first,
                             std::size_t count) {
  if (count > 0) launch.remote[0] = make_shared_in_block<RemoteOperationsPart>(operations, *remote_, first, count);
}

void OffNode::add_receives(Launch& launch, const std::vector<RemotePeer*>& origins, std::size_t first,
                           std::size_t count) {
  if (count == 0) return;
  auto receives = make_shared_in_block<RemoteReceives>(remote_, window_, count);
  for (std::size_t i = first; i < first + count; ++i)
    receives->add(*origins[i], enqueued_.with(origins[i]->rank).closed + 1);
  launch.remote[1] = std::move(receives);
}

/// Null: ranks of other nodes cannot be reached, or there are none.
OperationBudget* OffNode::budget() const {
  if (relay_) return &relay_->peers().budget();
  return remote_->is_connected() ? &remote_->budget() : nullptr;
}

bool OffNode::has_run() {
  const bool over = (!remote_->is_connected() || remote_has_run()) && (!relay_ || relay_has_run());
  if (over) draining_since_.reset();
  return over;
}

void OffNode::add_to(Stats& stats) const {
  if (relay_) relay_->add_to(stats);
  if (!budget() || stats.network_operations == 0) return;
  stats.network_operations -= remote_->rides();
  stats.network_peak = budget()->most_used();
  const std::size_t total = budget()->total();
  stats.network_budget = total == Capacity::any ? 0 : total;
}

bool OffNode::remote_has_run() {
  if (is_broken()) return true;
  for (const auto& [rank, peer] : remote_->named()) {
    const EpochCounts& enqueued = enqueued_.with(rank);
    const auto reached = [](const std::uint64_t& counter, std::uint64_t value) {
      return load_acquire(&counter) >= value;
    };
    if (!reached(peer.opened, enqueued.opened) || !reached(peer.sent, enqueued.sent) ||
        !reached(peer.closed, enqueued.closed))
      return false;
  }
  remote_->send_all_held();
  OperationBudget& budget = remote_->budget();
  if (budget.is_idle(window_)) return true;
  // All streams are done with it. A peer that died is told by an error, or by nothing at all.
  const std::string failure = budget.failure_of(window_);
  if (!failure.empty()) stall_.failed(Call::free, failure);
  const auto now = AwakeClock::now();
  if (!draining_since_) draining_since_ = now;
  const double waited = std::chrono::duration<double>(now - *draining_since_).count();
  if (stall_.patience() > 0 && waited > stall_.patience()) {
    const std::string lost = budget.probe(window_);
    if (lost.empty())
      stall_.stalled(Call::free, budget.missing(window_), waited);
    else
      stall_.failed(Call::free, lost);
    draining_since_ = now;
  }
  return is_broken();
}

/// Whether the relay has nothing more to do for what has run. Of what is stuck on its way it tells by itself.
bool OffNode::relay_has_run() {
  if (is_broken() || relay_->has_run()) return true;
  const auto now = AwakeClock::now();
  if (!draining_since_) draining_since_ = now;
  const double waited = std::chrono::duration<double>(now - *draining_since_).count();
  const std::string unposted = relay_->unposted();
  if (stall_.patience() > 0 && waited > stall_.patience() && !unposted.empty()) {
    stall_.stalled(Call::free, unposted, waited);
    draining_since_ = now;
  }
  return is_broken();
}

}  // namespace mpix
