// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/settings.h"
#include "device/device.h"
#include "device/gpu/check.h"
#include "device/gpu/collective_launcher.h"
#include "device/gpu/gpu_copier.h"
#include "device/gpu/graph_keeper.h"
#include "device/gpu/halo_kernel.h"
#include "device/gpu/launcher.h"
#include "device/gpu/memory.h"
#include "device/gpu/post_streams.h"
#include "device/gpu/row_copies.h"
#include "device/host/stream.h"
#include "wire/collective.h"
#include "wire/way_choice.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

class OwnGpuStream final : public OwnStream {
 public:
  explicit OwnGpuStream(int device) : device_(device) {
    const OwnCalls own(device_);
    MPIX_CHECK_GPU(gpuStreamCreateWithPriority(&stream_, gpuStreamNonBlocking, 0));
  }
  ~OwnGpuStream() override {
    DeviceScope scope(device_);
    (void)gpuStreamSynchronize(stream_);
    (void)gpuStreamDestroy(stream_);
  }
  Stream handle() const noexcept override { return stream_; }
  void synchronize() override {
    const OwnCalls own(device_);
    MPIX_CHECK_GPU(gpuStreamSynchronize(stream_));
  }

 private:
  const int device_;
  gpuStream_t stream_ = nullptr;
};

/// A GPU, by the names of one vendor: this source is compiled once for each, after gpu/<vendor>/names.h.
///
/// A rank works with one GPU: that of its first window's memory, or the current one for an empty window.
class GpuDevice final : public Device {
 public:
  explicit GpuDevice(const Settings& settings)
      : copy_bytes_(settings.copy_engine_bytes),
        packs_above_(settings.packs_above.value_or(gpu_some_link_carries_packs() ? 64 * 1024 : SIZE_MAX)),
        free_posts_(settings.posts == Posts::free || (settings.posts == Posts::automatic && queues_asked_for() != 1)),
        launcher_(settings) {}

  const char* name() const noexcept override { return GPU_NAME; }

  std::string advice() const override {
    if (queues_asked_for() != 1) return "";
    return GPU_QUEUES_VARIABLE
        "=1: all streams of a process share one queue, so a stream that waits for another rank "
        "also stops the other streams, which can be a deadlock";
  }
  std::string hang_advice() const override { return gpu_hang_advice(); }
  void begin_range(const char* name) noexcept override { gpu_begin_range(name); }
  void end_range() noexcept override { gpu_end_range(); }

  bool hidden_from_host(const void* p) const noexcept override {
    gpuPointerAttributes attributes{};
    if (p && gpuPointerGetAttributes(&attributes, p) == gpuSuccess) return is_device_memory(attributes);
    (void)gpuGetLastError();
    return false;
  }

  bool lets_networks_reach(const void* p) const override { return !hidden_from_host(p) || shareable(p); }
  void settle_thread() override {
    static thread_local bool is_settled = false;
    if (is_settled || !settled()) return;
    const DeviceScope stays(memory().device());
    gpuStreamCaptureMode mode = gpuStreamCaptureModeRelaxed;
    MPIX_CHECK_GPU(gpuThreadExchangeStreamCaptureMode(&mode));
    is_settled = true;
  }

  void use_memory_of(const void* base, std::size_t bytes) override {
    int device = 0;
    if (bytes == 0) {
      if (settled()) return;
      MPIX_CHECK_GPU(gpuGetDevice(&device));
    } else {
      gpuPointerAttributes attributes{};
      const gpuError_t known = gpuPointerGetAttributes(&attributes, base);
      if (known != gpuSuccess) (void)gpuGetLastError();
      const bool managed = known == gpuSuccess && is_managed_memory(attributes);
      if (known != gpuSuccess || !(managed || is_device_memory(attributes) || is_pinned_memory(attributes)))
        throw Error(Fault::unsupported, "the window's memory is not memory of the GPU, nor pinned, nor managed");
      if (is_device_memory(attributes) && !managed)
        device = attributes.device;
      else if (settled())
        return;  // any GPU reaches it
      else
        MPIX_CHECK_GPU(gpuGetDevice(&device));
    }
    std::lock_guard<std::mutex> hold(mutex_);
    if (!memory_) settle_on(device);  // it stays the same from then on
    if (memory_->device() != device)
      throw Error(Fault::unsupported, "the window's memory is on GPU " + std::to_string(device) +
                                          ", and earlier windows of this rank are on GPU " +
                                          std::to_string(memory_->device()) + ": one GPU a rank");
  }

