// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// mpix-tune: which way collectives on streams are fastest on this machine, as a table for MPIX_COLL_TABLE. Each way is
// tried on a communicator of its own, which MPIX_Comm_prepare_stream is told to use it, and which is there alone:
// several would share what a GPU has of room for their blocks. Errors of MPI abort the job.
#include <getopt.h>
#include <mpi.h>
#include <mpix.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/device/device.h"
#include "config.h"
#include "support/abort.h"

namespace {

constexpr int calls_in_graph = 20;
/// What is so near to the best is as good: measured again it may be the best.
constexpr double as_good = 1.03;
/// Lines carry twice the bytes, and to all ranks: where they take so much longer they will not be the best of a larger
/// size.
constexpr double hopeless = 1.6;
constexpr double off = 1.05, far_off = 1.25;

struct Options {
  std::string out;
  std::vector<std::string> only;
  std::size_t from = 64, to = 0;
  int rounds = 12;
  double limit_ms = 4;
  bool check = false;
};

enum Kind { bcast, reduce, allreduce, reduce_scatter_block, allgather, alltoall, kinds };
const char* const names[kinds] = {"bcast", "reduce", "allreduce", "reduce_scatter_block", "allgather", "alltoall"};

int rank = 0, ranks = 1;

bool sends_blocks(Kind kind) { return kind == reduce_scatter_block || kind == alltoall; }
bool receives_blocks(Kind kind) { return kind == allgather || kind == alltoall; }

/// Element i of block `block` of what a rank gives. Sums of them are exact.
double given(int by, int block, std::size_t i) { return by + 1 + 3.0 * block + static_cast<double>(i % 17); }

double expected(Kind kind, int block, std::size_t i) {
  double sum = 0;
  switch (kind) {
    case bcast:
      return given(0, 0, i);
    case allgather:
      return given(block, 0, i);
    case alltoall:
      return given(block, rank, i);
    case reduce_scatter_block:
      for (int by = 0; by < ranks; ++by) sum += given(by, rank, i);
      return sum;
    default:
      for (int by = 0; by < ranks; ++by) sum += given(by, 0, i);
      return sum;
  }
}

/// A way, and how many blocks of a GPU; 0: as many as by size. No way: as calls go without being told.
struct Way {
  std::string name;
  int blocks = 0;
  bool operator==(const Way& other) const { return name == other.name && blocks == other.blocks; }
};

/// Calls by one way.
class Calls {
 public:
  explicit Calls(const Way& way) {
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    if (!way.name.empty()) CHECK_MPI(MPI_Info_set(info, "mpix_coll", way.name.c_str()));
    if (way.blocks > 0) CHECK_MPI(MPI_Info_set(info, "mpix_coll_blocks", std::to_string(way.blocks).c_str()));
    CHECK_MPI(MPIX_Comm_prepare_stream(comm_, info));
    CHECK_MPI(MPI_Info_free(&info));
  }
  ~Calls() { MPI_Comm_free(&comm_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  MPIX_Comm_stats stats() const {
    MPIX_Comm_stats stats{};
    CHECK_MPI(MPIX_Comm_get_stats(comm_, &stats, sizeof stats));
    return stats;
  }

  void meet(void* stream) const { CHECK_MPI(MPIX_Barrier_stream(comm_, stream)); }

  void make(Kind kind, const double* send, double* recv, std::size_t bytes, void* stream) const {
    const int count = static_cast<int>(bytes / sizeof(double));
    switch (kind) {
      case bcast:
        // Of the root the buffer is what it sends.
        CHECK_MPI(MPIX_Bcast_stream(rank == 0 ? const_cast<double*>(send) : recv, count, MPI_DOUBLE, 0, comm_, stream));
        break;
      case reduce:
        CHECK_MPI(MPIX_Reduce_stream(send, recv, count, MPI_DOUBLE, MPI_SUM, 0, comm_, stream));
        break;
      case allreduce:
        CHECK_MPI(MPIX_Allreduce_stream(send, recv, count, MPI_DOUBLE, MPI_SUM, comm_, stream));
        break;
      case reduce_scatter_block:
        CHECK_MPI(MPIX_Reduce_scatter_block_stream(send, recv, count, MPI_DOUBLE, MPI_SUM, comm_, stream));
        break;
      case allgather:
        CHECK_MPI(MPIX_Allgather_stream(send, count, MPI_DOUBLE, recv, count, MPI_DOUBLE, comm_, stream));
        break;
      case alltoall:
        CHECK_MPI(MPIX_Alltoall_stream(send, count, MPI_DOUBLE, recv, count, MPI_DOUBLE, comm_, stream));
        break;
      case kinds:
        break;
    }
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// The same on all ranks, and on a GPU whether it has the blocks that it shall have.
bool is_known(const Way& way, bench::Device& device) {
  const Calls calls(way);
  if (device.is_gpu() && calls.stats().blocks < static_cast<unsigned long long>(way.blocks)) return false;
  if (way.name != "packs") return true;
  // Only some links carry packs: elsewhere such calls go another way.
  bench::DeviceArray<double> words(device, 8);
  calls.make(bcast, words.data(), words.data(), 8 * sizeof(double), device.stream());
  device.synchronize();
  return calls.stats().calls_packs > 0;
}

/// Times of all ways for one call, in turns, so that what changes with time changes all.
class Measurement {
 public:
  Measurement(bench::Device& device, const Options& options)
      : device_(device),
        options_(options),
        words_(options.to / sizeof(double)),
        send_(device, static_cast<long>(words_)),
        recv_(device, static_cast<long>(words_)) {}

  /// µs a call, of the slowest rank: the lower quartile, as what else runs on the machine only adds to it.
  std::vector<double> of(Kind kind, std::size_t bytes, const std::vector<Way>& ways) {
    const std::size_t words = bytes / sizeof(double);
    std::vector<double> values(words * static_cast<std::size_t>(sends_blocks(kind) ? ranks : 1));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = given(rank, static_cast<int>(i / words), i % words);
    device_.copy(send_.data(), values.data(), values.size() * sizeof(double));
    device_.synchronize();
    constexpr int turns = 3;  // a communicator takes some ms to make
    const int rounds = (options_.rounds + turns - 1) / turns;
    std::vector<std::vector<double>> times(ways.size());
    for (int turn = 0; turn < turns; ++turn)
      for (std::size_t i = 0; i < ways.size(); ++i) {
        const Calls calls(ways[i]);
        if (turn == 0) compare(kind, words, calls, ways[i]);
        measure(kind, bytes, calls, rounds, times[i]);
      }
    std::vector<double> quartiles;
    for (std::vector<double>& all : times) {
      const int count = static_cast<int>(all.size());
      CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, all.data(), count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
      std::sort(all.begin(), all.end());
      quartiles.push_back(all[all.size() / 4]);
    }
    return quartiles;
  }

 private:
  void measure(Kind kind, std::size_t bytes, const Calls& calls, int rounds, std::vector<double>& times) {
    std::unique_ptr<support::Graph> graph;
    if (device_.is_gpu()) graph = device_.capture([&] { enqueue(kind, bytes, calls); });
    int repeats = 1;
    for (int round = -2; round < rounds; ++round) {
      meet(calls);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < repeats; ++i)
        if (graph)
          graph->launch();
        else
          enqueue(kind, bytes, calls);
      device_.synchronize();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      double time = took.count() / (repeats * calls_in_graph);
      if (round >= 0) times.push_back(time);
      if (round != -1) continue;
      CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
      repeats = static_cast<int>(std::clamp(options_.limit_ms * 1000 / (time * calls_in_graph), 1.0, 1000.0));
    }
  }

  /// Asleep: ranks that poll in MPI would take the cores from those that are still at work.
  void meet(const Calls& calls) {
    calls.meet(device_.stream());
    device_.synchronize();
  }

  void enqueue(Kind kind, std::size_t bytes, const Calls& calls) {
    for (int i = 0; i < calls_in_graph; ++i) calls.make(kind, send_.data(), recv_.data(), bytes, device_.stream());
  }

  void compare(Kind kind, std::size_t words, const Calls& calls, const Way& way) {
    const bool receives = kind == bcast ? rank != 0 : kind != reduce || rank == 0;
    std::vector<double> result(words * static_cast<std::size_t>(receives_blocks(kind) ? ranks : 1), -1);
    device_.copy(recv_.data(), result.data(), result.size() * sizeof(double));
    calls.make(kind, send_.data(), recv_.data(), words * sizeof(double), device_.stream());
    device_.copy(result.data(), recv_.data(), result.size() * sizeof(double));
    device_.synchronize();
    for (std::size_t i = 0; receives && i < result.size(); ++i)
      if (result[i] != expected(kind, static_cast<int>(i / words), i % words)) {
        std::fprintf(stderr, "mpix-tune: %s of %zu bytes, %s in %d blocks: word %zu of rank %d is wrong\n", names[kind],
                     words * sizeof(double), way.name.c_str(), way.blocks, i, rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
  }

  bench::Device& device_;
  const Options& options_;
  const std::size_t words_;
  bench::DeviceArray<double> send_, recv_;
};

std::size_t in_all(Kind kind, std::size_t bytes) {
  return bytes * static_cast<std::size_t>(sends_blocks(kind) || receives_blocks(kind) ? ranks : 1);
}
bool is_wanted(const Options& options, Kind kind) {
  return options.only.empty() || std::count(options.only.begin(), options.only.end(), names[kind]) > 0;
}

std::vector<Way> all_ways(bench::Device& device) {
  std::vector<Way> all;
  for (const char* const name : {"lines", "packs", "direct"}) {
    if (!is_known({name, 0}, device)) continue;
    all.push_back({name, 0});
    if (!device.is_gpu()) continue;
    for (const int blocks : {2, 4, 8, 16, 32, 64})
      if (is_known({name, blocks}, device)) all.push_back({name, blocks});
  }
  return all;
}

/// Of those that are as good as the best: that of the next smaller size, so that a table has few lines; else the one
/// with blocks by size.
std::size_t best_of(const std::vector<double>& times, const std::vector<Way>& ways, const Way& last) {
  const auto best = static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
  std::size_t chosen = best;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] > as_good * times[best]) continue;
    if (ways[i] == last) return i;
    if (ways[i].blocks == 0) chosen = i;
  }
  return chosen;
}

std::string size_text(std::size_t bytes) {
  for (const auto& [unit, letter] : {std::pair{std::size_t{1} << 20, "m"}, std::pair{std::size_t{1} << 10, "k"}})
    if (bytes % unit == 0) return std::to_string(bytes / unit) + letter;
  return std::to_string(bytes);
}

struct Entry {
  Kind kind;
  std::size_t bytes;
  Way way;
};

std::vector<Entry> tune(bench::Device& device, const Options& options) {
  const std::vector<Way> all = all_ways(device);
  Measurement measurement(device, options);
  std::vector<Entry> entries;
  for (int k = 0; k < kinds; ++k) {
    const Kind kind = static_cast<Kind>(k);
    if (!is_wanted(options, kind)) continue;
    bool has_lines = true;
    Way last;
    for (std::size_t bytes = options.from; in_all(kind, bytes) <= options.to; bytes *= 2) {
      std::vector<Way> ways;
      for (const Way& way : all)
        if (has_lines || way.name != "lines") ways.push_back(way);
      const std::vector<double> times = measurement.of(kind, bytes, ways);
      const std::size_t chosen = best_of(times, ways, last);
      double lines = HUGE_VAL;
      for (std::size_t i = 0; i < times.size(); ++i)
        if (ways[i].name == "lines") lines = std::min(lines, times[i]);
      has_lines = lines <= hopeless * times[chosen];
      const Way& way = ways[chosen];
      if (rank == 0)
        std::fprintf(stderr, "%-20s %8s  %s %d: %.2f us; lines %s\n", names[kind], size_text(bytes).c_str(),
                     way.name.c_str(), way.blocks, times[chosen],
                     lines == HUGE_VAL ? "not tried" : std::to_string(lines).c_str());
      if (!entries.empty() && entries.back().kind == kind && entries.back().way == way)
        entries.back().bytes = bytes;
      else
        entries.push_back({kind, bytes, way});
      last = way;
    }
  }
  return entries;
}

/// Sizes between those that were measured: how far what calls choose is from the best. 0: near enough.
int check(bench::Device& device, const Options& options) {
  std::vector<Way> ways = all_ways(device);
  ways.insert(ways.begin(), Way{});  // as calls choose
  Measurement measurement(device, options);
  int points = 0, near = 0;
  double worst = 1;
  for (int k = 0; k < kinds; ++k) {
    const Kind kind = static_cast<Kind>(k);
    for (std::size_t half = options.from / 2; is_wanted(options, kind) && in_all(kind, 3 * half) <= options.to;
         half *= 2) {
      const std::vector<double> times = measurement.of(kind, 3 * half / 8 * 8, ways);
      const auto best = static_cast<std::size_t>(std::min_element(times.begin() + 1, times.end()) - times.begin());
      const double ratio = times[0] / times[best];
      ++points;
      if (ratio <= off) ++near;
      worst = std::max(worst, ratio);
      if (rank == 0)
        std::printf("%-20s %8zu  %.2f us; best: %s %d %.2f us, ratio %.2f\n", names[kind], 3 * half / 8 * 8, times[0],
                    ways[best].name.c_str(), ways[best].blocks, times[best], ratio);
    }
  }
  if (rank == 0) std::printf("%d of %d within %.2f of the best; worst %.2f\n", near, points, off, worst);
  return points > 0 && near >= 0.9 * points && worst <= far_off ? 0 : 1;
}

/// How many ranks share a GPU, as libmpix counts them. 0: the ranks are on several nodes.
unsigned long long sharers_here() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPIX_Comm_stats stats{};
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  CHECK_MPI(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  CHECK_MPI(MPIX_Comm_get_stats(comm, &stats, sizeof stats));
  CHECK_MPI(MPI_Comm_free(&comm));
  return stats.node_ranks == static_cast<unsigned long long>(ranks) ? stats.sharers : 0;
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  CHECK_MPI(MPI_Get_library_version(text, &length));
  std::string all = text;
  std::replace(all.begin(), all.end(), '\t', ' ');
  return all.substr(0, all.find_first_of("\r\n"));
}

std::string table_of(const std::vector<Entry>& entries, unsigned long long sharers, const std::string& machine,
                     const std::string& command) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::localtime(&now));
  std::string text = "libmpix-ways 1\n# " + machine + "\n# libmpix " PACKAGE_VERSION ", " + date + ", " +
                     library_version() + "\n# mpiexec -n " + std::to_string(ranks) + " " + command +
                     "\n# kind ranks sharers bytes way blocks\n";
  for (const Entry& entry : entries)
    text += std::string(names[entry.kind]) + " " + std::to_string(ranks) + " " + std::to_string(sharers) + " " +
            size_text(entry.bytes) + " " + entry.way.name + " " + std::to_string(entry.way.blocks) + "\n";
  return text;
}

// ---- options -----------------------------------------------------------------------------------------

[[noreturn]] void leave(int status) {
  MPI_Finalize();
  std::exit(status);
}

[[noreturn]] void usage(int status) {
  if (rank == 0)
    std::fputs(
        "usage: mpiexec -n N mpix-tune [options]\n"
        "Measures which way collectives on streams are fastest, for N ranks on a node, and writes a table for the\n"
        "setting MPIX_COLL_TABLE. The device is that of MPIX_DEVICE. Each result is compared with what it has to be.\n"
        "  -o, --out=FILE   write the table there (default: standard output)\n"
        "  --only=LIST      of bcast, reduce, allreduce, reduce_scatter_block, allgather, alltoall (default: all)\n"
        "  --from=BYTES     smallest block, with k, m or g (default: 64)\n"
        "  --to=BYTES       largest buffer (default: 64m on GPUs, 4m on the host)\n"
        "  --rounds=N       of which the lower quartile counts (default: 12)\n"
        "  --limit=MS       of a measurement (default: 4)\n"
        "  --check          write nothing; at sizes between those of a table, compare what calls choose (with\n"
        "                   MPIX_COLL_TABLE, or without) with the best. Status 1: less than 9 in 10 are within 5 %,\n"
        "                   or one is not within 25 %\n"
        "  -h, --help       this\n",
        status ? stderr : stdout);
  leave(status);
}

std::size_t size_of(std::string text) {
  unsigned shift = 0;
  if (!text.empty() && text.find_last_of("kmg") == text.size() - 1) {
    shift = text.back() == 'k' ? 10 : text.back() == 'm' ? 20 : 30;
    text.pop_back();
  }
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) return 0;
  return std::stoull(text) << shift;
}

