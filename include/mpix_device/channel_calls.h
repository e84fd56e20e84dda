// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_channel.h>

#include <time.h>

#include <cstdint>

#include "flags.h"
#include "notify.h"

/// Channels, and device requests, inside kernels. Each call returns 0, or one of these, and has then done nothing.
enum MPIX_Dev_channel_result {
  MPIX_DEV_DONE = 0,
  MPIX_DEV_FULL = 1,      ///< as many replies as the channel is deep are there, or awaited, and were not read
  MPIX_DEV_RELEASED = 2,  ///< the channel is broken, or was freed: nobody waits any more
  MPIX_DEV_ARG = 3,       ///< lane, flag, kind or words out of range; a ticket of another channel; a flag that shrinks
  MPIX_DEV_ACTIVE = 4,    ///< start of a device request that is not complete
};

namespace mpix {
namespace dev {

MPIX_DEV_FN int result_of(Post post) { return static_cast<int>(post); }
static_assert(static_cast<int>(Post::full) == MPIX_DEV_FULL && static_cast<int>(Post::released) == MPIX_DEV_RELEASED &&
                  static_cast<int>(Post::argument) == MPIX_DEV_ARG && static_cast<int>(Post::active) == MPIX_DEV_ACTIVE,
              "the same numbers");

/// What one thread of a block has come to, for all of it.
struct BlockBox {
  int result;
  std::uint64_t value;
};

#if MPIX_ON_DEVICE
MPIX_DEV_FN void sync_block() { __syncthreads(); }
MPIX_DEV_FN unsigned thread_here() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
#else
MPIX_DEV_FN void sync_block() {}
#endif

/// All threads meet; the first does `what`, and all have what it says.
template <class What>
MPIX_DEV_FN BlockBox by_first_thread(const MPIX_Dev_team& team, What what) {
#if MPIX_ON_DEVICE
  __shared__ BlockBox box;
  sync_block();
  if (team.thread == 0) box = what();
  sync_block();
  const BlockBox mine = box;
  return mine;
#else
  (void)team;
  return what();
#endif
}

}  // namespace dev
}  // namespace mpix

/* The block that this thread is of. On the host it is given to it (MPIX_Host_stream_launch_grid). */
#if MPIX_ON_DEVICE || defined(__CUDACC__) || defined(__HIPCC__)
MPIX_DEV_FN MPIX_Dev_team MPIX_Dev_team_this() {
#if MPIX_ON_DEVICE
  return MPIX_Dev_team{blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z),
                       gridDim.x * gridDim.y * gridDim.z, mpix::dev::thread_here(),
                       blockDim.x * blockDim.y * blockDim.z};
#else
  return MPIX_Dev_team{};
#endif
}
#endif
/* All threads of the block have come here. */
MPIX_DEV_FN void MPIX_Dev_sync(const MPIX_Dev_team&) { mpix::dev::sync_block(); }

/* ---- One thread ---- */

/* Post a task of up to 5 words. Whoever handles it sees all that this thread wrote before. It waits only while the ring
 * is full. A lane has one poster at a time. `ticket`: for the reply; null: none is wanted. */
MPIX_DEV_FN int MPIX_Dev_post(const MPIX_Dev_channel& channel, unsigned lane, unsigned kind, const uint64_t* words,
                              unsigned count, uint64_t* ticket = nullptr) {
  return mpix::dev::result_of(mpix::dev::post_task(channel, lane, kind, words, count, true, ticket));
}
/* The same, and publishes nothing but its words: several times as fast. */
MPIX_DEV_FN int MPIX_Dev_post_event(const MPIX_Dev_channel& channel, unsigned lane, unsigned kind,
                                    const uint64_t* words, unsigned count, uint64_t* ticket = nullptr) {
  return mpix::dev::result_of(mpix::dev::post_task(channel, lane, kind, words, count, false, ticket));
}
/* *done = 1, and the reply; or 0. */
MPIX_DEV_FN int MPIX_Dev_reply_test(const MPIX_Dev_channel& channel, uint64_t ticket, int* done, uint64_t* value) {
  if (!done) return MPIX_DEV_ARG;
  bool is_there = false;
  const mpix::dev::Post result = mpix::dev::test_reply(channel, ticket, &is_there, value);
  *done = is_there;
  return mpix::dev::result_of(result);
}
/* The reply, and all that was written or received before it was given. */
MPIX_DEV_FN int MPIX_Dev_reply_wait(const MPIX_Dev_channel& channel, uint64_t ticket, uint64_t* value) {
  return mpix::dev::result_of(mpix::dev::wait_for_reply(channel, ticket, value));
}

