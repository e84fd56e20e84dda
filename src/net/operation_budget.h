// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/awake_clock.h"
#include "base/block_pool.h"
#include "net/late_posts.h"
#include "net/network.h"
#include "net/throttle.h"

namespace mpix {

/// A part of the budget: what an epoch holds from when it is enqueued until its transfers are over.
struct Grant {
  std::size_t operations = 0;
  std::size_t transfers = 0;

  bool empty() const { return operations == 0 && transfers == 0; }
  void add(const Grant& other) {
    operations += other.operations;
    transfers += other.transfers;
  }
  void take(const Grant& other) {
    operations -= other.operations;
    transfers -= other.transfers;
  }
};

/// Who holds a grant.
class GrantHolder {
 public:
  virtual ~GrantHolder() = default;
  virtual const void* window() const = 0;
  /// What it needs no more.
  virtual Grant reclaim() = 0;
  /// What it holds after that.
  virtual Grant held() const = 0;
  /// The operations of it that carry data, or tell of them. Posts are none: one may wait for the next data to carry it,
  /// and so those must not wait for it.
  virtual std::size_t with_data() const = 0;
  /// Empty, or why it will hold it for ever.
  virtual std::string failure() = 0;
  /// The same, after asking the peers that have not got all of it whether they live.
  virtual std::string probe() = 0;
  /// Which peers have not got all of it, for reports. Nothing of what no stream has come to.
  virtual std::string missing() const = 0;
  /// Whether some of it was started, or is over, since this was last asked.
  virtual bool moved() = 0;
  /// Its window broke: it will not be served any more.
  virtual bool is_broken() const = 0;
  /// From here on only what is under way holds something, until it is over.
  virtual void give_up() = 0;
};

/// The network of this process, and its budget, which all windows share. Never more is granted than there is.
class OperationBudget {
 public:
  /// `remark`, where there is one, is a warning to log when an epoch first needs the network.
  OperationBudget(std::unique_ptr<Network> network, const Settings& settings, bool cores_to_spare = false,
                  std::string remark = "");

  /// See Network; before the first epoch of a window with ranks of other nodes.
  void begin();

  Network& network() { return *network_; }
  std::string describe() const;  ///< for the log

  /// A window that will ask. Each is sure of one operation, so that none waits for ever for what others hold, who wait
  /// for it at another rank: a window alone works with a budget of one. (Not with a policy that never waits, nor where
  /// there are more windows than operations.)
  void enter(const void* window);

  class Turn;
  class Lease;
  class Unserved;
  /// The grant that an epoch of `window` needs: at most what it wants, and less where the whole budget is less. None:
  /// not now, and `turn` keeps its position among those who wait for room, until it gets there or ends. Throws Error
  /// where the policy says so, or where nothing of the budget is left for good. `may_refuse` false: for who has no
  /// caller to tell, and asks again (the relay): then no policy throws, and what is larger than the budget goes in
  /// stages.
  std::optional<Grant> try_admit(const void* window, const Grant& wanted, Turn& turn, bool may_refuse = true);
  /// From here on the holder's grant is given back as it reclaims.
  void enlist(std::shared_ptr<GrantHolder> holder);
  /// The same for one whose operations could not all be queued: the grant of those that were is lost until they are
  /// over.
  void give_up(std::shared_ptr<GrantHolder> holder);
  /// The same for one that was enlisted, and that no stream will serve.
  void withdraw(const std::shared_ptr<GrantHolder>& holder) noexcept;

  /// Whether nothing of the window's epochs is queued any more.
  bool is_idle(const void* window);
  /// Empty, or what went wrong with one of its epochs.
  std::string failure_of(const void* window);
  /// The same, after asking the peers that have not got all of its epochs whether they live.
  std::string probe(const void* window);
  /// Which peers what is under way has not reached, the window's first, or only of these.
  enum class Whose { own, all };
  std::string missing(const void* window, Whose whose = Whose::all) const;
  /// For how long nothing of the window's epochs has moved, or of any window's. For who asks again and again: what has
  /// moved since it was last asked has moved just now.
  std::chrono::duration<double> still_for(const void* window, Whose whose);
  /// The window ends, and what its epochs still hold is lost until it is over: their operations stay with the NIC.
  void abandon(const void* window);

  /// Let the network work, and tell calls that wait for room now and then.
  void progress();
  /// The same, but only once for all who ask in that round of the service.
  void progress_once(std::uint64_t round);
  class AtWork;
  /// Wait, asleep, until it is likely that try_admit(), which found none, would find room, or for some time.
  void wait_for_room(const Turn& turn);

  LatePosts& late_posts() { return late_posts_; }

  /// Without what is lost.
  std::size_t total() const;
  std::size_t most_used() const;

