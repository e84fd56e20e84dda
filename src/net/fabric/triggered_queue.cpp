// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/triggered_queue.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/block_pool.h"
#include "base/log.h"
#include "net/fabric/check.h"
#include "net/fabric/cxi.h"

namespace mpix {

/// A transfer of a TriggeredQueue: the lease of a chain.
class TriggeredTransfer final : public Transfer, public InBlock {
 public:
  TriggeredTransfer(std::shared_ptr<TriggeredQueue> queue, Chain* chain) : queue_(std::move(queue)), chain_(chain) {}
  ~TriggeredTransfer() override { queue_->take_back(chain_); }

  void start() override { queue_->start(*chain_); }
  bool delivered() override { return delivered_ = delivered_ || looked(chain_->delivered()); }
  bool finished() override { return looked(chain_->finished()); }
  std::string failure() override { return queue_->failure_of(*chain_); }
  bool cancel() override { return queue_->cancel(*chain_); }

 private:
  static constexpr unsigned looks_between_pokes = 8192;

  bool looked(bool found) {
    if (!found && chain_->started && ++looks_ % looks_between_pokes == 0) chain_->poke();
    return found;
  }

  const std::shared_ptr<TriggeredQueue> queue_;
  Chain* const chain_;
  unsigned looks_ = 0;
  bool delivered_ = false;
};

namespace {
/// Where the peer's process has gone sockets says that there is no such file.
std::string meaning_of(long error) {
  return std::string(error == -FI_ENOENT ? "no connection" : fabric_library().strerror(static_cast<int>(-error))) +
         " (" + std::to_string(error) + ")";
}
}  // namespace

// ---- pools -------------------------------------------------------------------------------------------

Chain* TriggeredQueue::open_chain() {
  auto chain = std::make_unique<Chain>();
  chain->doorbell = endpoint_->open_counter();
  chain->progress = chain->doorbell ? endpoint_->open_counter() : nullptr;
  if (!chain->progress) return nullptr;
  chain->doorbell_word = doorbell_word(chain->doorbell.get());
  chains_.push_back(std::move(chain));
  return chains_.back().get();
}

std::size_t TriggeredQueue::open_chains(std::size_t most) {
  Hold hold(mutex_);
  while (chains_.size() < most) {
    Chain* chain = open_chain();
    if (!chain) break;
    idle_.push_back(chain);
  }
  if (chains_.size() < most && chains_.size() > 1) {
    const std::size_t others = (chains_.size() + 3) / 4;
    chains_.resize(chains_.size() - others);
    idle_.resize(chains_.size());
  }
  if (chains_.empty()) throw Error(Fault::memory, "libfabric: the NIC has no counters left for triggered operations");
  return chains_.size();
}

std::size_t TriggeredQueue::open_counters() const {
  Hold hold(mutex_);
  return 2 * chains_.size();
}

std::uint64_t TriggeredQueue::largest_count() const {
  Hold hold(mutex_);
  std::uint64_t largest = 0;
  for (const auto& chain : chains_) largest = std::max(largest, chain->largest_count());
  return largest;
}

std::size_t TriggeredQueue::held_blocks() const {
  Hold hold(mutex_);
  std::size_t held = 0;
  for (const auto& chain : chains_) held += chain->deferred.size();
  return held;
}

Chain* TriggeredQueue::lease() {
  reclaim();
  for (std::size_t i = idle_.size(); i-- > 0;) {
    Chain* chain = idle_[i];
    if (!chain->is_ready()) continue;
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    return chain;
  }
  if (Chain* chain = open_chain()) return chain;
  throw Error(Fault::memory, "libfabric: the NIC has no counters left for triggered operations");
}

DeferredOp* TriggeredQueue::take_deferred() {
  if (free_deferred_.empty()) {
    constexpr std::size_t deferred_of_slab = 64;
    Slab slab{std::make_unique<DeferredOp[]>(deferred_of_slab), nullptr};
    if (endpoint_->sources_need_registration())
      slab.registration =
          endpoint_->register_memory(slab.deferred.get(), deferred_of_slab * sizeof(DeferredOp), FI_WRITE);
    for (std::size_t i = 0; i < deferred_of_slab; ++i) {
      DeferredOp& deferred = slab.deferred[i];
      deferred.own_descriptor = slab.registration ? slab.registration->descriptor() : nullptr;
      free_deferred_.push_back(&deferred);
    }
    slabs_.push_back(std::move(slab));
  }
  DeferredOp* deferred = free_deferred_.back();
  free_deferred_.pop_back();
  return deferred;
}

void TriggeredQueue::recycle(Chain& chain) {
  if (std::exchange(chain.going_out, false)) --going_out_;
  free_deferred_.insert(free_deferred_.end(), chain.deferred.begin(), chain.deferred.end());
  chain.deferred.clear();
  chain.rewind(counter_limit_);
  idle_.push_back(&chain);
}

/// What was never triggered goes with the counters that it hangs on. False: something of it may still run, or has to
/// stay queued.
bool TriggeredQueue::clear(Chain& chain) {
  if (chain.finished()) return true;
  if (!chain.is_still() || !endpoint_->closing_cancels()) return false;
  auto doorbell = endpoint_->open_counter();
  auto progress = doorbell ? endpoint_->open_counter() : nullptr;
  if (!progress) return false;
  chain.doorbell = std::move(doorbell);
  chain.progress = std::move(progress);
  chain.doorbell_value = chain.progress_value = 0;
  chain.writes = chain.signals = chain.errors = 0;
  chain.started = false;
  return true;
}

bool TriggeredQueue::cancel(Chain& chain) {
  Hold hold(mutex_);
  return clear(chain);
}

void TriggeredQueue::take_back(Chain* chain) noexcept {
  Hold hold(mutex_);
  try {
    if (clear(*chain))
      recycle(*chain);
    else
      leaving_.push_back(chain);
  } catch (const std::exception& error) {  // it is not used again
    log(LogLevel::warn, error.what());
  }
}

void TriggeredQueue::reclaim() {
  const auto gone = std::remove_if(leaving_.begin(), leaving_.end(), [this](Chain* chain) {
    if (!clear(*chain)) return false;
    recycle(*chain);
    return true;
  });
  leaving_.erase(gone, leaving_.end());
}

// ---- operations --------------------------------------------------------------------------------------

void TriggeredQueue::fill(DeferredOp& deferred, Chain& chain, fi_addr_t peer, const NetworkWrite& write) {
  const auto* registration = static_cast<const FabricRegistration*>(write.registered);
  deferred.source = {const_cast<void*>(write.source), write.bytes};
  deferred.target = {write.memory.base + write.offset, write.bytes, write.memory.key};
  deferred.descriptor = registration ? registration->descriptor() : nullptr;
  deferred.work.threshold = chain.doorbell_value + 1;
  deferred.work.triggering_cntr = chain.doorbell.get();
  if (write.place != 0) {
    fill_message(deferred, peer, write.place);
    return;
  }
  deferred.write = fi_op_rma{};
  deferred.write.ep = endpoint_->get();
  deferred.write.flags = FI_DELIVERY_COMPLETE;
  fi_msg_rma& message = deferred.write.msg;
  message.msg_iov = &deferred.source;
  message.desc = &deferred.descriptor;
  message.iov_count = 1;
  message.addr = peer;
  message.rma_iov = &deferred.target;
  message.rma_iov_count = 1;
  message.context = &deferred.work.context;
  deferred.work.op_type = FI_OP_WRITE;
  deferred.work.op.rma = &deferred.write;
}

/// Over when it has left: it is not answered.
void TriggeredQueue::fill_message(DeferredOp& deferred, fi_addr_t peer, std::uint64_t tag) {
  deferred.message = fi_op_tagged{};
  deferred.message.ep = endpoint_->get();
  deferred.message.flags = FI_INJECT_COMPLETE;
  fi_msg_tagged& message = deferred.message.msg;
  message.msg_iov = &deferred.source;
  message.desc = &deferred.descriptor;
  message.iov_count = 1;
  message.addr = peer;
  message.tag = tag;
  message.context = &deferred.work.context;
  deferred.work.op_type = FI_OP_TSEND;
  deferred.work.op.tagged = &deferred.message;
}

void TriggeredQueue::fill(DeferredOp& deferred, Chain& chain, fi_addr_t peer, const NetworkSignal& signal) {
  deferred.value = signal.value;
  deferred.operand = {&deferred.value, 1};
  deferred.descriptor = deferred.own_descriptor;
  deferred.word = {signal.memory.base + signal.offset, 1, signal.memory.key};
  deferred.atomic = fi_op_atomic{};
  deferred.atomic.ep = endpoint_->get();
  deferred.atomic.flags = FI_DELIVERY_COMPLETE;
  fi_msg_atomic& message = deferred.atomic.msg;
  message.msg_iov = &deferred.operand;
  message.desc = &deferred.descriptor;
  message.iov_count = 1;
  message.addr = peer;
  message.rma_iov = &deferred.word;
  message.rma_iov_count = 1;
  message.datatype = FI_UINT64;
  message.op = signal.kind == NetworkSignal::Kind::add ? FI_SUM : FI_ATOMIC_WRITE;
  message.context = &deferred.work.context;
  deferred.work.threshold = chain.chained ? chain.progress_value + chain.writes : chain.doorbell_value + 1;
  deferred.work.triggering_cntr = chain.chained ? chain.progress.get() : chain.doorbell.get();
  deferred.work.op_type = FI_OP_ATOMIC;
  deferred.work.op.atomic = &deferred.atomic;
}

void TriggeredQueue::submit(DeferredOp& deferred) {
  deferred.work.completion_cntr = deferred.chain->progress.get();  // sockets takes no null
  constexpr int tries = 1000;
  long result = -FI_EAGAIN;
  for (int i = 0; i < tries && result == -FI_EAGAIN; ++i) {
    result = fi_control(&endpoint_->domain()->fid, FI_QUEUE_WORK, &deferred.work);
    // Reading frees entries of the command queue that is full.
    if (result == -FI_EAGAIN)
      endpoint_->look_outward([this](void* context, const std::string& text) { note(context, text); });
  }
  if (result == -FI_ENOSPC || result == -FI_EAGAIN)
    throw Error(Fault::memory,
                "the NIC has no room for another triggered operation (MPIX_TRIGGERED_OPS sets a lower budget)");
  if (result < 0) throw Error(Fault::other, "libfabric: fi_control(FI_QUEUE_WORK): " + meaning_of(result));
}

std::unique_ptr<Transfer> TriggeredQueue::queue(fi_addr_t peer, const NetworkWrite* writes, std::size_t count,
                                                const NetworkSignal* signal) {
  Hold hold(mutex_);
  Chain& chain = *lease();
  chain.writes = count;
  chain.signals = signal ? 1 : 0;
  chain.chained =
      std::any_of(writes, writes + count, [this](const NetworkWrite& write) { return write.bytes > ordered_bytes_; });
  // A small part of what a socket takes without a pause.
  constexpr std::size_t at_once_bytes = 16 * 1024;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += writes[i].bytes;
  chain.at_once = bytes <= at_once_bytes && !(chain.chained && signal);
  chain.failure.clear();
  chain.errors = 0;
  const auto next = [&]() -> DeferredOp& {
    DeferredOp* deferred = take_deferred();
    deferred->work = fi_deferred_work{};
    deferred->chain = &chain;
    chain.deferred.push_back(deferred);
    return *deferred;
  };
  try {
    for (std::size_t i = 0; i < count; ++i) {
      DeferredOp& deferred = next();
      fill(deferred, chain, peer, writes[i]);
      submit(deferred);
    }
    if (signal) {
      DeferredOp& deferred = next();
      fill(deferred, chain, peer, *signal);
      submit(deferred);
    }
    return std::make_unique<TriggeredTransfer>(shared_from_this(), &chain);
  } catch (...) {
    if (clear(chain))
      recycle(chain);
    else
      leaving_.push_back(&chain);  // with what was queued already, and will never run
    throw;
  }
}

// ---- errors ------------------------------------------------------------------------------------------

/// One thread lets things arrive, or reads while nothing does; it ends with the scope, whatever is thrown.
class TriggeredQueue::Alone {
 public:
  explicit Alone(std::atomic_flag& taken) : taken_(taken), is_(!taken.test_and_set(std::memory_order_acquire)) {}
  ~Alone() {
    if (is_) taken_.clear(std::memory_order_release);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  explicit operator bool() const { return is_; }

 private:
  std::atomic_flag& taken_;
  const bool is_;
};

void TriggeredQueue::start(Chain& chain) {
  if (!chain.at_once && !std::exchange(chain.going_out, true)) ++going_out_;
  chain.ring();
  if (chain.doorbell_word) return;  // hardware is on its way
  // Each look outward also peeks at whatever has come in, in vain: so that is taken in before.
  if (const Alone alone(in_progress_); alone) look_inward();
  look_outward(chain.rung());
}

void TriggeredQueue::look_outward(std::uint64_t times) {
  Errors errors;
  while (times-- > 0)
    endpoint_->look_outward([&](void* context, const std::string& text) { errors.emplace_back(context, text); });
  note(errors);
}

/// By one thread at a time.
void TriggeredQueue::look_inward() {
  Errors errors;
  endpoint_->look_inward([&](void* context, const std::string& text) { errors.emplace_back(context, text); });
  note(errors);
}

void TriggeredQueue::progress() {
  // What was started has been looked at; what needs more is looked after, and errors are found, now and then.
  constexpr std::uint64_t looks_between_looks_outward = 8;
  const Alone alone(in_progress_);
  if (!alone) return;
  const std::uint64_t looks = looks_.fetch_add(1, std::memory_order_relaxed);
  try {
    // Not under the lock: the provider moves data meanwhile, and others may queue.
    if (going_out_ > 0 || looks % looks_between_looks_outward == 0) look_outward(1);
    look_inward();
  } catch (const std::exception&) {
    // What was told of operations is lost.
    Hold hold(mutex_);
    failure_ = "out of memory";  // as short as needs none
  }
}

std::string TriggeredQueue::failure() const {
  Hold hold(mutex_);
  return failure_;
}

bool TriggeredQueue::read_still(const std::function<void()>& read) {
  const Alone alone(in_progress_);
  if (alone) read();
  return static_cast<bool>(alone);
}

void TriggeredQueue::note(const Errors& errors) {
  if (errors.empty()) return;
  Hold hold(mutex_);
  for (const auto& error : errors) note(error.first, error.second);
}

bool TriggeredQueue::is_busy() const {
  Hold hold(mutex_);
  return std::any_of(chains_.begin(), chains_.end(),
                     [](const auto& chain) { return chain->started && !chain->finished() && chain->failure.empty(); });
}

/// The first error of a chain is the cause, and what hangs on it follows. Contexts that are none of ours are ignored.
void TriggeredQueue::note(void* context, const std::string& text) {
  for (auto& entry : probes_)
    if (&entry.second.context == context) {
      entry.second.under_way = false;
      entry.second.failure = text;
    }
  if (text.empty()) return;
  for (const auto& chain : chains_)
    for (DeferredOp* deferred : chain->deferred)
      if (&deferred->work.context == context) {
        ++chain->errors;
        if (chain->failure.empty()) chain->failure = text;
      }
}

std::string TriggeredQueue::probe(fi_addr_t peer, const RemoteMemory& memory, std::uint64_t offset) {
  Hold hold(mutex_);
  Probe& probe = probes_[peer];
  if (probe.under_way) return "";
  // Memory of a window that a live peer has freed since is refused.
  const std::string earlier = probe.key == memory.key ? probe.failure : "";
  const long result = endpoint_->touch(peer, memory, offset, &probe.context);
  probe.under_way = result == 0;
  if (result == 0) probe.key = memory.key;
  if (result == 0 || result == -FI_EAGAIN) return earlier;
  return meaning_of(result);
}

std::string TriggeredQueue::failure_of(const Chain& chain) const {
  Hold hold(mutex_);
  return chain.failure;
}

}  // namespace mpix
