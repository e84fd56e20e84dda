// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// MPI says once that it has not received large data of another node (tests/support/lost_data.c). Their target is not
// told that they are there: its wait is reported, and nothing else is broken.
#include <unistd.h>

#include <string>

#include "support/capture.h"
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

constexpr int large = 300000;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// From rank 0 to rank 1.
void put(Window& window, const Buffer& source, Stream& stream) {
  const Group peer(1 - rank());
  if (rank() == 0) {
    MPI_OK(MPI_Win_start(peer, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), large, MPI_BYTE, 1, 0, large, MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
  } else {
    MPI_OK(MPIX_Win_post_stream(peer, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
  }
}

}  // namespace

TEST_CASE("large data that MPI has not received are not taken for there") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "a GPU's streams know nothing of waits that end with an error");
  Window first(Memory::device, large), second(Memory::device, large);
  MPI_OK(MPI_Win_set_name(first, "pressure"));
  Stream stream;
  const auto host_stream = static_cast<MPIX_Host_stream>(static_cast<void*>(stream));
  const Buffer source(large);
  Buffer::set_now(source.data(), large, '\x5a');
  if (rank() == 0) {
    put(first, source, stream);
    CHECK(MPIX_Host_stream_synchronize(host_stream) == MPI_SUCCESS);  // its data have left
  } else {
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    Capture errors(STDERR_FILENO);
    put(first, source, stream);
    const int code = MPIX_Host_stream_synchronize(host_stream);
    const std::string report = errors.end();
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    INFO(error_text(code) << "; report: " << report);
    CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
    CHECK(contains(report, "data of rank 0 of MPI_COMM_WORLD have not come: " + error_text(MPI_ERR_TRUNCATE)));
    CHECK(contains(report, "'pressure'"));
    CHECK(contains(report, "rank 0 has not"));
  }
  barrier();
  for (int epoch = 0; epoch < 3; ++epoch) {
    put(second, source, stream);
    stream.synchronize();
  }
  if (rank() == 1) CHECK(contents<char>(second.base(), large) == contents<char>(source.data(), large));
  barrier();
}
