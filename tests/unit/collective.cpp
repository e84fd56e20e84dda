// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collective calls by threads as ranks, over memory of their own: the steps, without MPI and streams.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "device/collective_launch.h"
#include "device/host/collective_run.h"
#include "support/catch.h"
#include "wire/collective.h"

using namespace mpix;

namespace {

/// Memory of all ranks of a communicator.
class Ranks {
 public:
  Ranks(std::uint32_t count, std::uint32_t lines, std::uint64_t scratch, std::uint32_t number = 1) : count_(count) {
    places_.ranks = count;
    places_.lines = lines;
    places_.scratch_bytes = scratch;
    attached_.resize(std::size_t{count} * most_attached);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      char* const base = static_cast<char*>(::operator new (places_.all(), std::align_val_t{64}));
      std::memset(base, 0, places_.all());
      memory_.push_back(base);
      auto* const state = reinterpret_cast<CollectiveState*>(base + places_.states());
      state->step = state->call = number;
      state->parts = 1;
      words_.emplace_back(sizeof(CollectiveWords) / 8 + count);
    }
  }
  ~Ranks() {
    for (char* base : memory_) ::operator delete (base, std::align_val_t{64});
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Collective call(std::uint32_t rank) {
    Collective c{};
    c.places = places_;
    c.me = rank;
    c.parts = 1;
    c.far = memory_.data();
    for (std::uint32_t i = 0; i < count_ && i < Collective::most_near; ++i) c.near[i] = memory_[i];
    c.attached = attached_.data();
    c.host = reinterpret_cast<CollectiveWords*>(words_[rank].data());
    c.send_place = c.recv_place = not_used;
    return c;
  }
  void attach(std::uint32_t rank, std::uint32_t index, char* base) {
    attached_[std::size_t{rank} * most_attached + index] = base;
  }
  std::uint32_t count() const { return count_; }
  const CollectivePlaces& places() const { return places_; }
  const CollectiveState& state(std::uint32_t rank) const {
    return *reinterpret_cast<const CollectiveState*>(memory_[rank] + places_.states());
  }
  char* memory(std::uint32_t rank) const { return memory_[rank]; }

 private:
  const std::uint32_t count_;
  CollectivePlaces places_{};
  std::vector<char*> memory_, attached_;
  std::vector<std::vector<std::uint64_t>> words_;
};

const Polling polling{std::chrono::microseconds(20), false, std::chrono::microseconds(20)};

/// What rank `rank` gives in call `number`: element `i` of its block for rank `to`.
std::uint64_t given(std::uint32_t rank, std::uint32_t number, std::uint64_t i, std::uint32_t to) {
  return (rank + 1) * 1000003ull + number * 7919ull + i * 31ull + to * 65537ull;
}

struct Plan {
  CollectiveKind kind;
  std::uint32_t root;
  std::uint64_t words;
  bool direct, attached;
};

Plan plan_of(std::uint32_t number, std::uint32_t ranks, std::uint64_t most_words, bool may_be_direct) {
  std::mt19937 random(number * 2654435761u + ranks);
  static const CollectiveKind kinds[] = {
      CollectiveKind::barrier,        CollectiveKind::bcast,     CollectiveKind::reduce,  CollectiveKind::allreduce,
      CollectiveKind::reduce_scatter, CollectiveKind::allgather, CollectiveKind::alltoall};
  Plan plan{};
  plan.kind = kinds[random() % 7];
  plan.root = plan.kind == CollectiveKind::bcast || plan.kind == CollectiveKind::reduce ? random() % ranks : 0;
  plan.words = plan.kind == CollectiveKind::barrier ? 0 : random() % 3 ? random() % 9 : random() % most_words;
  plan.direct = may_be_direct && plan.words > 0 && random() % 2;
  plan.attached = random() % 2;
  return plan;
}

/// One rank's part of a call: what it sends, what it shall get. Returns how many words are wrong.
long run_call(Ranks& ranks, std::uint32_t rank, std::uint32_t number, const Plan& plan) {
  const std::uint32_t n = ranks.count();
  const bool by_blocks = plan.kind == CollectiveKind::alltoall || plan.kind == CollectiveKind::reduce_scatter;
  const bool gathers = plan.kind == CollectiveKind::alltoall || plan.kind == CollectiveKind::allgather;
  std::vector<std::uint64_t> send(plan.words * (by_blocks ? n : 1) + 1), recv(plan.words * (gathers ? n : 1) + 1, 77);
  for (std::uint64_t i = 0; i + 1 < send.size(); ++i)
    send[i] = given(rank, number, i % plan.words, static_cast<std::uint32_t>(i / plan.words));
  if (plan.kind == CollectiveKind::bcast && rank == plan.root) recv = send;
  CollectiveLaunch launch;
  Collective& c = launch.call = ranks.call(rank);
  c.kind = plan.kind;
  c.root = plan.root;
  c.bytes = 8 * plan.words;
  if (c.combines()) {
    c.operation = Operation::sum;
    c.element = Element::u64;
  }
  c.send = reinterpret_cast<const char*>(plan.kind == CollectiveKind::bcast ? recv.data() : send.data());
  c.recv = reinterpret_cast<char*>(recv.data());
  c.send_stride = by_blocks ? c.bytes : 0;
  c.recv_stride = gathers ? c.bytes : 0;
  c.word = CallWord{c.kind, c.operation, c.element, c.root, c.bytes}.packed();
  c.chunk_words = plan.words > c.places.lines ? c.places.lines : std::max<std::uint64_t>(8, (plan.words + 7) / 8 * 8);
  c.direct = plan.direct;
  c.piece_bytes = c.places.scratch_bytes / (by_blocks ? n : 1) / 4096 * 4096;
  if (plan.direct) {
    // The threads of a test share their addresses: what is attached lies at 0.
    const auto place = [&](const void* p) {
      return plan.attached ? place_word(0, reinterpret_cast<std::uintptr_t>(p)) : not_attached;
    };
    if (plan.kind != CollectiveKind::bcast || rank == plan.root) c.send_place = place(c.send);
    if (plan.kind == CollectiveKind::allreduce || (plan.kind == CollectiveKind::reduce && rank == plan.root))
      c.recv_place = place(c.recv);
  }
  if (!run_on_host(launch, polling)) return 1;
  long wrong = 0;
  const auto expect = [&](std::uint64_t at, std::uint64_t value) { wrong += recv[at] != value; };
  for (std::uint64_t i = 0; i < plan.words; ++i) {
    std::uint64_t all = 0;
    for (std::uint32_t from = 0; from < n; ++from)
      all += given(from, number, i, plan.kind == CollectiveKind::reduce_scatter ? rank : 0);
    if (c.combines() && c.gets_result()) expect(i, all);
    if (plan.kind == CollectiveKind::bcast) expect(i, given(plan.root, number, i, 0));
    for (std::uint32_t from = 0; gathers && from < n; ++from)
      expect(from * plan.words + i, given(from, number, i, plan.kind == CollectiveKind::alltoall ? rank : 0));
  }
  // The word behind the result is nobody's.
  if (plan.kind != CollectiveKind::bcast || rank != plan.root) wrong += recv.back() != 77;
  return wrong;
}

/// `calls` random calls by all ranks, with random delays between.
long run_calls(Ranks& ranks, std::uint32_t calls, std::uint64_t most_words, bool may_be_direct) {
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks.count(); ++rank)
    threads.emplace_back([&, rank] {
      std::mt19937 random(rank);
      for (std::uint32_t number = 0; number < calls && wrong == 0; ++number) {
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
        wrong += run_call(ranks, rank, number, plan_of(number, ranks.count(), most_words, may_be_direct));
      }
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

}  // namespace

TEST_CASE("random collective calls of threads", "[collective]") {
  const std::uint32_t count = GENERATE(1u, 2u, 3u, 9u);
  Ranks ranks(count, 256, 16384 * count);
  CHECK(run_calls(ranks, count > 4 ? 150 : 400, 3000, false) == 0);
  CHECK(run_calls(ranks, count > 4 ? 150 : 400, 3000, true) == 0);
}

TEST_CASE("numbers of steps and calls begin again", "[collective]") {
  Ranks ranks(3, 64, 4096 * 3, UINT32_MAX - 40);
  CHECK(run_calls(ranks, 300, 200, true) == 0);
  CHECK(ranks.state(0).call < 1000);
}

TEST_CASE("lines beyond those in use are cleared", "[collective]") {
  Ranks ranks(2, 256, 4096 * 2);
  const auto allreduce = [&](std::uint32_t number, std::uint64_t words) {
    std::thread other([&] {
      (void)run_call(ranks, 1, number, Plan{CollectiveKind::allreduce, 0, words, false, false});
    });
    const long wrong = run_call(ranks, 0, number, Plan{CollectiveKind::allreduce, 0, words, false, false});
    other.join();
    return wrong;
  };
  // Both places are written, and then short calls clear a line each.
  for (std::uint32_t i = 0; i < 2; ++i) REQUIRE(allreduce(i, 64) == 0);
  const Collective c = ranks.call(0);
  const auto stale = [&] {
    long count = 0;
    for (std::uint32_t place = 0; place < 2; ++place)
      for (std::uint32_t i = 8; i < 64; ++i) count += c.lines(0, 1, place)[i].half[0] != 0;
    return count;
  };
  CHECK(stale() == 2 * 56);
  for (std::uint32_t i = 2; i < 2 + 2 * 56; ++i) REQUIRE(allreduce(i, 1) == 0);
  CHECK(stale() == 0);
}

TEST_CASE("ranks that call different things are told", "[collective]") {
  Ranks ranks(2, 64, 8192);
  const Plan mine{CollectiveKind::allreduce, 0, 3, false, false}, theirs{CollectiveKind::allgather, 0, 3, false, false};
  std::thread other([&] { (void)run_call(ranks, 1, 0, theirs); });
  CHECK(run_call(ranks, 0, 0, mine) != 0);
  other.join();
  const Collective c = ranks.call(0);
  REQUIRE(c.host->differs == 2);
  CHECK(CallWord::of(c.host->theirs).kind == CollectiveKind::allgather);
  CHECK(CallWord::of(c.host->mine).kind == CollectiveKind::allreduce);
  CHECK(CallWord::of(c.host->mine).bytes == 24);
}
