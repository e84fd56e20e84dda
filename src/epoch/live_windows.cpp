// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/live_windows.h"

#include <algorithm>
#include <mutex>
#include <vector>

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

void drain_windows_between_nodes(const std::function<void()>& meanwhile) {
  std::lock_guard<std::mutex> hold(live().mutex);
  for (Window* window : live().windows)
    if (window->reaches_other_nodes()) (void)window->drain(meanwhile);
}

}  // namespace mpix
