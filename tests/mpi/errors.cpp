// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Every wrong use: its error class, what its text says, that it goes through the window's error
// handler, and that the window works afterwards. A wrong call is made at one point of a ring epoch,
// which then goes on as if nothing had been.
#include <dlfcn.h>

#include <atomic>
#include <stdexcept>
#include <string>

#include "support/wrong_calls.h"

using namespace test;

namespace {

#ifdef OPEN_MPI
constexpr bool is_open_mpi = true;
#else
constexpr bool is_open_mpi = false;
#endif

int world_errors = 0;
extern "C" void note_world_error(MPI_Comm*, int*, ...) { ++world_errors; }

}  // namespace

// First, when no window has been there. Nobody looks into what such a handle points to.
TEST_CASE("a handle of no window at all") {
#ifdef OPEN_MPI
  static char nothing[4096];
  const auto wrong = reinterpret_cast<MPI_Win>(nothing);
#else
  const MPI_Win wrong = 0x12345678;
#endif
  MPI_Errhandler handler;
  MPI_OK(MPI_Comm_create_errhandler(note_world_error, &handler));
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
  Stream stream;
  world_errors = 0;
  check_error(MPIX_Win_post_stream(MPI_GROUP_EMPTY, wrong, stream),
              {"a wrong handle", When::idle, MPI_ERR_WIN, "MPIX_Win_post_stream", "no such window", {}});
  CHECK(world_errors == 1);
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  MPI_OK(MPI_Errhandler_free(&handler));
}

TEST_CASE("calls that close what is not open") {
  try_out_all({
      {"complete_stream without an epoch", When::idle, MPI_ERR_RMA_SYNC, "MPIX_Win_complete_stream", "MPI_Win_start",
       [](Bench& b) { return MPIX_Win_complete_stream(b.win, b.stream); }},
      {"complete_stream in an exposure epoch", When::exposed, MPI_ERR_RMA_SYNC, "MPIX_Win_complete_stream",
       "MPI_Win_start", [](Bench& b) { return MPIX_Win_complete_stream(b.win, b.stream); }},
      {"wait_stream without a post", When::idle, MPI_ERR_RMA_SYNC, "MPIX_Win_wait_stream", "MPIX_Win_post_stream",
       [](Bench& b) { return MPIX_Win_wait_stream(b.win, b.stream); }},
      {"wait_stream in an access epoch", When::accessing, MPI_ERR_RMA_SYNC, "MPIX_Win_wait_stream",
       "MPIX_Win_post_stream", [](Bench& b) { return MPIX_Win_wait_stream(b.win, b.stream); }},
      {"complete_wait_stream without an epoch", When::idle, MPI_ERR_RMA_SYNC, "MPIX_Win_complete_wait_stream", "open",
       [](Bench& b) { return MPIX_Win_complete_wait_stream(b.win, b.stream); }},
      {"complete_wait_stream without an access epoch", When::exposed, MPI_ERR_RMA_SYNC, "MPIX_Win_complete_wait_stream",
       "MPI_Win_start", [](Bench& b) { return MPIX_Win_complete_wait_stream(b.win, b.stream); }},
      {"complete_wait_stream without an exposure epoch", When::accessing, MPI_ERR_RMA_SYNC,
       "MPIX_Win_complete_wait_stream", "MPIX_Win_post_stream",
       [](Bench& b) { return MPIX_Win_complete_wait_stream(b.win, b.stream); }},
  });
}

TEST_CASE("calls that open what is open") {
  try_out_all({
      {"a second start", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_start", "MPIX_Win_complete_stream",
       [](Bench& b) { return MPI_Win_start(b.ring.to(), MPIX_MODE_STREAM, b.win); }},
      {"a second post", When::exposed, MPI_ERR_RMA_SYNC, "MPIX_Win_post_stream", "MPIX_Win_wait_stream",
       [](Bench& b) { return MPIX_Win_post_stream(b.ring.from(), b.win, b.stream); }},
  });
}

