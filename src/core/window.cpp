// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "core/window.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

}  // namespace

Window::Window(std::string name, const LocalMemory& memory, Bootstrap& bootstrap, Device& device,
               const Settings& settings)
    : name_(std::move(name)),
      device_(device),
      settings_(settings),
      peers_(memory, bootstrap, device, settings),
      host_words_(device.host_words()),
      stall_(name_, host_words_.get(), settings.timeout_seconds, settings.fail_on_timeout),
      recorder_(peers_, device),
      enqueued_(static_cast<std::size_t>(peers_.size())),
      receive_bytes_(std::min<std::uint64_t>(memory.bytes, peers_.eager_bytes())) {
  if (peers_.staging())
    log(LogLevel::info, "window '" + name_ + "': peers cannot map its memory, so large puts are staged");
}

Window::~Window() = default;

// ---- rules -------------------------------------------------------------------------------------------

void Window::check_usable() {
  if (!is_broken()) return;
  // Its epochs are over, so that it can be freed.
  if (state_.access() == EpochState::Side::stream) close_access();
  if (state_.exposure() == EpochState::Side::stream) close_exposure();
  throw Error(Fault::synchronization,
              "the window is broken: a wait of an earlier epoch was released by its time-out (MPIX_TIMEOUT)");
}

void Window::check_ranks(const std::vector<int>& ranks) const {
  for (int rank : ranks) {
    if (rank < 0 || rank >= peers_.size())
      throw Error(Fault::rank, "rank " + std::to_string(rank) + " is not in the window's group");
    if (!peers_.peer(rank).reachable)
      throw Error(Fault::unsupported, "rank " + std::to_string(rank) +
                                          " is on another node, or its memory cannot be mapped from here: stream "
                                          "epochs between nodes are not supported yet");
  }
}

void Window::close_access() {
  state_.complete_stream();
  recording_.store(false, std::memory_order_release);
}

// ---- exposure ----------------------------------------------------------------------------------------

std::shared_ptr<const ExposurePlan> Window::exposure_plan(const std::vector<int>& origins) {
  check_ranks(origins);
  auto plan = exposure_plans_.find([&](const ExposurePlan& known) { return known.origins == origins; });
  if (plan) return plan;
  plan = ExposurePlan::build(origins, peers_, device_);
  exposure_plans_.add(plan);
  return plan;
}

void Window::post_stream(const std::vector<int>& origins, Stream stream) {
  Hold hold(mutex_);
  check_usable();
  state_.check_post_stream();
  device_.check_stream(stream);
  exposure_ = exposure_plan(origins);
  Program program = part_of_program();
  const std::uint32_t step = settings_.merge ? std::max(1u, exposure_->posts.count) : 1;
  for (std::uint32_t first = 0; first < exposure_->posts.count; first += step) {
    program.posts = exposure_->posts.data() + first;
    program.post_count = step;
    launch(Call::post, program, {exposure_}, stream);
  }
  for (int rank : origins) ++enqueued_[static_cast<std::size_t>(rank)].posted;
  state_.post_stream();
  ++stats_.exposure_epochs;
}

void Window::wait_stream(Stream stream) {
  Hold hold(mutex_);
  check_usable();
  state_.check_wait_stream();
  device_.check_stream(stream);
  launch_wait(exposure_, stream);
  close_exposure();
}

void Window::close_exposure() {
  for (int rank : exposure_->origins) ++enqueued_[static_cast<std::size_t>(rank)].awaited;
  exposure_ = nullptr;
  state_.wait_stream();
}

void Window::launch_wait(const std::shared_ptr<const ExposurePlan>& plan, Stream stream) {
  Program program = part_of_program();
  const std::uint32_t step = settings_.merge ? std::max(1u, plan->receives.count) : 1;
  for (std::uint32_t first = 0; first < plan->receives.count; first += step) {
    program.receives = plan->receives.data() + first;
    program.receive_count = step;
    program.receive_bytes = receive_bytes_;
    launch(Call::wait, program, {plan}, stream);
  }
}

