// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "device.h"
#include "gpu_names.h"

/// A GPU of either vendor: streams, memory, and kernels that write and check data.
namespace test {
namespace {

#define GPU_OK(call)                                                                                   \
  do {                                                                                                 \
    const GPU(Error_t) error_ = (call);                                                                \
    if (error_ != GPU(Success)) device_failure(std::string(#call ": ") + GPU(GetErrorString)(error_)); \
  } while (false)

constexpr unsigned threads = 256;

// ---- kernels --------------------------------------------------------------------------------------

/// What the checks of this process have found. In device memory.
struct Findings {
  static constexpr unsigned most = 64;
  struct Entry {
    std::uint64_t position, number;
    std::uint32_t check;
    unsigned char found, expected;
  };
  unsigned long long run;
  unsigned failures;
  Entry entries[most];
};

struct Span {
  std::size_t first, step;
};
__device__ inline Span my_span() {
  return Span{std::size_t(blockIdx.x) * blockDim.x + threadIdx.x, std::size_t(gridDim.x) * blockDim.x};
}

__global__ void fill_kernel(unsigned char* to, std::size_t bytes, Pattern pattern, std::size_t position) {
  const Pattern now = pattern.now();
  const Span span = my_span();
  for (std::size_t i = span.first; i < bytes; i += span.step) to[i] = now.byte(position + i);
}

__global__ void set_kernel(unsigned char* to, std::size_t bytes, unsigned char value) {
  const Span span = my_span();
  for (std::size_t i = span.first; i < bytes; i += span.step) to[i] = value;
}

__global__ void count_kernel(std::uint64_t* number) { ++*number; }

/// The first byte of each thread's that differs; of each block one is noted.
template <class Expected>
__device__ void check_bytes(const unsigned char* at, std::size_t bytes, Expected expected, std::uint64_t number,
                            std::uint32_t check, Findings* findings) {
  __shared__ unsigned noted;
  if (threadIdx.x == 0) noted = 0;
  __syncthreads();
  const Span span = my_span();
  for (std::size_t i = span.first; i < bytes; i += span.step) {
    const unsigned char found = at[i];
    const unsigned char should = expected(i);
    if (found == should) continue;
    if (atomicAdd(&noted, 1u) == 0) {
      const unsigned place = atomicAdd(&findings->failures, 1u);
      if (place < Findings::most) findings->entries[place] = Findings::Entry{i, number, check, found, should};
    }
    break;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&findings->run, 1ull);
}

__global__ void check_kernel(const unsigned char* at, std::size_t bytes, Pattern pattern, std::size_t position,
                             std::uint32_t check, Findings* findings) {
  const Pattern now = pattern.now();
  check_bytes(
      at, bytes, [=](std::size_t i) { return now.byte(position + i); }, pattern.number(), check, findings);
}

__global__ void check_same_kernel(const unsigned char* one, const unsigned char* other, std::size_t bytes,
                                  std::uint32_t check, Findings* findings) {
  check_bytes(
      one, bytes, [=](std::size_t i) { return other[i]; }, 0, check, findings);
}

__global__ void delay_kernel(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

__global__ void hold_kernel(const volatile int* open) {
  while (!*open) {
  }
}

// ---- the device -----------------------------------------------------------------------------------

/// Makes this rank's GPU the current one of the thread, for a while: tests must not depend on it.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    GPU_OK(GPU(GetDevice)(&before_));
    if (before_ != index) GPU_OK(GPU(SetDevice)(index));
  }
  ~CurrentDevice() { (void)GPU(SetDevice)(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

class GpuGate final : public Gate {
 public:
  explicit GpuGate(int* word) : word_(word) {}
  void open() override { *const_cast<volatile int*>(word_) = 1; }
  ~GpuGate() override { open(); }

 private:
  int* const word_;  // never freed: the kernel may still read it
};

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(int index) : index_(index) {
    GPU_OK(GPU(SetDevice)(index));  // of the main thread, as a program does it
    GPU_OK(GPU(StreamCreateWithFlags)(&own_, GPU(StreamNonBlocking)));
    GPU_OK(GPU(Malloc)(reinterpret_cast<void**>(&findings_), sizeof(Findings)));
    GPU_OK(GPU(MemsetAsync)(findings_, 0, sizeof(Findings), own_));
    GPU_OK(GPU(StreamSynchronize)(own_));
    GPU_OK(GPU(DeviceGetAttribute)(&kilohertz_, GPU_CLOCK_RATE, index));
  }

  const char* name() const override { return TEST_GPU_NAME; }
  bool is_host() const override { return false; }

  void* create_stream() override {
    CurrentDevice current(index_);
    Stream_t stream = nullptr;
    GPU_OK(GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)));
    return stream;
  }
  void destroy_stream(void* stream) override {
    CurrentDevice current(index_);
    GPU_OK(GPU(StreamSynchronize)(on(stream)));
    GPU_OK(GPU(StreamDestroy)(on(stream)));
  }
  void wait_for(void* stream) override {
    CurrentDevice current(index_);
    GPU_OK(GPU(StreamSynchronize)(on(stream)));
  }
  void* own_stream() override { return own_; }

  char* allocate(Kind kind, std::size_t bytes) override {
    std::size_t size = 4096;
    while (size < bytes) size *= 2;
    std::lock_guard<std::mutex> hold(mutex_);
    const auto idle = idle_.find({kind, size});
    char* base = nullptr;
    if (idle != idle_.end()) {
      base = idle->second;
      idle_.erase(idle);
    } else {
      base = static_cast<char*>(new_memory(kind, size));
      sizes_[base] = size;
    }
    return base;
  }
  void release(Kind kind, char* base) override {
    std::lock_guard<std::mutex> hold(mutex_);
    idle_.emplace(std::make_pair(kind, sizes_.at(base)), base);
  }

  void fill(void* stream, void* to, std::size_t bytes, Pattern pattern, std::size_t position) override {
    CurrentDevice current(index_);
    fill_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(static_cast<unsigned char*>(to), bytes, pattern,
                                                               position);
    GPU_OK(GPU(GetLastError)());
  }
  void set(void* stream, void* to, std::size_t bytes, char value) override {
    CurrentDevice current(index_);
    set_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(static_cast<unsigned char*>(to), bytes,
                                                              static_cast<unsigned char>(value));
    GPU_OK(GPU(GetLastError)());
  }
  void count(void* stream, std::uint64_t* number) override {
    CurrentDevice current(index_);
    count_kernel<<<1, 1, 0, on(stream)>>>(number);
    GPU_OK(GPU(GetLastError)());
  }
  void delay(void* stream, int microseconds) override {
    CurrentDevice current(index_);
    delay_kernel<<<1, 1, 0, on(stream)>>>(static_cast<long long>(kilohertz_) * microseconds / 1000);
    GPU_OK(GPU(GetLastError)());
  }
  std::unique_ptr<Gate> hold(void* stream) override {
    CurrentDevice current(index_);
    void* word = nullptr;
    GPU_OK(gpu_host_alloc(&word, sizeof(int)));
    *static_cast<int*>(word) = 0;
    hold_kernel<<<1, 1, 0, on(stream)>>>(static_cast<int*>(word));
    GPU_OK(GPU(GetLastError)());
    return std::make_unique<GpuGate>(static_cast<int*>(word));
  }

  void write(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }

 private:
  using Stream_t = GPU(Stream_t);
  static Stream_t on(void* stream) { return static_cast<Stream_t>(stream); }

  /// A thread for 16 bytes, up to what fills a good part of a GPU.
  static unsigned blocks_for(std::size_t bytes) {
    return static_cast<unsigned>(std::clamp<std::size_t>(bytes / (16 * threads), 1, 64));
  }

  void* new_memory(Kind kind, std::size_t bytes) {
    CurrentDevice current(index_);
    void* base = nullptr;
    switch (kind) {
      case Kind::mapped:
        GPU_OK(GPU(Malloc)(&base, bytes));
        break;
      case Kind::unmapped:
        GPU_OK(GPU(MallocAsync)(&base, bytes, own_));
        GPU_OK(GPU(StreamSynchronize)(own_));
        break;
      case Kind::pinned:
        GPU_OK(gpu_host_alloc(&base, bytes));
        break;
    }
    return base;
  }

  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    CurrentDevice current(index_);
    GPU_OK(GPU(MemcpyAsync)(to, from, bytes, GPU(MemcpyDefault), own_));
    GPU_OK(GPU(StreamSynchronize)(own_));
  }

  static bool captures(Stream_t stream) {
    GPU(StreamCaptureStatus) status = GPU(StreamCaptureStatusNone);
    // of the null stream the answer may be an error while another stream captures
    if (GPU(StreamIsCapturing)(stream, &status) != GPU(Success)) (void)GPU(GetLastError)();
    return status == GPU(StreamCaptureStatusActive);
  }

  bool enqueue_check(void* stream, const void* at, std::size_t bytes, Pattern pattern, std::size_t position,
                     std::uint32_t check) override {
    CurrentDevice current(index_);
    check_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(static_cast<const unsigned char*>(at), bytes, pattern,
                                                                position, check, findings_);
    GPU_OK(GPU(GetLastError)());
    return !captures(on(stream));
  }
  bool enqueue_check_same(void* stream, const void* one, const void* other, std::size_t bytes,
                          std::uint32_t check) override {
    CurrentDevice current(index_);
    check_same_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(
        static_cast<const unsigned char*>(one), static_cast<const unsigned char*>(other), bytes, check, findings_);
    GPU_OK(GPU(GetLastError)());
    return !captures(on(stream));
  }

  std::vector<Failure> take_failures() override {
    Findings found;
    copy(&found, findings_, sizeof found);
    std::vector<Failure> failures;
    for (; reported_ < std::min(found.failures, Findings::most); ++reported_) {
      const Findings::Entry& entry = found.entries[reported_];
      failures.push_back({entry.check, entry.position, entry.number, entry.found, entry.expected});
    }
    if (found.failures > std::max(reported_, seen_)) failures.push_back({unnoted, found.failures, 0, 0, 0});
    seen_ = found.failures;
    return failures;
  }
  std::uint64_t checks_run() override {
    Findings found;
    copy(&found, findings_, sizeof found);
    return found.run;
  }

  const int index_;
  int kilohertz_ = 0;
  Stream_t own_ = nullptr;
  Findings* findings_ = nullptr;
  unsigned reported_ = 0;
  unsigned seen_ = 0;
  std::mutex mutex_;
  std::multimap<std::pair<Kind, std::size_t>, char*> idle_;
  std::map<char*, std::size_t> sizes_;
};

/// Ranks take the GPUs in turn.
std::unique_ptr<Device> make_gpu_device(int rank) {
  int count = 0;
  if (GPU(GetDeviceCount)(&count) != GPU(Success) || count == 0) {
    (void)GPU(GetLastError)();
    return nullptr;
  }
  return std::make_unique<GpuDevice>(rank % count);
}

}  // namespace
}  // namespace test
