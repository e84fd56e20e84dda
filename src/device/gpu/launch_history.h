// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "device/gpu/check.h"

/// What a process remembers of its launches, by capture and by stream, for those that come behind them.
namespace mpix {
inline namespace GPU_NAMESPACE {

/// The last kernels of ours in graphs that are being captured: to know what a kernel will find in front of it.
class CapturedKernels {
 public:
  enum class Kind { foreign, other, post, send, receive, both };  ///< foreign: no window's

  struct Found {
    Kind kind = Kind::other;
    bool may_wait = false;  ///< for a peer, when the next one has started
  };

  /// Empty: it is the program's, or not known any more.
  std::optional<Found> find(const GpuCapture& capture) {
    std::lock_guard<std::mutex> hold(mutex_);
    for (const Entry& entry : entries_)
      if (capture.front && entry.node == capture.front && entry.id == capture.id) return entry.found;
    return std::nullopt;
  }
  void add(const GpuCapture& capture, const Found& found) {
    std::lock_guard<std::mutex> hold(mutex_);
    entries_[next_] = Entry{capture.id, capture.front, found};
    next_ = (next_ + 1) % entries_.size();
  }

 private:
  struct Entry {
    unsigned long long id = 0;
    gpuGraphNode_t node = nullptr;
    Found found;
  };
  std::mutex mutex_;
  std::array<Entry, 16> entries_;
  std::size_t next_ = 0;
};

/// The last kernel of ours in a stream: whether the next one may start while it still waits for a peer, for which it
/// has one part only. Of a stream that is not known, as its entry is another's by now, it is taken for granted.
class LastLaunches {
 public:
  bool may_wait(gpuStream_t stream) const {
    const std::uintptr_t last = entry(stream).load(std::memory_order_relaxed);
    return last >> 1 != key(stream) || (last & 1) != 0;
  }
  void set(gpuStream_t stream, bool may_wait) {
    entry(stream).store(key(stream) << 1 | (may_wait ? 1 : 0), std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t count = 256;
  static std::uintptr_t key(gpuStream_t stream) {  // never 0
    return ((reinterpret_cast<std::uintptr_t>(stream) + 1) << 1) >> 1;
  }
  const std::atomic<std::uintptr_t>& entry(gpuStream_t stream) const {
    return entries_[(key(stream) * 0x9E3779B97F4A7C15u) >> 56];
  }
  std::atomic<std::uintptr_t>& entry(gpuStream_t stream) {
    return const_cast<std::atomic<std::uintptr_t>&>(const_cast<const LastLaunches*>(this)->entry(stream));
  }
  std::array<std::atomic<std::uintptr_t>, count> entries_{};
};

/// The streams that the program uses again and again. CUDA holds up a dependent launch in a stream that is destroyed
/// while a kernel in front of it runs, until kernels of a stream that is made next have ended (12 of 12, CUDA 13.0; not
/// if that stream was there before, nor if nothing runs in front; an event behind the launch, a query, or another
/// kernel do not help). These kernels may wait for what the launch brings. So launches are dependent in a stream that
/// has had many of ours, as no stream has that is made for an exchange. Each stream has a number of its own, where
/// handles come again. Of two that share an entry, or two threads at a time, some launches may not be counted.
class UsualStreams {
 public:
  /// Counts this launch.
  bool has_many_in(gpuStream_t stream) {
    const std::uint64_t number = gpu_stream_number(stream);
    std::atomic<std::uint64_t>& entry = entries_[number % entries_.size()];
    const std::uint64_t seen = entry.load(std::memory_order_relaxed);
    const std::uint64_t launches = seen / (many + 1) == number ? seen % (many + 1) : 0;
    if (launches == many) return true;
    entry.store(number * (many + 1) + launches + 1, std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::uint64_t many = 32;
  std::array<std::atomic<std::uint64_t>, 64> entries_{};
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
