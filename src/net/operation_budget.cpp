// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/operation_budget.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"

namespace mpix {

namespace {

using Hold = std::lock_guard<std::mutex>;

/// Where nothing has been granted or has come back for so long, who comes later may go first: what is in the way may
/// wait for just that.
constexpr auto longest_standstill = std::chrono::milliseconds(10);

/// Where nothing has come back for so long, the oldest epoch may be one that waits for a peer, and later ones be over.
constexpr auto longest_trust_in_age = std::chrono::microseconds(500);

/// Of a call that waits for room. Beside streams that look at the network its naps only guard against what these do not
/// tell.
constexpr auto shortest_nap = std::chrono::microseconds(20), longest_nap = std::chrono::microseconds(200),
               nap_beside_streams = std::chrono::microseconds(2000);

/// One more, for a scope.
class Counted {
 public:
  explicit Counted(std::atomic<std::size_t>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::size_t>& count_;
};

/// The kernel may add 50 µs to a nap, if it is not asked for better.
class ShortNaps {
 public:
  ShortNaps() : before_(prctl(PR_GET_TIMERSLACK)) { prctl(PR_SET_TIMERSLACK, 1000); }
  ~ShortNaps() {
    if (before_ > 0) prctl(PR_SET_TIMERSLACK, before_);
  }
  ShortNaps(const ShortNaps&) = delete;
  ShortNaps& operator=(const ShortNaps&) = delete;

