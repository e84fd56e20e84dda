// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Windows over what a CUDA program may have as memory, and what is refused.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "gpu/cuda.h"
#include "support/catch.h"

using namespace test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_error(int code, int error_class_expected, const std::string& word) {
  INFO(error_text(code));
  CHECK(error_class(code) == error_class_expected);
  CHECK(contains(error_text(code), word));
}

MPIX_Win_stats stats_of(MPI_Win win) {
  MPIX_Win_stats stats;
  MPI_OK(MPIX_Win_get_stats(win, &stats, sizeof stats));
  return stats;
}

bool mpi_is_gpu_aware() {
  void* const query = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
  return query && reinterpret_cast<int (*)()>(query)() == 1;
}

/// A window over memory that the test case has made, and knows best.
class WindowOver {
 public:
  WindowOver(void* base, std::size_t bytes, int unit = 1) {
    MPI_OK(MPI_Win_create(base, MPI_Aint(bytes), unit, MPI_INFO_NULL, MPI_COMM_WORLD, &win_));
    MPI_OK(MPI_Win_set_errhandler(win_, MPI_ERRORS_RETURN));
    barrier();
  }
  ~WindowOver() { MPI_Win_free(&win_); }
  WindowOver(const WindowOver&) = delete;
  WindowOver& operator=(const WindowOver&) = delete;
  operator MPI_Win() const { return win_; }

 private:
  MPI_Win win_ = MPI_WIN_NULL;
};

void exchange(void* base, std::size_t bytes, int epochs = 10) {
  const WindowOver window(base, bytes);
  Ring ring(window, static_cast<char*>(base), bytes);
  Stream stream;
  for (int k = scaled(epochs); k > 0; --k) {
    ring.epoch(stream);
    ring.fused_epoch(stream);
  }
  stream.synchronize();
}

}  // namespace

TEST_CASE("several windows in one allocation, with displacement units of their own") {
  NEEDS_CUDA();
  constexpr std::size_t piece = 100000;
  const Buffer all(4 * piece + 64, Kind::mapped);
  const auto unit_of = [](int window, int r) { return 1 + (window + r) % 5; };
  std::vector<std::unique_ptr<WindowOver>> windows;
  std::vector<char*> bases;
  for (int i = 0; i < 4; ++i) {
    bases.push_back(all.data() + i * piece + i * 7);  // one is aligned, the others are not
    windows.push_back(std::make_unique<WindowOver>(bases.back(), piece, unit_of(i, rank())));
  }
  const Group to(right_of(rank())), from(left_of(rank()));
  Buffer source(piece);
  Stream stream;
  for (int k = scaled(50); k > 0; --k) {
    for (int i = 0; i < 4; ++i) {
      const MPI_Win win = *windows[std::size_t(i)];
      const std::size_t bytes = k % 2 == 0 ? 777 : piece - 600;
      MPI_OK(MPIX_Win_post_stream(from, win, stream));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, win));
      stream.fill(source.data(), bytes, ring_data(rank(), k, std::uint64_t(i)));
      MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 100, int(bytes), MPI_BYTE, win));
      MPI_OK(MPIX_Win_complete_wait_stream(win, stream));
      stream.check(bases[std::size_t(i)] + 100 * unit_of(i, rank()), bytes,
                   ring_data(left_of(rank()), k, std::uint64_t(i)), HERE("window " << i << ", epoch " << k));
    }
  }
  stream.synchronize();
}

// The same address again, and not the same memory: what peers have mapped must go with its window.
TEST_CASE("memory that was freed between two windows") {
  NEEDS_CUDA();
  for (int turn = 0; turn < 10; ++turn) {
    const std::size_t bytes = 3000000 + std::size_t(turn % 3) * 4000000;
    void* base = nullptr;
    CHECK_GPU(cudaMalloc(&base, bytes));
    exchange(base, 200000, 3);
    CHECK_GPU(cudaFree(base));
  }
}

