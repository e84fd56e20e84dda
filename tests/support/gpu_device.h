// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "device.h"
#include "support/gpu_names.h"

/// A GPU of either vendor: streams, memory, and kernels that write and check data.
namespace test {
namespace {

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
  explicit GpuDevice(std::unique_ptr<support::Platform> platform) : Device(std::move(platform)) {
    CHECK_GPU(GPU(GetDevice)(&index_));  // which the platform has made the current one
    CHECK_GPU(GPU(Malloc)(reinterpret_cast<void**>(&findings_), sizeof(Findings)));
    CHECK_GPU(GPU(MemsetAsync)(findings_, 0, sizeof(Findings), on(own_stream())));
    CHECK_GPU(GPU(StreamSynchronize)(on(own_stream())));
    CHECK_GPU(GPU(DeviceGetAttribute)(&kilohertz_, GPU_CLOCK_RATE, index_));
  }

  long free_bytes() override {
    const support::CurrentGpu current(index_);
    std::size_t free = 0, all = 0;
    CHECK_GPU(GPU(MemGetInfo)(&free, &all));
    return static_cast<long>(free);
  }
  void wait_for_all() override {
    const support::CurrentGpu current(index_);
    CHECK_GPU(GPU(DeviceSynchronize)());
  }

  void fill(void* stream, void* to, std::size_t bytes, Pattern pattern, std::size_t position) override {
    const support::CurrentGpu current(index_);
    fill_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(static_cast<unsigned char*>(to), bytes, pattern,
                                                               position);
    CHECK_GPU(GPU(GetLastError)());
  }
  void set(void* stream, void* to, std::size_t bytes, char value) override {
    const support::CurrentGpu current(index_);
    set_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(static_cast<unsigned char*>(to), bytes,
                                                              static_cast<unsigned char>(value));
    CHECK_GPU(GPU(GetLastError)());
  }
  void count(void* stream, std::uint64_t* number) override {
    const support::CurrentGpu current(index_);
    count_kernel<<<1, 1, 0, on(stream)>>>(number);
    CHECK_GPU(GPU(GetLastError)());
  }
  void delay(void* stream, int microseconds) override {
    const support::CurrentGpu current(index_);
    delay_kernel<<<1, 1, 0, on(stream)>>>(static_cast<long long>(kilohertz_) * microseconds / 1000);
    CHECK_GPU(GPU(GetLastError)());
  }
  std::unique_ptr<Gate> hold(void* stream) override {
    const support::CurrentGpu current(index_);
    void* word = nullptr;
    CHECK_GPU(gpu_host_alloc(&word, sizeof(int)));
    *static_cast<int*>(word) = 0;
    hold_kernel<<<1, 1, 0, on(stream)>>>(static_cast<int*>(word));
    CHECK_GPU(GPU(GetLastError)());
    return std::make_unique<GpuGate>(static_cast<int*>(word));
  }

 private:
  static gpuStream_t on(void* stream) { return static_cast<gpuStream_t>(stream); }

  /// A thread for 16 bytes, up to what fills a good part of a GPU.
  static unsigned blocks_for(std::size_t bytes) {
    return static_cast<unsigned>(std::clamp<std::size_t>(bytes / (16 * threads), 1, 64));
  }

  static bool captures(gpuStream_t stream) {
    GPU(StreamCaptureStatus) status = GPU(StreamCaptureStatusNone);
    // of the null stream the answer may be an error while another stream captures
    if (GPU(StreamIsCapturing)(stream, &status) != GPU(Success)) (void)GPU(GetLastError)();
    return status == GPU(StreamCaptureStatusActive);
  }

  bool enqueue_check(void* stream, const void* at, std::size_t bytes, Pattern pattern, std::size_t position,
                     std::uint32_t check) override {
    const support::CurrentGpu current(index_);
    check_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(static_cast<const unsigned char*>(at), bytes, pattern,
                                                                position, check, findings_);
    CHECK_GPU(GPU(GetLastError)());
    return !captures(on(stream));
  }
  bool enqueue_check_same(void* stream, const void* one, const void* other, std::size_t bytes,
                          std::uint32_t check) override {
    const support::CurrentGpu current(index_);
    check_same_kernel<<<blocks_for(bytes), threads, 0, on(stream)>>>(
        static_cast<const unsigned char*>(one), static_cast<const unsigned char*>(other), bytes, check, findings_);
    CHECK_GPU(GPU(GetLastError)());
    return !captures(on(stream));
  }

  std::vector<Failure> take_failures() override {
    Findings found;
    read(&found, findings_, sizeof found);
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
    read(&found, findings_, sizeof found);
    return found.run;
  }

  int index_ = 0;
  int kilohertz_ = 0;
  Findings* findings_ = nullptr;
  unsigned reported_ = 0;
  unsigned seen_ = 0;
};

std::unique_ptr<Device> make_gpu_device(std::unique_ptr<support::Platform> platform) {
  return platform ? std::make_unique<GpuDevice>(std::move(platform)) : nullptr;
}

}  // namespace
}  // namespace test
