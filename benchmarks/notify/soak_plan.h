// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <cstddef>
#include <cstdint>

#include "mpix_device/memory.h"
#include "support/streams.h"

/// What a soak does, as the program and the blocks compute it, each for itself.
namespace notify::soak {

/// splitmix64.
MPIX_FN std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

enum class Act : std::uint32_t {
  post,    ///< a task behind data
  event,   ///< a task without
  turn,    ///< data and the block's flag, then the program's flag and data
  shared,  ///< a flag that all blocks wait for
};

constexpr std::uint32_t kinds = 3, data_words = 16, most_words = 5, most_open = 8;

/// What operation `op` of a block is like.
struct Plan {
  std::uint64_t seed;
  std::uint32_t operations;  ///< of each block

  MPIX_FN std::uint64_t random(std::uint32_t block, std::uint32_t op, std::uint32_t what) const {
    return mix(seed ^ mix(std::uint64_t{block} << 40 | std::uint64_t{op} << 8 | what));
  }
  MPIX_FN bool one_of(std::uint32_t many, std::uint32_t block, std::uint32_t op, std::uint32_t what) const {
    return random(block, op, what) % many == 0;
  }
  MPIX_FN Act act(std::uint32_t block, std::uint32_t op) const {
    constexpr Act acts[] = {Act::post, Act::post, Act::post, Act::event, Act::event, Act::turn, Act::turn, Act::shared};
    return acts[random(block, op, 0) % 8];
  }
  MPIX_FN bool is_task(std::uint32_t block, std::uint32_t op) const { return act(block, op) <= Act::event; }
  MPIX_FN bool by_block(std::uint32_t block, std::uint32_t op) const { return one_of(2, block, op, 1); }
  MPIX_FN std::uint32_t kind(std::uint32_t block, std::uint32_t op) const {
    return static_cast<std::uint32_t>(random(block, op, 2) % kinds);
  }
  MPIX_FN std::uint32_t words(std::uint32_t block, std::uint32_t op) const {
    return static_cast<std::uint32_t>(random(block, op, 3) % (most_words + 1));
  }
  MPIX_FN std::uint64_t word(std::uint32_t block, std::uint32_t op, std::uint32_t at) const {
    return random(block, op, 16 + at);
  }
  MPIX_FN bool wants_reply(std::uint32_t block, std::uint32_t op) const { return one_of(3, block, op, 4); }
  MPIX_FN std::uint64_t reply(std::uint32_t block, std::uint32_t op) const { return random(block, op, 5); }
  MPIX_FN bool is_answered_later(std::uint32_t block, std::uint32_t op) const { return one_of(2, block, op, 6); }
  /// The block asks again and again, and does not wait.
  MPIX_FN bool tests(std::uint32_t block, std::uint32_t op) const { return one_of(3, block, op, 7); }
  /// It reads all replies that are open.
  MPIX_FN bool reads_replies(std::uint32_t block, std::uint32_t op) const { return one_of(4, block, op, 8); }
  MPIX_FN std::uint64_t up(std::uint32_t block, std::uint32_t op, std::uint32_t at) const {
    return random(block, op, 32 + at);
  }
  MPIX_FN std::uint64_t down(std::uint32_t block, std::uint32_t op, std::uint32_t at) const {
    return random(block, op, 64 + at);
  }
};

/// Each operation has its own words, so none is written while it is read; what lies there before is of another seed.
struct Data {
  std::uint64_t* all;
  std::uint32_t operations;

  static std::size_t bytes(std::size_t blocks, std::size_t operations) { return blocks * operations * data_words * 16; }
  MPIX_FN std::uint64_t* up(std::uint32_t block, std::uint32_t op) const {
    return all + (std::uint64_t{block} * operations + op) * 2 * data_words;
  }
  MPIX_FN std::uint64_t* down(std::uint32_t block, std::uint32_t op) const { return up(block, op) + data_words; }
};

/// A block: what it has checked, and what of that was wrong.
struct Found {
  std::uint64_t checked, wrong;
};

struct Poster {
  MPIX_Dev_channel channel;
  Plan plan;
  Data data;
  const std::uint64_t* shared;  ///< in front of the flag of all
  Found* found;                 ///< by block; of the device

  struct Open {
    std::uint64_t ticket;
    std::uint32_t op;
  };
  /// Of a thread, but for what all of the block have alike.
  struct Own {
    Open open[most_open];
    std::uint32_t count;
    std::uint64_t checked, wrong;

    MPIX_DEV_METHOD void check(bool is_right) { wrong += is_right ? 0 : 1; }
  };

  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    Own own{};
    for (std::uint32_t op = 0; op < plan.operations; ++op) {
      const Act act = plan.act(team.block, op);
      if (act <= Act::event)
        task(team, op, own);
      else if (act == Act::turn)
        turn(team, op, own);
      else
        wait_for_flag_of_all(team, op, own);
      if (plan.reads_replies(team.block, op)) read_replies(team, own);
    }
    read_replies(team, own);
    const std::uint64_t end = std::uint64_t{plan.operations} + 1;
    own.check(MPIX_Dev_block_flag_set(team, channel, team.block, end) == MPIX_DEV_DONE);
    if (own.wrong != 0) (void)mpix::fetch_add_on_device(&found[team.block].wrong, own.wrong);
    if (team.thread == 0) (void)mpix::fetch_add_on_device(&found[team.block].checked, own.checked);
  }

