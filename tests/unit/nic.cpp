// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Triggered operations between two endpoints of this process: order, counters, errors.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/error.h"
#include "net/fabric/fabric_inlet.h"
#include "nic_pair.h"
#include "support/catch.h"

using namespace mpix;

namespace {

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
  int seen = 0;
  for (int attempt = 0; attempt < 40 && seen == 0; ++attempt) seen = violations(1 << 15, 4, 50, Form::cut);
  CHECK(seen > 0);
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
  constexpr std::uint64_t limit = 10, operations = 4;
  Pair pair(8, limit);  // any transfer but the first few passes it
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
    REQUIRE(pair.origin.queue->largest_count() <= limit + operations);
  }
  CHECK(counters <= 8);
  CHECK(pair.origin.queue->open_counters() <= 8);
}

TEST_CASE("a transfer that is never started is forgotten, and nothing of it is kept", "[nic]") {
  Pair pair(8);
  const NetworkWrite write = pair.write();
  const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
  for (int i = 0; i < 100; ++i) pair.origin.queue->queue(pair.peer, &write, 1, &signal).reset();
  CHECK(pair.origin.queue->held_blocks() == 0);
  auto cancelled = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
  CHECK(cancelled->cancel());
  cancelled.reset();
  for (std::uint64_t round = 1; round <= 100; ++round) {
    auto transfer = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
    transfer->start();
    REQUIRE(pair.soon([&] { return transfer->finished(); }));
    CHECK(pair.target.load(0) == round);
  }
  CHECK(pair.origin.queue->open_counters() == 2);
}

TEST_CASE("what a transfer has is nobody else's while it is under way, also when it is let go", "[nic]") {
  Pair pair(1 << 18);  // 2 MB, for some time
  const NetworkWrite write = pair.write();
  const NetworkSignal one = pair.signal(NetworkSignal::Kind::add, 1),
                      thousand = pair.signal(NetworkSignal::Kind::add, 1000);
  for (std::uint64_t round = 1; round <= 10; ++round) {
    pair.fill(round);
    auto large = pair.origin.queue->queue(pair.peer, &write, 1, &one);
    large->start();
    large.reset();
    auto small = pair.origin.queue->queue(pair.peer, nullptr, 0, &thousand);
    small->start();
    REQUIRE(pair.soon([&] { return small->finished() && pair.target.load(0) == 1001 * round; }));
    REQUIRE(pair.all_are(round));
  }
  CHECK(pair.origin.queue->open_counters() <= 4);
}

TEST_CASE("transfers that are never started do not count as going out", "[nic]") {
  constexpr std::size_t large = 1 << 15;  // words: more than goes at once
  Pair pair(large);
  const NetworkWrite write = pair.write();
  const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
  for (int i = 0; i < 3; ++i) {
    pair.origin.queue->queue(pair.peer, &write, 1, &signal).reset();
    CHECK(pair.origin.queue->going_out() == 0);
    auto transfer = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
    transfer->start();
    CHECK(pair.origin.queue->going_out() == 1);
    REQUIRE(pair.soon([&] { return transfer->finished(); }));
    transfer.reset();
    CHECK(pair.origin.queue->going_out() == 0);
  }
}

