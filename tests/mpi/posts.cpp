// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What comes between a post and the window's next call. Nothing of it may matter, whether posts are prompt or free
// (MPIX_POST).
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

constexpr std::size_t sizes[] = {512, 700000};  // the second waits for its post on any device

/// Each rank puts to the right, in streams of the test case's choice.
class Exchange {
 public:
  explicit Exchange(std::size_t bytes) : bytes_(bytes), window_(Memory::device, bytes), source_(bytes) {}
  void post(void* stream) {
    ++epochs_;
    MPI_OK(MPIX_Win_post_stream(from_, window_, stream));
  }
  void send(void* stream) {
    device().fill(stream, source_.data(), bytes_, ring_data(rank(), epochs_));
    MPI_OK(MPI_Win_start(to_, MPIX_MODE_STREAM, window_));
    MPI_OK(MPI_Put(source_.data(), int(bytes_), MPI_BYTE, right_of(rank()), 0, int(bytes_), MPI_BYTE, window_));
    MPI_OK(MPIX_Win_complete_stream(window_, stream));
  }
  void receive(void* stream) {
    MPI_OK(MPIX_Win_wait_stream(window_, stream));
    check(stream);
  }
  /// What is there is of the last epoch.
  void check(void* stream) {
    device().check(stream, window_.base(), bytes_, ring_data(left_of(rank()), epochs_),
                   HERE("epoch " << epochs_ << " of " << bytes_ << " bytes"));
  }

 private:
  const std::size_t bytes_;
  Window window_;
  Buffer source_;
  const Group to_{right_of(rank())}, from_{left_of(rank())};
  int epochs_ = 0;
};

}  // namespace

TEST_CASE("peers wait for a post before this rank's next call") {
  for (std::size_t bytes : sizes) {
    Exchange exchange(bytes);
    Stream posts, sends;
    for (int k = scaled(30); k > 0; --k) {
      exchange.post(posts);
      exchange.send(sends);
      sends.synchronize();
      barrier();
      exchange.receive(posts);
      posts.synchronize();
      barrier();
    }
  }
}

TEST_CASE("the stream of a post waits for what peers do with it") {
  for (std::size_t bytes : sizes) {
    Exchange exchange(bytes);
    Stream posts, sends;
    for (int k = scaled(10); k > 0; --k) {
      exchange.post(posts);
      const auto gate = device().hold(posts);
      exchange.receive(posts);
      exchange.send(sends);
      sends.synchronize();
      barrier();
      gate->open();
      posts.synchronize();
      barrier();
    }
  }
}

TEST_CASE("posts of several windows are on their way while the host waits") {
  Exchange one(sizes[1]), two(sizes[1]), three(sizes[0]);
  Stream posts, sends;
  for (int k = scaled(30); k > 0; --k) {
    for (Exchange* exchange : {&one, &two, &three}) exchange->post(posts);
    barrier();
    for (Exchange* exchange : {&three, &one, &two}) exchange->send(sends);
    sends.synchronize();
    barrier();
    for (Exchange* exchange : {&two, &three, &one}) exchange->receive(posts);
    posts.synchronize();
    barrier();
  }
}

TEST_CASE("a post is behind the work of its stream, whichever stream has the next call") {
  Exchange exchange(sizes[1]);
  Stream posts, sends, waits;
  exchange.post(posts);
  exchange.send(sends);
  exchange.receive(posts);
  posts.synchronize();
  barrier();
  for (int k = scaled(20); k > 0; --k) {
    posts.delay(k % 2 ? 2000 : 100);
    exchange.check(posts);  // still the last epoch's
    exchange.post(posts);
    if (k % 3 == 0) barrier();
    exchange.send(k % 4 == 0 ? posts : sends);
    exchange.receive(k % 4 < 2 ? posts : waits);
    for (Stream* stream : {&sends, &waits, &posts}) stream->synchronize();
    barrier();
  }
}

TEST_CASE("a lazy post goes with the next call, though that has no target") {
  NEEDS_RANKS(2);
  const int last = size() - 1, before = size() - 2;
  const bool waits = rank() == last, puts = rank() == before;
  const std::size_t bytes = sizes[1];
  Window window(Memory::device, bytes, 1, MPI_COMM_WORLD, 0, true);
  Buffer source(bytes);
  using Ranks = std::vector<int>;
  const Group from(waits ? Ranks{before} : Ranks{}), to(puts ? Ranks{last} : Ranks{});
  Stream stream, other;
  for (int k = 1; k <= scaled(10); ++k) {
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    if (puts) {
      stream.fill(source.data(), bytes, ring_data(before, k));
      MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, last, 0, int(bytes), MPI_BYTE, window));
    }
    MPI_OK(MPIX_Win_complete_stream(window, puts || k % 2 ? stream : other));
    stream.synchronize();
    barrier();  // the promise has ended with the call before
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    if (waits) stream.check(window.base(), bytes, ring_data(before, k), HERE("epoch " << k));
    stream.synchronize();
    barrier();
  }
  checked();
}

TEST_CASE("calls follow a post after any time") {
  for (std::size_t bytes : sizes) {
    Exchange exchange(bytes);
    Stream stream;
    Random random(key({static_cast<std::uint64_t>(rank()), bytes}));
    for (int k = scaled(300); k > 0; --k) {
      exchange.post(stream);
      if (random.below(3) == 0) usleep(static_cast<useconds_t>(random.below(120)));
      if (random.below(8) == 0) stream.delay(static_cast<int>(random.below(100)));
      exchange.send(stream);
      if (random.below(3) == 0) usleep(static_cast<useconds_t>(random.below(120)));
      exchange.receive(stream);
      if (random.below(4) == 0) stream.synchronize();
    }
    stream.synchronize();
  }
}
