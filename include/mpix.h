/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_H
#define MPIX_H

/* libmpix: stream-triggered one-sided MPI communication.
 *
 * A halo exchange with active-target RMA, its control path moved from the CPU onto a stream:
 *
 *     for (int step = 0; step < steps; ++step) {
 *       MPIX_Win_post_stream(neighbours, win, stream);          // my window may be written
 *       compute_and_pack(stream);                               // fills the origin buffers
 *       MPI_Win_start(neighbours, MPIX_MODE_STREAM, win);       // the puts that follow are recorded
 *       for (each neighbour) MPI_Put(..., win);
 *       MPIX_Win_complete_stream(win, stream);                  // enqueue: move the data, signal
 *       MPIX_Win_wait_stream(win, stream);                      // enqueue: hold until all have arrived
 *       unpack(stream);
 *     }
 *     synchronize(stream);                                      // once, at the end
 *
 * None of these calls waits for the stream or for another process: each returns when its work is
 * enqueued. (With ranks of other nodes post and complete wait for room in the NIC: MPIX_THROTTLE.)
 * The stream argument is a cudaStream_t, a hipStream_t or an MPIX_Host_stream, as the device
 * in use demands (environment variable MPIX_DEVICE); NULL is the default stream of that device.
 *
 * Order. What a call enqueues runs in stream order. Operations of one window that change the same side
 * of it (post and wait: the exposure; complete: the access) must be ordered with each other by the
 * program: by using one stream, or by events between streams (for host streams: by synchronizing the
 * first). The two sides are independent; but where both use one stream, a wait that is enqueued before
 * the complete that its origins need, directly or through other ranks, never ends.
 * Before an ordinary MPI epoch on the window, synchronize the streams of its stream epochs.
 * MPI_Win_free waits until all that was enqueued on the window has run, but not for graphs: calls in a
 * stream that is being captured become part of its graph, and take place at each launch of it.
 *
 * Errors. Every function returns MPI_SUCCESS or an MPI error code. Functions that take a window or a communicator raise
 * errors through its error handler; the others through that of MPI_COMM_WORLD. The text of
 * MPI_Error_string says which call was wrong, and why. A call that returns an error has enqueued nothing
 * and opened or closed no epoch; puts recorded before it stay recorded, and the window stays usable. The
 * exception is an error of a GPU's driver (MPI_ERR_OTHER) in the middle of a call: doc/limits.md.
 * Besides the errors listed with each function, all that take a window return MPI_ERR_WIN for what is
 * no window made through libmpix (raised as those of calls without a window, where libmpix has made
 * others), MPI_ERR_UNSUPPORTED_OPERATION for windows
 * and ranks that cannot have stream epochs (dynamic windows, ranks that cannot be reached), and
 * MPI_ERR_RMA_SYNC for a window that is broken, as a wait of it ran into its time-out under
 * MPIX_ON_TIMEOUT=error, or as a rank of another node was lost: its stream epochs are over, and it can
 * only be freed.
 *
 * Link libmpix in front of MPI (mpicc app.c -lmpix): it interposes MPI_Win_start, MPI_Put and others
 * through the profiling interface. MPIX_Query_stream_rma tells whether that worked.
 */

#include <mpi.h>
#include <stddef.h>

/* Made by configure: refuses the mpi.h of another MPI than the one that libmpix was built for. */
#if defined(__has_include)
#if __has_include("mpix_mpi.h")
#include "mpix_mpi.h"
#endif
#endif

/* Where an MPI library's own headers declare some of these names already (HPE Cray MPICH does), this
 * header leaves those to it. */
#ifndef MPIX_MODE_STREAM
/* Assertion for MPI_Win_start: RMA calls of this access epoch are recorded, and run by
 * MPIX_Win_complete_stream. Other assertions may be combined with it, and have no effect.
 * MPI_Put takes datatypes whose bytes are in the order of memory, without gaps; both sides must have the
 * same number of bytes. The other RMA calls return MPI_ERR_UNSUPPORTED_OPERATION so far; the request-based
 * ones, which belong to passive-target epochs, MPI_ERR_RMA_SYNC. */
#define MPIX_MODE_STREAM 0x01000000
#define MPIX_DECLARES_STREAM_RMA 1
#endif

#define MPIX_LIB_VERSION_MAJOR 0
#define MPIX_LIB_VERSION_MINOR 1
#define MPIX_LIB_VERSION_PATCH 0

#if defined(__GNUC__)
#define MPIX_PUBLIC __attribute__((visibility("default")))
#else
#define MPIX_PUBLIC
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Stream epochs ------------------------------------------------------------------------------ */

#ifdef MPIX_DECLARES_STREAM_RMA

/* Enqueue: open an exposure epoch of `win` to the processes of `group`.
 * A window made with the info key mpix_lazy_post=true promises that neither the program nor `stream` waits
 * for another process between this call and its next stream call on the window; that call's kernel then
 * carries the post, which saves a launch. `stream` must live until then, and both calls be in the same
 * capture or in none.
 * Close it with MPIX_Win_wait_stream or MPIX_Win_complete_wait_stream. `group` may be freed at once.
 * Errors: MPI_ERR_RMA_SYNC (an exposure epoch is open), MPI_ERR_GROUP, MPI_ERR_RANK (a process that is
 * not in the window's group), MPI_ERR_ARG (not a stream of the device in use, or of another GPU), MPI_ERR_NO_MEM (for
 * what a rank takes that is named for the first time). */
MPIX_PUBLIC int MPIX_Win_post_stream(MPI_Group group, MPI_Win win, void* stream);

