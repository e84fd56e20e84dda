// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// killed SCENARIO: the last rank is killed, each rank being a node. The others must find out, in the time that
// MPIX_TIMEOUT gives them, and go on with each other. Started by killed.sh, without Catch2: its ranks end together.
#include <mpix.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/awake.h"
#include "support/slowdown.h"

/// Instead of MPI's own, which is collective, and so waits for the dead for ever: what is tested is all that libmpix
/// does in MPI_Win_free before and after.
extern "C" __attribute__((visibility("default"))) int PMPI_Win_free(MPI_Win* win) {
  *win = MPI_WIN_NULL;
  return MPI_SUCCESS;
}

namespace {

int rank = 0, size = 0, victim = 0;
std::atomic<const char*> doing{"the start"};
std::string handled;  ///< the text of the last error that came to the handler of a window

[[noreturn]] void fail(const std::string& what) {
  std::printf("survivor %d: FAILED at %s: %s\n", rank, doing.load(), what.c_str());
  std::fflush(stdout);
  _exit(1);
}

void require(bool holds, const std::string& what) {
  if (!holds) fail(what);
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void note_error(MPI_Win*, int* code, ...) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(*code, text, &length);
  handled = text;
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

/// Gone, or only not yet buried by its parent.
bool is_dead(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  std::string all;
  if (!std::getline(status, all)) return true;
  const std::size_t name_end = all.rfind(") ");
  return name_end == std::string::npos || all[name_end + 2] == 'Z' || all[name_end + 2] == 'X';
}

/// A window, its stream, and exchanges on it.
class Exchange {
 public:
  Exchange(const char* name, std::size_t part) : part_(part) {
    const auto bytes = static_cast<MPI_Aint>(part * static_cast<std::size_t>(size));
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base_, &win_);
    MPI_Win_set_name(win_, name);
    MPI_Errhandler handler;
    MPI_Win_create_errhandler(note_error, &handler);
    MPI_Win_set_errhandler(win_, handler);
    MPIX_Host_stream_create(&stream_);
    source_.resize(part);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  /// What follows is among these.
  void with(const std::vector<int>& ranks) {
    others_.clear();
    for (int other : ranks)
      if (other != rank) others_.push_back(other);
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(others_.size()), others_.data(), &group_);
  }

  int post() { return MPIX_Win_post_stream(group_, win_, stream_); }
  int access() {
    int code = MPI_Win_start(group_, MPIX_MODE_STREAM, win_);
    if (code != MPI_SUCCESS) return code;
    for (int other : others_) {
      code = MPI_Put(source_.data(), static_cast<int>(part_), MPI_BYTE, other, static_cast<MPI_Aint>(part_) * rank,
                     static_cast<int>(part_), MPI_BYTE, win_);
      if (code != MPI_SUCCESS) return code;
    }
    return MPIX_Win_complete_stream(win_, stream_);
  }
  int wait() { return MPIX_Win_wait_stream(win_, stream_); }
  int epoch() {
    int code = post();
    if (code == MPI_SUCCESS) code = access();
    if (code == MPI_SUCCESS) code = wait();
    return code;
  }
  int synchronize() { return MPIX_Host_stream_synchronize(stream_); }

  /// Epochs that have to work, one at a time, with other data each.
  void work(int epochs) {
    for (int k = 0; k < epochs; ++k) {
      fill();
      require(epoch() == MPI_SUCCESS && synchronize() == MPI_SUCCESS, "an epoch between living ranks: " + handled);
      for (int other : others_)
        for (std::size_t i : {std::size_t{0}, part_ / 2, part_ - 1})
          require(base_[part_ * static_cast<std::size_t>(other) + i] == value(other), "wrong data");
      ++epochs_;
    }
  }

  void fill() { std::memset(source_.data(), value(rank), part_); }
  int free() { return MPI_Win_free(&win_); }
  const char* part_of(int other) const { return base_ + part_ * static_cast<std::size_t>(other); }

 private:
  char value(int from) const { return static_cast<char>(1 + (from * 31 + epochs_ * 7) % 120); }

  const std::size_t part_;
  char* base_ = nullptr;
  MPI_Win win_ = MPI_WIN_NULL;
  MPIX_Host_stream stream_ = nullptr;
  MPI_Group group_ = MPI_GROUP_EMPTY;
  std::vector<int> others_;
  std::vector<char> source_;
  int epochs_ = 0;
};

/// What the victim does with the window before it dies.
void be_killed(const std::string& scenario, Exchange& shared) {
  if (scenario == "posted") {
    shared.post();
    shared.synchronize();
  } else if (scenario == "inflight") {
    shared.post();
    // The first bytes of the first origin are there, and not the last.
    for (const volatile char* first = shared.part_of(0); *first == 0;) std::this_thread::yield();
  } else if (scenario == "waiting" || scenario == "ahead") {
    usleep(500000);
  }
  die();
}

}  // namespace

