// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Rank 1 has left its loop an epoch early, and is in MPI_Finalize: the hang reports of rank 0 say so, on a node and
// between nodes. The test case ends the processes itself.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "support/capture.h"
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

const bool settings_made = [] {
  setenv("MPIX_TIMEOUT", std::to_string(time_scale()).c_str(), 1);
  setenv("MPIX_ON_TIMEOUT", "error", 1);
  setenv("MPIX_EAGER_SIZE", "64", 1);  // what is larger waits for its post
  return true;
}();

constexpr int epochs = 3;
/// More than goes by mailbox on any device.
constexpr int direct = 300000;

void end_stream(Stream& stream) {
  if (device().is_host())
    (void)MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(static_cast<void*>(stream)));
  else
    stream.synchronize();
}

/// A relay reports by itself, when its stream may be over.
std::string report_of(Capture& errors, Stream& stream) {
  end_stream(stream);
  const double limit = MPI_Wtime() + 20 * slowdown();
  while (MPI_Wtime() < limit && errors.text().find("is broken") == std::string::npos) usleep(10000);
  return errors.end();
}

bool says(const std::string& report, const char* missing) {
  const bool found =
      report.find("rank 1 has not " + std::string(missing) + " (it has called MPI_Finalize);") != std::string::npos;
  if (!found) std::printf("missing: '%s'; the report: %s\n", missing, report.c_str());
  return found;
}

std::unique_ptr<Window> awaited, put_to, unused;

}  // namespace

/// Of MPI_Finalize, behind all that libmpix does there: MPICH 4.0.2 ends with an assertion where windows are left to
/// it.
extern "C" __attribute__((visibility("default"))) int PMPI_Finalize() {
  barrier();
  for (auto* window : {&awaited, &put_to, &unused}) *window = nullptr;
  return reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, "PMPI_Finalize"))();
}

TEST_CASE("reports say that a rank is in MPI_Finalize") {
  NEEDS_RANKS(2);
  REQUIRE(settings_made);
  awaited = std::make_unique<Window>(Memory::device, direct);
  put_to = std::make_unique<Window>(Memory::device, direct);
  unused = std::make_unique<Window>(Memory::device, 64);  // by rank 1
  auto& stream = *new Stream;                             // the process ends with them
  auto& source = *new Buffer(direct);
  for (Window* window : {awaited.get(), put_to.get()}) {
    Ring ring(*window, window->base(), 64);
    for (int k = 0; k < epochs; ++k) ring.epoch(stream);
    stream.synchronize();
  }
  barrier();
  bool good = true;
  if (rank() == 0) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const Group late(1);
    const auto wait_on = [&](Window& window, const char* missing) {
      Capture errors(STDERR_FILENO);
      MPI_OK(MPIX_Win_post_stream(late, window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      good = says(report_of(errors, stream), missing) && good;
    };
    wait_on(*awaited, size() == 2 ? "completed exposure epoch 4" : "completed exposure epoch 1");
    wait_on(*unused, "completed exposure epoch 1");
    Capture errors(STDERR_FILENO);
    MPI_OK(MPI_Win_start(late, MPIX_MODE_STREAM, *put_to));
    MPI_OK(MPI_Put(source.data(), direct, MPI_BYTE, 1, 0, direct, MPI_BYTE, *put_to));
    MPI_OK(MPIX_Win_complete_stream(*put_to, stream));
    good = says(report_of(errors, stream), "posted access epoch 4") && good;
  }
  MPI_Finalize();
  std::fflush(nullptr);
  _exit(good && !failed() ? 0 : 1);
}
