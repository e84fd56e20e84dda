// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What a domain answers where a program is wrong as a whole, and not an argument of a call (for those: domain calls).
//
//   mpiexec -n N domain_wrong use
//     windows that were freed, more than there may be, kernels that were launched by another way, two launches at once
//   mpiexec -n N domain_wrong unfinished
//     a rank has not called MPIX_Dev_finish, and a process comes late; started with MPIX_TIMEOUT=1
//     MPIX_ON_TIMEOUT=error
//   mpiexec -n 2 domain_wrong untaken
//     more notifications than there is room for on the other node; started likewise, with MPIX_NODE_SIZE=1
//   mpiexec -n 2 domain_wrong left
//     the same, and that node frees when the other one has given up; MPI ends; started likewise
//   mpiexec -n 2 domain_wrong exit
//     the domain is freed, and MPI finalized, in a handler of exit(); started likewise
//   mpiexec -n 2 domain_wrong patient
//     a process that frees late, with nothing under way; started likewise
//   mpiexec -n N domain_wrong launches
//     waits of many launches, each of them short; started likewise
//   mpiexec -n N domain_wrong behind
//     a launch that waits for its turn behind one that waits, and the domain is freed before it has returned; started
//     with MPIX_TIMEOUT=1
//   mpiexec -n N domain_wrong apart TEXT
//     the processes cannot have a domain, and all are told TEXT
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/capture.h"
#include "support/child.h"
#include "support/domain.h"
#include "support/domain_kernels.h"
#include "support/slowdown.h"

namespace {

constexpr int here = 2;
constexpr std::size_t part = 4096;

int process = 0, processes = 1;
int failures = 0;

#define EXPECT(holds)                                                                       \
  do {                                                                                      \
    if (!(holds)) {                                                                         \
      std::printf("process %d, %s:%d: expected %s\n", process, __FILE__, __LINE__, #holds); \
      ++failures;                                                                           \
    }                                                                                       \
  } while (false)

int class_of(int code) {
  int found = MPI_SUCCESS;
  MPI_Error_class(code, &found);
  return found;
}
std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}
std::string error_of(MPIX_Dev dev, int* error_class) {
  char text[512] = "";
  CHECK_MPI(MPIX_Dev_error(dev, 1, error_class, text, sizeof text));
  return text;
}

/// A domain with a window, and memory for what its ranks find out.
struct Set {
  support::Domain domain;
  char* base;
  MPIX_Dev_win window;
  test::Findings* findings;

  Set() : domain(MPI_COMM_WORLD, here) {
    base = domain.allocate(part * here);
    window = domain.window_over(base, part);
    findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof findings[0] * here));
  }
  void check() const {
    std::vector<test::Findings> all(here);
    support::to_host(all.data(), findings, sizeof findings[0] * here);
    for (const test::Findings& one : all) {
      if (one.faults == 0) continue;
      std::printf("rank %llu: %llu faults; the first at line %llu\n", static_cast<unsigned long long>(one.first[5]),
                  static_cast<unsigned long long>(one.faults), static_cast<unsigned long long>(one.first[0]));
      ++failures;
    }
  }
};

