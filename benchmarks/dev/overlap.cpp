// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// How much of an exchange hides behind computation, as in the dCUDA paper (Gysi, Bär, Hoefler, SC16, Figs 7 and 8);
// ranks are threads or, compiled as CUDA or HIP, blocks.
//
//   mpiexec -n N overlap [options]     (--help shows them)
//
// An iteration of a rank is some units of work, and then a packet to both neighbours in a ring of all ranks, and the
// wait for theirs. Each part can be left out while the program runs, so that the same code is timed: Tc is the
// computation alone, Th the exchange alone, T both. Of the shorter one
//
//   eta = (Tc + Th - T) / min(Tc, Th)
//
// is hidden: 1 is all of it, 0 none. The work is bound by arithmetic (roots) or by memory (copy), see work.h. It grows
// until it takes several times as long as the exchange.
//
// The more ranks there are on a multiprocessor, the more of them can compute while others wait. With one rank on each
// there is nothing to hide behind.
//
// A figure is the median of several rounds, in which all are timed in turns; of each the time of a run without
// iterations is taken off. overlap.gnuplot draws what --csv writes.
#include <getopt.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/command_line.h"
#include "ring.h"
#include "support/domain.h"
#include "work.h"

namespace {

using work::Kind;

int process = 0, processes = 1;

/// What a GPU's multiprocessor takes at once, as in the paper.
constexpr int threads = 128, most_ranks_each = 8;
constexpr int most_units = 1 << 20;

struct Options {
  std::vector<int> each = {most_ranks_each, 1};  // ranks of a multiprocessor, one after the other
  std::vector<Kind> kinds = {Kind::roots, Kind::copy};
  int bytes = 1024;                                   // of a packet
  int memory = support::ranks_are_blocks ? 512 : 64;  // MB that are copied, of a process
  int units = most_units;                             // of an iteration, at most
  double times = 4;                                   // the exchange: until the computation takes as long
  int iterations = 1000, rounds = 11;
  std::string csv;
  bool check = false;
};

const char* name_of(Kind kind) { return kind == Kind::roots ? "roots" : "copy"; }

/// What a rank does.
struct Overlap {
  ring::Packets packets;
  work::Memory memory;  // of the first rank here
  Kind kind;
  int units, iterations;
  bool computes, exchanges;
  std::uint64_t* right;

  MPIX_FN work::Memory memory_of(int rank_here) const {
    const std::size_t words = static_cast<std::size_t>(memory.units) * work::width;
    const std::size_t rank = static_cast<std::size_t>(rank_here);
    return work::Memory{memory.sums + rank * work::width, memory.from + rank * words, memory.to + rank * words,
                        memory.units};
  }
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD);
    const work::Memory mine = memory_of(MPIX_Dev_rank(&c, MPIX_DEV_DEVICE));
    for (int i = 0; i < iterations; ++i) {
      if (computes) work::compute(kind, mine, me, i, units);
      if (exchanges && !ring::exchange(c, packets, i, right)) return;
    }
  }
};

Options read_options(int argc, char** argv) {
  Options options;
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line("overlap");
  line.value(
          "each", "N", "8, then 1", "a whole number from 1 to " + std::to_string(most_ranks_each),
          [&](const std::string& text) {
            options.each = {0};
            return benchmark::read_number(text, 1, most_ranks_each, options.each[0]);
          },
          "ranks of a multiprocessor; on hosts of a process")
      .value(
          "kind", "WHICH", "both", "roots or copy",
          [&](const std::string& text) {
            options.kinds.clear();
            for (const Kind kind : {Kind::roots, Kind::copy})
              if (text == name_of(kind)) options.kinds = {kind};
            return !options.kinds.empty();
          },
          "of the work")
      .number("bytes", options.bytes, 8, most, "of a packet, a multiple of 8")
      .number("memory", options.memory, 1, most, "MB that are copied, of a process")
      .real("times", options.times, 0, 1000, "work grows until it takes so many times the exchange")
      .number("units", options.units, 0, most_units, "of work, at most")
      .number("iterations", options.iterations, 1, most, "in a round")
      .number("rounds", options.rounds, 1, most, "of which the median is shown")
      .text("csv", "FILE", options.csv, "the figures, also for overlap.gnuplot")
      .flag("check", options.check, "before that, compare packets, roots and copies, bit by bit");
  line.read(argc, argv);
  if (options.bytes % 8 != 0) line.refuse("--bytes is no multiple of 8");
  return options;
}

