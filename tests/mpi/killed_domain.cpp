// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// killed_domain SCENARIO: of a domain the last process is killed while the ranks of all others wait for it: for its
// notification (wait), in a barrier (barrier), for room in its lanes (put), for it to take what was put (flush). The
// others have to be told by whom and for what, in the time that MPIX_TIMEOUT gives; with MPIX_ON_TIMEOUT=error their
// calls fail, and MPIX_Dev_free comes back. Started by killed.sh, without Catch2: its processes end together.
#include <fcntl.h>
#include <mpix_device.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "mpix.h"
#include "support/awake.h"

namespace {

constexpr int here = 2;
constexpr std::size_t part = 4096;

int process = 0, processes = 0, victim = 0;
std::atomic<const char*> doing{"the start"};
std::string told;  ///< on standard error, since the survivors wait

[[noreturn]] void fail(const std::string& what) {
  std::printf("survivor %d: FAILED at %s: %s; told: %s\n", process, doing.load(), what.c_str(), told.c_str());
  std::fflush(stdout);
  _exit(1);
}
void require(bool holds, const std::string& what) {
  if (!holds) fail(what);
}
bool contains(const std::string& text, const std::string& part_of_it) {
  return text.find(part_of_it) != std::string::npos;
}
int class_of(int code) {
  int found = MPI_SUCCESS;
  MPI_Error_class(code, &found);
  return found;
}

struct Work {
  std::string scenario;
  MPIX_Dev_win window;
  char* base;
  std::atomic<int> waiting{0}, over{0};
  int codes[here] = {};
};

/// Until it fails.
int wait_for_the_dead(MPIX_Dev_ctx* dev, const Work& work, char* mine) {
  const int dead = victim * here;
  if (work.scenario == "wait") return MPIX_Dev_wait(dev, work.window, dead, 7, 1);
  if (work.scenario == "barrier") return MPIX_Dev_barrier(dev, MPIX_DEV_WORLD);
  int code = MPI_SUCCESS;
  while (code == MPI_SUCCESS) {
    code = MPIX_Dev_put_notify(dev, work.window, dead, 0, work.scenario == "put" ? 0 : 16, mine, 3);
    if (code == MPI_SUCCESS && work.scenario == "flush") code = MPIX_Dev_flush(dev, work.window);
  }
  return code;
}

/// What a rank that waits for the dead is said to wait for.
std::string report_of(const Work& work, int rank) {
  const std::string who = "rank " + std::to_string(rank) + " (process " + std::to_string(process) + ") waits ";
  const std::string dead = std::to_string(victim * here);
  if (work.scenario == "wait")
    return who + "for 1 of 1 notifications: window " + std::to_string(work.window) + ", source " + dead + ", tag 7";
  if (work.scenario == "barrier") return who + "in a barrier of MPIX_DEV_WORLD";
  if (work.scenario == "flush") return who + "in MPIX_Dev_flush";
  return who + "for room in the lane to rank " + dead;
}

void rank_of_domain(MPIX_Dev_param param, void* argument) {
  Work& work = *static_cast<Work*>(argument);
  MPIX_Dev_ctx dev;
  if (MPIX_Dev_init(&dev, param) != MPI_SUCCESS) return;
  const int mine = MPIX_Dev_rank(&dev, MPIX_DEV_DEVICE);
  char* const own = work.base + part * static_cast<std::size_t>(mine);
  // All are there, and have sent something to each other.
  const int all = MPIX_Dev_size(&dev, MPIX_DEV_WORLD), me = MPIX_Dev_rank(&dev, MPIX_DEV_WORLD);
  for (int to = 0; to < all; ++to) MPIX_Dev_put_notify(&dev, work.window, to, 64, 16, own, 1);
  int code = MPIX_Dev_wait(&dev, work.window, MPIX_DEV_ANY_SOURCE, 1, all);
  if (code == MPI_SUCCESS) code = MPIX_Dev_flush(&dev, work.window);
  if (code == MPI_SUCCESS) code = MPIX_Dev_barrier(&dev, MPIX_DEV_WORLD);
  if (code != MPI_SUCCESS) {
    std::printf("rank %d: FAILED before: %d\n", me, code);
    std::fflush(stdout);
    _exit(1);
  }
  if (process == victim) {
    ++work.waiting;
    if (mine != 0)
      for (;;) pause();
    while (work.waiting < here) usleep(1000);
    usleep(300000);
    kill(getpid(), SIGKILL);
  }
  ++work.waiting;
  work.codes[mine] = wait_for_the_dead(&dev, work, own);
  ++work.over;
  MPIX_Dev_finish(&dev);
}

/// What has come there by now; it goes where it belongs, too.
void read_told(int from, int to) {
  char text[4096];
  for (ssize_t got; (got = read(from, text, sizeof text)) > 0;) {
    told.append(text, static_cast<std::size_t>(got));
    if (write(to, text, static_cast<std::size_t>(got)) < 0) break;
  }
}

}  // namespace

