// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What one stream epoch costs: its time, and the CPU time of each call that enqueues it.
#include <mpi.h>
#include <mpix.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

struct Options {
  int epochs = 2000;
  int neighbours = 26;
  int bytes = 8;
  int puts = 1;
  int repeats = 5;
  bool fused = false;
  bool staged = false;
  bool ordinary = true;
  bool csv = false;
};

[[noreturn]] void usage(int status) {
  const Options preset;
  std::fprintf(status ? stderr : stdout,
               "usage: mpiexec -n RANKS epoch [options]\n"
               "Each rank exchanges with the ranks next to it, all in one epoch.\n"
               "  -n N   epochs enqueued before one synchronization   %d\n"
               "  -k N   neighbours, as many ahead as behind          %d, at most all others\n"
               "  -b N   bytes of a put                               %d\n"
               "  -p N   puts to each neighbour                       %d\n"
               "  -r N   repetitions, of which the median is shown    %d\n"
               "  -f     MPIX_Win_complete_wait_stream in place of complete and wait\n"
               "  -m     window over malloc memory (staged) in place of mpix:device\n"
               "  -o     leave out the ordinary MPI epochs (post, start, put, complete, wait)\n"
               "  -c     comma-separated values\n",
               preset.epochs, preset.neighbours, preset.bytes, preset.puts, preset.repeats);
  MPI_Finalize();
  std::exit(status);
}

int number(const char* text, int least) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < least || value > 1 << 30) usage(2);
  return static_cast<int>(value);
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int option; (option = getopt(argc, argv, "n:k:b:p:r:fmoch")) != -1;) switch (option) {
      case 'n': options.epochs = number(optarg, 1); break;
      case 'k': options.neighbours = number(optarg, 0); break;
      case 'b': options.bytes = number(optarg, 0); break;
      case 'p': options.puts = number(optarg, 0); break;
      case 'r': options.repeats = number(optarg, 1); break;
      case 'f': options.fused = true; break;
      case 'm': options.staged = true; break;
      case 'o': options.ordinary = false; break;
      case 'c': options.csv = true; break;
      case 'h': usage(0);
      default: usage(2);
    }
  if (optind != argc) usage(2);
  return options;
}

double wall() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// CPU time of this thread, in µs: what other processes on the core do not disturb.
double cpu() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

