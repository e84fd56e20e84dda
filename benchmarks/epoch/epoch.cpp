// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What one stream epoch costs: its time, and the CPU time of each call that enqueues it. Errors of MPI abort the job,
// as its default error handlers say.
#include <mpi.h>
#include <mpix.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "neighbours.h"
#include "options.h"
#include "samples.h"

namespace epoch {
namespace {

/// So few that no queue of a device is full: then calls would wait for the device, and show its time.
constexpr int epochs_in_burst = 50;

enum Call { post, start, put, complete, wait, calls };

/// µs, medians of this rank; rows of the table.
struct Costs {
  double epoch, enqueue, call[calls], captured_epoch, captured_launch, ordinary;
};
constexpr int cost_count = sizeof(Costs) / sizeof(double);

/// A window, and the ranks that this one exchanges with.
class Bench {
 public:
  Bench(const Options& options, bench::Device& device, int neighbours)
      : options_(options), device_(device), stream_(device.stream()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    neighbours_ = neighbours_of(rank_, size_, neighbours);
    block_ = static_cast<MPI_Aint>(options_.bytes) * options_.puts;
    source_ = static_cast<char*>(device_.allocate(static_cast<std::size_t>(block_) + 1));
    const std::vector<char> payload(static_cast<std::size_t>(block_), static_cast<char>(rank_ + 1));
    device_.copy(source_, payload.data(), payload.size());
    device_.synchronize();
    make_window();
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(neighbours_.size()), neighbours_.data(), &group_);
    MPI_Group_free(&world);
  }

  ~Bench() {
    MPI_Group_free(&group_);
    MPI_Win_free(&window_);
    device_.release(source_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Costs run() {
    Costs costs{};
    Samples times, enqueue, captured_times, captured_launches, ordinary;
    clear();
    for (int repeat = -1; repeat < options_.repeats; ++repeat) {  // the first warms up
      const double time = stream_epochs();
      if (repeat >= 0) times.add(time);
    }
    check();
    costs.epoch = times.median();
    timed_calls(costs.call, enqueue);
    costs.enqueue = enqueue.median() - cost_of_cpu_clock();
    if (device_.is_gpu()) {
      clear();
      captured_epochs(captured_times, captured_launches);
      check();
      costs.captured_epoch = captured_times.median();
      costs.captured_launch = captured_launches.median();
    }
    for (int repeat = 0; has_ordinary(options_, device_) && repeat < options_.repeats; ++repeat)
      ordinary.add(ordinary_epochs());
    costs.ordinary = ordinary.median();
    return costs;
  }

 private:
  void make_window() {
    const MPI_Aint bytes = block_ * size_;
    MPI_Info info;
    MPI_Info_create(&info);
    if (options_.lazy) MPI_Info_set(info, "mpix_lazy_post", "true");
    if (options_.staged) {
      memory_.assign(static_cast<std::size_t>(bytes) + 1, 0);
      base_ = memory_.data();
      MPI_Win_create(base_, bytes, 1, info, MPI_COMM_WORLD, &window_);
    } else {
      MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device");
      MPI_Win_allocate(bytes, 1, info, MPI_COMM_WORLD, &base_, &window_);
    }
    MPI_Info_free(&info);
  }

  void put_all() {
    for (int neighbour : neighbours_)
      for (int k = 0; k < options_.puts; ++k)
        MPI_Put(source_ + k * options_.bytes, options_.bytes, MPI_CHAR, neighbour, block_ * rank_ + k * options_.bytes,
                options_.bytes, MPI_CHAR, window_);
  }

  void enqueue_epoch() {
    MPIX_Win_post_stream(group_, window_, stream_);
    MPI_Win_start(group_, MPIX_MODE_STREAM, window_);
    put_all();
    if (options_.fused) {
      MPIX_Win_complete_wait_stream(window_, stream_);
    } else {
      MPIX_Win_complete_stream(window_, stream_);
      MPIX_Win_wait_stream(window_, stream_);
    }
  }

  double stream_epochs() {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = wall();
    for (int epoch = 0; epoch < options_.epochs; ++epoch) enqueue_epoch();
    device_.synchronize();
    return (wall() - begin) / options_.epochs;
  }

  void timed_calls(double (&cost)[calls], Samples& enqueue) {
    Samples samples[calls];
    const int puts = std::max(1, static_cast<int>(neighbours_.size()) * options_.puts);
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
      if (epoch % epochs_in_burst == 0) synchronize_all();
      const double t0 = wall();
      MPIX_Win_post_stream(group_, window_, stream_);
      const double t1 = wall();
      MPI_Win_start(group_, MPIX_MODE_STREAM, window_);
      const double t2 = wall();
      put_all();
      const double t3 = wall();
      if (options_.fused)
        MPIX_Win_complete_wait_stream(window_, stream_);
      else
        MPIX_Win_complete_stream(window_, stream_);
      const double t4 = wall();
      if (!options_.fused) MPIX_Win_wait_stream(window_, stream_);
      const double t5 = wall();
      const double times[calls] = {t1 - t0, t2 - t1, (t3 - t2) / puts, t4 - t3, t5 - t4};
      for (int call = 0; call < calls; ++call) samples[call].add(times[call]);
    }
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
      if (epoch % epochs_in_burst == 0) synchronize_all();
      const double before = thread_cpu();
      enqueue_epoch();
      enqueue.add(thread_cpu() - before);
    }
    device_.synchronize();
    for (int call = 0; call < calls; ++call) cost[call] = samples[call].median();
  }

