// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What the library does to the process around it: nothing that the program can see.
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "support/catch.h"
#include "support/epochs.h"
#include "support/scarce_memory.h"

using namespace test;

namespace {

const bool settings_made = setenv("MPIX_TIMEOUT", "20", 1) == 0 && setenv("MPIX_ON_TIMEOUT", "error", 1) == 0;

/// Of each signal, as text: two are equal when they do the same.
std::vector<std::string> handlers() {
  constexpr int restorer = 0x04000000;  // the C library's own
  std::vector<std::string> all;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    std::string text = std::to_string(number) + ": " +
                       std::to_string(reinterpret_cast<std::uintptr_t>(action.sa_sigaction)) + " flags " +
                       std::to_string(action.sa_flags & ~restorer) + " blocks";
    for (int other = 1; other < NSIG; ++other)
      if (sigismember(&action.sa_mask, other) == 1) text += " " + std::to_string(other);
    all.push_back(text);
  }
  return all;
}

std::vector<int> blocked() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::vector<int> all;
  for (int number = 1; number < NSIG; ++number)
    if (sigismember(&mask, number) == 1) all.push_back(number);
  return all;
}

std::vector<std::string> environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) all.push_back(*entry);
  std::sort(all.begin(), all.end());
  return all;
}

/// What is in `after` and was not before.
std::vector<std::string> added(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  std::vector<std::string> all;
  for (const std::string& one : after)
    if (std::find(before.begin(), before.end(), one) == before.end()) all.push_back(one);
  return all;
}

volatile sig_atomic_t caught = 0;

int threads() {
  int count = 0;
  DIR* const directory = opendir("/proc/self/task");
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

/// Those of libfabric's sockets, which come when the network is opened.
bool provider_has_threads() {
  const char* setting = std::getenv("MPIX_NIC");
  return spans_nodes() && setting && std::string(setting) == "sockets";
}

/// As a program does it that knows nothing of streams.
void ordinary_epoch() {
  alignas(16) int memory[2] = {0, 0};  // MPICH 4.0.2 itself puts 8 bytes too low where a window begins at 8 modulo 16
  const int value = 1 + rank();
  MPI_Win win;
  MPI_OK(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  MPI_OK(MPI_Win_fence(0, win));
  MPI_OK(MPI_Put(&value, 1, MPI_INT, right_of(rank()), 0, 1, MPI_INT, win));
  MPI_OK(MPI_Win_fence(0, win));
  MPI_OK(MPI_Win_free(&win));
  CHECK(memory[0] == 1 + left_of(rank()));
}

std::atomic<bool> no_threads{false};
std::atomic<int> open_receives{0};  ///< that take messages of anybody
thread_local bool no_memory = false;

/// A call that needs a thread fails where there can be none, and has changed nothing.
void without_threads() {
  MPIX_Host_stream stream = nullptr;
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  no_threads = true;
  CHECK(error_class(MPIX_Host_stream_create(&stream)) == MPI_ERR_NO_MEM);
  no_threads = false;
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  MPI_OK(MPIX_Host_stream_create(&stream));
  int memory = 0, value = 1 + rank();
  MPI_Win win;
  MPI_OK(MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  MPI_OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
  Group to(right_of(rank())), from(left_of(rank()));
  no_threads = true;
  const int code = MPIX_Win_post_stream(from, win, stream);
  no_threads = false;
  CHECK(error_class(code) == (spans_nodes() ? MPI_ERR_NO_MEM : MPI_SUCCESS));
  if (code != MPI_SUCCESS) {
    CHECK(error_text(code).find("no thread can be started") != std::string::npos);
    MPI_OK(MPIX_Win_post_stream(from, win, stream));
  }
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, win));
  MPI_OK(MPI_Put(&value, 1, MPI_INT, right_of(rank()), 0, 1, MPI_INT, win));
  MPI_OK(MPIX_Win_complete_stream(win, stream));
  MPI_OK(MPIX_Win_wait_stream(win, stream));
  MPI_OK(MPIX_Host_stream_synchronize(stream));
  CHECK(memory == 1 + left_of(rank()));
  MPI_OK(MPI_Win_free(&win));
  MPI_OK(MPIX_Host_stream_destroy(&stream));
}

}  // namespace

// In front of the C library's and the C++ library's: they fail when they are told to.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*body)(void*), void* argument) {
  if (no_threads) return EAGAIN;
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, body, argument);
}