double median(std::vector<double>& samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    options_.neighbours = std::min(options_.neighbours, size_ - 1);
    // The nearest on both sides: each rank is then the neighbour of its neighbours.
    if (options_.neighbours < size_ - 1) options_.neighbours -= options_.neighbours % 2;
    for (int step = 1; static_cast<int>(neighbours_.size()) < options_.neighbours; ++step) {
      const int up = (rank_ + step) % size_, down = (rank_ - step + size_) % size_;
      neighbours_.push_back(up);
      if (up != down) neighbours_.push_back(down);
    }
    block_ = static_cast<MPI_Aint>(options_.bytes) * options_.puts;
    source_.assign(static_cast<std::size_t>(block_) + 1, static_cast<char>(rank_ + 1));
    make_window();
    MPIX_Host_stream_create(&stream_);
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(neighbours_.size()), neighbours_.data(), &group_);
    MPI_Group_free(&world);
  }

  ~Bench() {
    MPI_Group_free(&group_);
    MPIX_Host_stream_destroy(&stream_);
    MPI_Win_free(&window_);
  }

  void run() {
    print_setting();
    std::vector<double> stream_times, enqueue, ordinary;
    std::vector<double> calls[5];
    for (int repeat = -1; repeat < options_.repeats; ++repeat) {
      const double time = stream_epochs(repeat < 0 ? nullptr : &enqueue);
      if (repeat >= 0) stream_times.push_back(time);
    }
    timed_calls(calls);
    check();
    const int ordinary_epochs = std::min(options_.epochs, 200);
    for (int repeat = 0; options_.ordinary && repeat < options_.repeats; ++repeat)
      ordinary.push_back(ordinary_epochs_time(ordinary_epochs));
    report(stream_times, enqueue, ordinary, calls);
  }

 private:
  void make_window() {
    const MPI_Aint bytes = block_ * size_;
    MPI_Info info;
    MPI_Info_create(&info);
    if (!options_.staged) MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device");
    if (options_.staged) {
      memory_.assign(static_cast<std::size_t>(bytes) + 1, 0);
      base_ = memory_.data();
      MPI_Win_create(base_, bytes, 1, info, MPI_COMM_WORLD, &window_);
    } else {
      MPI_Win_allocate(bytes, 1, info, MPI_COMM_WORLD, &base_, &window_);
    }
    MPI_Info_free(&info);
  }

  void put_all() {
    for (int neighbour : neighbours_)
      for (int put = 0; put < options_.puts; ++put)
        MPI_Put(source_.data() + put * options_.bytes, options_.bytes, MPI_CHAR, neighbour,
                block_ * rank_ + put * options_.bytes, options_.bytes, MPI_CHAR, window_);
  }

  void close_epochs() {
    if (options_.fused) {
      MPIX_Win_complete_wait_stream(window_, stream_);
    } else {
      MPIX_Win_complete_stream(window_, stream_);
      MPIX_Win_wait_stream(window_, stream_);
    }
  }

  /// µs an epoch; CPU µs of enqueueing each, where wanted.
  double stream_epochs(std::vector<double>* enqueue) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = wall();
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
      const double before = cpu();
      MPIX_Win_post_stream(group_, window_, stream_);
      MPI_Win_start(group_, MPIX_MODE_STREAM, window_);
      put_all();
      close_epochs();
      if (enqueue) enqueue->push_back(cpu() - before);
    }
    MPIX_Host_stream_synchronize(stream_);
    return (wall() - begin) / options_.epochs;
  }

  void timed_calls(std::vector<double> calls[5]) {
    MPI_Barrier(MPI_COMM_WORLD);
    const int puts = std::max(1, static_cast<int>(neighbours_.size()) * options_.puts);
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
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
      const double times[5] = {t1 - t0, t2 - t1, (t3 - t2) / puts, t4 - t3, t5 - t4};
      for (int call = 0; call < 5; ++call) calls[call].push_back(times[call]);
    }
    MPIX_Host_stream_synchronize(stream_);
  }

  double ordinary_epochs_time(int epochs) {
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

  void check() {
    for (int neighbour : neighbours_)
      for (MPI_Aint at = 0; at < block_; ++at)
        if (base_[block_ * neighbour + at] != static_cast<char>(neighbour + 1)) {
          std::fprintf(stderr, "epoch: rank %d: wrong data from rank %d\n", rank_, neighbour);
          MPI_Abort(MPI_COMM_WORLD, 1);
        }
  }

  void print_setting() const {
    if (rank_ != 0 || options_.csv) return;
    std::printf("epoch: %d ranks, %d neighbours, %d puts of %d bytes to each, %d epochs, median of %d; %s window, %s\n",
                size_, options_.neighbours, options_.puts, options_.bytes, options_.epochs, options_.repeats,
                options_.staged ? "malloc" : "mpix:device", options_.fused ? "complete_wait" : "complete, wait");
  }

  void report(std::vector<double>& times, std::vector<double>& enqueue, std::vector<double>& ordinary,
              std::vector<double> calls[5]) const {
    // The two readings of the clock around an epoch are not its cost.
    std::vector<double> empty;
    for (int i = 0; i < 1000; ++i) {
      const double before = cpu();
      empty.push_back(cpu() - before);
    }
    const double own[8] = {median(times),    median(enqueue) - median(empty), median(ordinary), median(calls[0]),
                           median(calls[1]), median(calls[2]),                median(calls[3]), median(calls[4])};
    double most[8];
    MPI_Reduce(own, most, 8, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank_ != 0) return;
    if (options_.csv) {
      std::printf("ranks,neighbours,puts,bytes,epoch_us,enqueue_cpu_us,ordinary_us,post_us,start_us,put_us,%s\n",
                  options_.fused ? "complete_wait_us,-" : "complete_us,wait_us");
      std::printf("%d,%d,%d,%d", size_, options_.neighbours, options_.puts, options_.bytes);
      for (double value : most) std::printf(",%.3f", value);
      std::printf("\n");
      return;
    }
    std::printf("\n%-44s %10s\n", "medians, of the slowest rank", "us");
    const char* const rows[8] = {"stream epoch, time",
                                 "stream epoch, CPU to enqueue all its calls",
                                 "ordinary epoch, time",
                                 "  MPIX_Win_post_stream",
                                 "  MPI_Win_start, MPIX_MODE_STREAM",
                                 "  MPI_Put, each",
                                 options_.fused ? "  MPIX_Win_complete_wait_stream" : "  MPIX_Win_complete_stream",
                                 "  MPIX_Win_wait_stream"};
    for (int row = 0; row < 8; ++row) {
      if ((row == 2 && !options_.ordinary) || (row == 7 && options_.fused)) continue;
      std::printf("%-44s %10.3f\n", rows[row], most[row]);
    }
  }

  Options options_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> neighbours_;
  MPI_Aint block_ = 0;
  std::vector<char> source_;
  std::vector<char> memory_;
  char* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_ = MPI_GROUP_NULL;
  MPIX_Host_stream stream_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    Bench bench(read_options(argc, argv));
    bench.run();
  }
  MPI_Finalize();
  return 0;
}