// ---- access ------------------------------------------------------------------------------------------

void Window::start_stream(const std::vector<int>& targets) {
  Hold hold(mutex_);
  check_usable();
  state_.check_start_stream();
  check_ranks(targets);
  recorder_.start(targets);
  state_.start_stream();
  recording_.store(true, std::memory_order_release);
}

void Window::put(const Put& put) {
  Hold hold(mutex_);
  check_usable();
  if (state_.access() != EpochState::Side::stream)
    throw Error(Fault::synchronization, "the stream access epoch was closed meanwhile");
  recorder_.put(put);
}

std::shared_ptr<const AccessPlan> Window::finish_access() {
  bool reused = false;
  auto plan = recorder_.finish(&reused);
  ++(reused ? stats_.plans_reused : stats_.plans_built);
  stats_.add(plan->effect);
  for (int rank : plan->targets) ++enqueued_[static_cast<std::size_t>(rank)].sent;
  receive_bytes_ = plan->most_bytes;  // halo exchanges are symmetric, as a rule
  ++stats_.access_epochs;
  return plan;
}

void Window::complete_stream(Stream stream) {
  Hold hold(mutex_);
  check_usable();
  state_.check_complete_stream();
  device_.check_stream(stream);
  launch_complete(finish_access(), stream);
  close_access();
}

void Window::launch_complete(const std::shared_ptr<const AccessPlan>& plan, Stream stream) {
  const DeviceArray<SendPeer>& sends = settings_.merge ? plan->merged : plan->unmerged;
  Program program = part_of_program();
  program.ops = plan->ops.data();
  const std::uint32_t step = settings_.merge ? std::max(1u, sends.count) : 1;
  for (std::uint32_t first = 0; first < sends.count; first += step) {
    program.sends = sends.data() + first;
    program.send_count = step;
    program.send_bytes = plan->most_bytes;
    launch(Call::complete, program, {plan}, stream);
  }
}

void Window::complete_wait_stream(Stream stream) {
  Hold hold(mutex_);
  check_usable();
  state_.check_complete_stream();
  state_.check_wait_stream();
  device_.check_stream(stream);
  const auto access = finish_access();
  if (settings_.merge) {
    Program program = part_of_program();
    program.ops = access->ops.data();
    program.sends = access->merged.data();
    program.send_count = access->merged.count;
    program.receives = exposure_->receives.data();
    program.receive_count = exposure_->receives.count;
    program.send_bytes = access->most_bytes;
    program.receive_bytes = receive_bytes_;
    launch(Call::complete_wait, program, {access, exposure_}, stream);
  } else {
    launch_complete(access, stream);
    launch_wait(exposure_, stream);
  }
  close_access();
  close_exposure();
}

// ---- launching ---------------------------------------------------------------------------------------

Program Window::part_of_program() const {
  Program program;
  program.bell = peers_.bell();
  program.host = host_words_.get();
  return program;
}

void Window::launch(Call call, const Program& program, Launch::Keep keep, Stream stream) {
  Launch launch;
  launch.program = program;
  launch.call = call;
  launch.stall = &stall_;
  launch.keep = std::move(keep);
  device_.launch(stream, launch);
  ++launched_;
}

bool Window::has_run() {
  Hold hold(mutex_);
  if (!device_.have_ended(*host_words_, launched_)) return false;
  if (is_broken()) return true;
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const EpochsOfPair& enqueued = enqueued_[static_cast<std::size_t>(rank)];
    if (enqueued.posted + enqueued.sent + enqueued.awaited == 0) continue;
    PairWords words;
    device_.read(&words, peers_.peer(rank).words, sizeof words);
    if (words.opened < enqueued.posted || words.sent < enqueued.sent || words.closed < enqueued.awaited) return false;
  }
  return true;
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
  return stats_;
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
