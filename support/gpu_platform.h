// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <new>

#include "support/gpu_names.h"

/// A GPU, compiled once for each vendor: hence the unnamed namespace.
namespace support {
namespace {

class GpuGraph final : public Graph {
 public:
  GpuGraph(GPU(Graph_t) graph, gpuStream_t stream) : stream_(stream) {
    const GPU(Error_t) error = GPU(GraphInstantiateWithFlags)(&executable_, graph, 0);
    (void)GPU(GraphDestroy)(graph);
    CHECK_GPU(error);
  }
  ~GpuGraph() override { (void)GPU(GraphExecDestroy)(executable_); }
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  void launch() override { CHECK_GPU(GPU(GraphLaunch)(executable_, stream_)); }

 private:
  gpuStream_t stream_;
  GPU(GraphExec_t) executable_ = nullptr;
};

class GpuPlatform final : public Platform {
 public:
  GpuPlatform(int index, int count) : index_(index) {
    CHECK_GPU(GPU(SetDevice)(index));  // of the main thread, as a program does it
    CHECK_GPU(GPU(StreamCreateWithFlags)(&pool_stream_, GPU(StreamNonBlocking)));
    CHECK_GPU(GPU(EventCreateWithFlags)(&order_, GPU(EventDisableTiming)));
    gpuDeviceProperties properties;
    CHECK_GPU(GPU(GetDeviceProperties)(&properties, index));
    description_ = std::string(GPU_VENDOR_NAME " stream of ") + properties.name + ", " + std::to_string(count) +
                   (count == 1 ? " GPU a node" : " GPUs a node");
  }

  const char* name() const override { return GPU_VENDOR_NAME; }
  std::string describe() const override { return description_; }
  bool is_gpu() const override { return true; }

  void* create_stream() override {
    const CurrentGpu current(index_);
    gpuStream_t stream = nullptr;
    CHECK_GPU(GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)));
    return stream;
  }
  void destroy_stream(void* stream) override {
    const CurrentGpu current(index_);
    CHECK_GPU(GPU(StreamSynchronize)(on(stream)));
    CHECK_GPU(GPU(StreamDestroy)(on(stream)));
  }
  void synchronize(void* stream) override {
    const CurrentGpu current(index_);
    CHECK_GPU(GPU(StreamSynchronize)(on(stream)));
  }
  void order(void* first, void* then) override {
    const CurrentGpu current(index_);
    CHECK_GPU(GPU(EventRecord)(order_, on(first)));
    CHECK_GPU(GPU(StreamWaitEvent)(on(then), order_, 0));
  }

  void* allocate(Kind kind, std::size_t bytes) override {
    const CurrentGpu current(index_);
    void* memory = nullptr;
    const GPU(Error_t) error = try_to_allocate(kind, bytes > 0 ? bytes : 1, &memory);
    if (error == GPU(ErrorMemoryAllocation)) throw std::bad_alloc();
    CHECK_GPU(error);
    return memory;
  }
  void release(Kind kind, void* memory) noexcept override {
    switch (kind) {
      case Kind::mapped:
        (void)GPU(Free)(memory);
        break;
      case Kind::unmapped:
        (void)GPU(FreeAsync)(memory, pool_stream_);
        break;
      case Kind::pinned:
        (void)gpu_host_free(memory);
        break;
    }
  }
  bool pin(void* memory, std::size_t bytes) override {
    if (GPU(HostRegister)(memory, bytes, GPU(HostRegisterDefault)) == GPU(Success)) return true;
    (void)GPU(GetLastError)();
    return false;
  }
  void unpin(void* memory) noexcept override { (void)GPU(HostUnregister)(memory); }

  void copy(void* stream, void* to, const void* from, std::size_t bytes) override {
    CHECK_GPU(GPU(MemcpyAsync)(to, from, bytes, GPU(MemcpyDefault), on(stream)));
  }
  void launch(void* stream, const Launchable& kernel) override { kernel.launch_on_gpu(GPU_VENDOR, stream); }
  std::unique_ptr<Graph> capture(void* stream, const std::function<void()>& enqueue) override {
    CHECK_GPU(GPU(StreamBeginCapture)(on(stream), GPU(StreamCaptureModeThreadLocal)));
    enqueue();
    GPU(Graph_t) graph = nullptr;
    CHECK_GPU(GPU(StreamEndCapture)(on(stream), &graph));
    return std::make_unique<GpuGraph>(graph, on(stream));
  }

 private:
  static gpuStream_t on(void* stream) { return static_cast<gpuStream_t>(stream); }

  GPU(Error_t) try_to_allocate(Kind kind, std::size_t bytes, void** memory) const {
    switch (kind) {
      case Kind::mapped:
        return GPU(Malloc)(memory, bytes);
      case Kind::pinned:
        return gpu_host_alloc(memory, bytes);
      case Kind::unmapped:
        break;
    }
    const GPU(Error_t) error = GPU(MallocAsync)(memory, bytes, pool_stream_);
    return error == GPU(Success) ? GPU(StreamSynchronize)(pool_stream_) : error;
  }

  const int index_;
  std::string description_;
  gpuStream_t pool_stream_ = nullptr;
  GPU(Event_t) order_ = nullptr;
};

std::unique_ptr<Platform> make_gpu_platform(int local_rank) {
  int count = 0;
  if (GPU(GetDeviceCount)(&count) != GPU(Success) || count == 0) {
    (void)GPU(GetLastError)();  // without a driver the call fails: no GPU
    return nullptr;
  }
  return std::make_unique<GpuPlatform>(local_rank % count, count);
}

}  // namespace
}  // namespace support
