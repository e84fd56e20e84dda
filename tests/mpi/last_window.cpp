// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// A window that is freed in MPI_Finalize, by what a library attached to MPI_COMM_SELF, with epochs still on their way.
#include <unistd.h>

#include <cstdio>

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
extern "C" int end_library(MPI_Comm, int, void* value, void*) {
  const auto* library = static_cast<const Library*>(value);
  if (MPI_Win_free(const_cast<Window&>(library->window).handle()) != MPI_SUCCESS) _exit(1);
  if (ring_data(library->left, epochs).agrees(library->window.base(), bytes) == bytes) return MPI_SUCCESS;
  std::fprintf(stderr, "failed: the last epoch's data are not there\n");
  _exit(1);
}

}  // namespace

TEST_CASE("a window is freed by what MPI_Finalize calls") {
  NEEDS(device().is_host(), "the tests' device is stopped before MPI_Finalize");
  auto* library = new Library;  // the process ends with it
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    if (epoch == epochs) library->stream.delay(200000);  // so that MPI_Finalize finds it under way
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
  int key = MPI_KEYVAL_INVALID;
  MPI_OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_library, &key, nullptr));
  MPI_OK(MPI_Comm_set_attr(MPI_COMM_SELF, key, library));
}
