// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// killed_requests SCENARIO: the last process is killed while blocks of all others wait for a message from it: by a
// device request (request), for the reply of a channel whose handler has begun to receive it (channel), or in an
// exchange of a halo, by MPI (halo) or by memory (halo_by_memory). The others have to be told who waits for what, in
// the time that MPIX_TIMEOUT gives; with MPIX_ON_TIMEOUT=error the waits end, in kernels of the program with
// MPIX_DEV_RELEASED, and what they waited with can be freed. Started by killed.sh: its processes end together.
#include <fcntl.h>
#include <mpi.h>
#include <mpix.h>
#include <mpix_device.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "support/awake.h"
#include "support/channel.h"

namespace {

int process = 0, processes = 0;
std::atomic<const char*> doing{"the start"};
std::string told;  ///< on standard error

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("survivor %d: FAILED at %s: %s; told: %s\n", process, doing.load(), what.c_str(), told.c_str());
  std::fflush(stdout);
  _exit(1);
}

int class_of(int code) {
  int found = MPI_SUCCESS;
  MPI_Error_class(code, &found);
  return found;
}

/// What has come there by now; it goes where it belongs, too.
bool is_told(int from, int to, const std::string& what) {
  char text[4096];
  for (ssize_t got; (got = read(from, text, sizeof text)) > 0;) {
    told.append(text, static_cast<std::size_t>(got));
    if (write(to, text, static_cast<std::size_t>(got)) < 0) break;
  }
  return told.find(what) != std::string::npos;
}

std::atomic<int> result{-1};

struct WaitForMessage {
  MPIX_Drequest request;
  void operator()(const MPIX_Dev_team&) const {
    MPIX_Drequest mine = request;
    const int started = MPIX_Start(&mine);
    result = started ? started + 100 : MPIX_Wait(&mine, MPI_STATUS_IGNORE);
  }
};

struct WaitForReply {
  MPIX_Dev_channel channel;
  void operator()(const MPIX_Dev_team& team) const {
    std::uint64_t ticket = 0;
    const int posted = MPIX_Dev_block_post(team, channel, 0, 1, nullptr, 0, &ticket);
    result = posted ? posted + 100 : MPIX_Dev_block_reply_wait(team, channel, ticket, nullptr);
  }
};

/// A message to and from that rank.
MPIX_Halo halo_of(int peer) {
  static std::uint64_t out = 1, in = 0;
  const MPIX_Box from{&out, 8, 1, {1, 0, 0}, {8, 0, 0}, 1, 0}, to{&in, 8, 1, {1, 0, 0}, {8, 0, 0}, 1, 0};
  const MPIX_Halo_message message{peer, 5, 5, 1, 1, &from, &to};
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, MPI_INFO_NULL, &halo));
  return halo;
}

}  // namespace

int main(int argc, char* argv[]) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  const bool by_request = scenario == "request", by_channel = scenario == "channel";
  if (scenario == "halo_by_memory") setenv("MPIX_NODE_SIZE", "0", 1);
  const double patience = std::atof(std::getenv("MPIX_TIMEOUT"));
  const bool fails = std::strcmp(std::getenv("MPIX_ON_TIMEOUT"), "error") == 0;
  int pipes[2];
  const int old = dup(2);
  require(old >= 0 && pipe(pipes) == 0 && dup2(pipes[1], 2) >= 0 && fcntl(pipes[0], F_SETFL, O_NONBLOCK) >= 0,
          "a pipe");
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const int victim = processes - 1;
  const test::AwakeClock clock(test::ends_after(30 + 10 * patience, &doing));
  signal(SIGUSR1, SIG_IGN);  // how MPICH's mpiexec tells of it, which would end the program

  static int word = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPIX_Drequest drequest{};
  MPIX_Channel channel = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device{};
  MPIX_Halo halo = MPIX_HALO_NULL;
  doing = "the creation";
  if (!by_request && !by_channel) halo = halo_of(process == victim ? 0 : victim);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (process == victim) {
    usleep(300000);
    kill(getpid(), SIGKILL);
  }
  if (by_request) {
    CHECK_MPI(MPI_Recv_init(&word, 1, MPI_INT, victim, 5, MPI_COMM_WORLD, &request));
    CHECK_MPI(MPIX_Get_drequest(request, &drequest));
    support::launch_blocks(WaitForMessage{drequest}, 1, 1);
  } else if (halo) {
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
  } else {
    CHECK_MPI(MPIX_Channel_create(1, 0, MPI_INFO_NULL, &channel));
    CHECK_MPI(MPIX_Channel_set_handler(
        channel, 1,
        [](MPIX_Channel, const MPIX_Task*, void* arg) {
          return MPI_Irecv(&word, 1, MPI_INT, processes - 1, 5, MPI_COMM_WORLD, static_cast<MPI_Request*>(arg));
        },
        &request));
    CHECK_MPI(MPIX_Channel_get_device(channel, &device));
    CHECK_MPI(MPIX_Channel_arm(channel));
    support::launch_blocks(WaitForReply{device}, 1, 1);
  }

  doing = "the wait for a report";
  const double begin = clock.seconds();
  const std::string from = "rank " + std::to_string(victim);
  const std::string what = by_request ? "receive from " + from + ", tag 5"
                           : by_channel
                               ? "lane 0 (block 0) waits for reply 1: its task was posted, and nobody has replied"
                               : "block 0 waits: message 0 (" + from + ", send tag 5, receive tag 5) of exchange 1";
  while (!is_told(pipes[0], old, what)) usleep(1000);
  const double reported = clock.seconds() - begin;
  require(reported < 3 * patience, "the report took " + std::to_string(reported) + " s");
  if (fails) {
    doing = "the end of the wait";
    while (!halo && result < 0) usleep(1000);
    require(halo || result == MPIX_DEV_RELEASED, "the wait has returned " + std::to_string(result));
    require((MPIX_Host_stream_synchronize(nullptr) == MPI_SUCCESS) == !halo, "MPIX_Host_stream_synchronize");
    doing = "the end";
    if (by_request) {
      require(MPIX_Free_drequest(&drequest) == MPI_SUCCESS && drequest.state == nullptr, "MPIX_Free_drequest");
    } else if (halo) {
      require(class_of(MPIX_Halo_exchange_stream(halo, nullptr)) == MPI_ERR_OTHER, "MPIX_Halo_exchange_stream");
      require(class_of(MPIX_Halo_free(&halo)) == MPI_ERR_OTHER && halo == MPIX_HALO_NULL, "MPIX_Halo_free");
      require(clock.seconds() - begin < 5 * patience, "the end took as long");
    } else {
      require(class_of(MPIX_Channel_disarm(channel)) == MPI_ERR_OTHER, "MPIX_Channel_disarm");
      require(MPIX_Channel_free(&channel) == MPI_SUCCESS && channel == MPIX_CHANNEL_NULL, "MPIX_Channel_free");
    }
  }
  std::printf("survivor %d: ok; reported after %.2f s of %.0f\n", process, reported, patience);
  std::fflush(stdout);
  _exit(0);  // what is left of MPI would wait for the dead
}
