// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Triggered operations between two endpoints of this process: order, counters, errors.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "catch.h"
#include "core/error.h"
#include "nic/endpoint.h"
#include "nic/provider.h"
#include "nic/triggered_queue.h"

using namespace mpix;

namespace {

using Clock = std::chrono::steady_clock;

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
      : words(words), origin(16 * words, counter_limit, ordered), target(16 * words), peer(origin.endpoint->insert(target.endpoint->address())) {}

  NetworkWrite write(std::size_t parts = 1, std::size_t part = 0) const {
    const std::size_t bytes = 8 * words / parts;
    return {reinterpret_cast<const char*>(origin.memory.data()) + part * bytes, nullptr, bytes, target.exposed->remote(),
            8 * words + part * bytes};
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
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (Clock::now() > deadline) return false;
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

/// NIC_ROUNDS in the environment makes of 1000 rounds so many.
int rounds(int preset) {
  const char* thousand = std::getenv("NIC_ROUNDS");
  return thousand ? static_cast<int>(static_cast<long>(preset) * std::atol(thousand) / 1000) : preset;
}

/// Rounds in which the signal was seen before the data. Cut: the signal does not hang on the writes.
enum class Form { chained, ordered, cut };

int violations(std::size_t words, std::size_t parts, int rounds, Form form) {
  const bool cut = form == Form::cut;
  Pair pair(words, 1 << 30, form == Form::ordered);
  int early = 0;
  for (int round = 1; round <= rounds; ++round) {
    const auto value = static_cast<std::uint64_t>(round);
    std::vector<NetworkWrite> writes;
    for (std::size_t part = 0; part < parts; ++part) writes.push_back(pair.write(parts, part));
    const NetworkSignal signal = pair.signal(NetworkSignal::Kind::set, value);
    auto data = pair.origin.queue->queue(pair.peer, writes.data(), writes.size(), cut ? nullptr : &signal);
    auto alone = cut ? pair.origin.queue->queue(pair.peer, nullptr, 0, &signal) : nullptr;
    pair.fill(value);
    if (alone) alone->start();
    data->start();
    REQUIRE(pair.soon([&] { return pair.target.load(0) == value; }));
    if (!pair.all_are(value)) ++early;
    REQUIRE(pair.soon([&] { return data->finished() && (!alone || alone->finished()); }));
    REQUIRE(data->failure().empty());
  }
  return early;
}

}  // namespace

TEST_CASE("nobody sees the signal before the data", "[nic]") {
  const Form form = GENERATE(Form::chained, Form::ordered);
  CHECK(violations(64, 1, rounds(3000), form) == 0);
  CHECK(violations(64, 8, rounds(1000), form) == 0);
  CHECK(violations(1 << 15, 4, rounds(200), form) == 0);
}

TEST_CASE("without the chain the signal is seen too early: the test above can fail", "[nic]") {
  CHECK(violations(1 << 15, 4, 50, Form::cut) > 0);
}

TEST_CASE("nothing moves before the start", "[nic]") {
  Pair pair(8);
  pair.fill(1);
  const NetworkWrite write = pair.write();
  const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
  auto transfer = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(pair.target.load(0) == 0);
  CHECK(pair.all_are(0));
  CHECK(!transfer->delivered());
  pair.fill(2);  // the data is read later
  transfer->start();
  REQUIRE(pair.soon([&] { return transfer->finished(); }));
  CHECK(pair.target.load(0) == 1);
  CHECK(pair.all_are(2));
}

TEST_CASE("signals add or set, and need no data", "[nic]") {
  Pair pair(8);
  const auto send = [&](NetworkSignal::Kind kind, std::uint64_t value) {
    const NetworkSignal signal = pair.signal(kind, value);
    auto transfer = pair.origin.queue->queue(pair.peer, nullptr, 0, &signal);
    transfer->start();
    REQUIRE(pair.soon([&] { return transfer->finished(); }));
  };
  send(NetworkSignal::Kind::add, 3);
  send(NetworkSignal::Kind::add, 1ull << 40);
  CHECK(pair.target.load(0) == (1ull << 40) + 3);
  send(NetworkSignal::Kind::set, 17);
  CHECK(pair.target.load(0) == 17);
}

TEST_CASE("counters are used again, and reset long before they wrap", "[nic]") {
  Pair pair(8, 10);  // any transfer but the first few passes the limit
  std::size_t counters = 0;
  for (std::uint64_t round = 1; round <= 2000; ++round) {
    const NetworkWrite writes[] = {pair.write(), pair.write(), pair.write()};
    const NetworkSignal signal = pair.signal(NetworkSignal::Kind::set, round);
    pair.fill(round);
    auto transfer = pair.origin.queue->queue(pair.peer, writes, 3, &signal);
    transfer->start();
    REQUIRE(pair.soon([&] { return pair.target.load(0) == round; }));
    REQUIRE(pair.all_are(round));
    // One half of the transfers is given up early: what has been started goes on.
    if (round % 2 == 0) REQUIRE(pair.soon([&] { return transfer->finished(); }));
    if (round == 100) counters = pair.origin.queue->open_counters();
  }
  CHECK(counters <= 8);
  CHECK(pair.origin.queue->open_counters() <= 8);
}

TEST_CASE("a transfer that is never started holds its counters, and nothing else", "[nic]") {
  Pair pair(8);
  const NetworkWrite write = pair.write();
  const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
  pair.origin.queue->queue(pair.peer, &write, 1, &signal).reset();
  for (std::uint64_t round = 1; round <= 100; ++round) {
    auto transfer = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
    transfer->start();
    REQUIRE(pair.soon([&] { return transfer->finished(); }));
    CHECK(pair.target.load(0) == round);
  }
  CHECK(pair.origin.queue->open_counters() == 4);
}

TEST_CASE("a write that the peer refuses is an error, and its signal never comes", "[nic]") {
  Pair pair(8);
  NetworkWrite write = pair.write();
  write.memory.key += 1000;  // no such memory
  const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
  auto transfer = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
  transfer->start();
  CHECK(pair.soon([&] {
    pair.origin.queue->progress();
    return !transfer->failure().empty();
  }));
  CHECK(!transfer->finished());
  CHECK(pair.target.load(0) == 0);

  write = pair.write();
  auto next = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
  next->start();
  CHECK(pair.soon([&] { return next->finished(); }));
  CHECK(pair.target.load(0) == 1);
}

TEST_CASE("a provider that is not there is an error that says what to do", "[nic]") {
  try {
    find_provider("cxi");
    WARN("this machine has cxi");
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::unsupported);
    CHECK(std::string(error.what()).find("cxi") != std::string::npos);
    CHECK(std::string(error.what()).find("fi_info") != std::string::npos);
  }
}
