// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/host_ranks.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "base/log.h"
#include "base/signals_blocked.h"
#include "device/host/bell.h"
#include "device/host/stream.h"

namespace mpix {
namespace {

static_assert(sizeof(Bell) <= sizeof(dev::Inbox) && sizeof(Bell) <= sizeof(dev::Header), "both begin with a bell");

/// How a thread waits: on the bell of its rank for what lies in its lanes, on that of its process in a barrier. Room in
/// a lane rings nothing: a thread that waits for that naps. One in a barrier looks at its lanes now and then, which
/// ring elsewhere, so that others find room there: the more ranks there are, the more seldom, for all of them may wait
/// (100 ranks of each of 2 processes on 2 cores slept for 100 us at most, and came through no barrier).
class Waiter {
 public:
  Waiter(Bell* rank, Bell* process, const std::uint64_t* released, Polling polling, Courier* courier,
         std::uint32_t ranks)
      : rank_(rank),
        process_(process),
        released_(released),
        polling_(polling),
        courier_(courier),
        nap_in_barrier_(std::clamp(nap_of_a_rank * ranks, Patience::longest_remote_nap, Patience::longest_sleep / 2)) {}

  static bool pause(void* self, dev::Sleep sleep) { return static_cast<Waiter*>(self)->pause(sleep); }
  static void refresh(void* self) { static_cast<Waiter*>(self)->patience_.reset(); }
  static void ring(void* bell) { mpix::ring(static_cast<Bell*>(bell)); }
  static void post(void* self) {
    if (Courier* const courier = static_cast<Waiter*>(self)->courier_) courier->wake();
  }

 private:
  static constexpr std::chrono::nanoseconds nap_of_a_rank = std::chrono::microseconds(25);

  bool pause(dev::Sleep sleep) {
    if (!patience_ && sleep == dev::Sleep::for_barrier)
      patience_.emplace(process_, polling_, courier_ != nullptr, nap_in_barrier_);
    else if (!patience_ && sleep == dev::Sleep::for_turn)
      patience_.emplace(rank_, polling_, false, nap_in_barrier_);
    else if (!patience_)
      patience_.emplace(rank_, polling_, sleep == dev::Sleep::for_room);
    patience_->pause();
    return load_relaxed(released_) == 0;
  }

  Bell* const rank_;
  Bell* const process_;
  const std::uint64_t* const released_;
  const Polling polling_;
  Courier* const courier_;
  const std::chrono::nanoseconds nap_in_barrier_;
  std::optional<Patience> patience_;
};

const dev::Hooks hooks{Waiter::pause, Waiter::refresh, Waiter::ring, Waiter::post};

struct HostLaunch {
  MPIX_Dev_param param;
  void (*function)(MPIX_Dev_param, void*);
  void* argument;
  Polling polling;
  Courier* courier;
  std::shared_ptr<std::atomic<int>> under_way;  ///< launches of the domain
};

void run_rank(const HostLaunch& launch, std::uint32_t here) {
  MPIX_Dev_param param = launch.param;
  const std::uint64_t inboxes = dev::places(param.ranks, param.processes).inboxes;
  Waiter waiter(reinterpret_cast<Bell*>(param.segment + inboxes + here * param.inbox_bytes),
                reinterpret_cast<Bell*>(param.segment), param.released, launch.polling, launch.courier,
                param.ranks_on_node);
  param.host_rank = here;
  param.hooks = &hooks;
  param.waiter = &waiter;
  launch.function(param, launch.argument);
}

/// On the stream's thread.
void run_all(void* p) {
  const std::unique_ptr<HostLaunch> launch(static_cast<HostLaunch*>(p));
  std::vector<std::thread> threads;
  const std::uint32_t ranks = launch->param.ranks_here;
  try {
    const SignalsBlocked blocked;
    for (std::uint32_t i = 1; i < ranks; ++i) threads.emplace_back([&launch, i] { run_rank(*launch, i); });
  } catch (const std::exception& error) {
    log(LogLevel::error, std::string("a domain is broken: no threads for its ranks: ") + error.what());
    store_release(launch->param.released, 1);
  }
  if (ranks > 0) run_rank(*launch, 0);
  for (std::thread& thread : threads) thread.join();
  launch->under_way->fetch_sub(1, std::memory_order_release);
}

Polling polling_for(int ranks_of_node) {
  const bool own_core = cores_per_rank(ranks_of_node) >= 1;
  const std::chrono::nanoseconds limit = std::chrono::microseconds(own_core ? 200 : 50);
  return Polling{limit, own_core, limit};
}

}  // namespace

void launch_host_ranks(Domain& domain, void (*function)(MPIX_Dev_param, void*), void* argument, Stream stream) {
  check_host_stream(stream);
  auto launch = std::make_unique<HostLaunch>();
  launch->param = domain.begin_launch();
  launch->function = function;
  launch->argument = argument;
  launch->courier = domain.courier();
  launch->under_way = domain.host_launches();
  launch->polling = polling_for(static_cast<int>(launch->param.ranks_on_node));
  ++*domain.host_launches();
  try {
    host_stream_launch(stream, run_all, launch.get());
  } catch (...) {
    --*domain.host_launches();
    domain.cancel_launch();
    throw;
  }
  (void)launch.release();
}

}  // namespace mpix
