// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <new>

#include "device.h"
#include "gpu_names.h"

/// A GPU, compiled once for each vendor: hence the unnamed namespace.
namespace bench {
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

class GpuDevice final : public Device {
 public:
  GpuDevice(int number, int count) {
    CHECK_GPU(GPU(SetDevice)(number));
    CHECK_GPU(GPU(StreamCreateWithFlags)(&stream_, GPU(StreamNonBlocking)));
    gpuDeviceProperties properties;
    CHECK_GPU(GPU(GetDeviceProperties)(&properties, number));
    description_ = std::string(GPU_VENDOR_NAME " stream of ") + properties.name + ", " + std::to_string(count) +
                   (count == 1 ? " GPU a node" : " GPUs a node");
  }
  ~GpuDevice() override { (void)GPU(StreamDestroy)(stream_); }
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  const char* name() const override { return GPU_VENDOR_NAME; }
  std::string describe() const override { return description_; }
  void* stream() override { return stream_; }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    const GPU(Error_t) error = GPU(Malloc)(&memory, bytes > 0 ? bytes : 1);
    if (error == GPU(ErrorMemoryAllocation)) throw std::bad_alloc();
    CHECK_GPU(error);
    return memory;
  }
  void release(void* memory) noexcept override { (void)GPU(Free)(memory); }
  void* allocate_on_host(std::size_t bytes) override {
    void* memory = nullptr;
    CHECK_GPU(gpu_host_alloc(&memory, bytes > 0 ? bytes : 1));
    return memory;
  }
  void release_on_host(void* memory) noexcept override { (void)gpu_host_free(memory); }
  bool pin(void* memory, std::size_t bytes) override {
    if (GPU(HostRegister)(memory, bytes, GPU(HostRegisterDefault)) == GPU(Success)) return true;
    (void)GPU(GetLastError)();
    return false;
  }
  void unpin(void* memory) noexcept override { (void)GPU(HostUnregister)(memory); }

  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    CHECK_GPU(GPU(MemcpyAsync)(to, from, bytes, GPU(MemcpyDeviceToHost), stream_));
  }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    CHECK_GPU(GPU(MemcpyAsync)(to, from, bytes, GPU(MemcpyHostToDevice), stream_));
  }
  void launch(const Launchable& kernel) override { kernel.launch_on_gpu(GPU_VENDOR, stream_); }
  void synchronize() override { CHECK_GPU(GPU(StreamSynchronize)(stream_)); }

  bool is_gpu() const override { return true; }
  std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) override {
    CHECK_GPU(GPU(StreamBeginCapture)(stream_, GPU(StreamCaptureModeThreadLocal)));
    enqueue();
    GPU(Graph_t) graph = nullptr;
    CHECK_GPU(GPU(StreamEndCapture)(stream_, &graph));
    return std::make_unique<GpuGraph>(graph, stream_);
  }

 private:
  gpuStream_t stream_ = nullptr;
  std::string description_;
};

std::unique_ptr<Device> make_gpu_device(int local_rank) {
  int count = 0;
  if (GPU(GetDeviceCount)(&count) != GPU(Success) || count == 0) {
    (void)GPU(GetLastError)();  // without a driver the call fails: no GPU
    return nullptr;
  }
  return std::make_unique<GpuDevice>(local_rank % count, count);
}

}  // namespace
}  // namespace bench
