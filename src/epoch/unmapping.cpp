// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/unmapping.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
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

namespace {

/// False: something may wait for peers. `or_captured`: graphs of windows are no reason.
bool try_to_unmap(Device& device, bool or_captured) noexcept {
  try {
    std::lock_guard<std::mutex> hold(live().mutex);
    std::vector<std::unique_lock<std::mutex>> still;
    for (Window* window : live().windows) {
      still.push_back(window->held_if_idle(or_captured));
      if (!still.back()) return false;
    }
    device.unmap_closed_imports();
    return true;
  } catch (const std::exception&) {
    return false;  // nobody knows: it stays as it is
  }
}

}  // namespace

void unmap_if_idle(Device& device) noexcept {
  const std::size_t closed = device.closed_imports();
  if (closed > 0) (void)try_to_unmap(device, closed > most_closed);
}

bool unmap_for_import(Device& device, std::chrono::milliseconds patience) noexcept {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!try_to_unmap(device, true)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace mpix
