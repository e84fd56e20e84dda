// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/bells.h"

#include <chrono>
#include <mutex>

#include "base/cores.h"

namespace mpix {
namespace {

Polling& kernels_polling() {
  static Polling polling;
  return polling;
}

void pause_kernel(dev::ChannelHost* host, void** patience) {
  if (!*patience) *patience = new Patience(kernels_bell(host), kernels_polling());
  static_cast<Patience*>(*patience)->pause();
}
void end_pause(void* patience) { delete static_cast<Patience*>(patience); }
void ring_service(dev::ChannelHost* host) { ring(service_bell(host)); }

}  // namespace

Polling polling_for(const Settings& settings, int local_ranks) {
  const bool own_core = cores_per_rank(local_ranks) >= 2;
  const std::chrono::nanoseconds limit = settings.spin_seconds >= 0
                                             ? std::chrono::nanoseconds(static_cast<long>(settings.spin_seconds * 1e9))
                                             : std::chrono::microseconds(own_core ? 200 : 50);
  return Polling{limit, own_core, limit};
}

const dev::ChannelHooks* hooks_for_threads(Polling polling) {
  static const dev::ChannelHooks hooks{pause_kernel, end_pause, ring_service};
  static std::once_flag once;
  std::call_once(once, [&] { kernels_polling() = polling; });
  return &hooks;
}

}  // namespace mpix
