// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The main program of the MPI tests: one Catch2 session per rank, in step.
//
// The ranks agree after every test case, so that they stay in step when one of them failed. Ranks
// other than 0 write to memory, and show it only when something failed.
// Catch2's version 2 is compiled here, all of it: unoptimized in 17 s, optimized in 32.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O0")
#endif
#define CATCH_CONFIG_RUNNER
#include "support/capture.h"
#include "support/catch.h"
#include "support/device.h"
#include "support/world.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

MPI_Comm agreement = MPI_COMM_NULL;  // no collective of a test case can mix with ours
int world_rank = 0;
int world_size = 1;
std::atomic<int> failures{0};         // of the running test case, that Catch2 does not know of
std::atomic<bool> any_failed{false};  // in this rank, ever
std::atomic<long> checks{0};          // likewise
std::atomic<long> all_checks{0};
bool case_skipped = false;
int cases_run = 0;
int cases_skipped = 0;

/// What a rank other than 0 prints.
class Output {
 public:
  void keep() {
    terminal_ = dup(STDOUT_FILENO);
    errors_ = dup(STDERR_FILENO);  // a test case may redirect its own
    if (world_rank == 0) return;
    memory_ = memfd_create("output", 0);
    if (memory_ >= 0) dup2(memory_, STDOUT_FILENO);
  }

  void show() {
    std::fflush(nullptr);
    if (memory_ < 0) return;
    const off_t length = lseek(memory_, 0, SEEK_END);
    std::vector<char> text(static_cast<std::size_t>(length));
    const ssize_t got = pread(memory_, text.data(), text.size(), 0);
    dprintf(terminal_, "==== rank %d ====\n%.*s\n", world_rank, static_cast<int>(got), text.data());
    if (ftruncate(memory_, 0) == 0) lseek(memory_, 0, SEEK_SET);  // shown once
  }

  int errors() const { return errors_; }

 private:
  int terminal_ = STDOUT_FILENO;
  int errors_ = STDERR_FILENO;
  int memory_ = -1;
};

Output output;
pid_t running = 0;  // this process, until its tests have ended

/// MPI ends a process by exit() when an error is fatal.
void show_what_is_kept() {
  if (getpid() != running) return;
  test::Capture::show_open(output.errors());
  output.show();
}

/// Aborts the process when nobody has called extend() for too long.
class Watchdog {
 public:
  void start() {
    limit_ = std::chrono::seconds(test::parameter("TEST_TIMEOUT", 60) * test::slowdown());
    extend("the start", limit_);
    thread_ = std::thread([this] { watch(); });
  }

  void stop() {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void name(const std::string& test_case) {
    std::lock_guard<std::mutex> hold(mutex_);
    test_case_ = test_case;
  }

  void extend(const std::string& where) { extend(where, limit_); }

  /// When this rank has failed, the others may be waiting for what will never come.
  void hurry(const std::string& where) { extend(where, std::chrono::seconds(5 * test::slowdown())); }

 private:
  void extend(const std::string& where, Clock::duration patience) {
    std::lock_guard<std::mutex> hold(mutex_);
    where_ = where;
    deadline_ = Clock::now() + patience;
  }

  void watch() {
    std::unique_lock<std::mutex> hold(mutex_);
    while (!stop_) {
      if (Clock::now() >= deadline_) {
        output.show();
        dprintf(output.errors(), "rank %d: watchdog: test case '%s' is stuck at or after %s\n", world_rank,
                test_case_.c_str(), where_.c_str());
        std::signal(SIGABRT, SIG_DFL);  // Catch2 has nothing to add
        std::abort();
      }
      changed_.wait_until(hold, deadline_);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string test_case_;
  std::string where_;
  Clock::duration limit_{};
  Clock::time_point deadline_;
  bool stop_ = false;
  std::thread thread_;
};

Watchdog& watchdog = *new Watchdog;  // a child of fork() has not its thread, and may end by exit()

int sum_over_ranks(int value) {
  int sum = 0;
  MPI_Request request;
  MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, agreement, &request);
  test::wait(request);
  return sum;
}

#if CATCH_VERSION_MAJOR >= 3
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

class RanksInStep : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    ListenerBase::testCaseStarting(info);
    failures = 0;
    checks = 0;
    case_skipped = false;
    ++cases_run;
    watchdog.name(info.name);
    watchdog.extend("its start");
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ListenerBase::testCaseEnded(stats);
    try {
      test::device().end_case();
    } catch (const std::exception&) {  // reported where it was thrown
    }
    if (case_skipped) ++cases_skipped;
    if (checks == 0 && stats.totals.assertions.total() == 0 && !case_skipped)
      test::fail(__FILE__, __LINE__, "the test case has checked nothing");
    all_checks += checks;
    const bool bad = failures > 0 || !stats.totals.assertions.allOk();
    if (bad) {
      any_failed = true;
      watchdog.hurry("its end, where this rank has failed and others may not come");
    } else {
      watchdog.extend("its end, waiting for the other ranks");
    }
    const int ranks = sum_over_ranks(bad ? 1 : 0);
    if (ranks > 0 && world_rank == 0) std::printf("failed on %d of %d ranks\n", ranks, world_size);
  }
};

}  // namespace

