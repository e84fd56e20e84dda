// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/halo_run.h"

#include <memory>
#include <utility>

#include "device/host/stream.h"

namespace mpix {
namespace {

struct Alone {
  std::uint32_t index() const { return 0; }
  std::uint32_t size() const { return 1; }
  template <class What>
  bool together(What what) const {
    return what();
  }
};

void run(void* p) {
  const std::unique_ptr<HaloLaunch> launch(static_cast<HaloLaunch*>(p));
  run_halo_block(launch->run, 0, Alone{});
}

}  // namespace

void launch_halo(Stream stream, HaloLaunch&& launch) {
  auto own = std::make_unique<HaloLaunch>(std::move(launch));
  host_stream_launch(stream, run, own.get());
  (void)own.release();
}

}  // namespace mpix
