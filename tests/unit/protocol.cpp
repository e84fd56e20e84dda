// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The steps of an epoch, one by one, on words and a mailbox of this process.
#include "kernels/protocol.h"

#include <cstring>
#include <string>
#include <vector>

#include "catch.h"

using namespace mpix;

namespace {

constexpr Team alone{0, 1};

void finish(const SendPeer& peer) {
  write_header(peer);
  advance(peer);
}

/// One ordered pair: origin and target in one process.
struct Pair {
  PairWords origin{};
  PairWords target{};
  std::vector<Line> lines;
  std::vector<char> window;
  std::vector<char> staging;
  std::vector<std::string> texts;  ///< what ops read
  std::vector<PutOp> ops;
  SendPeer sender{};
  ReceivePeer receiver{};
  PostPeer poster{};

  Pair(std::uint32_t depth, std::uint32_t slot_lines, std::size_t window_bytes)
      : lines(depth * slot_lines), window(window_bytes), staging(window_bytes) {
    const Ring ring{lines.data(), depth, slot_lines};
    sender.words = &origin;
    sender.ring = ring;
    sender.signals = true;
    receiver.words = &target;
    receiver.ring = ring;
    receiver.acknowledged = &origin.acknowledged;
    receiver.window = window.data();
    receiver.staging = staging.data();
    poster.words = &target;
    poster.posted = &origin.posted;
  }

  struct Ops {
    const std::vector<PutOp>& all;
    const PutOp& operator()(std::uint32_t i) const { return all[i]; }
  };
  Ops op() const { return Ops{ops}; }

  void start_at(std::uint64_t epoch) {
    origin.own.sent = origin.acknowledged = origin.posted = epoch - 1;
    target.own.opened = target.own.closed = epoch - 1;
  }

  /// The ops of the next epoch: texts into the mailbox, one after another in the window.
  void prepare(const std::vector<std::string>& next) {
    texts = next;
    ops.clear();
    std::uint32_t payload = 1 + 2 * static_cast<std::uint32_t>(texts.size());
    std::uint64_t offset = 0;
    for (const std::string& text : texts) {
      PutOp op{};
      op.source = text.data();
      op.bytes = text.size();
      op.offset = offset;
      op.descriptor = 1 + 2 * static_cast<std::uint32_t>(ops.size());
      op.payload = payload;
      payload += static_cast<std::uint32_t>((text.size() + 7) / 8);
      offset += text.size();
      ops.push_back(op);
    }
    sender.op_count = sender.descriptors = static_cast<std::uint32_t>(ops.size());
  }

  std::string exchange(const std::vector<std::string>& texts) {
    prepare(texts);
    std::fill(window.begin(), window.end(), '.');
    announce(poster);
    REQUIRE(may_send(sender));
    REQUIRE_FALSE(has_arrived(receiver));
    send(sender, op(), alone);
    finish(sender);
    REQUIRE(has_arrived(receiver));
    receive(receiver, alone);
    acknowledge(receiver);
    return std::string(window.data(), window.size());
  }
};

}  // namespace

TEST_CASE("texts of every length arrive whole, and nothing beside them changes", "[protocol]") {
  Pair pair(2, 64, 40);
  CHECK(pair.exchange({"a"}) == "a" + std::string(39, '.'));
  CHECK(pair.exchange({"12345678", "9", "abcdefghijklmnopqrstu"}) == "123456789abcdefghijklmnopqrstu" + std::string(10, '.'));
  CHECK(pair.exchange({}) == std::string(40, '.'));
  CHECK(pair.exchange({"0123456789012345678901234567890123456789"}) == "0123456789012345678901234567890123456789");
}

TEST_CASE("an origin waits for a free slot, and for the post only when something goes direct", "[protocol]") {
  Pair pair(2, 16, 8);
  pair.prepare({"x"});
  for (int epoch = 0; epoch < 2; ++epoch) {
    REQUIRE(may_send(pair.sender));
    send(pair.sender, pair.op(), alone);
    finish(pair.sender);
  }
  CHECK_FALSE(has_credit(pair.sender));
  receive(pair.receiver, alone);
  CHECK_FALSE(has_credit(pair.sender));
  acknowledge(pair.receiver);
  CHECK(may_send(pair.sender));
  pair.sender.awaits_post = true;
  CHECK_FALSE(may_send(pair.sender));
  announce(pair.poster);
  announce(pair.poster);
  CHECK_FALSE(may_send(pair.sender));  // the third epoch needs the third post
  announce(pair.poster);
  CHECK(may_send(pair.sender));
}

