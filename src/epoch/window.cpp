// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/window.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

constexpr int looks_for_posts = 200;  ///< a millisecond each

/// One call, for the vendor's profiler.
class Range {
 public:
  Range(Device& device, const Settings& settings, Call call) : device_(settings.ranges ? &device : nullptr) {
    if (device_) device_->begin_range(name_of(call));
  }
  ~Range() {
    if (device_) device_->end_range();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  Device* const device_;
};

}  // namespace

Window::Window(std::string name, const LocalMemory& memory, Bootstrap& bootstrap, Device& device,
               const Settings& settings, OperationBudget* budget, std::string why_not)
    : name_(std::move(name)),
      device_(device),
      settings_(settings),
      unmaps_later_(device),
      peers_(memory, bootstrap, device, settings),
      remote_(std::make_shared<RemotePeers>(memory, bootstrap, device, budget, why_not, settings,
                                            needs_relay(device, settings), peers_.why_no_network())),
      host_words_(device.host_words(static_cast<std::size_t>(bootstrap.size()))),
      stall_(name_, host_words_.get(), settings.timeout_seconds, settings.fail_on_timeout, device.hang_advice(),
             [this](Call call) { return call == Call::wait ? complete_behind_wait() : ""; }),
      recorder_(peers_, *remote_, device, settings.merge),
      lazy_post_(memory.lazy_post && settings.merge && !peers_.needs_guards()),
      enqueued_(static_cast<std::size_t>(peers_.size())),
      most_receive_bytes_(std::min<std::uint64_t>(memory.bytes, peers_.eager_bytes())) {
  if (needs_relay(device, settings) && peers_.why_no_network().empty()) {
    auto relayed = std::make_shared<RelayPeers>(memory, bootstrap, device, budget, why_not, settings, peers_);
    if (relayed->is_connected()) {
      relay_ = std::make_unique<Relay>(std::move(relayed), this, stall_, host_words_);
      log(LogLevel::info, "window '" + name_ + "': a relay carries what goes to ranks of other nodes");
    }
  }
  if (settings.merge) launch_memory_ = device.new_launch_memory();
  if (peers_.is_staged())
    log(LogLevel::info, "window '" + name_ + "': peers cannot map its memory, so large puts are staged");
  if (peers_.needs_guards()) {
    guards_ = std::make_unique<Guards>(peers_, device, host_words_.get());
    log(LogLevel::info, "window '" + name_ + "': streams wait in memory operations (MPIX_WAIT)");
  }
  if (settings.timeout_seconds > 0 && (guards_ || device.stalls_silently()))
    watch_ = std::make_unique<WaitWatch>(*host_words_, enqueued_.size(), stall_, guards_.get());
  if (budget && this->budget()) this->budget()->enter(this);
  add_live(*this);
  try {
    peers_.agree(bootstrap);
  } catch (...) {
    remove_live(*this);
    if (this->budget()) this->budget()->abandon(this);
    throw;
  }
}

Window::~Window() {
  remove_live(*this);
  if (relay_) relay_->stop();
  if (budget()) budget()->abandon(this);
  if (remote_->is_connected()) remote_->end_window();
  if (relay_) relay_->peers().withdraw();
  await_posts();
  if (!was_captured_) return;
  watch_ = nullptr;
  try {
    peers_.retire();
    if (relay_) relay_->peers().retire(Neighbourhood::retired_words());
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());
  }
  // What is launched later leaves its waits.
  __atomic_store_n(&host_words_->released, 1, __ATOMIC_RELEASE);
}

// ---- rules -------------------------------------------------------------------------------------------

/// So that it can be freed.
void Window::close_epochs_if_broken() {
  if (!is_broken()) return;
  if (state_.access() == EpochState::Side::stream) close_access();
  if (state_.exposure() == EpochState::Side::stream) close_exposure();
}

void Window::check_usable() {
  close_epochs_if_broken();
  if (is_broken()) throw Error(Fault::synchronization, "the window is broken: " + stall_.cause());
}

std::unique_ptr<BlockedCall> Window::watch_ordinary(const char* call) {
  Hold hold(mutex_);
  if (stall_.patience() <= 0 || state_.exposure() != EpochState::Side::stream) return nullptr;
  return std::make_unique<BlockedCall>(stall_, call);
}

void Window::check_free() {
  Hold hold(mutex_);
  close_epochs_if_broken();
  state_.check_free();
}

