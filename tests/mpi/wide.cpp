// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Epochs into a window that is far larger than the memory of the machine, which takes memory by what is put alone. Of
// the host: it takes memory that is backed page by page.
#include <sys/mman.h>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

TEST_CASE("a window of 64 GiB, of which epochs use a little") {
  constexpr std::size_t bytes = std::size_t{1} << 36, most = 400000;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  MPI_Win window;
  MPI_OK(MPI_Win_create(memory, static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  const int to = right_of(rank()), from = left_of(rank());
  const Group origins(from), targets(to);
  {
    Stream stream;
    Buffer source(most);
    for (std::uint64_t epoch = 1; epoch <= 30; ++epoch) {
      const std::size_t size = 1 + key({epoch}) % most, at = key({epoch, 1}) % (bytes - size);
      MPI_OK(MPIX_Win_post_stream(origins, window, stream));
      stream.fill(source.data(), size, Pattern(key({epoch, static_cast<std::uint64_t>(rank())})));
      MPI_OK(MPI_Win_start(targets, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(source.data(), static_cast<int>(size), MPI_BYTE, to, static_cast<MPI_Aint>(at),
                     static_cast<int>(size), MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      stream.check(static_cast<char*>(memory) + at, size, Pattern(key({epoch, static_cast<std::uint64_t>(from)})),
                   HERE("epoch " << epoch));
    }
    stream.synchronize();
    MPI_OK(MPI_Win_free(&window));
  }
  munmap(memory, bytes);
}