/// Each call that names a window names one that has gone.
struct Freed {
  MPIX_Dev_win gone;
  char* base;
  test::Findings* findings;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t mine = c.rank - c.p.first_rank;
    test::Findings& f = findings[mine];
    char* const own = base + mine * part;
    const int next = static_cast<int>((c.rank + 1) % c.p.ranks);
    int flag = 0;
    DOMAIN_EXPECT(c, f, MPIX_Dev_put(&c, gone, next, 0, 8, own) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, gone, next, 0, 8, own, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_2d(&c, gone, next, 0, 8, own, 8, 8, 2, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_get(&c, gone, next, 0, 8, own) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_get_notify(&c, gone, next, 0, 8, own, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, gone, next, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, gone, next, 1, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_test(&c, gone, next, 1, 1, &flag) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_flush(&c, gone) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, !MPIX_Dev_ptr(&c, gone, next, 0));
  }
};

/// As many windows as there may be; one more; and again, when some are gone.
struct Many {
  MPIX_Dev_win window;
  char* base;
  test::Findings* findings;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t mine = c.rank - c.p.first_rank;
    test::Findings& f = findings[mine];
    char* const own = base + mine * part;
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    MPIX_Dev_win opened = -1, last = -1;
    for (int i = 0; i < 64; ++i)
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, own + 16 * i, 16, i == 5 ? &opened : &last) == 0);
    MPIX_Dev_win none = -5;
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, own, 16, &none) == MPI_ERR_NO_MEM && none == -5);
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, own, 16, nullptr) == MPI_ERR_BUFFER);
    const MPIX_Dev_win before = opened;
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &opened) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, before, (me + 1) % n, 1, 1) == MPI_ERR_WIN);
    // The other has closed it, too.
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, before, (me + 1) % n, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, own, 16, &opened) == MPI_SUCCESS && opened == before);
    for (const MPIX_Dev_win one : {opened, last}) {
      DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, one, (me + 1) % n, 2) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, one, (me + n - 1) % n, 2, 1) == MPI_SUCCESS);
    }
  }
};

/// A ring, in which all have to be at once.
struct Ring {
  MPIX_Dev_win window;
  char* base;
  test::Findings* findings;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t mine = c.rank - c.p.first_rank;
    test::Findings& f = findings[mine];
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    for (int i = 0; i < 100; ++i) {
      DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, (me + 1) % n, 8, 8, base + mine * part, 1) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, (me + n - 1) % n, 1, 1) == MPI_SUCCESS);
    }
    if (mpix::dev::is_first(c)) ++f.operations;
  }
};

#if defined(__CUDACC__) || defined(__HIPCC__)
/// Each call returns the same as MPIX_Dev_init, and none waits.
__global__ void kernel_that_fails(MPIX_Dev_param param, MPIX_Dev_win window, char* base, int wanted, int* wrong) {
  __shared__ MPIX_Dev_ctx ctx;
  for (std::size_t i = threadIdx.x; i < sizeof ctx; i += blockDim.x) reinterpret_cast<char*>(&ctx)[i] = 0;
  __syncthreads();
  int flag = 0;
  MPIX_Dev_win opened = window;
  const int codes[] = {MPIX_Dev_init(&ctx, param),
                       MPIX_Dev_put_notify(&ctx, window, 0, 0, 8, base, 1),
                       MPIX_Dev_get(&ctx, window, 0, 0, 8, base),
                       MPIX_Dev_wait(&ctx, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, 1, 1),
                       MPIX_Dev_test(&ctx, window, 0, 1, 1, &flag),
                       MPIX_Dev_barrier(&ctx, MPIX_DEV_WORLD),
                       MPIX_Dev_flush(&ctx, window),
                       MPIX_Dev_win_open(&ctx, MPIX_DEV_WORLD, base, 8, &opened),
                       MPIX_Dev_win_close(&ctx, &opened)};
  MPIX_Dev_finish(&ctx);
  if (threadIdx.x != 0) return;
  for (const int code : codes)
    if (code != wanted) *wrong = code;
}

