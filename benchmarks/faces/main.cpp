// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
// Faces: the nearest-neighbour exchange of a spectral-element code, three ways.
//
// After the microbenchmark of J. B. White (github.com/twhite-cray/faces), whose input it takes, and
// as used in N. Namashivayam et al., "Exploring Fully Offloaded GPU Stream-Aware Message Passing"
// (arXiv 2306.15773).

#include <mpix.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "mpi_check.h"
#include "options.h"
#include "report.h"
#include "run.h"

namespace faces {
namespace {

enum ExitStatus { correct = 0, wrong_result = 1, bad_input = 2 };

/// What rank 0 found: all ranks go on, or all stop with this status.
struct Start {
  bool go;
  int status;
  Options options;
};

/// Collective.
Start read_input(int argc, char** argv, int rank) {
  Start start{true, correct, {}};
  if (rank == 0) {
    try {
      start.options = read_options(argc, argv);
    } catch (const InputError& error) {
      std::fprintf(stderr, "faces: %s\n", error.what());
      start.go = false;
      start.status = bad_input;
    } catch (const HelpWanted&) {
      std::fputs(help_text().c_str(), stdout);
      start.go = false;
    }
  }
  FACES_MPI(MPI_Bcast(&start, static_cast<int>(sizeof(start)), MPI_BYTE, 0, MPI_COMM_WORLD));
  return start;
}

/// Without libmpix in front of MPI its stream epochs would be ordinary ones, and fail in odd ways.
void require_libmpix(const Options& options) {
  int active = 0;
  FACES_MPI(MPIX_Query_stream_rma(&active));
  if (active == 0 && options.run[st])
    throw InputError(
        "st needs libmpix in front of MPI: link -lmpix before the MPI library, or use "
        "--variant p2p,rma");
}

/// Collective. True: every result was right.
bool run_all(const Options& options, const Problem& problem, int rank, int ranks) {
  const Geometry geometry(problem, rank);
  std::unique_ptr<Device> stream_device, inline_device = make_inline_host_device();
  if (options.run[st] || options.baseline_streams) stream_device = make_host_stream_device();
  Device& baseline_device = options.baseline_streams ? *stream_device : *inline_device;

  Report report(rank == 0, options, problem, ranks);
  report.settings(geometry, baseline_device.describe());
  std::vector<Result> results;
  for (int variant = 0; variant < variants; ++variant)
    if (options.run[variant]) results.push_back(Result{static_cast<Variant>(variant), {}, ranks});

  bool right = true;
  for (int repetition = 0; repetition < options.repeat; ++repetition) {
    for (Result& result : results) {
      report.running(result.variant, repetition);
      Device& device = result.variant == st ? *stream_device : baseline_device;
      const Measurement measurement =
          measure(result.variant, options, problem, geometry, device, rank, ranks);
      report.checked(result.variant, measurement.timing, measurement.passed);
      result.timings.push_back(measurement.timing);
      result.passed = std::min(result.passed, measurement.passed);
      right = right && measurement.passed == ranks;
    }
  }
  report.table(results);
  return right;
}

/// Collective.
int run_program(int argc, char** argv) {
  int rank = 0, ranks = 1;
  FACES_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  FACES_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  const Start start = read_input(argc, argv, rank);
  if (!start.go) return start.status;
  try {
    const Problem problem = start.options.problem_for(ranks);
    require_libmpix(start.options);
    return run_all(start.options, problem, rank, ranks) ? correct : wrong_result;
  } catch (const InputError& error) {  // the same on all ranks
    if (rank == 0) std::fprintf(stderr, "faces: %s\n", error.what());
    return bad_input;
  } catch (const std::bad_alloc&) {
    std::fprintf(
        stderr,
        "faces: rank %d: out of memory: fewer or smaller elements (mx, my, mz, n) need less\n",
        rank);
    MPI_Abort(MPI_COMM_WORLD, bad_input);
    return bad_input;
  }
}

}  // namespace
}  // namespace faces

int main(int argc, char** argv) {
  // A host stream's thread runs kernels, which do not call MPI.
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
  // Calls without a communicator raise errors through one of these; which, depends on the MPI.
  for (const MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    FACES_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  const int status = faces::run_program(argc, argv);
  FACES_MPI(MPI_Finalize());
  return status;
}
