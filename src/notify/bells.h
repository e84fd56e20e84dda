// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "base/settings.h"
#include "device/host/bell.h"
#include "mpix_device/notify.h"

namespace mpix {

/// How threads wait for kernels that are threads, and these for them. Shared cores are given away sooner.
Polling polling_for(const Settings& settings, int local_ranks);

/// Rung by kernels, for who serves them; and the other way round. On hosts only.
inline Bell* service_bell(dev::ChannelHost* host) { return reinterpret_cast<Bell*>(&host->service_rings); }
inline Bell* kernels_bell(dev::ChannelHost* host) { return reinterpret_cast<Bell*>(&host->rings); }

/// What kernels that are threads call. The first polling counts: it is the same for all.
const dev::ChannelHooks* hooks_for_threads(Polling polling);

}  // namespace mpix
