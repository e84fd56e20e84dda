// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "notify.h"

/// Flags of a channel, as kernels set them and wait for them: notify.h has the words.
namespace mpix {
namespace dev {

/// Where several blocks of a GPU wait for a flag.
struct alignas(64) WatchedFlag {
  std::uint64_t seen, looker;
  std::uint64_t unused[6];
};

/// One thread.
MPIX_DEV_FN Post set_flag(const MPIX_Dev_channel& c, std::uint32_t flag, std::uint64_t value, bool publishes) {
  if (c.abi != MPIX_DEV_CHANNEL_ABI) return Post::released;
  if (flag >= c.flags) return Post::argument;
  const std::uint64_t generation = own_word(&c.state->generation), last = own_word(c.last + flag);
  if (publishes) fence_stores();
  if (generation != c.generation) return Post::released;
  if (value < last) {
    (void)fetch_add_on_device(&c.state->refused, 1);
    return Post::argument;
  }
  set_own_word(c.last + flag, value);
  store_after_loads(c.up + std::uint64_t{flag} * c.word_stride, value);
#if !MPIX_ON_DEVICE
  c.hooks->post(c.host);
#endif
  return Post::ok;
}

MPIX_DEV_FN Post test_flag(const MPIX_Dev_channel& c, std::uint32_t flag, std::uint64_t value, bool* yes) {
  if (is_stale(c)) return Post::released;
  if (flag >= c.flags) return Post::argument;
  *yes = load_acquire(down_of(c, flag)) >= value;
  return *yes || !is_released(c) ? Post::ok : Post::released;
}

/// Looks of several blocks at one word of the host come one behind the other, and the whole GPU waits meanwhile: beside
/// 27 blocks that wait for one flag a kernel that moves memory took 5.4 times as long (H200). So a block that has
/// looked in vain some times leaves it to one of them, which tells the others in memory of the GPU what it sees, until
/// it has what it waits for; then another of those that are left does it. tests/model/flags.pml is this for a model
/// checker.
class LookAtFlag {
 public:
  MPIX_DEV_METHOD LookAtFlag(const MPIX_Dev_channel& of, std::uint32_t which, std::uint64_t awaited)
      : channel_(of), flag_(which), value_(awaited) {}

  MPIX_DEV_METHOD bool is_there() {
    const std::uint64_t* const word = down_of(channel_, flag_);
#if MPIX_ON_DEVICE
    WatchedFlag* const watched = channel_.watched + flag_;
    if (for_all_ || looks_ < most_looks) {
      ++looks_;
      const std::uint64_t seen = load_acquire(word);
      if (for_all_ && seen > told_ && is_current()) {
        store_release(&watched->seen, seen);
        told_ = seen;
      }
      if (seen < value_) return false;
      end();  // here: other threads of the warp may be those that go on
      return true;
    }
    if (load_acquire(&watched->seen) >= value_) return true;
    for_all_ = load_relaxed(&watched->looker) == 0 && is_current() && try_lock(&watched->looker);
    return false;
#else
    return load_acquire(word) >= value_;  // threads sleep
#endif
  }
  MPIX_DEV_METHOD void end() {
    if (for_all_ && is_current()) store_release(&channel_.watched[flag_].looker, 0);
    for_all_ = false;
  }

 private:
  /// The channel has not been freed, and its memory is not another's.
  MPIX_DEV_METHOD bool is_current() const { return load_relaxed(&channel_.state->generation) == channel_.generation; }

  /// Each takes a microsecond: as a rule an answer of the CPU is there before.
  static constexpr std::uint32_t most_looks = 4;
  const MPIX_Dev_channel& channel_;
  const std::uint32_t flag_;
  const std::uint64_t value_;
#if MPIX_ON_DEVICE  // it lives in kernels alone
  std::uint64_t told_ = 0;
  std::uint32_t looks_ = 0;
#endif
  bool for_all_ = false;
};

template <class Note>
MPIX_DEV_FN Post wait_for_flag(const MPIX_Dev_channel& c, std::uint32_t flag, std::uint64_t value, Note note) {
  if (c.abi != MPIX_DEV_CHANNEL_ABI) return Post::released;
  if (flag >= c.flags) return Post::argument;
  const std::uint64_t generation = own_word(&c.state->generation);  // looked at behind the wait, which looks, too
  LookAtFlag look(c, flag, value);
  const bool well = wait_in_channel(c, std::uint64_t{c.lanes} + flag, note, [&] { return look.is_there(); });
  look.end();
  return well && generation == c.generation ? Post::ok : Post::released;
}
MPIX_DEV_FN Post wait_for_flag(const MPIX_Dev_channel& c, std::uint32_t flag, std::uint64_t value) {
  return wait_for_flag(c, flag, value, [&] { return note_of_block(c, ChannelWait::flag, value); });
}

/// What the CPU answers takes 1.5 us and a look for it 1.1 (H200): one that goes out at once is in vain, and holds up
/// the one that finds it. 800 cycles are some 0.4 us. A block that goes on elsewhere finds another count.
MPIX_DEV_FN void let_answer_come() {
#if defined(__CUDA_ARCH__)
  for (const long long begin = clock64(); static_cast<unsigned long long>(clock64() - begin) < 800;) {
  }
#endif
}

/// By the program, which as a rule has just told the CPU what the flag answers.
MPIX_DEV_FN Post await_flag(const MPIX_Dev_channel& c, std::uint32_t flag, std::uint64_t value) {
  let_answer_come();
  return wait_for_flag(c, flag, value);
}

}  // namespace dev
}  // namespace mpix
