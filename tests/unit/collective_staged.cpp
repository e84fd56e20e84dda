// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Staged calls: streams and services of several ranks, as threads.
#include "wire/collective_staged.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "collective_ranks.h"
#include "support/catch.h"

using namespace mpix;
using namespace collective_test;

namespace {

class SharedMemory {
 public:
  SharedMemory(std::uint32_t ranks, std::uint64_t room)
      : base_(static_cast<char*>(::operator new(StagedMemory::bytes(ranks, room), alignment))),
        memory{base_, ranks, room} {
    std::memset(base_, 0, StagedMemory::bytes(ranks, room));
  }
  ~SharedMemory() { ::operator delete(base_, alignment); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

 private:
  static constexpr std::align_val_t alignment{alignof(StagedWords)};
  char* const base_;

 public:
  const StagedMemory memory;
};

void nap(std::mt19937& random) {
  if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
}

void copy(const RowCopy& rows) {
  for (std::uint64_t row = 0; row < rows.rows; ++row)
    std::memcpy(rows.to + row * rows.to_stride, rows.from + row * rows.from_stride, rows.bytes);
}

/// False: given up.
template <class Look>
bool poll(const std::atomic<bool>& failed, Look look) {
  for (int polls = 0; !look(); ++polls) {
    if (failed || polls > 500'000) return false;  // some 40 s
    if (polls > 20) std::this_thread::sleep_for(std::chrono::microseconds(10));
    std::this_thread::yield();
  }
  return true;
}

/// What a stream does of a call.
bool run_call(const StagedMemory& memory, const Collective& c, std::mt19937& random, const std::atomic<bool>& failed) {
  StagedWords& words = memory.words(c.me);
  for (std::uint64_t at = 0; at == 0 || at < c.bytes;) {
    const StagedPiece piece = staged_piece(memory, c.kind, at, c.bytes);
    copy(copy_in(memory, c, piece));
    nap(random);
    store_release(&words.part, c.word);
    store_release(&words.sent, c.word);
    if (!poll(failed, [&] { return load_acquire(&words.go) >= 1; })) return false;
    store_release(&words.go, 0);
    nap(random);
    copy(copy_out(memory, c, piece));
    store_release(&words.over, 1);
    if (piece.bytes == 0) break;
    at += piece.bytes;
  }
  return true;
}

/// Threads that make the steps of all ranks until they are told to end.
class Services {
 public:
  explicit Services(const StagedMemory& memory) {
    for (std::uint32_t rank = 0; rank < memory.ranks; ++rank)
      steps.push_back(std::make_unique<StagedSteps>(memory, rank));
    for (std::uint32_t rank = 0; rank < memory.ranks; ++rank)
      threads_.emplace_back([this, rank] {
        std::mt19937 random(1000 + rank);
        while (!end_) {
          const StagedSteps::Step step = steps[rank]->step();
          if (step == StagedSteps::Step::differs) {
            ++differ;
            (void)steps[rank]->release();
          }
          nap(random);
          std::this_thread::yield();
        }
      });
  }
  ~Services() { end(); }
  void end() {
    end_ = true;
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  std::vector<std::unique_ptr<StagedSteps>> steps;
  std::atomic<int> differ{0};

 private:
  std::atomic<bool> end_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("staged calls, whole and in pieces", "[collective]") {
  const std::uint32_t count = GENERATE(1u, 2u, 3u, 5u);
  const std::uint64_t room = GENERATE(std::uint64_t{64}, std::uint64_t{512}, std::uint64_t{16384}) * count;
  constexpr std::uint32_t calls = 200;
  Ranks ranks(count, 256, 3 * 4096);
  SharedMemory shared(count, room);
  Services services(shared.memory);
  std::vector<std::vector<std::unique_ptr<RankCall>>> of_rank(count);
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number)
      of_rank[rank].push_back(std::make_unique<RankCall>(ranks, rank, number, plan_of(number, count, 240, false)));
  std::atomic<bool> failed{false};
  std::vector<std::thread> streams;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    streams.emplace_back([&, rank] {
      std::mt19937 random(rank);
      for (const auto& one : of_rank[rank])
        if (!run_call(shared.memory, one->launch.call, random, failed)) failed = true;
    });
  for (std::thread& stream : streams) stream.join();
  services.end();
  REQUIRE(!failed);
  CHECK(services.differ == 0);
  long wrong = 0;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    for (std::uint32_t number = 0; number < calls; ++number) wrong += of_rank[rank][number]->wrong();
    CHECK(
        (services.steps[rank]->is_idle() && shared.memory.words(rank).over == 1 && shared.memory.words(rank).go == 0));
  }
  CHECK(wrong == 0);
}

TEST_CASE("staged calls of ranks that call different things end, and all notice", "[collective]") {
  constexpr std::uint32_t count = 3;
  Ranks ranks(count, 256, 3 * 4096);
  SharedMemory shared(count, 4096);
  std::atomic<bool> failed{false};
  {
    Services services(shared.memory);
    std::vector<std::thread> streams;
    for (std::uint32_t rank = 0; rank < count; ++rank)
      streams.emplace_back([&, rank] {
        std::mt19937 random(rank);
        Plan plan{};
        plan.kind = CollectiveKind::allreduce;
        plan.words = rank == 1 ? 5 : 4;
        const RankCall one(ranks, rank, 0, plan);
        if (!run_call(shared.memory, one.launch.call, random, failed)) failed = true;
      });
    for (std::thread& stream : streams) stream.join();
    services.end();
    CHECK(services.differ == static_cast<int>(count));
  }
  CHECK(!failed);
}

TEST_CASE("a staged call misses the ranks that have not come", "[collective]") {
  SharedMemory shared(3, 4096);
  std::vector<std::unique_ptr<StagedSteps>> steps;
  for (std::uint32_t rank = 0; rank < 3; ++rank) steps.push_back(std::make_unique<StagedSteps>(shared.memory, rank));
  const std::uint64_t word = CallWord{CollectiveKind::barrier, Operation::none, Element::bytes, 0, 0}.packed();
  using Step = StagedSteps::Step;
  CHECK(steps[0]->step() == Step::nothing);
  CHECK(!steps[0]->misses(1));
  for (std::uint32_t rank : {0u, 2u}) {
    shared.memory.words(rank).part = shared.memory.words(rank).sent = word;
    CHECK(steps[rank]->step() == Step::took);
    CHECK(steps[rank]->step() == Step::nothing);
  }
  CHECK((!steps[0]->misses(0) && steps[0]->misses(1) && !steps[0]->misses(2)));
  shared.memory.words(1).part = shared.memory.words(1).sent = word;
  CHECK(steps[1]->step() == Step::took);
  CHECK(steps[0]->step() == Step::made);
  CHECK(steps[0]->step() == Step::nothing);
  CHECK((!steps[0]->misses(0) && steps[0]->misses(1) && steps[0]->misses(2)));
  CHECK(shared.memory.words(0).go == 0);
  for (std::uint32_t rank : {1u, 2u}) CHECK(steps[rank]->step() == Step::made);
  CHECK(steps[0]->step() == Step::passed);
  CHECK((shared.memory.words(0).go == 1 && shared.memory.words(0).over == 0));
}
