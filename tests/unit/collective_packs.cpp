// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Calls by packs, among others by lines and direct ones: threads as the parts of ranks, each a group by itself.
#include "wire/collective_packs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "collective_parts.h"
#include "collective_ranks.h"
#include "support/catch.h"
#include "wire/collective_direct.h"

using namespace mpix;
using namespace collective_test;

namespace {

/// A pack is stored word by word, and its number last; where a GPU's store carries all at once.
struct PackCrew : PartCrew {
  static constexpr std::uint32_t lanes = 1, polls_between_looks = 16;

  Workers movers() const { return Workers{0, 1}; }
  Workers askers() const { return Workers{0, 1}; }
  std::uint64_t load_any(const char* from, std::uint64_t i, std::uint64_t bytes) const {
    return load_word(from, i, bytes);
  }
  void store_any(char* to, std::uint64_t i, std::uint64_t bytes, std::uint64_t word) const {
    store_word(to, i, bytes, word);
  }
  void converge() const {}
  bool together(bool yes) const {
    if (!yes) std::this_thread::yield();
    return yes;
  }
  void judge(bool yes) const { is_good = yes; }
  bool judged_good() const { return is_good; }
  mutable bool is_good = false;
  bool still_waits(std::uint32_t, std::uint32_t, std::uint32_t beat) const {
    if (beat > 100'000) store_release(&call.host->released, 1);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    return load_relaxed(&call.host->released) == 0;
  }
  void store_pack(Pack* pack, std::uint32_t, const std::uint64_t* words) const {
    if (random() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
    for (std::uint32_t i = 0; i < Pack::words; ++i) __atomic_store_n(&pack->word[i], words[i], __ATOMIC_RELAXED);
    store_release(&pack->number, words[Pack::words]);
  }
  void load_pack(const Pack* pack, std::uint32_t, std::uint64_t* words) const {
    words[Pack::words] = load_acquire(&pack->number);
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
    for (std::uint32_t i = 0; i < Pack::words; ++i) words[i] = __atomic_load_n(&pack->word[i], __ATOMIC_RELAXED);
  }
};

constexpr std::uint32_t packs = 12;

enum class Way { lines, packs, direct };

/// The same on all ranks.
struct Chosen {
  Plan plan;
  Way way;
  std::uint32_t parts, turns;
  bool shared, all_hear;
};
Chosen chosen_for(std::uint32_t number, std::uint32_t ranks) {
  std::mt19937 random(number * 7919u + 17);
  Chosen chosen{plan_of(number, ranks, 1500, true),
                Way::lines,
                static_cast<std::uint32_t>(1 + random() % parts_of_a_rank),
                0,
                false,
                false};
  if (chosen.plan.direct) chosen.way = Way::direct;
  const bool is_rooted = chosen.plan.kind == CollectiveKind::bcast || chosen.plan.kind == CollectiveKind::reduce;
  chosen.shared = (is_rooted || chosen.plan.kind == CollectiveKind::allreduce) && random() % 2 == 0;
  // A kernel that has several turns at once has so many in a place.
  chosen.turns = chosen.shared ? 1 + static_cast<std::uint32_t>(random()) % 4 : packs / chosen.parts / 4 * 4;
  chosen.all_hear = is_rooted && !chosen.shared && random() % 2 == 0;
  const bool fits = chosen.shared || chosen.all_hear || !is_rooted ||
                    chosen.plan.words <= std::uint64_t{chosen.turns} * chosen.parts * Pack::words;
  if (chosen.plan.words > 0 && fits && random() % 4 != 0) chosen.way = Way::packs;
  return chosen;
}

template <std::uint32_t each, PackWork work>
bool run_packs(const PackCrew& crew, bool is_aligned) {
  return is_aligned ? PackCall<4, each, work, true, PackCrew>(crew, crew.call).run()
                    : PackCall<4, each, work, false, PackCrew>(crew, crew.call).run();
}
template <std::uint32_t each>
bool run_packs(const PackCrew& crew, bool is_aligned) {
  if (crew.call.shared) return run_packs<1, PackWork::share>(crew, is_aligned);
  return crew.call.combines() ? run_packs<each, PackWork::combine>(crew, is_aligned)
                              : run_packs<each, PackWork::move>(crew, is_aligned);
}
bool run_packs(const PackCrew& crew, std::uint32_t turns_at_once, bool is_aligned) {
  return turns_at_once == 1   ? run_packs<1>(crew, is_aligned)
         : turns_at_once == 2 ? run_packs<2>(crew, is_aligned)
                              : run_packs<4>(crew, is_aligned);
}

}  // namespace

TEST_CASE("packs, lines and direct calls follow each other, and results are right", "[collective]") {
  const std::uint32_t count = GENERATE(2u, 3u, 4u);
  const std::uint32_t calls = 1500;
  Ranks ranks(count, 192, 16384 * count, 1, packs);
  std::vector<Launches> launches(count);
  std::vector<std::vector<std::unique_ptr<RankCall>>> of_rank(count);
  std::atomic<long> wrong{0};
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number)
      of_rank[rank].push_back(std::make_unique<RankCall>(ranks, rank, number, chosen_for(number, count).plan));
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t part = 0; part < parts_of_a_rank; ++part)
      threads.emplace_back([&, rank, part] {
        std::mt19937 random(rank * 100 + part);
        for (std::uint32_t number = 0; number < calls && wrong == 0; ++number) {
          launches[rank].begin(number);
          if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
          const RankCall& of_all = *of_rank[rank][number];
          const Chosen chosen = chosen_for(number, count);
          Collective call = of_all.launch.call;
          call.parts = call.launched = chosen.parts;
          call.chunk_words = of_all.lines_for(chosen.parts);
          call.direct = chosen.way == Way::direct;
          call.packed = chosen.way == Way::packs;
          call.shared = call.packed && chosen.shared;
          call.all_hear = call.packed && chosen.all_hear;
          call.pack_turns = chosen.turns;
          const PackCrew crew{{call, part, 0, random}};
          PlaceTable table;
          // How many turns a kernel has at once is its rank's affair.
          const std::uint32_t at_once = 1u << (rank + number) % 3;
          if (part < chosen.parts && !(call.packed   ? run_packs(crew, at_once, number % 2 == 0)
                                       : call.direct ? DirectCall<PackCrew>(crew, call, table).run()
                                                     : run_by_lines(crew, call)))
            ++wrong;
          launches[rank].end();
        }
      });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  long by_packs = 0, of_several_steps = 0, shared = 0, all_hear = 0;
  for (std::uint32_t number = 0; number < calls; ++number) {
    const Chosen chosen = chosen_for(number, count);
    by_packs += chosen.way == Way::packs;
    shared += chosen.way == Way::packs && chosen.shared && chosen.plan.words > count * Pack::words;
    all_hear += chosen.way == Way::packs && chosen.all_hear && chosen.plan.words > packs * Pack::words;
    of_several_steps += chosen.way == Way::packs && chosen.plan.words > packs * Pack::words;
    for (std::uint32_t rank = 0; rank < count; ++rank) wrong += of_rank[rank][number]->wrong();
  }
  CHECK(wrong == 0);
  CHECK(by_packs > calls / 3);
  CHECK(of_several_steps > calls / 30);
  CHECK(shared > calls / 30);
  CHECK(all_hear > calls / 100);
}

TEST_CASE("a call by packs that meets another one ends, and says which rank calls it", "[collective]") {
  Ranks ranks(2, 192, 32768, 1, packs);
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      std::mt19937 random(rank);
      RankCall of_rank(ranks, rank, 1,
                       Plan{CollectiveKind::allreduce, 0, 100 + 50 * std::uint64_t{rank}, false, false});
      Collective call = of_rank.launch.call;
      call.packed = true;
      call.pack_turns = packs;
      const PackCrew crew{{call, 0, 0, random}};
      if (!PackCall<2, 2, PackWork::combine, true, PackCrew>(crew, call).run() && call.host->differs == 2 - rank)
        ++refused;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(refused == 2);
}