extern "C" __attribute__((visibility("default"))) int PMPI_Irecv(void* to, int count, MPI_Datatype type, int source,
                                                                 int tag, MPI_Comm comm, MPI_Request* request) {
  if (source == MPI_ANY_SOURCE) ++open_receives;
  static const auto real = reinterpret_cast<decltype(&PMPI_Irecv)>(dlsym(RTLD_NEXT, "PMPI_Irecv"));
  return real(to, count, type, source, tag, comm, request);
}

bool allocation_fails() noexcept { return no_memory; }

// First: what there is once comes with the first window, or the first epoch.
TEST_CASE("a process has what it needs when it needs it, and signals and the environment are left alone") {
  const auto handlers_before = handlers();
  const auto blocked_before = blocked();
  const auto environment_before = environment();
  const int threads_before = threads();
  for (int k = 0; k < 3; ++k) ordinary_epoch();
  if (!provider_has_threads()) CHECK(threads() == threads_before);
  CHECK(open_receives == 0);  // a message of the program's could not end in one; but they take memory, and MPI's time
  if (device().is_host()) without_threads();
  {
    Window window(Memory::device, 64);
    Ring ring(window, window.base(), 64);
    Stream stream;
    for (int k = 0; k < 3; ++k) ring.epoch(stream);
    stream.synchronize();
  }
  if (spans_nodes() && !provider_has_threads()) CHECK(threads() > threads_before);  // it can be seen
  const char* const network = std::getenv("MPIX_NIC");
  if (spans_nodes() && network && std::string(network) == "mpi") CHECK(open_receives > 0);  // so can they
  CHECK(added(handlers_before, handlers()) == std::vector<std::string>{});
  CHECK(blocked() == blocked_before);
  CHECK(added(environment_before, environment()) == std::vector<std::string>{});
  CHECK(environment().size() == environment_before.size());
}

TEST_CASE("a fault in a function on a host stream reaches the program's handler") {
  if (!device().is_host()) return skip("the functions of GPU streams are the driver's");
  Stream stream;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    struct sigaction ours {
    }, before{};
    ours.sa_handler = [](int signal) { caught = signal; };
    REQUIRE(sigaction(number, &ours, &before) == 0);
    caught = 0;
    launch_on_host(stream, [number] { pthread_kill(pthread_self(), number); });
    stream.synchronize();
    CHECK(caught == number);
    sigaction(number, &before, nullptr);
  }
  std::vector<int> there;
  launch_on_host(stream, [&there] { there = blocked(); });
  stream.synchronize();
  for (const int number : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGUSR2, SIGWINCH})
    CHECK(std::count(there.begin(), there.end(), number) == 1);
}

// As a program does that calls system(), or starts a helper that ends by itself: whatever the library's threads are at,
// and whichever locks they hold.
TEST_CASE("a child of fork() ends by exit(), and its parent goes on") {
  if (!device().is_host()) return skip("the driver of a GPU has its own ways at the end of a process");
#ifdef __SANITIZE_ADDRESS__
  return skip("what the threads hold that a child lacks would be its leaks");
#endif
  constexpr std::size_t many = 90000;
  Window narrow(Memory::device, 64), wide(Memory::unmapped, many);
  Ring small(narrow, narrow.base(), 64), large(wide, wide.base(), many);
  Stream stream;
  for (int k = 0; k < scaled(20); ++k) {
    for (int epoch = 0; epoch < 5; ++epoch) {
      small.epoch(stream);
      large.fused_epoch(stream);
    }
    std::fflush(nullptr);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      signal(SIGALRM, SIG_DFL);
      alarm(20 * static_cast<unsigned>(slowdown()));
      std::exit(7);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    if (k % 2 == 0) stream.synchronize();
  }
  stream.synchronize();
}

// On all ranks, so nobody waits for the others' end.
TEST_CASE("a stream that finds no memory breaks the window, and not the process") {
  if (!device().is_host()) return skip("the threads of GPU streams are the driver's");
  if (spans_nodes() && !provider_has_threads())
    return skip("with messages of MPI a stream needs no memory for an epoch as small");
  REQUIRE(settings_made);
  Window window(Memory::unmapped, 4096);
  {
    Stream stream;
    Group to(right_of(rank())), from(left_of(rank()));
    Buffer source(4096);
    launch_on_host(stream, [] { no_memory = true; });
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), 4096, MPI_BYTE, right_of(rank()), 0, 4096, MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    void* const handle = stream;
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CHECK(MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(handle)) != MPI_SUCCESS);
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    launch_on_host(stream, [] { no_memory = false; });
    stream.synchronize();
    const int code = MPIX_Win_post_stream(from, window, stream);
    CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
    CHECK(error_text(code).find("the window is broken") != std::string::npos);
  }
  barrier();
}
