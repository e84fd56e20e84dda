// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The steps of an epoch, one by one, on words and a mailbox of this process.
#include "wire/protocol.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "catch.h"

using namespace mpix;

namespace {

constexpr Workers alone{0, 1};

void finish(const SendPeer& peer) {
  write_header(peer, peer.words->own.sent[0] + 1, 0, 1);
  advance(&peer.words->own.sent[0]);
}

void finish(const ReceivePeer& peer) { advance(&peer.words->own.closed[0]); }

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

  /// Slots of so many lines, and the headers at their ends.
  Pair(std::uint32_t depth, std::uint32_t slot_lines, std::size_t window_bytes)
      : lines(depth * (slot_lines + most_parts - 1)), window(window_bytes), staging(window_bytes) {
    const Ring ring{lines.data(), depth, slot_lines + most_parts - 1};
    sender.words = &origin;
    sender.ring = ring;
    sender.signals = true;
    receiver.words = &target;
    receiver.ring = ring;
    receiver.window = window.data();
    receiver.staging = staging.data();
    poster.words = &target;
    poster.there = &origin;
  }

  struct Ops {
    const std::vector<PutOp>& all;
    const PutOp& operator()(std::uint32_t i) const { return all[i]; }
  };
  Ops op() const { return Ops{ops}; }

  void start_at(std::uint64_t epoch) {
    origin.own.sent[0] = origin.posted = epoch - 1;
    target.own.opened.epochs = target.own.closed[0] = epoch - 1;
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
    sender.op_count = static_cast<std::uint32_t>(ops.size());
    sender.header = Header::of(sender.op_count, 0);
  }

  std::string exchange(const std::vector<std::string>& texts) {
    prepare(texts);
    std::fill(window.begin(), window.end(), '.');
    announce(poster, poster.words->own.opened.load());
    REQUIRE(may_send(sender));
    REQUIRE_FALSE(has_arrived(receiver));
    send(sender, op(), alone);
    finish(sender);
    REQUIRE(has_arrived(receiver));
    receive(receiver, alone);
    finish(receiver);
    return std::string(window.data(), window.size());
  }
};

}  // namespace

TEST_CASE("texts of every length arrive whole, and nothing beside them changes", "[protocol]") {
  Pair pair(2, 64, 40);
  CHECK(pair.exchange({"a"}) == "a" + std::string(39, '.'));
  CHECK(pair.exchange({"12345678", "9", "abcdefghijklmnopqrstu"}) ==
        "123456789abcdefghijklmnopqrstu" + std::string(10, '.'));
  CHECK(pair.exchange({}) == std::string(40, '.'));
  CHECK(pair.exchange({"0123456789012345678901234567890123456789"}) == "0123456789012345678901234567890123456789");
}

TEST_CASE("an origin waits for the post only when something goes direct, or no slot is free", "[protocol]") {
  Pair pair(2, 16, 8);
  const auto send_one = [&] {
    REQUIRE(may_send(pair.sender));
    send(pair.sender, pair.op(), alone);
    finish(pair.sender);
  };
  const auto post = [&] { announce(pair.poster, pair.poster.words->own.opened.load()); };
  pair.prepare({"x"});
  send_one();                          // ahead of its post
  CHECK_FALSE(may_send(pair.sender));  // the second slot is known to be free with the first post: it was never used,
  post();                              // but posts alone tell
  send_one();
  CHECK_FALSE(may_send(pair.sender));
  receive(pair.receiver, alone);
  finish(pair.receiver);
  CHECK_FALSE(may_send(pair.sender));  // empty, but not posted
  post();
  CHECK(may_send(pair.sender));
  pair.sender.awaits_post = true;
  CHECK_FALSE(may_send(pair.sender));  // the third epoch needs the third post
  post();
  CHECK(may_send(pair.sender));
}

TEST_CASE("a pair that is retired announces nothing", "[protocol]") {
  Pair pair(2, 16, 8);
  announce(pair.poster, {0, retired_epoch - 1});
  CHECK(pair.origin.posted == retired_epoch);
  CHECK(pair.target.own.opened.epochs == retired_epoch);
  pair.origin.posted = 0;
  announce(pair.poster, {0, retired_epoch});
  CHECK(pair.origin.posted == 0);
  CHECK(pair.target.own.opened.epochs == retired_epoch);
}

