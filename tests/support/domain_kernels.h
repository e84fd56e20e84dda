// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpix_device/rma.h"
#include "support/random.h"

/// What ranks of a domain do in tests: one source for CUDA, HIP and threads of the host. `T` is the rank's team.
namespace test {

using mpix::dev::Ctx;
using mpix::dev::Result;

/// What a rank found out; in memory that the host reads afterwards.
struct Findings {
  std::uint64_t operations, faults;
  std::uint64_t first[6];  ///< of the first fault: a number of the place in the source, and what was found there
};

MPIX_DEV_FN void fault(const Ctx& c, Findings& findings, std::uint64_t line, std::uint64_t a = 0, std::uint64_t b = 0,
                       std::uint64_t d = 0, std::uint64_t e = 0) {
  if (!mpix::dev::is_first(c)) return;
  if (findings.faults++ > 0) return;
  const std::uint64_t all[] = {line, a, b, d, e, c.rank};
  for (int i = 0; i < 6; ++i) findings.first[i] = all[i];
}
#define DOMAIN_EXPECT(c, findings, holds)             \
  do {                                                \
    if (!(holds)) test::fault(c, findings, __LINE__); \
  } while (false)

MPIX_DEV_FN void fill(const Ctx& c, char* to, std::size_t bytes, const Pattern& pattern) {
  const mpix::Workers team = mpix::dev::team_of(c);
  for (std::size_t i = team.index; i < bytes; i += team.size) to[i] = static_cast<char>(pattern.byte(i));
}
/// How many bytes differ, to the thread that asks: each looks at its own. A rank adds those of all its threads in
/// `sum`, a word that they share.
MPIX_DEV_FN std::uint64_t differing(const Ctx& c, const char* data, std::size_t bytes, const Pattern& pattern,
                                    std::uint64_t* sum) {
  const mpix::Workers team = mpix::dev::team_of(c);
  mpix::dev::sync_team(c);
  if (team.index == 0) *sum = 0;
  mpix::dev::sync_team(c);
  std::uint64_t wrong = 0;
  for (std::size_t i = team.index; i < bytes; i += team.size)
    if (static_cast<unsigned char>(data[i]) != pattern.byte(i)) ++wrong;
  if (wrong > 0) (void)mpix::fetch_add_on_device(sum, wrong);
  mpix::dev::sync_team(c);
  return mpix::load_relaxed(sum);
}

/// Random operations against a model of what may match.
///
/// In each round every rank sends `ops` notifications, which all can compute, and then takes those of the round that
/// are for it, by random queries each of which matches at least one of them. A query with a wildcard may also get one
/// of a later round, from a rank that is ahead: at most `rounds_ahead`, as there are barriers. What it gets must be the
/// first of its source that matches and was not taken: that is all that the order of arrival leaves open.
struct RandomTest {
  std::uint64_t seed;
  std::uint32_t rounds;
  std::int32_t windows[3];
  std::uint32_t most_bytes;  ///< of an operation, without those that are `large`
  std::uint32_t large;

  static constexpr std::uint32_t ops = 8, rounds_ahead = 4, slots = 8, tags = 5;

