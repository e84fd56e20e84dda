// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/host_device.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "device/host/bell.h"
#include "device/host/shared_memory.h"
#include "device/host/stream.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/slowdown.h"

using namespace mpix;

namespace {

int open_files() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory)) ++count;
  closedir(directory);
  return count;
}

}  // namespace

TEST_CASE("shared memory is zeroed, found from inside, and freed", "[memory]") {
  const int before = open_files();
  {
    SharedMemory memory;
    const Allocation a = memory.allocate(10000);
    CHECK(a.bytes == 10000);
    for (std::size_t i = 0; i < a.bytes; ++i) REQUIRE(a.base[i] == 0);
    REQUIRE(memory.find(a.base + 9999));
    CHECK(memory.find(a.base + 9999)->base == a.base);
    CHECK_FALSE(memory.find(a.base - 1));
    int local = 0;
    CHECK_FALSE(memory.find(&local));
    memory.release(a.base);
    CHECK_FALSE(memory.find(a.base));
    memory.allocate(0);
    CHECK_THROWS_AS(memory.allocate(SIZE_MAX), Error);
    CHECK_THROWS_AS(memory.export_memory(&local), Error);
  }
  CHECK(open_files() == before);
}

TEST_CASE("another process maps exported memory, writes, and is seen", "[memory]") {
  SharedMemory memory;
  const Allocation a = memory.allocate(4096);
  const ExportedMemory ticket = memory.export_memory(a.base);
  CHECK(memory.import_memory(ticket) == a.base);
  const int status = status_of_child([&] {
    // The child inherited the mapping; it must map anew, as a stranger would.
    munmap(a.base, 4096);
    SharedMemory stranger;
    char* there = stranger.import_memory(ticket);
    if (stranger.import_memory(ticket) != there) return 2;
    std::strcpy(there + 100, "hello");
    stranger.close_import(there);
    if (there[100] != 'h') return 3;  // still mapped by the other user of the cache
    return 0;
  });
  CHECK(status == 0);
  CHECK(std::string(a.base + 100) == "hello");
}

TEST_CASE("exported memory that is gone is refused, not mistaken", "[memory]") {
  SharedMemory memory;
  const Allocation a = memory.allocate(4096);
  const ExportedMemory ticket = memory.export_memory(a.base);
  memory.release(a.base);
  const Allocation other = memory.allocate(4096);  // takes the same file number
  CHECK(status_of_child([&] {
          SharedMemory stranger;
          try {
            stranger.import_memory(ticket);
          } catch (const Error&) {
            return 0;
          }
          return 1;
        }) == 0);
  memory.release(other.base);
}

TEST_CASE("shared memory has no name and no permission for others", "[memory]") {
  SharedMemory memory;
  memory.allocate(4096);
  std::ifstream maps("/proc/self/maps");
  bool seen = false;
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:mpix") != std::string::npos) {
      seen = true;
      CHECK(line.find("(deleted)") != std::string::npos);
    }
  CHECK(seen);
}

