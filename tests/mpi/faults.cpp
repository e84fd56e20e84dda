// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// MPI calls that fail, or that are slow: some of those that libmpix makes end up here first, as a program's functions
// stand in front of a library's.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/epochs.h"
#include "support/scarce_memory.h"

using namespace test;

namespace {

using Clock = std::chrono::steady_clock;

/// MPI's own function of this name.
template <class Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// What the next calls of these functions return; MPI_SUCCESS: what MPI says.
std::atomic<int> type_size_code{MPI_SUCCESS}, group_size_code{MPI_SUCCESS};
std::atomic<long> messages{0};            ///< sent by libmpix
std::atomic<long> refused{-1};            ///< the number of the one that MPI does not take
std::atomic<bool> is_other_build{false};  ///< so the others see it
/// Once this rank has told its build, which it does for the first window of a communicator, there is no memory.
std::atomic<bool> runs_out_of_memory{false};
thread_local bool next_new_fails = false;
/// Exchanges of libmpix so far; and behind which there is no memory. 0: there is.
std::atomic<int> exchanges{0}, last_with_memory{0};

/// Receives of large data: libmpix has posted them, and MPI is late with them.
class LateReceives {
 public:
  enum class Until { looked_at_often, window_freed, never };

  void begin(Until until) {
    std::lock_guard<std::mutex> hold(mutex_);
    until_ = until;
    active_ = true;
    landed_ = 0;
  }
  void end() { active_ = false; }
  bool active() const { return active_; }
  int landed() const { return landed_; }
  bool any_waits() {
    std::lock_guard<std::mutex> hold(mutex_);
    return !waiting_.empty();
  }

  void add(void* to, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm) {
    std::lock_guard<std::mutex> hold(mutex_);
    waiting_.push_back({to, count, type, source, tag, comm});
    looks_ = 0;
  }
  void note_free() {
    std::lock_guard<std::mutex> hold(mutex_);
    freed_ = Clock::now();
  }
  /// Whether all have come.
  bool look() {
    std::lock_guard<std::mutex> hold(mutex_);
    const bool in_time = until_ == Until::looked_at_often
                             ? ++looks_ >= 200
                             : freed_ && Clock::now() - *freed_ > std::chrono::milliseconds(100);
    if (!in_time) return false;
    receive([this](const Receive& late) {
      ++landed_;
      return static_cast<char*>(late.to);
    });
    return true;
  }
  bool are_lost() const { return until_ == Until::never; }
  void lose() {
    std::lock_guard<std::mutex> hold(mutex_);
    std::vector<char> nowhere;
    receive([&](const Receive& late) {
      nowhere.resize(static_cast<std::size_t>(late.count));
      return nowhere.data();
    });
  }

 private:
  struct Receive {
    void* to;
    int count;
    MPI_Datatype type;
    int source, tag;
    MPI_Comm comm;
  };
  template <class Place>
  void receive(Place place) {
    for (const Receive& late : waiting_)
      PMPI_Recv(place(late), late.count, late.type, late.source, late.tag, late.comm, MPI_STATUS_IGNORE);
    waiting_.clear();
  }

  std::mutex mutex_;
  std::atomic<Until> until_{Until::looked_at_often};
  std::vector<Receive> waiting_;
  int looks_ = 0;
  std::optional<Clock::time_point> freed_;
  std::atomic<bool> active_{false};
  std::atomic<int> landed_{0};
};
LateReceives late_receives;

}  // namespace

#define STANDS_IN_FRONT extern "C" __attribute__((visibility("default")))

STANDS_IN_FRONT int PMPI_Type_size_x(MPI_Datatype type, MPI_Count* size) {
  const int code = type_size_code.exchange(MPI_SUCCESS);
  return code != MPI_SUCCESS ? code : real(&PMPI_Type_size_x, "PMPI_Type_size_x")(type, size);
}

STANDS_IN_FRONT int PMPI_Group_size(MPI_Group group, int* size) {
  const int code = group_size_code.exchange(MPI_SUCCESS);
  return code != MPI_SUCCESS ? code : real(&PMPI_Group_size, "PMPI_Group_size")(group, size);
}

