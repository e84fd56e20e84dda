// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// MPIX_ON_TIMEOUT=error: a wait for a peer that never comes is reported and released; the window is
// broken, and nothing else is.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "support/capture.h"
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

const bool settings_made = [] {
  // Ranks come to what shall pass within it, too; where more calls follow a wait that shall not, the stream is held.
  setenv("MPIX_TIMEOUT", std::to_string(2 * time_scale()).c_str(), 1);
  setenv("MPIX_ON_TIMEOUT", "error", 1);
  setenv("MPIX_EAGER_SIZE", "64", 1);  // what is larger waits for its post
  return true;
}();

/// More than goes by mailbox on any device: it waits for the post.
constexpr std::size_t direct = 300000;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class ErrorsReturn {
 public:
  ErrorsReturn() { MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); }
  ~ErrorsReturn() { MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL); }
};

/// Each rank is a node of its own.
bool is_alone_on_node() {
  const char* const node_size = std::getenv("MPIX_NODE_SIZE");
  return node_size && std::string(node_size) == "1";
}

bool is_on(const char* variable) {
  const char* const value = std::getenv(variable);
  return value && std::string(value) == "on";
}

/// A relay takes the data of a complete, and holds them until the post comes: it reports, and no stream waits. Where
/// the network takes them from the origin buffer the stream does.
bool is_relayed() {
  return is_alone_on_node() && (!device().is_host() || is_on("MPIX_RELAY")) && !is_on("MPIX_NIC_GPU_DIRECT");
}

struct Outcome {
  int code;  ///< of the synchronization; a GPU's streams know nothing of released waits
  double seconds;
  std::string report;
  bool by_relay = false;
};

Outcome synchronize(Stream& stream, Capture& errors) {
  const ErrorsReturn errors_return;
  const double start = MPI_Wtime();
  int code = MPI_SUCCESS;
  if (device().is_host()) {
    code = MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(static_cast<void*>(stream)));
  } else {
    stream.synchronize();
  }
  return {code, MPI_Wtime() - start, errors.end(), false};
}

/// Of a stream in which nothing but a complete waits.
Outcome synchronize_complete(Stream& stream, Capture& errors) {
  if (!is_relayed()) return synchronize(stream, errors);
  const double start = MPI_Wtime();
  stream.synchronize();
  while (MPI_Wtime() < start + 20 * slowdown() && !contains(errors.text(), "is broken")) usleep(10000);
  return {MPI_SUCCESS, MPI_Wtime() - start, errors.end(), true};
}

void check_code(const Outcome& outcome) {
  if (!device().is_host() || outcome.by_relay) return;
  CHECK(error_class(outcome.code) == MPI_ERR_RMA_SYNC);
  CHECK(contains(error_text(outcome.code), "MPIX_Host_stream_synchronize"));
}

void check_report(const Outcome& outcome, const char* call, const char* epoch, int missing) {
  INFO("after " << outcome.seconds << " s: " << error_text(outcome.code) << "; report: " << outcome.report);
  check_code(outcome);
  CHECK(outcome.seconds > 0.7);
  CHECK(outcome.seconds < 20.0 * slowdown());
  CHECK(contains(outcome.report, "'pressure'"));
  CHECK(contains(outcome.report, call));
  CHECK(contains(outcome.report, epoch));
  CHECK(contains(outcome.report, "rank " + std::to_string(missing)));
}

/// Other nodes do not know of this one.
std::string farewell(const std::string& call) { return is_alone_on_node() ? "" : " (it has called " + call + ")"; }

/// Of a rank that has completed no stream epoch.
const std::string asks_for_start = " (was MPI_Win_start called there without MPIX_MODE_STREAM?)";

/// Every call on a broken window says so.
void check_broken(Window& window, Stream& stream, MPI_Group group) {
  const auto says_so = [](int code) {
    INFO(error_text(code));
    CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
    CHECK(contains(error_text(code), "broken"));
    CHECK(contains(error_text(code), "'pressure'"));
  };
  says_so(MPIX_Win_post_stream(group, window, stream));
  says_so(MPI_Win_start(group, MPIX_MODE_STREAM, window));
  const int value = 1;
  says_so(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window));
  // Nor do ordinary epochs begin, in which MPI would wait for peers that may not come.
  says_so(MPI_Win_start(group, 0, window));
  says_so(MPI_Win_post(group, 0, window));
  says_so(MPI_Win_fence(0, window));
  says_so(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
  says_so(MPI_Win_lock_all(0, window));
}

void check_works(Window& window, Stream& stream) {
  Ring ring(window, window.base(), 64);
  for (int k = 0; k < 3; ++k) ring.epoch(stream);
  stream.synchronize();
}

}  // namespace

