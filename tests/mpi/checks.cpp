// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The checks of the other tests find what is wrong, and where.
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

constexpr std::size_t sizes[] = {1, 7, 8, 1000, 300000, 700000};

void corrupt(char* byte) {
  const char wrong = static_cast<char>(contents<char>(byte, 1)[0] ^ 0x10);
  device().write(byte, &wrong, 1);
}

/// What a check reports once the stream is there.
std::vector<Place> reports(Stream& stream) {
  device().wait_for(stream);
  return device().take_reports();
}

void check_report(const std::vector<Place>& found, const std::string& what, std::size_t position) {
  INFO(what << ", byte " << position);
  REQUIRE(found.size() == 1);
  INFO(found[0].what);
  CHECK(found[0].what.find(what + ": byte " + std::to_string(position) + " is") == 0);
}

}  // namespace

TEST_CASE("a wrong byte is found where it is") {
  Stream stream;
  const Pattern pattern(key({1, static_cast<std::uint64_t>(rank())}));
  for (std::size_t bytes : sizes) {
    Buffer one(bytes + 2), other(bytes);
    char* data = one.data() + 1;  // not aligned
    for (std::size_t position : {std::size_t{0}, bytes / 2, bytes - 1}) {
      stream.fill(data, bytes, pattern);
      stream.fill(other.data(), bytes, pattern);
      stream.check(data, bytes, pattern, HERE("right"));
      device().check_same(stream, data, other.data(), bytes, HERE("same"));
      CHECK(reports(stream).empty());
      corrupt(data + position);
      stream.check(data, bytes, pattern, HERE("wrong"));
      check_report(reports(stream), "wrong", position);
      device().check_same(stream, data, other.data(), bytes, HERE("differs"));
      check_report(reports(stream), "differs", position);
    }
    const std::vector<char> around = contents<char>(one.data(), bytes + 2);
    CHECK(around.front() == 0);
    CHECK(around.back() == 0);
  }
}

TEST_CASE("patterns differ by key, position and number, and the host computes the same") {
  constexpr std::size_t bytes = 1000;
  Stream stream;
  Buffer data(bytes), number(sizeof(std::uint64_t));
  const auto* count = number.as<std::uint64_t>();
  const Pattern pattern = Pattern(77).counted_by(count);
  for (std::uint64_t k = 1; k <= 3; ++k) {
    device().count(stream, number.as<std::uint64_t>());
    device().fill(stream, data.data(), bytes, pattern, 5);
    device().check(stream, data.data(), bytes, pattern, HERE("counted"), 5);
    CHECK(reports(stream).empty());
    const std::vector<char> got = contents<char>(data.data(), bytes);
    CHECK(Pattern(77).at(k).agrees(got.data(), bytes, 5) == bytes);
    CHECK(Pattern(77).at(k + 1).agrees(got.data(), bytes, 5) < 8);
    stream.check(data.data(), bytes, Pattern(78), HERE("another key"));
    CHECK(reports(stream).size() == 1);
    device().check(stream, data.data(), bytes, pattern, HERE("another position"), 6);
    CHECK(reports(stream).size() == 1);
    device().count(stream, number.as<std::uint64_t>());
    device().check(stream, data.data(), bytes, pattern, HERE("another number"), 5);
    CHECK(reports(stream).size() == 1);
    const std::uint64_t back = k;
    number.write(&back, sizeof back);
  }
}