TEST_CASE("ordinary calls in stream epochs") {
  try_out_all({
      {"ordinary start", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_start", "stream",
       [](Bench& b) { return MPI_Win_start(b.ring.to(), 0, b.win); }},
      {"ordinary complete", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_complete", "MPIX_Win_complete_stream",
       [](Bench& b) { return MPI_Win_complete(b.win); }},
      {"ordinary post", When::exposed, MPI_ERR_RMA_SYNC, "MPI_Win_post", "MPIX_Win_wait_stream",
       [](Bench& b) { return MPI_Win_post(b.ring.from(), 0, b.win); }},
      {"ordinary wait", When::exposed, MPI_ERR_RMA_SYNC, "MPI_Win_wait", "MPIX_Win_wait_stream",
       [](Bench& b) { return MPI_Win_wait(b.win); }},
      {"test", When::exposed, MPI_ERR_RMA_SYNC, "MPI_Win_test", "MPIX_Win_wait_stream",
       [](Bench& b) { return MPI_Win_test(b.win, &b.flag); }},
      {"fence in an access epoch", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_fence", "stream",
       [](Bench& b) { return MPI_Win_fence(0, b.win); }},
      {"fence in an exposure epoch", When::exposed, MPI_ERR_RMA_SYNC, "MPI_Win_fence", "stream",
       [](Bench& b) { return MPI_Win_fence(0, b.win); }},
      {"lock", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_lock", "stream",
       [](Bench& b) { return MPI_Win_lock(MPI_LOCK_SHARED, b.target, 0, b.win); }},
      {"lock_all", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_lock_all", "stream",
       [](Bench& b) { return MPI_Win_lock_all(0, b.win); }},
      {"flush", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_flush", "passive",
       [](Bench& b) { return MPI_Win_flush(b.target, b.win); }},
      {"flush_all", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_flush_all", "passive",
       [](Bench& b) { return MPI_Win_flush_all(b.win); }},
      {"flush_local", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_flush_local", "passive",
       [](Bench& b) { return MPI_Win_flush_local(b.target, b.win); }},
      {"flush_local_all", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_flush_local_all", "passive",
       [](Bench& b) { return MPI_Win_flush_local_all(b.win); }},
      {"free in an access epoch", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Win_free", "stream",
       [](Bench& b) { return MPI_Win_free(b.window.handle()); }},
      {"free in an exposure epoch", When::exposed, MPI_ERR_RMA_SYNC, "MPI_Win_free", "stream",
       [](Bench& b) { return MPI_Win_free(b.window.handle()); }},
  });
}

TEST_CASE("stream calls in ordinary epochs") {
  // Epochs of nobody: they close without a partner.
  const auto in_access = [](Bench& b, const std::function<int()>& wrong) {
    MPI_OK(MPI_Win_start(MPI_GROUP_EMPTY, 0, b.win));
    const int code = wrong();
    MPI_OK(MPI_Win_complete(b.win));
    return code;
  };
  const auto in_exposure = [](Bench& b, const std::function<int()>& wrong) {
    MPI_OK(MPI_Win_post(MPI_GROUP_EMPTY, 0, b.win));
    const int code = wrong();
    MPI_OK(MPI_Win_wait(b.win));
    return code;
  };
  const auto in_lock = [](Bench& b, const std::function<int()>& wrong) {
    MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, b.me, 0, b.win));
    const int code = wrong();
    MPI_OK(MPI_Win_unlock(b.me, b.win));
    return code;
  };
  try_out_all({
      {"stream start in an ordinary access epoch", When::idle, MPI_ERR_RMA_SYNC, "MPI_Win_start", "MPI_Win_complete",
       [=](Bench& b) { return in_access(b, [&] { return MPI_Win_start(b.ring.to(), MPIX_MODE_STREAM, b.win); }); }},
      {"complete_stream of an ordinary access epoch", When::idle, MPI_ERR_RMA_SYNC, "MPIX_Win_complete_stream",
       "MPIX_MODE_STREAM",
       [=](Bench& b) { return in_access(b, [&] { return MPIX_Win_complete_stream(b.win, b.stream); }); }},
      {"post_stream in an ordinary exposure epoch", When::idle, MPI_ERR_RMA_SYNC, "MPIX_Win_post_stream",
       "MPI_Win_wait",
       [=](Bench& b) { return in_exposure(b, [&] { return MPIX_Win_post_stream(b.ring.from(), b.win, b.stream); }); }},
      {"wait_stream of an ordinary exposure epoch", When::idle, MPI_ERR_RMA_SYNC, "MPIX_Win_wait_stream",
       "MPI_Win_wait", [=](Bench& b) { return in_exposure(b, [&] { return MPIX_Win_wait_stream(b.win, b.stream); }); }},
      {"stream start while a lock is held", When::idle, MPI_ERR_RMA_SYNC, "MPI_Win_start", "MPI_Win_unlock",
       [=](Bench& b) { return in_lock(b, [&] { return MPI_Win_start(b.ring.to(), MPIX_MODE_STREAM, b.win); }); }},
  });
}