void Window::check_ranks(const std::vector<int>& ranks) const {
  for (int rank : ranks) {
    if (rank < 0 || rank >= peers_.size())
      throw Error(Fault::rank, "rank " + std::to_string(rank) + " is not in the window's group");
    const RemotePeer* remote = remote_->find(rank);
    if (remote && !remote->reachable)
      throw Error(Fault::unsupported,
                  "rank " + std::to_string(rank) + " is on another node, and cannot be reached: " + remote_->why_not());
    if (!remote && !peers_.peer(rank).trouble.empty()) throw Error(Fault::unsupported, peers_.peer(rank).trouble);
    if (!remote && !peers_.peer(rank).reachable)
      throw Error(Fault::unsupported, "the memory of rank " + std::to_string(rank) + " cannot be mapped from here");
  }
}

void Window::close_access() {
  state_.complete_stream();
  recording_.store(false, std::memory_order_release);
  lacks_access_.store(state_.lacks_access(), std::memory_order_release);
}

// ---- exposure ----------------------------------------------------------------------------------------

std::shared_ptr<const ExposurePlan> Window::exposure_plan(const std::vector<int>& origins) {
  check_ranks(origins);
  for (int rank : origins) peers_.connect_origin(rank);
  begin_network(origins);
  auto plan = exposure_plans_.find([&](const ExposurePlan& known) { return known.origins == origins; });
  if (plan) return plan;
  plan = ExposurePlan::build(origins, peers_, *remote_, device_);
  exposure_plans_.add(plan);
  return plan;
}

void Window::post_stream(const std::vector<int>& origins, Stream stream) {
  const Range range(device_, settings_, Call::post);
  Lock hold(mutex_);
  const auto check = [&] {
    check_usable();
    state_.check_post_stream();
    check_stream(stream);
  };
  check();
  auto plan = exposure_plan(origins);
  OperationBudget::Lease lease = admit(hold, {plan->remote.size(), plan->remote.size()}, Call::post, check);
  if (lazy_post_ && plan->remote.empty())
    held_post_ = HeldPost{plan, stream, capture_};
  else
    launch_post(plan, stream, std::move(lease));
  if (capture_) keep_for_graph(stream, plan);
  exposure_ = std::move(plan);
  if (!capture_ && !held_post_.plan)
    for (int rank : origins) ++enqueued_[static_cast<std::size_t>(rank)].opened;
  state_.post_stream();
  lacks_access_.store(state_.lacks_access(), std::memory_order_release);
  ++stats_.exposure_epochs;
  stats_.network_operations += exposure_->remote.size();
}

void Window::launch_post(const std::shared_ptr<const ExposurePlan>& plan, Stream stream, OperationBudget::Lease lease) {
  const auto remote = queue_posts(plan, std::move(lease));
  OperationBudget::Unserved unserved(budget(), remote);
  for_parts(plan->posts.count(), plan->remote.size(), [&](Part part) {
    Launch launch = new_launch(Call::post);
    add_posts(launch, plan, part.first, part.count);
    add_remote(launch, remote, part.first_remote, part.remote_count);
    enqueue(launch, stream);
    if (part.remote_count > 0) unserved.none();
  });
}

/// Before anything is enqueued.
void Window::check_stream(Stream stream) {
  capture_ = device_.check_stream(stream);
  if (held_post_.plan && capture_ != held_post_.capture)
    throw Error(
        Fault::synchronization,
        "the post before this call was made inside a capture, and this call is not in the same one, or the other "
        "way round: with mpix_lazy_post a post goes with the next call on its window");
}

void Window::carry_held_post(Launch& launch, Stream stream) {
  if (!held_post_.plan) return;
  if (held_post_.stream == stream || !is_alive(held_post_.stream)) {
    add_posts(launch, held_post_.plan, 0, held_post_.plan->posts.count());
  } else {
    launch_post(held_post_.plan, held_post_.stream);
    held_post_ = HeldPost{};
  }
}