TEST_CASE("a stream runs what is enqueued, in order, and synchronize waits for all of it", "[stream]") {
  HostStream* stream = create_host_stream();
  std::vector<int> order;
  struct Step {
    std::vector<int>* order;
    int number;
  };
  std::vector<Step> steps;
  for (int i = 0; i < 1000; ++i) steps.push_back({&order, i});
  for (Step& step : steps)
    host_stream_launch(
        stream,
        [](void* p) {
          auto* mine = static_cast<Step*>(p);
          if (mine->number % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
          mine->order->push_back(mine->number);
        },
        &step);
  CHECK(host_stream_synchronize(stream));
  REQUIRE(order.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  destroy_host_stream(stream);
}

TEST_CASE("enqueueing does not wait for the stream", "[stream]") {
  HostStream* stream = create_host_stream();
  std::atomic<bool> go{false};
  host_stream_launch(
      stream,
      [](void* p) {
        while (!static_cast<std::atomic<bool>*>(p)->load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
      },
      &go);
  for (int i = 0; i < 10000; ++i)
    host_stream_launch(
        stream, [](void*) {}, nullptr);
  go = true;
  CHECK(host_stream_synchronize(stream));
  destroy_host_stream(stream);
}

TEST_CASE("streams are told from other pointers", "[stream]") {
  int local = 0;
  CHECK_THROWS_AS(check_host_stream(&local), Error);
  CHECK_THROWS_AS(host_stream_launch(
                      &local, [](void*) {}, nullptr),
                  Error);
  CHECK_THROWS_AS(host_stream_synchronize(&local), Error);
  CHECK_THROWS_AS(destroy_host_stream(&local), Error);
  CHECK_THROWS_AS(destroy_host_stream(nullptr), Error);
  HostStream* stream = create_host_stream();
  CHECK_THROWS_AS(host_stream_launch(stream, nullptr, nullptr), Error);
  destroy_host_stream(stream);
  CHECK_THROWS_AS(check_host_stream(stream), Error);
  CHECK_NOTHROW(check_host_stream(nullptr));
  CHECK(host_stream_synchronize(nullptr));
}

TEST_CASE("a stream cannot wait for itself", "[stream]") {
  HostStream* stream = create_host_stream();
  static std::atomic<int> refused;
  refused = 0;
  host_stream_launch(
      stream,
      [](void* p) {
        try {
          host_stream_synchronize(p);
        } catch (const Error&) {
          ++refused;
        }
        try {
          destroy_host_stream(p);
        } catch (const Error&) {
          ++refused;
        }
      },
      stream);
  CHECK(host_stream_synchronize(stream));
  CHECK(refused == 2);
  destroy_host_stream(stream);
}

TEST_CASE("a launch counts as executed when it holds on to nothing", "[stream]") {
  HostWords words{};
  std::atomic<std::uint64_t> executed_at_the_end{99};
  HostStream* const stream = create_host_stream();
  {
    Launch launch;
    launch.program.host = &words;
    launch.keep[0] = std::shared_ptr<const void>(
        &words, [&](const void*) { executed_at_the_end = __atomic_load_n(&words.executed, __ATOMIC_ACQUIRE); });
    stream->launch(std::move(launch));
  }
  stream->synchronize();
  CHECK(executed_at_the_end == 0);
  CHECK(words.executed == 1);
  destroy_host_stream(stream);
}

TEST_CASE("several threads share a stream", "[stream]") {
  HostStream* stream = create_host_stream();
  long sum = 0;  // only the worker touches it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        host_stream_launch(
            stream, [](void* p) { ++*static_cast<long*>(p); }, &sum);
      host_stream_synchronize(stream);
    });
  for (std::thread& thread : threads) thread.join();
  host_stream_synchronize(stream);
  CHECK(sum == 2000);
  destroy_host_stream(stream);
}

TEST_CASE("no wake-up is lost between a bell and a sleeper", "[bell]") {
  // Two threads hand a number to and fro, each asleep while it waits: a lost wake-up would show as a tenth of a
  // second, so that the rounds would take minutes.
  static Bell bells[2];
  static std::uint64_t word;
  std::memset(bells, 0, sizeof bells);
  word = 0;
  constexpr std::uint64_t rounds = 2000;
  const auto begin = std::chrono::steady_clock::now();
  const auto play = [&](std::uint64_t parity) {
    for (std::uint64_t turn = parity; turn < rounds; turn += 2) {
      Patience patience(&bells[parity], Polling{});
      while (load_acquire(&word) != turn) patience.pause();
      store_release(&word, turn + 1);
      ring(&bells[1 - parity]);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20 * test::slowdown()));
  CHECK(bells[0].sleepers == 0);
  CHECK(bells[1].sleepers == 0);
}

TEST_CASE("a ring between the last look and the sleep ends the sleep", "[bell]") {
  static Bell bell;
  static std::uint64_t word;
  constexpr auto one_sleep = std::chrono::milliseconds(100);
  auto shortest = std::chrono::steady_clock::duration::max();
  // A busy machine may be late itself, but not always.
  for (int attempt = 0; attempt < 10 && shortest >= one_sleep / 2; ++attempt) {
    std::memset(&bell, 0, sizeof bell);
    word = 0;
    Patience patience(&bell, Polling{});
    while (bell.sleepers == 0) patience.pause();
    REQUIRE(load_acquire(&word) == 0);  // the last look
    store_release(&word, 1);
    ring(&bell);
    const auto begin = std::chrono::steady_clock::now();
    patience.pause();
    shortest = std::min(shortest, std::chrono::steady_clock::now() - begin);
    CHECK(patience.slept());
  }
  CHECK(shortest < one_sleep / 2);
  CHECK(bell.sleepers == 0);
}