namespace {

int put(Bench& b, int count, MPI_Datatype type, int target, MPI_Aint displacement) {
  return MPI_Put(b.data, count, type, target, displacement, count, type, b.win);
}

int put_strided(Bench& b, bool at_origin) {
  MPI_Datatype strided;
  MPI_OK(MPI_Type_vector(4, 1, 2, MPI_INT, &strided));
  MPI_OK(MPI_Type_commit(&strided));
  const int code = at_origin ? MPI_Put(b.data, 1, strided, b.target, 0, 4, MPI_INT, b.win)
                             : MPI_Put(b.data, 4, MPI_INT, b.target, 0, 1, strided, b.win);
  MPI_OK(MPI_Type_free(&strided));
  return code;
}

/// Of the size of its extent, and yet not a run of bytes.
int put_permuted(Bench& b) {
  MPI_Datatype permuted;
  const int displacements[] = {1, 0};
  MPI_OK(MPI_Type_create_indexed_block(2, 1, displacements, MPI_INT, &permuted));
  MPI_OK(MPI_Type_commit(&permuted));
  const int code = MPI_Put(b.data, 1, permuted, b.target, 0, 2, MPI_INT, b.win);
  MPI_OK(MPI_Type_free(&permuted));
  return code;
}

}  // namespace

TEST_CASE("wrong puts") {
  constexpr int all = static_cast<int>(Bench::bytes);
  try_out_all({
      {"a rank that is not in the group of the epoch", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Put", "group of the",
       [](Bench& b) { return put(b, 1, MPI_INT, b.me, 0); }, 2},
      {"a rank beyond the window's", When::accessing, MPI_ERR_RANK, "MPI_Put", "rank",
       [](Bench& b) { return put(b, 1, MPI_INT, size(), 0); }},
      {"a negative rank", When::accessing, MPI_ERR_RANK, "MPI_Put", "rank",
       [](Bench& b) { return put(b, 1, MPI_INT, -77, 0); }},
      {"too much by a byte", When::accessing, MPI_ERR_RMA_RANGE, "MPI_Put", "window",
       [](Bench& b) { return put(b, all, MPI_BYTE, b.target, 1); }},
      {"all of it beyond the end", When::accessing, MPI_ERR_RMA_RANGE, "MPI_Put", "window",
       [](Bench& b) { return put(b, 1, MPI_BYTE, b.target, all); }},
      {"a displacement that overflows", When::accessing, MPI_ERR_RMA_RANGE, "MPI_Put", "window",
       [](Bench& b) { return put(b, 1, MPI_BYTE, b.target, PTRDIFF_MAX); }},
      {"a negative displacement", When::accessing, MPI_ERR_DISP, "MPI_Put", "displacement",
       [](Bench& b) { return put(b, 1, MPI_INT, b.target, -4); }},
      {"a negative count", When::accessing, MPI_ERR_COUNT, "MPI_Put", "count",
       [](Bench& b) { return put(b, -1, MPI_INT, b.target, 0); }},
      {"a negative target count", When::accessing, MPI_ERR_COUNT, "MPI_Put", "target count",
       [](Bench& b) { return MPI_Put(b.data, 1, MPI_INT, b.target, 0, -1, MPI_INT, b.win); }},
      {"a null datatype", When::accessing, MPI_ERR_TYPE, "MPI_Put", "datatype",
       [](Bench& b) { return put(b, 1, MPI_DATATYPE_NULL, b.target, 0); }},
      {"a null target datatype", When::accessing, MPI_ERR_TYPE, "MPI_Put", "target datatype",
       [](Bench& b) { return MPI_Put(b.data, 1, MPI_INT, b.target, 0, 1, MPI_DATATYPE_NULL, b.win); }},
      {"sizes that differ", When::accessing, MPI_ERR_TRUNCATE, "MPI_Put", "bytes",
       [](Bench& b) { return MPI_Put(b.data, 2, MPI_INT, b.target, 0, 1, MPI_INT, b.win); }},
      {"a strided origin", When::accessing, MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Put", "contiguous",
       [](Bench& b) { return put_strided(b, true); }},
      {"a strided target", When::accessing, MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Put", "contiguous",
       [](Bench& b) { return put_strided(b, false); }},
      {"a permuting datatype", When::accessing, MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Put", "contiguous",
       [](Bench& b) { return put_permuted(b); }},
  });
}

