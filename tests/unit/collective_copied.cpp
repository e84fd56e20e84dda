// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Copied calls: streams and services of several ranks, as threads; and copies that take a while.
#include "wire/collective_copied.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace mpix;

namespace {

/// Reads and writes when it is asked, some time later.
class SlowCopier {
 public:
  explicit SlowCopier(unsigned seed) : random_(seed) {}
  std::uint64_t start(void* to, const void* from, std::size_t bytes) {
    copies_.push_back({to, from, bytes});
    return ++started_;
  }
  void mark() {}
  std::uint64_t finished() {
    for (; !copies_.empty() && random_() % 3 == 0; copies_.pop_front(), ++finished_)
      std::memcpy(copies_.front().to, copies_.front().from, copies_.front().bytes);
    return finished_;
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::deque<Copy> copies_;
  std::uint64_t started_ = 0, finished_ = 0;
  std::mt19937 random_;
};

/// What the ranks share, and the library's memory of each.
struct Node {
  Node(std::uint32_t count, std::uint64_t place_bytes)
      : ranks(count),
        base(
            static_cast<char*>(::operator new (StagedMemory::bytes(count, 0), std::align_val_t{alignof(StagedWords)}))),
        memory{base, count, 0},
        places(count, std::vector<char>(place_bytes)) {
    std::memset(base, 0, StagedMemory::bytes(count, 0));
  }
  ~Node() { ::operator delete (base, std::align_val_t{alignof(StagedWords)}); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  CopiedMoves<SlowCopier> moves(std::uint32_t rank) {
    CopiedMoves<SlowCopier>::Places all{{}, places[0].size()};
    for (std::vector<char>& one : places) all.of_rank.push_back(one.data());
    // The threads of a test share their addresses: what is attached lies at 0.
    return {memory,
            rank,
            all,
            [](std::uint32_t, std::uint64_t place) { return reinterpret_cast<const char*>(place); },
            std::make_unique<SlowCopier>(rank),
            std::make_unique<SlowCopier>(rank + 100)};
  }

  const std::uint32_t ranks;
  char* const base;
  const StagedMemory memory;
  std::vector<std::vector<char>> places;
};

struct Plan {
  CollectiveKind kind;
  std::uint32_t root;
  std::uint64_t bytes;
};
Plan plan_of(std::uint32_t number, std::uint32_t ranks) {
  std::mt19937 random(number * 2654435761u + ranks);
  static const CollectiveKind kinds[] = {CollectiveKind::bcast, CollectiveKind::allgather, CollectiveKind::alltoall};
  Plan plan{kinds[random() % 3], 0, 1 + random() % (random() % 3 ? 200 : 3000)};
  if (plan.kind == CollectiveKind::bcast) plan.root = random() % ranks;
  return plan;
}
/// Byte i of what rank `from` gives rank `to` in call `number`.
char given(std::uint32_t number, std::uint32_t from, std::uint32_t to, std::uint64_t i) {
  return static_cast<char>(number * 31 + from * 7 + to * 13 + i * 3 + 1);
}

/// One rank's call: its buffers, in place or not, attached or not.
class RankCall {
 public:
  RankCall(std::uint32_t number, std::uint32_t rank, std::uint32_t ranks)
      : plan(plan_of(number, ranks)), number_(number), rank_(rank), ranks_(ranks) {
    std::mt19937 random(number * 7 + rank);
    call = {
        plan.kind,   random() % 2 == 0 && plan.kind != CollectiveKind::bcast, plan.root, nullptr, nullptr, plan.bytes,
        not_attached};
    const bool is_bcast = plan.kind == CollectiveKind::bcast;
    recv_.resize(plan.bytes * (is_bcast ? 1 : ranks) + 1, 77);
    if (is_bcast) {
      call.send = call.recv = recv_.data();
      if (rank == plan.root) fill(recv_.data(), 0);
    } else {
      call.recv = recv_.data();
      send_.resize(call.in_place ? 0 : plan.bytes * (call.sends_blocks() ? ranks : 1));
      char* const send = !call.in_place ? send_.data() : recv_.data() + (call.sends_blocks() ? 0 : rank * plan.bytes);
      for (std::uint32_t to = 0; to < (call.sends_blocks() ? ranks : 1); ++to) fill(send + to * plan.bytes, to);
      call.send = send;
    }
    if (call.gives(rank) && !call.replaces() && random() % 2 == 0)
      call.place = reinterpret_cast<std::uintptr_t>(call.send);
  }
  long wrong() const {
    long count = recv_.back() != 77;
    for (std::uint32_t from = 0; from < ranks_; ++from)
      for (std::uint64_t i = 0; i < plan.bytes; ++i)
        if (plan.kind == CollectiveKind::bcast)
          count += from == plan.root && recv_[i] != given(number_, from, 0, i);
        else
          count += recv_[from * plan.bytes + i] != given(number_, from, call.sends_blocks() ? rank_ : 0, i);
    return count;
  }
  /// Behind the call the program writes there.
  void spoil() {
    std::fill(send_.begin(), send_.end(), 99);
    if (plan.kind == CollectiveKind::bcast || call.in_place) {
      result_wrong = wrong();
      std::fill(recv_.begin(), recv_.end(), 98);
    } else {
      result_wrong = wrong();
    }
  }
  std::uint64_t word() const {
    return CallWord{plan.kind, Operation::none, Element::bytes, plan.root, plan.bytes}.packed();
  }