TEST_CASE("a peer that never completes") {
  NEEDS_RANKS(2);
  REQUIRE(settings_made);
  Window window(Memory::device, 64);
  Window other(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  Stream stream;
  check_works(window, stream);  // epochs 1 … 3
  const Buffer followed(sizeof(std::uint64_t));
  if (rank() == 0) {
    const Group late(1);
    Capture errors(STDERR_FILENO);
    MPI_OK(MPIX_Win_post_stream(late, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    device().count(stream, followed.as<std::uint64_t>());
    const Outcome outcome = synchronize(stream, errors);
    check_report(outcome, "MPIX_Win_wait_stream", size() == 2 ? "epoch 4" : "epoch 1", 1);
    CHECK_FALSE(contains(outcome.report, "(it has called"));
    CHECK(contents<std::uint64_t>(followed.data(), 1)[0] == 1);
    check_broken(window, stream, late);
    stream.synchronize();  // told once
  }
  barrier();
  check_works(other, stream);
}

// Also of a rank that has never had an epoch on the window. The next window lies where this one did.
TEST_CASE("the report of a wait says that its peer has called MPI_Win_free") {
  NEEDS_RANKS(2);
  const bool had_epochs = GENERATE(false, true);
  CAPTURE(had_epochs);
  Window window(Memory::device, direct);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  Stream stream;
  if (had_epochs) check_works(window, stream);
  barrier();
  if (rank() == 0) {
    const Group late(1);
    const Buffer source(direct);
    Capture errors(STDERR_FILENO);
    if (had_epochs) {
      MPI_OK(MPI_Win_start(late, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(source.data(), int(direct), MPI_BYTE, 1, 0, int(direct), MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
      const std::string missing = "posted access epoch 4" + farewell("MPI_Win_free") +
                                  (is_on("MPIX_NIC_GPU_DIRECT") ? ", or what is put there has not left;" : ";");
      check_report(synchronize_complete(stream, errors), "MPIX_Win_complete_stream", missing.c_str(), 1);
    } else {
      MPI_OK(MPIX_Win_post_stream(late, window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      const std::string missing =
          "completed exposure epoch 1" + (is_alone_on_node() ? asks_for_start : farewell("MPI_Win_free")) + ";";
      check_report(synchronize(stream, errors), "MPIX_Win_wait_stream", missing.c_str(), 1);
    }
  }
  MPI_OK(MPI_Win_free(window.handle()));
  EXPECT(static_cast<MPI_Win>(window) == MPI_WIN_NULL, "freed by all");
}

// Both ranks wait before they complete, in one stream. A rank that only enqueues ahead of a late peer is not accused.
TEST_CASE("the report of a wait asks about a complete behind it") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(),
        "on a GPU the rank that gives up first goes on to its complete, which ends the other's wait");
  const bool waits_first = GENERATE(true, false);
  CAPTURE(waits_first);
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  if (rank() < 2) {
    const Group other(1 - rank());
    Stream stream;
    Capture errors(STDERR_FILENO);
    const auto complete = [&] {
      MPI_OK(MPI_Win_start(other, MPIX_MODE_STREAM, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
    };
    // Between nodes the first epoch waits for its post.
    MPI_OK(MPIX_Win_post_stream(other, window, stream));
    complete();
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.synchronize();
    const auto ahead = device().hold(stream);
    if (waits_first) {
      MPI_OK(MPIX_Win_post_stream(other, window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      complete();
    } else if (rank() == 0) {
      for (int epoch = 0; epoch < 3; ++epoch) {
        MPI_OK(MPIX_Win_post_stream(other, window, stream));
        complete();
        MPI_OK(MPIX_Win_wait_stream(window, stream));
      }
    }
    ahead->open();
    const Outcome outcome = synchronize(stream, errors);
    INFO(outcome.report);
    if (waits_first || rank() == 0) check_report(outcome, "MPIX_Win_wait_stream", "epoch 2", 1 - rank());
    CHECK(contains(outcome.report, "a complete for rank " + std::to_string(1 - rank()) + " is behind this wait") ==
          waits_first);
  }
  barrier();
  EXPECT(true, "freed by all");
}

TEST_CASE("the report of a wait does not ask about a complete in another stream") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "only reports of host streams ask");
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  if (rank() == 0) {
    const Group late(1);
    Stream stream, other;
    const auto busy = device().hold(other);
    MPI_OK(MPIX_Win_post_stream(late, window, stream));
    MPI_OK(MPI_Win_start(late, MPIX_MODE_STREAM, window));
    MPI_OK(MPIX_Win_complete_stream(window, other));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    Capture errors(STDERR_FILENO);
    const Outcome outcome = synchronize(stream, errors);
    check_report(outcome, "MPIX_Win_wait_stream", "epoch 1", 1);
    CHECK_FALSE(contains(outcome.report, "is behind this wait"));
    busy->open();
    check_code(synchronize(other, errors));
  }
  barrier();
  EXPECT(true, "freed by all");
}

TEST_CASE("a peer that never posts") {
  NEEDS_RANKS(2);
  Window window(Memory::device, direct);
  Window other(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  Stream stream;
  if (rank() == 0) {
    const Group late(1);
    const Buffer source(direct);
    Buffer::set_now(source.data(), direct, 'x');
    Capture errors(STDERR_FILENO);
    MPI_OK(MPI_Win_start(late, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), int(direct), MPI_BYTE, 1, 0, int(direct), MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    check_report(synchronize_complete(stream, errors), "MPIX_Win_complete_stream", "epoch 1", 1);
    check_broken(window, stream, late);
  }
  barrier();
  CHECK(contents<char>(window.base(), direct) == std::vector<char>(direct, '\0'));  // nobody exposed this
  check_works(other, stream);
}

TEST_CASE("a stalled fused call names all that it misses") {
  NEEDS_RANKS(2);
  Window window(Memory::device, direct);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  if (rank() == 0) {
    const Group late(1);
    const Buffer source(direct);
    Buffer::set_now(source.data(), direct, 'x');
    Stream stream;
    Capture errors(STDERR_FILENO);
    MPI_OK(MPIX_Win_post_stream(late, window, stream));
    MPI_OK(MPI_Win_start(late, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), int(direct), MPI_BYTE, 1, 0, int(direct), MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    const Outcome outcome = synchronize(stream, errors);
    if (is_relayed()) {  // the relay misses the post, and the stream the data: whoever is first breaks the window
      check_report(outcome, "MPIX_Win_complete_", "epoch 1", 1);
      CHECK((contains(outcome.report, "posted") || contains(outcome.report, "completed")));
    } else {
      check_report(outcome, "MPIX_Win_complete_wait_stream", "epoch 1", 1);
      CHECK(contains(outcome.report, "posted"));
      CHECK(contains(outcome.report, "completed"));
    }
  }
  barrier();
  EXPECT(true, "freed by all");
}

// A second exposure epoch is open when the wait of the first one gives up: nothing but MPI_Win_free follows.
TEST_CASE("a window that broke while an epoch is open can be freed at once") {
  NEEDS_RANKS(2);
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  const bool waits = rank() < 2;
  if (waits) {
    const Group late(1 - rank());
    Stream stream;
    Capture errors(STDERR_FILENO);
    const auto ahead = device().hold(stream);
    MPI_OK(MPIX_Win_post_stream(late, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    MPI_OK(MPIX_Win_post_stream(late, window, stream));
    ahead->open();
    check_code(synchronize(stream, errors));
  }
  MPI_OK(MPI_Win_free(window.handle()));
  EXPECT(static_cast<MPI_Win>(window) == MPI_WIN_NULL, "freed by all");
}

// The likeliest slip of a port: the access epoch is an ordinary one, and MPI waits for a post that went by stream. Rank
// 1 posts for it once the report is there, so that the test can end.
TEST_CASE("an ordinary start where there are stream epochs is reported when it hangs") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "this MPI may be unable to reach memory of the GPU");
  const bool exposes = GENERATE(true, false);  // in a stream epoch; or it has had a stream access epoch before
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  const Group other(1 - std::min(rank(), 1));
  Stream stream;
  int go = 0;
  if (rank() == 0) {
    if (exposes) {
      MPI_OK(MPIX_Win_post_stream(other, window, stream));
    } else {
      MPI_OK(MPI_Win_start(other, MPIX_MODE_STREAM, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
      stream.synchronize();
    }
    Capture errors(STDERR_FILENO);
    bool reported = false;
    std::thread looker([&] {
      const double limit = MPI_Wtime() + 20 * slowdown();
      while (!reported && MPI_Wtime() < limit) {
        usleep(10000);
        reported = contains(errors.text(), "was MPI_Win_start called without MPIX_MODE_STREAM?");
      }
      MPI_Send(&go, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    });
    const int value = 7;
    MPI_OK(MPI_Win_start(other, 0, window));
    MPI_OK(MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, window));
    MPI_OK(MPI_Win_complete(window));
    looker.join();
    const std::string report = errors.end();
    INFO(report);
    CHECK(reported);
    CHECK(contains(report, "on window 'pressure' has waited for"));
    if (exposes) MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.synchronize();
  } else if (rank() == 1) {
    if (!exposes) {
      MPI_OK(MPIX_Win_post_stream(other, window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      stream.synchronize();
    }
    MPI_Request request;
    MPI_OK(MPI_Irecv(&go, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request));
    wait(request);
    MPI_OK(MPI_Win_post(other, 0, window));
    MPI_OK(MPI_Win_wait(window));
    CHECK(contents<int>(window.base(), 1)[0] == 7);
    if (exposes) {
      MPI_OK(MPI_Win_start(other, MPIX_MODE_STREAM, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
    }
    stream.synchronize();
  } else {
    checked();
  }
}

// The same slip of a rank that has made no stream call on the window: its target tells.
TEST_CASE("a wait for a rank whose first start is an ordinary one asks for that") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "this MPI may be unable to reach memory of the GPU");
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  const Group other(1 - std::min(rank(), 1));
  if (rank() == 0) {
    const int value = 7;
    MPI_OK(MPI_Win_start(other, 0, window));
    MPI_OK(MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, window));
    MPI_OK(MPI_Win_complete(window));
    checked();
  } else if (rank() == 1) {
    Stream stream;
    Capture errors(STDERR_FILENO);
    MPI_OK(MPIX_Win_post_stream(other, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    const std::string missing = "completed exposure epoch 1" + asks_for_start;
    check_report(synchronize(stream, errors), "MPIX_Win_wait_stream", missing.c_str(), 0);
    // what the ordinary start waits for; to libmpix the window is broken
    MPI_OK(PMPI_Win_post(other, 0, window));
    MPI_OK(PMPI_Win_wait(window));
    CHECK(contents<int>(window.base(), 1)[0] == 7);
  } else {
    checked();
  }
}

TEST_CASE("an ordinary wait of a rank with stream access epochs is reported when it hangs") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "this MPI may be unable to reach memory of the GPU");
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  const Group other(1 - std::min(rank(), 1));
  Stream stream;
  int go = 0;
  if (rank() == 0) {
    MPI_OK(MPI_Win_start(other, MPIX_MODE_STREAM, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    Capture errors(STDERR_FILENO);
    bool reported = false;
    std::thread looker([&] {
      const double limit = MPI_Wtime() + 20 * slowdown();
      while (!reported && MPI_Wtime() < limit) {
        usleep(10000);
        reported = contains(errors.text(), "MPI_Win_wait on window 'pressure'") &&
                   contains(errors.text(), "should it be MPIX_Win_post_stream and MPIX_Win_wait_stream?");
      }
      MPI_Send(&go, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    });
    MPI_OK(MPI_Win_post(other, 0, window));
    MPI_OK(MPI_Win_wait(window));
    looker.join();
    const std::string report = errors.end();
    INFO(report);
    CHECK(reported);
    stream.synchronize();
  } else if (rank() == 1) {
    MPI_OK(MPIX_Win_post_stream(other, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.synchronize();
    MPI_Request request;
    MPI_OK(MPI_Irecv(&go, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request));
    wait(request);
    MPI_OK(MPI_Win_start(other, 0, window));
    MPI_OK(MPI_Win_complete(window));
    checked();
  } else {
    checked();
  }
}

// As it may be where a rank waits by ordinary calls for what others do in streams, and has no stream epochs itself.
TEST_CASE("MPI_Win_free that hangs is reported where there were stream epochs") {
  NEEDS_RANKS(2);
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  {
    Stream stream;
    check_works(window, stream);
  }
  int go = 0;
  Capture errors(STDERR_FILENO);
  if (rank() == 1) {
    bool reported = false;
    std::thread looker([&] {
      const double limit = MPI_Wtime() + 20 * slowdown();
      while (!reported && MPI_Wtime() < limit) {
        usleep(10000);
        reported = contains(errors.text(), "MPI_Win_free on window 'pressure' has waited for");
      }
      MPI_Send(&go, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    });
    MPI_OK(MPI_Win_free(window.handle()));
    looker.join();
    const std::string report = errors.end();
    INFO(report);
    CHECK(reported);
  } else {
    if (rank() == 0) {
      MPI_Request request;
      MPI_OK(MPI_Irecv(&go, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request));
      wait(request);
    }
    MPI_OK(MPI_Win_free(window.handle()));
    checked();
  }
}

// The window breaks inside an epoch: its calls fail, and yet it can be freed.
TEST_CASE("a window that broke within an epoch can be freed") {
  NEEDS_RANKS(2);
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_name(window, "pressure"));
  if (rank() == 0) {
    const Group late(1);
    Stream stream;
    Capture errors(STDERR_FILENO);
    const auto ahead = device().hold(stream);
    MPI_OK(MPIX_Win_post_stream(late, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    MPI_OK(MPI_Win_start(late, MPIX_MODE_STREAM, window));
    ahead->open();
    check_code(synchronize(stream, errors));
    const int value = 1;
    const int code = MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
    INFO(error_text(code));
    CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
    CHECK(contains(error_text(code), "broken"));
  }
  barrier();
  MPI_OK(MPI_Win_free(window.handle()));
  EXPECT(static_cast<MPI_Win>(window) == MPI_WIN_NULL, "freed by all");
}