 private:
  using Clock = AwakeClock;
  /// Who was refused, the first in front.
  struct Waiting {
    const void* window;
    Grant wanted;
    Clock::time_point since;
    bool needs_room = false;  ///< and not only the end of the window's earlier epochs
    bool sleeps = false, woken = false;
  };
  using Queue = std::list<Waiting>;
  enum class Until { first_under_way, end };
  using Holders = std::list<std::shared_ptr<GrantHolder>, BlockAllocator<std::shared_ptr<GrantHolder>>>;
  void reclaim(Until until);                               // under mutex_
  void reclaim_lost();                                     // under mutex_
  void give_back(const void* window, const Grant& grant);  // under mutex_
  void take_back(const void* window, const Grant& grant) noexcept;
  void lose(const std::shared_ptr<GrantHolder>& holder);                                            // under mutex_
  bool is_each_sure_of_one() const;                                                                 // under mutex_
  void warn_if_not_sure();                                                                          // under mutex_
  Grant room_for(const void* window) const;                                                         // under mutex_
  bool has_room_for(const void* window, const Grant& grant, Queue::const_iterator position) const;  // under mutex_
  Clock::duration standstill();                                                                     // under mutex_
  bool stands_still();                                                                              // under mutex_
  Until far_enough();                                                                               // under mutex_
  void tell_sleepers();
  bool is_worth_waking(Queue::const_iterator position) const;  // under mutex_
  bool may_go(Queue::const_iterator position) const;           // under mutex_
  void leave(Queue::iterator position);
  std::string first_of(const void* window, std::string (GrantHolder::*ask)());
  Demand demand_for(const void* window, const Grant& wanted, bool refused) const;  // likewise
  Grant share_of(const void* window, const Grant& wanted) const;                   // likewise

  const std::unique_ptr<Network> network_;
  const std::unique_ptr<ThrottlePolicy> policy_;
  std::string remark_;
  mutable std::mutex mutex_;  ///< guards what follows
  Capacity capacity_;         ///< without what is lost
  Grant used_;
  std::size_t most_used_ = 0;
  bool has_warned_ = false;
  unsigned admissions_ = 0;
  static constexpr std::size_t few_holders = 64;
  std::size_t look_at_ = few_holders;  ///< so many holders are looked at, all of them
  struct Holding {
    Grant held;
    Clock::time_point moved = Clock::now();
  };
  std::map<const void*, Holding> windows_;
  Holders holders_;  ///< the oldest first
  Holders lost_;     ///< the NIC may still read what they own
  Queue queue_;
  bool moved_ = false;  ///< something was granted, or came back, since still_since_
  Clock::time_point still_since_{};
  std::condition_variable room_;
  std::atomic<std::size_t> sleepers_{0};
  std::atomic<unsigned> calls_{0};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<std::size_t> at_work_{0};
  LatePosts late_posts_;  ///< last: it ends first
};

/// A launch with work between nodes, from when it is enqueued until a stream has served it.
class OperationBudget::AtWork {
 public:
  explicit AtWork(OperationBudget& budget) : budget_(budget) { ++budget_.at_work_; }
  ~AtWork() {  // of one that could not be enqueued
    if (!over_) --budget_.at_work_;
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  /// A thread that waits for room is told where there is some, and where streams have nothing more to do here, and so
  /// do not look at the network any more.
  void over() {
    if (std::exchange(over_, true)) return;
    --budget_.at_work_;
    budget_.tell_sleepers();
  }

 private:
  OperationBudget& budget_;
  bool over_ = false;
};

/// The owner of a grant until a holder has taken it over: what none has taken over goes back.
class OperationBudget::Lease {
 public:
  Lease() = default;
  Lease(OperationBudget& budget, const void* window, const Grant& grant)
      : budget_(&budget), window_(window), grant_(grant) {}
  ~Lease() {
    if (budget_) budget_->take_back(window_, grant_);
  }
  Lease(Lease&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), window_(other.window_), grant_(other.grant_) {}
  Lease& operator=(Lease&&) = delete;

  const Grant& grant() const { return grant_; }
  /// As those of the budget, for the holder of this grant.
  void enlist(std::shared_ptr<GrantHolder> holder) {
    budget_->enlist(std::move(holder));
    budget_ = nullptr;
  }
  void give_up(std::shared_ptr<GrantHolder> holder) {
    budget_->give_up(std::move(holder));
    budget_ = nullptr;
  }

 private:
  OperationBudget* budget_ = nullptr;  ///< null: nothing is owned
  const void* window_ = nullptr;
  Grant grant_{};
};

/// A holder that was enlisted, in a scope that enqueues what serves it: where that throws it is withdrawn.
class OperationBudget::Unserved {
 public:
  /// Null: there is none.
  Unserved(OperationBudget* budget, std::shared_ptr<GrantHolder> holder)
      : budget_(budget), holder_(std::move(holder)) {}
  ~Unserved() {
    if (holder_) budget_->withdraw(holder_);
  }
  Unserved(const Unserved&) = delete;
  Unserved& operator=(const Unserved&) = delete;

  /// A stream will serve it, or some of it.
  void none() { holder_ = nullptr; }

 private:
  OperationBudget* const budget_;
  std::shared_ptr<GrantHolder> holder_;
};

/// The position of a request that was refused. Room goes to who asked first: else what needs much of the budget would
/// be overtaken, again and again, by what needs little.
class OperationBudget::Turn {
 public:
  Turn() = default;
  ~Turn() { leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool waits() const { return budget_ != nullptr; }
  std::optional<Clock::time_point> since() const {
    return waits() ? std::optional<Clock::time_point>(position_->since) : std::nullopt;
  }
  void leave() {
    if (budget_) std::exchange(budget_, nullptr)->leave(position_);
  }

 private:
  friend class OperationBudget;
  OperationBudget* budget_ = nullptr;
  Queue::iterator position_;
};

}  // namespace mpix