/// The build stands first in what libmpix tells of a new window. Behind it, another build may tell what it likes.
STANDS_IN_FRONT int PMPI_Allgather(const void* mine, int count, MPI_Datatype type, void* all, int all_count,
                                   MPI_Datatype all_type, MPI_Comm comm) {
  std::vector<char> told;
  bool tells_build = false;
  if ((is_other_build || runs_out_of_memory) && type == MPI_BYTE) {
    told.assign(static_cast<const char*>(mine), static_cast<const char*>(mine) + count);
    const std::string name("libmpix", 8);
    const auto build = std::search(told.begin(), told.end(), name.begin(), name.end());
    tells_build = build != told.end();
    if (tells_build && is_other_build) {
      ++build[8];
      std::fill(build + 32, told.end(), '\xff');
      mine = told.data();
    }
  }
  const int code = real(&PMPI_Allgather, "PMPI_Allgather")(mine, count, type, all, all_count, all_type, comm);
  if (tells_build && runs_out_of_memory.exchange(false)) next_new_fails = true;
  if (type == MPI_BYTE && ++exchanges == last_with_memory) next_new_fails = true;
  return code;
}

bool allocation_fails() noexcept { return std::exchange(next_new_fails, false); }

STANDS_IN_FRONT int PMPI_Isend(const void* from, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm,
                               MPI_Request* request) {
  if (messages++ == refused) return MPI_ERR_OTHER;
  return real(&PMPI_Isend, "PMPI_Isend")(from, count, type, target, tag, comm, request);
}

STANDS_IN_FRONT int PMPI_Irecv(void* to, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                               MPI_Request* request) {
  if (!late_receives.active() || source == MPI_ANY_SOURCE)
    return real(&PMPI_Irecv, "PMPI_Irecv")(to, count, type, source, tag, comm, request);
  late_receives.add(to, count, type, source, tag, comm);
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

STANDS_IN_FRONT int PMPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  if (!late_receives.active()) return real(&PMPI_Testall, "PMPI_Testall")(count, requests, flag, statuses);
  if (late_receives.are_lost()) {
    late_receives.lose();
    *flag = 0;
    return MPI_ERR_OTHER;
  }
  *flag = late_receives.look();
  return MPI_SUCCESS;
}

STANDS_IN_FRONT int PMPI_Win_free(MPI_Win* win) {
  const int code = real(&PMPI_Win_free, "PMPI_Win_free")(win);
  late_receives.note_free();
  return code;
}

TEST_CASE("a window of ranks with different builds of libmpix is an ordinary one", "[calls]") {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  is_other_build = rank() == 1;
  Window window(Memory::other, 64, 1, comm);
  is_other_build = false;
  MPI_OK(MPI_Comm_free(&comm));
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  Stream stream;
  const int code = MPIX_Win_post_stream(Group(left_of(rank())), window, stream);
  INFO(error_text(code));
  CHECK(error_class(code) == MPI_ERR_UNSUPPORTED_OPERATION);
  CHECK(error_text(code).find("the library differs between the ranks: libmpix ") != std::string::npos);
  CHECK(error_text(code).find(" on rank 1") != std::string::npos);
  const int value = 1 + rank();
  MPI_OK(MPI_Win_fence(0, window));
  MPI_OK(MPI_Put(&value, 1, MPI_INT, right_of(rank()), 0, 1, MPI_INT, window));
  MPI_OK(MPI_Win_fence(0, window));
  CHECK(contents<int>(window.base(), 1)[0] == 1 + left_of(rank()));
}

// Between the exchange of all, for the communicator, and that of its node, for the window.
TEST_CASE("a rank that runs out of memory in the first window of a communicator harms no other window", "[calls]") {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  const int poor = size() - 1;
  runs_out_of_memory = rank() == poor;
  Window window(Memory::device, 64, 1, comm);
  CHECK(!runs_out_of_memory);
  Stream stream;
  const std::string text = error_text(MPIX_Win_post_stream(Group(left_of(rank())), window, stream));
  INFO(text);
  CHECK(text.find("rank " + std::to_string(poor) + ": out of memory") != std::string::npos);
  {
    Window other(Memory::device, 64, 1, comm);
    Ring ring(other, other.base(), 64);
    ring.epoch(stream);
    stream.synchronize();
  }
  MPI_OK(MPI_Comm_free(&comm));
}

