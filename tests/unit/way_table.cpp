// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/way_table.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

using namespace mpix;

namespace {

const std::string head = "libmpix-ways 1\n";

std::string rejection(const std::string& text) {
  try {
    const WayTable table(text, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string found(const WayTable& table, CollectiveKind kind, std::uint32_t ranks, std::uint32_t sharers,
                  std::uint64_t bytes) {
  const WayTable::Choice* const choice = table.find(kind, ranks, sharers, bytes);
  if (!choice) return "none";
  const char* const way = choice->way == CollectiveWay::lines   ? "lines "
                          : choice->way == CollectiveWay::packs ? "packs "
                                                                : "direct ";
  return way + std::to_string(choice->blocks);
}

}  // namespace

TEST_CASE("a table of ways: a line is for its size and less", "[ways]") {
  const WayTable table("# a machine\n\n" + head +
                           "allreduce 2 1 256k lines 0  # latency\n"
                           "  allreduce\t2 1 4m direct 16\r\n"
                           "bcast 2 1 64 lines 4\n"
                           "allreduce 4 2 1k direct 64\n"
                           "alltoall 2 1 1m packs 0\n"
                           "allreduce 2 1 64g direct 32",
                       "file");
  const auto sum = CollectiveKind::allreduce;
  for (const auto& [bytes, choice] :
       std::vector<std::pair<std::uint64_t, std::string>>{{1, "lines 0"},
                                                          {256 * 1024, "lines 0"},
                                                          {256 * 1024 + 1, "direct 16"},
                                                          {4 << 20, "direct 16"},
                                                          {(4 << 20) + 8, "direct 32"},
                                                          {(std::uint64_t{1} << 36) - 1, "direct 32"},
                                                          {(std::uint64_t{1} << 36) + 1, "none"}})
    CHECK(found(table, sum, 2, 1, bytes) == choice);
  CHECK(found(table, CollectiveKind::bcast, 2, 1, 64) == "lines 4");
  CHECK(found(table, CollectiveKind::bcast, 2, 1, 65) == "none");
  CHECK(found(table, sum, 4, 2, 8) == "direct 64");
  CHECK(found(table, CollectiveKind::alltoall, 2, 1, 8) == "packs 0");
  CHECK(found(table, sum, 4, 1, 8) == "none");
  CHECK(found(table, sum, 3, 1, 8) == "none");
  CHECK(found(table, CollectiveKind::reduce, 2, 1, 8) == "none");
  CHECK(found(WayTable(), sum, 2, 1, 8) == "none");
  CHECK(found(WayTable(head, "file"), sum, 2, 1, 8) == "none");
}

TEST_CASE("a table of ways that is wrong names file, line and what was expected", "[ways]") {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", "file:1: expected 'libmpix-ways 1'"},
           {"# nothing\n#\n", "file:2: expected 'libmpix-ways 1'"},
           {"libmpix-ways 2\n", "file:1: 'libmpix-ways 2': expected 'libmpix-ways 1'"},
           {"bcast 2 1 64 lines 4\n", "file:1: 'bcast 2 1 64 lines 4': expected 'libmpix-ways 1'"},
           {head + "bcast 2 1 64 lines\n", "file:2: expected six words"},
           {head + "bcast 2 1 64 lines 4 5\n", "file:2: expected six words"},
           {head + "\nbarrier 2 1 64 lines 4\n", "file:3: kind 'barrier': expected bcast, reduce"},
           {head + "bcast 1 1 64 lines 4\n", "file:2: ranks '1': expected a number from 2"},
           {head + "bcast two 1 64 lines 4\n", "file:2: ranks 'two'"},
           {head + "bcast 2 0 64 lines 4\n", "file:2: sharers '0': expected a number from 1"},
           {head + "bcast 2 3 64 lines 4\n", "file:2: sharers '3'"},
           {head + "bcast 2 1 0 lines 4\n", "file:2: bytes '0'"},
           {head + "bcast 2 1 -64 lines 4\n", "file:2: bytes '-64'"},
           {head + "bcast 2 1 64x lines 4\n", "file:2: bytes '64x'"},
           {head + "bcast 2 1 k lines 4\n", "file:2: bytes 'k'"},
           {head + "bcast 2 1 65g lines 4\n", "file:2: bytes '65g'"},
           {head + "bcast 2 1 99999999999999999999 lines 4\n", "file:2: bytes '99999999999999999999'"},
           {head + "bcast 2 1 17179869184g lines 4\n", "file:2: bytes '17179869184g'"},  // 2^64
           {head + "bcast 2 1 64 \x1b[2J\xff 4\n", "file:2: way '?[2J?': expected lines, packs or direct"},
           {head + "bcast 2 1 64 line 4\n", "file:2: way 'line': expected lines, packs or direct"},
           {head + "bcast 2 1 64 lines 65\n", "file:2: blocks '65': expected a number from 0 to 64"},
           {head + "bcast 2 1 64 lines -1\n", "file:2: blocks '-1'"},
           {head + "bcast 2 1 64 lines 0\nreduce 2 1 32 lines 0\nbcast 2 1 64 direct 0\n",
            "file:4: bytes '64': expected more than in the line before"}}) {
    INFO(text);
    CHECK(rejection(text).find(expected) == 0);
  }
  for (const char* const path : {"/nowhere/table", "/", "/dev/zero"}) {
    INFO(path);
    try {
      (void)WayTable::from_file(path);
      FAIL("it was read");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find(std::string("MPIX_COLL_TABLE: ") + path + ": ") == 0);
    }
  }
}

TEST_CASE("tables of ways that say something else have another fingerprint", "[ways]") {
  const auto print = [](const std::string& lines) { return WayTable(head + lines, "file").fingerprint(); };
  const std::uint64_t one = print("bcast 2 1 64 lines 4\n");
  CHECK(one == print("# the same\nbcast  2 1 64  lines 4"));
  CHECK(one != 0);
  CHECK(print("") == 0);
  for (const char* const other :
       {"", "reduce 2 1 64 lines 4\n", "bcast 3 1 64 lines 4\n", "bcast 2 2 64 lines 4\n", "bcast 2 1 65 lines 4\n",
        "bcast 2 1 64 direct 4\n", "bcast 2 1 64 lines 5\n", "bcast 2 1 64 lines 4\nbcast 2 1 65 lines 4\n"})
    CHECK(print(other) != one);
}
