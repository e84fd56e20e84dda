// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "net/fabric/endpoint.h"
#include "net/fabric/provider.h"
#include "net/fabric/triggered_queue.h"
#include "support/slowdown.h"

namespace mpix {

/// One side: an endpoint, and memory that the other may write to.
struct Side {
  explicit Side(std::size_t bytes, std::uint64_t counter_limit = 1 << 30, bool ordered = false)
      : endpoint(std::make_shared<Endpoint>(find_provider("sockets"))),
        queue(std::make_shared<TriggeredQueue>(endpoint, counter_limit, ordered ? endpoint->ordered_bytes() : 0)),
        memory(bytes / 8),
        exposed(endpoint->register_memory(memory.data(), bytes, FI_REMOTE_WRITE)) {}

  std::uint64_t load(std::size_t word) const { return __atomic_load_n(&memory[word], __ATOMIC_ACQUIRE); }

  std::shared_ptr<Endpoint> endpoint;
  std::shared_ptr<TriggeredQueue> queue;
  std::vector<std::uint64_t> memory;
  std::shared_ptr<FabricRegistration> exposed;
};

/// Messages of `words` words to the second half of the other side's memory, signals to its first word.
struct Pair {
  explicit Pair(std::size_t words, std::uint64_t counter_limit = 1 << 30, bool ordered = false)
      : words(words),
        origin(16 * words, counter_limit, ordered),
        target(16 * words),
        peer(origin.endpoint->insert(target.endpoint->address())) {}

  NetworkWrite write(std::size_t parts = 1, std::size_t part = 0) const {
    const std::size_t bytes = 8 * words / parts;
    return {reinterpret_cast<const char*>(origin.memory.data()) + part * bytes, nullptr, bytes,
            target.exposed->remote(), 8 * words + part * bytes};
  }
  NetworkSignal signal(NetworkSignal::Kind kind, std::uint64_t value) const {
    return {kind, value, target.exposed->remote(), 0};
  }
  void fill(std::uint64_t value) {
    for (std::size_t i = 0; i < words; ++i) origin.memory[i] = value;
  }
  /// Wait for it, for a while; both sides make progress meanwhile.
  template <class Condition>
  bool soon(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20 * test::slowdown());
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      origin.queue->progress();
      target.queue->progress();
    }
    return true;
  }
  bool all_are(std::uint64_t value) const {
    for (std::size_t i = words; i < 2 * words; ++i)
      if (target.memory[i] != value) return false;
    return true;
  }

  std::size_t words;
  Side origin, target;
  fi_addr_t peer;
};

}  // namespace mpix
