// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Calls on many communicators at once, each on a stream of its own, in an order that differs between the ranks. MPI
// asks that ranks agree on the order of a communicator's calls alone. On a GPU blocks of all of them wait, and what
// they wait for has to find room (device/gpu/places.h). TEST_CAPTURED: in graphs, each of some calls in a row.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

struct Caller {
  const Comm comm{Comm::duplicate()};
  Stream stream;
  std::vector<std::unique_ptr<Trial>> trials;
  std::unique_ptr<support::Graph> graph;
};

Call large_sum(std::size_t bytes, std::uint64_t salt) {
  Call call;
  call.what = What::allreduce;
  call.type = MPI_INT;
  call.count = bytes / sizeof(int);
  call.salt = salt;
  return call;
}

}  // namespace

TEST_CASE("calls on many communicators at once, in any order") {
  const int communicators = static_cast<int>(parameter("TEST_COMMUNICATORS", 5));
  const bool captured = parameter("TEST_CAPTURED", 0) != 0 && !device().is_host();
  const auto bytes = static_cast<std::size_t>(parameter("TEST_BYTES", device().is_host() ? 1 << 14 : 1 << 22));
  constexpr int calls_in_a_row = 3;
  // all that a device may have to wait for comes before the first call
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < communicators; ++i) {
    callers.push_back(std::make_unique<Caller>());
    Caller& caller = *callers.back();
    MPI_OK(MPIX_Comm_prepare_stream(caller.comm, MPI_INFO_NULL));
    for (int k = 0; k < calls_in_a_row; ++k) {
      const auto salt = static_cast<std::uint64_t>(i * calls_in_a_row + k);
      caller.trials.push_back(std::make_unique<Trial>(large_sum(bytes, salt), rank(), size()));
    }
  }
  const auto enqueue = [](Caller& caller) {
    for (const auto& trial : caller.trials) MPI_OK(trial->make(caller.comm, caller.stream));
  };
  if (captured)
    for (const auto& caller : callers) caller->graph = device().capture(caller->stream, [&] { enqueue(*caller); });
  for (int round = scaled(device().is_host() ? 20 : 5); round > 0; --round) {
    barrier();
    // What this one needs has to find room when all others wait.
    if (round % 2 == 0 && rank() == size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int i = 0; i < communicators; ++i) {
      // forwards from another one on each rank; every second rank backwards
      const int step = rank() % 2 == 0 ? i : communicators - 1 - i;
      Caller& caller = *callers[static_cast<std::size_t>((step + rank() * communicators / size()) % communicators)];
      if (caller.graph)
        caller.graph->launch();
      else
        enqueue(caller);
    }
    for (const auto& caller : callers) caller->stream.synchronize();
    alive("round " + std::to_string(round));
    for (const auto& caller : callers)
      for (const auto& trial : caller->trials) {
        trial->check();
        trial->renew();
      }
    if (failed()) return;
  }
}
