// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The heat equation on a rod in C++: each rank has a piece of it, and puts its two ends to its neighbours.
//
//     mpicxx -std=c++17 -o jacobi jacobi.cpp -lmpix
//     mpiexec -n 4 ./jacobi [steps]
//
// All steps are enqueued on a host stream before the first need have run. The result is compared with a serial
// computation. On a machine with a GPU, run with MPIX_DEVICE=host.
#include <mpix.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <vector>

namespace {

constexpr int cells = 100;  // of a rank

double start_at(int cell) { return cell % 37 == 0 ? 100.0 : 0.0; }

/// One step: `field` has a cell more at both ends.
void relax(std::vector<double>& field) {
  std::vector<double> next(field);
  for (std::size_t i = 1; i + 1 < field.size(); ++i)
    next[i] = 0.25 * field[i - 1] + 0.5 * field[i] + 0.25 * field[i + 1];
  field.swap(next);
}

std::vector<double> serial(int all_cells, int steps) {
  std::vector<double> field(static_cast<std::size_t>(all_cells) + 2, 0.0);
  for (int i = 0; i < all_cells; ++i) field[static_cast<std::size_t>(i) + 1] = start_at(i);
  for (int step = 0; step < steps; ++step) relax(field);
  return field;
}

double solve(int rank, int size, int steps) {
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  const int right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  std::vector<int> ranks;
  for (const int neighbour : {left, right})
    if (neighbour != MPI_PROC_NULL) ranks.push_back(neighbour);

  // The window: a cell from the left, one from the right. Other ranks can map this memory.
  MPI_Info info;
  MPI_Win win;
  double* halo;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device");
  MPI_Win_allocate(2 * sizeof(double), sizeof(double), info, MPI_COMM_WORLD, &halo, &win);
  MPI_Info_free(&info);
  halo[0] = halo[1] = 0;

  std::vector<double> field(cells + 2, 0.0);
  for (int i = 0; i < cells; ++i) field[static_cast<std::size_t>(i) + 1] = start_at(rank * cells + i);
  double ends[2] = {0, 0};  // what the neighbours get
  {
    mpix::throw_errors(win);
    const mpix::Group neighbours(MPI_COMM_WORLD, ranks.data(), ranks.size());
    mpix::Stream stream;
    for (int step = 0; step < steps; ++step) {
      mpix::Exposure exposure(neighbours, win, stream);
      stream.launch([&] { ends[0] = field[1], ends[1] = field[cells]; });
      mpix::Access access(neighbours, win, stream);
      access.put(&ends[0], 1, left, 1);
      access.put(&ends[1], 1, right, 0);
      mpix::complete_wait(access, exposure);
      stream.launch([&] {
        field[0] = halo[0], field[cells + 1] = halo[1];
        relax(field);
      });
    }
    stream.synchronize();
  }
  MPI_Win_free(&win);

  const std::vector<double> expected = serial(size * cells, steps);
  double worst = 0;
  for (std::size_t i = 1; i <= cells; ++i)
    worst = std::fmax(worst, std::fabs(field[i] - expected[static_cast<std::size_t>(rank * cells) + i]));
  return worst;
}

}  // namespace

int main(int argc, char* argv[]) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double worst = 0, mine = 0;
  try {
    if (!mpix::is_active()) throw std::runtime_error("libmpix is not in front of MPI (link with mpicxx ... -lmpix)");
    mine = solve(rank, size, argc > 1 ? std::atoi(argv[1]) : 200);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "jacobi: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Allreduce(&mine, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf("jacobi: %d ranks, %s, largest difference %g\n", size, worst < 1e-12 ? "OK" : "WRONG", worst);
  MPI_Finalize();
  return worst < 1e-12 ? EXIT_SUCCESS : EXIT_FAILURE;
}