TEST_CASE("with one slot an epoch waits for its own post", "[protocol]") {
  Pair pair(1, 16, 8);
  pair.prepare({"x"});
  CHECK_FALSE(may_send(pair.sender));
  announce(pair.poster, pair.poster.words->own.opened.load());
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
    pair.sender.header = Header::of(1, 0);
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

TEST_CASE("a single put needs no descriptor", "[protocol]") {
  Pair pair(2, 16, 40);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{21}}) {
    const std::string text(bytes, static_cast<char>('a' + bytes));
    pair.prepare({text});
    pair.ops[0].offset = 3;
    pair.ops[0].descriptor = 0;
    pair.ops[0].payload = Header::single_payload;
    pair.sender.header = Header::of_single(3, bytes);
    std::fill(pair.window.begin(), pair.window.end(), '.');
    announce(pair.poster, pair.poster.words->own.opened.load());
    send(pair.sender, pair.op(), alone);
    finish(pair.sender);
    REQUIRE(has_arrived(pair.receiver));
    receive(pair.receiver, alone);
    finish(pair.receiver);
    CHECK(std::string(pair.window.data(), 40) == "..." + text + std::string(37 - bytes, '.'));
  }
}

TEST_CASE("a header holds a put up to its limits", "[protocol]") {
  const std::uint64_t offset = (std::uint64_t{1} << Header::offset_bits) - 1, bytes = (1u << Header::bytes_bits) - 1;
  CHECK(Header::can_hold(offset, bytes));
  CHECK_FALSE(Header::can_hold(offset + 1, 1));
  CHECK_FALSE(Header::can_hold(0, bytes + 1));
  const Header header = Header::of_single(offset, bytes);
  CHECK(header.is_single());
  CHECK(header.single_offset() == offset);
  CHECK(header.single_bytes() == bytes);
  CHECK_FALSE(Header::of(5000, most_parts).is_single());
}

TEST_CASE("a line has arrived when both its halves have", "[protocol]") {
  Line whole, line;
  write_line(&whole, 0x0123456789abcdefu, 7);
  for (const int first : {0, 1}) {
    write_line(&line, 0xfedcba9876543210u, 6);
    std::uint64_t data = 0;
    CHECK_FALSE(line_arrived(&line, 7, &data));
    line.half[first] = whole.half[first];
    CHECK_FALSE(line_arrived(&line, 7, &data));
    CHECK_FALSE(line_arrived(&line, 6, &data));
    line.half[1 - first] = whole.half[1 - first];
    REQUIRE(line_arrived(&line, 7, &data));
    CHECK(data == 0x0123456789abcdefu);
  }
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
  for (int i = 0; i < 40; ++i)
    CHECK(pair.exchange({"wrap" + std::to_string(10 + i)}) == "wrap" + std::to_string(10 + i) + std::string(10, '.'));
}

TEST_CASE("every line that is not used is wiped in time", "[protocol]") {
  Pair pair(2, 16, 128);
  pair.exchange({std::string(100, 'x')});
  pair.exchange({std::string(100, 'y')});
  const std::uint32_t slot_lines = pair.receiver.ring.slot_lines;
  // The headers of two more parts, of an epoch whose data went direct in three.
  for (std::uint32_t part : {1u, 2u})
    write_line(pair.lines.data() + header_line(pair.receiver.ring, part), 0, flag_of(2));
  const auto stale = [&] {
    int count = 0;
    for (std::size_t at = 0; at < pair.lines.size(); ++at)
      if (at % slot_lines >= 4 && pair.lines[at].half[0] >> 32 != 0) ++count;
    return count;
  };
  CHECK(stale() == 26);  // 3 + 13 lines an epoch
  for (std::uint32_t i = 0; i < 2 * (slot_lines - 1) * rounds_per_scrub; ++i) pair.exchange({"short"});
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