TEST_CASE("a put in a first epoch of nobody") {
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  Stream stream;
  MPI_OK(MPI_Win_start(MPI_GROUP_EMPTY, MPIX_MODE_STREAM, window));
  const int code = MPI_Put(window.base(), 1, MPI_INT, rank(), 0, 1, MPI_INT, window);
  CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
  CHECK(error_text(code).find("not in the group") != std::string::npos);
  MPI_OK(MPIX_Win_complete_stream(window, stream));
  stream.synchronize();
}

TEST_CASE("puts without an epoch on a window of stream epochs") {
  Bench bench(Memory::device);
  MPI_OK(MPI_Win_set_errhandler(bench.win, MPI_ERRORS_RETURN));
  const WrongCall missing{
      "put", When::idle, MPI_ERR_RMA_SYNC, "MPI_Put", "MPI_Win_start(group, MPIX_MODE_STREAM, win) is missing", {}};
  const auto put_to_me = [&] { return put(bench, 1, MPI_BYTE, bench.me, Bench::bytes - 1); };
  bench.ring.epoch(bench.stream, [&] { check_error(put_to_me(), missing); });
  bench.stream.synchronize();
  check_error(put_to_me(), missing);
  check_error(MPI_Get(bench.result, 1, MPI_INT, bench.me, 0, 1, MPI_INT, bench.win),
              {"get", When::idle, MPI_ERR_RMA_SYNC, "MPI_Get", "stream epochs have only MPI_Put", {}});
  if (!device().is_host()) return;  // this MPI may be unable to reach memory of the GPU
  // Ordinary epochs are what they were.
  MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, bench.me, 0, bench.win));
  MPI_OK(put_to_me());
  MPI_OK(MPI_Win_unlock(bench.me, bench.win));
  check_error(put_to_me(), missing);
  MPI_OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, bench.win));
  MPI_OK(put_to_me());
  MPI_OK(MPI_Win_fence(0, bench.win));
  MPI_OK(put_to_me());
  MPI_OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, bench.win));
  check_error(put_to_me(), missing);
  bench.ring.epoch(bench.stream);
  bench.stream.synchronize();
  check_error(put_to_me(), missing);
}

namespace {

std::atomic<int> errors_handled{0};
std::string text_handled;

void count_error(MPI_Win*, int* code, ...) {
  if (errors_handled++ == 0) text_handled = error_text(*code);
}

}  // namespace

TEST_CASE("a first put without any epoch, on a window without a stream call so far") {
  Window window(Memory::device, 64);
  MPI_Errhandler noting = MPI_ERRHANDLER_NULL;
  MPI_OK(MPI_Win_create_errhandler(count_error, &noting));
  MPI_OK(MPI_Win_set_errhandler(window, noting));
  int word = 1;
  const auto first_put = [&] { return MPI_Put(&word, 1, MPI_INT, rank(), 0, 1, MPI_INT, window); };
  for (int i = 1; i <= 2; ++i) {
    errors_handled = 0;
    const int code = first_put();
    CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
    CHECK(errors_handled == 1);
    CHECK(text_handled.find("MPI_Put on window") == 0);
    CHECK(text_handled.find("MPI_Win_start") != std::string::npos);
    CHECK(text_handled.find("MPIX_MODE_STREAM") != std::string::npos);
  }
  errors_handled = 0;
  int old = 0;
  CHECK(error_class(MPI_Fetch_and_op(&word, &old, MPI_INT, rank(), 0, MPI_SUM, window)) == MPI_ERR_RMA_SYNC);
  CHECK(errors_handled == 1);
  MPI_OK(MPI_Errhandler_free(&noting));
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK(MPI_Put(&word, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, window) == MPI_SUCCESS);
  if (!device().is_host()) return;  // this MPI may be unable to reach memory of the GPU
  // The way to initialize one's own part.
  MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank(), 0, window));
  MPI_OK(first_put());
  MPI_OK(MPI_Win_unlock(rank(), window));
  const int code = first_put();
  CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
  CHECK(error_text(code).find("MPI_Win_start") != std::string::npos);
}

