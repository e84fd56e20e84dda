/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_CHANNEL_H
#define MPIX_CHANNEL_H

/* Channels: how a running kernel tells the CPU of its process that something is done, and how the CPU answers.
 *
 * A channel has lanes and flags. A lane is a poster, as a rule a block of a kernel: it posts tasks, each a kind and up
 * to five words, which a handler of the program gets on the CPU, and it can wait for a reply of one word. A flag is a
 * pair of numbers that only grow: one that kernels set and the CPU reads, and one the other way round.
 *
 *     __global__ void step(MPIX_Dev_channel channel, ...) {                      // #include <mpix_device.h>
 *       const MPIX_Dev_team team = MPIX_Dev_team_this();
 *       pack(...);
 *       uint64_t message = team.block, ticket, reply;
 *       MPIX_Dev_block_post(team, channel, team.block, SEND, &message, 1, &ticket);  // what the block packed is there
 *       MPIX_Dev_block_reply_wait(team, channel, ticket, &reply);                    // what the CPU received is there
 *       unpack(...);
 *     }
 *
 *     MPIX_Channel_create(blocks, 0, MPI_INFO_NULL, &channel);
 *     MPIX_Channel_set_handler(channel, SEND, send_and_receive, arg);       // calls MPI, then MPIX_Channel_reply
 *     MPIX_Channel_get_device(channel, &device);
 *     MPIX_Channel_arm(channel);                                            // tasks will come: look all the time
 *     step<<<blocks, threads, 0, stream>>>(device, ...);
 *     synchronize(stream);
 *     MPIX_Channel_disarm(channel);
 *
 * The names for kernels are in mpix_device.h. Without a GPU (MPIX_DEVICE=host) the same source, compiled as C++17,
 * runs with threads as blocks (MPIX_Host_stream_launch_grid). doc/notifications.md is the guide.
 *
 * Which thread calls the handlers: info key mpix_service.
 *   own     a thread of the channel (preset where MPI gives MPI_THREAD_MULTIPLE, as handlers may call MPI);
 *   thread  the one thread of the library, which carries epochs between nodes as well: for short handlers;
 *   caller  the program, in MPIX_Channel_serve, or it takes tasks one by one with MPIX_Channel_poll (preset elsewhere).
 * Other info keys: mpix_tasks=lanes|queue (a ring for each lane, preset; or one for all, in the order of the posts),
 * mpix_depth (tasks that a ring holds, a power of two up to 4096; preset 64; likewise replies to a lane that nobody has
 * read), mpix_layout=dense|padded (words of different lanes and flags that the CPU reads lie in a row, preset, or 128
 * bytes apart), mpix_fence=block|thread (how a block publishes what its threads wrote: one fence for all, or one each,
 * which is slower), mpix_name (for reports).
 *
 * Calls are local, and may come from several threads at once. Errors go through the error handler of MPI_COMM_WORLD; a
 * call that returns one has changed nothing; but MPIX_Channel_disarm has disarmed a channel that broke, and
 * MPIX_Channel_serve may have called handlers. A handler that does not return MPI_SUCCESS breaks the channel: kernels
 * then wait no more (MPIX_DEV_RELEASED), and calls return MPI_ERR_OTHER with the reason. */

#include <mpi.h>
#include <mpix_device/channel_param.h>
#include <stddef.h>

#ifndef MPIX_PUBLIC
#define MPIX_PUBLIC
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MPIX_CHANNEL_NULL ((MPIX_Channel)0)

/* `lanes` posters, and `flags`: up to 65536, and lanes times mpix_depth up to 4194304. Errors: MPI_ERR_ARG,
 * MPI_ERR_INFO_VALUE, MPI_ERR_NO_MEM, MPI_ERR_UNSUPPORTED_OPERATION (mpix_service=own or thread without
 * MPI_THREAD_MULTIPLE). */
MPIX_PUBLIC int MPIX_Channel_create(int lanes, int flags, MPI_Info info, MPIX_Channel* channel);
/* No kernel uses it any more: one that does gets MPIX_DEV_RELEASED. `*channel` becomes MPIX_CHANNEL_NULL.
 * Errors: MPI_ERR_OTHER (it is armed). */
