// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Room on a GPU for blocks that wait (device/gpu/places.h): what is taken together stays below what the table there
// promises, and nothing is lost. These are numbers: no GPU is needed.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#define GPU_NAMESPACE of_no_gpu
#include "device/gpu/places.h"
#include "support/catch.h"

using namespace mpix;

namespace {

constexpr std::uint32_t places_at_birth = 4;  // of a window: two launches of each side
constexpr std::uint32_t blocks_of_each = 4;   // that a multiprocessor has room for

/// Of each pair the first leaves an even number of places, which windows can take all.
#define MULTIPROCESSORS GENERATE(17u, 16u, 9u, 8u, 5u, 4u)

/// A process on a GPU that `sharers` processes share, and its windows.
struct Process {
  Process(std::uint32_t multiprocessors, std::uint32_t its_sharers, std::uint32_t its_blocks_of_each = blocks_of_each)
      : all(multiprocessors), sharers(its_sharers), others((its_blocks_of_each - 1) * multiprocessors) {
    places->open(all, all * its_blocks_of_each);
  }
  std::uint32_t most() const { return WaitingRoom::most(all, sharers); }
  std::uint32_t own_blocks() const { return others / sharers; }
  /// With those that parts 0 do not take, up to a half.
  std::uint32_t most_blocks() const { return (others + all / 2) / sharers; }
  std::uint32_t lent(std::uint32_t blocks) const { return blocks > own_blocks() ? blocks - own_blocks() : 0; }

  /// Whether it has places; one that finds none waits in guards (team/neighbourhood.cpp, lack_places).
  bool open_window() {
    auto window = std::make_unique<WindowPlaces>(places);
    window->share(sharers);
    const bool fits = window->taken() <= most();
    if (fits) windows.push_back(std::move(window));
    return fits;
  }
  /// All processes together leave a multiprocessor to others.
  bool keeps_promise() { return places->taken() == 0 || places->taken() * sharers < all; }

  const std::uint32_t all, sharers, others;  ///< the last: blocks beside one a multiprocessor
  const std::shared_ptr<Places> places = std::make_shared<Places>();
  std::vector<std::unique_ptr<WindowPlaces>> windows;
};

/// What windows with so many peers of each side take, and have at the least.
std::uint32_t places_for(std::uint32_t sends, std::uint32_t receives) { return 2 * (sends + receives); }

}  // namespace

TEST_CASE("windows take places for parts 0 while there are some, and leave a multiprocessor free", "[places]") {
  const std::uint32_t multiprocessors = MULTIPROCESSORS, sharers = GENERATE(1u, 2u, 4u);
  CAPTURE(multiprocessors, sharers);
  std::minstd_rand random(multiprocessors + sharers);
  for (std::uint32_t count = 1; count <= 40; ++count) {
    CAPTURE(count);
    Process process(multiprocessors, sharers);
    std::uint32_t refused = 0;
    for (std::uint32_t i = 0; i < count; ++i) refused += process.open_window() ? 0 : 1;
    // As many as there are places for.
    REQUIRE(process.windows.size() == std::min(count, process.most() / places_at_birth));
    REQUIRE(process.windows.size() + refused == count);
    REQUIRE(process.places->taken() == places_at_birth * process.windows.size());
    REQUIRE(process.keeps_promise());

    struct Peers {
      std::uint32_t sends = 1, receives = 1;
    };
    std::vector<Peers> have(process.windows.size());
    for (int turn = 0; turn < 20; ++turn)
      for (std::size_t i = 0; i < have.size(); ++i) {
        const auto sends = static_cast<std::uint32_t>(random() % 5),
                   receives = static_cast<std::uint32_t>(random() % 5);
        const Peers more{std::max(sends, have[i].sends), std::max(receives, have[i].receives)};
        const std::uint32_t before = process.places->taken();
        const std::uint32_t then =
            before + places_for(more.sends, more.receives) - places_for(have[i].sends, have[i].receives);
        const std::uint32_t peers = process.windows[i]->peers_for(sends, receives);
        if (then <= process.most()) {  // what fits is given
          have[i] = more;
          REQUIRE(peers == std::max(sends, receives));
          REQUIRE(process.places->taken() == then);
        } else {
          REQUIRE(peers == std::min(have[i].sends, have[i].receives));
          REQUIRE(peers >= 1);
          REQUIRE(process.places->taken() == before);
        }
        REQUIRE(process.keeps_promise());
      }
    process.windows.clear();
    REQUIRE(process.places->taken() == 0);
  }
}