TEST_CASE("a rank that runs out of memory behind the one exchange of a window", "[calls]") {
  const int poor = size() - 1;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  std::vector<char> memory(20000);
  const auto create = [&](std::size_t bytes, int last) {
    MPI_Win win = MPI_WIN_NULL;
    exchanges = 0;
    last_with_memory = rank() == poor ? last : 0;
    MPI_OK(MPI_Win_create(memory.data(), static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, comm, &win));
    last_with_memory = 0;
    next_new_fails = false;
    return win;
  };
  const auto runs_epochs = [&](MPI_Win win) {
    MPI_OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    Stream stream;
    const int code = MPIX_Win_post_stream(Group(left_of(rank())), win, stream);
    if (code != MPI_SUCCESS) return error_text(code);
    const int value = rank();
    MPI_OK(MPI_Win_start(Group(right_of(rank())), MPIX_MODE_STREAM, win));
    MPI_OK(MPI_Put(&value, 1, MPI_INT, right_of(rank()), 0, 1, MPI_INT, win));
    MPI_OK(MPIX_Win_complete_wait_stream(win, stream));
    stream.synchronize();
    CHECK(contents<int>(memory.data(), 1)[0] == left_of(rank()));
    return std::string();
  };
  std::vector<MPI_Win> windows;
  for (int i = 0; i < 3; ++i) windows.push_back(create(64, 0));
  if (device().is_host() && !std::getenv("MPIX_NODE_SIZE")) {
    REQUIRE(exchanges == 1);
    // Nothing can go wrong any more.
    windows.push_back(create(64, 1));
    CHECK(runs_epochs(windows.back()) == "");
    // It is not as those before, so there is more to come.
    windows.push_back(create(rank() == poor ? 20000 : 64, 1));
    CHECK(exchanges > 1);
    CHECK(runs_epochs(windows.back()).find("rank " + std::to_string(poor) + ": out of memory") != std::string::npos);
    windows.push_back(create(64, 0));
    CHECK(exchanges == 1);
  }
  CHECK(runs_epochs(windows.back()) == "");
  for (MPI_Win& win : windows) MPI_OK(MPI_Win_free(&win));
  MPI_OK(MPI_Comm_free(&comm));
}

