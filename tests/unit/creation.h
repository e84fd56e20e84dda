// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "device/host/stream.h"
#include "epoch/window.h"
#include "thread_ranks.h"

/// What the tests of a window's creation share: an exchange on it, and errors as texts.
namespace mpix {

inline Settings quiet_settings() {
  Settings settings = Settings::from_environment();
  settings.timeout_seconds = 30;
  settings.fail_on_timeout = true;
  return settings;
}

/// What the function throws; empty: nothing.
template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// An epoch from each rank to each of `ranks`, with one put by mailbox and one that is direct or staged.
inline void exchange(Window& window, const std::vector<int>& ranks, int me, int value) {
  static constexpr int large = 200;
  HostStream* const stream = create_host_stream();
  const std::vector<int> one(1, value + me), many(large, value + me);
  window.post_stream(ranks, stream);
  window.start_stream(ranks);
  for (int rank : ranks) {
    window.put({one.data(), sizeof(int), rank, me * (large + 1)});
    window.put({many.data(), sizeof(int) * large, rank, me * (large + 1) + 1});
  }
  window.complete_stream(stream);
  window.wait_stream(stream);
  EXPECT(stream->synchronize());
  destroy_host_stream(stream);
}
constexpr std::size_t ints_for_exchange = 4 * 201;

inline bool has_come(const std::vector<int>& memory, int from, int value) {
  return memory[static_cast<std::size_t>(from) * 201] == value + from &&
         memory[static_cast<std::size_t>(from) * 201 + 200] == value + from;
}

}  // namespace mpix