  /// A graph of some epochs, launched again and again. µs an epoch.
  void captured_epochs(Samples& times, Samples& launches) {
    const auto graph = device_.capture([&] {
      for (int epoch = 0; epoch < epochs_in_burst; ++epoch) enqueue_epoch();
    });
    const int replays = std::max(1, options_.epochs / epochs_in_burst);
    for (int repeat = -1; repeat < options_.repeats; ++repeat) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = wall();
      for (int replay = 0; replay < replays; ++replay) {
        const double before = thread_cpu();
        graph->launch();
        if (repeat >= 0) launches.add((thread_cpu() - before) / epochs_in_burst);
      }
      device_.synchronize();
      if (repeat >= 0) times.add((wall() - begin) / (replays * epochs_in_burst));
    }
  }

  double ordinary_epochs() {
    const int epochs = std::min(options_.epochs, 200);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = wall();
    for (int epoch = 0; epoch < epochs; ++epoch) {
      MPI_Win_post(group_, 0, window_);
      MPI_Win_start(group_, 0, window_);
      put_all();
      MPI_Win_complete(window_);
      MPI_Win_wait(window_);
    }
    return (wall() - begin) / epochs;
  }

  void synchronize_all() {
    device_.synchronize();
    MPI_Barrier(MPI_COMM_WORLD);
  }

  /// While no epoch is open anywhere.
  void clear() {
    synchronize_all();
    const std::vector<char> zeros(static_cast<std::size_t>(block_ * size_), 0);
    device_.copy(base_, zeros.data(), zeros.size());
    synchronize_all();
  }

  void check() {
    std::vector<char> arrived(static_cast<std::size_t>(block_ * size_));
    device_.copy(arrived.data(), base_, arrived.size());
    device_.synchronize();
    for (int neighbour : neighbours_)
      for (MPI_Aint at = 0; at < block_; ++at)
        if (arrived[static_cast<std::size_t>(block_ * neighbour + at)] != static_cast<char>(neighbour + 1)) {
          std::fprintf(stderr, "epoch: rank %d: wrong data from rank %d\n", rank_, neighbour);
          MPI_Abort(MPI_COMM_WORLD, 1);
        }
  }

  const Options& options_;
  bench::Device& device_;
  void* const stream_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> neighbours_;
  MPI_Aint block_ = 0;
  char* source_ = nullptr;
  std::vector<char> memory_;
  char* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_ = MPI_GROUP_NULL;
};

