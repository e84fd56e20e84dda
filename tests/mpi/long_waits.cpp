// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Reports of waits for one word by several blocks, which are threads here: they come in time and say what is missing
// first; and none of waits that are no hang, though together they last for long.
//
//   mpiexec -n 1 long_waits flags|blocks|meetings|room      (MPIX_TIMEOUT=1 MPIX_ON_TIMEOUT=error)
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "support/channel_handles.h"
#include "support/halo_cube.h"
#include "support/slowdown.h"

namespace {

std::chrono::milliseconds milliseconds(int count) { return std::chrono::milliseconds(count) * test::time_scale(); }

using Body = std::function<void(const MPIX_Dev_team&)>;
void launch(int blocks, Body& body) {
  CHECK_MPI(MPIX_Host_stream_launch_grid(
      nullptr, blocks, [](const MPIX_Dev_team* team, void* of) { (*static_cast<Body*>(of))(*team); }, &body));
}

/// Each block waits for a number of its own, and only the first one's comes.
void flags(int) {
  for (int again = 0; again < 3; ++again) {
    Channel channel(0, 1);
    const MPIX_Dev_channel device = channel.device();
    int results[6] = {};
    Body body = [&](const MPIX_Dev_team& team) { results[team.block] = MPIX_Dev_flag_wait(device, 0, 5 + team.block); };
    launch(6, body);
    std::this_thread::sleep_for(milliseconds(300));
    CHECK_MPI(MPIX_Channel_flag_set(channel, 0, 5));
    CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
    for (int block = 0; block < 6; ++block) EXPECT(results[block] == (block == 0 ? MPIX_DEV_DONE : MPIX_DEV_RELEASED));
    EXPECT_ERROR(MPIX_Channel_flag_set(channel, 0, 9), MPI_ERR_OTHER,
                 "flag 0 is awaited to become 6, by block 1 of a kernel");
  }
}

MPIX_Halo halo_with_itself() {
  static std::uint64_t data[32];
  static const MPIX_Box from{data, 8, 1, {16, 0, 0}, {8, 0, 0}, 1, 0}, to{data + 16, 8, 1, {16, 0, 0}, {8, 0, 0}, 1, 0};
  const MPIX_Halo_message self{0, 1, 1, 1, 1, &from, &to};
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_SELF, 1, &self, Info(Keys{}), &halo));
  return halo;
}

/// The last block does not come to the second meeting.
void blocks(int) {
  for (int again = 0; again < 3; ++again) {
    MPIX_Halo halo = halo_with_itself();
    MPIX_Dev_halo device;
    CHECK_MPI(MPIX_Halo_get_device(halo, &device));
    int results[4] = {};
    Body body = [&](const MPIX_Dev_team& team) {
      (void)MPIX_Dev_halo_begin(team, device);
      if (team.block < 3) results[team.block] = MPIX_Dev_halo_sync(team, device);
    };
    launch(4, body);
    CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
    for (int block = 0; block < 3; ++block) EXPECT(results[block] == MPIX_DEV_RELEASED);
    EXPECT_ERROR(MPIX_Halo_free(&halo), MPI_ERR_OTHER, "3 of 4 blocks of a grid have come to a meeting");
  }
}

/// One block is late for each of many meetings.
void meetings(int) {
  MPIX_Halo halo = halo_with_itself();
  MPIX_Dev_halo device;
  CHECK_MPI(MPIX_Halo_get_device(halo, &device));
  std::atomic<int> wrong{0};
  Body body = [&](const MPIX_Dev_team& team) {
    (void)MPIX_Dev_halo_begin(team, device);
    for (int i = 0; i < 10; ++i) {
      if (team.block == 1) std::this_thread::sleep_for(milliseconds(300));
      if (MPIX_Dev_halo_sync(team, device) != MPIX_DEV_DONE) ++wrong;
    }
  };
  launch(2, body);
  CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
  EXPECT(wrong == 0);
  CHECK_MPI(MPIX_Halo_free(&halo));
}

int slow(MPIX_Channel, const MPIX_Task*, void*) {
  std::this_thread::sleep_for(milliseconds(600));
  return MPI_SUCCESS;
}

/// Handlers take their time, each less than is reported.
void room(int) {
  Channel channel(3, 0, {{"mpix_tasks", "lanes"}, {"mpix_depth", "4"}, {"mpix_service", "own"}});
  channel.handle(0, slow, nullptr);
  CHECK_MPI(MPIX_Channel_arm(channel));
  const MPIX_Dev_channel device = channel.device();
  std::atomic<int> wrong{0};
  Body body = [&](const MPIX_Dev_team& team) {
    for (int i = 0; i < 6; ++i)
      if (MPIX_Dev_post(device, team.block, 0, nullptr, 0, nullptr) != MPIX_DEV_DONE) ++wrong;
  };
  launch(3, body);
  CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
  CHECK_MPI(MPIX_Channel_disarm(channel));
  EXPECT(wrong == 0);
  EXPECT(channel.stats().tasks == 18);
}

}  // namespace

int main(int argc, char** argv) {
  return run_case(argc, argv, {{"flags", flags}, {"blocks", blocks}, {"meetings", meetings}, {"room", room}});
}
