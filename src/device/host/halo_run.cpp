// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/halo_run.h"

#include <atomic>
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
  bool all(bool well) const { return well; }
  template <class What>
  bool together(What what) const {
    return what();
  }
};

struct Running {
  HaloLaunch launch;
  std::atomic<bool> is_well{true};
};

void run_block(const MPIX_Dev_team* team, void* p) {
  auto* const running = static_cast<Running*>(p);
  if (!run_halo_block(running->launch.run, team->block, Alone{})) running->is_well = false;
}

struct Passing {
  HaloGate gate;
  std::shared_ptr<const void> keep;
};

void pass_gate(void* p) {
  const std::unique_ptr<Passing> passing(static_cast<Passing*>(p));
  const HaloGate& gate = passing->gate;
  if (!gate.holds())
    tell_halo(gate.halo, gate.word(), gate.value);
  else if (!wait_for_word(gate.halo, gate.word(), gate.value) || load_relaxed(gate.word()) == no_more_steps)
    host_stream_note_release();
  if (gate.passed) store_release(gate.passed, gate.number);
}

void end_launch(void* p) {
  const std::unique_ptr<Running> running(static_cast<Running*>(p));
  if (!running->is_well) host_stream_note_release();
}

}  // namespace

void launch_halo(Stream stream, HaloLaunch&& launch) {
  auto own = std::make_unique<Running>();
  own->launch = std::move(launch);
  launch_grid(stream, own->launch.run.blocks, run_block, own.get());
  host_stream_launch(stream, end_launch, own.get());
  (void)own.release();
}

void launch_halo(Stream stream, const HaloGate& gate, const std::shared_ptr<const void>& keep) {
  auto own = std::make_unique<Passing>(Passing{gate, keep});
  host_stream_launch(stream, pass_gate, own.get());
  (void)own.release();
}

}  // namespace mpix