TEST_CASE("windows over pool memory that comes and goes") {
  NEEDS_CUDA();
  Stream stream;
  for (int turn = 0; turn < 5; ++turn) {
    void* base = nullptr;
    CHECK_GPU(cudaMallocAsync(&base, 500000, cuda(stream)));
    stream.synchronize();
    exchange(static_cast<char*>(base) + 4000, 400000, 3);
    CHECK_GPU(cudaFreeAsync(base, cuda(stream)));
  }
}

TEST_CASE("how data goes depends on whether peers can map the memory") {
  NEEDS_CUDA();
  constexpr std::size_t bytes = 700000;  // no device has it eager
  for (Memory memory : all_memories) {
    Window window(memory, bytes);
    Ring ring(window, window.base(), bytes);
    Stream stream;
    ring.epoch(stream);
    stream.synchronize();
    const bool mapped = memory == Memory::part || memory == Memory::device;
    INFO(name(memory));
    const bool elsewhere = stats_of(window).bytes_network_direct > 0;
    CHECK(stats_of(window).bytes_direct == (mapped && !elsewhere ? bytes : 0));
    CHECK(stats_of(window).bytes_staged == (mapped || elsewhere ? 0 : bytes));
    CHECK(stats_of(window).bytes_network_direct == (elsewhere ? bytes : 0));
  }
}

TEST_CASE("origin buffers in all kinds of memory") {
  NEEDS_CUDA();
  for (std::size_t bytes : {std::size_t{1000}, std::size_t{300000}}) {
    Window window(Memory::device, bytes);
    const Group to(right_of(rank())), from(left_of(rank()));
    Buffer pool(bytes), mapped(bytes, Kind::mapped), pinned(bytes, Kind::pinned);
    void* managed = nullptr;
    CHECK_GPU(cudaMallocManaged(&managed, bytes));
    Stream stream;
    int k = 0;
    for (int turn = scaled(10); turn > 0; --turn)
      for (void* source : {static_cast<void*>(pool.data()), static_cast<void*>(mapped.data()),
                           static_cast<void*>(pinned.data()), managed}) {
        ++k;
        MPI_OK(MPIX_Win_post_stream(from, window, stream));
        stream.fill(source, bytes, ring_data(rank(), k));
        MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
        MPI_OK(MPI_Put(source, int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
        MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
        stream.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("buffer " << k % 4));
      }
    stream.synchronize();
    CHECK_GPU(cudaFree(managed));
  }
}

TEST_CASE("an origin buffer that the GPU cannot read is refused, also while a stream is captured") {
  NEEDS_CUDA();
  int mine = 0, pageable = 0;
  CHECK_GPU(cudaGetDevice(&mine));
  CHECK_GPU(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, mine));
  NEEDS(!pageable, "this GPU reads all memory");
  std::vector<char> host(1000);
  Window window(Memory::device, 1000);
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  Ring ring(window, window.base(), 1000);
  const Group to(right_of(rank()));
  Stream stream;
  for (const bool captured : {false, true}) {
    if (captured) CHECK_GPU(cudaStreamBeginCapture(cuda(stream), cudaStreamCaptureModeGlobal));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    check_error(MPI_Put(host.data(), 1000, MPI_BYTE, right_of(rank()), 0, 1000, MPI_BYTE, window), MPI_ERR_ARG,
                "origin buffer");
    cudaGraph_t graph = nullptr;
    if (captured) CHECK_GPU(cudaStreamEndCapture(cuda(stream), &graph));
    if (captured) CHECK_GPU(cudaGraphDestroy(graph));
    // The epoch is as it was before.
    MPI_OK(MPIX_Win_post_stream(Group(left_of(rank())), window, stream));
    MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    stream.synchronize();
  }
  ring.epoch(stream);
  stream.synchronize();
}

