// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What kernels of a domain call compiles with HIP.
#include "domain_kernels.h"
#include "mpix_device/together.h"

namespace test {

__global__ void random_operations_of_blocks(MPIX_Dev_param param, RandomTest t, char* parts, char* scratch,
                                            Findings* findings) {
  __shared__ MPIX_Dev_ctx c;
  if (mpix::dev::init(c, param, mpix::dev::block_team) != Result::ok) return;
  char* const mine[3] = {parts, parts, parts};
  RandomRank(c, t, mine, scratch, *findings).run();
  (void)mpix::dev::flush(c, 0);
  int window = -1;
  if (mpix::dev::win_open(c, mpix::dev::world, parts, 8, &window) == Result::ok) (void)mpix::dev::win_close(c, window);
  mpix::dev::finish(c);
}

__global__ void collectives_of_blocks(MPIX_Dev_param param, char* from, int root) {
  __shared__ MPIX_Dev_ctx c;
  if (mpix::dev::init(c, param, mpix::dev::warp_team) != Result::ok) return;
  (void)mpix::dev::put_notify_all(c, 0, root, 0, 64, from, 1);
  (void)mpix::dev::bcast(c, 0, root, 0, 64, 1);
  (void)mpix::dev::reduce<std::int32_t>(c, 0, root, 0, 8, mpix::dev::Combine::sum, 64, 1);
  (void)mpix::dev::reduce<double>(c, 0, root, 0, 8, mpix::dev::Combine::max, 64, 1);
  mpix::dev::finish(c);
}

}  // namespace test
