// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The steps of an epoch, one by one, on words and a mailbox of this process.
#include "wire/protocol.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace mpix;

namespace {

/// One ordered pair: origin and target in one process.
struct Pair {
  PairWords origin{};
  PairWords target{};
  std::vector<Pack> mailbox;
  std::vector<char> window;
  std::vector<char> staging;
  std::vector<std::string> texts;  ///< what ops read
  std::vector<PutOp> ops;
  SendPeer sender{};
  ReceivePeer receiver{};
  PostPeer poster{};

  /// Slots of so many lines, and the headers at their ends.
  Pair(std::uint32_t depth, std::uint32_t slot_lines, std::size_t window_bytes, std::uint32_t slot_packs = 0)
      : window(window_bytes), staging(window_bytes) {
    Ring ring{nullptr, depth, slot_lines + most_parts - 1, slot_packs};
    if (slot_packs > 0) ring.slot_lines = (ring.slot_lines + 7) / 8 * 8;
    mailbox.resize((ring.bytes() + sizeof(Pack) - 1) / sizeof(Pack));
    ring.lines = lines();
    sender.words = &origin;
    sender.ring = ring;
    sender.slots = depth;
    sender.signals = true;
    receiver.words = &target;
    receiver.ring = ring;
    receiver.window = window.data();
    receiver.staging = staging.data();
    poster.words = &target;
    poster.there = &origin;
  }

  Line* lines() { return reinterpret_cast<Line*>(mailbox.data()); }
  bool may_send() const { return mpix::may_send(sender); }
  void send() { send(sender); }
  void send(const SendPeer& peer) {
    PartCounters& sent = origin.own.sent;
    mpix::send(
        Alone{}, peer, [this](std::uint32_t i) -> const PutOp& { return ops[i]; }, sent[0] + 1, false);
    if (peer.signals) advance(Alone{}, sent, load_counter(sent, 0), false);
  }

  bool has_arrived() {
    Header header{};
    return mpix::has_arrived(receiver, target.own.closed[0] + 1, &header);
  }
  void receive() {
    PartCounters& closed = target.own.closed;
    Header header{};
    REQUIRE(mpix::has_arrived(receiver, closed[0] + 1, &header));
    Alone::Descriptors descriptors;
    CHECK(mpix::receive(Alone{}, receiver, closed[0] + 1, header, descriptors));
    advance(Alone{}, closed, load_counter(closed, 0), false);
  }

  void start_at(std::uint64_t epoch) {
    origin.own.sent[0] = origin.posted = epoch - 1;
    target.own.opened.epochs = target.own.closed[0] = epoch - 1;
  }

  /// The ops of the next epoch: texts into the mailbox, one after another in the window.
  void prepare(const std::vector<std::string>& next, bool in_packs = false) {
    texts = next;
    ops.clear();
    std::uint32_t payload = in_packs ? 0 : 1 + 2 * static_cast<std::uint32_t>(texts.size());
    std::uint64_t offset = 0;
    for (const std::string& text : texts) {
      PutOp op{};
      op.source = text.data();
      op.bytes = text.size();
      op.offset = offset;
      op.descriptor = 1 + 2 * static_cast<std::uint32_t>(ops.size());
      op.payload = payload;
      payload += in_packs ? packs_for(text.size()) : static_cast<std::uint32_t>((text.size() + 7) / 8);
      offset += text.size();
      ops.push_back(op);
    }
    sender.op_count = static_cast<std::uint32_t>(ops.size());
    sender.header = Header::of(sender.op_count, 0);
    if (in_packs) sender.header = sender.header.packed();
    sender.slots = in_packs ? sender.ring.pack_depth() : sender.ring.depth;
  }

  std::string exchange(const std::vector<std::string>& texts, bool in_packs = false) {
    prepare(texts, in_packs);
    std::fill(window.begin(), window.end(), '.');
    announce(poster, poster.words->own.opened.load());
    REQUIRE(may_send());
    REQUIRE_FALSE(has_arrived());
    send();
    receive();
    return std::string(window.data(), window.size());
  }
};

/// The threads of one part meet here.
class Meeting {
 public:
  explicit Meeting(std::uint32_t all) : all_(all) {}
  bool agree(bool yes) {
    std::unique_lock<std::mutex> hold(mutex_);
    so_far_ = so_far_ && yes;
    if (++here_ == all_) {
      agreed_ = so_far_;
      here_ = 0;
      so_far_ = true;
      ++meetings_;
      met_.notify_all();
      return agreed_;
    }
    const unsigned before = meetings_;
    met_.wait(hold, [&] { return meetings_ != before; });
    return agreed_;
  }