/// Of several rounds, in microseconds an iteration.
class Times {
 public:
  void add(double time) { times_.insert(std::upper_bound(times_.begin(), times_.end(), time), time); }
  double median() const { return times_[times_.size() / 2]; }
  double least() const { return times_.front(); }
  double most() const { return times_.back(); }

 private:
  std::vector<double> times_;
};

struct Point {
  int units;
  Times compute, exchange, both;
  double eta() const {
    const double shorter = std::min(compute.median(), exchange.median());
    return (compute.median() + exchange.median() - both.median()) / shorter;
  }
  /// Without work there is nothing to hide behind, and the quotient is noise.
  bool has_eta() const { return units > 0; }
};

/// With so many ranks on each multiprocessor.
class Benchmark {
 public:
  Benchmark(const Options& options, int each)
      : options_(options), ranks_(ranks_for(each)), domain_(MPI_COMM_WORLD, ranks_) {
    const std::size_t ranks = static_cast<std::size_t>(ranks_), bytes = static_cast<std::size_t>(options.bytes);
    kernel_.packets.bytes = bytes;
    kernel_.packets.begin = domain_.allocate(ranks * ring::Packets::count * bytes);
    kernel_.packets.window = domain_.window_over(kernel_.packets.begin, ring::Packets::count * bytes);
    make_memory();
  }

  int ranks() const { return ranks_ * processes; }
  bool is_right(Kind kind);
  Point measure(Kind kind, int units);