TEST_CASE("a window that has to wait in kernels can have one peer at a time, whatever is taken", "[places]") {
  const std::uint32_t multiprocessors = MULTIPROCESSORS, sharers = GENERATE(1u, 2u, 4u);
  CAPTURE(multiprocessors, sharers);
  Process process(multiprocessors, sharers);
  for (int count = 1; count <= 40; ++count) {
    (void)process.open_window();
    process.windows.push_back(std::make_unique<WindowPlaces>(process.places));  // where there are no guards
    process.windows.back()->share(sharers);
    for (const auto& window : process.windows) {
      REQUIRE(window->peers_for(1, 1) == 1);
      REQUIRE(window->peers_for(0, 1) <= 1);
      REQUIRE(window->peers_for(40, 40) >= 1);
      REQUIRE(window->peers_for(40, 40) < 40);
    }
  }
  process.windows.clear();
  REQUIRE(process.places->taken() == 0);
}

TEST_CASE("blocks that may keep their places leave room for others, whoever else waits", "[places]") {
  const std::uint32_t multiprocessors = MULTIPROCESSORS, sharers = GENERATE(1u, 2u, 4u);
  CAPTURE(multiprocessors, sharers);
  std::minstd_rand random(multiprocessors + sharers);
  for (std::uint32_t count = 1; count <= 40; ++count) {
    CAPTURE(count);
    Process process(multiprocessors, sharers);
    for (std::uint32_t i = 0; i < count; ++i) {
      process.windows.push_back(std::make_unique<WindowPlaces>(process.places));
      process.windows.back()->share(sharers);
    }
    struct Blocks {
      std::uint32_t sends = 0, receives = 0;
    };
    std::vector<Blocks> have(count);
    std::uint32_t taken = 0;
    for (int turn = 0; turn < 20; ++turn)
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto sends = static_cast<std::uint32_t>(random() % 9),
                   receives = static_cast<std::uint32_t>(random() % 9);
        const bool modest = random() % 2 == 0;
        const Blocks most{std::max(sends, have[i].sends), std::max(receives, have[i].receives)};
        const std::uint32_t more = most.sends + most.receives - have[i].sends - have[i].receives;
        const std::uint32_t parts_0 = places_at_birth * count, lent = process.lent(taken + more);
        const bool fits = more == 0 || (taken + (modest ? 2 : 1) * more <= process.most_blocks() &&
                                        (lent == 0 || parts_0 + lent <= process.most()));
        REQUIRE(process.windows[i]->blocks_for(sends, receives, modest) == fits);
        if (!fits) continue;
        have[i] = most;
        taken += more;
        REQUIRE(process.places->taken() == parts_0 + process.lent(taken));
        if (parts_0 <= process.most()) REQUIRE((taken + parts_0) * sharers < multiprocessors * blocks_of_each);
      }
    process.windows.clear();
    WindowPlaces last(process.places);
    const std::uint32_t spare = process.most() > places_at_birth ? process.most() - places_at_birth : 0,
                        most = std::min(process.most_blocks(), process.own_blocks() + spare);
    CHECK_FALSE(last.blocks_for(most + 1, 0, false));
    CHECK_FALSE(last.blocks_for(0, process.most_blocks() / 2 + 1, true));
    CHECK(last.blocks_for(0, process.most_blocks() / 2, true));
    CHECK(last.blocks_for(0, most, false));  // all have been given back
  }
}

TEST_CASE("what is lent to other parts no window takes for its parts 0", "[places]") {
  Process process(16, 1);
  REQUIRE(process.open_window());
  REQUIRE(process.windows[0]->blocks_for(process.own_blocks() + 7, 0, false));
  CHECK(process.places->taken() == places_at_birth + 7);
  REQUIRE(process.open_window());  // 15 of 15
  CHECK_FALSE(process.open_window());
  CHECK(process.windows[0]->peers_for(2, 2) == 1);
  CHECK_FALSE(process.windows[1]->blocks_for(1, 0, false));
  process.windows.erase(process.windows.begin());
  CHECK(process.open_window());
}

TEST_CASE("a GPU with room for a block a multiprocessor has few others that may keep their places", "[places]") {
  const std::uint32_t blocks = GENERATE(7u, 8u, 9u);
  const auto places = std::make_shared<Places>();
  places->open(8, blocks);
  WindowPlaces window(places);
  // But for those that parts 0 do not take: 4 of 7.
  CHECK(window.blocks_for(3, 0, false));
  CHECK(window.blocks_for(4, 0, false) == (blocks > 8));
  CHECK_FALSE(window.blocks_for(5, 0, false));
}

