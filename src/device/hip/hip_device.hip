// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The vendor's names come first: the sources of device/gpu are written in them.
#include "device/hip/names.h"

#include "device/hip/hip_device.h"

#include <unistd.h>

#include <string>

#include "base/error.h"
#include "base/log.h"
#include "device/gpu/gpu_device.h"
#include "device/hip/hip_library.h"

namespace mpix {

const bool hip_is_built = true;

std::unique_ptr<Device> make_hip_device(const Settings& settings, int) {
  const bool asked_for = settings.device == "hip";
  // The file of the kernel's driver. A process that does not find it shall know nothing of HIP.
  if (!asked_for && access("/dev/kfd", F_OK) != 0) return nullptr;
  try {
    load_hip_library();
  } catch (const Error& error) {
    if (asked_for) throw Error(error.fault(), std::string("MPIX_DEVICE=hip: ") + error.what());
    log(LogLevel::info, std::string("the AMD GPU is not used: ") + error.what());
    return nullptr;
  }
  int count = 0;
  // Any error means no device: without a driver the call fails and leaves count alone.
  if (gpuGetDeviceCount(&count) != gpuSuccess || count == 0) {
    (void)gpuGetLastError();
    return nullptr;
  }
  return std::make_unique<GpuDevice>(settings);
}

}  // namespace mpix