 private:
  static int ranks_for(int each) {
    const int fit = support::ranks_are_blocks ? support::max_ranks<Overlap, threads, most_ranks_each>(threads)
                                              : support::multiprocessors() * each;
    return std::max(1, std::min(fit, support::multiprocessors() * each) / support::processes_of_the_gpu());
  }
  std::size_t words() const { return static_cast<std::size_t>(ranks_ * kernel_.memory.units) * work::width; }
  void make_memory() {
    const std::size_t unit = work::width * sizeof(std::uint64_t);
    const std::size_t units = static_cast<std::size_t>(options_.memory) * 1000000 / unit;
    kernel_.memory.units = std::max(work::units_at_once, static_cast<int>(units / static_cast<std::size_t>(ranks_)));
    std::vector<std::uint64_t> values(words());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = work::word_at(i);
    char* const from = domain_.allocate(words() * sizeof(std::uint64_t));
    support::from_host(from, values.data(), values.size() * sizeof(std::uint64_t));
    kernel_.memory.from = reinterpret_cast<const std::uint64_t*>(from);
    kernel_.memory.to = reinterpret_cast<std::uint64_t*>(domain_.allocate(words() * sizeof(std::uint64_t)));
    const std::size_t sums = static_cast<std::size_t>(ranks_) * work::width * sizeof(double);
    kernel_.memory.sums = reinterpret_cast<double*>(domain_.allocate(sums));
  }
  template <class T>
  std::vector<T> read(const T* memory, std::size_t count) const {
    std::vector<T> values(count);
    support::to_host(values.data(), memory, count * sizeof(T));
    return values;
  }
  int first_rank() const {
    int here = ranks_, behind = 0;
    CHECK_MPI(MPI_Scan(&here, &behind, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    return behind - here;
  }
  std::size_t wrong_roots(int units) const;
  std::size_t wrong_copies(int units) const;
  std::size_t wrong_words(const std::uint64_t* right) const;
  void launch(const Overlap& kernel) {
    CHECK_MPI((support::launch<threads, most_ranks_each>(domain_, kernel, threads)));
    support::synchronize();
    domain_.check();
  }
  double seconds(const Overlap& kernel) {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = std::chrono::steady_clock::now();
    launch(kernel);
    double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return all;
  }

  const Options options_;
  const int ranks_;
  support::Domain domain_;
  Overlap kernel_{};
};

Point Benchmark::measure(Kind kind, int units) {
  Point point{units, {}, {}, {}};
  Overlap empty = kernel_;
  empty.kind = kind;
  empty.units = units;
  Overlap all = empty;
  all.iterations = options_.iterations;
  for (int round = 0; round <= options_.rounds; ++round) {
    const double start = seconds(empty);
    const auto time = [&](bool computes, bool exchanges) {
      all.computes = computes, all.exchanges = exchanges;
      return (seconds(all) - start) / options_.iterations * 1e6;
    };
    const double compute = time(true, false), exchange = time(false, true), both = time(true, true);
    if (round == 0) continue;  // for warming up
    point.compute.add(compute);
    point.exchange.add(exchange);
    point.both.add(both);
  }
  return point;
}

std::size_t Benchmark::wrong_roots(int units) const {
  const std::vector<double> found = read(kernel_.memory.sums, static_cast<std::size_t>(ranks_) * work::width);
  const int first = first_rank();
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < found.size(); ++at) {
    const int rank = first + static_cast<int>(at) / work::width, i = static_cast<int>(at) % work::width;
    double sum = 0;
    for (int iteration = 0; iteration < options_.iterations; ++iteration)
      sum += work::root_after(work::square_of(rank, i, iteration), units);
    wrong += std::memcmp(&found[at], &sum, sizeof sum) != 0;
  }
  return wrong;
}

/// What nobody has come to has to be as it was.
std::size_t Benchmark::wrong_copies(int units) const {
  const std::vector<std::uint64_t> found = read(kernel_.memory.to, words());
  const std::int64_t copied = std::int64_t{units} * options_.iterations;
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < found.size(); ++at) {
    const auto unit = static_cast<std::int64_t>(at / work::width % static_cast<std::size_t>(kernel_.memory.units));
    wrong += found[at] != (unit < copied ? work::word_at(at) : 0);
  }
  return wrong;
}

std::size_t Benchmark::wrong_words(const std::uint64_t* right) const {
  const std::size_t each = 2 * kernel_.packets.word_count() * static_cast<std::size_t>(options_.iterations);
  std::size_t missing = each * static_cast<std::size_t>(ranks_);
  for (const std::uint64_t count : read(right, static_cast<std::size_t>(ranks_) * threads)) missing -= count;
  return missing;
}

/// Of all processes. Before the first measurement.
bool Benchmark::is_right(Kind kind) {
  Overlap checked = kernel_;
  checked.kind = kind;
  checked.units = 7;  // neither a multiple of those at once, nor so many that roots no longer change
  checked.iterations = options_.iterations;
  checked.computes = checked.exchanges = true;
  const std::size_t counts = static_cast<std::size_t>(ranks_) * threads * sizeof(std::uint64_t);
  checked.right = reinterpret_cast<std::uint64_t*>(domain_.allocate(counts));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  launch(checked);
  unsigned long long wrong[] = {wrong_words(checked.right),
                                kind == Kind::roots ? wrong_roots(checked.units) : wrong_copies(checked.units)};
  CHECK_MPI(MPIX_Dev_dealloc(domain_, checked.right));
  CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, wrong, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
  if (process == 0)
    std::printf("%s, %d ranks: %llu words of packets and %llu results are wrong after %d iterations\n", name_of(kind),
                ranks(), wrong[0], wrong[1], options_.iterations);
  return wrong[0] == 0 && wrong[1] == 0;
}

