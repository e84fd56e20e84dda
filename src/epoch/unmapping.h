// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstddef>

#include "device/device.h"

namespace mpix {

class Window;

/// When memory of peers is unmapped that closed windows have left mapped (Device::close_import). To unmap waits for
/// what runs on a GPU, and all calls of the process wait with it: so not while a stream may wait for a peer, which may
/// wait for a call that this process has yet to make.
///
/// | then                                                            | what is closed                                |
/// |-----------------------------------------------------------------|-----------------------------------------------|
/// | a window ends, and all that the others have enqueued has run    | is unmapped                                   |
/// | a window ends, and another one has something enqueued           | stays: the next window's end looks again      |
/// | a window ends, and another one's epochs are in graphs           | stays up to `most_closed`, as nobody knows whether the graphs run; is unmapped beyond |
/// | the same allocation is mapped again                             | is used again                                 |
/// | another one is mapped that lies where a closed one was          | is unmapped before, as soon as all that windows have enqueued has run, graphs aside; if it has not within `import_patience`, nothing is mapped |
/// | the process ends                                                | goes with it                                  |
///
/// Nobody can enqueue anything while it unmaps: it holds the locks of all windows.
constexpr std::size_t most_closed = std::size_t{4} << 30;
/// Epochs that are under way when a window is created end within that, unless they wait for its creation.
constexpr std::chrono::milliseconds import_patience{5000};

void add_live(Window& window);
void remove_live(Window& window);
void unmap_if_idle(Device& device) noexcept;
/// For Device::set_unmapper.
bool unmap_for_import(Device& device, std::chrono::milliseconds patience = import_patience) noexcept;

/// By MPI_Finalize, for the windows that the program has not freed.
void say_farewell_on_all_windows(Farewell farewell);

/// By MPI_Finalize, while messages of MPI still go: what windows have enqueued over them has run. Callbacks of
/// MPI_COMM_SELF may free windows later.
void drain_windows_between_nodes();

/// At the end of its life, that of a window whose memory is closed by then.
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
