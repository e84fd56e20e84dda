// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Windows in MPI_Finalize, with epochs still on their way: they are freed there by what a library has attached to
// MPI_COMM_SELF.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "support/capture.h"
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

constexpr int bytes = 300000, epochs = 3;

struct Library {
  Window window{Memory::part, bytes};  // whose memory stays
  Buffer source{bytes};
  Stream stream;
  Group to{right_of(rank())}, from{left_of(rank())};
  int left = left_of(rank());
};

/// Instead of an exit status, which is decided by then.
[[noreturn]] void end_with(const char* failure) {
  std::fprintf(stderr, "failed: %s\n", failure);
  _exit(1);
}

extern "C" int end_library(MPI_Comm, int, void* value, void*) {
  const auto* library = static_cast<const Library*>(value);
  if (MPI_Win_free(const_cast<Window&>(library->window).handle()) != MPI_SUCCESS) end_with("MPI_Win_free");
  if (ring_data(library->left, epochs).agrees(library->window.base(), bytes) < bytes)
    end_with("the last epoch's data are not there");
  return MPI_SUCCESS;
}

/// The messages of libmpix have ended.
extern "C" int end_capture(MPI_Comm, int, void* value, void*) {
  const std::unique_ptr<Capture> errors(static_cast<Capture*>(value));
  const std::string said = errors->end();
  if (said.find("messages between nodes have not come") != std::string::npos) end_with(said.c_str());
  return MPI_SUCCESS;
}

void attach(int end(MPI_Comm, int, void*, void*), void* value) {
  int key = MPI_KEYVAL_INVALID;
  MPI_OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end, &key, nullptr));
  MPI_OK(MPI_Comm_set_attr(MPI_COMM_SELF, key, value));
}

}  // namespace

TEST_CASE("windows are freed by what MPI_Finalize calls", "[epochs]") {
  NEEDS(device().is_host(), "the tests' device is stopped before MPI_Finalize");
  // So that MPI_Finalize finds both under way, and the second one still when the first is over.
  for (const int delay : {200000, 400000}) {
    auto* library = new Library;  // the process ends with it
    for (int epoch = 1; epoch <= epochs; ++epoch) {
      if (epoch == epochs) library->stream.delay(delay);
      library->stream.fill(library->source.data(), bytes, ring_data(rank(), epoch));
      MPI_OK(MPIX_Win_post_stream(library->from, library->window, library->stream));
      MPI_OK(MPI_Win_start(library->to, MPIX_MODE_STREAM, library->window));
      MPI_OK(MPI_Put(library->source.data(), bytes, MPI_BYTE, right_of(rank()), 0, bytes, MPI_BYTE, library->window));
      MPI_OK(MPIX_Win_complete_stream(library->window, library->stream));
      MPI_OK(MPIX_Win_wait_stream(library->window, library->stream));
      if (epoch == epochs) break;  // nobody waits for the last one
      library->stream.check(library->window.base(), bytes, ring_data(library->left, epoch), HERE("epoch " << epoch));
      library->stream.synchronize();
    }
    attach(end_library, library);
  }
}

// Its settings: waits end with an error, after a moment. Between nodes.
TEST_CASE("MPI_Finalize receives a post on a rank that has had no epoch", "[post]") {
  Window window(Memory::device, 64);
  if (rank() == 0) {
    const Group other(1);
    Stream stream;
    MPI_OK(MPIX_Win_post_stream(other, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(static_cast<void*>(stream))) != MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  }
  barrier();
  attach(end_capture, new Capture(STDERR_FILENO));
  checked();
}
