// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "diffusion.h"
#include "host_loop.h"
#include "stream.h"
#include "support/abort.h"

/// The same diffusion with libmpix's stream epochs: the host enqueues the phases, the kernels that pack and unpack, and
/// an epoch between these, for all iterations, and waits once, at the end.
namespace diffusion {

/// Of the world; empty ones as well.
class Group {
 public:
  explicit Group(const std::vector<int>& processes) {
    MPI_Group world = MPI_GROUP_NULL;
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    CHECK_MPI(MPI_Group_incl(world, static_cast<int>(processes.size()), processes.data(), &group_));
    CHECK_MPI(MPI_Group_free(&world));
  }
  ~Group() {
    if (group_ != MPI_GROUP_EMPTY) CHECK_MPI(MPI_Group_free(&group_));
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  MPI_Group get() const { return group_; }

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
};

/// Memory for the halos of a process, packed: those that neighbours put there, and those that are put from there.
class HaloWindow {
 public:
  enum Slot { from_below, from_above, to_below, to_above, slots };

  explicit HaloWindow(std::size_t halo_points) : halo_points_(halo_points) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"));
    // Between a post and the next call on the window nothing here waits, so that this call may carry the post.
    CHECK_MPI(MPI_Info_set(info, "mpix_lazy_post", "true"));
    const std::size_t bytes = slots * halo_points * sizeof(double);
    CHECK_MPI(MPI_Win_allocate(static_cast<MPI_Aint>(bytes), sizeof(double), info, MPI_COMM_WORLD, &base_, &window_));
    CHECK_MPI(MPI_Info_free(&info));
  }
  ~HaloWindow() { CHECK_MPI(MPI_Win_free(&window_)); }
  HaloWindow(const HaloWindow&) = delete;
  HaloWindow& operator=(const HaloWindow&) = delete;

  MPI_Win get() const { return window_; }
  double* at(Slot slot) const { return base_ + slot * halo_points_; }
  /// In an access epoch.
  void put(Slot from, int target, Slot to) const {
    const int count = static_cast<int>(halo_points_);
    const MPI_Aint there = static_cast<MPI_Aint>(to * halo_points_);
    CHECK_MPI(MPI_Put(at(from), count, MPI_DOUBLE, target, there, count, MPI_DOUBLE, window_));
  }

 private:
  const std::size_t halo_points_;
  double* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
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
        origins_(neighbours(from_below_, from_above_)),
        targets_(neighbours(to_below_, to_above_)) {}

  /// In stream order behind whoever reads the slots that are put into.
  void post(const HaloWindow& window, launcher::Stream& stream) const {
    if (receives()) CHECK_MPI(MPIX_Win_post_stream(origins_.get(), window.get(), stream.handle()));
  }
  void exchange(const Grid& grid, double* field, const HaloWindow& window, launcher::Stream& stream) const {
    const auto packed = [&](bool is_there, int row, HaloWindow::Slot slot) {
      return Packed{field + grid.at(0, row), is_there ? window.at(slot) : nullptr};
    };
    const Packed to_below = packed(to_below_, 1, HaloWindow::to_below);
    const Packed to_above = packed(to_above_, grid.rows, HaloWindow::to_above);
    const Packed from_below = packed(from_below_, 0, HaloWindow::from_below);
    const Packed from_above = packed(from_above_, grid.rows + 1, HaloWindow::from_above);
    if (sends()) stream.run(CopyRows{grid, to_below, to_above, true}, grid.levels);
    put_and_wait(window, stream);
    if (receives()) stream.run(CopyRows{grid, from_below, from_above, false}, grid.levels);
  }

 private:
  bool sends() const { return to_below_ || to_above_; }
  bool receives() const { return from_below_ || from_above_; }
  std::vector<int> neighbours(bool below, bool above) const {
    std::vector<int> found;
    if (below) found.push_back(process_ - 1);
    if (above) found.push_back(process_ + 1);
    return found;
  }
  void put_and_wait(const HaloWindow& window, launcher::Stream& stream) const {
    if (sends()) {
      CHECK_MPI(MPI_Win_start(targets_.get(), MPIX_MODE_STREAM, window.get()));
      if (to_below_) window.put(HaloWindow::to_below, process_ - 1, HaloWindow::from_above);
      if (to_above_) window.put(HaloWindow::to_above, process_ + 1, HaloWindow::from_below);
    }
    // In one call they are cheaper.
    if (sends() && receives())
      CHECK_MPI(MPIX_Win_complete_wait_stream(window.get(), stream.handle()));
    else if (sends())
      CHECK_MPI(MPIX_Win_complete_stream(window.get(), stream.handle()));
    else if (receives())
      CHECK_MPI(MPIX_Win_wait_stream(window.get(), stream.handle()));
  }

  const bool to_below_, to_above_, from_below_, from_above_;
  const int process_;
  const Group origins_, targets_;
};

class StreamLoop {
 public:
  StreamLoop(const Grid& grid, const Fields& fields, int ranks, int threads)
      : grid_(grid),
        fields_(fields),
        ranks_(ranks),
        stream_(ranks, threads),
        window_(static_cast<std::size_t>(grid.levels) * static_cast<std::size_t>(grid.columns)) {
    int process = 0, processes = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
    for (const Phase phase : {Phase::laplacian, Phase::fluxes, Phase::output})
      steps_.push_back({phase, std::make_unique<PhaseExchange>(phase, process, processes)});
  }

  void run(int iterations) {
    enqueue(iterations);
    stream_.synchronize();
  }
  /// Two iterations at a time, behind which `in` and `out` are where they were; a last one by itself.
  void run_captured(int iterations) {
    if (!two_ && iterations >= 2) two_ = std::make_unique<launcher::Repeated>(stream_, [this] { enqueue(2); });
    for (int i = 0; i < iterations / 2; ++i) two_->launch();
    enqueue(iterations % 2);
    stream_.synchronize();
  }

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
  std::unique_ptr<launcher::Repeated> two_;
};

}  // namespace diffusion
