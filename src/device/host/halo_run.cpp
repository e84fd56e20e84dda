// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/halo_run.h"

#include <memory>
#include <utility>

#include "device/host/grid.h"
#include "device/host/stream.h"

namespace mpix {
namespace {

/// A block of one thread.
struct Alone {
  std::uint32_t index() const { return 0; }
  std::uint32_t size() const { return 1; }
  template <class What>
  bool together(What what) const {
    return what();
  }
};

void run_block(const MPIX_Dev_team* team, void* p) {
  run_halo_block(static_cast<HaloLaunch*>(p)->run, team->block, Alone{});
}

void pass_gate(void* p) {
  const std::unique_ptr<HaloGate> gate(static_cast<HaloGate*>(p));
  if (gate->holds())
    wait_for_word(gate->halo, gate->word(), gate->value);
  else
    tell_halo(gate->halo, gate->word(), gate->value);
}

void forget(void* p) { delete static_cast<HaloLaunch*>(p); }

}  // namespace

void launch_halo(Stream stream, HaloLaunch&& launch) {
  auto own = std::make_unique<HaloLaunch>(std::move(launch));
  launch_grid(stream, own->run.blocks, run_block, own.get());
  host_stream_launch(stream, forget, own.release());
}

void launch_halo(Stream stream, HaloGate&& gate) {
  auto own = std::make_unique<HaloGate>(gate);
  host_stream_launch(stream, pass_gate, own.get());
  (void)own.release();
}

}  // namespace mpix
