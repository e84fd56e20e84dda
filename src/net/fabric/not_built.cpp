// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/error.h"
#include "net/fabric/triggered_network.h"

namespace mpix {

std::unique_ptr<Network> make_triggered_network(const Settings&, int) {
  throw Error(Fault::unsupported, "this libmpix was built without libfabric");
}

bool triggered_nic_present() { return false; }

bool triggered_network_built() { return false; }

}  // namespace mpix
