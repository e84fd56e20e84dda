// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/bells.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/cores.h"
#include "device/host/grid.h"

namespace mpix {
namespace {

/// Of threads that are blocks. A channel may be made while those of another wait.
std::atomic<std::int64_t> kernels_poll_for{0};
std::atomic<bool> kernels_own_core{false};

int pause_kernel(dev::ChannelHost* host, void** patience) {
  if (!*patience) {
    const std::chrono::nanoseconds limit(kernels_poll_for.load(std::memory_order_relaxed));
    *patience = new Patience(kernels_bell(host), Polling{limit, kernels_own_core, limit});
  }
  auto* const mine = static_cast<Patience*>(*patience);
  mine->pause();
  return mine->is_about_to_sleep() ? 1 : 0;
}
void end_pause(void* patience) { delete static_cast<Patience*>(patience); }

/// What the one thread of the library serves: kernels ring the bell, and it sleeps on another.
struct ServedByLibrary {
  std::mutex mutex;
  std::map<dev::ChannelHost*, Poller*> pollers;
  static ServedByLibrary& all() {
    static ServedByLibrary& one = *new ServedByLibrary;
    return one;
  }
};

void ring_service(dev::ChannelHost* host) {
  ring(service_bell(host));
  if (__atomic_load_n(&host->service_sleepers, __ATOMIC_RELAXED) == 0) return;
  ServedByLibrary& served = ServedByLibrary::all();
  const std::lock_guard<std::mutex> hold(served.mutex);
  const auto poller = served.pollers.find(host);
  if (poller != served.pollers.end()) wake_service(*poller->second);
}

std::uint32_t which_block() { return block_of_grid().value_or(dev::BlockNote::no_block); }

void ring_kernels(dev::ChannelHost* host) { ring(kernels_bell(host)); }

}  // namespace

Polling polling_for(const Settings& settings, int local_ranks) {
  const bool own_core = cores_per_rank(local_ranks) >= 2;
  const std::chrono::nanoseconds limit = settings.spin_seconds >= 0
                                             ? std::chrono::nanoseconds(static_cast<long>(settings.spin_seconds * 1e9))
                                             : std::chrono::microseconds(own_core ? 200 : 50);
  return Polling{limit, own_core, limit};
}

const dev::ChannelHooks* hooks_for_threads(Polling polling) {
  static const dev::ChannelHooks hooks{pause_kernel, end_pause, ring_service, ring_kernels, which_block};
  kernels_poll_for = polling.limit.count();
  kernels_own_core = polling.own_core;
  return &hooks;
}

void wake_for(dev::ChannelHost* host, Poller* poller) {
  ServedByLibrary& served = ServedByLibrary::all();
  const std::lock_guard<std::mutex> hold(served.mutex);
  if (poller)
    served.pollers[host] = poller;
  else
    served.pollers.erase(host);
}

}  // namespace mpix