  void check_buffer(const void* p, const char* what) override {
    const int device = memory().device();
    gpuPointerAttributes attributes{};
    const gpuError_t known = gpuPointerGetAttributes(&attributes, p);
    if (known != gpuSuccess) (void)gpuGetLastError();
    if (known == gpuSuccess && (is_managed_memory(attributes) || is_pinned_memory(attributes))) return;
    if (known == gpuSuccess && is_device_memory(attributes)) {
      if (attributes.device != device) reach(attributes.device, what);
    } else if (!gpu_reads_pageable_memory(device)) {
      throw Error(Fault::argument, "GPU " + std::to_string(device) + " cannot reach the " + what +
                                       ": it is not memory of a GPU, nor pinned, nor managed");
    }
  }

  // Measured: up to here the eager exchange beats the round trip. In packs it does up to a megabyte, too, but mailboxes
  // take memory.
  std::size_t preferred_eager_bytes() const noexcept override {
    return packs_above_ == SIZE_MAX ? 128 * 1024 : 512 * 1024;
  }
  std::size_t packs_above() const noexcept override { return packs_above_; }

  std::size_t preferred_copy_bytes() const noexcept override { return copy_bytes_; }
  std::uint32_t parts_in_use() const noexcept override { return most_parts; }

  Allocation allocate(std::size_t bytes) override {
    keeper_.bury();
    return memory().allocate(bytes);
  }
  void release(void* base) noexcept override {
    if (GpuMemory* memory = settled()) memory->release(base);
  }
  std::optional<Allocation> shareable(const void* p) const override {
    GpuMemory* const memory = settled();
    return memory ? memory->shareable(p) : std::nullopt;
  }

  ExportedMemory export_memory(const void* base) override { return memory().export_memory(base); }
  char* import_memory(const ExportedMemory& exported) override {
    return memory().import_memory(exported, [this] { return unmap_for_import(); });
  }
  void close_import(char* base) noexcept override {
    if (GpuMemory* memory = settled()) memory->close_import(base);
  }
  std::size_t closed_imports() const noexcept override {
    GpuMemory* const memory = settled();
    return memory ? memory->closed_imports() : 0;
  }
  void unmap_closed_imports() noexcept override {
    if (GpuMemory* memory = settled()) memory->unmap_closed_imports();
  }

  std::shared_ptr<const void> upload(const void* data, std::size_t bytes) override {
    return memory().upload(data, bytes);
  }

  void read(void* to, const void* from, std::size_t bytes) override { memory().copy_to_host(to, from, bytes); }

  void write(void* to, const void* from, std::size_t bytes) override { memory().copy_to_device(to, from, bytes); }
  std::unique_ptr<Copier> new_copier() override { return std::make_unique<GpuCopier>(memory().device()); }
  std::uint64_t read_word(const std::uint64_t* word) override {
    std::uint64_t value = 0;
    memory().copy_to_host(&value, word, sizeof value);
    return value;
  }
  void write_word(std::uint64_t* word, std::uint64_t value) override {
    memory().copy_to_device(word, &value, sizeof value);
  }

  std::shared_ptr<HostWords> host_words(std::size_t ranks) override {
    const std::shared_ptr<void> place = memory().host_memory(sizeof(HostWords) + ranks * sizeof(WaitNotes));
    auto* words = new (place.get()) HostWords{};
    words->notes = reinterpret_cast<WaitNotes*>(words + 1);
    return std::shared_ptr<HostWords>(place, words);
  }

  std::shared_ptr<char> allocate_pinned(std::size_t bytes) override {
    keeper_.bury();
    const std::shared_ptr<void> place = memory().host_memory(bytes);
    return std::shared_ptr<char>(place, static_cast<char*>(place.get()));
  }
  std::shared_ptr<char> pin(std::shared_ptr<char> shared, std::size_t bytes) override {
    return memory().pin(std::move(shared), bytes);
  }

  std::uint64_t check_stream(Stream stream) const override {
    if (is_host_stream(stream))
      throw Error(Fault::argument, "the stream is an MPIX_Host_stream, and the device in use is " GPU_NAME
                                   " (MPIX_DEVICE=host uses host streams)");
    const auto on = static_cast<gpuStream_t>(stream);
    if (gpu_is_capturing(on)) return gpu_capture_of(on).id;
    GpuMemory* const memory = settled();
    const int device = memory ? gpu_device_of(on) : -1;
    if (device >= 0 && device != memory->device())
      throw Error(Fault::argument, "the stream is one of GPU " + std::to_string(device) +
                                       ", and this process works with GPU " + std::to_string(memory->device()));
    return 0;
  }
  bool reads_plans_later() const noexcept override { return true; }
  std::unique_ptr<LaunchMemory> new_launch_memory() override { return launcher_.new_memory(); }
  void keep_for_graph(Stream stream, std::shared_ptr<const void> what) override {
    keeper_.keep(static_cast<gpuStream_t>(stream), std::move(what));
  }

