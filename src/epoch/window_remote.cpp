// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What calls on a window do about ranks of other nodes: ask for a part of the budget, queue, and hang the rest on
// their launches.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/block_pool.h"
#include "base/error.h"
#include "epoch/window.h"

namespace mpix {

/// To ask all epochs under way takes long, and is seldom of use.
constexpr auto time_between_errors = std::chrono::milliseconds(5);

/// What a program without such epochs does not need is there from the first one on.
void Window::begin_network(const std::vector<int>& ranks) {
  const auto is_remote = [this](int rank) { return remote_->find(rank) || peers_.peer(rank).relayed; };
  if (network_begun_ || std::none_of(ranks.begin(), ranks.end(), is_remote)) return;
  budget()->begin();
  if (relay_) relay_->begin();
  network_begun_ = true;
}

OperationBudget::Lease Window::admit(Lock& hold, const Grant& wanted, Call call,
                                     const std::function<void()>& check_again) {
  if (wanted.empty()) return {};
  OperationBudget& budget = remote_->budget();
  OperationBudget::Turn turn;
  std::optional<Grant> granted = budget.try_admit(this, wanted, turn);
  if (granted) return {budget, this, *granted};

  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto ask_after = begin + time_between_errors;
  double reported = 0;
  while (!granted) {
    hold.unlock();
    budget.wait_for_room(turn);
    hold.lock();
    if (Clock::now() >= ask_after) {
      ask_after = Clock::now() + time_between_errors;
      const std::string failure = budget.failure_of(this);
      if (!failure.empty()) stall_.failed(call, failure);
      report_throttling(call, wanted, std::chrono::duration<double>(Clock::now() - begin).count(), &reported);
    }
    check_again();
    granted = budget.try_admit(this, wanted, turn);
  }
  ++stats_.throttle_waits;
  stats_.throttle_nanoseconds += static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count());
  return {budget, this, *granted};
}

/// The hang report of a call that waits for the budget, once nothing of its window has moved for long. What waits in a
/// stream reports by itself. And a stream that is busy with something else has not come to the epochs in front: that is
/// nobody's fault; nor is it if only other windows' are on their way, and move.
void Window::report_throttling(Call call, const Grant& wanted, double waited, double* reported) {
  const double patience = stall_.patience();
  if (patience <= 0) return;
  OperationBudget& budget = remote_->budget();
  using Whose = OperationBudget::Whose;
  const double still = budget.still_for(this, Whose::own).count();
  if (std::min(still, waited - *reported) < patience) return;
  *reported = waited;
  const std::string lost = budget.probe(this);
  if (!lost.empty()) {
    stall_.failed(call, lost);
    return;
  }
  const std::string what = "the epoch needs " + std::to_string(wanted.operations) +
                           " triggered operations of a budget of " + std::to_string(budget.total()) +
                           ", and earlier epochs hold them";
  const std::string missing = budget.missing(this);
  const bool own = !budget.missing(this, Whose::own).empty();
  if (missing.empty())
    stall_.late(call, what + ", which their streams have not come to", waited);
  else if (own || budget.still_for(this, Whose::all).count() >= patience)
    stall_.stalled(call, what + ": " + missing, waited);
  else
    stall_.late(call, what + ": " + missing, waited);
}

std::shared_ptr<RemoteOperations> Window::queued(std::shared_ptr<RemoteOperations> operations, Call call,
                                                 OperationBudget::Lease lease) {
  try {
    operations->queue_ahead();
  } catch (const Error& error) {
    lease.give_up(operations);
    // Where there is no room now there may be later. Whom the network refuses will not come back.
    if (error.fault() == Fault::memory) throw;
    stall_.failed(call, error.what());
    check_usable();
    throw;
  } catch (...) {
    lease.give_up(operations);
    throw;
  }
  lease.enlist(operations);
  return operations;
}

