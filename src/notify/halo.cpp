// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/halo.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/kept.h"
#include "base/log.h"
#include "base/naps.h"

namespace mpix {
namespace {

/// Multiprocessors that have no block which stays.
constexpr std::uint32_t left_alone = 4;
/// Launches, where they must not fill a stream's queue: of the thousand places of CUDA's most are left to the program.
constexpr std::size_t most_in_flight = 32;
/// For kernels to leave a halo that is broken.
constexpr auto time_to_leave = std::chrono::seconds(1);

}  // namespace

Halo::~Halo() {
  asked_.reset();
  end_service();
}

void Halo::serve_by(std::unique_ptr<HaloTransport> transport) {
  transport_ = std::move(transport);
  is_serving_ = transport_ != nullptr;
  if (is_serving_) begin_service(*this);
  asked_.emplace(*this);
}

void Halo::end_service() {
  if (!is_serving_) return;
  is_serving_ = false;
  ::mpix::end_service(*this);
  const bool is_over = transport_->cancel();
  const std::lock_guard<std::mutex> hold(mutex_);
  counts_.mpi_sends = transport_->sends();
  if (!is_over) {
    keep_for_ever(memory_);  // messages are sent from there
    keep_for_ever(std::move(transport_));
  }
  transport_ = nullptr;  // while MPI is there
}

// ---- The program -------------------------------------------------------------------------------------

void Halo::require_whole() const {
  if (is_broken()) throw Error(Fault::other, "the halo is broken: " + cause());
}

void Halo::require_no_steps_to_come() const {
  if (to_come_ == 0) return;
  throw Error(Fault::other, std::to_string(to_come_) +
                                " steps of MPIX_Halo_begin_stream are to come: MPIX_Halo_ready_stream makes them "
                                "ready, MPIX_Halo_end_stream ends them");
}

void Halo::require_not_stepping(Stream stream) const {
  if (stream == stepping_)
    throw Error(Fault::argument, "the stream is that of MPIX_Halo_begin_stream: it would wait for itself");
}

void Halo::require_no_steps() {
  const std::lock_guard<std::mutex> hold(calls_);
  if (!is_broken()) require_no_steps_to_come();
}

HaloRun Halo::run_of(HaloPlan::Range range, std::uint32_t blocks) const {
  HaloRun run{};
  run.halo = param_;
  run.first_part = range.first;
  run.end_part = range.end;
  run.blocks = std::min(range.end - range.first, blocks);
  run.steps = 1;
  return run;
}

void Halo::launch(Stream stream, const HaloRun& run, bool captured) {
  HaloLaunch launch;
  launch.run = run;
  // Kernels then need not look: that takes as long as the link to the host and back.
  if (!captured) launch.run.sent = sent_by_all_.load(std::memory_order_acquire);
  launch.captured = captured;
  launch.leaves_room = options_.sharers == 1 && run.is_gated == 0 && 2 * run.blocks <= places();
  launch.keep = memory_;
  device_.launch(stream, std::move(launch));
}

/// The service copies on the device, or MPI does. A call of CUDA that waits for room in the queue of a stream holds up
/// all others, and what makes room is what the service does: so the queue never fills with exchanges.
void Halo::wait_for_room() {
  if (options_.buffers == HaloBuffers::pinned || !serves_any() || !device_.waits_for_launches()) return;
  for (auto nap = std::chrono::microseconds(5);; nap = std::min(2 * nap, std::chrono::microseconds(500))) {
    // Where graphs and kernels of the program exchange, too, the flags are further than is counted here: this waits
    // less.
    while (!in_flight_.empty() && channel_.flag(in_flight_.front().flag) >= in_flight_.front().exchange)
      in_flight_.pop_front();
    if (in_flight_.size() < most_in_flight) return;
    require_whole();
    std::this_thread::sleep_for(nap);
  }
}

/// Parts of the last exchange.
void Halo::enqueued(HaloPlan::Range range) {
  if (options_.buffers == HaloBuffers::pinned || !device_.waits_for_launches()) return;
  for (std::uint32_t p = range.end; p-- > range.first;) {
    const HaloPart& part = plan_.parts[p];
    if (known_->by_memory[part.message]) continue;
    in_flight_.push_back({part.unpacks ? param_.messages + part.message : part.message, exchanges_});
    return;
  }
}

/// A graph, or the program, launches them when it likes: the service looks from now on.
void Halo::expect_unseen_runs() {
  runs_unseen_ = true;
  if (is_serving_) wake_service(*this);
}

/// An exchange, told to the service before it is enqueued: what waits for room waits for that.
template <class Enqueue>
void Halo::announced(Enqueue enqueue) {
  ++exchanges_;
  if (is_serving_) wake_service(*this);
  try {
    enqueue();
  } catch (...) {
    --exchanges_;
    throw;
  }
}

/// `number`: of the launch; 0: nobody counts it.
void Halo::launch_exchange(Stream stream, std::uint64_t number) {
  for (const HaloPlan::Range& range : plan_.launches) {
    HaloRun run = run_of(range, most_blocks());
    run.launch = number;
    if (number != 0) wait_for_room();
    launch(stream, run, number == 0);
    if (number != 0) enqueued(range);
  }
}

void Halo::exchange(Stream stream) {
  const std::lock_guard<std::mutex> hold(calls_);
  require_whole();
  require_no_steps_to_come();
  const bool captured = device_.check_stream(stream) != 0;
  if (captured) expect_unseen_runs();
  if (!plan_.launches.empty()) {
    if (captured)
      launch_exchange(stream, 0);
    else
      announced([&] {
        wait_for_end_of_steps(stream);
        launch_exchange(stream, launches_ + 1);
      });
    if (!captured) ++launches_;
  }
  ++enqueued_;
}

void Halo::begin_steps(std::uint64_t steps, Stream stream) {
  const std::lock_guard<std::mutex> hold(calls_);
  require_whole();
  require_no_steps_to_come();
  if (!options_.no_steps_why.empty()) throw Error(Fault::unsupported, options_.no_steps_why);
  if (device_.check_stream(stream) != 0)
    throw Error(Fault::unsupported, "steps are not captured: MPIX_Halo_exchange_stream is");
  if (steps == 0) return;
  if (!plan_.parts.empty()) {
    // One block on a multiprocessor, and not on all: they stay while the program computes.
    const std::uint32_t most = places() > left_alone ? places() - left_alone : 1;
    const bool may_share = options_.form != HaloForm::barrier;  // or its tables are for so many
    HaloRun run = run_of({0, param_.parts}, room_ && may_share ? std::min(most, most_blocks()) : most_blocks());
    // The launch counts from the last exchange before, and that may be in another stream.
    if (launches_ > 0) gate(stream, HaloGate::What::after, launches_);
    run.is_gated = 1;
    run.launch = launches_ + 1;
    run.steps = steps;
    run.ready = ready_;
    launch(stream, run, false);
    stepped_ = ++launches_;
  }
  to_come_ = steps;
  stepping_ = stream;
  known_->last_step = ready_ + steps;
}

void Halo::gate(Stream stream, HaloGate::What what, std::uint64_t value) {
  gate(stream, HaloGate{param_, what, value});
}

void Halo::gate(Stream stream, const HaloGate& gate) {
  if (device_.check_stream(stream) != 0)
    throw Error(Fault::unsupported, "steps are not captured: MPIX_Halo_exchange_stream is");
  if (!plan_.parts.empty()) device_.launch(stream, gate, memory_);
}

/// A launch that was ended early would take the next step for one of its own; and say that it is over when the next
/// launch has said so.
void Halo::wait_for_early_end(Stream stream) {
  if (stopped_ != 0) gate(stream, HaloGate::What::over, stopped_);
  stopped_ = 0;
}

/// The last step is over before the launch is, and only then does the launch say that it is over: behind an exchange
/// that says so of itself the word would fall.
void Halo::wait_for_end_of_steps(Stream stream) {
  if (stepped_ != 0) gate(stream, HaloGate::What::over, stepped_);
  stepped_ = stopped_ = 0;
}

void Halo::step_ready(Stream stream) {
  const std::lock_guard<std::mutex> hold(calls_);
  require_whole();
  if (to_come_ == 0) throw Error(Fault::other, "no step is to come: MPIX_Halo_begin_stream launches for some");
  require_not_stepping(stream);
  const auto enqueue = [&] {
    wait_for_room();
    wait_for_early_end(stream);
    gate(stream, HaloGate::What::ready, ready_ + 1);
    enqueued({0, param_.parts});
  };
  if (plan_.parts.empty())
    gate(stream, HaloGate::What::ready, 0);  // to refuse what it refuses
  else
    announced(enqueue);
  ++ready_;
  --to_come_;
  ++enqueued_;
}

void Halo::wait_for_steps(Stream stream) {
  const std::lock_guard<std::mutex> hold(calls_);
  require_whole();
  if (to_come_ > 0) require_not_stepping(stream);
  if (ready_ == 0) return;
  HaloGate done{param_, HaloGate::What::done, ready_};
  const auto own = word_of(device_.number_of(stream));
  if (own != waiting_.end()) {
    done.passed = passed_ + (own - waiting_.begin());
    done.number = own->second + 1;
  }
  gate(stream, done);
  if (own != waiting_.end())
    ++own->second;
  else
    waits_untold_ = true;
}

Halo::Waiting::iterator Halo::word_of(std::uint64_t stream) {
  auto own = std::find_if(waiting_.begin(), waiting_.end(), [=](const auto& one) { return one.first == stream; });
  if (own != waiting_.end()) return own;
  if (waiting_.size() < most_waiting) return waiting_.insert(own, {stream, 0});
  own = std::find_if(waiting_.begin(), waiting_.end(), [this](const auto& one) { return has_passed(one); });
  if (own != waiting_.end()) own->first = stream;
  return own;
}

bool Halo::has_passed(const Waiting::value_type& one) const {
  return load_acquire(passed_ + (&one - waiting_.data())) >= one.second;
}

void Halo::end_steps(Stream stream) {
  const std::lock_guard<std::mutex> hold(calls_);
  require_whole();
  if (to_come_ == 0) return;
  require_not_stepping(stream);
  gate(stream, HaloGate::What::stop, launches_);
  stopped_ = launches_;
  to_come_ = 0;
}

MPIX_Dev_halo Halo::param() {
  require_whole();
  expect_unseen_runs();
  return param_;
}

/// Their memory may go, to be the next one's: nothing of this halo comes any more.
bool Halo::have_streams_passed() {
  if (plan_.parts.empty()) return true;
  if (device_.read_word(&param_.words->over) < launches_) return false;
  return std::all_of(waiting_.begin(), waiting_.end(), [this](const auto& one) { return has_passed(one); });
}

std::unique_lock<std::mutex> Halo::held_if_idle(bool or_unseen) {
  std::unique_lock<std::mutex> hold(calls_, std::try_to_lock);
  if (hold && ((runs_unseen_ && !or_unseen) || !(is_broken() || have_streams_passed()))) hold.unlock();
  return hold.owns_lock() ? std::move(hold) : std::unique_lock<std::mutex>();
}

bool Halo::wait_for_all(const std::function<void()>& meanwhile) {
  const Clock::time_point since = Clock::now();
  Clock::duration told{};
  std::optional<Clock::time_point> broken_since;
  for (Naps naps(meanwhile); !have_streams_passed(); naps.next()) {
    if (is_broken() && !broken_since) broken_since = Clock::now();
    if (broken_since && Clock::now() - *broken_since > time_to_leave) {
      launches_stay_ = true;
      keep_for_ever(memory_);  // launches that have not begun will look at it
      if (segment_) segment_->abandon();
      return false;
    }
    // Kernels that wait are told of by the channel, which knows for what, and so comes first where the first report
    // breaks the halo; those that have not begun are told of by nobody else.
    const Clock::duration patience = fails_on_timeout_ ? 2 * patience_ : patience_;
    if (patience_ > Clock::duration{} && !broken_since && Clock::now() - since > told + patience) {
      told = Clock::now() - since;
      const std::string why = "MPIX_Halo_free has waited for " +
                              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(told).count()) +
                              " s for exchanges, or waits for them, that were enqueued and are not over (does their "
                              "stream wait for this call?)";
      if (fails_on_timeout_)
        break_for(why);
      else
        log(LogLevel::warn, options_.name + ": " + why);
    }
  }
  if (waits_untold_) keep_for_ever(memory_);
  wait_for_sends(meanwhile, Clock::time_point::max());
  return !is_broken();
}

void Halo::wait_for_sends(const std::function<void()>& meanwhile, Clock::time_point until) {
  for (Naps naps(meanwhile); !is_broken() && !is_all_sent() && Clock::now() < until;) naps.next();
}

bool Halo::is_all_sent() {
  const std::lock_guard<std::mutex> hold(mutex_);
  return std::all_of(sends_.begin(), sends_.end(),
                     [this](std::uint32_t m) { return progress_[m].send.over >= channel_.flag(m); });
}

Halo::Counts Halo::counts() {
  const std::uint64_t run = segment_ ? device_.read_word(&param_.words->ended) / one_exchange : 0;
  const std::lock_guard<std::mutex> hold(mutex_);
  Counts all = counts_;
  all.exchanges = enqueued_;
  all.sent += run * all.by_memory;
  all.received += run * received_by_memory_;
  if (transport_) all.mpi_sends = transport_->sends();
  return all;
}

}  // namespace mpix
