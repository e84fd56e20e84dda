// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/device.h"

#include "base/error.h"
#include "base/settings.h"
#include "device/cuda/cuda_device.h"
#include "device/hip/hip_device.h"
#include "device/host/host_device.h"
#include "device/node_memory.h"

namespace mpix {
namespace {

struct BackEnd {
  const char* name;
  bool built;
  std::unique_ptr<Device> (*make)(const Settings&, int local_ranks);  ///< null where there is no such device
};

/// In the order in which auto tries them. One that is not built has a stand-in (not_built.cpp) in its place.
const BackEnd back_ends[] = {
    {"cuda", cuda_is_built, make_cuda_device},
    {"hip", hip_is_built, make_hip_device},
    {"host", true, make_host_device},
};

}  // namespace

const char* name_of(Call call) {
  switch (call) {
    case Call::post:
      return "MPIX_Win_post_stream";
    case Call::complete:
      return "MPIX_Win_complete_stream";
    case Call::wait:
      return "MPIX_Win_wait_stream";
    case Call::complete_wait:
      return "MPIX_Win_complete_wait_stream";
    case Call::free:
      return "MPI_Win_free";
  }
  return "?";
}

std::unique_ptr<TeamMemory> Device::new_team_memory() { return make_exported_team_memory(); }

std::unique_ptr<NodeMemory> Device::new_node_memory(const NodeShape& shape) {
  return make_exported_node_memory(*this, shape);
}

std::unique_ptr<Device> make_device(const Settings& settings, int local_ranks) {
  for (const BackEnd& back_end : back_ends) {
    if (settings.device == "auto") {
      if (auto device = back_end.make(settings, local_ranks)) return device;
      continue;
    }
    if (settings.device != back_end.name) continue;
    if (!back_end.built)
      throw Error(Fault::unsupported, "MPIX_DEVICE=" + settings.device + ": this library was built without it");
    if (auto device = back_end.make(settings, local_ranks)) return device;
    throw Error(Fault::unsupported, "MPIX_DEVICE=" + settings.device + ": no such device here");
  }
  throw Error(Fault::other, "no device");  // host is always there
}

}  // namespace mpix
