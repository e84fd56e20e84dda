// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
// Faces: the nearest-neighbour exchange of a spectral-element code, three ways.
//
// After the microbenchmark of J. B. White (github.com/twhite-cray/faces), whose input it takes, and
// as used in N. Namashivayam et al., "Exploring Fully Offloaded GPU Stream-Aware Message Passing"
// (arXiv 2306.15773).

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include "mpi_check.h"
#include "options.h"
#include "report.h"
#include "run.h"
#include "setup.h"

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

/// Collective. True: every result was right.
bool run_all(const Setup& setup) {
  const Geometry geometry(setup.problem, setup.rank);
  Report report(setup);
  report.settings(geometry);
  std::vector<Result> results;
  for (int v = 0; v < variants; ++v)
    if (setup.options.run[v]) results.push_back(Result{&all_variants[v], {}, setup.ranks});

  bool right = true;
  for (int repetition = 0; repetition < setup.options.repeat; ++repetition) {
    for (Result& result : results) {
      report.running(*result.variant, repetition);
      const Measurement measurement = measure(*result.variant, setup, geometry);
      report.checked(*result.variant, measurement.timing, measurement.passed);
      result.timings.push_back(measurement.timing);
      result.passed = std::min(result.passed, measurement.passed);
      right = right && measurement.passed == setup.ranks;
    }
  }
  report.table(results);
  return right;
}

/// Collective.
int run_program(int argc, char** argv) {
  int rank = 0;
  FACES_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  const Start start = read_input(argc, argv, rank);
  if (!start.go) return start.status;
  try {
    return run_all(make_setup(start.options)) ? correct : wrong_result;
  } catch (const InputError& error) {  // the same on all ranks
    if (rank == 0) std::fprintf(stderr, "faces: %s\n", error.what());
    return bad_input;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "faces: rank %d: out of memory: fewer or smaller elements (mx, my, mz, n) need less\n", rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "faces: rank %d: %s\n", rank, error.what());
  }
  MPI_Abort(MPI_COMM_WORLD, bad_input);
  return bad_input;
}

/// Options are read after MPI_Init; this one libmpix needs to know before.
std::string device_option(int argc, char** argv) {
  std::string device = "auto";
  for (int k = 1; k < argc; ++k) {
    const std::string word = argv[k];
    if (word == "--device" && k + 1 < argc) device = argv[k + 1];
    if (word.rfind("--device=", 0) == 0) device = word.substr(word.find('=') + 1);
  }
  return device;
}

}  // namespace
}  // namespace faces

int main(int argc, char** argv) {
  bench::tell_libmpix(faces::device_option(argc, argv));
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