namespace test {

int rank() { return world_rank; }
int size() { return world_size; }

void wait(MPI_Request& request) {
  int done = 0;
  useconds_t nap = 0;
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
    usleep(nap);
    if (nap < 200) nap += 10;
  }
}

void barrier(MPI_Comm comm) {
  MPI_Request request;
  MPI_OK(MPI_Ibarrier(comm, &request));
  wait(request);
}

bool on_all_ranks(bool holds) { return sum_over_ranks(holds ? 0 : 1) == 0; }

long parameter(const char* name, long preset) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtol(text, nullptr, 10) : preset;
}

void alive(const std::string& where) { watchdog.extend(where); }

void fail(const char* file, int line, const std::string& what) {
  any_failed = true;
  if (++failures > 10) return;  // the first ones tell
  std::printf("%s:%d: rank %d failed: %s\n", file, line, world_rank, what.c_str());
  std::fflush(stdout);
}

void checked(long count) { checks.fetch_add(count, std::memory_order_relaxed); }

bool failed() { return failures > 0; }

void skip(const std::string& reason) {
  std::printf("skipped: %s\n", reason.c_str());
  case_skipped = true;
}

int scaled(int count) {
  return std::max(std::min(count, 3), static_cast<int>(count * parameter("TEST_SCALE", 100) / 100));
}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

int error_class(int code) {
  int of_code = MPI_SUCCESS;
  MPI_Error_class(code, &of_code);
  return of_code;
}

void require_success(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  const std::string what = std::string(call) + " returned: " + error_text(code);
  fail(file, line, what);  // at once: unwinding may get stuck
  throw std::runtime_error(what);
}

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&body, i] {
      try {
        body(i);
      } catch (const std::exception& error) {
        fail("thread", i, error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace test

CATCH_REGISTER_LISTENER(RanksInStep)

int main(int argc, char* argv[]) {
  // The library's own report of a stuck wait comes before the watchdog.
  setenv("MPIX_TIMEOUT", std::to_string(20 * test::time_scale()).c_str(), 0);
  test::prepare_device();
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Comm_dup(MPI_COMM_WORLD, &agreement);
  if (provided != MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "this MPI has no MPI_THREAD_MULTIPLE\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  output.keep();
  running = getpid();
  std::atexit(show_what_is_kept);
  watchdog.start();
  try {
    test::start_device(world_rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world_rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (world_rank == 0) std::printf("device: %s\n", test::device().name());

  // The same order on all ranks, whatever this version of Catch2 does by default.
  std::vector<char*> arguments(argv, argv + argc);
  char order[] = "--order=decl";
  arguments.push_back(order);
  Catch::Session session;
  int verdict = session.applyCommandLine(static_cast<int>(arguments.size()), arguments.data());
  if (verdict == 0) verdict = session.run();
  if (world_rank == 0) std::printf("checks in threads and streams of rank 0: %ld\n", all_checks.load());

  if (verdict != 0 || any_failed) {
    watchdog.hurry("the end, where this rank has failed");
    output.show();
    verdict = 1;
  }
  const bool failed = sum_over_ranks(verdict != 0 ? 1 : 0) > 0;
  const bool skipped = cases_run > 0 && cases_run == cases_skipped;
  test::stop_device();
  MPI_Comm_free(&agreement);
  MPI_Finalize();
  watchdog.stop();
  running = 0;
  return failed ? 1 : skipped ? 77 : 0;
}
