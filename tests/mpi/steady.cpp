// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// SOAK_EPOCHS epochs, and what the process has at the end is what it had after the first tenth of them.
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "support/catch.h"
#include "support/epochs.h"
#include "support/usage.h"

using namespace test;

namespace {

/// Each rank puts a number to its right neighbour, and some more of them as far as `words` go. Nothing that the test
/// does itself takes memory for each epoch.
class Numbers {
 public:
  explicit Numbers(std::size_t words)
      : words_(words),
        window_(Memory::device, 8 * words),
        source_(8 * words),
        to_(right_of(rank())),
        from_(left_of(rank())) {}

  void epoch(Stream& stream) {
    launch_on_host(stream, [this] { write(); });
    MPI_OK(MPIX_Win_post_stream(from_, window_, stream));
    MPI_OK(MPI_Win_start(to_, MPIX_MODE_STREAM, window_));
    MPI_OK(MPI_Put(source_.data(), static_cast<int>(8 * words_), MPI_BYTE, right_of(rank()), 0,
                   static_cast<int>(8 * words_), MPI_BYTE, window_));
    MPI_OK(MPIX_Win_complete_wait_stream(window_, stream));
    launch_on_host(stream, [this] { read(); });
  }

  long checked() const { return checked_; }
  long wrong() const { return wrong_; }
  MPI_Win window() const { return window_; }

 private:
  std::uint64_t value(int from) const { return 1000003 * epoch_ + static_cast<std::uint64_t>(from); }
  void write() {
    ++epoch_;
    for (std::size_t i = 0; i < words_; ++i) source_.as<std::uint64_t>()[i] = value(rank()) + i;
  }
  void read() {
    for (std::size_t i = 0; i < words_; ++i)
      if (window_.as<std::uint64_t>()[i] != value(left_of(rank())) + i) ++wrong_;
    ++checked_;
  }

  const std::size_t words_;
  Window window_;
  Buffer source_;
  const Group to_, from_;
  std::uint64_t epoch_ = 0;  ///< the stream's
  std::atomic<long> checked_{0}, wrong_{0};
};

}  // namespace

TEST_CASE("memory, files and threads do not grow with the number of epochs") {
  NEEDS(device().is_host(), "looks at the process, not at a GPU");
  const long epochs = parameter("SOAK_EPOCHS", 5000);
  const long most_growth = sanitized ? 1 << 30 : 512;  // KiB; sanitizers keep what is freed, and notes of their own
  Numbers small(8), large(4000);                       // by message, and direct
  Stream stream;
  Usage early{};
  for (long k = 1; k <= epochs; ++k) {
    small.epoch(stream);
    if (k % 10 == 0) large.epoch(stream);
    if (k % 50 == 0) {
      stream.synchronize();
      alive("epoch " + std::to_string(k));
    }
    if (k == epochs / 10) {
      stream.synchronize();
      early = Usage::now();
    }
  }
  stream.synchronize();
  const Usage late = Usage::now();
  CHECK(small.checked() == epochs);
  CHECK(large.checked() == epochs / 10);
  CHECK(small.wrong() + large.wrong() == 0);
  MPIX_Win_stats stats{};
  MPI_OK(MPIX_Win_get_stats(small.window(), &stats, sizeof stats));
  if (parameter("MPIX_NODE_SIZE", 0) == 1) CHECK(stats.network_operations >= static_cast<unsigned long long>(epochs));
  if (stats.network_budget > 0) CHECK(stats.network_peak <= stats.network_budget);
  CHECK(late.files == early.files);
  CHECK(late.threads == early.threads);
  CHECK(late.kilobytes - early.kilobytes < most_growth);
  std::printf("%ld epochs: %ld KiB after a tenth of them, %ld KiB at the end; %zu files, %zu threads\n", epochs,
              early.kilobytes, late.kilobytes, late.files, late.threads);
}

TEST_CASE("nothing stays of communicators that had a window") {
  NEEDS(device().is_host(), "looks at the process, not at a GPU");
  constexpr int rounds = 1200, early = 200;
  constexpr std::size_t most_growth = 64 * 1024;  // of an MPI, once; 112 bytes of each stayed
  std::size_t before = 0;
  for (int round = 1; round <= rounds; ++round) {
    MPI_Comm comm;
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    int word = 0;
    MPI_Win window;
    MPI_OK(MPI_Win_create(&word, sizeof word, 1, MPI_INFO_NULL, comm, &window));
    MPI_OK(MPI_Win_free(&window));
    MPI_OK(MPI_Comm_free(&comm));
    if (round % 50 == 0) alive("communicator " + std::to_string(round));
    if (round == early) before = mallinfo2().uordblks;
  }
  const std::size_t after = mallinfo2().uordblks;
  INFO(before << " bytes in use, then " << after);
  CHECK((sanitized || after < before + most_growth));
}