  TEST_FN std::size_t slot_bytes() const { return (most_bytes > large ? most_bytes : large) + 64; }
  /// In each of the three windows: what others put, by source, round and operation; and what they read.
  TEST_FN std::size_t part_bytes(std::uint32_t ranks) const {
    return (std::size_t{ranks} * slots * ops + 1) * slot_bytes();
  }
  /// Of a rank: what it took, by source and round; a word for sums; what it puts from; the same for what it puts ahead.
  TEST_FN std::size_t scratch_bytes(std::uint32_t ranks) const {
    return (std::size_t{ranks} * slots + 4) * 8 + 2 * slot_bytes() + 64;
  }
};

enum class Act : std::uint32_t { put_notify, notify, put_and_notify, get_notify };

struct Operation {
  std::uint32_t target, window, tag, bytes, shift;
  Act act;
  std::uint64_t key;
};

TEST_FN Operation operation(const RandomTest& t, std::uint32_t ranks, std::uint32_t source, std::uint64_t round,
                            std::uint32_t k) {
  const std::uint64_t key = mix(mix(mix(t.seed ^ source) ^ round) ^ k);
  std::uint64_t bits = mix(key);
  Operation op{};
  op.key = key;
  op.target = static_cast<std::uint32_t>(bits % ranks);
  bits = mix(bits);
  op.window = static_cast<std::uint32_t>(bits % 3);
  op.tag = static_cast<std::uint32_t>((bits >> 8) % RandomTest::tags);
  const std::uint32_t act = static_cast<std::uint32_t>((bits >> 16) % 16);
  op.act = act < 10 ? Act::put_notify : act < 12 ? Act::notify : act < 14 ? Act::put_and_notify : Act::get_notify;
  const std::uint32_t size = static_cast<std::uint32_t>((bits >> 24) % 16);
  const std::uint32_t below = size < 2 ? 1 : size < 5 ? 9 : size < 9 ? 65 : size < 12 ? 1025 : t.most_bytes + 1;
  bits = mix(bits);
  op.bytes = static_cast<std::uint32_t>(bits % (below < t.most_bytes + 1 ? below : t.most_bytes + 1));
  if ((bits >> 32) % 64 == 0) op.bytes = t.large;
  op.shift = (bits >> 40) % 3 == 0 ? static_cast<std::uint32_t>((bits >> 44) % 24) : 0;
  if (op.act == Act::notify) op.bytes = 0;
  return op;
}

class RandomRank {
 public:
  MPIX_DEV_METHOD RandomRank(Ctx& c, const RandomTest& t, char* const parts[3], char* scratch, Findings& findings)
      : c_(c), t_(t), findings_(findings), ranks_(c.p.ranks) {
    for (int i = 0; i < 3; ++i) parts_[i] = parts[i];
    taken_ = reinterpret_cast<std::uint64_t*>(scratch);
    sum_ = taken_ + std::size_t{ranks_} * RandomTest::slots;
    source_ = scratch + (std::size_t{ranks_} * RandomTest::slots + 4) * 8;
    ahead_ = source_ + t.slot_bytes();
  }

  MPIX_DEV_METHOD void run() {
    using namespace mpix::dev;
    for (int i = 0; i < 3; ++i) fill(c_, to_be_read(i), t_.slot_bytes(), readable(c_.rank, i));
    const mpix::Workers team = team_of(c_);
    for (std::size_t i = team.index; i < std::size_t{ranks_} * RandomTest::slots; i += team.size) taken_[i] = 0;
    expect(barrier(c_, world), __LINE__);
    for (std::uint64_t round = 0; round < t_.rounds; ++round) {
      for (std::uint32_t k = 0; k < RandomTest::ops; ++k) send(round, k);
      take(round);
      if (round % RandomTest::rounds_ahead == RandomTest::rounds_ahead - 1) expect(barrier(c_, world), __LINE__);
    }
    expect(barrier(c_, world), __LINE__);
    int flag = 0;
    expect(mpix::dev::test(c_, -1, -1, -1, 1, &flag, nullptr), __LINE__);
    if (flag) wrong(__LINE__);  // nothing is left
  }

 private:
  MPIX_DEV_METHOD Pattern readable(std::uint32_t rank, int window) const {
    return Pattern(mix(t_.seed ^ (std::uint64_t{rank} << 32)) + static_cast<std::uint64_t>(window));
  }
  MPIX_DEV_METHOD std::size_t place(std::uint32_t source, std::uint64_t round, std::uint32_t k) const {
    return ((std::size_t{source} * RandomTest::slots + round % RandomTest::slots) * RandomTest::ops + k) *
           t_.slot_bytes();
  }
  MPIX_DEV_METHOD std::size_t read_place() const {
    return std::size_t{ranks_} * RandomTest::slots * RandomTest::ops * t_.slot_bytes();
  }
  MPIX_DEV_METHOD char* to_be_read(int window) const { return parts_[window] + read_place(); }
  MPIX_DEV_METHOD void wrong(std::uint64_t line, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t d = 0,
                             std::uint64_t e = 0) {
    fault(c_, findings_, line, a, b, d, e);
  }
  MPIX_DEV_METHOD void expect(Result result, std::uint64_t line) {
    if (result != Result::ok) wrong(line, static_cast<std::uint64_t>(result));
  }
  MPIX_DEV_METHOD std::uint64_t& taken(std::uint32_t source, std::uint64_t round) {
    return taken_[std::size_t{source} * RandomTest::slots + round % RandomTest::slots];
  }

