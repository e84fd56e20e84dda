// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What it takes to create windows and to free them, beside MPI's own (PMPI), in turns.
//
//   mpiexec -n N creation [--windows=N] [--rounds=N] [--bytes=N] [--csv]
//
// first    of its communicator, a duplicate of MPI_COMM_WORLD that had none, as libmpix's ranks then get to know each
//          other; the communicators are made before
// further  of one that had windows before
//
// Behind a barrier some are created, and then freed. A figure is the time of the slowest rank for one of them, the
// median of the rounds. A window of libmpix contains one of MPI's: its time cannot be below that.
#include <mpi.h>
#include <mpix.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "../command_line.h"
#include "../device/device.h"
#include "samples.h"

namespace {

using epoch::Samples;
using epoch::wall;

constexpr const char* mapped_memory = "mpix:device";

struct Kind {
  const char* name;
  bool allocates;
  const char* memory;  ///< null: what MPI takes of itself
};
const Kind kinds[] = {{"MPI_Win_create", false, nullptr},
                      {"MPI_Win_allocate", true, nullptr},
                      {"MPI_Win_allocate, mpix:device", true, mapped_memory}};

/// Beside MPI's own, which knows nothing of the memory's kind.
struct Calls {
  int (*create)(void*, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win*);
  int (*allocate)(MPI_Aint, int, MPI_Info, MPI_Comm, void*, MPI_Win*);
  int (*free)(MPI_Win*);
};
const Calls calls[] = {{PMPI_Win_create, PMPI_Win_allocate, PMPI_Win_free},
                       {MPI_Win_create, MPI_Win_allocate, MPI_Win_free}};

struct Times {
  Samples created, freed, both;
};

class Bench {
 public:
  Bench(int windows, int bytes) : bytes_(bytes), windows_(static_cast<std::size_t>(windows), MPI_WIN_NULL) {
    memory_.resize(windows_.size() * static_cast<std::size_t>(bytes));
    for (MPI_Comm& comm : comms_) CHECK_MPI(PMPI_Comm_dup(MPI_COMM_WORLD, &comm));
  }
  ~Bench() {
    for (MPI_Comm& comm : comms_) CHECK_MPI(MPI_Comm_free(&comm));
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// `of`: 0, MPI's own; 1, those of libmpix.
  void measure(const Kind& kind, int of, bool first, Times* times) {
    std::vector<MPI_Comm> comms(windows_.size(), comms_[of]);
    if (first)
      for (MPI_Comm& comm : comms) CHECK_MPI(PMPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    if (of == 1 && kind.memory) CHECK_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", kind.memory));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const double begin = wall();
    for (std::size_t i = 0; i < windows_.size(); ++i) create(kind, calls[of], i, info, comms[i]);
    const double middle = wall();
    for (MPI_Win& win : windows_) CHECK_MPI(calls[of].free(&win));
    const double end = wall();
    CHECK_MPI(MPI_Info_free(&info));
    if (first)
      for (MPI_Comm& comm : comms) CHECK_MPI(MPI_Comm_free(&comm));
    double slowest[] = {middle - begin, end - middle, end - begin};
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, slowest, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    if (!times) return;
    const auto each = static_cast<double>(windows_.size());
    times->created.add(slowest[0] / each);
    times->freed.add(slowest[1] / each);
    times->both.add(slowest[2] / each);
  }

 private:
  void create(const Kind& kind, const Calls& by, std::size_t i, MPI_Info info, MPI_Comm comm) {
    void* base = memory_.data() + i * static_cast<std::size_t>(bytes_);
    CHECK_MPI(kind.allocates ? by.allocate(bytes_, 1, info, comm, &base, &windows_[i])
                             : by.create(base, bytes_, 1, info, comm, &windows_[i]));
  }

  const int bytes_;
  std::vector<char> memory_;
  std::vector<MPI_Win> windows_;
  MPI_Comm comms_[2] = {MPI_COMM_NULL, MPI_COMM_NULL};  ///< of the further ones
};

void print(const char* name, bool first, Times (&times)[2], bool csv) {
  const double own = times[0].both.median(), with = times[1].both.median();
  const double own_created = times[0].created.median(), with_created = times[1].created.median();
  std::printf(csv ? "%s %s,%.1f,%.1f,%.3f,%.1f,%.1f,%.3f\n" : "%-30s %-8s %10.1f %10.1f %6.2f %10.1f %10.1f %6.2f\n",
              name, first ? "first" : "further", own_created, with_created, with_created / own_created, own, with,
              with / own);
  std::fflush(stdout);
}

void run(int argc, char** argv) {
  int windows = 4, rounds = 15, bytes = 1 << 16;
  bool csv = false;
  benchmark::CommandLine line("creation", "What it takes to create and free windows, beside MPI's own.\n");
  line.number("windows", windows, 1, 1000, "created one behind the other, and then freed")
      .number("rounds", rounds, 1, benchmark::CommandLine::large, "of which the median is shown")
      .number("bytes", bytes, 0, 1 << 30, "of a window")
      .flag("csv", csv, "comma-separated values");
  line.read(argc, argv);
  const auto device = bench::make_device("auto");
  const bool tells = benchmark::process() == 0;
  if (tells)
    std::printf(
        "%s%d ranks, %s; %d windows of %d bytes, %d rounds; us a window, of the slowest rank\n%s", csv ? "# " : "",
        benchmark::processes(), device->describe().c_str(), windows, bytes, rounds,
        csv ? "what,create: MPI's own,libmpix,ratio,create and free: MPI's own,libmpix,ratio\n"
            : "                                        create: MPI    libmpix  ratio  and free: MPI libmpix  ratio\n");
  Bench all(windows, bytes);
  for (const Kind& kind : kinds)
    for (const bool first : {true, false}) {
      Times times[2];
      for (int round = -1; round < rounds; ++round)  // the first warms up
        for (int of = 0; of < 2; ++of) all.measure(kind, of, first, round < 0 ? nullptr : &times[of]);
      if (tells) print(kind.name, first, times, csv);
    }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_MPI(MPI_Init(&argc, &argv));
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "creation: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  CHECK_MPI(MPI_Finalize());
  return 0;
}
