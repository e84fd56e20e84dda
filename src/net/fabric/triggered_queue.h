// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "net/fabric/chain.h"
#include "net/fabric/endpoint.h"
#include "net/progress_agent.h"

namespace mpix {

/// The triggered operations of one endpoint: pools of chains (counters) and of deferred operations, so that an
/// epoch opens and allocates nothing.
class TriggeredQueue final : public Progressing, public std::enable_shared_from_this<TriggeredQueue> {
 public:
  /// Counters are reset to zero once they have passed `counter_limit`. A signal is triggered by the delivery of the
  /// writes before it (chained); where they have no more than `ordered_bytes` each, it only follows them.
  TriggeredQueue(std::shared_ptr<Endpoint> endpoint, std::uint64_t counter_limit, std::size_t ordered_bytes)
      : endpoint_(std::move(endpoint)), counter_limit_(counter_limit), ordered_bytes_(ordered_bytes) {}

  /// Open chains ahead of time, as many as the NIC has counters for; leaves some to other users of it. How many
  /// there are then.
  std::size_t open_chains(std::size_t most);

  std::unique_ptr<Transfer> queue(fi_addr_t peer, const NetworkWrite* writes, std::size_t count,
                                  const NetworkSignal* signal);

  /// Let the provider work, and look for errors. Returns at once where another thread is doing so.
  void progress() override;
  /// Run `read` while no thread is in progress(); false, without it, while one is.
  bool read_still(const std::function<void()>& read);
  std::uint64_t looks() const override { return looks_.load(std::memory_order_relaxed); }
  bool is_busy() const override;

  /// See Network.
  std::string failure() const;
  std::string probe(fi_addr_t peer, const RemoteMemory& memory, std::uint64_t offset);

  /// How many counters are open, the largest value of one, and how many operations are held by transfers, over or not;
  /// for tests.
  std::size_t open_counters() const;
  std::uint64_t largest_count() const;
  std::size_t held_blocks() const;
  /// How many transfers were started and need more than a look; likewise.
  std::size_t going_out() const { return going_out_; }

 private:
  friend class TriggeredTransfer;
  using Hold = std::lock_guard<std::mutex>;

  using Errors = std::vector<std::pair<void*, std::string>>;
  class Alone;
  void start(Chain& chain);
  void look_outward(std::uint64_t times);
  void look_inward();
  void note(const Errors& errors);
  Chain* lease();               // under mutex_
  Chain* open_chain();          // under mutex_
  void reclaim();               // under mutex_
  DeferredOp* take_deferred();  // under mutex_
  void recycle(Chain& chain);   // under mutex_
  bool clear(Chain& chain);     // under mutex_
  bool cancel(Chain& chain);
  void take_back(Chain* chain) noexcept;
  std::string failure_of(const Chain& chain) const;
  void fill(DeferredOp& deferred, Chain& chain, fi_addr_t peer, const NetworkWrite& write);
  void fill(DeferredOp& deferred, Chain& chain, fi_addr_t peer, const NetworkSignal& signal);
  void fill_message(DeferredOp& deferred, fi_addr_t peer, std::uint64_t tag);
  void submit(DeferredOp& deferred);
  void note(void* context, const std::string& text);  // under mutex_

  // Operations that never ran stay queued until the endpoint is closed: what they point to goes after it.
  struct Slab {
    std::unique_ptr<DeferredOp[]> deferred;
    std::shared_ptr<FabricRegistration> registration;  ///< null where operands need none
  };
  std::vector<Slab> slabs_;
  struct Probe {
    fi_context2 context{};
    bool under_way = false;
    std::uint64_t key = 0;  ///< of the memory that it touches
    std::string failure;
  };
  std::map<fi_addr_t, Probe> probes_;  ///< lie still
  const std::shared_ptr<Endpoint> endpoint_;
  const std::uint64_t counter_limit_;
  const std::size_t ordered_bytes_;
  std::atomic<std::uint64_t> looks_{0};
  std::atomic<std::size_t> going_out_{0};  ///< the chains that say so
  std::atomic_flag in_progress_ = ATOMIC_FLAG_INIT;
  mutable std::mutex mutex_;  ///< guards slabs_, probes_ and what follows
  std::vector<std::unique_ptr<Chain>> chains_;
  std::vector<Chain*> idle_;
  std::deque<Chain*> leaving_;  ///< their transfers are gone, and they are not over
  std::vector<DeferredOp*> free_deferred_;
  std::string failure_;
};

}  // namespace mpix
