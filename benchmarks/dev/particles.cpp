// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Particles that repel each other, as in the dCUDA paper (Gysi, Bär, Hoefler, SC16, Fig. 9), weak scaling; ranks are
// threads or, compiled as CUDA or HIP, blocks.
//
//   mpiexec -n N particles [options]     (--help shows them)
//
// dev       one kernel for all iterations: ranks put the particles at their ends, and those that leave, into the memory
//           of their neighbours, and notify them; how many there are, the host never knows. Neighbours of the same
//           process share the cells, and their windows overlap: nothing is moved between them
// mpi       the same computation, two launches an iteration, with the ends of processes packed and sent by the host
// st        the same with stream epochs: all is enqueued, and the host waits once, at the end. The size of a put is
//           fixed when it is enqueued, so cells go with all of their room, which moves more than the others do
// captured  on GPUs: two iterations of that in a graph, which is launched again and again
// alone     as dev, but each rank by itself: its last cell is beside its first, so that its results are wrong. It
//           computes as much, and exchanges nothing
//
// A figure is the median of several rounds, each of which begins with the same particles; of each the time of a run
// without iterations is taken off.
#include <getopt.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/command_line.h"
#include "cells.h"
#include "particles_loop.h"
#include "particles_stream.h"
#include "support/domain.h"

namespace {

using namespace particles;

int process = 0, processes = 1;

/// What a GPU's multiprocessor takes at once, as in the paper: while some ranks wait, the others compute.
constexpr int ranks_each = 8;

struct Options {
  int cells = 2;        // of a rank
  int particles = 100;  // of a cell, at the start
  int room = 4;         // of a cell, for so many times as many
  int ranks = 0;        // of a process; 0: as many as fit
  int threads = most_threads;
  double cutoff = 1.0 / 16, stiffness = 1.0 / 16, speed = 1.0 / 64;
  int seed = 1;
  int iterations = 100, rounds = 20;
  bool check = false;
};

enum Tag { halo, movers };

/// Out of line, as what these need is not to take registers from what computes.
MPIX_DEV_CALL void put_bytes(MPIX_Dev_ctx& c, MPIX_Dev_win window, int target, std::size_t to, std::size_t bytes,
                             const char* from, Tag tag) {
  (void)MPIX_Dev_put_notify(&c, window, target, to, bytes, from, tag);
}
MPIX_DEV_CALL bool wait_for(MPIX_Dev_ctx& c, Tag tag, int count) {
  return MPIX_Dev_wait(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, tag, count) == MPI_SUCCESS;
}

/// A cell of this rank's goes into that one of the target's part of the window.
template <class Item>
MPIX_DEV_FN void put_cell(MPIX_Dev_ctx& c, const Bins<Item>& bins, int cell, int target, int target_cell, Tag tag) {
  put_bytes(c, bins.window, target, static_cast<std::size_t>(target_cell) * bins.stride(), bins.bytes(bins.count(cell)),
            bins.cell(cell), tag);
}
/// The cells at both ends go to the neighbours, into the cells before their first and behind their last. Nobody reads
/// these while a put may be under way. A rank puts particles that leave when it has its neighbours' halos, which they
/// sent after they had taken in the particles of the iteration before; and halos when it has the particles that leave
/// its neighbours, which they sent after they had used the halos before.
template <class Item>
MPIX_DEV_FN bool exchange(MPIX_Dev_ctx& c, const Bins<Item>& leftward, const Bins<Item>& rightward, const Stretch& mine,
                          Tag tag) {
  const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD);
  if (!mine.wall_left) put_cell(c, leftward, mine.first, me - 1, mine.last - mine.first + 2, tag);
  if (!mine.wall_right) put_cell(c, rightward, mine.last, me + 1, 0, tag);
  return wait_for(c, tag, (mine.wall_left ? 0 : 1) + (mine.wall_right ? 0 : 1));
}

/// What a rank does in `dev`.
struct Simulation {
  Fields fields;
  Law law;
  int cells, iterations;
  bool alone;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD), last = MPIX_Dev_size(&c, MPIX_DEV_WORLD) - 1;
    const Stretch mine(MPIX_Dev_rank(&c, MPIX_DEV_DEVICE), cells, me == 0, me == last, alone);
    Fields at = fields;
    for (int i = 0; i < iterations; ++i) {
      if (!alone && !exchange(c, at.now, at.now, mine, halo)) return;
      update(at, mine, law);
      if (!alone && !exchange(c, at.to_left, at.to_right, mine, movers)) return;
      take_in(at, mine);
      swap_now_and_next(at);
    }
  }
};