  const Plan plan;
  CopiedCall call;
  long result_wrong = -1;

 private:
  void fill(char* to, std::uint32_t block) const {
    for (std::uint64_t i = 0; i < plan.bytes; ++i) to[i] = given(number_, rank_, block, i);
  }
  const std::uint32_t number_, rank_, ranks_;
  std::vector<char> send_, recv_;
};

void nap(std::mt19937& random) {
  if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
}

}  // namespace

TEST_CASE("copied calls, attached, in pieces, in place", "[collective]") {
  const std::uint32_t count = GENERATE(2u, 3u, 5u);
  const std::uint64_t places = GENERATE(std::uint64_t{256}, std::uint64_t{2048}) * count;
  constexpr std::uint32_t calls = 150;
  Node node(count, places);
  std::vector<std::vector<std::unique_ptr<RankCall>>> of_rank(count);
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number)
      of_rank[rank].push_back(std::make_unique<RankCall>(number, rank, count));
  std::atomic<bool> failed{false};
  std::atomic<std::uint32_t> streams_left{count};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {  // the stream
      StagedWords& words = node.memory.words(rank);
      std::mt19937 random(rank);
      for (const auto& one : of_rank[rank]) {
        nap(random);
        store_release(&words.copied, reinterpret_cast<std::uintptr_t>(&one->call));
        store_release(&words.place, one->call.place);
        store_release(&words.sent, one->word());
        for (int polls = 0; load_acquire(&words.go) != 1; ++polls) {
          if (failed || polls > 400'000) {
            failed = true;
            --streams_left;
            return;
          }
          std::this_thread::sleep_for(std::chrono::microseconds(polls > 20 ? 100 : 1));
        }
        store_release(&words.go, 0);
        one->spoil();
        store_release(&words.over, 1);
      }
      --streams_left;
    });
    threads.emplace_back([&, rank] {  // the service
      StagedSteps steps(node.memory, rank);
      CopiedMoves<SlowCopier> moves = node.moves(rank);
      std::mt19937 random(rank + 1000);
      while (streams_left != 0) {
        const StagedSteps::Step step = steps.step();
        if (step == StagedSteps::Step::differs) failed = true;
        if (step == StagedSteps::Step::moves)
          moves.begin(*reinterpret_cast<const CopiedCall*>(steps.copied()), steps.number());
        if (steps.is_moving()) {
          (void)moves.step();
          if (moves.is_over()) steps.have_moved();
        }
        nap(random);
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(!failed);
  long wrong = 0;
  for (const auto& rank : of_rank)
    for (const auto& one : rank) wrong += one->result_wrong != 0;
  CHECK(wrong == 0);
}

TEST_CASE("copied and staged calls in turns", "[collective]") {
  Node node(2, 256);
  StagedSteps first(node.memory, 0), second(node.memory, 1);
  CopiedMoves<SlowCopier> moves = node.moves(0);
  char from[8] = {}, to[16] = {};
  const CopiedCall call{CollectiveKind::allgather, false, 0, from, to, 8, not_attached};
  const std::uint64_t word = CallWord{CollectiveKind::barrier, Operation::none, Element::bytes, 0, 0}.packed();
  using Step = StagedSteps::Step;
  StagedWords &one = node.memory.words(0), &other = node.memory.words(1);
  one.copied = other.copied = reinterpret_cast<std::uintptr_t>(&call);
  one.place = other.place = not_attached;
  one.sent = other.sent = word;
  CHECK((first.step() == Step::took && second.step() == Step::took));
  CHECK((first.step() == Step::moves && first.is_moving() && first.step() == Step::nothing));
  CHECK((first.copied() != 0 && one.copied == 0));
  moves.begin(call, first.number());
  for (int i = 0; i < 100; ++i) (void)moves.step();
  CHECK((!moves.is_over() && moves.is_quiet()));  // the other has filled nothing
  CHECK(second.step() == Step::moves);
  first.have_moved();
  CHECK(first.step() == Step::nothing);
  second.have_moved();
  CHECK((first.step() == Step::passed && second.step() == Step::passed));
  one.part = other.part = one.sent = other.sent = word;
  CHECK((first.step() == Step::took && second.step() == Step::took));
  CHECK((first.copied() == 0 && first.step() == Step::made && second.step() == Step::made));
}
