// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>

#include "device/device.h"

namespace mpix {

/// Something whose kernels may wait for those of peers: a window, the collectives of a communicator, a halo, a domain.
class WaitsForPeers {
 public:
  /// Nothing that it has enqueued is under way, and nothing is enqueued while the lock lives. A lock of nothing:
  /// something may be. What is broken waits for nobody. `or_unseen`: what nobody counts, as graphs and kernels that the
  /// program launches, is no reason.
  virtual std::unique_lock<std::mutex> held_if_idle(bool or_unseen) = 0;

 protected:
  ~WaitsForPeers() = default;
};

/// When memory of peers is unmapped that closed windows have left mapped (Device::close_import). To unmap waits for
/// what runs on a GPU, and all calls of the process wait with it: so not while a stream may wait for a peer, which may
/// wait for a call that this process has yet to make.
///
/// | then                                                            | what is closed                                |
/// |-----------------------------------------------------------------|-----------------------------------------------|
/// | a window, a domain, or the collectives of a communicator end, and all that is enqueued has run | is unmapped     |
/// | the same, and something is still to run                         | stays: the next end looks again               |
/// | the same, and something is in graphs, or in kernels of the program | stays up to `most_closed`, as nobody knows whether they run; is unmapped beyond |
/// | the same allocation is mapped again                             | is used again                                 |
/// | another one is mapped that lies where a closed one was          | is unmapped before, as soon as all that was enqueued has run, but for what nobody counts; if it has not within `import_patience`, nothing is mapped |
/// | the process ends                                                | goes with it                                  |
///
/// Nobody can enqueue anything while it unmaps: it holds the locks of all of them.
constexpr std::size_t most_closed = std::size_t{4} << 30;
/// Epochs that are under way when a window is created end within that, unless they wait for its creation.
constexpr std::chrono::milliseconds import_patience{5000};

void unmap_if_idle(Device& device) noexcept;
/// For Device::set_unmapper.
bool unmap_for_import(Device& device, std::chrono::milliseconds patience = import_patience) noexcept;

/// As long as this lives, nothing is unmapped while `one` may wait. It ends before anything that held_if_idle() looks
/// at.
class AskedBeforeUnmapping {
 public:
  explicit AskedBeforeUnmapping(WaitsForPeers& one);
  ~AskedBeforeUnmapping();
  AskedBeforeUnmapping(const AskedBeforeUnmapping&) = delete;
  AskedBeforeUnmapping& operator=(const AskedBeforeUnmapping&) = delete;

 private:
  WaitsForPeers& one_;
};

/// At the end of its life, that of one whose memory is closed by then.
class UnmapsLater {
 public:
  explicit UnmapsLater(Device& device) : device_(device) {}
  ~UnmapsLater() { unmap_if_idle(device_); }
  UnmapsLater(const UnmapsLater&) = delete;
  UnmapsLater& operator=(const UnmapsLater&) = delete;

 private:
  Device& device_;
};

}  // namespace mpix
