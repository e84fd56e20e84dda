// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// A halo that lives for many steps: heat on a plate, each rank with a block of it, and one launch for all exchanges.
//
//     mpicxx -std=c++17 -o persistent_halo persistent_halo.cpp -lmpix         on hosts; run with MPIX_DEVICE=host
//     nvcc -std=c++17 -arch=native -ccbin mpicxx -o persistent_halo_gpu persistent_halo_gpu.cu -lmpix
//     mpiexec -n 4 ./persistent_halo [steps]
//
// The cells are red and black, as on a chessboard. A step relaxes those of one colour, whose neighbours all have the
// other, in place: so the halo is always that of one array. The result is compared with a serial computation. Ranks
// that share a GPU need the MPS daemon.
#include <mpi.h>
#include <mpix.h>
#include <mpix_device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int columns = 60, rows = 40;  // of a rank

/// A block of cells, row by row, with a border of one cell all around: the halo, or the wall.
struct Plate {
  double* cells;
  int columns, rows;
  int first;  // column + row of its first cell in the whole plate

  MPIX_FN int pitch() const { return columns + 2; }
  MPIX_FN long count() const { return static_cast<long>(pitch()) * (rows + 2); }
};

enum Where { inside = 1, rim = 2 };  // cells that need no halo; those that do, which are also what is sent

struct Sweep {
  Plate plate;
  int colour, where;
};

/// One step of those cells, by threads that are `threads` apart. Sums and a power of two: every compiler's are the
/// same.
MPIX_FN void relax(const Sweep& sweep, int thread, int threads) {
  const Plate& plate = sweep.plate;
  for (int i = thread; i < plate.columns * plate.rows; i += threads) {
    const int x = i % plate.columns + 1, y = i / plate.columns + 1;
    const bool at_rim = x == 1 || x == plate.columns || y == 1 || y == plate.rows;
    if ((x + y + plate.first) % 2 != sweep.colour || (sweep.where & (at_rim ? rim : inside)) == 0) continue;
    double* const cell = plate.cells + static_cast<long>(y) * plate.pitch() + x;
    *cell = 0.25 * ((cell[-1] + cell[1]) + (cell[-plate.pitch()] + cell[plate.pitch()]));
  }
}

// ---- Streams, kernels and memory of the device --------------------------------------------------------------

#if defined(__CUDACC__)
using Stream = cudaStream_t;
__global__ void sweep_cells(Sweep sweep) {
  relax(sweep, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), static_cast<int>(gridDim.x * blockDim.x));
}
void choose_device(int rank) {
  int gpus = 1;
  cudaGetDeviceCount(&gpus);
  cudaSetDevice(rank % gpus);
  // To load a kernel may wait for those that run, and one of them will stay.
  cudaFuncAttributes loaded;
  cudaFuncGetAttributes(&loaded, sweep_cells);
}
Stream make_stream() {
  Stream stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}