  /// By all threads, or by the first alone, as the call behind it.
  MPIX_DEV_METHOD void fill(const MPIX_Dev_team& team, std::uint32_t op, bool by_block) const {
    if (!by_block && team.thread != 0) return;
    std::uint64_t* const to = data.up(team.block, op);
    for (std::uint32_t at = team.thread; at < data_words; at += by_block ? team.threads : 1)
      to[at] = plan.up(team.block, op, at);
  }
  MPIX_DEV_METHOD void check_data(const MPIX_Dev_team& team, std::uint32_t op, bool by_block, Own& own) const {
    if (!by_block && team.thread != 0) return;
    const std::uint64_t* const from = data.down(team.block, op);
    for (std::uint32_t at = team.thread; at < data_words; at += by_block ? team.threads : 1)
      own.check(mpix::load_once(from + at) == plan.down(team.block, op, at));
  }

  MPIX_DEV_METHOD void task(const MPIX_Dev_team& team, std::uint32_t op, Own& own) const {
    const bool is_event = plan.act(team.block, op) == Act::event, by_block = !is_event && plan.by_block(team.block, op);
    const bool asks = plan.wants_reply(team.block, op);
    if (asks && own.count == (channel.depth < most_open ? channel.depth : most_open)) read_replies(team, own);
    if (!is_event) fill(team, op, by_block);
    std::uint64_t words[most_words], ticket = 0;
    for (std::uint32_t at = 0; at < most_words; ++at) words[at] = plan.word(team.block, op, at);
    std::uint64_t* const wanted = asks ? &ticket : nullptr;
    const std::uint32_t kind = plan.kind(team.block, op), count = plan.words(team.block, op);
    if (by_block)
      own.check(MPIX_Dev_block_post(team, channel, team.block, kind, words, count, wanted) == MPIX_DEV_DONE);
    else if (team.thread == 0)
      own.check((is_event ? MPIX_Dev_post_event(channel, team.block, kind, words, count, wanted)
                          : MPIX_Dev_post(channel, team.block, kind, words, count, wanted)) == MPIX_DEV_DONE);
    if (asks) own.open[own.count++] = Open{ticket, op};  // other threads have no ticket, and need none
  }

  /// The last first.
  MPIX_DEV_METHOD void read_replies(const MPIX_Dev_team& team, Own& own) const {
    while (own.count > 0) {
      const Open open = own.open[--own.count];
      const bool by_block = plan.by_block(team.block, open.op);
      std::uint64_t value = 0;
      int result = MPIX_DEV_DONE;
      if (by_block) {
        result = MPIX_Dev_block_reply_wait(team, channel, open.ticket, &value);
      } else if (team.thread == 0 && plan.tests(team.block, open.op)) {
        for (int done = 0; !done && result == MPIX_DEV_DONE; support::let_other_blocks_run())
          result = MPIX_Dev_reply_test(channel, open.ticket, &done, &value);
      } else if (team.thread == 0) {
        result = MPIX_Dev_reply_wait(channel, open.ticket, &value);
      }
      if (by_block || team.thread == 0) own.check(result == MPIX_DEV_DONE && value == plan.reply(team.block, open.op));
      check_data(team, open.op, by_block, own);
      ++own.checked;
    }
  }

  MPIX_DEV_METHOD void turn(const MPIX_Dev_team& team, std::uint32_t op, Own& own) const {
    const bool by_block = plan.by_block(team.block, op);
    const std::uint64_t value = std::uint64_t{op} + 1;
    fill(team, op, by_block);
    if (by_block) {
      own.check(MPIX_Dev_block_flag_set(team, channel, team.block, value) == MPIX_DEV_DONE);
      own.check(MPIX_Dev_block_flag_wait(team, channel, team.block, value) == MPIX_DEV_DONE);
    } else if (team.thread == 0) {
      own.check(MPIX_Dev_flag_set(channel, team.block, value) == MPIX_DEV_DONE);
      own.check(wait_for(team.block, value, plan.tests(team.block, op)) == MPIX_DEV_DONE);
    }
    check_data(team, op, by_block, own);
    ++own.checked;
  }
  MPIX_DEV_METHOD int wait_for(std::uint32_t flag, std::uint64_t value, bool tests) const {
    if (!tests) return MPIX_Dev_flag_wait(channel, flag, value);
    int result = MPIX_DEV_DONE;
    for (int yes = 0; !yes && result == MPIX_DEV_DONE; support::let_other_blocks_run())
      result = MPIX_Dev_flag_test(channel, flag, value, &yes);
    return result;
  }

  MPIX_DEV_METHOD void wait_for_flag_of_all(const MPIX_Dev_team& team, std::uint32_t op, Own& own) const {
    ++own.checked;
    if (team.thread != 0) return;
    const std::uint64_t value = std::uint64_t{op} + 1;
    own.check(wait_for(team.blocks, value, plan.tests(team.block, op)) == MPIX_DEV_DONE &&
              mpix::load_once(shared) >= value);
  }
};

}  // namespace notify::soak