MPIX_PUBLIC int MPIX_Channel_free(MPIX_Channel* channel);

/* What kernels get, by value. */
MPIX_PUBLIC int MPIX_Channel_get_device(MPIX_Channel channel, MPIX_Dev_channel* device);

/* `kind` is below 65536; a null function: no handler. A task of a kind without one breaks the channel, but with
 * MPIX_Channel_poll. Errors: MPI_ERR_ARG, MPI_ERR_OTHER (the channel is armed). */
MPIX_PUBLIC int MPIX_Channel_set_handler(MPIX_Channel channel, unsigned kind, MPIX_Task_function* function, void* arg);

/* Between the two its thread looks for tasks all the time; else it naps, and a task is late by a millisecond,
 * or four when none has come for long, never lost. On hosts both ways it sleeps until there are tasks. Disarm, when
 * the kernels are over: returns when all that was posted has been handled (mpix_service=caller: handles it, or, without
 * a handler, leaves what was not polled). Errors: MPI_ERR_OTHER (armed already, or not armed; a kernel ended in the
 * middle of a post, which breaks the channel). */
MPIX_PUBLIC int MPIX_Channel_arm(MPIX_Channel channel);
MPIX_PUBLIC int MPIX_Channel_disarm(MPIX_Channel channel);

/* With mpix_service=caller (else MPI_ERR_OTHER). Poll: *found = 1 and a task, or 0. Serve: calls handlers for what
 * there is, a part at a time, and says whether there was any; `moved` may be null. */
MPIX_PUBLIC int MPIX_Channel_poll(MPIX_Channel channel, MPIX_Task* task, int* found);
MPIX_PUBLIC int MPIX_Channel_serve(MPIX_Channel channel, int* moved);

/* What the task's poster waits for: `value`, and all that this thread has written or received before. In the handler,
 * or later, from any thread. Errors: MPI_ERR_ARG (nobody waits for it; it has one). */
MPIX_PUBLIC int MPIX_Channel_reply(MPIX_Channel channel, const MPIX_Task* task, unsigned long long value);

/* Flags. Set: what kernels see, and all that this thread has written or received before; a number that only grows. Get,
 * wait: what kernels have set; wait until it is `value` at least. Errors: MPI_ERR_ARG (no such flag; less than before),
 * MPI_ERR_OTHER (the channel is broken). */
MPIX_PUBLIC int MPIX_Channel_flag_set(MPIX_Channel channel, int flag, unsigned long long value);
MPIX_PUBLIC int MPIX_Channel_flag_get(MPIX_Channel channel, int flag, unsigned long long* value);
MPIX_PUBLIC int MPIX_Channel_flag_wait(MPIX_Channel channel, int flag, unsigned long long value);

typedef struct MPIX_Channel_stats {
  unsigned long long tasks;         /* handled, or polled */
  unsigned long long replies;       /* given */
  unsigned long long full_waits;    /* posts that had to wait for room in their ring */
  unsigned long long chained;       /* tasks that were there when the look that found the one before went on */
  unsigned long long longest_chain; /* of them */
  unsigned long long naps;          /* of its thread */
  unsigned long long late_ns_max;   /* the longest time, in nanoseconds, from a look to the next while it was armed */
  unsigned long long refused;       /* flags that kernels tried to set to less than before */
} MPIX_Channel_stats;
/* Later versions only append. */
MPIX_PUBLIC int MPIX_Channel_get_stats(MPIX_Channel channel, MPIX_Channel_stats* stats, size_t size);

/* ---- Threads as blocks -------------------------------------------------------------------------- */

/* Enqueue fn(team, arg) in a host stream, by `blocks` threads at once; what is enqueued behind runs when all are back.
 * Errors: MPI_ERR_ARG (no such stream, null function, fewer than one block), MPI_ERR_NO_MEM (no threads to be had). */
struct MPIX_Host_stream_s;
MPIX_PUBLIC int MPIX_Host_stream_launch_grid(struct MPIX_Host_stream_s* stream, int blocks,
                                             void (*fn)(const MPIX_Dev_team* team, void* arg), void* arg);

#ifdef __cplusplus
}
#endif

#endif /* MPIX_CHANNEL_H */
