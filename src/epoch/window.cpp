// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/window.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/naps.h"
#include "epoch/live_windows.h"

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

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
    : Window(std::move(name), memory,
             std::make_shared<const Team>(bootstrap, device, settings, budget ? &budget->network() : nullptr),
             bootstrap, device, settings, budget, std::move(why_not)) {}

Window::Window(std::string name, const LocalMemory& memory, std::shared_ptr<const Team> team, Bootstrap& bootstrap,
               Device& device, const Settings& settings, OperationBudget* budget, std::string why_not)
    : name_(std::move(name)),
      device_(device),
      settings_(settings),
      unmaps_later_(device),
      peers_(memory, std::move(team), bootstrap, device, settings),
      host_words_(device.host_words(static_cast<std::size_t>(peers_.size()))),
      stall_(
          name_, host_words_.get(), settings.timeout_seconds, settings.fail_on_timeout, device.hang_advice(),
          [this](Call call) { return call == Call::wait ? complete_behind_wait() : ""; },
          [this](int rank) { return peers_.same_node(rank) ? peers_.farewell_of(rank) : off_node_.farewell_of(rank); }),
      enqueued_(static_cast<std::size_t>(peers_.size())),
      off_node_(memory, device, settings, budget, std::move(why_not), peers_, enqueued_, this, stall_, host_words_),
      recorder_(peers_, off_node_.peers(), device, settings.merge),
      launching_(device, settings, peers_, off_node_, stall_, host_words_, enqueued_, memory.lazy_post, memory.bytes) {
  if (settings.timeout_seconds > 0 && (launching_.guards() || device.stalls_silently()))
    watch_ = std::make_unique<WaitWatch>(*host_words_, enqueued_.ranks(), stall_, launching_.guards());
  add_live(*this);
  asked_.emplace(*this);
  try {
    off_node_.connect(peers_.agree(bootstrap, off_node_.offer(memory)));
    off_node_.enter();
    log_ways();
  } catch (...) {
    remove_live(*this);
    off_node_.abandon();
    throw;
  }
}

/// The other ranks have the window by now: what is only said must not fail.
void Window::log_ways() const noexcept {
  try {
    if (off_node_.is_relayed())
      log(LogLevel::info, "window '" + name_ + "': a relay carries what goes to ranks of other nodes");
    if (peers_.is_staged())
      log(LogLevel::info, "window '" + name_ + "': peers cannot map its memory, so large puts are staged");
    if (launching_.guards())
      log(LogLevel::info, "window '" + name_ + "': streams wait in memory operations (MPIX_WAIT)");
  } catch (const std::bad_alloc&) {
  }
}

