// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Ranks inside a kernel: the stencil of Fig. 2 of the dCUDA paper (Gysi, Bär, Hoefler, SC16). Each rank has some rows
// of a field, and puts the first and the last of them to its neighbours.
//
//     mpicxx -std=c++17 -o dev_stencil dev_stencil.cpp -lmpix        the ranks are threads, with MPIX_DEVICE=host
//     nvcc -std=c++17 -arch=native -ccbin mpicxx -o dev_stencil_gpu dev_stencil_gpu.cu -lmpix     they are blocks
//     mpiexec -n 2 ./dev_stencil [ranks of each process] [steps]
//
// The rows of a process lie in one array, and its ranks' parts of a window overlap: between them nothing is moved.
#include <mpi.h>
#include <mpix_device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int line = 64, len = 6 * line, tag = 7;  // len: the rows of a rank
constexpr std::size_t line_bytes = line * sizeof(double), part_bytes = (len + 2 * line) * sizeof(double);

/// One step of a row, all but its ends; by threads that are `threads` apart.
MPIX_FN void relax(const double* in, double* out, int thread, int threads) {
  for (int i = 1 + thread; i < line - 1; i += threads)
    out[i] = -4.0 * in[i] + in[i + 1] + in[i - 1] + in[i + line] + in[i - line];
}

struct Fields {
  double *in, *out;  // of the process: the rows of its ranks, and a row more at both ends
  int steps;
};

/// What a rank does: all its threads, with the same arguments.
MPIX_DEV_FN void solve(MPIX_Dev_ctx* dev, const MPIX_Dev_param& param, const Fields& fields, int thread, int threads) {
  if (MPIX_Dev_init(dev, param) != MPI_SUCCESS) return;
  const int me = MPIX_Dev_rank(dev, MPIX_DEV_WORLD), size = MPIX_Dev_size(dev, MPIX_DEV_WORLD);
  double* in = fields.in + MPIX_Dev_rank(dev, MPIX_DEV_DEVICE) * len;
  double* out = fields.out + MPIX_Dev_rank(dev, MPIX_DEV_DEVICE) * len;
  MPIX_Dev_win win = -1, wout = -1;
  MPIX_Dev_win_open(dev, MPIX_DEV_WORLD, in, part_bytes, &win);
  MPIX_Dev_win_open(dev, MPIX_DEV_WORLD, out, part_bytes, &wout);
  const bool lsend = me > 0, rsend = me + 1 < size;
  for (int step = 0; step < fields.steps; ++step) {
    for (int at = line; at <= len; at += line) relax(in + at, out + at, thread, threads);
    if (lsend) MPIX_Dev_put_notify(dev, wout, me - 1, part_bytes - line_bytes, line_bytes, out + line, tag);
    if (rsend) MPIX_Dev_put_notify(dev, wout, me + 1, 0, line_bytes, out + len, tag);
    if (MPIX_Dev_wait(dev, wout, MPIX_DEV_ANY_SOURCE, tag, lsend + rsend) != MPI_SUCCESS) return;
    double* const field = in;
    in = out, out = field;
    const MPIX_Dev_win window = win;
    win = wout, wout = window;
  }
  MPIX_Dev_win_close(dev, &win);
  MPIX_Dev_win_close(dev, &wout);
  MPIX_Dev_finish(dev);
}

#if defined(__CUDACC__)
__global__ void block(MPIX_Dev_param param, Fields fields) {
  __shared__ MPIX_Dev_ctx ctx;
  solve(&ctx, param, fields, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}
void run(MPIX_Dev dev, Fields& fields) {
  MPIX_Dev_launch(dev, block, dim3(line), 0, nullptr, fields);
  cudaDeviceSynchronize();
}
void copy(double* to, const double* from, std::size_t bytes) { cudaMemcpy(to, from, bytes, cudaMemcpyDefault); }
#else
void run(MPIX_Dev dev, Fields& fields) {
  const auto thread = [](MPIX_Dev_param param, void* argument) {
    MPIX_Dev_ctx ctx;
    solve(&ctx, param, *static_cast<Fields*>(argument), 0, 1);
  };
  MPIX_Dev_launch_host(dev, thread, &fields, nullptr);
  MPIX_Host_stream_synchronize(nullptr);
}
void copy(double* to, const double* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int process, processes, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
#if defined(__CUDACC__)
  int gpus = 1;
  cudaGetDeviceCount(&gpus);
  cudaSetDevice(process % gpus);
#endif
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4, steps = argc > 2 ? std::atoi(argv[2]) : 10;
  std::vector<double> field(static_cast<std::size_t>(processes * ranks * len + 2 * line));
  for (std::size_t i = 0; i < field.size(); ++i) field[i] = static_cast<double>(i * i % 7);
  std::vector<double> next = field, found(static_cast<std::size_t>(ranks * len + 2 * line));
  const std::size_t first = static_cast<std::size_t>(process * ranks * len), bytes = found.size() * sizeof(double);

  MPIX_Dev dev;
  void* base;
  MPIX_Dev_create(MPI_COMM_WORLD, ranks, MPI_INFO_NULL, &dev);
  MPIX_Dev_alloc(dev, 2 * bytes, &base);
  MPIX_Dev_attach(dev, base, 2 * bytes);
  Fields fields{static_cast<double*>(base), static_cast<double*>(base) + found.size(), steps};
  for (double* start : {fields.in, fields.out}) copy(start, &field[first], bytes);
  run(dev, fields);
  copy(found.data(), steps % 2 == 0 ? fields.in : fields.out, bytes);
  MPIX_Dev_error(dev, 0, &wrong, nullptr, 0);
  MPIX_Dev_free(&dev);

  for (int step = 0; step < steps; ++step, field.swap(next))
    for (std::size_t at = line; at + line < field.size(); at += line) relax(&field[at], &next[at], 0, 1);
  if (std::memcmp(&found[line], &field[first + line], bytes - 2 * line_bytes) != 0) wrong = 1;
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (process == 0) std::printf("dev_stencil: %d ranks, %s\n", processes * ranks, wrong ? "WRONG" : "OK");
  MPI_Finalize();
  return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