TEST_CASE("a direct put lands in the window, a staged one only when it is received", "[protocol]") {
  Pair pair(2, 16, 16);
  const std::string text = "direct data";
  PutOp op{};
  op.source = text.data();
  op.bytes = text.size();
  op.offset = 2;
  pair.sender.op_count = 1;

  SECTION("direct") {
    op.direct = pair.window.data() + 2;
    pair.ops = {op};
    send(pair.sender, pair.op(), alone);
    CHECK(std::string(pair.window.data() + 2, text.size()) == text);
    finish(pair.sender);
    REQUIRE(has_arrived(pair.receiver));
  }
  SECTION("staged") {
    op.direct = pair.staging.data() + 2;
    op.descriptor = 1;
    pair.sender.descriptors = 1;
    pair.ops = {op};
    send(pair.sender, pair.op(), alone);
    finish(pair.sender);
    CHECK(pair.window[2] == 0);
    REQUIRE(has_arrived(pair.receiver));
    receive(pair.receiver, alone);
    CHECK(std::string(pair.window.data() + 2, text.size()) == text);
  }
}

TEST_CASE("an epoch in parts is the same as one in one", "[protocol]") {
  Pair pair(2, 64, 24);
  pair.prepare({"first", "second", "third"});
  SendPeer part = pair.sender;
  part.signals = false;
  part.op_count = 1;
  for (part.first_op = 3; part.first_op-- > 0;) send(part, pair.op(), alone);
  CHECK_FALSE(has_arrived(pair.receiver));
  finish(pair.sender);
  REQUIRE(has_arrived(pair.receiver));
  receive(pair.receiver, alone);
  CHECK(std::string(pair.window.data(), 16) == "firstsecondthird");
}

TEST_CASE("flags wrap without a zero", "[protocol]") {
  CHECK(flag_of(0) == 1);
  CHECK(flag_of(0xfffffffdull) == 0xfffffffeu);
  CHECK(flag_of(0xfffffffeull) == 0xffffffffu);
  CHECK(flag_of(0xffffffffull) == 1);
  CHECK(flag_of(0x100000000ull) == 2);
}

TEST_CASE("epochs go on across the wrap of their flags", "[protocol]") {
  Pair pair(2, 16, 16);
  pair.start_at(0xfffffff0ull);
  for (int i = 0; i < 40; ++i) CHECK(pair.exchange({"wrap" + std::to_string(10 + i)}) == "wrap" + std::to_string(10 + i) + std::string(10, '.'));
}

TEST_CASE("every line that is not used is wiped in time", "[protocol]") {
  Pair pair(2, 16, 128);
  pair.exchange({std::string(100, 'x')});
  pair.exchange({std::string(100, 'y')});
  const auto stale = [&] {
    int count = 0;
    for (std::size_t at = 0; at < pair.lines.size(); ++at)
      if (at % 16 >= 4 && pair.lines[at].half[0] >> 32 != 0) ++count;
    return count;
  };
  CHECK(stale() == 24);  // 3 + 13 lines an epoch
  for (std::uint32_t i = 0; i < 2 * 15 * rounds_per_scrub; ++i) pair.exchange({"short"});
  CHECK(stale() == 0);
}

TEST_CASE("words are read and written byte by byte at the end of a buffer", "[protocol]") {
  std::string from = "abcdefghijk";
  CHECK(load_word(from.data(), 1, from.size()) == 0x6b6a69u);
  std::string to(16, '.');
  store_word(&to[1], 0, 11, load_word(from.data(), 0, 11));
  store_word(&to[1], 1, 11, load_word(from.data(), 1, 11));
  CHECK(to == ".abcdefghijk....");
}
