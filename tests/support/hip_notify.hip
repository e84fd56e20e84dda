// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What kernels call of channels, device requests and halos compiles with HIP.
#include <mpi.h>
#include <mpix.h>
#include <mpix_device.h>

namespace test {

__global__ void use_channel(MPIX_Dev_channel channel, int* results) {
  const MPIX_Dev_team team = MPIX_Dev_team_this();
  const uint64_t words[2] = {team.block, MPIX_Dev_clock()};
  uint64_t ticket = 0, value = 0;
  int yes = 0, failed = 0;
  failed |= MPIX_Dev_block_post(team, channel, team.block, 1, words, 2, &ticket);
  failed |= MPIX_Dev_block_reply_wait(team, channel, ticket, &value);
  failed |= MPIX_Dev_block_flag_set(team, channel, team.block, value);
  failed |= MPIX_Dev_block_flag_wait(team, channel, team.block, value);
  MPIX_Dev_sync(team);
  if (team.thread != 0) return;
  failed |= MPIX_Dev_post(channel, team.block, 2, words, 1, &ticket);
  failed |= MPIX_Dev_reply_test(channel, ticket, &yes, &value);
  failed |= MPIX_Dev_reply_wait(channel, ticket, &value);
  failed |= MPIX_Dev_post_event(channel, team.block, 3, words, 1);
  failed |= MPIX_Dev_flag_set(channel, team.block, value + 1);
  failed |= MPIX_Dev_flag_test(channel, team.block, value + 1, &yes);
  failed |= MPIX_Dev_flag_wait(channel, team.block, value + 1);
  results[team.block] = failed;
}

__global__ void use_requests(MPIX_Drequest send, MPIX_Drequest receive, int* results) {
  if (threadIdx.x != 0) return;
  MPIX_Drequest both[2] = {send, receive};
  int flag = 0, index = 0, failed = 0;
  failed |= MPIX_Start(&both[0]) | MPIX_Start(both[1]);
  failed |= MPIX_Test(&both[0], &flag, MPI_STATUS_IGNORE) | MPIX_Wait(&both[0], MPI_STATUS_IGNORE);
  failed |= MPIX_Testany(2, both, &index, &flag, MPI_STATUS_IGNORE) | MPIX_Waitany(2, both, &index, MPI_STATUS_IGNORE);
  failed |= MPIX_Startall(2, both) | MPIX_Testall(2, both, &flag, MPI_STATUSES_IGNORE);
  failed |= MPIX_Waitall(2, both, MPI_STATUSES_IGNORE);
  failed |= MPIX_Pready(0, &send) | MPIX_Pready_range(1, 2, &send) | MPIX_Parrived(&receive, 0, &flag);
  results[blockIdx.x] = failed;
}

__global__ void use_halo(MPIX_Dev_halo halo, int* results) {
  const MPIX_Dev_team team = MPIX_Dev_team_this();
  uint64_t step = MPIX_Dev_halo_begin(team, halo);
  int failed = MPIX_Dev_halo_exchange(team, halo, ++step);
  failed |= MPIX_Dev_halo_sync(team, halo);
  failed |= MPIX_Dev_halo_send(team, halo, team.block, ++step);
  failed |= MPIX_Dev_halo_receive(team, halo, team.block, step);
  if (team.thread == 0) results[team.block] = failed;
}

}  // namespace test