/* For MPIX_Channel_flag_get and MPIX_Channel_flag_wait: a number that only grows, and all that this thread wrote
 * before. One thread at a time sets a flag. */
MPIX_DEV_FN int MPIX_Dev_flag_set(const MPIX_Dev_channel& channel, unsigned flag, uint64_t value) {
  return mpix::dev::result_of(mpix::dev::set_flag(channel, flag, value, true));
}
/* Whether MPIX_Channel_flag_set has come to `value`, and wait for it. */
MPIX_DEV_FN int MPIX_Dev_flag_test(const MPIX_Dev_channel& channel, unsigned flag, uint64_t value, int* yes) {
  if (!yes) return MPIX_DEV_ARG;
  bool is_there = false;
  const mpix::dev::Post result = mpix::dev::test_flag(channel, flag, value, &is_there);
  *yes = is_there;
  return mpix::dev::result_of(result);
}
MPIX_DEV_FN int MPIX_Dev_flag_wait(const MPIX_Dev_channel& channel, unsigned flag, uint64_t value) {
  return mpix::dev::result_of(mpix::dev::await_flag(channel, flag, value));
}

/* ---- All threads of a block, together: one of them acts for all, and all get the result ---- */

MPIX_DEV_FN int MPIX_Dev_block_post(const MPIX_Dev_team& team, const MPIX_Dev_channel& channel, unsigned lane,
                                    unsigned kind, const uint64_t* words, unsigned count, uint64_t* ticket = nullptr) {
  if (channel.all_fence) mpix::fence_stores();
  const mpix::dev::BlockBox box = mpix::dev::by_first_thread(team, [&] {
    mpix::dev::BlockBox mine{0, 0};
    mine.result = mpix::dev::result_of(mpix::dev::post_task(channel, lane, kind, words, count, channel.all_fence == 0,
                                                            ticket ? &mine.value : nullptr));
    return mine;
  });
  if (ticket && box.result == MPIX_DEV_DONE) *ticket = box.value;
  return box.result;
}
MPIX_DEV_FN int MPIX_Dev_block_reply_wait(const MPIX_Dev_team& team, const MPIX_Dev_channel& channel, uint64_t ticket,
                                          uint64_t* value) {
  const mpix::dev::BlockBox box = mpix::dev::by_first_thread(team, [&] {
    mpix::dev::BlockBox mine{0, 0};
    mine.result = mpix::dev::result_of(mpix::dev::wait_for_reply(channel, ticket, &mine.value));
    return mine;
  });
  if (value && box.result == MPIX_DEV_DONE) *value = box.value;
  return box.result;
}
MPIX_DEV_FN int MPIX_Dev_block_flag_set(const MPIX_Dev_team& team, const MPIX_Dev_channel& channel, unsigned flag,
                                        uint64_t value) {
  if (channel.all_fence) mpix::fence_stores();
  return mpix::dev::by_first_thread(
             team,
             [&] {
               return mpix::dev::BlockBox{
                   mpix::dev::result_of(mpix::dev::set_flag(channel, flag, value, channel.all_fence == 0)), 0};
             })
      .result;
}
MPIX_DEV_FN int MPIX_Dev_block_flag_wait(const MPIX_Dev_team& team, const MPIX_Dev_channel& channel, unsigned flag,
                                         uint64_t value) {
  return mpix::dev::by_first_thread(
             team,
             [&] {
               return mpix::dev::BlockBox{mpix::dev::result_of(mpix::dev::await_flag(channel, flag, value)), 0};
             })
      .result;
}

/* Nanoseconds, by the device's clock. */
MPIX_DEV_FN unsigned long long MPIX_Dev_clock() {
#if defined(__CUDA_ARCH__)
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_s_memrealtime() * 10;  // 100 MHz
#elif defined(__CUDACC__) || defined(__HIPCC__)  // kernels, as the host's compiler reads them
  return 0;
#else
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1000000000ull + static_cast<unsigned long long>(now.tv_nsec);
#endif
}