/* Enqueue, and close the access epoch that MPI_Win_start(group, MPIX_MODE_STREAM, win) opened: for each
 * target, wait until it exposes its window where the data needs that, move the data of the recorded
 * operations, and tell the target. After it in stream order the origin buffers may be reused.
 * The origin buffers are read when the stream gets here, not when MPI_Put is called.
 * Errors: MPI_ERR_RMA_SYNC (no stream access epoch is open), MPI_ERR_ARG. */
MPIX_PUBLIC int MPIX_Win_complete_stream(MPI_Win win, void* stream);

/* Enqueue, and close the exposure epoch that MPIX_Win_post_stream opened: hold the stream until every
 * process of that group has completed its access epoch. After it in stream order the window holds
 * their data.
 * Errors: MPI_ERR_RMA_SYNC (no stream exposure epoch is open), MPI_ERR_ARG. */
MPIX_PUBLIC int MPIX_Win_wait_stream(MPI_Win win, void* stream);

#endif /* MPIX_DECLARES_STREAM_RMA */

/* MPIX_Win_complete_stream and MPIX_Win_wait_stream in one, and as a rule in one kernel: the access and
 * the exposure epoch make progress together. Both must be open. Cheaper than the two calls.
 * Errors: those of the two. */
MPIX_PUBLIC int MPIX_Win_complete_wait_stream(MPI_Win win, void* stream);

/* ---- Host streams ------------------------------------------------------------------------------- */

/* A stream that needs no GPU: a worker thread that runs what is enqueued, in order. It converts to the
 * void * of the calls above. */
typedef struct MPIX_Host_stream_s* MPIX_Host_stream;

/* Create a stream. The caller owns it. `*stream` is set only on success.
 * Errors: MPI_ERR_ARG (null pointer), MPI_ERR_NO_MEM or MPI_ERR_INTERN (no thread to be had). */
MPIX_PUBLIC int MPIX_Host_stream_create(MPIX_Host_stream* stream);

/* Enqueue fn(arg). `arg` must stay valid until fn has run. fn runs on the stream's thread: it may call
 * MPI only under MPI_THREAD_MULTIPLE, and must not synchronize or destroy its own stream.
 * A null stream is the default stream.
 * Errors: MPI_ERR_ARG (no such stream, null function). */
MPIX_PUBLIC int MPIX_Host_stream_launch(MPIX_Host_stream stream, void (*fn)(void*), void* arg);

/* Wait, asleep, until everything enqueued so far has run. A null stream is the default stream.
 * Errors: MPI_ERR_ARG (no such stream, or called on the stream's own thread); MPI_ERR_RMA_SYNC
 * (MPIX_ON_TIMEOUT=error released a wait of this stream: what followed it ran on stale data). */
MPIX_PUBLIC int MPIX_Host_stream_synchronize(MPIX_Host_stream stream);

/* Synchronize, then destroy; `*stream` becomes NULL. The default stream cannot be destroyed.
 * Errors: MPI_ERR_ARG (no such stream, or called on the stream's own thread); MPI_ERR_RMA_SYNC as for
 * synchronize: the stream is destroyed nevertheless. */
MPIX_PUBLIC int MPIX_Host_stream_destroy(MPIX_Host_stream* stream);

/* ---- Queries ------------------------------------------------------------------------------------ */

/* *active = 1 when libmpix stands in front of MPI in this process and the calls above work; 0 when MPI
 * was reached without it (as with `-lmpi -lmpix`, the wrong order), or before MPI_Init. */
MPIX_PUBLIC int MPIX_Query_stream_rma(int* active);

/* Counters of one window in this process since its creation; two, as they say, are of the whole process.
 * They count what has been enqueued, and an epoch in a graph once, when it is captured. */
typedef struct MPIX_Win_stats {
  unsigned long long exposure_epochs; /* stream exposure epochs whose post was enqueued */
  unsigned long long access_epochs;   /* stream access epochs whose complete was enqueued */
  unsigned long long puts;            /* recorded puts, without those to MPI_PROC_NULL */
  unsigned long long bytes_mailbox;   /* through the eager mailbox */
  unsigned long long bytes_direct;    /* straight into the target's window */
  unsigned long long bytes_staged;    /* through library memory, as the window cannot be mapped */
  unsigned long long plans_built;     /* epochs whose operations were prepared anew */
  unsigned long long plans_reused;    /* epochs that repeated an earlier one's operations */
  unsigned long long bytes_copied;    /* straight into the target's window, by a GPU's copy engine */
  /* to ranks of other nodes: */
  unsigned long long bytes_network_eager;  /* gathered into one message for each target */
  unsigned long long bytes_network_direct; /* straight from the origin buffers into the window */
  unsigned long long network_operations;   /* operations queued: writes and signals */
  /* of this process, in all its windows; both are 0 while this window has queued nothing: */
  unsigned long long network_budget; /* operations that may be queued at a time; 0: any number */
  unsigned long long network_peak;   /* most that were queued at a time so far */
  /* of this window again: */
  unsigned long long throttle_waits;   /* calls that had to wait for the budget, and */
  unsigned long long throttle_wait_ns; /* for how long in all, in nanoseconds */
  unsigned long long posts_raised;     /* posts that did not wait for the call that carries them (MPIX_POST) */
} MPIX_Win_stats;

/* Copy at most `size` bytes of the counters: pass sizeof(MPIX_Win_stats). Later versions only append
 * fields; fields that this library does not know are set to zero. */
MPIX_PUBLIC int MPIX_Win_get_stats(MPI_Win win, MPIX_Win_stats* stats, size_t size);

#ifdef __cplusplus
}
#endif

#include "mpix_channel.h"
#include "mpix_collectives.h"
#include "mpix_halo.h"
/* Where an MPI library's own headers declare these names already (HPE Cray MPICH does), define this. */
#ifndef MPIX_WITHOUT_DREQUESTS
#include "mpix_requests.h"
#endif

#endif /* MPIX_H */
