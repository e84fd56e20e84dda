// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Compiled, not run: mpix.hpp is C++17, may be included twice, and has what it promises.
#include <mpix.hpp>

#include <memory>

static_assert(std::is_base_of_v<std::runtime_error, mpix::Error>);
static_assert(std::is_nothrow_move_constructible_v<mpix::Stream> && !std::is_copy_constructible_v<mpix::Stream>);
static_assert(std::is_nothrow_move_constructible_v<mpix::Group> && !std::is_copy_constructible_v<mpix::Group>);
static_assert(!std::is_move_constructible_v<mpix::Access> && !std::is_move_constructible_v<mpix::Exposure>);

void use(MPI_Win win, void* stream_of_a_gpu);
void use(MPI_Win win, void* stream_of_a_gpu) {
  const mpix::Group group(MPI_COMM_WORLD, {0, 1});
  mpix::Stream stream;
  stream.launch([only = std::make_unique<int>(1)] { (void)*only; });
  mpix::Exposure exposure(group, win, stream_of_a_gpu);
  mpix::Access access(group, win, stream_of_a_gpu);
  const float values[] = {1, 2};
  access.put(values, 2, 1, 0);
  mpix::complete_wait(access, exposure);
}
