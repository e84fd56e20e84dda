// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What a NIC does when it is full, or when a peer has gone: the provider's own functions, with some that fail in
// between. Each time all that was taken has to come back.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "base/error.h"
#include "nic_pair.h"
#include "support/catch.h"
#include "support/scarce_memory.h"

using namespace mpix;

namespace {

/// Calls of a domain that fail while this lives: libfabric finds its functions in tables that objects point to.
class Faults {
 public:
  explicit Faults(Endpoint& endpoint) : domain_(*endpoint.domain()) {
    the_one = this;
    object_ = domain_.fid.ops;
    operations_ = domain_.ops;
    changed_object_ = *object_;
    changed_operations_ = *operations_;
    changed_object_.control = control;
    changed_operations_.cntr_open = open_counter;
    memory_ = domain_.mr;
    changed_memory_ = *memory_;
    changed_memory_.reg = register_memory;
    domain_.mr = &changed_memory_;
    domain_.fid.ops = &changed_object_;
    domain_.ops = &changed_operations_;
  }
  ~Faults() {
    domain_.fid.ops = object_;
    domain_.ops = operations_;
    domain_.mr = memory_;
    the_one = nullptr;
  }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  /// After so many more operations have been queued, so many are refused.
  void refuse_operations(int error, long after = 0, long count = 1L << 40) {
    error_ = error;
    good_ = after;
    bad_ = count;
  }
  void refuse_counters(bool refuse = true) { counters_ = !refuse; }
  /// There are no keys of memory beyond.
  void refuse_keys_above(std::uint64_t most) { most_key_ = most; }
  long refused() const { return refused_; }

 private:
  static int control(fid* object, int command, void* argument) {
    Faults& self = *the_one;
    if (command == FI_QUEUE_WORK && self.good_-- <= 0 && self.bad_-- > 0) {
      ++self.refused_;
      return self.error_;
    }
    return self.object_->control(object, command, argument);
  }
  static int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context) {
    if (!the_one->counters_) return -FI_ENOSPC;
    return the_one->operations_->cntr_open(domain, attributes, counter, context);
  }

  static int register_memory(fid* object, const void* base, std::size_t bytes, std::uint64_t access,
                             std::uint64_t offset, std::uint64_t key, std::uint64_t flags, fid_mr** region,
                             void* context) {
    if (key > the_one->most_key_) return -FI_EKEYREJECTED;
    return the_one->memory_->reg(object, base, bytes, access, offset, key, flags, region, context);
  }

  static Faults* the_one;
  fid_domain& domain_;
  fi_ops* object_;
  fi_ops_domain* operations_;
  fi_ops changed_object_;
  fi_ops_domain changed_operations_;
  fi_ops_mr* memory_;
  fi_ops_mr changed_memory_;
  std::uint64_t most_key_ = UINT64_MAX;
  int error_ = 0;
  long good_ = 1L << 40, bad_ = 0, refused_ = 0;
  bool counters_ = true;
};
Faults* Faults::the_one = nullptr;

/// Three writes and a signal that adds 1.
struct Sender {
  explicit Sender(Pair& its_pair)
      : pair(its_pair),
        writes{pair.write(), pair.write(), pair.write()},
        signal(pair.signal(NetworkSignal::Kind::add, 1)) {}
  std::unique_ptr<Transfer> queue() {
    return pair.origin.queue->queue(pair.peer, writes.data(), writes.size(), &signal);
  }
  void send() {
    auto transfer = queue();
    transfer->start();
    REQUIRE(pair.soon([&] { return transfer->finished(); }));
    REQUIRE(pair.target.load(0) == ++sent);
  }

  Pair& pair;
  std::vector<NetworkWrite> writes;
  NetworkSignal signal;
  std::uint64_t sent = 0;
};

