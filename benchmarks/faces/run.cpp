// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "run.h"

#include <mpi.h>

#include <cstdio>
#include <string>
#include <utility>

#include "check.h"
#include "mpi_check.h"

namespace faces {
namespace {

/// Says on standard error how far a long run is, every few seconds.
class Progress {
 public:
  Progress(bool active, std::string label, long runs) : active_(active), label_(std::move(label)), runs_(runs) {}

  void run_done() {
    ++done_;
    const double now = MPI_Wtime();
    if (!active_ || done_ == runs_ || now - last_ < seconds_between) return;
    last_ = now;
    std::fprintf(stderr, "faces: %s: %ld of %ld runs done, %.0f s\n", label_.c_str(), done_, runs_, now - start_);
  }

 private:
  static constexpr double seconds_between = 5;

  const bool active_;
  const std::string label_;
  const long runs_;
  const double start_ = MPI_Wtime();
  double last_ = start_;
  long done_ = 0;
};

std::unique_ptr<Exchange> make_exchange(const Variant& variant, const Setup& setup, Field& field) {
  switch (variant.kind) {
    case Variant::p2p:
      return make_point_to_point(field, setup.staged);
    case Variant::rma:
      return make_active_rma(field, setup.options.window, setup.staged);
    case Variant::st:
      break;
  }
  return make_stream_triggered(field, setup.options.window, variant.use, setup.options.sync);
}

Timing over_ranks(double seconds, int ranks) {
  Timing timing{};
  FACES_MPI(MPI_Allreduce(&seconds, &timing.average, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  FACES_MPI(MPI_Allreduce(&seconds, &timing.least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD));
  FACES_MPI(MPI_Allreduce(&seconds, &timing.most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  timing.average /= ranks;
  return timing;
}

}  // namespace

Measurement measure(const Variant& variant, const Setup& setup, const Geometry& geometry) {
  const Problem& problem = setup.problem;
  Device& device = setup.device_for(variant);
  Field field(problem, geometry, device);
  const long runs = static_cast<long>(problem.niface) * (problem.niel + 1);
  Progress progress(setup.rank == 0, setup.label(variant), runs);
  double seconds = 0;
  bool right = true;  // of all runs so far: the first that is wrong says so
  long run = 0;
  for (int face_init = 0; face_init < problem.niface; ++face_init) {
    const std::unique_ptr<Exchange> exchange = make_exchange(variant, setup, field);
    for (int element_init = 0; element_init <= problem.niel; ++element_init) {
      field.initialize();
      exchange->poison_buffers();
      device.synchronize();
      FACES_MPI(MPI_Barrier(MPI_COMM_WORLD));
      const double start = MPI_Wtime();
      exchange->share(problem.nshare);
      const double stop = MPI_Wtime();
      if (element_init > 0) seconds += stop - start;  // the first one warms up
      if (++run == runs && setup.options.inject_error && setup.rank == setup.ranks - 1) spoil(field);
      right = right && is_right(field, setup.label(variant), setup.rank);
      progress.run_done();
    }
  }

  const int mine = right ? 1 : 0;
  int passed = 0;
  FACES_MPI(MPI_Allreduce(&mine, &passed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  return Measurement{over_ranks(seconds, setup.ranks), passed};
}

}  // namespace faces