// Wherever it is, up to where calls are measured.
TEST_CASE("a rank that runs out of memory while a communicator is prepared", "[calls]") {
  const int poor = size() - 1;
  const auto prepare = [&](MPI_Comm comm, int last, const char* selection = "model") {
    Info info;
    info.set("mpix_coll_select", selection);
    exchanges = 0;
    last_with_memory = rank() == poor ? last : 0;
    const int code = MPIX_Comm_prepare_stream(comm, info);
    last_with_memory = 0;
    next_new_fails = false;
    return code;
  };
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MPI_OK(prepare(comm, 0, "static"));
  const int all = exchanges;  // but those around the calls that are measured
  MPI_OK(MPI_Comm_free(&comm));
  REQUIRE(all > 2);
  int failed = 0;
  for (int last = 1; last <= all; ++last) {
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    const int code = prepare(comm, last);
    INFO("behind exchange " << last << " of " << all << ": " << error_text(code));
    int codes[2] = {code != MPI_SUCCESS, code == MPI_SUCCESS};
    MPI_OK(MPI_Allreduce(MPI_IN_PLACE, codes, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK((codes[0] == 0 || codes[1] == 0));
    if (code != MPI_SUCCESS && rank() == poor) CHECK(error_class(code) == MPI_ERR_NO_MEM);
    failed += codes[0] != 0;
    CHECK(prepare(comm, 0) == MPI_SUCCESS);
    MPI_OK(MPI_Comm_free(&comm));
  }
  CHECK(failed > 0);
}

TEST_CASE("what MPI refuses within a call is what the call returns", "[calls]") {
  Window window(Memory::device, 64);
  Stream stream;
  const Group to(right_of(rank())), from(left_of(rank()));
  const Values<int> values{1 + rank(), 2};
  MPI_Datatype two;
  MPI_OK(MPI_Type_contiguous(2, MPI_INT, &two));
  MPI_OK(MPI_Type_commit(&two));
  MPI_OK(MPIX_Win_post_stream(from, window, stream));
  group_size_code = MPI_ERR_GROUP;
  CHECK(MPI_Win_start(to, MPIX_MODE_STREAM, window) == MPI_ERR_GROUP);
  CHECK(group_size_code == MPI_SUCCESS);
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
  type_size_code = MPI_ERR_TYPE;
  CHECK(MPI_Put(values.data(), 1, two, right_of(rank()), 0, 1, two, window) == MPI_ERR_TYPE);
  CHECK(type_size_code == MPI_SUCCESS);
  MPI_OK(MPI_Put(values.data(), 1, two, right_of(rank()), 8, 1, two, window));
  MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
  stream.synchronize();
  MPI_OK(MPI_Type_free(&two));
  const std::vector<int> got = contents<int>(window.base(), 4);
  CHECK(got[0] == 0);
  CHECK(got[2] == 1 + left_of(rank()));
}

TEST_CASE("a post goes in the message that follows it", "[messages]") {
  Window window(Memory::device, 200);
  Ring ring(window, window.base(), 200);
  Stream stream;
  constexpr int epochs = 20;
  long fewest = 2 * epochs;
  // A thread that is late may send some by themselves, and then the next few.
  bool enough = false;
  for (int round = 0; round < 100 && !enough; ++round) {
    const long before = messages;
    for (int k = 0; k < epochs; ++k) ring.fused_epoch(stream);
    stream.synchronize();
    barrier();
    fewest = std::min(fewest, messages - before);
    enough = on_all_ranks(fewest < 2 * epochs);
  }
  CHECK(fewest < 2 * epochs);
}

TEST_CASE("posts and data go and come while no stream looks", "[messages]") {
  constexpr std::size_t bytes = 200000;
  Window window(Memory::device, bytes);
  const Buffer source(bytes);
  const Group peer(1 - rank());
  Stream stream;
  for (int k = 1; k <= 3; ++k) {
    stream.fill(source.data(), bytes, ring_data(rank(), k));
    if (rank() == 0) {
      static std::atomic<bool> there;
      there = false;
      MPI_OK(MPIX_Win_post_stream(peer, window, stream));
      // Busy with something else until the other side is through.
      launch_on_host(stream, [] {
        while (!there) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
      barrier();
      there = true;
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      stream.check(window.base(), bytes, ring_data(1, k), HERE("epoch " << k));
    } else {
      MPI_OK(MPI_Win_start(peer, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(source.data(), bytes, MPI_BYTE, 0, 0, bytes, MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
      stream.synchronize();
      barrier();
    }
    stream.synchronize();
  }
  checked();
}

TEST_CASE("what was sent after large data comes after them", "[messages]") {
  constexpr std::size_t large = 200000, piece = 40, pieces = 600, bytes = large + piece * pieces;
  Window window(Memory::device, bytes);
  const Buffer source(bytes);
  const Group to(right_of(rank())), from(left_of(rank()));
  Stream stream;
  late_receives.begin(LateReceives::Until::looked_at_often);
  for (int k = 1; k <= 3; ++k) {
    stream.fill(source.data(), bytes, ring_data(rank(), k));
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    const auto put = [&](std::size_t at, std::size_t count) {
      MPI_OK(MPI_Put(source.data() + at, static_cast<int>(count), MPI_BYTE, right_of(rank()), static_cast<MPI_Aint>(at),
                     static_cast<int>(count), MPI_BYTE, window));
    };
    put(0, large);
    // More than one packet holds: the signal is in another than the large data.
    for (std::size_t i = 0; i < pieces; ++i) put(large + i * piece, piece);
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("epoch " << k));
  }
  stream.synchronize();
  CHECK(late_receives.landed() == 3);
  barrier();
  late_receives.end();
}

namespace {

/// What a stream says whose waits may have ended with an error.
int outcome_of(const Stream& stream) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int code = MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(static_cast<void*>(stream)));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  return code;
}

/// Rank 1 puts all of `source` into rank 0, which has posted before, and knows of the data when it waits. What its
/// stream says.
int put_late(const Buffer& source, int bytes, MPI_Win win) {
  const Group peer(1 - rank());
  Stream stream;
  if (rank() == 0) {
    MPI_OK(MPIX_Win_post_stream(peer, win, stream));
    stream.synchronize();
    barrier();
    for (int i = 0; i < 10000 && !late_receives.any_waits() && !late_receives.are_lost(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MPI_OK(MPIX_Win_wait_stream(win, stream));
  } else {
    barrier();
    MPI_OK(MPI_Win_start(peer, MPIX_MODE_STREAM, win));
    MPI_OK(MPI_Put(source.data(), bytes, MPI_BYTE, 0, 0, bytes, MPI_BYTE, win));
    MPI_OK(MPIX_Win_complete_stream(win, stream));
  }
  return outcome_of(stream);
}

}  // namespace

// The settings of these tests: waits end with an error, after a moment.
TEST_CASE("memory of a window that broke is given back when nothing is on its way into it", "[late]") {
  constexpr int bytes = 1000000;
  const Buffer memory(bytes), source(bytes);
  MPI_Win win;
  MPI_OK(MPI_Win_create(memory.data(), bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  late_receives.begin(LateReceives::Until::window_freed);
  (void)put_late(source, bytes, win);
  CHECK(late_receives.landed() == 0);
  MPI_OK(MPI_Win_free(&win));
  CHECK(late_receives.landed() == (rank() == 0 ? 1 : 0));
  for (int i = 0; i < 10000 && rank() == 0 && late_receives.landed() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  barrier();
  late_receives.end();
}

TEST_CASE("nobody is told of data whose receive failed", "[late]") {
  constexpr int bytes = 1000000;
  const Buffer memory(bytes), source(bytes);
  MPI_Win win;
  MPI_OK(MPI_Win_create(memory.data(), bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  late_receives.begin(LateReceives::Until::never);
  const int code = put_late(source, bytes, win);
  CHECK((code != MPI_SUCCESS) == (rank() == 0));
  MPI_OK(MPI_Win_free(&win));
  barrier();
  late_receives.end();
}

TEST_CASE("a window whose post rode in a message that MPI did not take hears why", "[late]") {
  Window window(Memory::device, 64), other(Memory::device, 64);
  const Group peer(1 - rank());
  Stream stream;
  {
    Ring ring(window, window.base(), 64), in_other(other, other.base(), 64);
    in_other.fused_epoch(stream);
    // Until a post has ridden: then the next one does, as a rule.
    bool rides = false;
    for (int epoch = 0; epoch < 1000 && !rides; ++epoch) {
      const long before = messages;
      ring.fused_epoch(stream);
      stream.synchronize();
      barrier();
      rides = on_all_ranks(messages == before + 1);
    }
  }
  if (rank() == 0) {
    const Buffer source(64);
    refused = messages.load();
    MPI_OK(MPIX_Win_post_stream(peer, window, stream));
    MPI_OK(MPI_Win_start(peer, MPIX_MODE_STREAM, other));
    MPI_OK(MPI_Put(source.data(), 64, MPI_BYTE, 1, 0, 64, MPI_BYTE, other));
    MPI_OK(MPIX_Win_complete_stream(other, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    CHECK(outcome_of(stream) != MPI_SUCCESS);
    CHECK(messages > refused);
    refused = -1;
    const std::string text = error_text(MPIX_Win_post_stream(peer, window, stream));
    INFO(text);
    CHECK(text.find("MPI_Isend to rank 1") != std::string::npos);
  }
  barrier();
}