std::string error_of_queue(Sender& sender, Fault expected) {
  try {
    sender.queue();
  } catch (const Error& error) {
    CHECK(error.fault() == expected);
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

thread_local bool no_memory = false;

}  // namespace

bool allocation_fails() noexcept { return no_memory; }

TEST_CASE("a queue that is full for a moment is tried again", "[nic]") {
  Pair pair(8);
  Sender sender(pair);
  Faults faults(*pair.origin.endpoint);
  for (long after : {0, 1, 3}) {
    faults.refuse_operations(-FI_EAGAIN, after, 20);
    sender.send();
  }
  CHECK(faults.refused() == 60);
  CHECK(pair.origin.queue->open_counters() == 2);
}

TEST_CASE("a queue that stays full is an error, and costs nothing", "[nic]") {
  const int full = GENERATE(-FI_EAGAIN, -FI_ENOSPC);
  Pair pair(8);
  Sender sender(pair);
  sender.send();
  {
    Faults faults(*pair.origin.endpoint);
    for (int i = 0; i < 50; ++i) {
      faults.refuse_operations(full, i % 4);  // some are queued before
      CHECK(contains(error_of_queue(sender, Fault::memory), "MPIX_TRIGGERED_OPS"));
      CHECK(pair.origin.queue->held_blocks() == 0);
    }
  }
  CHECK(pair.origin.queue->open_counters() == 2);
  sender.send();
}

TEST_CASE("a NIC without counters is an error, and works when it has some", "[nic]") {
  Pair pair(8);
  Sender sender(pair);
  auto first = sender.queue();
  {
    Faults faults(*pair.origin.endpoint);
    faults.refuse_counters();
    CHECK(contains(error_of_queue(sender, Fault::memory), "counters"));
    CHECK(contains(error_of_queue(sender, Fault::memory), "counters"));
  }
  CHECK(pair.origin.queue->open_counters() == 2);
  CHECK(pair.origin.queue->held_blocks() == 4);
  first.reset();
  sender.send();
}

TEST_CASE("writes that the peer refuses cost nothing", "[nic]") {
  const bool ordered = GENERATE(true, false);
  Pair pair(8, 1 << 30, ordered);
  Sender sender(pair);
  for (int i = 0; i < 50; ++i) {
    const std::size_t wrong = static_cast<std::size_t>(i) % 3;
    const NetworkWrite right = sender.writes[wrong];
    if (i % 2)
      sender.writes[wrong].memory.key += 1000;
    else
      sender.writes[wrong].offset += 1 << 20;
    auto transfer = sender.queue();
    transfer->start();
    REQUIRE(pair.soon([&] { return !transfer->failure().empty(); }));
    CHECK(!transfer->finished());
    CHECK(pair.soon([&] { return transfer->cancel(); }));  // once the others are over
    transfer.reset();
    CHECK(pair.origin.queue->held_blocks() == 0);
    sender.writes[wrong] = right;
    sender.sent = pair.target.load(0);
    sender.send();
  }
  CHECK(pair.origin.queue->open_counters() == 2);
}

TEST_CASE("what is under way is not cancelled", "[nic]") {
  Pair pair(1 << 18);
  const NetworkWrite write = pair.write();
  const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
  auto transfer = pair.origin.queue->queue(pair.peer, &write, 1, &signal);
  pair.fill(7);
  transfer->start();
  CHECK(!transfer->cancel());
  transfer.reset();
  CHECK(pair.soon([&] { return pair.target.load(0) == 1; }));
  CHECK(pair.all_are(7));
}

TEST_CASE("a peer that has gone before the first connection refuses it", "[nic]") {
  Side origin(128);
  NetworkAddress address;
  RemoteMemory memory;
  {
    Side gone(128);
    address = gone.endpoint->address();
    memory = gone.exposed->remote();
  }
  const fi_addr_t peer = origin.endpoint->insert(address);
  const NetworkSignal signal{NetworkSignal::Kind::add, 1, memory, 0};
  for (int i = 0; i < 20; ++i) {
    std::string why;
    try {
      (void)origin.queue->queue(peer, nullptr, 0, &signal);
    } catch (const Error& error) {
      why = error.what();
    }
    CHECK(contains(why, "no connection"));
    CHECK(contains(origin.queue->probe(peer, memory, 0), "no connection"));
  }
  CHECK(origin.queue->held_blocks() == 0);
  CHECK(origin.queue->open_counters() == 2);
}

TEST_CASE("a sign of life changes nothing, and needs nothing that is scarce", "[nic]") {
  Pair pair(8);
  pair.target.memory[0] = 17;
  Faults faults(*pair.origin.endpoint);
  faults.refuse_operations(-FI_ENOSPC);
  faults.refuse_counters();
  for (int i = 0; i < 100; ++i) {
    CHECK(pair.origin.queue->probe(pair.peer, pair.target.exposed->remote(), 0) == "");
    for (int step = 0; step < 20; ++step) {
      pair.origin.queue->progress();
      pair.target.queue->progress();
    }
  }
  CHECK(pair.target.load(0) == 17);
  pair.target.exposed = nullptr;  // what answers, and says no
  CHECK(pair.soon([&] { return !pair.origin.queue->probe(pair.peer, {1000, 0}, 0).empty(); }));
  // That is told of this memory, and not of others there.
  for (std::uint64_t key = 1001; key < 1100; ++key) {
    CHECK(pair.origin.queue->probe(pair.peer, {key, 0}, 0) == "");
    for (int step = 0; step < 20; ++step) {
      pair.origin.queue->progress();
      pair.target.queue->progress();
    }
  }
}

TEST_CASE("keys of memory begin again where the provider has no larger ones", "[nic]") {
  Side side(128);
  Faults faults(*side.endpoint);
  faults.refuse_keys_above(4);
  const auto open = [&] { return side.endpoint->register_memory(side.memory.data(), 64, FI_REMOTE_WRITE); };
  std::uint64_t last = side.exposed->remote().key;
  for (int round = 0; round < 20; ++round) {
    const auto region = open();
    CHECK(region->remote().key != side.exposed->remote().key);
    CHECK(region->remote().key != last);  // not at once
    last = region->remote().key;
  }
  const auto one = open(), two = open(), three = open();
  CHECK_THROWS_AS(open(), Error);
}

TEST_CASE("a look that has no memory for what it finds is an error, and leaves the network to others", "[nic]") {
  Pair pair(8);
  NetworkWrite write = pair.write();
  write.memory.key += 1000;  // no such memory: what the look finds is an error
  const NetworkSignal signal = pair.signal(NetworkSignal::Kind::add, 1);
  TriggeredQueue& queue = *pair.origin.queue;
  auto transfer = queue.queue(pair.peer, &write, 1, &signal);
  no_memory = true;
  try {
    transfer->start();
  } catch (const std::bad_alloc&) {
    // It looks as well.
  }
  no_memory = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20 * test::slowdown());
  while (queue.failure().empty() && std::chrono::steady_clock::now() < deadline) {
    pair.target.queue->progress();
    no_memory = true;
    queue.progress();
    no_memory = false;
  }
  CHECK(queue.failure() == "out of memory");
  const std::uint64_t looks = queue.looks();
  queue.progress();
  CHECK(queue.looks() == looks + 1);
  CHECK(queue.read_still([] {}));
}