int main(int argc, char* argv[]) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  const std::size_t part = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 64;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  victim = size - 1;
  const char* const timeout = std::getenv("MPIX_TIMEOUT");
  const double patience = timeout ? std::atof(timeout) : 2;
  const test::AwakeClock clock(test::ends_after(30 + 10 * patience, &doing));
  signal(SIGUSR1, SIG_IGN);  // how MPICH's mpiexec tells of it, which would end the program

  int pid = getpid();
  MPI_Bcast(&pid, 1, MPI_INT, victim, MPI_COMM_WORLD);
  std::vector<int> all, living;
  for (int r = 0; r < size; ++r) (r == victim ? all : living).push_back(r);
  all.insert(all.begin(), living.begin(), living.end());

  MPI_Comm survivors;
  MPI_Comm_split(MPI_COMM_WORLD, rank == victim, rank, &survivors);

  Exchange shared("shared", part), other("other", 300), big("big", 100000);
  shared.with(all);
  other.with(living);
  big.with(living);
  doing = "the epochs before";
  if (scenario != "before") shared.work(scenario == "inflight" ? 0 : 3);
  if (rank != victim) other.work(3);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == victim) be_killed(scenario, shared);
  const bool afterwards = scenario == "before" || scenario == "idle" || scenario == "posted";
  while (afterwards && !is_dead(pid)) usleep(1000);

  doing = "the epochs with the dead";
  shared.fill();
  const double begin = clock.seconds();
  int code = MPI_SUCCESS;
  for (int k = scenario == "ahead" ? 50 : 1; k > 0 && code == MPI_SUCCESS; --k) code = shared.epoch();
  const int first = code;
  const double called = clock.seconds() - begin;
  const int synchronized = shared.synchronize();
  const double took = clock.seconds() - begin;
  code = shared.post();
  std::printf("survivor %d: calls %.2f s (%s), synchronized after %.2f s (%s), then: %s\n", rank, called,
              first ? "error" : "ok", took, synchronized ? "error" : "ok", handled.c_str());
  std::fflush(stdout);
  while (!is_dead(pid)) usleep(1000);  // connections end before the process has
  require(code != MPI_SUCCESS, "a call on the broken window succeeded");
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  require(error_class == MPI_ERR_RMA_SYNC, "the error class");
  require(contains(handled, "rank " + std::to_string(victim)), "the error does not name the rank: " + handled);

  doing = "the epochs among the living";
  MPI_Barrier(survivors);  // one may have noticed later than another
  other.work(20);
  big.work(20);
  doing = "MPI_Win_free";
  const double freeing = clock.seconds();
  require(shared.free() == MPI_SUCCESS, "MPI_Win_free");
  const double freed = clock.seconds() - freeing;
  doing = "the epochs after that";
  other.work(20);
  big.work(20);
  doing = "the end";
  MPI_Barrier(survivors);
  require(other.free() == MPI_SUCCESS && big.free() == MPI_SUCCESS, "MPI_Win_free");
  std::printf("survivor %d: ok; freed in %.2f s\n", rank, freed);
  std::fflush(stdout);
  _exit(0);  // MPI_Finalize would wait for the dead
}