// By the name of a call that such an interface has: it may open epochs past libmpix, and so MPI judges.
TEST_CASE("where a Fortran interface is loaded, puts without an epoch are MPI's", "[.fortran]") {
  NEEDS(device().is_host(), "this MPI may be unable to reach memory of the GPU");
  REQUIRE(dlopen("tests/support/.libs/libfortran.so", RTLD_NOW | RTLD_LOCAL) != nullptr);
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const int word = 1;
  const auto put = [&] { return MPI_Put(&word, 1, MPI_INT, rank(), 0, 1, MPI_INT, window); };
  MPI_OK(PMPI_Win_fence(MPI_MODE_NOPRECEDE, window));
  MPI_OK(put());
  MPI_OK(PMPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK(contents<int>(window.base(), 1)[0] == word);
  const int code = put();
  CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
  CHECK(error_text(code).find("MPI_Win_start") == std::string::npos);
}

TEST_CASE("puts without any epoch, of several threads at once") {
  constexpr int threads = 4, puts = 50;
  for (int turn = scaled(10); turn > 0; --turn) {
    Window window(Memory::device, 64);
    MPI_Errhandler noting = MPI_ERRHANDLER_NULL, found = MPI_ERRHANDLER_NULL;
    MPI_OK(MPI_Win_create_errhandler(count_error, &noting));
    MPI_OK(MPI_Win_set_errhandler(window, noting));
    errors_handled = 0;
    in_threads(threads, [&](int) {
      const int word = 1;
      for (int i = 0; i < puts; ++i)
        EXPECT(MPI_Put(&word, 1, MPI_INT, rank(), 0, 1, MPI_INT, window) != MPI_SUCCESS, "there is no epoch");
    });
    CHECK(errors_handled == threads * puts);
    MPI_OK(MPI_Win_get_errhandler(window, &found));
    CHECK(found == noting);
    MPI_OK(MPI_Errhandler_free(&found));
    MPI_OK(MPI_Errhandler_free(&noting));
  }
}

TEST_CASE("operations that stream epochs do not have yet") {
  const int unsupported = MPI_ERR_UNSUPPORTED_OPERATION;
  try_out_all({
      {"get", When::accessing, unsupported, "MPI_Get", "supported",
       [](Bench& b) { return MPI_Get(b.result, 1, MPI_INT, b.target, 0, 1, MPI_INT, b.win); }},
      {"accumulate", When::accessing, unsupported, "MPI_Accumulate", "supported",
       [](Bench& b) { return MPI_Accumulate(b.data, 1, MPI_INT, b.target, 0, 1, MPI_INT, MPI_SUM, b.win); }},
      {"get_accumulate", When::accessing, unsupported, "MPI_Get_accumulate", "supported",
       [](Bench& b) {
         return MPI_Get_accumulate(b.data, 1, MPI_INT, b.result, 1, MPI_INT, b.target, 0, 1, MPI_INT, MPI_SUM, b.win);
       }},
      {"fetch_and_op", When::accessing, unsupported, "MPI_Fetch_and_op", "supported",
       [](Bench& b) { return MPI_Fetch_and_op(b.data, b.result, MPI_INT, b.target, 0, MPI_SUM, b.win); }},
      {"compare_and_swap", When::accessing, unsupported, "MPI_Compare_and_swap", "supported",
       [](Bench& b) { return MPI_Compare_and_swap(b.data, b.data, b.result, MPI_INT, b.target, 0, b.win); }},
      {"rput", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Rput", "passive",
       [](Bench& b) { return MPI_Rput(b.data, 1, MPI_INT, b.target, 0, 1, MPI_INT, b.win, &b.request); }},
      {"rget", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Rget", "passive",
       [](Bench& b) { return MPI_Rget(b.result, 1, MPI_INT, b.target, 0, 1, MPI_INT, b.win, &b.request); }},
      {"raccumulate", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Raccumulate", "passive",
       [](Bench& b) {
         return MPI_Raccumulate(b.data, 1, MPI_INT, b.target, 0, 1, MPI_INT, MPI_SUM, b.win, &b.request);
       }},
      {"rget_accumulate", When::accessing, MPI_ERR_RMA_SYNC, "MPI_Rget_accumulate", "passive",
       [](Bench& b) {
         return MPI_Rget_accumulate(b.data, 1, MPI_INT, b.result, 1, MPI_INT, b.target, 0, 1, MPI_INT, MPI_SUM, b.win,
                                    &b.request);
       }},
  });
}

// ---- calls that MPI itself refuses, or that leave things as they are

TEST_CASE("a lock that MPI refuses opens nothing") {
  Bench bench(Memory::unmapped);
  CHECK(MPI_Win_lock(MPI_LOCK_SHARED, size() + 90, 0, bench.win) != MPI_SUCCESS);
  bench.ring.epoch(bench.stream);
  bench.stream.synchronize();
}

TEST_CASE("a test that finds the epoch open does not close it") {
  Bench bench(Memory::unmapped);
  const Group to(right_of(rank())), from(left_of(rank()));
  MPI_OK(MPI_Win_post(from, 0, bench.win));
  int over = 1;
  MPI_OK(MPI_Win_test(bench.win, &over));
  CHECK_FALSE(over);
  check_error(MPIX_Win_post_stream(from, bench.win, bench.stream),
              {"post_stream", When::idle, MPI_ERR_RMA_SYNC, "MPIX_Win_post_stream", "MPI_Win_wait", {}});
  barrier();
  MPI_OK(MPI_Win_start(to, 0, bench.win));
  MPI_OK(MPI_Win_complete(bench.win));
  while (!over) MPI_OK(MPI_Win_test(bench.win, &over));
  bench.ring.epoch(bench.stream);
  bench.stream.synchronize();
}

TEST_CASE("a window that MPI refuses to free goes on") {
  Bench bench(Memory::unmapped);
  MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, bench.me, 0, bench.win));
  const int code = MPI_Win_free(bench.window.handle());
  INFO(error_text(code));
  if (code == MPI_SUCCESS) {
    checked();  // this MPI does not mind
    return;
  }
  REQUIRE(static_cast<MPI_Win>(bench.window) == bench.win);
  MPI_OK(MPI_Win_unlock(bench.me, bench.win));
  bench.ring.epoch(bench.stream);
  bench.stream.synchronize();
}

