// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "creation.h"
#include "device/host/host_device.h"
#include "domain/domain.h"
#include "domain/host_ranks.h"
#include "fake_network.h"
#include "host_ranks.h"
#include "mpix_device/rma.h"
#include "support/slowdown.h"
#include "thread_ranks.h"

namespace mpix {

/// A process of a domain: its ranks are threads.
class Process {
 public:
  Process(Bootstrap& bootstrap, Device& device, std::uint32_t ranks_here, const DomainOptions& options,
          const Settings& settings, OperationBudget* budget = nullptr)
      : bootstrap(bootstrap),
        device(device),
        domain(ranks_here, options,
               std::make_shared<const Team>(bootstrap, device, settings, budget ? &budget->network() : nullptr),
               bootstrap, device, settings, budget) {}
  ~Process() {
    for (char* base : memory_) device.release(base);
  }

  char* allocate(std::size_t bytes) {
    memory_.push_back(device.allocate(bytes).base);
    return memory_.back();
  }
  /// A window with so many bytes of each rank here. Returns them.
  char* make_window(std::size_t bytes, int* window) {
    char* const base = allocate(bytes * domain.ranks_here() + 1);
    std::vector<void*> bases;
    std::vector<std::size_t> sizes;
    for (std::uint32_t i = 0; i < domain.ranks_here(); ++i) {
      bases.push_back(base + i * bytes);
      sizes.push_back(bytes);
    }
    *window = domain.create_window(bootstrap, bases.data(), sizes.data());
    return base;
  }
  /// body(ctx) by every rank here.
  void run(const std::function<void(MPIX_Dev_ctx&)>& body) {
    ScopedStream stream;
    launch_host_ranks(
        domain,
        [](MPIX_Dev_param param, void* argument) {
          MPIX_Dev_ctx ctx;
          if (dev::init(ctx, param, 0) != dev::Result::ok) return;
          (*static_cast<const std::function<void(MPIX_Dev_ctx&)>*>(argument))(ctx);
          dev::finish(ctx);
        },
        const_cast<void*>(static_cast<const void*>(&body)), stream);
    EXPECT(stream->synchronize());
  }

  Bootstrap& bootstrap;
  Device& device;
  Domain domain;

 private:
  std::vector<char*> memory_;
};

inline Settings domain_settings() {
  Settings settings = quiet_settings();
  settings.timeout_seconds = 60 * test::slowdown();
  return settings;
}

/// Of several processes each; 0: there is one.
struct Nodes {
  int size = 0;
  Capacity capacity{};  ///< of each process's network
};

/// body(process) on each of them; `ranks` by process.
inline void run_processes(const std::vector<std::uint32_t>& ranks, const DomainOptions& options,
                          const std::function<void(Process&)>& body, const Settings& settings = domain_settings(),
                          const Nodes& nodes = {}) {
  auto device = make_host_device(settings, static_cast<int>(ranks.size()));
  ThreadRanks all(static_cast<int>(ranks.size()), nodes.size);
  all.run([&](Bootstrap& bootstrap) {
    std::optional<OperationBudget> budget;
    if (nodes.size > 0)
      budget.emplace(std::make_unique<FakeNetwork>(nodes.capacity, 7u + static_cast<unsigned>(bootstrap.rank()), false),
                     settings);
    Process process(bootstrap, *device, ranks[static_cast<std::size_t>(bootstrap.rank())], options, settings,
                    budget ? &*budget : nullptr);
    body(process);
    EXPECT(process.domain.wait_for_puts() || process.domain.failure().result != dev::Result::ok);
    // Nobody leaves while others may still write into its memory.
    (void)bootstrap.allgather(0);
  });
}

}  // namespace mpix