/// The work of a stream that was destroyed meanwhile has run: any stream comes after it.
bool Window::is_alive(Stream stream) const {
  try {
    (void)device_.check_stream(stream);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Window::wait_stream(Stream stream) {
  const Range range(device_, settings_, Call::wait);
  Hold hold(mutex_);
  check_usable();
  state_.check_wait_stream();
  check_stream(stream);
  launch_wait(exposure_, Call::wait, stream);
  if (capture_)
    keep_for_graph(stream, exposure_);
  else
    for (int rank : exposure_->origins) ++enqueued_[static_cast<std::size_t>(rank)].closed;
  last_wait_ = stream;
  close_exposure();
}

void Window::close_exposure() {
  exposure_ = nullptr;
  held_post_ = HeldPost{};  // left over only by an empty or a broken epoch
  state_.wait_stream();
}

void Window::launch_wait(const std::shared_ptr<const ExposurePlan>& plan, Call call, Stream stream) {
  if (guards_) guards_->before_receive(*plan, call, stream);
  for_parts(plan->receives.count(), plan->remote.size(), [&](Part part) {
    Launch launch = new_launch(call);
    carry_held_post(launch, stream);
    add_receives(launch, plan, part.first, part.count);
    add_remote_receives(launch, *plan, part.first_remote, part.remote_count);
    enqueue(launch, stream);
  });
}

// ---- access ------------------------------------------------------------------------------------------

void Window::start_stream(const std::vector<int>& targets) {
  Hold hold(mutex_);
  check_usable();
  state_.check_start_stream();
  check_ranks(targets);
  for (int rank : targets) peers_.connect_target(rank);
  begin_network(targets);
  recorder_.start(targets);
  state_.start_stream();
  recording_.store(true, std::memory_order_release);
  lacks_access_.store(false, std::memory_order_release);
}

void Window::put(const Put& put) {
  Hold hold(mutex_);
  check_usable();
  if (state_.access() != EpochState::Side::stream)
    throw Error(Fault::synchronization, "the stream access epoch was closed meanwhile");
  recorder_.put(put);
}

/// Once the epoch of `plan` is enqueued, and not before: what throws until then has changed nothing.
void Window::close_access(const std::shared_ptr<const AccessPlan>& plan, bool reused) {
  ++(reused ? stats_.plans_reused : stats_.plans_built);
  stats_.add(plan->effect);
  if (!capture_)
    for (int rank : plan->targets) ++enqueued_[static_cast<std::size_t>(rank)].sent;
  last_access_ = plan;
  ++stats_.access_epochs;
  close_access();
}

void Window::complete_stream(Stream stream) {
  const Range range(device_, settings_, Call::complete);
  Lock hold(mutex_);
  const auto check = [&] {
    check_usable();
    state_.check_complete_stream();
    check_stream(stream);
  };
  check();
  bool reused = false;
  const auto plan = recorder_.finish(&reused);
  launch_complete(plan, Call::complete, stream, admit(hold, grant_for(plan->remote), Call::complete, check));
  if (capture_) keep_for_graph(stream, plan);
  last_complete_ = stream;
  close_access(plan, reused);
}

void Window::launch_copies(const std::shared_ptr<const AccessPlan>& plan, Stream stream) {
  if (plan->copies.empty()) return;
  Launch launch = new_launch(Call::complete);
  carry_held_post(launch, stream);
  add_sends(launch, plan, plan->before_copies, 0, plan->before_copies.count());
  launch.before_copies = true;
  enqueue(launch, stream);
  for (const Copy& copy : plan->copies) device_.copy(stream, copy.to, copy.from, copy.bytes);
}

void Window::launch_complete(const std::shared_ptr<const AccessPlan>& plan, Call call, Stream stream,
                             OperationBudget::Lease lease) {
  const auto remote = queue_sends(plan, call, std::move(lease));
  OperationBudget::Unserved unserved(budget(), remote);
  if (guards_) guards_->before_send(*plan, call == Call::complete_wait ? exposure_.get() : nullptr, call, stream);
  launch_copies(plan, stream);
  const DeviceArray<SendPeer>& sends = settings_.merge ? plan->merged : plan->unmerged;
  for_parts(sends.count(), plan->remote.size(), [&](Part part) {
    Launch launch = new_launch(call);
    carry_held_post(launch, stream);
    add_sends(launch, plan, sends, part.first, part.count);
    add_remote(launch, remote, part.first_remote, part.remote_count);
    enqueue(launch, stream);
    if (part.remote_count > 0) unserved.none();
  });
}

void Window::complete_wait_stream(Stream stream) {
  const Range range(device_, settings_, Call::complete_wait);
  Lock hold(mutex_);
  const auto check = [&] {
    check_usable();
    state_.check_complete_stream();
    state_.check_wait_stream();
    check_stream(stream);
  };
  check();
  bool reused = false;
  const auto access = recorder_.finish(&reused);
  OperationBudget::Lease lease = admit(hold, grant_for(access->remote), Call::complete_wait, check);
  if (settings_.merge && !guards_) {
    const auto remote = queue_sends(access, Call::complete_wait, std::move(lease));
    OperationBudget::Unserved unserved(budget(), remote);
    launch_copies(access, stream);
    Launch launch = new_launch(Call::complete_wait);
    carry_held_post(launch, stream);
    add_sends(launch, access, access->merged, 0, access->merged.count());
    add_receives(launch, exposure_, 0, exposure_->receives.count());
    add_remote(launch, remote, 0, access->remote.size());
    add_remote_receives(launch, *exposure_, 0, exposure_->remote.size());
    enqueue(launch, stream);
    unserved.none();
  } else {
    launch_complete(access, Call::complete_wait, stream, std::move(lease));
    launch_wait(exposure_, Call::complete_wait, stream);
  }
  if (capture_) {
    keep_for_graph(stream, access);
    keep_for_graph(stream, exposure_);
  } else {
    for (int rank : exposure_->origins) ++enqueued_[static_cast<std::size_t>(rank)].closed;
  }
  last_wait_ = last_complete_ = stream;
  close_access(access, reused);
  close_exposure();
}

// ---- launching ---------------------------------------------------------------------------------------

/// Merged: all entries in one launch. Else a launch for each, first those of this node.
template <class Enqueue>
void Window::for_parts(std::uint32_t entries, std::size_t remote, Enqueue enqueue_part) {
  if (settings_.merge) {
    if (entries + remote > 0) enqueue_part(Part{0, entries, 0, remote});
    return;
  }
  for (std::uint32_t first = 0; first < entries; ++first) enqueue_part(Part{first, 1, 0, 0});
  for (std::size_t first = 0; first < remote; ++first) enqueue_part(Part{0, 0, first, 1});
}

Launch Window::new_launch(Call call) {
  Launch launch;
  launch.call = call;
  launch.stall = &stall_;
  launch.program.captured = capture_ != 0;
  launch.program.guards = guards_ ? peers_.guard_marks() : nullptr;
  launch.sharers = peers_.sharers();
  launch.room = peers_.waiting_room();
  launch.relayed = relay_ != nullptr;
  launch.program.bell = peers_.bell();
  launch.program.host = host_words_.get();
  return launch;
}

void Window::add_posts(Launch& launch, const std::shared_ptr<const ExposurePlan>& plan, std::uint32_t first,
                       std::uint32_t count) {
  launch.program.tables.posts = plan->posts.data() + first;
  launch.on_host.posts = plan->posts.on_host.data() + first;
  launch.program.post_count = count;
  launch.keep[0] = plan;
}

void Window::add_sends(Launch& launch, const std::shared_ptr<const AccessPlan>& plan,
                       const DeviceArray<SendPeer>& sends, std::uint32_t first, std::uint32_t count) {
  launch.program.tables.sends = sends.data() + first;
  launch.on_host.sends = sends.on_host.data() + first;
  launch.program.send_count = count;
  launch.program.tables.ops = plan->ops.data();
  launch.on_host.ops = plan->ops.on_host.data();
  launch.program.op_count = plan->ops.count();
  launch.program.send_bytes = plan->most_bytes;
  launch.keep[1] = plan;
}

void Window::add_receives(Launch& launch, const std::shared_ptr<const ExposurePlan>& plan, std::uint32_t first,
                          std::uint32_t count) {
  launch.program.tables.receives = plan->receives.data() + first;
  launch.on_host.receives = plan->receives.on_host.data() + first;
  launch.program.receive_count = count;
  launch.keep[0] = plan;
  if (!launch.keep[1]) launch.keep[1] = last_access_;
  const auto* expected = static_cast<const AccessPlan*>(launch.keep[1].get());
  launch.expected_bytes = expected ? expected->bytes_to_move.data() : nullptr;
  launch.program.receive_bytes = most_receive_bytes_;
}

void Window::enqueue(Launch& launch, Stream stream) {
  launch.memory = launch_memory_.get();
  // Before the launch is in flight itself: only those before it may have run.
  if (device_.reads_plans_later() && in_flight_.add(launch.keep)) {
    if (has_run_locked()) {
      in_flight_.have_run();
      in_flight_.add(launch.keep);
    } else {
      in_flight_.have_not_run();
    }
  }
  device_.launch(stream, launch);
  if (relay_) relay_->wake();
  ++launched_;
  if (launch.program.post_count == 0 || !held_post_.plan) return;
  // Only now is it enqueued.
  if (!held_post_.capture)
    for (int rank : held_post_.plan->origins) ++enqueued_[static_cast<std::size_t>(rank)].opened;
  held_post_ = HeldPost{};
}

/// The graph has a part of this window: what its kernels touch must stay until it is gone.
void Window::keep_for_graph(Stream stream, std::shared_ptr<const void> plan) {
  struct Parts {
    std::shared_ptr<const void> plan, control, words, relayed;
  };
  was_captured_ = true;
  device_.keep_for_graph(stream, std::make_shared<Parts>(Parts{std::move(plan), peers_.control_memory(), host_words_,
                                                               relay_ ? relay_->memory() : nullptr}));
}

bool Window::has_run() {
  Hold hold(mutex_);
  return has_run_locked() && (!remote_->is_connected() || remote_has_run()) && (!relay_ || relay_has_run());
}

bool Window::has_run_locked() {
  if (!device_.have_ended(*host_words_, launched_)) return false;
  for (int rank = 0; rank < peers_.size(); ++rank) {
    if (remote_->find(rank)) continue;
    const EpochCounts& enqueued = enqueued_[static_cast<std::size_t>(rank)];
    if (enqueued.opened + enqueued.sent + enqueued.closed == 0) continue;
    const Peer& peer = peers_.peer(rank);
    const auto read = [&](auto* to, const auto* from) {
      if (peer.relayed)
        std::memcpy(to, from, sizeof *to);  // pinned memory
      else
        device_.read(to, from, sizeof *to);
    };
    PairCounters done;
    read(&done, &peer.words->own);
    // Read again: what was replayed must not be older than the epochs.
    std::atomic_thread_fence(std::memory_order_seq_cst);  // two looks, also where they are plain copies
    PairCounters later;
    read(&later, &peer.words->own);
    if (done.opened.epochs < enqueued.opened + later.opened.replayed) return false;
    for (std::uint32_t part = 0; part < device_.parts_in_use(); ++part)
      if (done.sent[part] < enqueued.sent + later.sent.replayed ||
          done.closed[part] < enqueued.closed + later.closed.replayed)
        return false;
  }
  return true;
}

std::unique_lock<std::mutex> Window::held_if_idle(bool or_captured) {
  std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (hold && ((was_captured_ && !or_captured) || !has_run_locked())) hold.unlock();
  return hold.owns_lock() ? std::move(hold) : std::unique_lock<std::mutex>();
}

/// Those for all epochs that this rank has sent on its node: peers write no word here after them.
bool Window::has_all_posts() {
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_.peer(rank);
    if (!peer.words || peer.relayed) continue;
    PairWords words;
    device_.read(&words, peer.words, sizeof words);
    if (words.posted < words.own.sent[0] || (guards_ && words.credit < peer.outbox.depth)) return false;
  }
  return true;
}

/// All that was enqueued here and at peers has run, say the counters. On a GPU a post may be on its way still: it is a
/// store to a peer, in front of a store to a counter here, and nothing orders the two. The memory that it comes to must
/// not be another window's by then. It is there at once; where it never comes, as the peer has died or its window has
/// broken, the memory is nobody's any more.
void Window::await_posts() {
  if (!device_.posts_may_be_late()) return;
  try {
    for (int look = 0; look < looks_for_posts; ++look) {
      if (has_all_posts()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const Error& error) {
    log(LogLevel::info, error.what());
  }
  log(LogLevel::info, "window '" + name_ + "': posts of peers have not come, so its memory is not used again");
  new std::shared_ptr<const void>(peers_.control_memory());
}

bool Window::drain() {
  auto nap = std::chrono::microseconds(20);
  while (!has_run()) {
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::microseconds(2000));
  }
  return !is_broken();
}

bool Window::is_broken() const { return __atomic_load_n(&host_words_->released, __ATOMIC_ACQUIRE) != 0; }

Stats Window::stats() const {
  Hold hold(mutex_);
  Stats stats = stats_;
  if (relay_) relay_->add_to(stats);
  if (budget() && stats.network_operations > 0) {
    stats.network_operations -= remote_->rides();
    stats.network_operations_peak = budget()->most_used();
    const std::size_t total = budget()->total();
    stats.network_operations_budget = total == Capacity::any ? 0 : total;
  }
  return stats;
}

std::string Window::name() const {
  Hold hold(mutex_);
  return name_;
}

void Window::rename(const std::string& name) {
  Hold hold(mutex_);
  name_ = name;
  stall_.rename(name);
}

}  // namespace mpix