  void launch(Stream stream, Launch&& launch) override {
    DeviceScope scope(memory().device());
    launcher_.launch(static_cast<gpuStream_t>(stream), launch);
  }

  void launch(Stream stream, CollectiveLaunch&& launch) override {
    DeviceScope scope(memory().device());
    if (launch.capture != 0) keep_for_graph(stream, launch.keep);
    launch_collective(launch, static_cast<gpuStream_t>(stream));
    launcher_.know_of_other(static_cast<gpuStream_t>(stream), launch.capture != 0);
  }
  void launch(Stream stream, RailLaunch&& launch) override {
    DeviceScope scope(memory().device());
    if (launch.capture != 0) keep_for_graph(stream, launch.keep);
    launch_rail(launch, static_cast<gpuStream_t>(stream));
    launcher_.know_of_other(static_cast<gpuStream_t>(stream), launch.capture != 0);
  }
  void prepare_collectives() override {
    const OwnCalls own(memory().device());
    load_collective_kernels();
    load_rail_kernels();
  }
  void launch(Stream stream, HaloLaunch&& launch) override {
    DeviceScope scope(memory().device());
    if (launch.captured) keep_for_graph(stream, launch.keep);
    launch_halo(launch, static_cast<gpuStream_t>(stream));
    launcher_.know_of_other(static_cast<gpuStream_t>(stream), launch.captured);
  }
  void launch(Stream stream, const HaloGate& gate, const std::shared_ptr<const void>&) override {
    const int device = memory().device();
    DeviceScope scope(device);
    pass_halo_gate(gate, static_cast<gpuStream_t>(stream), has_memory_ops(device));
  }
  void prepare_halos() override {
    const OwnCalls own(memory().device());
    (void)halo_kernel(), (void)halo_gate_kernel();
  }
  std::uint64_t collectives_run(const Collective& any) override {
    std::vector<CollectiveState> states(most_parts);  // parts end one by one
    memory().copy_to_host(states.data(), any.states(), states.size() * sizeof states[0]);
    std::uint32_t least = states[0].call;
    for (const CollectiveState& one : states)
      if (static_cast<std::int32_t>(one.call - least) < 0) least = one.call;
    return least - 1;
  }
  std::shared_ptr<StreamPoint> new_point() override { return std::make_shared<GpuPoint>(memory().device()); }
  std::size_t preferred_line_bytes(std::uint32_t ranks) const noexcept override {
    return 1024 * 1024 / std::max(ranks - 1, 1u);
  }
  /// On 2 H100 lines are as fast up to 128 KiB, on 2 H200, captured, calls up to 256 KiB (all-reduce 3.96 us for 4.01;
  /// 320 KiB 5.0 for 4.2), bcast up to 320 KiB (3.09 for 3.28; 384 KiB 3.48 for 3.29), reduce up to 384 KiB (3.41
  /// for 3.58; 448 KiB 3.80 for 3.58). With attached memory direct calls are the fastest from 16 MiB on, bcast and
  /// reduce from 8 MiB on; without, packs are the fastest at all sizes; on 3 and 4 as well, and of what has no shares
  /// attached memory goes direct from 1 MiB on. With more ranks this has not been measured.
  PackForm pack_form(std::uint32_t ranks) const noexcept override {
    if (!gpu_has_packs || ranks < 2 || ranks > Collective::most_near) return {};
    PackForm form;
    form.groups = pack_movers / Pack::lanes;
    form.turns = ranks <= 2 ? 4 : ranks <= 4 ? 2 : 1;
    const std::size_t bytes = 128 * 1024 / (ranks - 1);
    form.above = {bytes, bytes, bytes, bytes};
    if (ranks == 2) form.above = {256 * 1024, 320 * 1024, 384 * 1024, 256 * 1024};
    form.most_attached_bytes = ranks == 2 ? 16 << 20 : 2 * preferred_line_bytes(ranks);
    form.most_bytes = SIZE_MAX;
    // Where the bytes that shares save take as long as their second step; measured with 3 and 4 ranks.
    if (ranks == 3) form.shared_above_bytes = 512 * 1024;
    if (ranks > 3) form.shared_above_bytes = std::size_t{512} * 1024 * ranks / ((ranks - 1) * (ranks - 2));
    form.most_attached_rooted_bytes = 4 << 20;
    return form;
  }
  bool carries_packs(std::uint64_t processor) override {
    const int own = memory().device();
    return processor != 0 && (processor == gpu_processor(own) || gpu_link_carries_packs(own, processor));
  }
  std::unique_ptr<OwnStream> new_stream() override { return std::make_unique<OwnGpuStream>(memory().device()); }
  /// A kernel that holds lines, too, takes longer to fetch its code than it can gain.
  bool chooses_lines() const noexcept override { return false; }
  std::size_t least_chosen_bytes(std::uint32_t ranks) const noexcept override {
    return preferred_line_bytes(ranks) + 1;
  }
  std::uint64_t chosen_direct(const Collective& any) override {
    LastCalls last{};
    memory().copy_to_host(&last, any.own() + any.places.choices(), sizeof last);
    return last.direct;
  }
  std::size_t preferred_scratch_bytes() const noexcept override { return 48 << 20; }