TEST_CASE("wrong groups and streams") {
  // Where a GPU is in use, what can be told from its streams is a host stream.
  MPIX_Host_stream foreign = nullptr;
  MPI_OK(MPIX_Host_stream_create(&foreign));
  const auto no_stream = [=](Bench& b) -> void* {
    if (device().is_host()) return &b.flag;
    return foreign;
  };
  try_out_all({
      {"start with MPI_GROUP_NULL", When::idle, MPI_ERR_GROUP, "MPI_Win_start", "MPI_GROUP_NULL",
       [](Bench& b) { return MPI_Win_start(MPI_GROUP_NULL, MPIX_MODE_STREAM, b.win); }},
      {"post with MPI_GROUP_NULL", When::idle, MPI_ERR_GROUP, "MPIX_Win_post_stream", "MPI_GROUP_NULL",
       [](Bench& b) { return MPIX_Win_post_stream(MPI_GROUP_NULL, b.win, b.stream); }},
      {"post in what is no stream", When::idle, MPI_ERR_ARG, "MPIX_Win_post_stream", "stream",
       [&](Bench& b) { return MPIX_Win_post_stream(b.ring.from(), b.win, no_stream(b)); }},
      {"wait in what is no stream", When::exposed, MPI_ERR_ARG, "MPIX_Win_wait_stream", "stream",
       [&](Bench& b) { return MPIX_Win_wait_stream(b.win, no_stream(b)); }},
      {"complete in what is no stream", When::accessing, MPI_ERR_ARG, "MPIX_Win_complete_stream", "stream",
       [&](Bench& b) { return MPIX_Win_complete_stream(b.win, no_stream(b)); }},
  });
  MPI_OK(MPIX_Host_stream_destroy(&foreign));
}

TEST_CASE("a host stream that is gone") {
  NEEDS(device().is_host(), "what became of a stream is known of host streams only");
  try_out_all({
      {"post in a stream that is gone", When::idle, MPI_ERR_ARG, "MPIX_Win_post_stream", "stream",
       [](Bench& b) {
         MPIX_Host_stream stream;
         MPI_OK(MPIX_Host_stream_create(&stream));
         void* gone = stream;
         MPI_OK(MPIX_Host_stream_destroy(&stream));
         return MPIX_Win_post_stream(b.ring.from(), b.win, gone);
       }},
  });
}

TEST_CASE("a group with a rank that is not in the window") {
  NEEDS_RANKS(3);
  const int outsider = size() - 1;
  MPI_Comm comm;
  MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, rank() == outsider ? MPI_UNDEFINED : 0, 0, &comm));
  if (rank() == outsider) {
    checked();  // nothing to do here
    return;
  }
  {
    const Window window(Memory::device, 64, 1, comm);
    const Group some(std::vector<int>{rank(), outsider});
    const Group self(rank());
    Stream stream;
    const When idle = When::idle;
    check_error(MPI_Win_start(some, MPIX_MODE_STREAM, window),
                {"start", idle, MPI_ERR_RANK, "MPI_Win_start", "not in the window", {}});
    check_error(MPIX_Win_post_stream(some, window, stream),
                {"post", idle, MPI_ERR_RANK, "MPIX_Win_post_stream", "not in the window", {}});
    const Values<int> value{42};
    MPI_OK(MPIX_Win_post_stream(self, window, stream));
    MPI_OK(MPI_Win_start(self, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(value.data(), 1, MPI_INT, rank(), 4, 1, MPI_INT, window));
    MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    stream.synchronize();
    CHECK(contents<int>(window.base(), 2)[1] == 42);
  }
  MPI_OK(MPI_Comm_free(&comm));
}