Window::~Window() {
  asked_.reset();
  remove_live(*this);
  launching_.end_posts();
  off_node_.end();
  launching_.progress().await_posts(launching_.guards() != nullptr, name_);
  if (!launching_.was_captured()) return;
  watch_ = nullptr;
  try {
    peers_.retire();
    off_node_.retire();
  } catch (const std::exception& error) {
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
  if (!is_broken()) return;
  close_epochs_if_broken();
  throw Error(Fault::synchronization, "the window is broken: " + stall_.cause());
}

void Window::watch_ordinary(const char* call, Ordinary side) {
  const char* const why =
      side == Ordinary::access
          ? "an ordinary access epoch waits for its targets, and this rank has stream epochs on the window (are they "
            "late? was MPI_Win_start called without MPIX_MODE_STREAM?)"
          : "an ordinary exposure epoch waits for MPI_Win_complete of its origins, and this rank's access epochs are "
            "stream epochs (are they late? should it be MPIX_Win_post_stream and MPIX_Win_wait_stream?)";
  if (stall_.patience() > 0) blocked_calls_.begin(stall_, call, why);
}

void Window::watch_free() {
  constexpr auto why =
      "it is collective, and other ranks have not called it (are they late? do they wait in ordinary calls, as "
      "MPI_Win_wait, for epochs that are stream epochs here?)";
  if (has_stream_epochs() && stall_.patience() > 0) blocked_calls_.begin(stall_, "MPI_Win_free", why);
}

void Window::check_free() {
  Hold hold(mutex_);
  close_epochs_if_broken();
  if (state_.access() != EpochState::Side::stream && launching_.has_lost_post()) close_exposure();
  state_.check_free();
}

void Window::check_ranks(const std::vector<int>& ranks) const {
  for (int rank : ranks) {
    if (rank < 0 || rank >= peers_.size())
      throw Error(Fault::rank, "rank " + std::to_string(rank) + " is not in the window's group");
    const std::string trouble = peers_.same_node(rank) ? peers_.peer(rank).trouble : off_node_.trouble(rank);
    if (!trouble.empty()) throw Error(Fault::unsupported, trouble);
    if (peers_.same_node(rank) && !peers_.peer(rank).reachable)
      throw Error(Fault::unsupported, "the memory of rank " + std::to_string(rank) + " cannot be mapped from here");
  }
}

void Window::close_access() {
  state_.complete_stream();
  note_state();
}

// ---- exposure ----------------------------------------------------------------------------------------

std::shared_ptr<const ExposurePlan> Window::exposure_plan(const std::vector<int>& origins) {
  auto plan = exposure_plans_.find([&](const ExposurePlan& known) { return known.origins == origins; });
  if (plan) return plan;  // and all that it takes
  check_ranks(origins);
  for (int rank : origins) peers_.connect_origin(rank);
  off_node_.name_origins(origins);
  enqueued_.make_room(origins);
  plan = ExposurePlan::build(origins, peers_, off_node_.peers(), device_);
  exposure_plans_.add(plan);
  return plan;
}

void Window::post_stream(const std::vector<int>& origins, Stream stream) {
  const Range range(device_, settings_, Call::post);
  Lock hold(mutex_);
  StreamNow in;
  const auto check = [&] {
    check_usable();
    state_.check_post_stream();
    in = launching_.check(stream);
  };
  check();
  auto plan = exposure_plan(origins);
  const Grant wanted = off_node_.grant_for_posts(plan->remote);
  OperationBudget::Lease lease = off_node_.admit(hold, wanted, Call::post, std::cref(check), stats_);
  launching_.post(plan, in, std::move(lease));
  exposure_ = std::move(plan);
  state_.post_stream();
  note_state();
  ++stats_.exposure_epochs;
  stats_.network_operations += wanted.operations;
}

void Window::wait_stream(Stream stream) {
  const Range range(device_, settings_, Call::wait);
  Hold hold(mutex_);
  check_usable();
  state_.check_wait_stream();
  if (device_.check_stream(stream) == 0 && launching_.has_lost_post()) {
    close_exposure();
    note_state();
    throw Error(Fault::synchronization,
                "the post before this call was made inside a capture, which has ended without it: the epoch is closed "
                "(mpix_lazy_post)");
  }
  const StreamNow in = launching_.check(stream);
  launching_.wait(exposure_, in);
  last_wait_ = stream;
  close_exposure();
}

void Window::close_exposure() {
  exposure_ = nullptr;
  launching_.forget_carried_post();
  state_.wait_stream();
}

// ---- access ------------------------------------------------------------------------------------------

void Window::start_stream(const std::vector<int>& targets) {
  Hold hold(mutex_);
  check_usable();
  state_.check_start_stream();
  if (!recorder_.had_last(targets)) {
    check_ranks(targets);
    for (int rank : targets) peers_.connect_target(rank);
    off_node_.name_targets(targets);
    enqueued_.make_room(targets);
  }
  recorder_.start(targets);
  state_.start_stream();
  note_state();
}

void Window::put(const Put& put) {
  Hold hold(mutex_);
  check_usable();
  if (state_.access() != EpochState::Side::stream)
    throw Error(Fault::synchronization, "the stream access epoch was closed meanwhile");
  recorder_.put(put);
}

/// Once the epoch of `plan` is enqueued, and not before: what throws until then has changed nothing.
void Window::close_access(const AccessPlan& plan, bool reused) {
  ++(reused ? stats_.plans_reused : stats_.plans_built);
  stats_.add(plan.effect);
  ++stats_.access_epochs;
  close_access();
}

void Window::complete_stream(Stream stream) {
  const Range range(device_, settings_, Call::complete);
  Lock hold(mutex_);
  StreamNow in;
  const auto check = [&] {
    check_usable();
    state_.check_complete_stream();
    in = launching_.check(stream);
  };
  check();
  bool reused = false;
  const auto plan = recorder_.finish(&reused);
  launching_.complete(plan, in,
                      off_node_.admit(hold, grant_for(plan->remote), Call::complete, std::cref(check), stats_));
  last_complete_ = stream;
  close_access(*plan, reused);
}

void Window::complete_wait_stream(Stream stream) {
  const Range range(device_, settings_, Call::complete_wait);
  Lock hold(mutex_);
  StreamNow in;
  const auto check = [&] {
    check_usable();
    state_.check_complete_stream();
    state_.check_wait_stream();
    in = launching_.check(stream);
  };
  check();
  bool reused = false;
  const auto access = recorder_.finish(&reused);
  launching_.complete_wait(
      access, exposure_, in,
      off_node_.admit(hold, grant_for(access->remote), Call::complete_wait, std::cref(check), stats_));
  last_wait_ = last_complete_ = stream;
  close_access(*access, reused);
  close_exposure();
}

// ---- its end -----------------------------------------------------------------------------------------

bool Window::has_run() {
  Hold hold(mutex_);
  return launching_.progress().has_run() && off_node_.has_run() && launching_.posts_have_settled();
}

std::unique_lock<std::mutex> Window::held_if_idle(bool or_unseen) {
  std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (hold && ((launching_.was_captured() && !or_unseen) || !launching_.progress().has_run())) hold.unlock();
  return hold.owns_lock() ? std::move(hold) : std::unique_lock<std::mutex>();
}

bool Window::drain(const std::function<void()>& meanwhile) {
  for (Naps naps(meanwhile); !has_run();) naps.next();
  return !is_broken();
}

/// Two ranks that each wait before they complete, in one stream, wait for each other for ever. Seen from here: the
/// stream has something to wait for and something to complete, for one rank, and has not completed more epochs than it
/// has waited for. A program that only enqueues ahead has: it completes, waits, completes, waits. Of a ping-pong with a
/// peer that is late the side that answers looks the same, so this asks, and does not say.
std::string Window::complete_behind_wait() {
  const std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);  // a call may wait for the stream that asks
  if (!hold || launching_.was_captured() || last_wait_ != last_complete_) return "";
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const EpochCounts& enqueued = enqueued_.with(rank);
    if (enqueued.sent == 0 || enqueued.closed == 0) continue;
    const EpochCounts run = launching_.progress().run(rank);
    if (run.closed < enqueued.closed && run.sent < enqueued.sent && run.sent <= run.closed)
      return "a complete for rank " + std::to_string(rank) +
             " is behind this wait in the same stream (do both ranks wait before they complete?)";
  }
  return "";
}

void Window::say_farewell(Farewell farewell) noexcept {
  try {
    Hold hold(mutex_);
    peers_.say_farewell(farewell);
    // Not of MPI_Win_free, which all ranks come to as a rule: a message to each of them for each window.
    if (farewell == Farewell::finalize) off_node_.say_finalize();
  } catch (const std::exception& error) {
    log(LogLevel::info, std::string("reports of peers do not say where this rank is: ") + error.what());
  }
}

bool Window::is_broken() const { return __atomic_load_n(&host_words_->released, __ATOMIC_ACQUIRE) != 0; }

Stats Window::stats() const {
  Hold hold(mutex_);
  Stats stats = stats_;
  off_node_.add_to(stats);
  stats.posts_raised = launching_.posts_raised();
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