void launch(const Sweep& sweep, Stream stream) { sweep_cells<<<4, 256, 0, stream>>>(sweep); }
void synchronize(Stream stream) { cudaStreamSynchronize(stream); }
void destroy(Stream stream) { cudaStreamDestroy(stream); }
double* allocate(std::size_t bytes) {
  void* memory = nullptr;
  cudaMalloc(&memory, bytes);
  return static_cast<double*>(memory);
}
void release(double* memory) { cudaFree(memory); }
void copy(double* to, const double* from, std::size_t bytes) { cudaMemcpy(to, from, bytes, cudaMemcpyDefault); }
#else
using Stream = MPIX_Host_stream;
void choose_device(int) {}
Stream make_stream() {
  Stream stream = nullptr;
  MPIX_Host_stream_create(&stream);
  return stream;
}
/// `sweep` lives until it has run.
void launch(const Sweep& sweep, Stream stream) {
  const auto task = [](void* argument) { relax(*static_cast<const Sweep*>(argument), 0, 1); };
  MPIX_Host_stream_launch(stream, task, const_cast<Sweep*>(&sweep));
}
void synchronize(Stream stream) { MPIX_Host_stream_synchronize(stream); }
void destroy(Stream stream) { MPIX_Host_stream_destroy(&stream); }
double* allocate(std::size_t bytes) { return static_cast<double*>(std::malloc(bytes)); }
void release(double* memory) { std::free(memory); }
void copy(double* to, const double* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

// ---- The exchange -------------------------------------------------------------------------------------------

/// `length` cells from (x, y) on, to the right or downwards.
MPIX_Box box_at(const Plate& plate, int x, int y, int length, bool downwards) {
  MPIX_Box box{};
  box.base = plate.cells + static_cast<long>(y) * plate.pitch() + x;
  box.element = sizeof(double);
  box.dims = 1;
  box.count[0] = length;
  box.stride[0] = static_cast<long>(sizeof(double)) * (downwards ? plate.pitch() : 1);
  return box;
}

/// With the neighbours in a grid of ranks. At the walls there are none: MPI_PROC_NULL.
MPIX_Halo make_halo(const Plate& plate, MPI_Comm grid) {
  const int m = plate.columns, n = plate.rows;
  const MPIX_Box send[4] = {box_at(plate, 1, 1, n, true), box_at(plate, m, 1, n, true), box_at(plate, 1, 1, m, false),
                            box_at(plate, 1, n, m, false)};
  const MPIX_Box recv[4] = {box_at(plate, 0, 1, n, true), box_at(plate, m + 1, 1, n, true),
                            box_at(plate, 1, 0, m, false), box_at(plate, 1, n + 1, m, false)};
  int peer[4];  // left, right, above, below
  MPI_Cart_shift(grid, 1, 1, &peer[0], &peer[1]);
  MPI_Cart_shift(grid, 0, 1, &peer[2], &peer[3]);
  MPIX_Halo_message messages[4];
  // What I send to the left, with tag 0, the left one receives from its right.
  for (int i = 0; i < 4; ++i) messages[i] = MPIX_Halo_message{peer[i], i, i ^ 1, 1, 1, &send[i], &recv[i]};
  MPIX_Halo halo = MPIX_HALO_NULL;
  MPIX_Halo_create(grid, 4, messages, MPI_INFO_NULL, &halo);
  return halo;
}

/// Nothing waits in the loop: all steps are enqueued, and run one after the other.
void solve(const Plate& plate, MPI_Comm grid, int steps) {
  MPIX_Halo halo = make_halo(plate, grid);
  const Stream stream = make_stream(), beside = make_stream();
  const Sweep sweeps[2][2] = {{{plate, 0, inside}, {plate, 0, rim}}, {{plate, 1, inside}, {plate, 1, rim}}};
  MPIX_Halo_begin_stream(halo, steps, beside);  // one launch, which packs and unpacks for all steps
  for (int step = 0; step < steps; ++step) {
    MPIX_Halo_ready_stream(halo, stream);  // what is to be sent is there: the rim of the step before
    launch(sweeps[step % 2][0], stream);   // meanwhile
    MPIX_Halo_wait_stream(halo, stream);   // the halo is here, and the rim was packed
    launch(sweeps[step % 2][1], stream);
  }
  synchronize(stream);
  synchronize(beside);  // it has made its last step
  MPIX_Halo_free(&halo);
  destroy(stream);
  destroy(beside);
}

// ---- What it has to be --------------------------------------------------------------------------------------

/// Cold, below a hot wall, and with a hot spot here and there.
std::vector<double> start(int all_columns, int all_rows) {
  const int pitch = all_columns + 2;
  std::vector<double> cells(static_cast<std::size_t>(pitch) * static_cast<std::size_t>(all_rows + 2), 0.0);
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (i < static_cast<std::size_t>(pitch) || i % 37 == 0) cells[i] = 100.0;
  return cells;
}

/// The cells of the block at (x, y) of the plate, with its border; the corners, which nobody looks at, too.
std::vector<double> block_of(std::vector<double>& all, int pitch, int x, int y) {
  std::vector<double> block;
  for (int row = y; row < y + rows + 2; ++row)
    block.insert(block.end(), all.begin() + row * pitch + x, all.begin() + row * pitch + x + columns + 2);
  return block;
}

}  // namespace

int main(int argc, char** argv) {
  int threads, rank, ranks, dims[2] = {0, 0}, place[2], wrong = 0;
  const int periods[2] = {0, 0}, steps = argc > 1 ? std::atoi(argv[1]) : 200;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);  // a thread of the library sends
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  choose_device(rank);
  MPI_Comm grid;
  MPI_Dims_create(ranks, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  MPI_Cart_coords(grid, rank, 2, place);

  const int x = place[1] * columns, y = place[0] * rows;
  std::vector<double> all = start(dims[1] * columns, dims[0] * rows);
  const Plate whole{all.data(), dims[1] * columns, dims[0] * rows, 0};
  std::vector<double> mine = block_of(all, whole.pitch(), x, y);
  const std::size_t bytes = mine.size() * sizeof(double);
  const Plate plate{allocate(bytes), columns, rows, x + y};
  copy(plate.cells, mine.data(), bytes);
  solve(plate, grid, steps);
  copy(mine.data(), plate.cells, bytes);
  release(plate.cells);

  for (int step = 0; step < steps; ++step) relax(Sweep{whole, step % 2, inside | rim}, 0, 1);
  const std::vector<double> expected = block_of(all, whole.pitch(), x, y);
  for (int row = 1; row <= rows; ++row) {
    const std::size_t first = static_cast<std::size_t>(row * plate.pitch() + 1);
    if (std::memcmp(&mine[first], &expected[first], columns * sizeof(double)) != 0) wrong = 1;
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) std::printf("persistent_halo: %d ranks, %d steps, %s\n", ranks, steps, wrong ? "WRONG" : "OK");
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
