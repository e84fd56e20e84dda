// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The vendor's names come first: the sources of device/gpu are written in them.
#include "device/hip/names.h"

#include "device/gpu/gpu_device.h"
#include "device/hip/hip_device.h"

namespace mpix {

const bool hip_is_built = true;

std::unique_ptr<Device> make_hip_device(const Settings& settings, int) {
  int count = 0;
  // Any error means no device: without a driver the call fails and leaves count alone.
  if (gpuGetDeviceCount(&count) != gpuSuccess || count == 0) {
    (void)gpuGetLastError();
    return nullptr;
  }
  return std::make_unique<GpuDevice>(settings);
}

}  // namespace mpix
