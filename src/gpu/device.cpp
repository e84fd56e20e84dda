// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu/device.h"

#include "core/settings.h"
#include "gpu/host/host_device.h"

namespace mpix {

const char* name_of(Call call) {
  switch (call) {
    case Call::post: return "MPIX_Win_post_stream";
    case Call::complete: return "MPIX_Win_complete_stream";
    case Call::wait: return "MPIX_Win_wait_stream";
    case Call::complete_wait: return "MPIX_Win_complete_wait_stream";
  }
  return "?";
}

std::unique_ptr<Device> make_device(const Settings& settings, int local_ranks) {
  // The settings table admits only back ends that are built; auto takes the first that has a device.
  return make_host_device(settings, local_ranks);
}

}  // namespace mpix