/// Where work and exchange cross, a few points each doubling.
int more(int units) { return std::max(units + 1, units + units / 2); }

struct Close {
  void operator()(std::FILE* file) const {
    if (std::fclose(file) != 0) std::perror("--csv"), MPI_Abort(MPI_COMM_WORLD, 1);
  }
};

/// By the first process: a table, and a file if one is asked for.
class Report {
 public:
  explicit Report(const Options& options) {
    if (process != 0 || options.csv.empty()) return;
    csv_.reset(std::fopen(options.csv.c_str(), "w"));
    if (!csv_) std::perror(options.csv.c_str()), MPI_Abort(MPI_COMM_WORLD, 1);
    std::fprintf(csv_.get(),
                 "kind,each,ranks,units,compute,compute_least,compute_most,exchange,exchange_least,exchange_most,both,"
                 "both_least,both_most,eta\n");
  }
  void begin(Kind kind, int each, int ranks) {
    kind_ = kind, each_ = each, ranks_ = ranks;
    hidden_.clear();
    if (process == 0)
      std::printf("%s, %d ranks, %d of a %s [us/iteration]\n%8s %10s %10s %10s %10s %10s %8s\n", name_of(kind), ranks,
                  each, support::ranks_are_blocks ? "multiprocessor" : "process", "units", "compute", "exchange",
                  "both", "longer", "sum", "eta");
  }
  void add(const Point& point) {
    if (process != 0) return;
    print(point);
    if (csv_) write(point);
    if (point.has_eta() && point.compute.median() >= point.exchange.median()) hidden_.push_back(point.eta());
  }
  void end() {
    std::sort(hidden_.begin(), hidden_.end());
    if (process == 0 && !hidden_.empty())
      std::printf("eta where the computation is the longer: least %.3f, median %.3f\n\n", hidden_.front(),
                  hidden_[hidden_.size() / 2]);
  }

 private:
  static void print(const Point& point) {
    const double compute = point.compute.median(), exchange = point.exchange.median();
    std::printf("%8d %10.2f %10.2f %10.2f %10.2f %10.2f", point.units, compute, exchange, point.both.median(),
                std::max(compute, exchange), compute + exchange);
    if (point.has_eta())
      std::printf(" %8.3f\n", point.eta());
    else
      std::printf(" %8s\n", "-");
    std::fflush(stdout);
  }
  void write(const Point& point) const {
    std::fprintf(csv_.get(), "%s,%d,%d,%d,", name_of(kind_), each_, ranks_, point.units);
    for (const Times* times : {&point.compute, &point.exchange, &point.both})
      std::fprintf(csv_.get(), "%.4f,%.4f,%.4f,", times->median(), times->least(), times->most());
    if (point.has_eta()) std::fprintf(csv_.get(), "%.4f", point.eta());
    std::fputc('\n', csv_.get());
  }

  Kind kind_ = Kind::roots;
  int each_ = 0, ranks_ = 0;
  std::vector<double> hidden_;
  std::unique_ptr<std::FILE, Close> csv_;
};

void sweep(const Options& options, Benchmark& benchmark, Kind kind, Report& report) {
  for (int units = 0; units <= options.units; units = more(units)) {
    const Point point = benchmark.measure(kind, units);
    report.add(point);
    if (point.compute.median() >= options.times * point.exchange.median()) break;
  }
}

bool run(const Options& options) {
  Report report(options);
  bool right = true;
  if (process == 0)
    std::printf("overlap of work and exchange: packets of %d bytes, %d processes, ranks of %d threads; medians of %d\n",
                options.bytes, processes, support::ranks_are_blocks ? threads : 1, options.rounds);
  for (const int each : options.each) {
    Benchmark benchmark(options, each);
    for (const Kind kind : options.kinds) {
      if (options.check) right = benchmark.is_right(kind) && right;
      report.begin(kind, each, benchmark.ranks());
      sweep(options, benchmark, kind, report);
      report.end();
    }
  }
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
