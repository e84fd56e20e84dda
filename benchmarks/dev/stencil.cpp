// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Horizontal diffusion as in the dCUDA paper (Gysi, Bär, Hoefler, SC16, Fig. 10), weak scaling; ranks are threads or,
// compiled as CUDA or HIP, blocks.
//
//   mpiexec -n N stencil [options]     (--help shows them)
//
// dev    one kernel for all iterations: ranks put rows into the halos of their neighbours, and notify them. Neighbours
// of
//        the same process share the rows, and their windows overlap: nothing is moved between them
// mpi    the same computation, three launches an iteration, with halos of processes packed and sent by the host
// alone  as dev, but without any halos, so that its results are wrong: what computing alone takes
//
// A figure is the median of several rounds; of each the time of a run without iterations is taken off.
#include <getopt.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "diffusion.h"
#include "host_loop.h"
#include "support/domain.h"

namespace {

using namespace diffusion;

int process = 0, processes = 1;

/// What a GPU's multiprocessor takes at once, as in the paper: while some ranks wait, the others compute.
constexpr int most_threads = 128, ranks_each = 8;

enum class Notify { last, each };  // of the rows of a halo

struct Options {
  int columns = 128, rows = 320, levels = 26;  // of a process
  int ranks = 0;                               // of a process; 0: as many as fit
  int threads = most_threads;                  // of a rank, where it is a block
  int iterations = 100, rounds = 20;
  Notify notify = Notify::last;
  bool check = false;
};

/// Of the rank that is so many behind. All processes have as many ranks, and rows.
MPIX_DEV_FN Patch patch_of(const MPIX_Dev_ctx& c, const Grid& grid, int behind) {
  const int ranks = MPIX_Dev_size(&c, MPIX_DEV_DEVICE);
  return Patch(grid, (MPIX_Dev_rank(&c, MPIX_DEV_DEVICE) + behind + ranks) % ranks, ranks);
}

/// To a row of the target's part, the first of which is its halo below.
MPIX_DEV_CALL void put_row(MPIX_Dev_ctx& c, Grid grid, Field field, int row, int target, int target_row, int tag,
                           Notify notify) {
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

[[noreturn]] void usage(int status) {
  const Options preset;
  if (process == 0)
    std::fprintf(status ? stderr : stdout,
                 "usage: mpiexec -n N stencil [options]\n"
                 "  --columns=N     points of a row, of 8 bytes                                  %d\n"
                 "  --rows=N        of a process, at each level                                  %d\n"
                 "  --levels=N                                                                   %d\n"
                 "  --ranks=N       of a process; 0: as many as fit, with two rows or more each  %d\n"
                 "  --threads=N     of a rank, where ranks are blocks; %d at most                %d\n"
                 "  --iterations=N                                                               %d\n"
                 "  --rounds=N      of which the median is shown                                 %d\n"
                 "  --notify=WHICH  last: of the rows of a halo; each: all of them               last\n"
                 "  --check         compare the results with a serial computation, bit by bit\n",
                 preset.columns, preset.rows, preset.levels, preset.ranks, most_threads, preset.threads,
                 preset.iterations, preset.rounds);
  CHECK_MPI(MPI_Finalize());
  std::exit(status);
}

Options read_options(int argc, char** argv) {
  const option names[] = {{"columns", required_argument, nullptr, 'c'},
                          {"rows", required_argument, nullptr, 'j'},
                          {"levels", required_argument, nullptr, 'k'},
                          {"ranks", required_argument, nullptr, 'r'},
                          {"threads", required_argument, nullptr, 't'},
                          {"iterations", required_argument, nullptr, 'i'},
                          {"rounds", required_argument, nullptr, 'n'},
                          {"notify", required_argument, nullptr, 'w'},
                          {"check", no_argument, nullptr, 'C'},
                          {"help", no_argument, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  const auto number = [](int least) {
    char* end = nullptr;
    const long value = std::strtol(optarg, &end, 10);
    if (*optarg == '\0' || *end != '\0' || value < least || value > 1 << 20) usage(2);
    return static_cast<int>(value);
  };
  Options options;
  opterr = process == 0;
  for (int found; (found = getopt_long(argc, argv, "h", names, nullptr)) != -1;) switch (found) {
      case 'c':
        options.columns = number(3);
        break;
      case 'j':
        options.rows = number(2);
        break;
      case 'k':
        options.levels = number(1);
        break;
      case 'r':
        options.ranks = number(0);
        break;
      case 't':
        options.threads = number(1);
        if (options.threads > most_threads) usage(2);
        break;
      case 'i':
        options.iterations = number(1);
        break;
      case 'n':
        options.rounds = number(1);
        break;
      case 'w':
        options.notify = std::strcmp(optarg, "each") == 0 ? Notify::each : Notify::last;
        if (options.notify == Notify::last && std::strcmp(optarg, "last") != 0) usage(2);
        break;
      case 'C':
        options.check = true;
        break;
      case 'h':
        usage(0);
      default:
        usage(2);
    }
  if (optind != argc || options.ranks > options.rows / 2) usage(2);
  return options;
}

int ranks_that_fit(const Options& options) {
  int here = support::max_ranks<Diffusion, most_threads, ranks_each>(options.threads) / support::processes_of_the_gpu(),
      fit = 0;
  CHECK_MPI(MPI_Allreduce(&here, &fit, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  return std::min(fit, options.rows / 2);
}

class Benchmark {
 public:
  Benchmark(const Options& options, int ranks)
      : options_(options),
        ranks_(ranks),
        grid_{options.columns, options.rows, options.levels},
        domain_(MPI_COMM_WORLD, ranks),
        loop_(grid_, ranks, options.threads) {
    for (Field* field : {&fields_.in, &fields_.out, &fields_.laplacian, &fields_.flux_i, &fields_.flux_j}) {
      field->data = reinterpret_cast<double*>(domain_.allocate(grid_.points() * sizeof(double)));
      field->window = window_over(field->data);
    }
    start();
  }

  void dev(int iterations) { launch(iterations, true); }
  void mpi(int iterations) { loop_.run(fields_, iterations); }
  void alone(int iterations) { launch(iterations, false); }

  /// Of all processes.
  bool is_right(void (Benchmark::*variant)(int), const char* name) {
    start();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    (this->*variant)(options_.iterations);
    std::vector<double> found(grid_.points());
    const Field& field = options_.iterations % 2 == 0 ? fields_.in : fields_.out;
    support::to_host(found.data(), field.data, found.size() * sizeof(double));
    const Grid all{grid_.columns, grid_.rows * processes, grid_.levels};
    const std::vector<double> expected = serial(all, options_.iterations);
    int wrong = 0, all_wrong = 0;
    for (int level = 0; level < grid_.levels; ++level)
      for (int row = 1; row <= grid_.rows; ++row)
        if (std::memcmp(&found[grid_.at(level, row)], &expected[all.at(level, process * grid_.rows + row)],
                        grid_.row_bytes()) != 0 &&
            wrong++ == 0)
          std::printf("%s: process %d: level %d, row %d of %d is wrong\n", name, process, level, row - 1, grid_.rows);
    CHECK_MPI(MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    if (process == 0) std::printf("%s: %d rows are wrong after %d iterations\n", name, all_wrong, options_.iterations);
    return all_wrong == 0;
  }

  /// Of an iteration, in microseconds.
  double time(void (Benchmark::*variant)(int)) {
    const double empty = seconds(variant, 0);
    return (seconds(variant, options_.iterations) - empty) / options_.iterations * 1e6;
  }

  /// In GB/s: a phase reads or writes each of its fields once, which makes nine for an iteration.
  double bandwidth(double microseconds) const {
    const double points = static_cast<double>(options_.columns) * options_.rows * options_.levels;
    return 9 * points * sizeof(double) / microseconds / 1e3;
  }

 private:
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
  void start() {
    const std::vector<double> values = start_of(grid_, process * grid_.rows);
    for (double* field : {fields_.in.data, fields_.out.data})
      support::from_host(field, values.data(), values.size() * sizeof(double));
  }
  void launch(int iterations, bool halos) {
    const Diffusion kernel{grid_, fields_, iterations, halos, options_.notify};
    CHECK_MPI((support::launch<most_threads, ranks_each>(domain_, kernel, options_.threads)));
    support::synchronize();
    domain_.check();
  }
  double seconds(void (Benchmark::*variant)(int), int iterations) {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = std::chrono::steady_clock::now();
    (this->*variant)(iterations);
    double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return all;
  }

  const Options options_;
  const int ranks_;
  const Grid grid_;
  support::Domain domain_;
  HostLoop loop_;
  Fields fields_{};
};

struct Variant {
  const char* name;
  void (Benchmark::*run)(int);
  std::vector<double> times;
};

void print(const Options& options, int ranks, const Benchmark& benchmark, std::vector<Variant>& variants) {
  std::printf("horizontal diffusion, %d x %d x %d points of each of %d processes; ranks of %d threads\n",
              options.columns, options.rows, options.levels, processes,
              support::ranks_are_blocks ? options.threads : 1);
  std::printf("a halo: %d rows of %d bytes, %s\n", options.levels, options.columns * 8,
              options.notify == Notify::each ? "each notified" : "the last of them notified");
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
      {"dev", &Benchmark::dev, {}}, {"mpi", &Benchmark::mpi, {}}, {"alone", &Benchmark::alone, {}}};
  bool right = true;
  for (int i = 0; i < 2 && options.check; ++i) right = benchmark.is_right(variants[i].run, variants[i].name) && right;
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
