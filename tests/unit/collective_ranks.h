// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collective calls by threads as ranks, over memory of their own: the steps, without MPI and streams.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <vector>

#include "device/collective_launch.h"
#include "wire/collective.h"

namespace collective_test {

using namespace mpix;

/// Memory of all ranks of a communicator.
class Ranks {
 public:
  Ranks(std::uint32_t count, std::uint32_t lines, std::uint64_t scratch, std::uint32_t number = 1,
        std::uint32_t packs = 0)
      : count_(count) {
    places_.ranks = count;
    places_.lines = lines;
    places_.packs = packs;
    places_.scratch_bytes = scratch;
    attached_.resize(std::size_t{count} * most_attached);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      char* const base = static_cast<char*>(::operator new (places_.all(), std::align_val_t{alignof(Pack)}));
      std::memset(base, 0, places_.all());
      memory_.push_back(base);
      auto* const states = reinterpret_cast<CollectiveState*>(base + places_.states());
      for (std::uint32_t part = 0; part < most_parts; ++part) {
        states[part].step = states[part].call = number;
        states[part].parts = 1;
      }
      words_.emplace_back(sizeof(CollectiveWords) / 8 + count);
    }
  }
  ~Ranks() {
    for (char* base : memory_) ::operator delete (base, std::align_val_t{alignof(Pack)});
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Collective call(std::uint32_t rank) {
    Collective c{};
    c.places = places_;
    c.me = rank;
    c.parts = c.launched = 1;
    c.mine = memory_[rank];
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

/// What rank `rank` gives in call `number`: element `i` of its block for rank `to`.
inline std::uint64_t given(std::uint32_t rank, std::uint32_t number, std::uint64_t i, std::uint32_t to) {
  return (rank + 1) * 1000003ull + number * 7919ull + i * 31ull + to * 65537ull;
}

struct Plan {
  CollectiveKind kind;
  std::uint32_t root;
  std::uint64_t words;
  bool direct, attached;
  bool along_tree = false;
};

inline Plan plan_of(std::uint32_t number, std::uint32_t ranks, std::uint64_t most_words, bool may_be_direct) {
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

/// One rank's call: what it sends, and shall get.
class RankCall {
 public:
  RankCall(Ranks& ranks, std::uint32_t rank, std::uint32_t number, const Plan& plan)
      : plan_(plan), rank_(rank), number_(number), ranks_(ranks.count()) {
    const bool by_blocks = plan.kind == CollectiveKind::alltoall || plan.kind == CollectiveKind::reduce_scatter;
    send_.resize(plan.words * (by_blocks ? ranks_ : 1) + 1);
    recv_.resize(plan.words * (gathers() ? ranks_ : 1) + 1, 77);
    for (std::uint64_t i = 0; i + 1 < send_.size(); ++i)
      send_[i] = given(rank, number, i % plan.words, static_cast<std::uint32_t>(i / plan.words));
    if (plan.kind == CollectiveKind::bcast && rank == plan.root) recv_ = send_;
    Collective& c = launch.call = ranks.call(rank);
    c.kind = plan.kind;
    c.root = plan.root;
    c.bytes = 8 * plan.words;
    if (c.combines()) {
      c.operation = Operation::sum;
      c.element = Element::u64;
    }
    c.send = reinterpret_cast<const char*>(plan.kind == CollectiveKind::bcast ? recv_.data() : send_.data());
    c.recv = reinterpret_cast<char*>(recv_.data());
    c.send_stride = by_blocks ? c.bytes : 0;
    c.recv_stride = gathers() ? c.bytes : 0;
    c.word = CallWord{c.kind, c.operation, c.element, c.root, c.bytes}.packed();
    c.chunk_words = lines_for(1);
    c.direct = plan.direct;
    c.takes_from_others = number % 3 == 0;
    c.piece_bytes = c.places.scratch_bytes / (by_blocks ? ranks_ : 1) / 1024 * 1024;
    // The threads of a test share their addresses: what is attached lies at 0.
    const auto place = [&](const void* p) {
      return plan.attached ? place_word(0, reinterpret_cast<std::uintptr_t>(p)) : not_attached;
    };
    if (plan.kind != CollectiveKind::bcast || rank == plan.root) c.send_place = place(c.send);
    if (plan.kind == CollectiveKind::allreduce || (plan.kind == CollectiveKind::reduce && rank == plan.root))
      c.recv_place = place(c.recv);
    if (plan.along_tree && plan.kind == CollectiveKind::bcast && rank != plan.root) c.recv_place = place(c.recv);
  }

  CollectiveLaunch launch;

  /// chunk_words of so many parts.
  std::uint64_t lines_for(std::uint32_t parts) const {
    const std::uint64_t unit = std::uint64_t{8} * parts, room = launch.call.places.lines / unit * unit;
    return plan_.words > room ? room : std::max(unit, (plan_.words + unit - 1) / unit * unit);
  }

  /// How many words are wrong.
  long wrong() const {
    const Collective& c = launch.call;
    long count = 0;
    const auto expect = [&](std::uint64_t at, std::uint64_t value) { count += recv_[at] != value; };
    for (std::uint64_t i = 0; i < plan_.words; ++i) {
      std::uint64_t all = 0;
      for (std::uint32_t from = 0; from < ranks_; ++from)
        all += given(from, number_, i, plan_.kind == CollectiveKind::reduce_scatter ? rank_ : 0);
      if (c.combines() && c.gets_result()) expect(i, all);
      if (plan_.kind == CollectiveKind::bcast) expect(i, given(plan_.root, number_, i, 0));
      for (std::uint32_t from = 0; gathers() && from < ranks_; ++from)
        expect(from * plan_.words + i, given(from, number_, i, plan_.kind == CollectiveKind::alltoall ? rank_ : 0));
    }
    // The word behind the result is nobody's.
    if (plan_.kind != CollectiveKind::bcast || rank_ != plan_.root) count += recv_.back() != 77;
    return count;
  }

 private:
  bool gathers() const { return plan_.kind == CollectiveKind::alltoall || plan_.kind == CollectiveKind::allgather; }

  const Plan plan_;
  const std::uint32_t rank_, number_, ranks_;
  std::vector<std::uint64_t> send_, recv_;
};

}  // namespace collective_test