 private:
  const std::uint32_t all_;
  std::mutex mutex_;
  std::condition_variable met_;
  std::uint32_t here_ = 0;
  unsigned meetings_ = 0;
  bool so_far_ = true, agreed_ = true;
};

/// Threads as a GPU's blocks have them.
struct Several {
  static constexpr bool carries_packs = true;
  static constexpr std::uint32_t counted_parts = most_parts, batch = 4, lanes = 1, threads = 3;
  struct Descriptors {
    static constexpr std::uint32_t count = 2;
    union {
      Descriptor all[count];
      MessageEntry entries[count];
    };
  };
  std::uint32_t part, parts, thread;
  Meeting& meeting;
  const std::atomic<bool>& released;

  Workers of_part() const { return Workers{thread, threads}; }
  Workers of_peer() const { return Workers{part * threads + thread, parts * threads}; }
  bool agree(bool yes) const { return meeting.agree(yes); }
  bool await(const ReceivePeer&, const Line* line, std::uint32_t flag, std::uint64_t* data) const {
    while (!line_arrived(line, flag, data)) {
      if (released) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool await(const ReceivePeer&, const std::uint64_t* flag, std::uint64_t value) const {
    while (load_acquire(flag) != value) {
      if (released) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool await(const ReceivePeer& peer, const Pack* pack, std::uint32_t lane, std::uint64_t number,
             std::uint64_t* words) const {
    if (!await(peer, &pack->number, number)) return false;
    return Alone::await(peer, pack, lane, number, words);
  }
  static void store_pack(Pack* pack, std::uint32_t lane, const std::uint64_t* words) {
    Alone::store_pack(pack, lane, words);
  }
  static void converge() {}
  bool is_last(std::uint32_t* counted) const {
    // As the fences of a GPU's parts order on both sides of the counter.
    if (__atomic_add_fetch(counted, 1, __ATOMIC_ACQ_REL) < parts) return false;
    __atomic_store_n(counted, 0, __ATOMIC_RELAXED);
    return true;
  }
  template <class Move>
  void share(std::uint32_t count, std::uint64_t most_bytes, Move move) const {
    const Workers all = of_peer();
    if (most_bytes > 8)
      for (std::uint32_t i = 0; i < count; ++i) move(i, all, [](std::uint64_t bytes) { return bytes > 8; });
    for (std::uint32_t i = all.index; i < count; i += all.size)
      move(i, Workers{0, 1}, [](std::uint64_t bytes) { return bytes <= 8; });
  }

  /// Threads that do the same, each for its place among them.
  static void start(std::vector<std::thread>& all, std::uint32_t parts, const std::atomic<bool>& released,
                    std::function<void(const Several&, Descriptors&)> work) {
    for (std::uint32_t part = 0; part < parts; ++part) {
      const auto meeting = std::make_shared<Meeting>(threads);
      const auto descriptors = std::make_shared<Descriptors>();
      for (std::uint32_t thread = 0; thread < threads; ++thread)
        all.emplace_back([=, &released] { work(Several{part, parts, thread, *meeting, released}, *descriptors); });
    }
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

TEST_CASE("texts of every length arrive whole in packs", "[protocol]") {
  Pair pair(4, 64, 1000, 12);
  std::string text;
  for (std::size_t bytes = 1; bytes <= 1000; bytes += bytes < 260 ? 1 : 37) {
    while (text.size() < bytes) text += static_cast<char>('A' + text.size() % 57);
    CHECK(pair.exchange({text}, true) == text + std::string(1000 - bytes, '.'));
    const std::string front = text.substr(0, bytes / 3), back = text.substr(bytes / 3);
    if (!front.empty()) {
      CHECK(pair.exchange({front, back}, true) == text + std::string(1000 - bytes, '.'));
    }
    // As lines of the same slots, where earlier ones had packs.
    if (bytes <= 400) {
      CHECK(pair.exchange({text}) == text + std::string(1000 - bytes, '.'));
    }
  }
}

TEST_CASE("a single put in packs says so in its header", "[protocol]") {
  Pair pair(2, 16, 300, 3);
  pair.prepare({std::string(300, 'x')}, true);
  PutOp& op = pair.ops.front();
  op.descriptor = 0;
  REQUIRE(Header::can_hold(op.offset, op.bytes));
  const Header header = Header::of_single(op.offset, op.bytes).packed();
  CHECK(header.is_single());
  CHECK(header.is_packed());
  CHECK(header.single_bytes() == 300);
  CHECK_FALSE(Header::of_single(op.offset, op.bytes).is_packed());
  CHECK(Header::of(7, 5).packed().descriptors() == 7);
  CHECK(Header::of(7, 5).packed().direct_parts() == 5);
  CHECK_FALSE(Header::of(7, 5).is_packed());
  CHECK_FALSE(Header::can_hold(0, std::uint64_t{1} << 22));
  pair.sender.header = header;
  pair.send();
  pair.receive();
  CHECK(std::string(pair.window.data(), 300) == pair.texts.front());
}

TEST_CASE("there are packs of two epochs, however many slots there are", "[protocol]") {
  for (const std::uint32_t depth : {1u, 2u, 4u}) {
    Pair pair(depth, 16, 130, 2);
    const auto post = [&] { announce(pair.poster, pair.poster.words->own.opened.load()); };
    std::uint32_t ahead = 0;
    for (; ahead < 3 && (pair.prepare({std::string(130, static_cast<char>('a' + ahead))}, true), pair.may_send());
         ++ahead)
      pair.send();
    CHECK(ahead == std::min(depth, 2u) - 1);  // of posts
    // As guards count: the credit is depth less what has been sent.
    CHECK(depth - ahead < credit_needed(pair.sender));
    post();
    CHECK(depth - ahead + 1 >= credit_needed(pair.sender));
    REQUIRE(pair.may_send());
    pair.send();
    for (std::uint32_t i = 0; i <= ahead; ++i) {
      pair.receive();
      CHECK(pair.window[129] == static_cast<char>('a' + (i < ahead ? i : ahead)));
    }
    // Lines may go further ahead.
    pair.prepare({"x"});
    CHECK(credit_needed(pair.sender) == 2);
  }
}

TEST_CASE("an origin waits for the post only when something goes direct, or no slot is free", "[protocol]") {
  Pair pair(2, 16, 8);
  const auto send_one = [&] {
    REQUIRE(pair.may_send());
    pair.send();
  };
  const auto post = [&] { announce(pair.poster, pair.poster.words->own.opened.load()); };
  pair.prepare({"x"});
  send_one();                    // ahead of its post
  CHECK_FALSE(pair.may_send());  // the second slot is known to be free with the first post: it was never used,
  post();                        // but posts alone tell
  send_one();
  CHECK_FALSE(pair.may_send());
  pair.receive();
  CHECK_FALSE(pair.may_send());  // empty, but not posted
  post();
  CHECK(pair.may_send());
  pair.sender.awaits_post = true;
  pair.sender.slots = 1;
  CHECK_FALSE(pair.may_send());  // the third epoch needs the third post
  post();
  CHECK(pair.may_send());
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

TEST_CASE("a post that others may have announced takes nothing back", "[protocol]") {
  Pair pair(2, 4, 64);
  raise_after_loads(&pair.origin.posted, 2);
  announce(pair.poster, pair.target.own.opened.load(), false, false, true);
  CHECK(pair.origin.posted == 2);
  raise_after_loads(&pair.origin.posted, 1);
  CHECK(pair.origin.posted == 2);
  announce(pair.poster, pair.target.own.opened.load(), false, false, true);
  announce(pair.poster, pair.target.own.opened.load(), false, false, true);
  CHECK(pair.origin.posted == 3);
  CHECK(pair.target.own.opened.epochs == 3);
}

TEST_CASE("a word that several raise is what the greatest wrote", "[protocol]") {
  std::uint64_t word = 0;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t first = 0; first < 3; ++first)
    threads.emplace_back([&, first] {
      for (std::uint64_t value = first; value < 30000; value += 3) {
        raise_after_loads(&word, value);
        if (load_acquire(&word) < value) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(word == 29999);
}

TEST_CASE("with one slot an epoch waits for its own post", "[protocol]") {
  Pair pair(1, 16, 8);
  pair.prepare({"x"});
  CHECK_FALSE(pair.may_send());
  announce(pair.poster, pair.poster.words->own.opened.load());
  CHECK(pair.may_send());
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
    pair.send();
    CHECK(std::string(pair.window.data() + 2, text.size()) == text);
    REQUIRE(pair.has_arrived());
  }
  SECTION("staged") {
    op.direct = pair.staging.data() + 2;
    op.descriptor = 1;
    pair.sender.header = Header::of(1, 0);
    pair.ops = {op};
    pair.send();
    CHECK(pair.window[2] == 0);
    pair.receive();
    CHECK(std::string(pair.window.data() + 2, text.size()) == text);
  }
}

TEST_CASE("an epoch in parts is the same as one in one", "[protocol]") {
  Pair pair(2, 64, 24);
  pair.prepare({"first", "second", "third"});
  SendPeer part = pair.sender;
  part.signals = false;
  part.op_count = 1;
  for (part.first_op = 3; part.first_op-- > 0;) pair.send(part);
  CHECK_FALSE(pair.has_arrived());
  pair.sender.op_count = 0;
  pair.send();
  pair.receive();
  CHECK(std::string(pair.window.data(), 16) == "firstsecondthird");
}

TEST_CASE("several threads in several parts do what one does", "[protocol]") {
  Pair pair(2, 64, 256, 8);
  const std::atomic<bool> released{false};
  const std::uint32_t parts_of_send = 3, parts_of_receive = 2;
  const std::vector<std::string> some{"a", std::string(21, 'b'), "12345678", std::string(100, 'c'), "last"};
  const std::string direct(60, 'd');
  for (std::uint64_t epoch = 1; epoch <= 60; ++epoch) {
    const bool goes_direct = epoch % 3 == 0, alone = epoch % 3 == 1;
    const bool in_packs = !goes_direct && epoch % 2 == 0;
    pair.prepare(alone ? std::vector<std::string>{some[epoch % some.size()]} : some, in_packs);
    std::string expected;
    for (const std::string& text : pair.texts) expected += text;
    for (const PutOp& op : pair.ops) pair.sender.bytes += op.bytes;
    pair.sender.awaits_post = goes_direct;
    if (goes_direct) pair.sender.slots = 1;
    if (goes_direct) {
      PutOp op{};
      op.source = direct.data();
      op.direct = pair.window.data() + expected.size();
      op.bytes = direct.size();
      pair.ops.push_back(op);
      ++pair.sender.op_count;
      expected += direct;
    }
    expected.resize(pair.window.size(), '.');
    std::fill(pair.window.begin(), pair.window.end(), '.');
    announce(pair.poster, pair.poster.words->own.opened.load());
    REQUIRE(pair.may_send());
    std::atomic<int> bad{0};
    std::vector<std::thread> threads;
    Several::start(threads, parts_of_receive, released, [&](const Several& crew, Several::Descriptors& descriptors) {
      PartCounters& closed = pair.target.own.closed;
      const EpochCounter before = load_counter(closed, crew.part);
      Header header{};
      while (!has_arrived(pair.receiver, before.epochs + 1, &header)) std::this_thread::yield();
      if (!receive(crew, pair.receiver, before.epochs + 1, header, descriptors)) ++bad;
      if (!crew.agree(true)) ++bad;
      advance(crew, closed, before, true);
    });
    Several::start(threads, parts_of_send, released, [&](const Several& crew, Several::Descriptors&) {
      PartCounters& sent = pair.origin.own.sent;
      const EpochCounter before = load_counter(sent, crew.part);
      send(
          crew, pair.sender, [&](std::uint32_t i) -> const PutOp& { return pair.ops[i]; }, before.epochs + 1, false);
      if (!crew.agree(true)) ++bad;
      advance(crew, sent, before, false);
    });
    for (std::thread& thread : threads) thread.join();
    CHECK(bad == 0);
    CHECK(std::string(pair.window.data(), pair.window.size()) == expected);
    for (std::uint32_t part = 0; part < most_parts; ++part) {
      CHECK(pair.origin.own.sent[part] == epoch);
      CHECK(pair.target.own.closed[part] == epoch);
    }
    CHECK(pair.origin.own.sent.replayed == 0);
    CHECK(pair.target.own.closed.replayed == epoch);
  }
}

TEST_CASE("part 0 counts for those that have left", "[protocol]") {
  Meeting meeting(1);
  const std::atomic<bool> released{false};
  PartCounters counters{};
  for (std::uint32_t part = 0; part < most_parts; ++part) counters[part] = 4;
  advance(Several{0, 5, 0, meeting, released}, counters, load_counter(counters, 0), false, 1u << 2);
  CHECK(counters[0] == 5);
  for (std::uint32_t thread = 1; thread < Several::threads; ++thread)
    advance(Several{0, 5, thread, meeting, released}, counters, EpochCounter{0, 4}, false, 1u << 2);
  for (std::uint32_t part = 0; part < most_parts; ++part)
    CHECK(counters[part] == (part == 0 || part == 2 || part >= 5 ? 5 : 4));
}

TEST_CASE("a released wait for a line that never comes ends, and what was there has been moved", "[protocol]") {
  Pair pair(2, 64, 64);
  const std::atomic<bool> released{true};
  for (const bool direct : {false, true}) {
    pair.prepare({"first", "a second that is longer", "third"});
    pair.sender.awaits_post = direct;
    if (direct) pair.sender.slots = 1;
    announce(pair.poster, pair.poster.words->own.opened.load());
    pair.send();
    const std::uint64_t epoch = pair.target.own.closed[0] + 1;
    Line* const slot = slot_of(pair.receiver.ring, epoch);
    // One word of the second is missing; or the header of another part.
    if (direct)
      write_line_release(slot, Header::of(3, 2).word, flag_of(epoch));
    else
      slot[pair.ops[1].payload + 1] = Line{};
    std::fill(pair.window.begin(), pair.window.end(), '.');
    std::atomic<std::uint32_t> gave_up{0};
    std::vector<std::thread> threads;
    Several::start(threads, 1, released, [&](const Several& crew, Several::Descriptors& descriptors) {
      Header header{};
      const bool is_there = has_arrived(pair.receiver, epoch, &header);
      if (!is_there || !receive(crew, pair.receiver, epoch, header, descriptors)) ++gave_up;
    });
    for (std::thread& thread : threads) thread.join();
    CHECK(gave_up == (direct ? Several::threads : 1u));
    const std::string window(pair.window.data(), 33);
    if (direct)
      CHECK(window == std::string(33, '.'));
    else
      CHECK((window.substr(0, 5) == "first" && window.substr(28) == "third"));
    PartCounters& closed = pair.target.own.closed;
    advance(Alone{}, closed, load_counter(closed, 0), false);
  }
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
    pair.send();
    pair.receive();
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
  for (std::uint32_t part : {1u, 2u}) write_line(pair.lines() + header_line(pair.receiver.ring, part), 0, flag_of(2));
  const auto stale = [&] {
    int count = 0;
    for (std::size_t at = 0; at < pair.sender.ring.bytes() / sizeof(Line); ++at)
      if (at % slot_lines >= 4 && pair.lines()[at].half[0] >> 32 != 0) ++count;
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

namespace {

/// A relayed pair, whose relay and network are the test.
struct RelayedPair {
  struct Side {
    RelayedIn in;
    alignas(64) char inbox[inboxes][4096];
  };
  RelayedPair() : target(new Side()), outgoing(1 << 16), landing(1 << 16), window(1 << 14), source(1 << 16) {
    words.allowed = 1;
    send.out = &words;
    send.parts_packed = counted;
    send.data = outgoing.data();
    sender.words = &origin;
    sender.relayed = &send;
    sender.slots = 1;
    sender.allowed = &words.allowed;
    sender.signals = true;
    receiver.words = &received;
    receiver.relayed = &target->in;
    receiver.ring = Ring{reinterpret_cast<Line*>(target->inbox), inboxes, sizeof target->inbox[0] / sizeof(Line), 0};
    receiver.window = window.data();
  }

  /// Random puts that do not overlap; what the window is then.
  std::vector<char> plan(std::mt19937& random, std::uint32_t shift) {
    ops.clear(), entries.clear();
    std::fill(window.begin(), window.end(), '.');
    for (char& c : source) c = static_cast<char>('a' + random() % 26);
    std::vector<char> expected = window;
    std::size_t at = random() % 20, from = 0;
    send.bytes = sender.bytes = 0;
    for (std::uint32_t i = random() % 7; i > 0; --i) {
      const std::size_t bytes = 1 + random() % (random() % 3 == 0 ? 900 : 40);
      const std::size_t alignment = data_alignment(bytes), data = (send.bytes + alignment - 1) / alignment * alignment;
      ops.push_back({source.data() + from, send.data + data, bytes, at, 0, 0});
      entries.push_back({at, bytes, data});
      std::memcpy(expected.data() + at, source.data() + from, bytes);
      send.bytes = data + bytes;
      sender.bytes += bytes;
      at += bytes + random() % 30;
      from += bytes + random() % 5;
    }
    sender.op_count = static_cast<std::uint32_t>(ops.size());
    send.chunk_shift = shift;
    send.message = random();
    return expected;
  }

  /// What relay and network do: the entries with the first chunk, and then the others, one by one or all late.
  void carry(std::uint64_t epoch, std::mt19937& random) {
    Task task;
    while (!take_task(words.lane(), epoch, &task)) std::this_thread::yield();
    REQUIRE(task.what == task_of(TaskKind::send));
    REQUIRE(task.word[0] == send.message);
    const bool apart = send.chunk_shift != 0;
    char* const inbox = target->inbox[epoch % inboxes];
    char* const data = apart ? landing.data() : inbox + entries_bytes(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      MessageEntry entry = entries[i];
      entry.data += apart ? reinterpret_cast<std::uintptr_t>(data) : entries_bytes(entries.size());
      std::memcpy(inbox + i * sizeof entry, &entry, sizeof entry);
    }
    const std::uint32_t chunks = chunks_in(send.bytes, send.chunk_shift);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      while (chunk > 0 && load_acquire(&words.packed[chunk]) != epoch) std::this_thread::yield();
      const DataRange range = DataRange::of_chunk(chunk, send.chunk_shift);
      const std::uint64_t end = std::min<std::uint64_t>(range.end, send.bytes);
      std::memcpy(data + range.begin, send.data + range.begin, end - range.begin);
      // What is sent may be packed anew only when all of it has gone.
      std::fill(send.data + range.begin, send.data + end, '#');
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      if (chunk == 0)
        store_release(&target->in.arrival[epoch % inboxes],
                      Arrival::of(epoch, send.chunk_shift, entries.size(), send.bytes).word);
      else
        store_release(&target->in.landed[chunk], epoch);
    }
  }

  RelayedOut words{};
  std::unique_ptr<Side> target;
  std::uint32_t counted[most_chunks] = {};
  PairWords origin{}, received{};
  std::vector<char> outgoing, landing, window, source;
  std::vector<PutOp> ops;
  std::vector<MessageEntry> entries;
  RelayedSend send{};
  SendPeer sender{};
  ReceivePeer receiver{};
};

}  // namespace

TEST_CASE("a message is packed and unpacked by several parts, in chunks, with every byte in its place", "[protocol]") {
  const std::uint32_t parts_of_send = GENERATE(1u, 3u), parts_of_receive = GENERATE(1u, 2u);
  // In the inbox; apart, and not cut; chunks of 32 bytes and more: puts lie across their borders.
  const std::uint32_t shift = GENERATE(0u, one_chunk, 5u, 8u);
  CAPTURE(parts_of_send, parts_of_receive, shift);
  std::mt19937 random(parts_of_send * 100 + parts_of_receive * 10 + shift);
  RelayedPair pair;
  const std::atomic<bool> released{false};
  for (std::uint64_t epoch = 1; epoch <= 60; ++epoch) {
    const std::vector<char> expected = pair.plan(random, shift);
    if (chunks_in(pair.send.bytes, shift) > most_chunks) pair.send.chunk_shift = 8;
    REQUIRE(may_send(pair.sender));
    std::vector<std::thread> threads;
    std::atomic<int> bad{0};
    Several::start(threads, parts_of_receive, released, [&](const Several& crew, Several::Descriptors& descriptors) {
      Header arrival{};
      while (!message_arrived(*pair.receiver.relayed, epoch, &arrival.word)) std::this_thread::yield();
      if (!crew.agree(true)) ++bad;
      if (!receive(crew, pair.receiver, epoch, arrival, descriptors)) ++bad;
    });
    Several::start(threads, parts_of_send, released, [&](const Several& crew, Several::Descriptors&) {
      const EpochCounter before = load_counter(pair.origin.own.sent, crew.part);
      send(
          crew, pair.sender, [&](std::uint32_t i) -> const PutOp& { return pair.ops[i]; }, epoch, false);
      if (!crew.agree(true)) ++bad;
      advance(crew, pair.origin.own.sent, before, false);
    });
    pair.carry(epoch, random);
    for (std::thread& thread : threads) thread.join();
    REQUIRE(bad == 0);
    REQUIRE(std::string(pair.window.data(), pair.window.size()) == std::string(expected.data(), expected.size()));
    CHECK(last_task(pair.words.lane()) == epoch);
    CHECK_FALSE(may_send(pair.sender));  // the relay has not said that this one is over
    store_release(&pair.words.allowed, epoch + 1);
  }
}
