// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "flags.h"
#include "halo_move.h"
#include "halo_words.h"
#include "notify.h"

/// Exchanges of a halo, as blocks run them, of the library or of the program: halo_words.h has what they tell each
/// other.
namespace mpix {

template <class Done>
MPIX_DEV_FN bool wait_in_halo(const MPIX_Dev_halo& halo, std::uint32_t flag, const HaloNote& note, Done done) {
  return dev::wait_in_channel(
      halo.channel, std::uint64_t{halo.channel.lanes} + flag,
      [&] { return dev::channel_note(dev::ChannelWait::flag, note.packed()); }, done);
}

/// For those that wait for a word which kernels of this process write: threads sleep until somebody rings.
MPIX_DEV_FN void wake_waiters(const MPIX_Dev_halo& halo) {
#if MPIX_ON_DEVICE
  (void)halo;
#else
  halo.channel.hooks->wake(halo.channel.host);
#endif
}

/// All `blocks` blocks of a grid have come here, and see what the others wrote before. `Crew`: the threads of a block:
/// index(), size(), together(what), which all enter, the first does, and all have what it says, and all(well): it is
/// with all of them. False: the channel is broken.
///
/// Each block adds to `meeting`, 1 but for the first one, all together 2^63: the last one turns its highest bit over,
/// which is what they wait for, and the others are as before. So one trip to memory tells of a block, another one that
/// all are there, and a grid may have any number of blocks (tests/model/meeting.pml).
template <class Crew>
MPIX_DEV_CALL bool meet_blocks(const MPIX_Dev_halo& halo, std::uint32_t block, std::uint32_t blocks, const Crew& crew) {
  HaloWords& words = *halo.words;
  return crew.together([&] {
    constexpr std::uint64_t turned = std::uint64_t{1} << 63;
    const std::uint64_t mine = block == 0 ? turned - (blocks - 1) : 1;
    fence_on_device();
    const std::uint64_t before = fetch_add_acquire_on_device(&words.meeting, mine);
    const auto is_over = [&](std::uint64_t now) { return ((now ^ before) & turned) != 0; };
    if (is_over(before + mine)) {
      (void)fetch_add_on_device(&words.met, 1);
      wake_waiters(halo);
      return true;
    }
    const MPIX_Dev_channel& c = halo.channel;
    return dev::wait_as(
        dev::Waiter{c.host, c.hooks, c.host->notes + c.lanes + halo_meeting_flag(halo)},
        [&] {
          // Of the bits but the highest: how many have come, where the first has not; else that, less than 2^63.
          const std::uint64_t low = load_relaxed(&words.meeting) & ~turned;
          const auto come = static_cast<std::uint32_t>(low < turned / 2 ? low : low - turned + blocks);
          const HaloNote note = halo_note_of_meeting(load_relaxed(&words.met), blocks, come);
          return dev::channel_note(dev::ChannelWait::flag, note.packed());
        },
        [&] { return dev::is_released(c); }, [&] { return is_over(load_acquire(&words.meeting)); });
  });
}

/// A block that has parts of an exchange to do sees those before it, also while others are under way with theirs.
MPIX_DEV_FN std::uint64_t exchanges_over(const MPIX_Dev_halo& halo) {
  return load_relaxed(&halo.words->ended) / one_exchange;
}

/// Who runs an exchange, for what is to do at its end.
struct HaloRunner {
  std::uint32_t block, blocks;
  std::uint64_t sent;    ///< `sent` of all messages is known to be no less
  std::uint64_t launch;  ///< its number; 0: none that the host counts, or another word tells of its end
  std::uint64_t done;    ///< the step; 0: it is none
  bool meets;            ///< where the tables say so: they were made for as many blocks
};

/// Parts of exchange `step` are over; one thread, behind a fence of its block's stores, where they are a step's.
MPIX_DEV_FN void count_parts(const MPIX_Dev_halo& halo, std::uint64_t counts, std::uint64_t step,
                             const HaloRunner& runner) {
  HaloWords& words = *halo.words;
  const std::uint64_t before = fetch_add_on_device(&words.ended, counts);
  if (runner.launch == 0 && runner.done == 0) return;  // without a wait for that
  if (before + counts != step * one_exchange) return;
  // Others may begin the next exchange as soon as `over` or `done` lets them, and find the number of this one.
  if (runner.launch != 0) {
    fence_on_device();
    store_after_loads(&words.over, runner.launch);
  }
  if (runner.done != 0) {
    fence_stores();
    store_after_loads(&words.done, runner.done);
  }
  wake_waiters(halo);
}

/// The part, which stands for `weight` parts of the tables, and lies where all threads of the block see it. `over`:
/// what the parts of the block that are over with it count for, or 0. False: the channel is broken.
template <class Crew>
MPIX_DEV_FN bool run_halo_part(const MPIX_Dev_halo& halo, const HaloPart& part, std::uint32_t weight,
                               std::uint64_t over, std::uint32_t first_block, std::uint64_t step,
                               const HaloRunner& runner, const Crew& crew) {
  const bool unpacks = part.unpacks != 0;
  const std::uint32_t flag = unpacks ? halo.messages + part.message : part.message;
  const bool by_memory = part.told != nullptr, by_lines = part.by_lines != 0;
  const std::uint32_t halves = by_memory ? halves_by_memory : halo.halves;
  const std::uint64_t awaited = unpacks ? step : step > halves ? step - halves : 0;
  const bool is_there = unpacks ? by_lines : awaited <= (by_memory ? 0 : runner.sent);
  const HaloNote note{step, first_block};
  const auto noted = [&] { return dev::channel_note(dev::ChannelWait::flag, note.packed()); };
  if (!is_there && !crew.together([&] {
        return by_memory ? wait_for_end(halo, flag, note, [&] { return load_acquire(part.awaited) >= awaited; })
                         : dev::wait_for_flag(halo.channel, flag, awaited, noted) == dev::Post::ok;
      }))
    return false;
  const std::uint32_t mover = part.part * crew.size() + crew.index(), movers = part.parts * crew.size();
  if (!by_lines)
    move_side(part.side, halo.box, part.side.buffer[step & 1], unpacks, mover, movers);
  else if (!crew.all(move_side_by_lines(halo, part, flag, note, mover, movers)))
    return false;
  if (part.met != 0 && runner.meets && !meet_blocks(halo, runner.block, runner.blocks, crew)) return false;
  return crew.together([&] {
    // Lines tell of themselves, and what came in them is read by those that wait for a step, or for the launch.
    const bool tells = unpacks || !by_lines, publishes = !by_lines || (unpacks && runner.done != 0);
    bool is_last = tells, well = true;
    if (tells && part.side.parts > 1) {
      if (publishes) fence_stores();
      is_last = fetch_add_on_device(halo.words->arrived + flag, weight) + weight == step * part.side.parts;
    }
    if (is_last)
      well = by_memory ? tell_end(halo, part, step, publishes)
                       : dev::set_flag(halo.channel, flag, step, true) == dev::Post::ok;
    if (!tells) wake_end(halo, part);
    if (over != 0) count_parts(halo, over, step, runner);
    return well;
  });
}

template <class Crew>
MPIX_DEV_FN void copy_together(HaloPart& to, const HaloPart& from, const Crew& crew) {
#if MPIX_ON_DEVICE
  auto* const words = reinterpret_cast<std::uint64_t*>(&to);
  const auto* const source = reinterpret_cast<const std::uint64_t*>(&from);
  for (std::uint32_t i = crew.index(); i < sizeof to / sizeof *words; i += crew.size()) words[i] = source[i];
  crew.meet();
#else
  (void)crew;
  to = from;
#endif
}

#if MPIX_ON_DEVICE
#define MPIX_OF_BLOCK __shared__
#else
#define MPIX_OF_BLOCK
#endif

/// The block's parts among those from `first` to `end`.
template <class Crew>
MPIX_DEV_FN bool run_halo_parts(const MPIX_Dev_halo& halo, std::uint32_t first, std::uint32_t end, std::uint64_t step,
                                const HaloRunner& runner, const Crew& crew) {
  MPIX_OF_BLOCK HaloPart part;
  std::uint64_t counts = 0;
  MPIX_NO_UNROLL
  for (std::uint32_t p = first + runner.block; p < end; p += runner.blocks) {
    copy_together(part, halo.part[p], crew);
    counts += part.counts;
    const bool is_last = end - p <= runner.blocks;
    if (!run_halo_part(halo, part, 1, is_last ? counts : 0, (p - first - part.part) % runner.blocks, step, runner,
                       crew))
      return false;
  }
  return true;
}

/// One block packs, or unpacks, a message of the program.
template <class Crew>
MPIX_DEV_FN bool run_halo_message(const MPIX_Dev_halo& halo, std::uint32_t given, bool unpacks, std::uint64_t step,
                                  const HaloRunner& runner, const Crew& crew) {
  MPIX_OF_BLOCK HaloPart part;
  MPIX_NO_UNROLL
  for (std::uint32_t m = halo.first[given]; m < halo.first[given + 1]; ++m) {
    const HaloPart& whole = unpacks ? halo.message[m].recv : halo.message[m].send;
    if (whole.side.parts == 0) continue;  // to or from nobody
    copy_together(part, whole, crew);
    if (!run_halo_part(halo, part, part.side.parts, part.counts, runner.block, step, runner, crew)) return false;
  }
  return true;
}

/// A launch of the library: an exchange, or a part of one; or many.
struct HaloRun {
  MPIX_Dev_halo halo;
  std::uint32_t first_part, end_part;
  std::uint32_t blocks;
  std::uint32_t is_gated;  ///< its exchanges are steps, which the program makes ready
  std::uint64_t launch;    ///< its number; 0: not told to the host
  std::uint64_t steps;     ///< exchanges
  std::uint64_t ready;     ///< steps before its first
  std::uint64_t sent;      ///< MPI was done with the sends of that exchange, of all messages
};

/// Step `number` is ready, and all blocks have ended the exchange before it. False: it will never be, or the channel is
/// broken. One thread.
///
/// The program may make several steps ready, and `arrived`, `ended` and meetings count one at a time: with a block that
/// is ahead the last part of an exchange would not be told of, and others would wait for it, and with them their parts
/// of the next.
MPIX_DEV_FN bool wait_until_ready(const HaloRun& run, std::uint64_t number, std::uint64_t exchange_before) {
  HaloWords& words = *run.halo.words;
  bool is_ready = false;
  const bool well = wait_in_halo(run.halo, halo_ready_flag(run.halo), HaloNote{number, 0}, [&] {
    const bool is_stopped = load_acquire(&words.stopped) >= run.launch;
    is_ready = load_acquire(&words.ready) >= number;
    return (is_ready || is_stopped) && load_acquire(&words.ended) >= exchange_before * one_exchange;
  });
  return well && is_ready;
}

/// False: the channel is broken.
template <class Crew>
MPIX_DEV_FN bool run_halo_block(const HaloRun& run, std::uint32_t block, const Crew& crew) {
  HaloWords& words = *run.halo.words;
  const std::uint64_t before = exchanges_over(run.halo);
  const bool is_gated = run.is_gated != 0;
  bool well = true;
  MPIX_NO_UNROLL
  for (std::uint64_t i = 1; i <= run.steps; ++i) {
    if (is_gated && !crew.together([&] { return wait_until_ready(run, run.ready + i, before + i - 1); })) break;
    const HaloRunner runner{block, run.blocks, run.sent, is_gated ? 0 : run.launch, is_gated ? run.ready + i : 0, true};
    well = run_halo_parts(run.halo, run.first_part, run.end_part, before + i, runner, crew);
    if (!well) break;
  }
  if (!is_gated) return well;
  return crew.together([&] {
    const bool is_released = dev::is_released(run.halo.channel);
    if (is_released) {
      store_release(&words.done, no_more_steps);  // lest the program's stream wait for ever
      wake_waiters(run.halo);
    }
    if (fetch_add_on_device(&words.left, 1) + 1 == run.blocks) {
      store_release(&words.left, 0);
      store_release(&words.over, run.launch);
      wake_waiters(run.halo);
    }
    return !is_released;
  });
}

// ---- A stream of the program, where no memory operation does it --------------------------------------------

/// Behind what the stream has done before. One thread.
MPIX_DEV_FN void tell_halo(const MPIX_Dev_halo& halo, std::uint64_t* word, std::uint64_t value) {
  store_release(word, value);
  wake_waiters(halo);
}
/// False: the channel is broken.
MPIX_DEV_FN bool wait_for_word(const MPIX_Dev_halo& halo, const std::uint64_t* word, std::uint64_t value) {
  return wait_in_halo(halo, halo_done_flag(halo), HaloNote{value, 0}, [&] { return load_acquire(word) >= value; });
}

}  // namespace mpix