TEST_CASE("a reader that throws leaves the network to others", "[nic]") {
  Pair pair(8);
  CHECK_THROWS_AS(pair.target.queue->read_still([] { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK(pair.target.queue->read_still([] {}));
  const std::uint64_t looks = pair.target.queue->looks();
  pair.target.queue->progress();
  CHECK(pair.target.queue->looks() == looks + 1);
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

TEST_CASE("a probe of memory that is not there tells so when its answer has come", "[nic]") {
  Pair pair(8);
  RemoteMemory memory = pair.target.exposed->remote();
  memory.key += 1000;
  CHECK(pair.origin.queue->probe(pair.peer, memory, 0).empty());
  CHECK(pair.soon([&] { return !pair.origin.queue->probe(pair.peer, memory, 0).empty(); }));
}

TEST_CASE("a message lands in its place, and nobody answers it", "[nic]") {
  Pair pair(8);
  const std::size_t bytes = GENERATE(64, 4096, 60000);
  std::vector<std::uint64_t> memory(2 * bytes / 8);
  FabricInlet inlet(pair.target.endpoint, reinterpret_cast<char*>(memory.data()), 2, bytes);
  std::vector<std::uint64_t> source(bytes / 8);
  const auto send = [&](std::size_t place, std::uint64_t value) {
    std::fill(source.begin(), source.end(), value);
    const NetworkWrite message{source.data(), nullptr, bytes, {}, 0, inlet.name() + place};
    auto transfer = pair.origin.queue->queue(pair.peer, &message, 1, nullptr);
    transfer->start();
    return transfer;
  };
  const auto filled = [&](std::size_t place, std::uint64_t value) {
    const auto from = memory.begin() + static_cast<std::ptrdiff_t>(place * bytes / 8);
    return std::all_of(from, from + static_cast<std::ptrdiff_t>(bytes / 8),
                       [&](std::uint64_t word) { return word == value; });
  };
  for (std::uint64_t round = 1; round <= 100; ++round) {
    REQUIRE(inlet.open(1));
    auto transfer = send(1, round);
    if (bytes < 10000) {  // what a socket takes; the target does nothing for it
      for (int i = 0; i < 100 && !transfer->finished(); ++i) pair.origin.queue->progress();
      REQUIRE(transfer->finished());
    }
    REQUIRE(pair.soon([&] { return filled(1, round) && transfer->finished(); }));
  }
  CHECK(filled(0, 0));
  CHECK(pair.origin.queue->held_blocks() <= 1);
  CHECK(pair.origin.queue->open_counters() == 2);
}

TEST_CASE("what comes for an inlet that was closed goes nowhere", "[nic]") {
  Pair pair(8);
  std::uint64_t memory[8] = {};
  std::uint64_t first_name = 0;
  const std::uint64_t source[4] = {7, 7, 7, 7};
  for (int round = 0; round < 20; ++round) {
    FabricInlet inlet(pair.target.endpoint, reinterpret_cast<char*>(memory), 2, 32);
    CHECK(inlet.name() > first_name);  // names are not used again: or an old message would find its way
    first_name = inlet.name();
    REQUIRE(inlet.open(0));
    REQUIRE(inlet.open(1));
    CHECK(inlet.close());
    const NetworkWrite message{source, nullptr, sizeof source, {}, 0, inlet.name()};
    auto transfer = pair.origin.queue->queue(pair.peer, &message, 1, nullptr);
    transfer->start();
    // What is sent later comes later: by then the message has come.
    const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
    auto after = pair.origin.queue->queue(pair.peer, nullptr, 0, &signal);
    after->start();
    REQUIRE(pair.soon([&] { return after->finished(); }));
    CHECK(std::all_of(memory, memory + 8, [](std::uint64_t word) { return word == 0; }));
  }
}

TEST_CASE("an inlet that may still be written into says so", "[nic]") {
  Pair pair(8);
  std::uint64_t memory[4] = {};
  FabricInlet inlet(pair.target.endpoint, reinterpret_cast<char*>(memory), 1, sizeof memory);
  REQUIRE(inlet.open(0));
  const std::uint64_t source[4] = {7, 7, 7, 7};
  const NetworkWrite message{source, nullptr, sizeof source, {}, 0, inlet.name()};
  auto transfer = pair.origin.queue->queue(pair.peer, &message, 1, nullptr);
  transfer->start();
  REQUIRE(pair.soon([&] { return __atomic_load_n(&memory[3], __ATOMIC_ACQUIRE) == 7; }));
  CHECK(!inlet.close());
  CHECK(inlet.close());  // nothing was opened since
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
