// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// A sparse matrix times a vector as in the dCUDA paper (Gysi, Bär, Hoefler, SC16, Fig. 11), weak scaling; ranks are
// threads or, compiled as CUDA or HIP, blocks.
//
//   mpiexec -n N spmv [options]     (--help shows them)
//
// The matrix lies in square blocks on a grid of the processes; the ranks of a process have rows of its block. The
// vector lies in the first row of the grid, and the result in the first column. An iteration:
//
//   1. the vector goes down the columns of the grid
//   2. each rank multiplies its rows
//   3. the sums go along the rows of the grid, and are added on the way
//   4. a barrier, as a step that needs all of the result would have it
//
// dev       one kernel for all iterations. Vector and sums go along binary trees of notified puts. In a process the
//           vector is there once: the windows of its ranks overlap, and only notifications go down its tree
// mpi       the same multiplication, launched by the host in each iteration, with MPI_Bcast and MPI_Reduce
// st        the same with stream epochs, which put the vector from the first process of a column to all others, and
//           sums to the first one of a row, where a kernel adds them: the host enqueues all, and waits once, at the end
// captured  on GPUs: iterations of that in a graph, which is launched again and again
// alone     as dev, but the multiplication alone: what computing takes
//
// A figure is the median of several rounds; of each the time of a run without iterations is taken off.
#include <getopt.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/command_line.h"
#include "csr.h"
#include "spmv_loop.h"
#include "spmv_stream.h"
#include "support/domain.h"
#include "team.h"

namespace {

using namespace sparse;

int process = 0, processes = 1;

/// What a GPU's multiprocessor takes at once, as in the paper.
constexpr int most_threads = 128, ranks_each = 8;
constexpr int warp = support::ranks_are_blocks ? 32 : 1;

struct Options {
  int block = 10816;  // rows, and columns, of a process
  double fill = 0.3;  // per cent
  int across = 0;     // processes in a row of the grid; 0: as square as possible
  int ranks = 0;      // of a process; 0: as many as fit
  int threads = most_threads;
  int seed = 1;
  int iterations = 100, rounds = 20;
  bool check = false;
};

struct Vectors {
  double* x;  // of a process
  MPIX_Dev_win x_window;
  double* sums;  // of each rank: its own, and those of two children
  MPIX_Dev_win sums_window;
  int most_rows;  // of a rank
  double* y;