namespace {

/// A communicator of the ranks of some processes: as Collectives::take_room has it, with so many blocks at most.
struct Calls {
  Calls(const std::vector<Process*>& processes, std::uint32_t sharers, std::uint32_t most) : blocks(most) {
    for (Process* const process : processes) {
      rooms.push_back(std::make_unique<CallPlaces>(process->places));
      blocks = std::min(blocks, rooms.back()->use().blocks_left(sharers) / places_of_each(sharers));
    }
    for (const auto& room : rooms) room->settle(blocks * places_of_each(sharers), sharers);
  }
  static std::uint32_t places_of_each(std::uint32_t sharers) { return sharers > 1 ? 1 : 2; }
  std::uint32_t blocks;
  std::vector<std::unique_ptr<CallPlaces>> rooms;
};

}  // namespace

TEST_CASE("communicators have places of the same sort as other parts of windows, all processes as many", "[places]") {
  const std::uint32_t multiprocessors = MULTIPROCESSORS, sharers = GENERATE(1u, 2u, 4u);
  CAPTURE(multiprocessors, sharers);
  Process one(multiprocessors, sharers, 2), other(multiprocessors, sharers, 2);
  const bool has_window = one.open_window();
  const std::uint32_t most = one.most(), window = has_window ? places_at_birth : 0;
  REQUIRE(one.places->taken() == window);
  REQUIRE(other.places->taken() == 0);

  // All that there is, of the process that has less.
  auto all = std::make_unique<Calls>(std::vector<Process*>{&one, &other}, sharers, 1000);
  const std::uint32_t taken = all->blocks * Calls::places_of_each(sharers);
  CHECK(taken <= one.most_blocks());
  CHECK(taken + 2 > std::min(one.most_blocks(), one.own_blocks() + most - window));
  CHECK(one.keeps_promise());
  CHECK(other.places->taken() == one.places->taken() - window);
  CHECK(Calls({&one}, sharers, 1000).blocks == 0);

  // A window finds what is left by it, and more once it is freed.
  if (has_window) CHECK_FALSE(one.windows[0]->blocks_for(2, 0, false));
  all.reset();
  CHECK(one.places->taken() == window);
  if (has_window) CHECK(one.windows[0]->blocks_for(2, 0, false) == (one.most_blocks() >= 2));
}

TEST_CASE("what a communicator may come to have is reserved while it is made", "[places]") {
  Process process(16, 1, 2);
  CallPlaces made(process.places);
  CHECK(made.use().blocks_taken == 0);
  const CallPlaces meanwhile(process.places);
  CHECK(meanwhile.use().blocks_taken == (2 * process.most_blocks() + 2) / 3);
  const std::uint32_t rest = process.most_blocks() - meanwhile.use().blocks_taken;
  made.settle(4, 1);
  CHECK(CallPlaces(process.places).use().blocks_taken == 4 + (2 * rest + 2) / 3);
}

TEST_CASE("places of calls are halves of multiprocessors, however many blocks of windows find room", "[places]") {
  for (const std::uint32_t blocks : {2u, 3u, 4u, 8u})
    CHECK(CallPlaces(Process(16, 1, blocks).places).use().blocks_left(1) == 16 + 8);
}

TEST_CASE("a call starts early where it and the one in front find room together", "[places]") {
  Process process(16, 1);
  CallPlaces room(process.places);
  room.settle(10, 1);
  const auto next = [&](std::uint32_t places, std::uint64_t capture = 1) { return room.neighbours(capture, places); };
  CHECK(next(5).starts_early);
  CHECK(next(5).starts_early);
  CHECK_FALSE(next(6).starts_early);
  // This one lets no other start while it waits.
  CHECK_FALSE(next(6).lets_next_start);
  CHECK(next(10).starts_early);
  CHECK(next(4).lets_next_start);
  CHECK(next(6).starts_early);
  CHECK(next(5).starts_early);
  CHECK_FALSE(next(10).starts_early);
  // Others, captured meanwhile, say nothing of what is in front here.
  CHECK(next(5, 2).starts_early);
  CHECK(next(10, 3).starts_early);
  CHECK_FALSE(next(5, 2).starts_early);
  CHECK(next(5, 2).starts_early);
}