/// The slowest rank's.
Costs over_ranks(const Costs& mine) {
  Costs most{};
  MPI_Allreduce(&mine, &most, cost_count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

struct Row {
  const char* name;
  double (*value)(const Costs&);
  bool (*wanted)(const Options&, const bench::Device&);
};

bool always(const Options&, const bench::Device&) { return true; }
bool two_calls(const Options& options, const bench::Device&) { return !options.fused; }
bool one_call(const Options& options, const bench::Device&) { return options.fused; }
bool on_gpu(const Options&, const bench::Device& device) { return device.is_gpu(); }

const Row rows[] = {
    {"stream epoch: time", [](const Costs& c) { return c.epoch; }, always},
    {"stream epoch: CPU to enqueue all its calls", [](const Costs& c) { return c.enqueue; }, always},
    {"  MPIX_Win_post_stream", [](const Costs& c) { return c.call[post]; }, always},
    {"  MPI_Win_start with MPIX_MODE_STREAM", [](const Costs& c) { return c.call[start]; }, always},
    {"  MPI_Put; each", [](const Costs& c) { return c.call[put]; }, always},
    {"  MPIX_Win_complete_stream", [](const Costs& c) { return c.call[complete]; }, two_calls},
    {"  MPIX_Win_wait_stream", [](const Costs& c) { return c.call[wait]; }, two_calls},
    {"  MPIX_Win_complete_wait_stream", [](const Costs& c) { return c.call[complete]; }, one_call},
    {"captured epoch: time", [](const Costs& c) { return c.captured_epoch; }, on_gpu},
    {"captured epoch: CPU to launch it", [](const Costs& c) { return c.captured_launch; }, on_gpu},
    {"ordinary epoch: time", [](const Costs& c) { return c.ordinary; }, has_ordinary},
};

void print_setting(const Options& options, const bench::Device& device, int ranks) {
  std::printf(
      "%sepoch: %d ranks, %s; %d puts of %d bytes to each neighbour, %d epochs, median of %d; %s window%s, %s; "
      "%d epochs in a graph\n",
      options.csv ? "# " : "", ranks, device.describe().c_str(), options.puts, options.bytes, options.epochs,
      options.repeats, options.staged ? "malloc" : "mpix:device", options.lazy ? " with mpix_lazy_post" : "",
      options.fused ? "complete_wait" : "complete, wait", epochs_in_burst);
  std::fflush(stdout);
}

void print_table(const Options& options, const bench::Device& device, const std::vector<int>& neighbours,
                 const std::vector<Costs>& costs) {
  std::printf(options.csv ? "us" : "\n%-46s", "us, medians, of the slowest rank; neighbours:");
  for (int n : neighbours) std::printf(options.csv ? ",%d neighbours" : " %9d", n);
  for (const Row& row : rows) {
    if (!row.wanted(options, device)) continue;
    std::printf(options.csv ? "\n%s" : "\n%-46s",
                row.name + (options.csv ? std::string(row.name).find_first_not_of(' ') : 0));
    for (const Costs& c : costs) std::printf(options.csv ? ",%.3f" : " %9.3f", row.value(c));
  }
  std::printf("\n");
}

int run(int argc, char** argv) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Options options = read_options(argc, argv, rank);
  const auto device = bench::make_device(options.device);
  if (options.staged && device->is_gpu())
    throw std::runtime_error("-m: a GPU's streams have no windows over malloc memory");
  if (rank == 0) print_setting(options, *device, ranks);
  const std::vector<int> neighbours = possible_counts(options.neighbours, ranks);
  std::vector<Costs> costs;
  for (int count : neighbours) costs.push_back(over_ranks(Bench(options, *device, count).run()));
  if (rank == 0) print_table(options, *device, neighbours, costs);
  return 0;
}

}  // namespace
}  // namespace epoch

int main(int argc, char** argv) {
  bench::tell_libmpix(epoch::device_option(argc, argv));
  MPI_Init(&argc, &argv);
  try {
    epoch::run(argc, argv);
  } catch (const epoch::Usage& usage) {
    MPI_Finalize();
    return usage.status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "epoch: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
