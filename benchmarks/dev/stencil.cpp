// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Horizontal diffusion as in the dCUDA paper (Gysi, Bär, Hoefler, SC16, Fig. 10), weak scaling; ranks are threads or,
// compiled as CUDA or HIP, blocks.
//
//   mpiexec -n N stencil [options]     (--help shows them)
//
// dev       one kernel for all iterations: ranks put rows into the halos of their neighbours, and notify them.
//           Neighbours of the same process share the rows, and their windows overlap: nothing is moved between them
// mpi       the same computation, three launches an iteration, with halos of processes packed and sent by the host
// st        the same with stream epochs: all is enqueued, and the host waits once, at the end
// captured  on GPUs: two iterations of that in a graph, which is launched again and again
// alone     as dev, but without any halos, so that its results are wrong: what computing alone takes
//
// A figure is the median of several rounds; of each the time of a run without iterations is taken off.
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "diffusion.h"
#include "host_loop.h"
#include "stencil_options.h"
#include "stencil_rows.h"
#include "stream_loop.h"
#include "support/domain.h"

namespace {

using namespace diffusion;

/// Of the rank that is so many behind. All processes have as many ranks, and rows.
MPIX_DEV_FN Patch patch_of(const MPIX_Dev_ctx& c, const Grid& grid, int behind) {
  const int ranks = MPIX_Dev_size(&c, MPIX_DEV_DEVICE);
  return Patch(grid, (MPIX_Dev_rank(&c, MPIX_DEV_DEVICE) + behind + ranks) % ranks, ranks);
}

/// To a row of the target's part, the first of which is its halo below.
MPIX_DEV_CALL void put_row(MPIX_Dev_ctx& c, Grid grid, Field field, int row, int target, int target_row, int tag,
                           Notify notify) {
  if (notify == Notify::whole) {
    const std::size_t level = grid.at(1, 0) * sizeof(double);
    (void)MPIX_Dev_put_notify_2d(&c, field.window, target, grid.at(0, target_row) * sizeof(double), level,
                                 field.data + grid.at(0, row), level, grid.row_bytes(),
                                 static_cast<std::size_t>(grid.levels), tag);
    return;
  }
  for (int level = 0; level < grid.levels; ++level) {
    const double* const from = field.data + grid.at(level, row);
    const std::size_t to = grid.at(level, target_row) * sizeof(double);
    if (notify == Notify::each || level == grid.levels - 1)
      (void)MPIX_Dev_put_notify(&c, field.window, target, to, grid.row_bytes(), from, tag);
    else
      (void)MPIX_Dev_put(&c, field.window, target, to, grid.row_bytes(), from);
  }
}

/// Out of line: what it needs is not to take registers from what computes.
MPIX_DEV_CALL bool exchange(MPIX_Dev_ctx& c, Grid grid, Field field, Phase phase, Notify notify) {
  const Halo halo = halo_after(phase);
  const int tag = static_cast<int>(phase);
  const Patch patch = patch_of(c, grid, 0);
  const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD), last = MPIX_Dev_size(&c, MPIX_DEV_WORLD) - 1;
  if (halo.down && me > 0) put_row(c, grid, field, patch.begin, me - 1, patch_of(c, grid, -1).rows() + 1, tag, notify);
  if (halo.up && me < last) put_row(c, grid, field, patch.end - 1, me + 1, 0, tag, notify);
  const int rows = (halo.down && me < last ? 1 : 0) + (halo.up && me > 0 ? 1 : 0);
  const int count = notify == Notify::each ? rows * grid.levels : rows;
  return MPIX_Dev_wait(&c, field.window, MPIX_DEV_ANY_SOURCE, tag, count) == MPI_SUCCESS;
}

/// What a rank does in `dev`.
struct Diffusion {
  Grid grid;
  Fields fields;
  int iterations;
  bool halos;
  Notify notify;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const Patch patch = patch_of(c, grid, 0);
    Fields now = fields;
    for (int i = 0; i < iterations; ++i) {
      for (const Phase phase : {Phase::laplacian, Phase::fluxes, Phase::output}) {
        compute(phase, grid, patch, now);
        if (halos && !exchange(c, grid, result_of(phase, now), phase, notify)) return;
      }
      swap_in_and_out(now);
    }
  }
};

int ranks_that_fit(const Options& options) {
  int here = support::max_ranks<Diffusion, most_threads, ranks_each>(options.threads) / support::processes_of_the_gpu(),
      fit = 0;
  CHECK_MPI(MPI_Allreduce(&here, &fit, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  return std::min(fit, options.rows / 2);
}

/// The fields, and who computes on them.
class Benchmark {
 public:
  Benchmark(const Options& options, int ranks)
      : options_(options),
        ranks_(ranks),
        grid_{options.columns, options.rows, options.levels},
        domain_(MPI_COMM_WORLD, ranks),
        fields_{make_field(), make_field(), make_field(), make_field(), make_field()},
        host_loop_(grid_, ranks, options.threads),
        stream_loop_(grid_, fields_, ranks, options.threads) {}

  bool run() {
    std::vector<Row> rows = {{"dev", [this](int iterations) { launch(iterations, true); }, true},
                             {"mpi", [this](int iterations) { host_loop_.run(fields_, iterations); }, true},
                             {"st", [this](int iterations) { stream_loop_.run(iterations); }, true}};
    if (support::ranks_are_blocks)
      rows.push_back({"captured", [this](int iterations) { stream_loop_.run_captured(iterations); }, true});
#if !defined(__SANITIZE_THREAD__)  // without halos ranks read rows that others are writing
    rows.push_back({"alone", [this](int iterations) { launch(iterations, false); }, false});
#endif
    constexpr std::size_t mpi = 1;
    return diffusion::run(rows, mpi, grid_, fields_, options_, ranks_);
  }

 private:
  Field make_field() {
    auto* const data = reinterpret_cast<double*>(domain_.allocate(grid_.points() * sizeof(double)));
    return Field{data, window_over(data)};
  }
  /// Each rank's part: its rows, and one more at both ends, from its first level to its last.
  MPIX_Dev_win window_over(double* field) const {
    std::vector<void*> bases;
    std::vector<std::size_t> sizes;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Patch patch(grid_, rank, ranks_);
      double* const begin = field + grid_.at(0, patch.begin - 1);
      double* const end = field + grid_.at(grid_.levels - 1, patch.end + 1);
      bases.push_back(begin);
      sizes.push_back(static_cast<std::size_t>(end - begin) * sizeof(double));
    }
    MPIX_Dev_win window = -1;
    CHECK_MPI(MPIX_Dev_win_create(domain_, bases.data(), sizes.data(), &window));
    return window;
  }
  void launch(int iterations, bool halos) {
    const Diffusion kernel{grid_, fields_, iterations, halos, options_.notify};
    CHECK_MPI((support::launch<most_threads, ranks_each>(domain_, kernel, options_.threads)));
    support::synchronize();
    domain_.check();
  }

  const Options options_;
  const int ranks_;
  const Grid grid_;
  support::Domain domain_;
  const Fields fields_;
  HostLoop host_loop_;
  StreamLoop stream_loop_;
};

bool run(const Options& options) {
  const int ranks = options.ranks > 0 ? options.ranks : ranks_that_fit(options);
  return Benchmark(options, ranks).run();
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
  support::choose_gpu(process());
  const bool right = run(read_options(argc, argv, {"stencil", {}}));
  CHECK_MPI(MPI_Finalize());
  return right ? 0 : 1;
}
