// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/requests_in_turns.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace mpix;

namespace {

/// Requests by number, none of which is over unless `over` says so.
struct Asked {
  std::vector<int> left;
  std::set<int> over, asked;
  std::vector<int> first_of_each;
  bool copies = false;  ///< within each call, for longer than a look is to take

  explicit Asked(int count) {
    for (int i = 0; i < count; ++i) left.push_back(i);
  }
  void look(RequestsInTurns& turns) {
    first_of_each.clear();
    turns.look([this] { return left.size(); }, [this](std::size_t place) { return test(place); });
  }
  std::size_t test(std::size_t place) {
    const std::size_t end = std::min(left.size(), place + RequestsInTurns::most_in_a_call);
    if (place < end) first_of_each.push_back(left[place]);
    asked.insert(left.begin() + static_cast<std::ptrdiff_t>(place), left.begin() + static_cast<std::ptrdiff_t>(end));
    if (copies) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const auto begin = left.begin() + static_cast<std::ptrdiff_t>(place);
    const auto behind = left.begin() + static_cast<std::ptrdiff_t>(end);
    const auto kept = std::remove_if(begin, behind, [this](int one) { return over.count(one) != 0; });
    const auto ended = static_cast<std::size_t>(behind - kept);
    left.erase(kept, behind);
    return end - ended;
  }
};

}  // namespace

TEST_CASE("few requests are asked for once, and none not at all", "[requests]") {
  for (const int count : {0, 1, 7}) {
    RequestsInTurns turns;
    Asked all(count);
    all.look(turns);
    CHECK(all.first_of_each.size() == (count > 0 ? 1u : 0u));
    CHECK(all.asked.size() == static_cast<std::size_t>(count));
  }
}

TEST_CASE("all are asked for in a look where calls are short", "[requests]") {
  RequestsInTurns turns;
  Asked all(20);
  all.over = {0, 8, 19};
  for (int looks = 0; looks < 3000 && all.asked.size() < 20; ++looks) all.look(turns);
  CHECK(all.asked.size() == 20);
  CHECK(all.left.size() == 17);
}

TEST_CASE("where calls take long each look is one, every second time for the oldest, and all have their turn",
          "[requests]") {
  RequestsInTurns turns;
  Asked all(100);
  all.copies = true;
  for (int looks = 0; looks < 30; ++looks) {
    all.look(turns);
    REQUIRE(all.first_of_each.size() == 1);
    if (looks % 2 == 0) CHECK(all.first_of_each[0] == 0);
  }
  CHECK(all.asked.size() == 100);
  all.over = {50, 99};
  for (int looks = 0; looks < 40; ++looks) all.look(turns);
  CHECK(all.left.size() == 98);
}