 private:
  const int before_;
};

}  // namespace

OperationBudget::OperationBudget(std::unique_ptr<Network> network, const Settings& settings, bool cores_to_spare,
                                 std::string remark)
    : network_(std::move(network)),
      policy_(make_throttle_policy(settings.throttle, cores_to_spare)),
      remark_(std::move(remark)),
      capacity_(network_->capacity()) {}

void OperationBudget::begin() {
  network_->begin();
  if (network_->keeps_words_whole()) late_posts_.begin();  // the others have no posts that ride
  Hold hold(mutex_);
  const std::string remark = std::exchange(remark_, {});
  if (!remark.empty()) log(LogLevel::warn, remark);
}

std::string OperationBudget::describe() const {
  Hold hold(mutex_);
  std::string text = "network " + network_->name();
  if (capacity_.operations != Capacity::any)
    text += ", budget " + std::to_string(capacity_.operations) + " triggered operations, throttling " + policy_->name();
  return text;
}

void OperationBudget::reclaim(Until until) {
  for (auto at = holders_.begin(); at != holders_.end();) {
    const bool broken = (*at)->is_broken();
    if (broken)
      lose(*at);
    else
      give_back((*at)->window(), (*at)->reclaim());
    const bool over = broken || (*at)->held().empty();
    if (!over && until == Until::first_under_way) return;
    at = over ? holders_.erase(at) : std::next(at);
  }
}

void OperationBudget::reclaim_lost() {
  if (lost_.empty()) return;
  network_->progress();
  for (auto at = lost_.begin(); at != lost_.end();) {
    const Grant back = (*at)->reclaim();
    if (capacity_.operations != Capacity::any) capacity_.operations += back.operations;
    if (capacity_.transfers != Capacity::any) capacity_.transfers += back.transfers;
    at = (*at)->held().empty() ? lost_.erase(at) : std::next(at);
  }
}

/// It is still part of what is used.
void OperationBudget::lose(const std::shared_ptr<GrantHolder>& holder) {
  Holders one;  // memory first
  one.push_back(holder);
  holder->give_up();
  give_back(holder->window(), holder->reclaim());
  const Grant lost = holder->held();
  if (lost.empty()) return;
  used_.take(lost);
  if (const auto found = windows_.find(holder->window()); found != windows_.end()) found->second.held.take(lost);
  if (capacity_.operations != Capacity::any) capacity_.operations -= lost.operations;
  if (capacity_.transfers != Capacity::any) capacity_.transfers -= lost.transfers;
  lost_.splice(lost_.end(), one);
}

void OperationBudget::give_back(const void* window, const Grant& grant) {
  if (grant.empty()) return;
  used_.take(grant);
  if (const auto found = windows_.find(window); found != windows_.end()) {
    found->second.held.take(grant);
    found->second.moved = Clock::now();
  }
  moved_ = true;
}

void OperationBudget::enter(const void* window) {
  Hold hold(mutex_);
  windows_.try_emplace(window);
}

/// Once, and not before a call has to wait: most windows of a program may never have an epoch on a stream.
void OperationBudget::warn_if_not_sure() {
  if (policy_->refuses() || is_each_sure_of_one() || std::exchange(has_warned_, true)) return;
  log(LogLevel::warn,
      std::to_string(windows_.size()) + " windows share a budget of " + std::to_string(capacity_.operations) +
          " triggered operations: threads that drive windows of their own may wait for each other for ever "
          "(MPIX_TRIGGERED_OPS)");
}

bool OperationBudget::is_each_sure_of_one() const {
  return !policy_->refuses() && windows_.size() <= std::min(capacity_.operations, capacity_.transfers);
}

Grant OperationBudget::room_for(const void* window) const {
  Grant room{capacity_.operations - used_.operations, capacity_.transfers - used_.transfers};
  if (!is_each_sure_of_one()) return room;
  for (const auto& [other, holding] : windows_) {
    if (other == window) continue;
    if (holding.held.operations == 0 && room.operations > 0) --room.operations;
    if (holding.held.transfers == 0 && room.transfers > 0) --room.transfers;
  }
  return room;
}

namespace {
bool fits(const Grant& grant, const Grant& room) {
  return grant.operations <= room.operations && grant.transfers <= room.transfers;
}
}  // namespace

/// And for all that wait in front.
bool OperationBudget::has_room_for(const void* window, const Grant& grant, Queue::const_iterator position) const {
  Grant left = room_for(window);
  if (!fits(grant, left)) return false;
  left.take(grant);
  for (auto at = queue_.begin(); at != position; ++at) {
    if (!at->needs_room) continue;
    const Grant share = share_of(at->window, at->wanted);
    if (!fits(share, left)) return false;
    left.take(share);
  }
  return true;
}

OperationBudget::Clock::duration OperationBudget::standstill() {
  const auto now = Clock::now();
  if (std::exchange(moved_, false)) still_since_ = now;
  return now - still_since_;
}

bool OperationBudget::stands_still() { return standstill() > longest_standstill; }

/// There may be hundreds of holders, and the oldest are over first, as a rule.
OperationBudget::Until OperationBudget::far_enough() {
  return standstill() > longest_trust_in_age ? Until::end : Until::first_under_way;
}

/// All of the budget at most, but for what others are sure of.
Grant OperationBudget::share_of(const void* window, const Grant& wanted) const {
  const std::size_t others = is_each_sure_of_one() ? windows_.size() - windows_.count(window) : 0;
  const auto share = [&](std::size_t all, std::size_t want) { return std::min(want, all > others ? all - others : 0); };
  return {share(capacity_.operations, wanted.operations), share(capacity_.transfers, wanted.transfers)};
}

Demand OperationBudget::demand_for(const void* window, const Grant& wanted, bool refused) const {
  const std::size_t most = share_of(window, {Capacity::any, Capacity::any}).operations;
  Demand demand{wanted.operations, most, std::min(most, room_for(window).operations), 0, refused};
  if (policy_->looks_at_window())
    for (const auto& holder : holders_)
      if (holder->window() == window) demand.of_window += holder->with_data();
  return demand;
}

std::optional<Grant> OperationBudget::try_admit(const void* window, const Grant& wanted, Turn& turn, bool may_refuse) {
  std::unique_lock<std::mutex> hold(mutex_);
  reclaim_lost();
  // As a rule the oldest are over, and that is enough. Not at each call where there is plenty: the thread of a stream
  // is at work on them, and each look takes them from its core.
  const auto is_plenty = [](std::size_t used, std::size_t more, std::size_t all) {
    return all / 2 > used && more <= all / 2 - used;
  };
  constexpr unsigned calls_between_looks = 16;
  if (++admissions_ % calls_between_looks == 0 ||
      !is_plenty(used_.operations, wanted.operations, capacity_.operations) ||
      !is_plenty(used_.transfers, wanted.transfers, capacity_.transfers))
    reclaim(Until::first_under_way);
  // Behind one that waits for long, others come and go, where there is room for any number.
  if (holders_.size() >= look_at_) {
    reclaim(Until::end);
    look_at_ = std::max(few_holders, 2 * holders_.size());
  }
  if (capacity_.operations == 0 || capacity_.transfers == 0)
    throw Error(Fault::memory, "all triggered operations are held by epochs of windows that broke");
  windows_.try_emplace(window);
  Grant grant = share_of(window, wanted);
  // Who has waited already looks at all of them only now and then.
  if (!fits(grant, room_for(window)) && (!turn.waits() || policy_->refuses() || far_enough() == Until::end))
    reclaim(Until::end);
  const Grant asked = may_refuse ? wanted : grant;
  const bool has_room = fits(grant, room_for(window));
  bool admitted = (has_room || may_refuse) && policy_->admits(demand_for(window, asked, turn.waits())) && has_room;
  const auto position = turn.waits() ? Queue::const_iterator(turn.position_) : queue_.cend();
  admitted = admitted && (has_room_for(window, grant, position) || stands_still());
  if (!admitted && turn.waits() && turn.position_->needs_room && windows_.size() > 1 && stands_still()) {
    // The others may wait for just this: in stages, then, with what there is.
    const Grant room = room_for(window);
    grant = {std::min(grant.operations, room.operations), std::min(grant.transfers, room.transfers)};
    admitted = grant.operations > 0 && grant.transfers > 0;
  }
  if (admitted) {
    used_.add(grant);
    Holding& holding = windows_[window];
    holding.held.add(grant);
    holding.moved = Clock::now();
    moved_ = true;
    most_used_ = std::max(most_used_, used_.operations);
    hold.unlock();
    turn.leave();
    return grant;
  }
  if (!turn.waits()) {
    warn_if_not_sure();
    turn.position_ = queue_.insert(queue_.end(), Waiting{window, wanted, Clock::now()});
    turn.budget_ = this;
  }
  Demand with_room = demand_for(window, asked, true);
  with_room.free = with_room.total;
  turn.position_->wanted = wanted;
  turn.position_->needs_room = policy_->admits(with_room);
  return std::nullopt;
}

void OperationBudget::leave(Queue::iterator position) {
  Hold hold(mutex_);
  queue_.erase(position);
}

/// Room first: where there is none the policy `application` throws, and it is streams who look.
bool OperationBudget::is_worth_waking(Queue::const_iterator position) const {
  return has_room_for(position->window, share_of(position->window, position->wanted), position) &&
         policy_->worth_waking(demand_for(position->window, position->wanted, true));
}

bool OperationBudget::may_go(Queue::const_iterator position) const {
  return has_room_for(position->window, share_of(position->window, position->wanted), position) &&
         policy_->admits(demand_for(position->window, position->wanted, true));
}

void OperationBudget::progress() {
  network_->progress();
  constexpr unsigned calls_between_looks = 8;
  if (sleepers_ > 0 && ++calls_ % calls_between_looks == 0) tell_sleepers();
}

void OperationBudget::progress_once(std::uint64_t round) {
  if (round_.exchange(round) != round) progress();
}

void OperationBudget::tell_sleepers() {
  if (sleepers_ == 0) return;
  const std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (!hold) return;  // somebody is looking
  reclaim(Until::first_under_way);
  bool wake = false;
  for (auto at = queue_.begin(); at != queue_.end(); ++at)
    if (at->sleeps && !at->woken && (at_work_ == 0 || is_worth_waking(at))) wake = at->woken = true;
  if (wake) room_.notify_all();
}

void OperationBudget::wait_for_room(const Turn& turn) {
  const ShortNaps short_naps;
  std::unique_lock<std::mutex> hold(mutex_);
  Waiting& mine = *turn.position_;
  mine.sleeps = true;
  mine.woken = false;
  const Counted counted(sleepers_);
  const auto end = Clock::now() + longest_standstill;
  // Streams who wait look at the network all the time, and tell: to wake meanwhile takes them a core, and all that wait
  // for them their time (naps that began at 200 µs made small exchanges a third slower). Where no stream looks this
  // thread does.
  bool streams_look = at_work_ > 0;
  std::chrono::microseconds nap = streams_look ? nap_beside_streams : shortest_nap;
  do {
    if (!streams_look) {
      hold.unlock();
      network_->progress();
      hold.lock();
    }
    reclaim(far_enough());
    // As long as something comes back: to take what little there is would mean to sleep again at once.
    if (is_worth_waking(turn.position_) || (standstill() > nap && may_go(turn.position_))) break;
    const unsigned calls = calls_;
    if (room_.wait_for(hold, nap, [&] { return mine.woken; })) break;
    streams_look = calls_ != calls;
    nap = streams_look ? nap_beside_streams : std::min(2 * nap, longest_nap);
  } while (Clock::now() < end);
  mine.sleeps = false;
}

void OperationBudget::enlist(std::shared_ptr<GrantHolder> holder) {
  Hold hold(mutex_);
  holders_.push_back(std::move(holder));
}

void OperationBudget::give_up(std::shared_ptr<GrantHolder> holder) {
  Hold hold(mutex_);
  lose(holder);
}

void OperationBudget::withdraw(const std::shared_ptr<GrantHolder>& holder) noexcept {
  Hold hold(mutex_);
  try {
    lose(holder);
    holders_.remove(holder);
  } catch (const std::exception&) {
    // Without memory it stays enlisted, until its window ends.
  }
}

void OperationBudget::take_back(const void* window, const Grant& grant) noexcept {
  Hold hold(mutex_);
  give_back(window, grant);
}

bool OperationBudget::is_idle(const void* window) {
  network_->progress();
  Hold hold(mutex_);
  reclaim(Until::end);
  return std::none_of(holders_.begin(), holders_.end(), [&](const auto& holder) { return holder->window() == window; });
}

std::string OperationBudget::first_of(const void* window, std::string (GrantHolder::*ask)()) {
  Hold hold(mutex_);
  for (const auto& holder : holders_) {
    if (holder->window() != window) continue;
    const std::string text = (holder.get()->*ask)();
    if (!text.empty()) return text;
  }
  return "";
}

std::string OperationBudget::failure_of(const void* window) {
  const std::string text = first_of(window, &GrantHolder::failure);
  const std::string of_network = text.empty() ? network_->failure() : text;
  return of_network.empty() ? late_posts_.failure() : of_network;
}

std::string OperationBudget::probe(const void* window) { return first_of(window, &GrantHolder::probe); }

std::string OperationBudget::missing(const void* window, Whose whose) const {
  constexpr std::size_t enough = 400;
  Hold hold(mutex_);
  std::string text;
  for (const bool own : {true, false}) {
    if (!own && whose == Whose::own) break;
    for (const auto& holder : holders_) {
      if ((holder->window() == window) != own) continue;
      const std::string missing = holder->missing();
      if (missing.empty()) continue;
      text += (text.empty() ? "" : ", ") + missing + (own ? "" : " (of another window)");
      if (text.size() > enough) return text + ", and more";
    }
  }
  return text;
}

std::chrono::duration<double> OperationBudget::still_for(const void* window, Whose whose) {
  Hold hold(mutex_);
  const auto now = Clock::now();
  for (const auto& holder : holders_) {
    if (!holder->moved()) continue;
    if (const auto found = windows_.find(holder->window()); found != windows_.end()) found->second.moved = now;
  }
  auto still = Clock::duration::max();
  for (const auto& [other, holding] : windows_)
    if (whose == Whose::all || other == window) still = std::min(still, now - holding.moved);
  return still;
}

void OperationBudget::abandon(const void* window) {
  Hold hold(mutex_);
  reclaim(Until::end);
  const std::size_t before = capacity_.operations;
  for (auto at = holders_.begin(); at != holders_.end();) {
    if ((*at)->window() != window) {
      ++at;
      continue;
    }
    lose(*at);
    at = holders_.erase(at);
  }
  windows_.erase(window);
  reclaim_lost();
  if (capacity_.operations < before)
    log(LogLevel::warn, std::to_string(before - capacity_.operations) +
                            " triggered operations are lost with a window that broke, until they are over; " +
                            std::to_string(capacity_.operations) + " are left");
}

std::size_t OperationBudget::total() const {
  Hold hold(mutex_);
  return capacity_.operations;
}

std::size_t OperationBudget::most_used() const {
  Hold hold(mutex_);
  return most_used_;
}

}  // namespace mpix