  MPIX_DEV_METHOD void send(std::uint64_t round, std::uint32_t k) {
    using namespace mpix::dev;
    const Operation op = operation(t_, ranks_, c_.rank, round, k);
    const int window = t_.windows[op.window], target = static_cast<int>(op.target), tag = static_cast<int>(op.tag);
    const std::size_t at = place(c_.rank, round, k) + op.shift;
    char* const from = source_ + op.shift % 16;
    if (is_first(c_)) ++findings_.operations;
    switch (op.act) {
      case Act::put_notify:
        fill(c_, from, op.bytes, Pattern(op.key));
        expect(put_notify(c_, window, target, at, op.bytes, from, tag), __LINE__);
        break;
      case Act::put_and_notify:
        fill(c_, from, op.bytes, Pattern(op.key));
        expect(put(c_, window, target, at, op.bytes, from), __LINE__);
        if (op.key % 2 != 0) {
          // What is put before is there as well; here by a notification with data of its own.
          fill(c_, ahead_, 8, Pattern(op.key + 1));
          expect(put_notify(c_, window, target, at + t_.slot_bytes() - 32 - op.shift, 8, ahead_, tag), __LINE__);
        } else {
          expect(notify(c_, window, target, tag), __LINE__);
        }
        break;
      case Act::notify:
        expect(notify(c_, window, target, tag), __LINE__);
        break;
      case Act::get_notify: {
        expect(get_notify(c_, window, target, read_place(), op.bytes, from, tag), __LINE__);
        const std::uint64_t bad = differing(c_, from, op.bytes, readable(op.target, static_cast<int>(op.window)), sum_);
        if (bad > 0) wrong(__LINE__, bad, op.bytes);
        break;
      }
    }
  }

  /// The n-th that is for this rank and was not taken, of this round and those before.
  MPIX_DEV_METHOD std::uint32_t outstanding(std::uint64_t round, std::uint32_t n, Operation* found,
                                            std::uint32_t* source) {
    std::uint32_t count = 0;
    for (std::uint32_t o = 0; o < ranks_; ++o)
      for (std::uint32_t k = 0; k < RandomTest::ops; ++k) {
        if (taken(o, round) >> k & 1) continue;
        const Operation op = operation(t_, ranks_, o, round, k);
        if (op.target != c_.rank) continue;
        if (count++ != n) continue;
        *found = op;
        *source = o;
      }
    return count;
  }
  MPIX_DEV_METHOD static bool fits(const Operation& op, const int windows[3], std::uint32_t source, int window,
                                   int from, int tag) {
    return (window < 0 || windows[op.window] == window) && (from < 0 || source == static_cast<std::uint32_t>(from)) &&
           (tag < 0 || op.tag == static_cast<std::uint32_t>(tag));
  }