  MPIX_FN std::size_t sums_at(int which) const {
    return static_cast<std::size_t>(which) * static_cast<std::size_t>(most_rows);
  }
  MPIX_FN double* sums_of(int rank_here) const { return sums + static_cast<std::size_t>(rank_here) * sums_at(3); }
};

/// Of a rank, in the grid and in its process. All processes have as many ranks.
struct Place {
  int row, column, here, ranks;
  MPIX_DEV_METHOD Place(const MPIX_Dev_ctx& c, const Grid& grid)
      : here(MPIX_Dev_rank(&c, MPIX_DEV_DEVICE)), ranks(MPIX_Dev_size(&c, MPIX_DEV_DEVICE)) {
    const int process_of_rank = MPIX_Dev_rank(&c, MPIX_DEV_WORLD) / ranks;
    row = grid.row_of(process_of_rank), column = grid.column_of(process_of_rank);
  }
  MPIX_DEV_METHOD int rank_at(const Grid& grid, int its_row, int its_column, int rank_here) const {
    return grid.at(its_row, its_column) * ranks + rank_here;
  }
};

/// Of a binary tree, in which the children of i are 2 i + 1 and 2 i + 2.
MPIX_FN int parent_of(int i) { return (i - 1) / 2; }
MPIX_FN int children_of(int i, int count) {
  const int behind = count - (2 * i + 1);
  return behind < 0 ? 0 : behind < 2 ? behind : 2;
}

/// The vector goes from process to process, by the first rank of each, and from there to the other ranks, for which it
/// need not be moved. All have read the one before: a barrier was in between.
MPIX_DEV_CALL bool broadcast(MPIX_Dev_ctx& c, Grid grid, Vectors vectors) {
  const Place me(c, grid);
  const std::size_t bytes = static_cast<std::size_t>(grid.block) * sizeof(double);
  const bool is_first = me.here == 0;
  if ((!is_first || me.row > 0) &&
      MPIX_Dev_wait(&c, vectors.x_window, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, 1) != MPI_SUCCESS)
    return false;
  const int rows_behind = is_first ? children_of(me.row, grid.down) : 0;
  for (int child = 1; child <= rows_behind; ++child)
    (void)MPIX_Dev_put_notify(&c, vectors.x_window, me.rank_at(grid, 2 * me.row + child, me.column, 0), 0, bytes,
                              vectors.x, 0);
  const int ranks_behind = children_of(me.here, me.ranks);
  for (int child = 1; child <= ranks_behind; ++child)
    (void)MPIX_Dev_put_notify(&c, vectors.x_window, me.rank_at(grid, me.row, me.column, 2 * me.here + child), 0, bytes,
                              vectors.x, 0);
  return true;
}

/// The sums of a rank's rows and those of its children in the row of the grid go to its parent. The parent has added
/// those of the iteration before: a barrier was in between.
MPIX_DEV_CALL bool reduce(MPIX_Dev_ctx& c, Grid grid, Vectors vectors, bool adds) {
  const Place me(c, grid);
  const Rows rows(grid, me.here, me.ranks);
  double* const own = vectors.sums_of(me.here);
  const int children = children_of(me.column, grid.across);
  if (children > 0) {
    if (MPIX_Dev_wait(&c, vectors.sums_window, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, children) != MPI_SUCCESS)
      return false;
    const team::Team team = team::here();
    for (int i = team.index; i < rows.count(); i += team.size) {
      double sum = own[i];
      for (int child = 1; child <= children; ++child) sum += own[vectors.sums_at(child) + static_cast<std::size_t>(i)];
      double* const result = me.column == 0 ? vectors.y + rows.begin + i : own + i;
      *result = adds && me.column == 0 ? *result + sum : sum;
    }
  }
  if (me.column == 0) return true;
  const int parent = parent_of(me.column), which = me.column - 2 * parent;
  (void)MPIX_Dev_put_notify(&c, vectors.sums_window, me.rank_at(grid, me.row, parent, me.here),
                            vectors.sums_at(which) * sizeof(double),
                            static_cast<std::size_t>(rows.count()) * sizeof(double), own, 0);
  return true;
}

/// What a rank does in `dev` and `alone`.
struct Product {
  Grid grid;
  Csr matrix;
  Random random;
  Vectors vectors;
  int iterations;
  bool alone;
  bool checked;  // each iteration has an input of its own, and the results are added up

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const Place me(c, grid);
    const Rows rows(grid, me.here, me.ranks);
    const bool is_all = grid.across == 1;
    double* const to = is_all ? vectors.y + rows.begin : vectors.sums_of(me.here);
    for (int i = 0; i < iterations; ++i) {
      if (checked && me.row == 0 && me.here == 0)
        write_input(random, std::int64_t{me.column} * grid.block, i, vectors.x, grid.block);
      if (!alone && !broadcast(c, grid, vectors)) return;
      multiply(matrix, rows, vectors.x, to, is_all && checked);
      if (alone) continue;
      if (!is_all && !reduce(c, grid, vectors, checked)) return;
      if (MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) != MPI_SUCCESS) return;
    }
  }
};

Options read_options(int argc, char** argv) {
  Options options;
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line("spmv",
                              "Rows: dev, ranks inside a kernel; mpi, a loop of the host over MPI; st, one with stream "
                              "epochs;\ncaptured, these in graphs, on GPUs; alone, as dev, without an exchange.\n");
  line.number("block", options.block, 1, most, "rows, and columns, of a process")
      .real("fill", options.fill, 0, 100, "per cent of the elements that are there")
      .number("across", options.across, 0, most,
              "processes in a row of the grid, of which there are as many as it takes; 0: as square as possible")
      .number("ranks", options.ranks, 0, most, "of a process; 0: as many as fit, with a row each")
      .number("threads", options.threads, 1, most_threads, "of a rank, where ranks are blocks; whole warps")
      .number("seed", options.seed, 0, most, "of matrix and vector")
      .number("iterations", options.iterations, 1, most, "in a round")
      .number("rounds", options.rounds, 1, most, "of which the median is shown")
      .flag("check", options.check, "compare with a serial computation, bit by bit");
  line.read(argc, argv);
  if (options.across > 0 && processes % options.across != 0) line.refuse("--across does not divide the processes");
  if (options.threads % warp != 0) line.refuse("--threads is no multiple of " + std::to_string(warp));
  if (options.ranks > options.block) line.refuse("more ranks than rows");
  return options;
}

