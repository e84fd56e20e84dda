// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <string>

#include "../device/device.h"
#include "options.h"

namespace faces {

/// What a run works with, the same on all ranks but for their number.
struct Setup {
  Options options;
  Problem problem;
  int rank, ranks;
  std::unique_ptr<bench::Device> device;    ///< of st
  std::unique_ptr<bench::Device> baseline;  ///< of p2p and rma; null: the same
  bool staged;  ///< p2p and rma copy messages through memory of the CPU, as MPI does not take the device's

  bench::Device& device_for(const Variant& variant) const {
    return variant.kind == Variant::st || baseline == nullptr ? *device : *baseline;
  }
  std::string label(const Variant& variant) const {
    return std::string(variant.name) + (staged && variant.kind != Variant::st ? " (staged)" : "");
  }
};

/// Collective. Throws InputError when the options do not fit together, or to the device.
Setup make_setup(const Options& options);

}  // namespace faces