Options parse(int argc, char** argv) {
  enum { only_option = 256, from_option, to_option, rounds_option, limit_option, check_option };
  const option known[] = {{"out", required_argument, nullptr, 'o'},
                          {"only", required_argument, nullptr, only_option},
                          {"from", required_argument, nullptr, from_option},
                          {"to", required_argument, nullptr, to_option},
                          {"rounds", required_argument, nullptr, rounds_option},
                          {"limit", required_argument, nullptr, limit_option},
                          {"check", no_argument, nullptr, check_option},
                          {"help", no_argument, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  opterr = rank == 0;
  const auto wrong = [](const char* option, const char* what) {
    if (rank == 0) std::fprintf(stderr, "mpix-tune: %s: expected %s\n", option, what);
    leave(2);
  };
  for (int o; (o = getopt_long(argc, argv, "o:h", known, nullptr)) != -1;) switch (o) {
      case 'o':
        options.out = optarg;
        if (options.out.empty()) wrong("--out", "the name of a file");
        break;
      case only_option:
        for (std::string list = optarg; !list.empty();) {
          const std::size_t comma = std::min(list.find(','), list.size());
          const std::string one = list.substr(0, comma);
          if (std::none_of(names, names + kinds, [&](const char* name) { return one == name; }))
            wrong("--only", "names of collectives, with commas between");
          options.only.push_back(one);
          list.erase(0, comma + 1);
        }
        if (options.only.empty()) wrong("--only", "names of collectives, with commas between");
        break;
      case from_option:
        options.from = size_of(optarg);
        if (options.from < 16 || options.from % 16 != 0) wrong("--from", "a multiple of 16 bytes, with k, m or g");
        break;
      case to_option:
        options.to = size_of(optarg);
        if (options.to == 0 || options.to > std::size_t{1} << 30) wrong("--to", "up to 1g bytes, with k, m or g");
        break;
      case rounds_option:
        options.rounds = std::strlen(optarg) > 4 ? 0 : std::atoi(optarg);
        if (options.rounds < 1 || options.rounds > 1000) wrong("--rounds", "a number from 1 to 1000");
        break;
      case limit_option:
        options.limit_ms = std::atof(optarg);
        if (!(options.limit_ms > 0 && options.limit_ms <= 10000)) wrong("--limit", "milliseconds, up to 10000");
        break;
      case check_option:
        options.check = true;
        break;
      case 'h':
        usage(0);
      default:
        usage(2);
    }
  if (optind < argc) usage(2);
  if (options.check && !options.out.empty()) wrong("--check", "no --out: nothing is written");
  return options;
}

std::string command_of(int argc, char** argv) {
  std::string command = "mpix-tune";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return command;
}

/// Before all the work.
void try_to_write(const std::string& file) {
  int error = 0;
  if (rank == 0 && !file.empty()) {
    const bool was_there = access(file.c_str(), F_OK) == 0;
    if (std::FILE* const out = std::fopen(file.c_str(), "a")) {
      std::fclose(out);
      if (!was_there) std::remove(file.c_str());
    } else {
      error = errno;
      std::fprintf(stderr, "mpix-tune: %s: %s\n", file.c_str(), std::strerror(error));
    }
  }
  CHECK_MPI(MPI_Bcast(&error, 1, MPI_INT, 0, MPI_COMM_WORLD));
  if (error) leave(1);
}

/// By all ranks.
int refused(const std::string& why) {
  if (rank == 0) std::fprintf(stderr, "mpix-tune: %s\n", why.c_str());
  return 1;
}

int run(Options options, const std::string& command) {
  int active = 0;
  CHECK_MPI(MPIX_Query_stream_rma(&active));
  if (!active) return refused("libmpix does not stand in front of MPI here");
  if (ranks < 2) return refused("a table is for 2 ranks and more (mpiexec -n N mpix-tune)");
  try_to_write(options.out);
  const std::unique_ptr<bench::Device> device = bench::make_device("auto");
  if (options.to == 0) options.to = device->is_gpu() ? 64 << 20 : 4 << 20;
  const std::size_t least = 2 * options.from * static_cast<std::size_t>(ranks);
  if (options.to < least)
    return refused("--to=" + size_text(options.to) + ": expected at least " + size_text(least) +
                   ", for --from=" + size_text(options.from) + " and so many ranks");
  const unsigned long long sharers = sharers_here();
  if (sharers == 0) return refused("a table is for one node: start as many ranks as are to share a node, there");
  if (options.check) return check(*device, options);
  const std::string table = table_of(tune(*device, options), sharers, device->describe(), command);
  int written = 1;
  if (rank == 0 && options.out.empty()) {
    std::fputs(table.c_str(), stdout);
  } else if (rank == 0) {
    std::ofstream out(options.out);
    out << table;
    out.close();
    written = out.good();
  }
  CHECK_MPI(MPI_Bcast(&written, 1, MPI_INT, 0, MPI_COMM_WORLD));
  if (!written) return refused(options.out + ": cannot be written");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // What is measured must not be what the environment forces; a check is of what it says.
  unsetenv("MPIX_COLL");
  CHECK_MPI(MPI_Init(&argc, &argv));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  const std::string command = command_of(argc, argv);
  int status = 0;
  try {
    status = run(parse(argc, argv), command);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpix-tune: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  leave(status);
}