Grid grid_of(const Options& options) {
  int sides[] = {0, options.across};
  CHECK_MPI(MPI_Dims_create(processes, 2, sides));
  return Grid{sides[0], sides[1], options.block};
}

int ranks_that_fit(const Options& options) {
  int here = support::max_ranks<Product, most_threads, ranks_each>(options.threads) / support::processes_of_the_gpu(),
      fit = 0;
  CHECK_MPI(MPI_Allreduce(&here, &fit, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  return std::min(fit, options.block);
}

class Benchmark {
 public:
  Benchmark(const Options& options, int ranks)
      : options_(options),
        ranks_(ranks),
        grid_(grid_of(options)),
        random_{static_cast<std::uint64_t>(options.seed)},
        domain_(MPI_COMM_WORLD, ranks),
        matrix_(make_matrix()),
        vectors_(make_vectors()),
        loop_(grid_, matrix_, random_, ranks, options.threads),
        stream_loop_(grid_, matrix_, random_, make_stream_memory(), ranks, options.threads) {
    start();
  }

  const Grid& grid() const { return grid_; }
  double entries() const { return entries_; }
  /// In GB/s: matrix and both vectors are read or written once.
  double bandwidth(double microseconds) const {
    const double bytes = entries_ * (sizeof(double) + sizeof(std::int32_t)) + (grid_.block + 1.0) * 8 +
                         2.0 * grid_.block * sizeof(double);
    return bytes / microseconds / 1e3;
  }

  void dev(int iterations, bool checked) { launch(iterations, false, checked); }
  void mpi(int iterations, bool checked) { loop_.run(vectors_.x, vectors_.y, iterations, checked); }
  void st(int iterations, bool checked) { stream_loop_.run(iterations, checked); }
  void captured(int iterations, bool checked) { stream_loop_.run_captured(iterations, checked); }
  void alone(int iterations, bool) { launch(iterations, true, false); }
  using Variant = void (Benchmark::*)(int, bool);

  /// Of all processes.
  bool is_right(Variant variant, const char* name) {
    start();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    (this->*variant)(options_.iterations, true);
    int wrong = grid_.column_of(process) == 0 ? wrong_rows(name) : 0, all_wrong = 0;
    CHECK_MPI(MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    if (process == 0) std::printf("%s: %d rows are wrong after %d iterations\n", name, all_wrong, options_.iterations);
    start();
    return all_wrong == 0;
  }

  /// Of an iteration, in microseconds.
  double time(Variant variant) {
    const double empty = seconds(variant, 0);
    return (seconds(variant, options_.iterations) - empty) / options_.iterations * 1e6;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(grid_.block); }
  double* allocate(std::size_t count) { return reinterpret_cast<double*>(domain_.allocate(count * sizeof(double))); }
  template <class T>
  const T* to_device(const std::vector<T>& values) {
    char* const memory = domain_.allocate(values.size() * sizeof(T));
    if (!values.empty()) support::from_host(memory, values.data(), values.size() * sizeof(T));
    return reinterpret_cast<const T*>(memory);
  }
  Csr make_matrix() {
    const Block block =
        random_block(grid_, grid_.row_of(process), grid_.column_of(process), options_.fill / 100, random_);
    double mine = static_cast<double>(block.values.size());
    CHECK_MPI(MPI_Allreduce(&mine, &entries_, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    entries_ /= processes;
    return Csr{to_device(block.begin), to_device(block.columns), to_device(block.values)};
  }
  Vectors make_vectors() {
    Vectors vectors{};
    const std::size_t ranks = static_cast<std::size_t>(ranks_), bytes = size() * sizeof(double);
    vectors.x = allocate(static_cast<std::size_t>(grid_.across) * size());  // behind it is room for st's sums
    const std::vector<void*> bases(ranks, vectors.x);
    const std::vector<std::size_t> sizes(ranks, bytes);
    CHECK_MPI(MPIX_Dev_win_create(domain_, bases.data(), sizes.data(), &vectors.x_window));
    vectors.y = allocate(size());
    vectors.most_rows = (grid_.block + ranks_ - 1) / ranks_;
    const std::size_t each = vectors.sums_at(3) * sizeof(double);
    vectors.sums = reinterpret_cast<double*>(domain_.allocate(ranks * each));
    vectors.sums_window = domain_.window_over(reinterpret_cast<char*>(vectors.sums), each);
    return vectors;
  }
  StreamMemory make_stream_memory() {
    int* const iteration = reinterpret_cast<int*>(domain_.allocate(sizeof(int)));
    return StreamMemory{vectors_.x, allocate(size()), vectors_.y, iteration};
  }
  /// The vector is in the first row of the grid alone, and there is no result.
  void start() {
    std::vector<double> values(size());
    support::from_host(vectors_.y, values.data(), values.size() * sizeof(double));
    const std::int64_t first_column = std::int64_t{grid_.column_of(process)} * grid_.block;
    for (std::size_t j = 0; j < values.size() && grid_.row_of(process) == 0; ++j)
      values[j] = input_at(random_, first_column + static_cast<std::int64_t>(j), 0);
    support::from_host(vectors_.x, values.data(), values.size() * sizeof(double));
    support::synchronize();  // not all streams wait for such copies
  }
  int wrong_rows(const char* name) const {
    const int row = grid_.row_of(process);
    const std::vector<double> expected = serial(grid_, row, options_.fill / 100, random_, options_.iterations);
    std::vector<double> found(size());
    support::to_host(found.data(), vectors_.y, found.size() * sizeof(double));
    int wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      if (found[i] != expected[i] && wrong++ == 0)
        std::printf("%s: row %zu of row %d of the grid is %.17g, not %.17g\n", name, i, row, found[i], expected[i]);
    return wrong;
  }
  void launch(int iterations, bool alone, bool checked) {
    const Product kernel{grid_, matrix_, random_, vectors_, iterations, alone, checked};
    CHECK_MPI((support::launch<most_threads, ranks_each>(domain_, kernel, options_.threads)));
    support::synchronize();
    domain_.check();
  }
  double seconds(Variant variant, int iterations) {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = std::chrono::steady_clock::now();
    (this->*variant)(iterations, false);
    double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return all;
  }

  const Options options_;
  const int ranks_;
  const Grid grid_;
  const Random random_;
  double entries_ = 0;  // of a process, on average
  support::Domain domain_;
  const Csr matrix_;
  const Vectors vectors_;
  HostLoop loop_;
  StreamLoop stream_loop_;
};

struct Variant {
  const char* name;
  Benchmark::Variant run;
  bool is_right;  ///< computes what the serial computation does
  std::vector<double> times = {};
};

void print(const Options& options, int ranks, const Benchmark& benchmark, std::vector<Variant>& variants) {
  const Grid& grid = benchmark.grid();
  std::printf("sparse matrix times vector: %d x %d processes with %d x %d elements each, of which %.0f are there\n",
              grid.down, grid.across, grid.block, grid.block, benchmark.entries());
  std::printf("ranks of %d threads\n", support::ranks_are_blocks ? options.threads : 1);
  std::printf("%-8s %8s %10s %12s %10s %10s %8s %8s\n", "variant", "ranks", "iterations", "us/iteration", "least",
              "most", "GB/s", "to mpi");
  for (Variant& variant : variants) std::sort(variant.times.begin(), variant.times.end());
  const double mpi = variants[1].times[variants[1].times.size() / 2];
  for (const Variant& variant : variants) {
    const double median = variant.times[variant.times.size() / 2];
    std::printf("%-8s %8d %10d %12.2f %10.2f %10.2f %8.1f %8.3f\n", variant.name, ranks * processes, options.iterations,
                median, variant.times.front(), variant.times.back(), benchmark.bandwidth(median), median / mpi);
  }
}

bool run(const Options& options) {
  const int ranks = options.ranks > 0 ? options.ranks : ranks_that_fit(options);
  Benchmark benchmark(options, ranks);
  std::vector<Variant> variants = {
      {"dev", &Benchmark::dev, true}, {"mpi", &Benchmark::mpi, true}, {"st", &Benchmark::st, true}};
  if (support::ranks_are_blocks && options.iterations >= sparse::StreamLoop::in_graph)
    variants.push_back({"captured", &Benchmark::captured, true});
  variants.push_back({"alone", &Benchmark::alone, false});
  bool right = true;
  for (const Variant& variant : variants)
    if (options.check && variant.is_right) right = benchmark.is_right(variant.run, variant.name) && right;
  for (int round = 0; round <= options.rounds; ++round)
    for (Variant& variant : variants) {
      const double time = benchmark.time(variant.run);
      if (round > 0) variant.times.push_back(time);  // the first is for warming up
    }
  if (process == 0) print(options, ranks, benchmark, variants);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
  support::choose_gpu(process);
  const bool right = run(read_options(argc, argv));
  CHECK_MPI(MPI_Finalize());
  return right ? 0 : 1;
}
