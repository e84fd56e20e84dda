// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "diffusion.h"
#include "epochs.h"
#include "host_loop.h"
#include "stream.h"
#include "support/abort.h"

/// The same diffusion with libmpix's stream epochs: the host enqueues the phases, the kernels that pack and unpack, and
/// an epoch between these, for all iterations, and waits once, at the end.
namespace diffusion {

/// Memory for the halos of a process, packed: those that neighbours put there, and those that are put from there.
class HaloWindow : public epochs::Window {
 public:
  enum Slot { from_below, from_above, to_below, to_above, slots };

  explicit HaloWindow(std::size_t halo_points) : Window(slots * halo_points), halo_points_(halo_points) {}

  double* at(Slot slot) const { return Window::at(slot * halo_points_); }
  void put(Slot from, int target, Slot to) const { Window::put(at(from), halo_points_, target, to * halo_points_); }

 private:
  const std::size_t halo_points_;
};

/// What a process exchanges behind a phase.
class PhaseExchange {
 public:
  PhaseExchange(Phase phase, int process, int processes)
      : to_below_(halo_after(phase).down && process > 0),
        to_above_(halo_after(phase).up && process + 1 < processes),
        from_below_(halo_after(phase).up && process > 0),
        from_above_(halo_after(phase).down && process + 1 < processes),
        process_(process),
        partners_(neighbours(from_below_, from_above_), neighbours(to_below_, to_above_)) {}

  void post(const HaloWindow& window, launcher::Stream& stream) const { partners_.post(window, stream); }
  void exchange(const Grid& grid, double* field, const HaloWindow& window, launcher::Stream& stream) const {
    const auto packed = [&](bool is_there, int row, HaloWindow::Slot slot) {
      return Packed{field + grid.at(0, row), is_there ? window.at(slot) : nullptr};
    };
    const Packed to_below = packed(to_below_, 1, HaloWindow::to_below);
    const Packed to_above = packed(to_above_, grid.rows, HaloWindow::to_above);
    const Packed from_below = packed(from_below_, 0, HaloWindow::from_below);
    const Packed from_above = packed(from_above_, grid.rows + 1, HaloWindow::from_above);
    if (partners_.sends()) stream.run(CopyRows{grid, to_below, to_above, true}, grid.levels);
    partners_.exchange(window, stream, [&] {
      if (to_below_) window.put(HaloWindow::to_below, process_ - 1, HaloWindow::from_above);
      if (to_above_) window.put(HaloWindow::to_above, process_ + 1, HaloWindow::from_below);
    });
    if (partners_.receives()) stream.run(CopyRows{grid, from_below, from_above, false}, grid.levels);
  }

 private:
  std::vector<int> neighbours(bool below, bool above) const {
    std::vector<int> found;
    if (below) found.push_back(process_ - 1);
    if (above) found.push_back(process_ + 1);
    return found;
  }

  const bool to_below_, to_above_, from_below_, from_above_;
  const int process_;
  const epochs::Partners partners_;
};

class StreamLoop {
 public:
  StreamLoop(const Grid& grid, const Fields& fields, int ranks, int threads)
      : grid_(grid),
        fields_(fields),
        ranks_(ranks),
        stream_(ranks, threads),
        window_(static_cast<std::size_t>(grid.levels) * static_cast<std::size_t>(grid.columns)),
        iterations_(stream_, 2, [this](int iterations) { enqueue(iterations); }) {
    int process = 0, processes = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
    for (const Phase phase : {Phase::laplacian, Phase::fluxes, Phase::output})
      steps_.push_back({phase, std::make_unique<PhaseExchange>(phase, process, processes)});
  }

  void run(int iterations) { iterations_.run(iterations); }
  /// Two at a time, behind which `in` and `out` are where they were.
  void run_captured(int iterations) { iterations_.run_captured(iterations); }

 private:
  struct Step {
    Phase phase;
    std::unique_ptr<PhaseExchange> exchange;
  };

  void enqueue(int iterations) {
    Fields fields = fields_;
    for (int i = 0; i < iterations; ++i, swap_in_and_out(fields))
      for (const Step& step : steps_) {
        step.exchange->post(window_, stream_);
        stream_.run(ComputePhase{step.phase, grid_, fields, ranks_}, ranks_);
        step.exchange->exchange(grid_, result_of(step.phase, fields).data, window_, stream_);
      }
  }

  const Grid grid_;
  const Fields fields_;
  const int ranks_;
  launcher::Stream stream_;
  HaloWindow window_;
  std::vector<Step> steps_;
  launcher::Iterations iterations_;
};

}  // namespace diffusion
