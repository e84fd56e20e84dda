/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_DEVICE_CHANNEL_PARAM_H
#define MPIX_DEVICE_CHANNEL_PARAM_H

#include <stdint.h>

/* Grows with every change of what kernels and the library share of a channel. */
#define MPIX_DEV_CHANNEL_ABI 3

#ifdef __cplusplus
namespace mpix {
struct Line;
namespace dev {
struct ChannelState;
struct ChannelLane;
struct ChannelHost;
struct ChannelHooks;
struct WatchedFlag;
}  // namespace dev
}  // namespace mpix
typedef mpix::Line MPIX_Dev_line;
typedef mpix::dev::ChannelState MPIX_Dev_channel_state;
typedef mpix::dev::ChannelLane MPIX_Dev_channel_lane;
typedef mpix::dev::ChannelHost MPIX_Dev_channel_host;
typedef const mpix::dev::ChannelHooks MPIX_Dev_channel_hooks;
typedef mpix::dev::WatchedFlag MPIX_Dev_watched_flag;
#else
typedef void MPIX_Dev_line;
typedef void MPIX_Dev_channel_state;
typedef void MPIX_Dev_channel_lane;
typedef void MPIX_Dev_channel_host;
typedef const void MPIX_Dev_channel_hooks;
typedef void MPIX_Dev_watched_flag;
#endif

/* What a kernel knows of a channel: an argument of it, by value. Nothing in it is for programs;
 * mpix_device/notify.h says where each word is. */
typedef struct MPIX_Dev_channel {
  uint32_t abi;
  uint32_t lanes, flags;
  uint32_t depth;       /* of each ring; a power of two */
  uint32_t rings;       /* of tasks: one (a queue), or one a lane */
  uint32_t ring_lines;  /* from ring to ring, and from the replies of one lane to those of the next */
  uint32_t word_stride; /* from a flag that kernels set to the next; for those that kernels wait for see notify.h */
  uint32_t all_fence;   /* every thread of a block, and not one for all */
  uint64_t generation;  /* of the memory: it is used again after MPIX_Channel_free */
  /* Device memory: */
  MPIX_Dev_channel_state* state;
  MPIX_Dev_channel_lane* lane;
  uint64_t* read;                 /* by lane and place: the reply that was read there */
  uint64_t* last;                 /* by flag: what kernels have set it to */
  MPIX_Dev_watched_flag* watched; /* by flag */
  /* Memory of the host: */
  MPIX_Dev_channel_host* host;
  MPIX_Dev_line *heads, *words, *replies;
  uint64_t *taken, *up, *down;
  MPIX_Dev_channel_hooks* hooks; /* host back end; else null */
} MPIX_Dev_channel;

/* What runs together: a block of a kernel, or a thread of a grid on the host. */
typedef struct MPIX_Dev_team {
  unsigned block, blocks;   /* which, of how many */
  unsigned thread, threads; /* of the block */
} MPIX_Dev_team;

typedef struct MPIX_Channel_s* MPIX_Channel;

#define MPIX_TASK_WORDS 5

/* What a handler gets. */
typedef struct MPIX_Task {
  unsigned long long ticket; /* 0: the poster waits for no reply */
  unsigned long long number; /* of its ring: 1, 2, 3, ... */
  unsigned long long word[MPIX_TASK_WORDS];
  unsigned lane, kind, words;
} MPIX_Task;

/* Not MPI_SUCCESS: the channel breaks. Tasks of a lane come one after another, in the order of its posts. It may call
 * MPIX_Channel_reply and the calls for flags; MPIX_Channel_free, arm, disarm, poll and serve of its channel it may not.
 */
typedef int MPIX_Task_function(MPIX_Channel channel, const MPIX_Task* task, void* arg);

#endif /* MPIX_DEVICE_CHANNEL_PARAM_H */
