// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/epochs.h"

/// Wrong calls, each made at one point of a ring epoch, which then goes on as if nothing had been.
/// Included by one program only.
namespace test {

// ---- what the error handlers saw
// -----------------------------------------------------------------

struct Seen {
  int calls = 0;
  MPI_Win win = MPI_WIN_NULL;
  int code = MPI_SUCCESS;
};
inline Seen seen;

extern "C" inline void note_error(MPI_Win* win, int* code, ...) {
  ++seen.calls;
  seen.win = *win;
  seen.code = *code;
}

class UserHandler {
 public:
  UserHandler() { MPI_OK(MPI_Win_create_errhandler(note_error, &handler_)); }
  ~UserHandler() { MPI_Errhandler_free(&handler_); }
  UserHandler(const UserHandler&) = delete;
  UserHandler& operator=(const UserHandler&) = delete;
  operator MPI_Errhandler() const { return handler_; }

 private:
  MPI_Errhandler handler_ = MPI_ERRHANDLER_NULL;
};

// ---- one wrong call
// ------------------------------------------------------------------------------

enum class When {
  idle,       ///< no epoch is open
  exposed,    ///< an exposure epoch of a stream is open
  accessing,  ///< an access epoch of a stream is open
};

/// What the wrong calls need.
struct Bench {
  explicit Bench(Memory memory)
      : window(memory, bytes), win(window), ring(window, window.base(), 256), me(rank()), target(right_of(rank())) {}

  static constexpr std::size_t bytes = 4096;
  Window window;
  const MPI_Win win;
  Ring ring;
  Stream stream;
  const int me;
  const int target;
  char data[bytes] = {};
  char result[bytes] = {};
  int flag = 0;
  MPI_Request request = MPI_REQUEST_NULL;
};

struct WrongCall {
  const char* what;
  When when;
  int error_class;
  const char* call;  ///< named in the text
  const char* word;  ///< that helps, in the text
  std::function<int(Bench&)> make;
  int min_ranks = 1;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline void check_error(int code, const WrongCall& wrong) {
  const std::string text = error_text(code);
  const std::string call = wrong.call;
  INFO(wrong.what << ": " << text);
  CHECK(error_class(code) == wrong.error_class);
  CHECK(contains(text, call));
  CHECK_FALSE(contains(text, call + ": " + call));
  CHECK(contains(text, wrong.word));
}

inline void try_out(Bench& bench, const WrongCall& wrong, bool user_handler) {
  if (size() < wrong.min_ranks) return;
  alive(wrong.what);
  const auto make = [&] {
    seen = Seen{};
    const int code = wrong.make(bench);
    check_error(code, wrong);
    if (!user_handler) return;
    INFO(wrong.what);
    CHECK(seen.calls == 1);
    CHECK(seen.win == bench.win);
    CHECK(seen.code == code);
  };
  switch (wrong.when) {
    case When::idle:
      make();
      bench.ring.epoch(bench.stream);
      break;
    case When::exposed:
      bench.ring.epoch(bench.stream, make);
      break;
    case When::accessing:
      bench.ring.fused_epoch(bench.stream, make);
      break;
  }
  bench.stream.synchronize();  // the epoch was right: Ring checks its data
}

inline void try_out_all(const std::vector<WrongCall>& wrong_calls) {
  const UserHandler handler;
  for (Memory memory : {Memory::device, Memory::unmapped}) {
    Bench bench(memory);
    const bool user_handler = memory == Memory::unmapped;
    if (user_handler) MPI_OK(MPI_Win_set_errhandler(bench.win, handler));
    for (const WrongCall& wrong : wrong_calls) try_out(bench, wrong, user_handler);
    // Nothing of the wrong calls was counted, let alone enqueued.
    MPIX_Win_stats stats;
    MPI_OK(MPIX_Win_get_stats(bench.win, &stats, sizeof stats));
    CHECK(stats.access_epochs == stats.exposure_epochs);
    CHECK(stats.puts == stats.access_epochs);
    CHECK(stats.bytes_mailbox + stats.bytes_direct + stats.bytes_staged + stats.bytes_network_eager +
              stats.bytes_network_direct ==
          256 * stats.puts);
  }
}

}  // namespace test