std::shared_ptr<RemoteOperations> Window::queue_posts(const std::shared_ptr<const ExposurePlan>& plan,
                                                      OperationBudget::Lease lease) {
  if (plan->remote.empty()) return nullptr;
  auto operations = make_shared_in_block<RemoteOperations>(remote_, this, host_words_, lease.grant());
  operations->expect(plan->remote.size());
  for (RemotePeer* peer : plan->remote)
    operations->add_post(*peer, enqueued_[static_cast<std::size_t>(peer->rank)].opened + 1);
  return queued(std::move(operations), Call::post, std::move(lease));
}

std::shared_ptr<RemoteOperations> Window::queue_sends(const std::shared_ptr<const AccessPlan>& plan, Call call,
                                                      OperationBudget::Lease lease) {
  if (plan->remote.empty()) return nullptr;
  auto operations = make_shared_in_block<RemoteOperations>(remote_, this, host_words_, lease.grant());
  operations->keep(plan);
  operations->expect(plan->remote.size());
  for (const RemoteSend& send : plan->remote)
    operations->add_send(send, enqueued_[static_cast<std::size_t>(send.peer->rank)].sent + 1);
  return queued(std::move(operations), call, std::move(lease));
}

void Window::add_remote(Launch& launch, const std::shared_ptr<RemoteOperations>& operations, std::size_t first,
                        std::size_t count) {
  if (count > 0) launch.remote[0] = make_shared_in_block<RemoteOperationsPart>(operations, *remote_, first, count);
}

void Window::add_remote_receives(Launch& launch, const ExposurePlan& plan, std::size_t first, std::size_t count) {
  if (count == 0) return;
  auto receives = make_shared_in_block<RemoteReceives>(remote_, this, count);
  for (std::size_t i = first; i < first + count; ++i)
    receives->add(*plan.remote[i], enqueued_[static_cast<std::size_t>(plan.remote[i]->rank)].closed + 1);
  launch.remote[1] = std::move(receives);
}

/// Null: ranks of other nodes cannot be reached, or there are none.
OperationBudget* Window::budget() const {
  if (relay_) return &relay_->peers().budget();
  return remote_->is_connected() ? &remote_->budget() : nullptr;
}

/// Whether nothing is left of the epochs that are enqueued, in the streams and in the network.
bool Window::remote_has_run() {
  if (is_broken()) return true;
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const RemotePeer* peer = remote_->find(rank);
    if (!peer) continue;
    const EpochCounts& enqueued = enqueued_[static_cast<std::size_t>(rank)];
    const auto reached = [](const std::uint64_t& counter, std::uint64_t value) {
      return load_acquire(&counter) >= value;
    };
    if (!reached(peer->opened, enqueued.opened) || !reached(peer->sent, enqueued.sent) ||
        !reached(peer->closed, enqueued.closed))
      return false;
  }
  remote_->send_all_held();
  OperationBudget& budget = remote_->budget();
  if (budget.is_idle(this)) return true;
  // All streams are done with it. A peer that died is told by an error, or by nothing at all.
  const std::string failure = budget.failure_of(this);
  if (!failure.empty()) stall_.failed(Call::complete, failure);
  const auto now = std::chrono::steady_clock::now();
  if (!draining_since_) draining_since_ = now;
  const double waited = std::chrono::duration<double>(now - *draining_since_).count();
  if (stall_.patience() > 0 && waited > stall_.patience()) {
    const std::string lost = budget.probe(this);
    if (lost.empty())
      stall_.stalled(Call::complete, budget.missing(this), waited);
    else
      stall_.failed(Call::complete, lost);
    draining_since_ = now;
  }
  return is_broken();
}

/// Whether the relay has nothing more to do for what has run. Of what is stuck on its way it tells by itself.
bool Window::relay_has_run() {
  if (is_broken() || relay_->has_run()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (!draining_since_) draining_since_ = now;
  const double waited = std::chrono::duration<double>(now - *draining_since_).count();
  const std::string unposted = relay_->unposted();
  if (stall_.patience() > 0 && waited > stall_.patience() && !unposted.empty()) {
    stall_.stalled(Call::complete, unposted, waited);
    draining_since_ = now;
  }
  return is_broken();
}

}  // namespace mpix