TEST_CASE("dynamic windows have no stream epochs, and are what they were otherwise") {
  MPI_Win win;
  MPI_OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  MPI_OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
  const int unsupported = MPI_ERR_UNSUPPORTED_OPERATION;
  const Group self(rank());
  Stream stream;
  const When idle = When::idle;
  check_error(MPI_Win_start(self, MPIX_MODE_STREAM, win), {"start", idle, unsupported, "MPI_Win_start", "dynamic", {}});
  check_error(MPIX_Win_post_stream(self, win, stream),
              {"post", idle, unsupported, "MPIX_Win_post_stream", "dynamic", {}});

  int memory = 0;
  const int value = 5;
  MPI_Aint address;
  MPI_OK(MPI_Win_attach(win, &memory, sizeof memory));
  MPI_OK(MPI_Get_address(&memory, &address));
  MPI_OK(MPI_Win_fence(0, win));
  MPI_OK(MPI_Put(&value, 1, MPI_INT, rank(), address, 1, MPI_INT, win));
  MPI_OK(MPI_Win_fence(0, win));
  CHECK(memory == 5);
  MPI_OK(MPI_Win_detach(win, &memory));
  MPI_OK(MPI_Win_free(&win));
}

// MPI does not know the handle, so nothing may be asked of it that would raise another error.
TEST_CASE("a window that was freed") {
  NEEDS(!is_open_mpi, "Open MPI reads what a freed handle points to");
  MPI_Win win = MPI_WIN_NULL;
  MPI_OK(MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  const MPI_Win freed = win;
  MPI_OK(MPI_Win_free(&win));
  MPI_Errhandler handler;
  MPI_OK(MPI_Comm_create_errhandler(note_world_error, &handler));
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
  Stream stream;
  MPIX_Win_stats stats;
  const std::vector<std::pair<const char*, std::function<int()>>> calls = {
      {"MPIX_Win_post_stream", [&] { return MPIX_Win_post_stream(MPI_GROUP_EMPTY, freed, stream); }},
      {"MPI_Win_start", [&] { return MPI_Win_start(MPI_GROUP_EMPTY, MPIX_MODE_STREAM, freed); }},
      {"MPIX_Win_complete_stream", [&] { return MPIX_Win_complete_stream(freed, stream); }},
      {"MPIX_Win_wait_stream", [&] { return MPIX_Win_wait_stream(freed, stream); }},
      {"MPIX_Win_complete_wait_stream", [&] { return MPIX_Win_complete_wait_stream(freed, stream); }},
      {"MPIX_Win_get_stats", [&] { return MPIX_Win_get_stats(freed, &stats, sizeof stats); }},
  };
  for (const auto& [name, make] : calls) {
    world_errors = 0;
    check_error(make(), {name, When::idle, MPI_ERR_WIN, name, "freed", {}});
    CHECK(world_errors == 1);
  }
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  MPI_OK(MPI_Errhandler_free(&handler));
}

// Where there is no window, errors go to the error handler of MPI_COMM_WORLD.
TEST_CASE("errors of calls without a window") {
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  MPIX_Host_stream stream = nullptr;
  MPI_OK(MPIX_Host_stream_create(&stream));
  int no_stream = 0;
  const auto is = [](int code, int error_class, const char* call, const char* word) {
    check_error(code, {call, When::idle, error_class, call, word, {}});
  };
  is(MPIX_Win_post_stream(MPI_GROUP_EMPTY, MPI_WIN_NULL, stream), MPI_ERR_WIN, "MPIX_Win_post_stream", "MPI_WIN_NULL");
  is(MPIX_Win_complete_stream(MPI_WIN_NULL, stream), MPI_ERR_WIN, "MPIX_Win_complete_stream", "MPI_WIN_NULL");
  is(MPI_Win_start(MPI_GROUP_EMPTY, MPIX_MODE_STREAM, MPI_WIN_NULL), MPI_ERR_WIN, "MPI_Win_start", "MPI_WIN_NULL");
  is(MPIX_Host_stream_create(nullptr), MPI_ERR_ARG, "MPIX_Host_stream_create", "stream");
  is(MPIX_Host_stream_launch(stream, nullptr, nullptr), MPI_ERR_ARG, "MPIX_Host_stream_launch", "function");
  const auto wrong = reinterpret_cast<MPIX_Host_stream>(&no_stream);
  is(MPIX_Host_stream_launch(
         wrong, [](void*) {}, nullptr),
     MPI_ERR_ARG, "MPIX_Host_stream_launch", "stream");
  is(MPIX_Host_stream_synchronize(wrong), MPI_ERR_ARG, "MPIX_Host_stream_synchronize", "stream");
  is(MPIX_Query_stream_rma(nullptr), MPI_ERR_ARG, "MPIX_Query_stream_rma", "");
  MPIX_Host_stream none = nullptr;
  is(MPIX_Host_stream_destroy(&none), MPI_ERR_ARG, "MPIX_Host_stream_destroy", "stream");

  int from_inside = MPI_SUCCESS;
  launch_on_host(stream, [&] { from_inside = MPIX_Host_stream_synchronize(stream); });
  MPI_OK(MPIX_Host_stream_synchronize(stream));
  is(from_inside, MPI_ERR_ARG, "MPIX_Host_stream_synchronize", "runs on it");
  MPI_OK(MPIX_Host_stream_destroy(&stream));
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

TEST_CASE("memory of a negative size") {
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  void* base = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  CHECK(error_class(MPI_Win_allocate(-1, 1, DeviceInfo(), MPI_COMM_WORLD, static_cast<void*>(&base), &win)) ==
        MPI_ERR_SIZE);
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

#ifdef MPICH  // Open MPI does not notice that the handle is wrong

namespace {

extern "C" void throw_error(MPI_Comm*, int*, ...) { throw std::runtime_error("the program's"); }

}  // namespace

// MPI calls it below libmpix here, which looks at the group.
TEST_CASE("what an error handler throws arrives") {
  MPI_Errhandler handler;
  MPI_OK(MPI_Comm_create_errhandler(throw_error, &handler));
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
  Window window(Memory::device, 64);
  std::string caught;
  try {
    MPI_Win_start(0x12345678, MPIX_MODE_STREAM, window);
  } catch (const std::runtime_error& error) {
    caught = error.what();
  }
  CHECK(caught == "the program's");
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  MPI_OK(MPI_Errhandler_free(&handler));
}

#endif

TEST_CASE("the text names the window") {
  Window window(Memory::device, 64);
  Stream stream;
  MPI_OK(MPI_Win_set_name(window, "temperature"));
  CHECK(contains(error_text(MPIX_Win_complete_stream(window, stream)), "'temperature'"));
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  CHECK(contains(error_text(MPIX_Win_complete_stream(window, stream)), "'pressure'"));
}

TEST_CASE("the info names the window") {
  MPI_Info info;
  MPI_OK(MPI_Info_create(&info));
  MPI_OK(MPI_Info_set(info, "mpix_name", "humidity"));
  MPI_Win made = MPI_WIN_NULL, allocated = MPI_WIN_NULL;
  int memory = 0;
  void* base = nullptr;
  MPI_OK(MPI_Win_create(&memory, sizeof memory, 1, info, MPI_COMM_WORLD, &made));
  MPI_OK(MPI_Win_allocate(8, 1, info, MPI_COMM_WORLD, static_cast<void*>(&base), &allocated));
  MPI_OK(MPI_Info_free(&info));
  Stream stream;
  for (MPI_Win* win : {&made, &allocated}) {
    MPI_OK(MPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN));
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    MPI_OK(MPI_Win_get_name(*win, name, &length));
    CHECK(std::string(name) == "humidity");
    CHECK(contains(error_text(MPIX_Win_complete_stream(*win, stream)), "'humidity'"));
    MPI_OK(MPI_Win_free(win));
  }
}

TEST_CASE("error codes do not pile up") {
  Window window(Memory::device, 64);
  Stream stream;
  const int first = MPIX_Win_complete_stream(window, stream);
  int last = first;
  for (int i = 0; i < 10000; ++i) last = MPIX_Win_complete_stream(window, stream);
  CHECK(error_class(last) == MPI_ERR_RMA_SYNC);
  CHECK(error_text(last) == error_text(first));
}
