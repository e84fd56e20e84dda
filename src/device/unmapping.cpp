// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/unmapping.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace mpix {
namespace {

struct Asked {
  std::mutex mutex;  ///< before those of the ones that are asked
  std::vector<WaitsForPeers*> all;
};

Asked& asked() {
  static Asked& all = *new Asked;  // windows may outlive static objects
  return all;
}

/// False: something may wait for peers.
bool try_to_unmap(Device& device, bool or_unseen) noexcept {
  try {
    std::lock_guard<std::mutex> hold(asked().mutex);
    std::vector<std::unique_lock<std::mutex>> still;
    for (WaitsForPeers* one : asked().all) {
      still.push_back(one->held_if_idle(or_unseen));
      if (!still.back()) return false;
    }
    device.unmap_closed_imports();
    return true;
  } catch (const std::exception&) {
    return false;  // nobody knows: it stays as it is
  }
}

}  // namespace

AskedBeforeUnmapping::AskedBeforeUnmapping(WaitsForPeers& one) : one_(one) {
  std::lock_guard<std::mutex> hold(asked().mutex);
  asked().all.push_back(&one_);
}

AskedBeforeUnmapping::~AskedBeforeUnmapping() {
  std::lock_guard<std::mutex> hold(asked().mutex);
  std::vector<WaitsForPeers*>& all = asked().all;
  all.erase(std::find(all.begin(), all.end(), &one_));
}

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