int main(int argc, char* argv[]) {
  Work work;
  work.scenario = argc > 1 ? argv[1] : "wait";
  const double patience = std::atof(std::getenv("MPIX_TIMEOUT"));
  const std::string on_timeout = std::getenv("MPIX_ON_TIMEOUT");
  int pipes[2];
  const int old = dup(2);
  if (old < 0 || pipe(pipes) != 0 || dup2(pipes[1], 2) < 0 || fcntl(pipes[0], F_SETFL, O_NONBLOCK) < 0) fail("a pipe");

  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  victim = processes - 1;
  const test::AwakeClock clock(test::ends_after(30 + 10 * patience, &doing));
  signal(SIGUSR1, SIG_IGN);  // how MPICH's mpiexec tells of it, which would end the program

  doing = "the creation";
  MPIX_Dev dev = MPIX_DEV_NULL;
  void* memory = nullptr;
  require(MPIX_Dev_create(MPI_COMM_WORLD, here, MPI_INFO_NULL, &dev) == MPI_SUCCESS, "MPIX_Dev_create");
  require(MPIX_Dev_alloc(dev, here * part, &memory) == MPI_SUCCESS, "MPIX_Dev_alloc");
  work.base = static_cast<char*>(memory);
  void* bases[here];
  std::size_t sizes[here];
  for (int i = 0; i < here; ++i) bases[i] = work.base + part * static_cast<std::size_t>(i), sizes[i] = part;
  require(MPIX_Dev_win_create(dev, bases, sizes, &work.window) == MPI_SUCCESS, "MPIX_Dev_win_create");
  require(MPIX_Dev_launch_host(dev, rank_of_domain, &work, nullptr) == MPI_SUCCESS, "MPIX_Dev_launch_host");

  doing = "the beginning of the wait";
  while (work.waiting < here) usleep(1000);
  const double begin = clock.seconds();
  doing = "the wait for a report";
  const std::string lost = "process " + std::to_string(victim) + " cannot be reached";
  const auto is_told = [&] {
    read_told(pipes[0], old);
    if (contains(told, lost)) return true;  // over a network that may be seen sooner
    int ranks_told = 0;
    for (int i = 0; i < here; ++i) ranks_told += contains(told, report_of(work, process * here + i));
    // The first report of a domain that breaks ends the waits of ranks that have come to theirs later.
    return ranks_told == here || (on_timeout == "error" && ranks_told > 0);
  };
  while (!is_told()) usleep(1000);
  const double reported = clock.seconds() - begin;
  require(reported < 3 * patience, "the report took " + std::to_string(reported) + " s");
  const bool is_lost = contains(told, lost);
  double freed = 0;
  if (on_timeout == "error") {
    doing = "the end of the wait";
    while (work.over < here) usleep(1000);
    for (const int code : work.codes) require(code == MPI_ERR_RMA_SYNC, "the call returned " + std::to_string(code));
    MPIX_Host_stream_synchronize(nullptr);
    int failed = MPI_SUCCESS;
    char text[512] = "";
    require(MPIX_Dev_error(dev, 0, &failed, text, sizeof text) == MPI_SUCCESS && failed == MPI_ERR_RMA_SYNC &&
                contains(text, "rank " + std::to_string(process * here) + ", MPIX_Dev_"),
            text);
    require(class_of(MPIX_Dev_launch_host(dev, rank_of_domain, &work, nullptr)) == MPI_ERR_RMA_SYNC,
            "a launch of a broken domain");
    doing = "MPIX_Dev_free";
    const double freeing = clock.seconds();
    require(MPIX_Dev_free(&dev) != MPI_SUCCESS && dev == MPIX_DEV_NULL, "MPIX_Dev_free");
    freed = clock.seconds() - freeing;
  }
  std::printf("survivor %d: ok; %s after %.2f s of %.0f, freed in %.2f s\n", process, is_lost ? "lost" : "reported",
              reported, patience, freed);
  std::fflush(stdout);
  _exit(0);  // MPI_Finalize would wait for the dead
}