Options read_options(int argc, char** argv) {
  Options options;
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line("particles",
                              "Rows: dev, ranks inside a kernel; mpi, a loop of the host over MPI; st, one with stream "
                              "epochs;\ncaptured, these in graphs, on GPUs; alone, as dev, without an exchange.\n");
  line.number("cells", options.cells, 1, most, "of a rank, each a square of side 1")
      .number("particles", options.particles, 1, most, "of a cell, at the start")
      .number("room", options.room, 1, most, "of a cell, for so many times as many")
      .number("ranks", options.ranks, 0, most, "of a process; 0: as many as fit")
      .number("threads", options.threads, 1, most_threads, "of a rank, where ranks are blocks")
      .real("cutoff", options.cutoff, 1e-9, 1, "distance from which on particles do not push")
      .real("stiffness", options.stiffness, 0, 1, "acceleration for each distance, at distance 0")
      .real("speed", options.speed, 0, 0.5, "most at the start, sides an iteration")
      .number("seed", options.seed, 0, most, "of the particles at the start")
      .number("iterations", options.iterations, 1, most, "in a round")
      .number("rounds", options.rounds, 1, most, "of which the median is shown")
      .flag("check", options.check, "compare with a serial computation, bit by bit");
  line.read(argc, argv);
  if (options.room > most / options.particles || options.cells > most / std::max(options.ranks, 1) / processes)
    line.refuse("too many particles, or cells");
  return options;
}