/// Another number of blocks; headers of another libmpix; more ranks than fit.
void launched_by_another_way(const Set& set) {
  auto* const wrong = reinterpret_cast<int*>(set.findings);
  MPIX_Dev_param param;
  CHECK_MPI(MPIX_Dev_get_param(set.domain, &param));
  for (const int blocks : {here + 1, here - 1}) {
    kernel_that_fails<<<static_cast<unsigned>(blocks), 64>>>(param, set.window, set.base, MPI_ERR_ARG, wrong);
    support::synchronize();
  }
  MPIX_Dev_param other = param;
  ++other.abi;
  kernel_that_fails<<<here, 64>>>(other, set.window, set.base, MPI_ERR_OTHER, wrong);
  support::synchronize();
  int code = 0;
  support::to_host(&code, wrong, sizeof code);
  EXPECT(code == 0);
  EXPECT(class_of(MPIX_Dev_begin_launch(set.domain, nullptr, MPIX_DEV_ABI + 1, &other)) == MPI_ERR_OTHER);

  const int fitting = support::max_ranks<Ring>(512);
  support::Domain large(MPI_COMM_WORLD, fitting + 1);
  const Ring ring{set.window, set.base, set.findings};
  const int refused = support::launch(large, ring, 512);
  EXPECT(class_of(refused) == MPI_ERR_ARG);
  const std::string of = "each of " + std::to_string(fitting + 1) + " ranks (ranks_here) at once: at most ";
  EXPECT(text_of(refused).find(of + std::to_string(support::max_ranks<Ring>(512, large)) + " fit") !=
         std::string::npos);
}
#else
/// Kernels that nobody has launched, and those of another libmpix: each call returns the same, and none waits.
void launched_by_another_way(const Set& set) {
  MPIX_Dev_param param;
  CHECK_MPI(MPIX_Dev_get_param(set.domain, &param));
  const auto fails = [&](int wanted) {
    MPIX_Dev_ctx ctx;
    int flag = 0;
    MPIX_Dev_win opened = set.window;
    EXPECT(MPIX_Dev_init(&ctx, param) == wanted);
    EXPECT(MPIX_Dev_put_notify(&ctx, set.window, 0, 0, 8, set.base, 1) == wanted);
    EXPECT(MPIX_Dev_get(&ctx, set.window, 0, 0, 8, set.base) == wanted);
    EXPECT(MPIX_Dev_wait(&ctx, set.window, 0, 1, 1) == wanted);
    EXPECT(MPIX_Dev_test(&ctx, set.window, 0, 1, 1, &flag) == wanted);
    EXPECT(MPIX_Dev_barrier(&ctx, MPIX_DEV_WORLD) == wanted);
    EXPECT(MPIX_Dev_flush(&ctx, set.window) == wanted);
    EXPECT(MPIX_Dev_win_open(&ctx, MPIX_DEV_WORLD, set.base, 8, &opened) == wanted);
    EXPECT(MPIX_Dev_win_close(&ctx, &opened) == wanted);
    MPIX_Dev_finish(&ctx);
  };
  fails(MPI_ERR_ARG);
  ++param.abi;
  fails(MPI_ERR_OTHER);
}

void two_launches_at_once(const Set& set) {
  MPIX_Host_stream streams[2];
  const Ring ring{set.window, set.base, set.findings};
  for (MPIX_Host_stream& stream : streams) CHECK_MPI(MPIX_Host_stream_create(&stream));
  for (int i = 0; i < 5; ++i)
    for (MPIX_Host_stream stream : streams) CHECK_MPI(support::launch(set.domain, ring, 64, stream));
  for (MPIX_Host_stream& stream : streams) {
    CHECK_MPI(MPIX_Host_stream_synchronize(stream));
    CHECK_MPI(MPIX_Host_stream_destroy(&stream));
  }
  for (int i = 0; i < here; ++i) EXPECT(set.findings[i].operations == 10);
}

