// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "base/settings.h"
#include "net/network.h"

namespace mpix {

/// libfabric's triggered operations, with the provider that the settings ask for. Throws Error where there is none,
/// where libfabric cannot be loaded, or where this library was built without it. `local_ranks` share the NIC.
std::unique_ptr<Network> make_triggered_network(const Settings& settings, int local_ranks);

/// Whether this machine seems to have a NIC with triggered operations (cxi). Cheap: libfabric is not asked.
bool triggered_nic_present();

/// Whether the above can work at all.
bool triggered_network_built();

}  // namespace mpix
