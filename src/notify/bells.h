// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "base/service.h"
#include "base/settings.h"
#include "device/host/bell.h"
#include "mpix_device/notify.h"

namespace mpix {

/// How threads wait for kernels that are threads, and these for them. Shared cores are given away sooner.
Polling polling_for(const Settings& settings, int local_ranks);

/// Rung by kernels, for who serves them; and the other way round. On hosts only.
inline Bell* service_bell(dev::ChannelHost* host) { return reinterpret_cast<Bell*>(&host->service_rings); }
inline Bell* kernels_bell(dev::ChannelHost* host) { return reinterpret_cast<Bell*>(&host->rings); }

/// What kernels that are threads call. As a rule the polling is the same for all.
const dev::ChannelHooks* hooks_for_threads(Polling polling);

/// Kernels that ring for the service wake this poller of the one thread of the library, while it says that it sleeps
/// (service_sleepers). Null: nobody any more.
void wake_for(dev::ChannelHost* host, Poller* poller);

}  // namespace mpix
