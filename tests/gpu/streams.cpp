// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// All kinds of CUDA streams, and events.
#include "gpu/cuda.h"
#include "support/catch.h"

using namespace test;

namespace {

constexpr std::size_t sizes[] = {1000, 300000};
/// It waits for its post on any device, so that this may be in a stream that nothing orders with the wait's.
constexpr std::size_t direct = 700000;

void exchange(void* stream, int epochs) {
  for (std::size_t bytes : sizes) {
    Window window(Memory::device, bytes);
    Ring ring(window, window.base(), bytes);
    for (int k = scaled(epochs); k > 0; --k) {
      ring.epoch(stream);
      ring.fused_epoch(stream);
    }
    Stream::synchronize(stream);
  }
}

class Event {
 public:
  Event() { CHECK_GPU(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(void* stream) { CHECK_GPU(cudaEventRecord(event_, cuda(stream))); }
  void hold_up(void* stream) { CHECK_GPU(cudaStreamWaitEvent(cuda(stream), event_, 0)); }
  void synchronize() { CHECK_GPU(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_;
};

}  // namespace

TEST_CASE("the stream of a post is destroyed at once, with work in it, and its handle may come again") {
  NEEDS_CUDA();
  constexpr std::size_t bytes = direct;
  Window window(Memory::device, bytes);
  Buffer source(bytes);
  const Group to(right_of(rank())), from(left_of(rank()));
  for (int epoch = 1; epoch <= scaled(50); ++epoch) {
    cudaStream_t gone = nullptr;
    CHECK_GPU(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
    device().delay(gone, epoch % 2 ? 1000 : 10);
    if (epoch > 1)  // the program uses its window until then
      device().check(gone, window.base(), bytes, ring_data(left_of(rank()), epoch - 1), HERE("before epoch " << epoch));
    MPI_OK(MPIX_Win_post_stream(from, window, gone));
    CHECK_GPU(cudaStreamDestroy(gone));
    cudaStream_t stream = nullptr;
    CHECK_GPU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    device().fill(stream, source.data(), bytes, ring_data(rank(), epoch));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    device().check(stream, window.base(), bytes, ring_data(left_of(rank()), epoch), HERE("epoch " << epoch));
    Stream::synchronize(stream);
    CHECK_GPU(cudaStreamDestroy(stream));
  }
}

// The wait is in a stream that is made then, and waits for a complete of the peer that is as much at the mercy of CUDA.
TEST_CASE("the stream of a complete is destroyed at once, with work in it, and its handle may come again") {
  NEEDS_CUDA();
  constexpr std::size_t bytes = direct;
  Window window(Memory::device, bytes);
  Buffer source(bytes);
  const Group to(right_of(rank())), from(left_of(rank()));
  for (int epoch = 1; epoch <= scaled(50); ++epoch) {
    cudaStream_t gone = nullptr;
    CHECK_GPU(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
    MPI_OK(MPIX_Win_post_stream(from, window, gone));
    device().delay(gone, epoch % 2 ? 1000 : 10);
    device().fill(gone, source.data(), bytes, ring_data(rank(), epoch));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_stream(window, gone));
    CHECK_GPU(cudaStreamDestroy(gone));
    cudaStream_t stream = nullptr;
    CHECK_GPU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    device().check(stream, window.base(), bytes, ring_data(left_of(rank()), epoch), HERE("epoch " << epoch));
    Stream::synchronize(stream);
    CHECK_GPU(cudaDeviceSynchronize());  // the source is filled anew
    CHECK_GPU(cudaStreamDestroy(stream));
  }
}

TEST_CASE("the null stream, by its names") {
  NEEDS_CUDA();
  exchange(nullptr, 100);
  exchange(cudaStreamLegacy, 100);
}

TEST_CASE("the per-thread default stream, of several threads") {
  NEEDS_CUDA();
  exchange(cudaStreamPerThread, 100);
  constexpr int count = 3;
  std::vector<std::unique_ptr<Window>> windows;
  std::vector<std::unique_ptr<Ring>> rings;
  for (int i = 0; i < count; ++i) {
    windows.push_back(std::make_unique<Window>(Memory::device, 5000));
    rings.push_back(std::make_unique<Ring>(*windows.back(), windows.back()->base(), 5000, i));
  }
  in_threads(count, [&](int i) {
    for (int k = scaled(100); k > 0; --k) rings[std::size_t(i)]->epoch(cudaStreamPerThread);
    Stream::synchronize(cudaStreamPerThread);
  });
}

TEST_CASE("streams that the null stream waits for, and streams of all priorities") {
  NEEDS_CUDA();
  int least = 0, greatest = 0;
  CHECK_GPU(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking})
    for (int priority = greatest; priority <= least; ++priority) {
      cudaStream_t stream;
      CHECK_GPU(cudaStreamCreateWithPriority(&stream, flags, priority));
      exchange(stream, 20);
      CHECK_GPU(cudaStreamDestroy(stream));
    }
}

// Long enough for a window to try all ways to launch its calls, and to go on in the best.
TEST_CASE("the same epochs again and again") {
  NEEDS_CUDA();
  for (std::size_t bytes : {std::size_t{64}, std::size_t{100000}, std::size_t{600000}})
    for (bool fused : {false, true})
      for (bool lazy : {false, true}) {
        Window window(Memory::device, bytes, 1, MPI_COMM_WORLD, 0, lazy);
        Ring ring(window, window.base(), bytes);
        Stream one, other;
        for (int k = scaled(2000); k > 0; --k) fused ? ring.fused_epoch(one) : ring.epoch(one);
        one.synchronize();
        for (int k = scaled(100); k > 0; --k) k % 2 ? ring.fused_epoch(one) : ring.epoch(one);
        one.synchronize();
        for (int k = scaled(100); k > 0; --k) fused ? ring.fused_epoch(other) : ring.epoch(other);
      }
}

// The work of a window goes from stream to stream, ordered by events; each stream goes when it is done.
TEST_CASE("each epoch in a stream of its own") {
  NEEDS_CUDA();
  for (std::size_t bytes : sizes) {
    Window window(Memory::device, bytes);
    Ring ring(window, window.base(), bytes);
    Event done;
    cudaStream_t last = nullptr;
    for (int k = scaled(50); k > 0; --k) {
      cudaStream_t stream;
      CHECK_GPU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      if (last) {
        done.hold_up(stream);
        CHECK_GPU(cudaStreamDestroy(last));  // its work goes on
      }
      ring.epoch(stream);
      done.record(stream);
      last = stream;
    }
    Stream::synchronize(last);
    CHECK_GPU(cudaStreamDestroy(last));
  }
}

TEST_CASE("an event after wait_stream is seen by another stream, and by the host") {
  NEEDS_CUDA();
  for (std::size_t bytes : sizes) {
    Window window(Memory::device, bytes);
    Buffer source(bytes);
    const Group to(right_of(rank())), from(left_of(rank()));
    Stream producer, exchange, consumer;
    Event produced, arrived, consumed;
    const int epochs = scaled(200);
    for (int k = 1; k <= epochs; ++k) {
      if (k > 1) consumed.hold_up(exchange);  // the window's old data, and the source, have been used
      MPI_OK(MPIX_Win_post_stream(from, window, exchange));
      if (k > 1) arrived.hold_up(producer);
      if (k % 10 == 0) producer.delay(200);
      producer.fill(source.data(), bytes, ring_data(rank(), k));
      produced.record(producer);
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
      produced.hold_up(exchange);
      MPI_OK(MPIX_Win_complete_stream(window, exchange));
      MPI_OK(MPIX_Win_wait_stream(window, exchange));
      arrived.record(exchange);
      arrived.hold_up(consumer);
      consumer.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("another stream, epoch " << k));
      consumed.record(consumer);
    }
    arrived.synchronize();
    const std::vector<char> got = contents<char>(window.base(), bytes);
    EXPECT(ring_data(left_of(rank()), epochs).agrees(got.data(), bytes) == bytes, "the host, after the event");
  }
}

// Where the program's current device is another, the calls find that of the window.
TEST_CASE("another current device") {
  NEEDS_CUDA();
  int devices = 0, mine = 0;
  CHECK_GPU(cudaGetDeviceCount(&devices));
  NEEDS(devices > 1, "needs a second GPU");
  CHECK_GPU(cudaGetDevice(&mine));
  for (std::size_t bytes : sizes) {
    Window window(Memory::part, bytes);
    Ring ring(window, window.base(), bytes);
    Stream stream;
    for (int k = scaled(20); k > 0; --k) {
      CHECK_GPU(cudaSetDevice((mine + k) % devices));
      ring.epoch(stream);
      int now = -1;
      CHECK_GPU(cudaGetDevice(&now));
      CHECK(now == (mine + k) % devices);
    }
    stream.synchronize();
    CHECK_GPU(cudaSetDevice(mine));
  }
}

TEST_CASE("a stream of another GPU is refused") {
  NEEDS_CUDA();
  int devices = 0, mine = 0;
  CHECK_GPU(cudaGetDeviceCount(&devices));
  NEEDS(devices > 1, "needs a second GPU");
  CHECK_GPU(cudaGetDevice(&mine));
  Window window(Memory::device, 1000);
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  Ring ring(window, window.base(), 1000);
  Stream stream;
  for (int turn = 0; turn < 2; ++turn) {
    cudaStream_t foreign = nullptr;
    CHECK_GPU(cudaSetDevice((mine + 1) % devices));
    CHECK_GPU(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking));
    CHECK_GPU(cudaSetDevice(mine));
    const int code = MPIX_Win_post_stream(Group(left_of(rank())), window, foreign);
    INFO(error_text(code));
    CHECK(error_class(code) == MPI_ERR_ARG);
    CHECK(error_text(code).find("is one of GPU " + std::to_string((mine + 1) % devices)) != std::string::npos);
    ring.epoch(stream);
    stream.synchronize();
    CHECK_GPU(cudaStreamDestroy(foreign));
  }
}
