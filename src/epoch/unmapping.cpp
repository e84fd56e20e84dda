// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/unmapping.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "epoch/window.h"

namespace mpix {
namespace {

struct Live {
  std::mutex mutex;  ///< before those of windows
  std::vector<Window*> windows;
};

Live& live() {
  static Live& all = *new Live;  // windows may outlive static objects
  return all;
}

}  // namespace

void add_live(Window& window) {
  std::lock_guard<std::mutex> hold(live().mutex);
  live().windows.push_back(&window);
}

void remove_live(Window& window) {
  std::lock_guard<std::mutex> hold(live().mutex);
  std::vector<Window*>& windows = live().windows;
  windows.erase(std::remove(windows.begin(), windows.end(), &window), windows.end());
}

void say_farewell_on_all_windows(Farewell farewell) {
  std::lock_guard<std::mutex> hold(live().mutex);
  for (Window* window : live().windows) window->say_farewell(farewell);
}

void drain_windows_between_nodes() {
  std::lock_guard<std::mutex> hold(live().mutex);
  for (Window* window : live().windows)
    if (window->reaches_other_nodes()) (void)window->drain();
}

void unmap_if_idle(Device& device) noexcept {
  const std::size_t closed = device.closed_imports();
  if (closed == 0) return;
  try {
    std::lock_guard<std::mutex> hold(live().mutex);
    std::vector<std::unique_lock<std::mutex>> still;
    for (Window* window : live().windows) {
      still.push_back(window->held_if_idle(closed > most_closed));
      if (!still.back()) return;
    }
    device.unmap_closed_imports();
  } catch (const std::exception&) {
    // Who does not know leaves it as it is.
  }
}

}  // namespace mpix