/// Freed when its ranks have finished, and have not returned yet.
void freed_early() {
  const auto stays = [](MPIX_Dev_param param, void*) {
    MPIX_Dev_ctx context;
    MPIX_Dev_init(&context, param);
    MPIX_Dev_finish(&context);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  MPIX_Dev domain = MPIX_DEV_NULL;
  MPIX_Host_stream stream;
  CHECK_MPI(MPIX_Host_stream_create(&stream));
  CHECK_MPI(MPIX_Dev_create(MPI_COMM_WORLD, 3, MPI_INFO_NULL, &domain));
  CHECK_MPI(MPIX_Dev_launch_host(domain, stays, nullptr, stream));
  CHECK_MPI(MPIX_Dev_free(&domain));
  CHECK_MPI(MPIX_Host_stream_synchronize(stream));
  CHECK_MPI(MPIX_Host_stream_destroy(&stream));
}

/// Which may not use the domains of its parent.
void in_a_child(const Set& set) {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  MPIX_Dev domain = set.domain;
  EXPECT(status_of_child([&] {
           alarm(30);
           MPIX_Dev_param param;
           if (MPIX_Dev_get_param(domain, &param) != MPI_ERR_UNSUPPORTED_OPERATION) return 2;
           return MPIX_Dev_free(&domain) == MPI_ERR_UNSUPPORTED_OPERATION && domain != MPIX_DEV_NULL ? 0 : 3;
         }) == 0);
#else
  (void)set;
#endif
}
#endif

void use() {
  Set set;
  int error_class = MPI_SUCCESS;
  CHECK_MPI(MPIX_Dev_attach(set.domain, set.base, part * here));
  launched_by_another_way(set);
  {
    const std::string text = error_of(set.domain, &error_class);
    EXPECT(error_class == MPI_ERR_ARG &&
           std::strstr(text.c_str(), ", MPIX_Dev_init: the kernel was not launched with "));
    EXPECT(std::strstr(text.c_str(), support::ranks_are_blocks ? " (3 for 2 ranks)" : " (0 for 2 ranks)"));
  }
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  two_launches_at_once(set);
  in_a_child(set);
  freed_early();
#endif
  // What failed has told no more.
  set.domain.check();
  if (processes > 1) {
    MPIX_Dev_win none = -1;
    const int code = process == 0 ? MPIX_Dev_attach(set.domain, set.base, 64) : MPIX_Dev_win_free(set.domain, &none);
    const std::string why = text_of(code);
    EXPECT(class_of(code) == MPI_ERR_OTHER && std::strstr(why.c_str(), "the ranks have made different calls: ") &&
           std::strstr(why.c_str(), "MPIX_Dev_attach") && std::strstr(why.c_str(), "MPIX_Dev_win_free"));
  }
  // Windows of which the processes think differently stay.
  MPIX_Dev_win others[2] = {set.domain.window_over(set.base, part), set.domain.window_over(set.base, part)};
  MPIX_Dev_win mine = others[process % 2];
  if (processes > 1)
    EXPECT(class_of(MPIX_Dev_win_free(set.domain, &mine)) == MPI_ERR_WIN && mine == others[process % 2]);
  for (MPIX_Dev_win& other : others) {
    const MPIX_Dev_win gone = other;
    CHECK_MPI(MPIX_Dev_win_free(set.domain, &other));
    MPIX_Dev_win again = gone;
    EXPECT(other == -1 && class_of(MPIX_Dev_win_free(set.domain, &again)) == MPI_ERR_WIN);
    CHECK_MPI(support::launch(set.domain, Freed{gone, set.base, set.findings}, 64));
    support::synchronize();
    const std::string text = error_of(set.domain, &error_class);
    EXPECT(error_class == MPI_ERR_WIN && std::strstr(text.c_str(), "MPIX_Dev_put: no such window (window ") &&
           std::strstr(text.c_str(), ", displacement 0, 8 bytes)"));
  }
  CHECK_MPI(support::launch(set.domain, Many{set.window, set.base, set.findings}, 64));
  support::synchronize();
  const std::string text = error_of(set.domain, &error_class);
  EXPECT(error_class == MPI_ERR_NO_MEM && std::strstr(text.c_str(), "MPIX_Dev_win_open: no room: too many windows"));
  set.check();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

#if !defined(__CUDACC__) && !defined(__HIPCC__)
/// A way out of the kernel on which MPIX_Dev_finish was forgotten.
void unfinished() {
  MPIX_Dev dev = MPIX_DEV_NULL;
  CHECK_MPI(MPIX_Dev_create(MPI_COMM_WORLD, here, MPI_INFO_NULL, &dev));
  const auto rank_of_domain = [](MPIX_Dev_param param, void*) {
    MPIX_Dev_ctx ctx;
    if (MPIX_Dev_init(&ctx, param) != MPI_SUCCESS) return;
    if (MPIX_Dev_rank(&ctx, MPIX_DEV_WORLD) != 1) MPIX_Dev_finish(&ctx);
  };
  CHECK_MPI(MPIX_Dev_launch_host(dev, rank_of_domain, nullptr, nullptr));
  support::synchronize();
  // What begins then waits for it, and has to leave before the domain goes.
  CHECK_MPI(MPIX_Dev_launch_host(dev, rank_of_domain, nullptr, nullptr));
  const int freed = MPIX_Dev_free(&dev);
  EXPECT(dev == MPIX_DEV_NULL);
  // The others have nothing to wait for.
  EXPECT(class_of(freed) == (process == 0 ? MPI_ERR_RMA_SYNC : MPI_SUCCESS));
}

/// A domain of two ranks, of which rank 1 waits for rank 0, which takes its time; and behind it all for something else.
class TwoRanks {
 public:
  explicit TwoRanks(std::chrono::milliseconds until_notified, std::chrono::milliseconds behind_finish = {})
      : until_notified_(until_notified), behind_finish_(behind_finish) {
    CHECK_MPI(MPIX_Dev_create(MPI_COMM_SELF, 2, MPI_INFO_NULL, &dev_));
    CHECK_MPI(MPIX_Dev_alloc(dev_, 2 * part, &base_));
    void* bases[] = {base_, static_cast<char*>(base_) + part};
    const std::size_t bytes[] = {part, part};
    CHECK_MPI(MPIX_Dev_win_create(dev_, bases, bytes, &window_));
  }
  void launch(void* stream) { CHECK_MPI(MPIX_Dev_launch_host(dev_, run, this, stream)); }
  void free() { CHECK_MPI(MPIX_Dev_free(&dev_)); }
  int wrong() const { return wrong_; }

 private:
  static void run(MPIX_Dev_param param, void* self) { static_cast<TwoRanks*>(self)->run(param); }
  void run(const MPIX_Dev_param& param) {
    MPIX_Dev_ctx ctx;
    int code = MPIX_Dev_init(&ctx, param);
    if (code == MPI_SUCCESS && MPIX_Dev_rank(&ctx, MPIX_DEV_WORLD) == 0) {
      std::this_thread::sleep_for(until_notified_);
      code = MPIX_Dev_notify(&ctx, window_, 1, 7);
    } else if (code == MPI_SUCCESS) {
      code = MPIX_Dev_wait(&ctx, window_, MPIX_DEV_ANY_SOURCE, 7, 1);
    }
    if (code != MPI_SUCCESS) ++wrong_;
    MPIX_Dev_finish(&ctx);
    std::this_thread::sleep_for(behind_finish_);
  }

  const std::chrono::milliseconds until_notified_, behind_finish_;
  MPIX_Dev dev_ = MPIX_DEV_NULL;
  void* base_ = nullptr;
  MPIX_Dev_win window_ = -1;
  std::atomic<int> wrong_{0};
};

/// Together they wait for longer than MPIX_TIMEOUT, each for less: each is a wait of its own.
void launches() {
  TwoRanks ranks(std::chrono::milliseconds(300) * test::time_scale());
  for (int i = 0; i < 10; ++i) ranks.launch(nullptr);
  support::synchronize();
  // Of several streams, in which launches wait for their turns as well, for as many as come first.
  MPIX_Host_stream streams[6];
  for (MPIX_Host_stream& stream : streams) CHECK_MPI(MPIX_Host_stream_create(&stream));
  for (int i = 0; i < 18; ++i) ranks.launch(streams[i % 6]);
  for (MPIX_Host_stream& stream : streams) {
    CHECK_MPI(MPIX_Host_stream_synchronize(stream));
    CHECK_MPI(MPIX_Host_stream_destroy(&stream));
  }
  EXPECT(ranks.wrong() == 0);
  ranks.free();
}

/// What a report says is what the rank that has begun waits for. One that waited for its turn has nothing to do with
/// the domain when it has finished.
void behind() {
  const std::chrono::milliseconds unit(500 * test::time_scale());
  TwoRanks ranks(5 * unit, unit);
  MPIX_Host_stream streams[2];
  for (MPIX_Host_stream& stream : streams) CHECK_MPI(MPIX_Host_stream_create(&stream));
  test::Capture log(2);
  ranks.launch(streams[0]);
  ranks.launch(streams[1]);
  ranks.free();
  const std::string said = log.end();
  for (MPIX_Host_stream& stream : streams) {
    CHECK_MPI(MPIX_Host_stream_synchronize(stream));
    CHECK_MPI(MPIX_Host_stream_destroy(&stream));
  }
  EXPECT(ranks.wrong() == 0);
  EXPECT(said.find("rank 1 (process 0) waits for 1 of 1 notifications") != std::string::npos);
  EXPECT(said.find("rank 1 (process 0) waits in MPIX_Dev_init") == std::string::npos);
}

void untaken(bool one_is_late) {
  static MPIX_Dev_win window = -1;
  MPIX_Dev dev = MPIX_DEV_NULL;
  CHECK_MPI(MPIX_Dev_create(MPI_COMM_WORLD, 1, MPI_INFO_NULL, &dev));
  void* base = nullptr;
  const std::size_t bytes = part;
  CHECK_MPI(MPIX_Dev_alloc(dev, bytes, &base));
  CHECK_MPI(MPIX_Dev_win_create(dev, &base, &bytes, &window));
  const auto notify = [](MPIX_Dev_param param, void*) {
    MPIX_Dev_ctx ctx;
    if (MPIX_Dev_init(&ctx, param) != MPI_SUCCESS) return;
    for (int i = 0; i < 2000; ++i) (void)MPIX_Dev_notify(&ctx, window, 1, i);
    MPIX_Dev_finish(&ctx);
  };
  test::Capture log(2);
  if (process == 0) CHECK_MPI(MPIX_Dev_launch_host(dev, notify, nullptr, nullptr));
  int gave_up = 0;
  if (one_is_late && process != 0) CHECK_MPI(MPI_Recv(&gave_up, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  const int freed = MPIX_Dev_free(&dev);
  const std::string said = log.end();
  if (process != 0) return;
  if (one_is_late) CHECK_MPI(MPI_Send(&gave_up, 1, MPI_INT, 1, 0, MPI_COMM_WORLD));
  EXPECT(class_of(freed) == MPI_ERR_RMA_SYNC);
  EXPECT(said.find("process 1 has not dealt with all of it") != std::string::npos);
}

MPIX_Dev at_exit_dev = MPIX_DEV_NULL;

/// In front of any other call, so that this handler comes last.
void free_at_exit() {
  EXPECT(std::atexit([] {
           CHECK_MPI(MPIX_Dev_free(&at_exit_dev));
           CHECK_MPI(MPI_Finalize());
           if (failures > 0) _Exit(1);
         }) == 0);
}

/// What is put has not been dealt with when the process ends.
void put_and_exit() {
  static MPIX_Dev_win window = -1;
  CHECK_MPI(MPIX_Dev_create(MPI_COMM_WORLD, 1, MPI_INFO_NULL, &at_exit_dev));
  void* base = nullptr;
  const std::size_t bytes = part;
  CHECK_MPI(MPIX_Dev_alloc(at_exit_dev, bytes, &base));
  CHECK_MPI(MPIX_Dev_win_create(at_exit_dev, &base, &bytes, &window));
  const auto put = [](MPIX_Dev_param param, void*) {
    MPIX_Dev_ctx ctx;
    static char data[100];
    if (MPIX_Dev_init(&ctx, param) != MPI_SUCCESS) return;
    for (int i = 0; i < 20; ++i)
      EXPECT(MPIX_Dev_put(&ctx, window, 1 - process, 100 * i, sizeof data, data) == MPI_SUCCESS);
    MPIX_Dev_finish(&ctx);
  };
  CHECK_MPI(MPIX_Dev_launch_host(at_exit_dev, put, nullptr, nullptr));
  CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
}

/// What a process has received it has dealt with, whenever the one that sent it asks.
void patient() {
  MPIX_Dev dev = MPIX_DEV_NULL;
  CHECK_MPI(MPIX_Dev_create(MPI_COMM_WORLD, 1, MPI_INFO_NULL, &dev));
  const auto meet = [](MPIX_Dev_param param, void*) {
    MPIX_Dev_ctx ctx;
    if (MPIX_Dev_init(&ctx, param) != MPI_SUCCESS) return;
    EXPECT(MPIX_Dev_barrier(&ctx, MPIX_DEV_WORLD) == MPI_SUCCESS);
    MPIX_Dev_finish(&ctx);
  };
  CHECK_MPI(MPIX_Dev_launch_host(dev, meet, nullptr, nullptr));
  CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
  if (process == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500) * test::time_scale());
  test::Capture log(2);
  CHECK_MPI(MPIX_Dev_free(&dev));
  const std::string said = log.end();
  EXPECT(said.find("under way") == std::string::npos);
  EXPECT((said.find("MPIX_Dev_free waits for other ranks") != std::string::npos) == (process == 0));
}

/// A process that makes a collective call when the others have said that they wait.
void late() {
  MPIX_Dev dev = MPIX_DEV_NULL;
  MPIX_Dev_win window = -1;
  void* base = nullptr;
  const std::size_t bytes = part;
  const auto come_late = [](const std::string& name, auto call) {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    test::Capture log(2);
    if (process == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2500) * test::time_scale());
    const int code = call();
    const std::string said = log.end();
    CHECK_MPI(code);
    EXPECT((said.find(name + " waits for other ranks") != std::string::npos) == (process != 0));
  };
  come_late("MPIX_Dev_create", [&] { return MPIX_Dev_create(MPI_COMM_WORLD, 1, MPI_INFO_NULL, &dev); });
  CHECK_MPI(MPIX_Dev_alloc(dev, bytes, &base));
  come_late("MPIX_Dev_win_create", [&] { return MPIX_Dev_win_create(dev, &base, &bytes, &window); });
  come_late("MPIX_Dev_win_free", [&] { return MPIX_Dev_win_free(dev, &window); });
  come_late("MPIX_Dev_free", [&] { return MPIX_Dev_free(&dev); });
}
#endif

void apart(const char* text) {
  MPIX_Dev dev = MPIX_DEV_NULL;
  const int code = MPIX_Dev_create(MPI_COMM_WORLD, here, MPI_INFO_NULL, &dev);
  EXPECT(class_of(code) == MPI_ERR_UNSUPPORTED_OPERATION && dev == MPIX_DEV_NULL);
  const std::string why = text_of(code);
  if (process == 0) std::printf("%s\n", why.c_str());
  EXPECT(why.find(text) != std::string::npos);
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  support::choose_gpu(process);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "use") use();
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  else if (what == "unfinished")
    unfinished(), late();
  else if (what == "untaken")
    untaken(false);
  else if (what == "left")
    untaken(true);
  else if (what == "exit")
    return free_at_exit(), put_and_exit(), 0;
  else if (what == "patient")
    patient();
  else if (what == "launches")
    launches();
  else if (what == "behind")
    behind();
#endif
  else if (what == "apart" && argc > 2)
    apart(argv[2]);
  else
    EXPECT(!"a known argument");
  int all = 0;
  CHECK_MPI(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Finalize());
  // Threads of the library may look at what is left of the domain.
  if (what == "left") std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return all == 0 ? 0 : 1;
}