  MPIX_DEV_METHOD void take(std::uint64_t round) {
    using namespace mpix::dev;
    std::uint64_t turn = mix(t_.seed ^ mix(round) ^ c_.rank);
    while (true) {
      sync_team(c_);
      Operation op{};
      std::uint32_t source = 0;
      const std::uint32_t count = outstanding(round, ~0u, &op, &source);
      if (count == 0) break;
      turn = mix(turn);
      (void)outstanding(round, static_cast<std::uint32_t>(turn % count), &op, &source);
      turn = mix(turn);
      const int window = turn & 1 ? -1 : t_.windows[op.window], from = turn & 2 ? -1 : static_cast<int>(source),
                tag = turn & 4 ? -1 : static_cast<int>(op.tag);
      const std::uint32_t way = static_cast<std::uint32_t>((turn >> 8) % 8);
      Status status{-1, -1, -1, 0, 0};
      std::uint32_t wanted = 1;
      if (way == 0 && from >= 0) {
        // Several at once, of one source: so many are sure to come.
        std::uint32_t sure = 0;
        for (std::uint32_t k = 0; k < RandomTest::ops; ++k) {
          const Operation other = operation(t_, ranks_, source, round, k);
          if (!(taken(source, round) >> k & 1) && other.target == c_.rank &&
              fits(other, t_.windows, source, window, from, tag))
            ++sure;
        }
        wanted = 1 + static_cast<std::uint32_t>((turn >> 16) % sure);
      }
      if (way < 6) {
        expect(wait(c_, window, from, tag, static_cast<int>(wanted), &status), __LINE__);
      } else {
        int flag = 0;
        for (std::uint32_t looks = 0; !flag; ++looks) {
          const Result result = mpix::dev::test(c_, window, from, tag, 1, &flag, &status);
          expect(result, __LINE__);
          if (result != Result::ok) return;
          (void)looks;
#if !MPIX_ON_DEVICE
          if (!flag && looks > 16) (void)c_.p.hooks->pause(c_.p.waiter, Sleep::for_room);
#endif
        }
#if !MPIX_ON_DEVICE
        c_.p.hooks->refresh(c_.p.waiter);
#endif
      }
      if (c_.broken != Result::ok) return;
      if (status.source < 0 || (from >= 0 && status.source != from)) {
        wrong(__LINE__, static_cast<std::uint64_t>(status.source), static_cast<std::uint64_t>(from));
        return;
      }
      if (!note_taken(round, static_cast<std::uint32_t>(status.source), window, from, tag, wanted, status)) return;
    }
    sync_team(c_);
    for (std::uint32_t o = 0; o < ranks_; ++o)
      if (is_first(c_)) taken(o, round) = 0;
    sync_team(c_);
  }

  /// The first `wanted` of the source that match; the last of them is what was told.
  MPIX_DEV_METHOD bool note_taken(std::uint64_t round, std::uint32_t source, int window, int from, int tag,
                                  std::uint32_t wanted, const mpix::dev::Status& status) {
    using namespace mpix::dev;
    for (std::uint64_t r = round; r < round + RandomTest::slots && r < t_.rounds; ++r)
      for (std::uint32_t k = 0; k < RandomTest::ops; ++k) {
        if (taken(source, r) >> k & 1) continue;
        const Operation op = operation(t_, ranks_, source, r, k);
        if (op.target != c_.rank || !fits(op, t_.windows, source, window, from, tag)) continue;
        sync_team(c_);
        if (is_first(c_)) taken(source, r) |= std::uint64_t{1} << k;
        sync_team(c_);
        check_data(op, source, r, k);
        if (--wanted > 0) continue;
        const bool ahead = op.act == Act::put_and_notify && op.key % 2 != 0;
        const std::uint64_t bytes = ahead ? 8 : op.act == Act::put_and_notify ? 0 : op.bytes;
        if (status.tag != static_cast<int>(op.tag) || status.window != t_.windows[op.window] || status.bytes != bytes ||
            (status.kind == was_read) != (op.act == Act::get_notify)) {
          wrong(__LINE__, static_cast<std::uint64_t>(status.tag), op.tag, status.bytes, bytes);
          return false;
        }
        return true;
      }
    wrong(__LINE__, source, round, static_cast<std::uint64_t>(status.tag), wanted);
    return false;
  }

  MPIX_DEV_METHOD void check_data(const Operation& op, std::uint32_t source, std::uint64_t round, std::uint32_t k) {
    if (op.act != Act::put_notify && op.act != Act::put_and_notify) return;
    const char* const at = parts_[op.window] + place(source, round, k);
    std::uint64_t bad = differing(c_, at + op.shift, op.bytes, Pattern(op.key), sum_);
    if (bad > 0) wrong(__LINE__, bad, op.bytes, source, round);
    if (op.act != Act::put_and_notify || op.key % 2 == 0) return;
    bad = differing(c_, at + t_.slot_bytes() - 32, 8, Pattern(op.key + 1), sum_);
    if (bad > 0) wrong(__LINE__, bad, source, round);
  }

  Ctx& c_;
  const RandomTest t_;
  Findings& findings_;
  const std::uint32_t ranks_;
  char* parts_[3];
  std::uint64_t* taken_;
  std::uint64_t* sum_;
  char* source_;
  char* ahead_;
};

}  // namespace test