int ranks_that_fit(const Options& options) {
  int here =
          support::max_ranks<Simulation, most_threads, ranks_each>(options.threads) / support::processes_of_the_gpu(),
      fit = 0;
  CHECK_MPI(MPI_Allreduce(&here, &fit, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  return fit;
}

class Benchmark {
 public:
  Benchmark(const Options& options, int ranks)
      : options_(options),
        ranks_(ranks),
        cells_(options.cells * ranks),
        room_(options.particles * options.room),
        law_(options.cutoff, options.stiffness),
        start_{options.particles, options.speed, static_cast<std::uint64_t>(options.seed)},
        domain_(MPI_COMM_WORLD, ranks),
        fields_(make_fields()),
        loop_(options.cells, ranks, options.threads, room_),
        stream_loop_(fields_, bytes_of_bins(), law_, options.cells, ranks, options.threads) {}

  void dev(int iterations) { launch(iterations, false); }
  void mpi(int iterations) { loop_.run(fields_, law_, iterations); }
  void st(int iterations) { stream_loop_.run(iterations); }
  void captured(int iterations) { stream_loop_.run_captured(iterations); }
  void alone(int iterations) { launch(iterations, true); }

  /// Of all processes.
  bool is_right(void (Benchmark::*variant)(int), const char* name) {
    (void)seconds(variant, options_.iterations);
    const std::vector<Cell> found = read_cells();
    const std::vector<Cell> expected = serial(start_, law_, cells_ * processes, options_.iterations);
    std::int64_t counts[2] = {0, 0}, all[2] = {0, 0};  // cells that are wrong, particles
    for (int cell = 0; cell < cells_; ++cell) {
      const Cell &here = found[static_cast<std::size_t>(cell)],
                 &there = expected[static_cast<std::size_t>(process * cells_ + cell)];
      counts[1] += static_cast<std::int64_t>(here.size());
      const bool same = here.size() == there.size() &&
                        (here.empty() || std::memcmp(here.data(), there.data(), here.size() * sizeof(Particle)) == 0);
      if (!same && counts[0]++ == 0)
        std::printf("%s: process %d: cell %d of %d is wrong, with %zu particles instead of %zu\n", name, process, cell,
                    cells_, here.size(), there.size());
    }
    CHECK_MPI(MPI_Allreduce(counts, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    const std::int64_t particles = std::int64_t{options_.particles} * cells_ * processes;
    if (process == 0)
      std::printf("%s: %lld cells are wrong after %d iterations; %lld particles of %lld\n", name,
                  static_cast<long long>(all[0]), options_.iterations, static_cast<long long>(all[1]),
                  static_cast<long long>(particles));
    return all[0] == 0 && all[1] == particles;
  }

  /// Of an iteration, in microseconds.
  double time(void (Benchmark::*variant)(int)) {
    const double empty = seconds(variant, 0);
    return (seconds(variant, options_.iterations) - empty) / options_.iterations * 1e6;
  }
  /// Particles that have come into other cells, in an iteration of the last run, in all processes.
  double moved() const { return static_cast<double>(total().moved) / options_.iterations; }

 private:
  template <class Item>
  Item* allocate(std::size_t count) {
    return reinterpret_cast<Item*>(domain_.allocate(count * sizeof(Item)));
  }
  /// Bins lie one behind the other, so that one window has them all.
  Fields make_fields() {
    Fields fields{};
    char* memory = domain_.allocate(bytes_of_bins());
    for (Bins<Vector>* bins : {&fields.now, &fields.next}) memory = make(*bins, memory);
    for (Bins<Particle>* bins : {&fields.to_left, &fields.to_right}) memory = make(*bins, memory);
    for (Vector** vectors : {&fields.velocities, &fields.accelerations})
      *vectors = allocate<Vector>(static_cast<std::size_t>(cells_ + 2) * static_cast<std::size_t>(room_));
    fields.kept = allocate<int>(static_cast<std::size_t>(cells_) + 2);
    fields.tallies = allocate<Tally>(static_cast<std::size_t>(ranks_));
    return fields;
  }
  /// Returns what is behind them.
  template <class Item>
  char* make(Bins<Item>& bins, char* memory) {
    bins.room = room_;
    bins.memory = memory;
    std::vector<void*> bases;
    for (int rank = 0; rank < ranks_; ++rank) bases.push_back(bins.cell(rank * options_.cells));
    const std::vector<std::size_t> sizes(bases.size(), static_cast<std::size_t>(options_.cells + 2) * bins.stride());
    CHECK_MPI(MPIX_Dev_win_create(domain_, bases.data(), sizes.data(), &bins.window));
    return bins.cell(cells_ + 2);
  }
  std::size_t bytes_of_bins() const {
    const Bins<Vector> positions{nullptr, room_, -1};
    const Bins<Particle> leaving{nullptr, room_, -1};
    return static_cast<std::size_t>(cells_ + 2) * 2 * (positions.stride() + leaving.stride());
  }

  void start() {
    Fields host = fields_;
    std::vector<char> positions(bytes_of_positions());
    std::vector<Vector> velocities(fields_.at(cells_ + 2, 0)), accelerations(velocities.size());
    host.now.memory = positions.data();
    for (int cell = 1; cell <= cells_; ++cell) {
      const Cell particles = start_of(start_, process * cells_ + cell - 1);
      host.now.count(cell) = static_cast<int>(particles.size());
      for (int i = 0; i < static_cast<int>(particles.size()); ++i) {
        const Particle& particle = particles[static_cast<std::size_t>(i)];
        host.now.items(cell)[i] = particle.position;
        velocities[host.at(cell, i)] = particle.velocity;
        accelerations[host.at(cell, i)] = particle.acceleration;
      }
    }
    const std::vector<Tally> tallies(static_cast<std::size_t>(ranks_));
    support::from_host(fields_.now.memory, positions.data(), positions.size());
    support::from_host(fields_.velocities, velocities.data(), velocities.size() * sizeof(Vector));
    support::from_host(fields_.accelerations, accelerations.data(), accelerations.size() * sizeof(Vector));
    support::from_host(fields_.tallies, tallies.data(), tallies.size() * sizeof(Tally));
    support::synchronize();  // not all streams wait for such copies
  }
  std::vector<Cell> read_cells() const {
    Fields host = fields_;
    std::vector<char> positions(bytes_of_positions());
    std::vector<Vector> velocities(fields_.at(cells_ + 2, 0)), accelerations(velocities.size());
    const Bins<Vector>& last = options_.iterations % 2 == 0 ? fields_.now : fields_.next;
    support::to_host(positions.data(), last.memory, positions.size());
    support::to_host(velocities.data(), fields_.velocities, velocities.size() * sizeof(Vector));
    support::to_host(accelerations.data(), fields_.accelerations, accelerations.size() * sizeof(Vector));
    host.now.memory = positions.data();
    std::vector<Cell> cells(static_cast<std::size_t>(cells_));
    for (int cell = 1; cell <= cells_; ++cell)
      for (int i = 0; i < host.now.count(cell); ++i)
        cells[static_cast<std::size_t>(cell - 1)].push_back(
            Particle{host.now.items(cell)[i], velocities[host.at(cell, i)], accelerations[host.at(cell, i)]});
    return cells;
  }
  std::size_t bytes_of_positions() const { return static_cast<std::size_t>(cells_ + 2) * fields_.now.stride(); }

  void launch(int iterations, bool alone) {
    const Simulation kernel{fields_, law_, options_.cells, iterations, alone};
    CHECK_MPI((support::launch<most_threads, ranks_each>(domain_, kernel, options_.threads)));
    support::synchronize();
    domain_.check();
  }
  double seconds(void (Benchmark::*variant)(int), int iterations) {
    start();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = std::chrono::steady_clock::now();
    (this->*variant)(iterations);
    double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    if (const std::uint64_t lost = total().lost; lost > 0) {
      if (process == 0)
        std::fprintf(stderr, "particles: %llu found no room in their cells: give them more --room\n",
                     static_cast<unsigned long long>(lost));
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return all;
  }
  /// Of all processes.
  Tally total() const {
    std::vector<Tally> tallies(static_cast<std::size_t>(ranks_));
    support::to_host(tallies.data(), fields_.tallies, tallies.size() * sizeof(Tally));
    std::uint64_t mine[2] = {0, 0}, all[2] = {0, 0};
    for (const Tally& tally : tallies) mine[0] += tally.moved, mine[1] += tally.lost;
    CHECK_MPI(MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    return Tally{all[0], all[1]};
  }

  const Options options_;
  const int ranks_, cells_, room_;  // ranks and cells of this process, room of a cell
  const Law law_;
  const Start start_;
  support::Domain domain_;
  const Fields fields_;
  HostLoop loop_;
  StreamLoop stream_loop_;
};

struct Variant {
  const char* name;
  void (Benchmark::*run)(int);
  bool is_right;  ///< computes what the serial computation does
  std::vector<double> times = {};
  double moved = 0;
};

void print(const Options& options, int ranks, std::vector<Variant>& variants) {
  std::printf("particles: %d processes of %d cells, %d of each rank; %d particles of a cell; ranks of %d threads\n",
              processes, options.cells * ranks, options.cells, options.particles,
              support::ranks_are_blocks ? options.threads : 1);
  std::printf("cut-off %g, stiffness %g, speed %g, seed %d\n", options.cutoff, options.stiffness, options.speed,
              options.seed);
  std::printf("%-8s %8s %10s %12s %10s %10s %8s %16s\n", "variant", "ranks", "iterations", "us/iteration", "least",
              "most", "to mpi", "moved/iteration");
  for (Variant& variant : variants) std::sort(variant.times.begin(), variant.times.end());
  const double mpi = variants[1].times[variants[1].times.size() / 2];
  for (const Variant& variant : variants) {
    const double median = variant.times[variant.times.size() / 2];
    std::printf("%-8s %8d %10d %12.2f %10.2f %10.2f %8.3f %16.2f\n", variant.name, ranks * processes,
                options.iterations, median, variant.times.front(), variant.times.back(), median / mpi, variant.moved);
  }
}

bool run(const Options& options) {
  const int ranks = options.ranks > 0 ? options.ranks : ranks_that_fit(options);
  Benchmark benchmark(options, ranks);
  std::vector<Variant> variants = {
      {"dev", &Benchmark::dev, true}, {"mpi", &Benchmark::mpi, true}, {"st", &Benchmark::st, true}};
  if (support::ranks_are_blocks) variants.push_back({"captured", &Benchmark::captured, true});
  variants.push_back({"alone", &Benchmark::alone, false});
  bool right = true;
  for (const Variant& variant : variants)
    if (options.check && variant.is_right) right = benchmark.is_right(variant.run, variant.name) && right;
  for (int round = 0; round <= options.rounds; ++round)
    for (Variant& variant : variants) {
      const double time = benchmark.time(variant.run);
      variant.moved = benchmark.moved();
      if (round > 0) variant.times.push_back(time);  // the first is for warming up
    }
  if (process == 0) print(options, ranks, variants);
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