TEST_CASE("how long a wait has lasted counts from the last find", "[bell]") {
  static Bell bell;
  std::memset(&bell, 0, sizeof bell);
  Patience patience(&bell, Polling{std::chrono::hours(1), false, {}});
  for (int wait = 0; wait < 2; ++wait) {
    patience.pause();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(patience.waited() >= std::chrono::milliseconds(5));
    patience.refresh();
    CHECK(patience.waited() == std::chrono::nanoseconds{0});
  }
}

TEST_CASE("a thread that has waited for long naps for long", "[bell]") {
  using namespace std::chrono_literals;
  const auto nap_after = [](std::chrono::nanoseconds waited) {
    return Patience::nap_after(waited, Patience::longest_remote_nap);
  };
  CHECK(nap_after(0ns) == 10us);
  CHECK(nap_after(400us) == 50us);
  CHECK(nap_after(9s) == 100us);
  CHECK(nap_after(10s) == 1ms);
  CHECK(nap_after(1h) == 1ms);
  // What all rings is slept for at once, and longer naps stay as they are.
  CHECK(Patience::nap_after(0ns, Patience::longest_sleep) == Patience::longest_sleep);
  CHECK(Patience::nap_after(20s, 50ms) == 50ms);
}

TEST_CASE("a waiting host stream sleeps", "[bell]") {
  static Bell bell;
  std::memset(&bell, 0, sizeof bell);
  static std::uint64_t word;
  word = 0;
  timespec before, after;
  std::thread waiter([&] {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    Patience patience(&bell, Polling{std::chrono::microseconds(100), true, {}});
    while (load_acquire(&word) == 0) patience.pause();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  store_release(&word, 1);
  ring(&bell);
  waiter.join();
  const double cpu =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  CHECK(cpu < 0.03);
}

// A stream in a static object of the program is destroyed by what runs at exit. Another thread holds the locks of
// streams now and then.
TEST_CASE("a child of fork() leaves the streams of its parent alone, and may have its own", "[stream]") {
  HostStream* const stream = create_host_stream();
  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over)
      host_stream_launch(
          stream, [](void*) {}, nullptr);
  });
  const auto refused = [](auto call) {
    try {
      call();
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  for (int i = 0; i < 20; ++i)
    CHECK(status_of_child([&] {
            alarm(60);
            if (!refused([&] {
                  host_stream_launch(
                      stream, [](void*) {}, nullptr);
                }))
              return 1;
            if (!refused([&] { host_stream_synchronize(stream); })) return 2;
            if (is_host_stream(stream)) return 3;
            if (!destroy_host_stream(stream)) return 4;
            if (test::sanitized) return 0;  // the thread sanitizer forbids such a child its own threads
            HostStream* const own = create_host_stream();
            host_stream_launch(
                own, [](void*) {}, nullptr);
            return host_stream_synchronize(own) && destroy_host_stream(own) ? 0 : 5;
          }) == 0);
  over = true;
  busy.join();
  CHECK(host_stream_synchronize(stream));
  CHECK(destroy_host_stream(stream));
}

TEST_CASE("a launched function that ends its thread ends the process, with a text", "[stream]") {
  int text[2];
  REQUIRE(pipe(text) == 0);
  CHECK(status_of_child([&] {
          if (test::sanitized) return 100 + SIGABRT;  // the thread sanitizer forbids such a child its own threads
          dup2(text[1], STDERR_FILENO);
          HostStream* const stream = create_host_stream();
          stream->launch([](void*) { pthread_exit(nullptr); }, nullptr);
          (void)stream->synchronize();
          return 0;
        }) == 100 + SIGABRT);
  close(text[1]);
  char said[200] = "";
  const ssize_t length = read(text[0], said, sizeof said - 1);
  close(text[0]);
  if (!test::sanitized)
    CHECK(std::string(said, static_cast<std::size_t>(length)).find("pthread_exit") != std::string::npos);
}