  using Device::copy;
  void copy(Stream stream, const RowCopy& rows) override {
    DeviceScope scope(memory().device());
    copy_rows(static_cast<gpuStream_t>(stream), rows);
  }

  /// Guards, so what is left out only costs time: the kernels wait by themselves.
  void run_memory_ops(Stream stream, MemoryOps ops) override {
    const int device = memory().device();
    DeviceScope scope(device);
    if (!has_memory_ops(device) || (!gpu_captures_memory_ops && gpu_is_capturing(static_cast<gpuStream_t>(stream))))
      return;
    const std::string error = gpu_enqueue_memory_ops(static_cast<gpuStream_t>(stream), ops.ops.data(), ops.ops.size());
    if (!error.empty()) throw Error(Fault::other, error);
  }
  bool has_memory_ops() override { return has_memory_ops(memory().device()); }

  std::uint64_t number_of(Stream stream) const noexcept override {
    return gpu_stream_number(static_cast<gpuStream_t>(stream));
  }
  PostStreams* post_streams() override {
    (void)memory();
    return post_streams_.get();
  }

  std::uint64_t processor() override { return gpu_processor(memory().device()); }
  bool wants_guards_where_shared() override {
    const int device = memory().device();
    return gpu_is_time_sliced(device) && has_memory_ops(device);
  }
  bool has_guards() override { return gpu_captures_memory_ops && has_memory_ops(memory().device()); }
  std::shared_ptr<WaitingRoom> new_waiting_room() override {
    (void)memory();
    return std::make_shared<WindowPlaces>(places_);
  }
  std::unique_ptr<CallRoom> new_call_room() override {
    (void)memory();
    keeper_.bury();  // what graphs had may have places
    return std::make_unique<CallPlaces>(places_);
  }
  bool waits_for_launches() const noexcept override { return true; }
  bool stalls_silently() const noexcept override { return true; }
  bool posts_may_be_late() const noexcept override { return true; }

  /// The counters are the last that a kernel writes, and its plan's memory goes back to a pool only.
  bool have_ended(const HostWords&, std::uint64_t) const override { return true; }

 private:
  /// Null: no GPU has been chosen yet.
  GpuMemory* settled() const noexcept { return settled_.load(std::memory_order_acquire); }

  GpuMemory& memory() {
    if (GpuMemory* memory = settled()) return *memory;
    std::lock_guard<std::mutex> hold(mutex_);
    if (!memory_) {
      int device = 0;
      MPIX_CHECK_GPU(gpuGetDevice(&device));
      settle_on(device);
    }
    return *memory_;
  }

  void settle_on(int device) {  // under mutex_
    auto memory = std::make_unique<GpuMemory>(device);
    const OwnCalls own(device);
    launcher_.open(device);
    places_->open(gpu_multiprocessors(device), launcher_.places());
    // With the rest: streams are not made while kernels may wait for peers.
    if (free_posts_ && gpu_has_atomics_for_peers(device))
      post_streams_ = std::make_unique<GpuPostStreams>(device, launcher_, keeper_);
    memory_ = std::move(memory);
    settled_.store(memory_.get(), std::memory_order_release);
  }

  /// A buffer on another GPU.
  void reach(int other, const char* what) {
    const OwnCalls own(memory().device());
    const gpuError_t error = gpuDeviceEnablePeerAccess(other, 0);
    if (error == gpuSuccess) return;
    (void)gpuGetLastError();
    if (error == gpuErrorPeerAccessAlreadyEnabled) return;
    throw Error(Fault::argument, "GPU " + std::to_string(memory().device()) + " cannot reach the " + what +
                                     ", which is on GPU " + std::to_string(other) + " (" + gpuGetErrorName(error) +
                                     ")");
  }

  static bool has_memory_ops(int device) {
    static const bool has = gpu_has_memory_ops(device);  // one device a process
    return has;
  }

  const std::size_t copy_bytes_;
  const std::size_t packs_above_;
  const bool free_posts_;
  Launcher launcher_;
  std::mutex mutex_;
  std::unique_ptr<GpuMemory> memory_;
  std::atomic<GpuMemory*> settled_{nullptr};  ///< memory_, for those who do not hold mutex_
  const std::shared_ptr<Places> places_ = std::make_shared<Places>();
  std::unique_ptr<GpuPostStreams> post_streams_;
  GraphKeeper keeper_;  ///< ends before the memory does, which it gives back to
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