// Kernels are loaded with the first memory: CUDA may let the load of one wait for all kernels that run. Where nothing
// of the process has been loaded before, and CUDA_MODULE_LOADING=LAZY: a process of its own, see scripts/run-gpu-tests.
TEST_CASE("the first call in a stream, while a kernel runs that does not end", "[.first-use]") {
  NEEDS_CUDA();
  NEEDS(parameter("TEST_GPU_IN_TURNS", 0) == 0, "ranks that share a GPU in turns wait for each other's kernels");
  constexpr std::size_t bytes = 1000;
  const DeviceMemory memory(bytes);
  const WindowOver window(memory.base(), bytes);
  Stream busy, stream;
  Buffer source(bytes);
  const Group to(right_of(rank())), from(left_of(rank()));
  // Of the tests' own kernels only the one that does not end; that is loaded before it starts.
  const std::unique_ptr<Gate> gate = device().hold(busy);
  std::atomic<bool> done{false}, opened{false};
  std::thread patience([&] {
    for (int k = 0; k < 1000 && !done; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    opened = !done;
    gate->open();
  });
  for (int k = 0; k < 3; ++k) {
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
    if (k == 0) {
      MPI_OK(MPIX_Win_complete_stream(window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
    } else {
      MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    }
  }
  stream.synchronize();
  done = true;
  patience.join();
  CHECK_FALSE(opened);
}

TEST_CASE("an origin buffer on another GPU") {
  NEEDS_CUDA();
  int devices = 0, mine = 0, reachable = 0;
  CHECK_GPU(cudaGetDeviceCount(&devices));
  NEEDS(devices > 1, "needs a second GPU");
  CHECK_GPU(cudaGetDevice(&mine));
  const int other = (mine + 1) % devices;
  CHECK_GPU(cudaDeviceCanAccessPeer(&reachable, mine, other));
  NEEDS(reachable, "needs peer access");
  for (const std::size_t bytes : {std::size_t{1000}, std::size_t{300000}}) {
    void* there = nullptr;
    CHECK_GPU(cudaSetDevice(other));
    CHECK_GPU(cudaMalloc(&there, bytes));
    CHECK_GPU(cudaSetDevice(mine));
    Window window(Memory::device, bytes);
    Buffer source(bytes, Kind::pinned);
    Stream stream;
    for (int k = scaled(10); k > 0; --k) {
      MPI_OK(MPIX_Win_post_stream(Group(left_of(rank())), window, stream));
      stream.fill(source.data(), bytes, ring_data(rank(), k));
      CHECK_GPU(cudaMemcpyAsync(there, source.data(), bytes, cudaMemcpyDefault, cuda(stream)));
      MPI_OK(MPI_Win_start(Group(right_of(rank())), MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(there, int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
      stream.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("epoch " << k));
    }
    stream.synchronize();
    CHECK_GPU(cudaFree(there));
  }
}

TEST_CASE("a large put") {
  NEEDS_CUDA();
  constexpr std::size_t bytes = std::size_t{96} << 20;
  Window window(Memory::device, bytes + 3, 1);
  Ring ring(window, window.base(), bytes);
  Stream stream;
  for (int k = 0; k < 3; ++k) ring.epoch(stream);
  stream.synchronize();
}

// A window over memory of the host is what it is without libmpix, and has no stream epochs.
TEST_CASE("a window over ordinary memory of the host") {
  NEEDS_CUDA();
  std::vector<int> memory(100, -1);
  const int unsupported = MPI_ERR_UNSUPPORTED_OPERATION;
  {
    const WindowOver window(memory.data(), memory.size() * sizeof(int), sizeof(int));
    Stream stream;
    const Group to(right_of(rank())), from(left_of(rank()));
    check_error(MPIX_Win_post_stream(from, window, stream), unsupported, "not memory of the GPU");
    check_error(MPI_Win_start(to, MPIX_MODE_STREAM, window), unsupported, "not memory of the GPU");
    const int value = 40 + rank();
    MPI_OK(MPI_Win_fence(0, window));
    MPI_OK(MPI_Put(&value, 1, MPI_INT, right_of(rank()), 7, 1, MPI_INT, window));
    MPI_OK(MPI_Win_fence(0, window));
  }
  CHECK(memory[7] == 40 + left_of(rank()));
}

TEST_CASE("a window that only one rank made over memory of the host") {
  NEEDS_CUDA();
  NEEDS_RANKS(2);
  std::vector<char> host(1000);
  const Buffer gpu(1000, Kind::mapped);
  const WindowOver window(rank() == 1 ? host.data() : gpu.data(), 1000);
  Stream stream;
  check_error(MPIX_Win_post_stream(Group(left_of(rank())), window, stream), MPI_ERR_UNSUPPORTED_OPERATION, "rank 1: ");
}

TEST_CASE("ordinary RMA on memory that this MPI cannot reach") {
  NEEDS_CUDA();
  NEEDS(!mpi_is_gpu_aware(), "needs an MPI that is not GPU-aware");
  const char* aware = std::getenv("MPIX_MPI_GPU_AWARE");
  NEEDS(!aware || std::string(aware) != "on", "this MPI can");
  Window window(Memory::device, 1000);
  Window part(Memory::part, 1000);
  int value = 0;
  for (MPI_Win win : {MPI_Win(window), MPI_Win(part)}) {
    MPI_OK(MPI_Win_fence(0, win));
    check_error(MPI_Put(&value, 1, MPI_INT, right_of(rank()), 0, 1, MPI_INT, win), MPI_ERR_UNSUPPORTED_OPERATION,
                "memory of a GPU");
    check_error(MPI_Get(&value, 1, MPI_INT, right_of(rank()), 0, 1, MPI_INT, win), MPI_ERR_UNSUPPORTED_OPERATION,
                "memory of a GPU");
    MPI_OK(MPI_Win_fence(0, win));
  }
  void* base = nullptr;
  int found = 0;
  MPI_OK(MPI_Win_get_attr(window, MPI_WIN_BASE, &base, &found));
  CHECK(base == window.base());
}

TEST_CASE("ordinary epochs and stream epochs on a window over memory of the GPU, in turns") {
  NEEDS_CUDA();
  NEEDS(mpi_is_gpu_aware(), "needs a GPU-aware MPI");
  constexpr std::size_t bytes = 10000;
  Window window(Memory::part, bytes);
  Ring ring(window, window.base(), bytes);
  Buffer source(bytes, Kind::mapped);
  Stream stream;
  for (int k = scaled(20); k > 0; --k) {
    ring.epoch(stream);
    stream.fill(source.data(), bytes, ring_data(rank(), k, 77));
    stream.synchronize();
    MPI_OK(MPI_Win_fence(0, window));
    MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
    MPI_OK(MPI_Win_fence(0, window));
    stream.check(window.base(), bytes, ring_data(left_of(rank()), k, 77), HERE("turn " << k));
    stream.synchronize();
  }
}

TEST_CASE("a window on another GPU than the first") {
  NEEDS_CUDA();
  int devices = 0, mine = 0;
  CHECK_GPU(cudaGetDeviceCount(&devices));
  NEEDS(devices > 1, "needs a second GPU");
  CHECK_GPU(cudaGetDevice(&mine));
  Window first(Memory::device, 64);
  void* there = nullptr;
  CHECK_GPU(cudaSetDevice((mine + 1) % devices));
  CHECK_GPU(cudaMalloc(&there, 1000));
  CHECK_GPU(cudaSetDevice(mine));
  {
    const WindowOver window(there, 1000);
    Stream stream;
    const int code = MPIX_Win_post_stream(Group(left_of(rank())), window, stream);
    check_error(code, MPI_ERR_UNSUPPORTED_OPERATION, "is on GPU " + std::to_string(1 % devices));
    CHECK(contains(error_text(code), "one GPU a rank"));
  }
  Ring ring(first, first.base(), 64);
  Stream stream;
  ring.epoch(stream);
  stream.synchronize();
  CHECK_GPU(cudaFree(there));
}

TEST_CASE("managed memory, which peers cannot map") {
  NEEDS_CUDA();
  void* managed = nullptr;
  CHECK_GPU(cudaMallocManaged(&managed, 300000));
  for (std::size_t bytes : {std::size_t{1000}, std::size_t{100000}, std::size_t{300000}}) exchange(managed, bytes);
  CHECK_GPU(cudaFree(managed));
}
