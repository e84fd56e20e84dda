/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_DEVICE_H
#define MPIX_DEVICE_H

/* libmpix inside kernels: put, get and notifications that are matched by window, source and tag.
 *
 * The blocks of a kernel are ranks of a domain. They put into each other's windows, on any GPU of this node or another,
 * and wait for notifications, as many blocks as fit; while some wait the multiprocessor runs others.
 *
 *     __global__ void jacobi(MPIX_Dev_param domain, MPIX_Dev_win win, double* mine, int row, int steps) {
 *       __shared__ MPIX_Dev_ctx dev;
 *       MPIX_Dev_init(&dev, domain, MPIX_DEV_BLOCK);
 *       const int me = MPIX_Dev_rank(&dev, MPIX_DEV_WORLD), n = MPIX_Dev_size(&dev, MPIX_DEV_WORLD);
 *       for (int step = 0; step < steps; ++step) {
 *         ...
 *         if (me + 1 < n) MPIX_Dev_put_notify(&dev, win, me + 1, 0, row * 8, last_row, step);
 *         MPIX_Dev_wait(&dev, win, MPIX_DEV_ANY_SOURCE, step, me > 0);
 *       }
 *       MPIX_Dev_finish(&dev);
 *     }
 *
 * The host makes the domain and its windows, and launches:
 *
 *     MPIX_Dev_create(comm, blocks, MPI_INFO_NULL, &dev);             // collective
 *     MPIX_Dev_alloc(dev, bytes, &memory);                            // memory that the other ranks reach
 *     MPIX_Dev_win_create(dev, bases, sizes, &win);                   // collective; a part of it for each block
 *     MPIX_Dev_launch(dev, jacobi, threads, 0, stream, win, (double*)memory, row, steps);
 *
 * Without a GPU (MPIX_DEVICE=host) the same source, compiled as C++17, runs with threads as ranks
 * (MPIX_Dev_launch_host). What goes to ranks of other nodes a thread of the process carries. doc/device.md is the
 * guide.
 *
 * Errors. MPIX_Dev_create raises errors through the error handler of its communicator, the other calls of the host
 * through that of MPI_COMM_WORLD. Calls in kernels return MPI's error classes, the same to all threads of the team, and
 * have then done nothing; the first error of each rank is kept for MPIX_Dev_error. */

#include <mpix.h>
#include <mpix_device/param.h>
#include <stddef.h>
#include <stdint.h>

#define MPIX_DEV_ANY_SOURCE (-1)
#define MPIX_DEV_ANY_TAG (-1)
#define MPIX_DEV_ANY_WINDOW (-1)

/* Groups of ranks. */
#define MPIX_DEV_WORLD 0  /* all of the domain */
#define MPIX_DEV_DEVICE 1 /* those of this process */
#define MPIX_DEV_NODE 2   /* those of this node: which reach each other by loads and stores, too */

/* How MPIX_Dev_reduce combines elements. */
#define MPIX_DEV_SUM 0
#define MPIX_DEV_MAX 1
#define MPIX_DEV_MIN 2

/* The threads of a rank: what calls together. */
#define MPIX_DEV_BLOCK 0
#define MPIX_DEV_WARP 1 /* one warp of the block communicates, and the others are the program's own affair */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The host ----------------------------------------------------------------------------------- */

typedef struct MPIX_Dev_s* MPIX_Dev;
#define MPIX_DEV_NULL ((MPIX_Dev)0)
/* A window of a domain: a number, the same on all ranks. */
typedef int MPIX_Dev_win;

/* Collective: a domain to which this process brings `ranks_here` ranks (0: none), numbered in the order of the
 * processes in `comm`, which may be freed afterwards. Info keys: mpix_dev_lane_lines (a power of two: 16-byte lines of
 * the ring from each process of a node to each rank of it), mpix_dev_pending (notifications that a rank may set aside,
 * preset 1024), mpix_dev_inline (most bytes that travel with a notification on a node; 0: always straight into the
 * window); all processes give the same. Errors: MPI_ERR_ARG, MPI_ERR_NO_MEM, MPI_ERR_UNSUPPORTED_OPERATION (several
 * nodes, and no network between them; on a node devices that differ, or memory that the others cannot map; processes
 * that share a GPU in turns, without MPS). */
MPIX_PUBLIC int MPIX_Dev_create(MPI_Comm comm, int ranks_here, MPI_Info info, MPIX_Dev* dev);

/* Collective: waits until launches are over, and what was put to other nodes is there. `*dev` becomes MPIX_DEV_NULL.
 * Memory of MPIX_Dev_alloc is freed. */
MPIX_PUBLIC int MPIX_Dev_free(MPIX_Dev* dev);

/* Memory of the device in use that other ranks can reach; zeroed. */
MPIX_PUBLIC int MPIX_Dev_alloc(MPIX_Dev dev, size_t bytes, void** base);
MPIX_PUBLIC int MPIX_Dev_dealloc(MPIX_Dev dev, void* base);

/* Collective: kernels may open windows over this memory (MPIX_Dev_win_open), which is the program's own, or comes from
 * MPIX_Dev_alloc; each process gives its own, or nothing. On a host that is memory of MPIX_Dev_alloc, or
 * such as MPI gives with mpi_memory_alloc_kinds=mpix:device. While no kernel
 * of the domain runs. Errors: MPI_ERR_RMA_ATTACH (other processes cannot reach it; there are 64 already),
 * MPI_ERR_UNSUPPORTED_OPERATION (with a GPU in use: pageable memory of the host, or memory of another GPU). */
MPIX_PUBLIC int MPIX_Dev_attach(MPIX_Dev dev, void* base, size_t bytes);
/* Collective, each process with the base that it gave. */
MPIX_PUBLIC int MPIX_Dev_detach(MPIX_Dev dev, void* base);

/* Collective: a window; base[i] and bytes[i] are of the i-th rank here. Parts may overlap: a put whose source is where
 * its data belong moves nothing, and only notifies. Up to 64 at a time. While no kernel of the domain runs.
 * Errors: MPI_ERR_ARG, MPI_ERR_NO_MEM (too many windows); MPI_ERR_RMA_ATTACH and MPI_ERR_UNSUPPORTED_OPERATION (memory,
 * as for MPIX_Dev_attach). */
MPIX_PUBLIC int MPIX_Dev_win_create(MPIX_Dev dev, void* const base[], const size_t bytes[], MPIX_Dev_win* win);
MPIX_PUBLIC int MPIX_Dev_win_free(MPIX_Dev dev, MPIX_Dev_win* win);

/* What a kernel gets that the program launches itself: all of ranks_here blocks have to be resident at once, and
 * MPIX_Dev_free does not wait for it. Not for threads. */
MPIX_PUBLIC int MPIX_Dev_get_param(MPIX_Dev dev, MPIX_Dev_param* param);

/* Threads as ranks: enqueue fn(param, arg), by ranks_here threads at once, in a host stream. */
MPIX_PUBLIC int MPIX_Dev_launch_host(MPIX_Dev dev, void (*fn)(MPIX_Dev_param, void*), void* arg, void* host_stream);

/* The first error that a rank here met in a kernel: its class (MPI_SUCCESS: none) and, in text, rank, call, arguments.
 * After the kernel. `clear`: forget it. */
MPIX_PUBLIC int MPIX_Dev_error(MPIX_Dev dev, int clear, int* error_class, char* text, size_t size);

typedef struct MPIX_Dev_stats {
  unsigned long long launches;
  unsigned long long notifications; /* that ranks here have taken from their lanes */
  unsigned long long pending;       /* that have come, and nobody has asked for yet */
  unsigned long long lane_bytes;    /* control memory of this process */
} MPIX_Dev_stats;
/* While no kernel of the domain runs. Later versions only append. */
MPIX_PUBLIC int MPIX_Dev_get_stats(MPIX_Dev dev, MPIX_Dev_stats* stats, size_t size);

/* For MPIX_Dev_launch and MPIX_Dev_max_ranks, below. */
MPIX_PUBLIC int MPIX_Dev_begin_launch(MPIX_Dev dev, void* stream, int abi, MPIX_Dev_param* param);
MPIX_PUBLIC int MPIX_Dev_end_launch(MPIX_Dev dev, const char* failure);
MPIX_PUBLIC int MPIX_Dev_sharers(MPIX_Dev dev, int* sharers);

#ifdef __cplusplus
}
#endif

/* ---- Kernels ------------------------------------------------------------------------------------ */

#ifdef __cplusplus

#include <mpix_device/together.h>

/* What a notification was: for calls with wildcards. */
struct MPIX_Dev_status {
  int source, tag, window;
  int was_read; /* not 0: the source has read the window (MPIX_Dev_get_notify) */
  size_t bytes;
};

namespace mpix {
namespace dev {

MPIX_DEV_CALL int class_of_failure(Result result) {
  switch (result) {
    case Result::ok:
      return MPI_SUCCESS;
    case Result::argument:
      return MPI_ERR_ARG;
    case Result::buffer:
      return MPI_ERR_BUFFER;
    case Result::count:
      return MPI_ERR_COUNT;
    case Result::group:
      return MPI_ERR_COMM;
    case Result::memory:
      return MPI_ERR_NO_MEM;
    case Result::operation:
      return MPI_ERR_OP;
    case Result::not_attached:
      return MPI_ERR_RMA_ATTACH;
    case Result::range:
      return MPI_ERR_RMA_RANGE;
    case Result::rank:
      return MPI_ERR_RANK;
    case Result::root:
      return MPI_ERR_ROOT;
    case Result::synchronization:
      return MPI_ERR_RMA_SYNC;
    case Result::tag:
      return MPI_ERR_TAG;
    case Result::order:
    case Result::window:
      return MPI_ERR_WIN;
    case Result::other:
      break;
  }
  return MPI_ERR_OTHER;
}

/// No jump where all is well.
MPIX_DEV_FN int class_of(Result result) { return result == Result::ok ? MPI_SUCCESS : class_of_failure(result); }

MPIX_FN Comm group_of(int comm) {
  return comm == MPIX_DEV_WORLD ? world : comm == MPIX_DEV_DEVICE ? device : comm == MPIX_DEV_NODE ? node : comms;
}

MPIX_FN Combine combine_by(int op) {
  return op == MPIX_DEV_SUM   ? Combine::sum
         : op == MPIX_DEV_MAX ? Combine::max
         : op == MPIX_DEV_MIN ? Combine::min
                              : Combine::none;
}

MPIX_DEV_FN int told(const Status& from, Result result, MPIX_Dev_status* to) {
  if (result == Result::ok && to) {
    to->source = from.source;
    to->tag = from.tag;
    to->window = from.window;
    to->was_read = from.kind == was_read;
    to->bytes = from.bytes;
  }
  return class_of(result);
}

}  // namespace dev
}  // namespace mpix

/* The first call of a rank in a kernel, and the last. `ctx` is the rank's, in memory of its block. */
MPIX_DEV_FN int MPIX_Dev_init(MPIX_Dev_ctx* ctx, const MPIX_Dev_param& param, int team = MPIX_DEV_BLOCK) {
  return mpix::dev::class_of(mpix::dev::init(*ctx, param, static_cast<std::uint32_t>(team)));
}
MPIX_DEV_FN void MPIX_Dev_finish(MPIX_Dev_ctx* ctx) { mpix::dev::finish(*ctx); }

MPIX_DEV_FN int MPIX_Dev_rank(const MPIX_Dev_ctx* ctx, int comm) {
  const std::uint32_t here = ctx->rank - ctx->p.first_rank;
  return static_cast<int>(comm == MPIX_DEV_WORLD    ? ctx->rank
                          : comm == MPIX_DEV_DEVICE ? here
                                                    : ctx->p.first_on_node + here);
}
MPIX_DEV_FN int MPIX_Dev_size(const MPIX_Dev_ctx* ctx, int comm) {
  return static_cast<int>(comm == MPIX_DEV_WORLD    ? ctx->p.ranks
                          : comm == MPIX_DEV_DEVICE ? ctx->p.ranks_here
                                                    : ctx->p.ranks_on_node);
}

/* Put without a notification: a later notification of this rank to the target tells of it, or a flush. Returns when
 * `local` may be used again. MPI_PROC_NULL as the target: nothing is done. */
MPIX_DEV_FN int MPIX_Dev_put(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, size_t disp, size_t bytes,
                             const void* local) {
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  return mpix::dev::class_of(mpix::dev::put(*ctx, win, target, disp, bytes, local));
}
/* Returns when the data are here. */
MPIX_DEV_FN int MPIX_Dev_get(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, size_t disp, size_t bytes, void* local) {
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  return mpix::dev::class_of(mpix::dev::get(*ctx, win, target, disp, bytes, local));
}
/* Put, and tell the target: who matches the notification sees the data, and those of earlier puts to it. */
MPIX_DEV_FN int MPIX_Dev_put_notify(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, size_t disp, size_t bytes,
                                    const void* local, int tag) {
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  return mpix::dev::class_of(mpix::dev::put_notify(*ctx, win, target, disp, bytes, local, tag));
}
/* `height` rows of `width` bytes, which begin so many bytes apart there and here, and one notification; what it tells
 * of are all of them. Where they lie there already, with the same stride, nothing moves. */
MPIX_DEV_FN int MPIX_Dev_put_notify_2d(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, size_t disp,
                                       size_t target_stride, const void* local, size_t local_stride, size_t width,
                                       size_t height, int tag) {
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  const mpix::dev::Rows rows{width, height, target_stride, local_stride};
  return mpix::dev::class_of(mpix::dev::put_notify_2d(*ctx, win, target, disp, local, rows, tag));
}
/* Get, and tell the target that it was read. */
MPIX_DEV_FN int MPIX_Dev_get_notify(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, size_t disp, size_t bytes,
                                    void* local, int tag) {
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  return mpix::dev::class_of(mpix::dev::get_notify(*ctx, win, target, disp, bytes, local, tag));
}
/* The data go once, into the target's part, and all ranks of the target's process are told, the target among them: each
 * gets a notification with this source, window and tag, and the bytes. Who matches it sees the data where it reaches
 * them (parts that overlap, MPIX_Dev_ptr), and those of all puts that this rank made to it before. Small data, too, may
 * be in the window before anybody calls. */
MPIX_DEV_FN int MPIX_Dev_put_notify_all(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, size_t disp, size_t bytes,
                                        const void* local, int tag) {
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  return mpix::dev::class_of(mpix::dev::put_notify_all(*ctx, win, target, disp, bytes, local, tag));
}
/* A notification without data. */
MPIX_DEV_FN int MPIX_Dev_notify(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, int tag) {
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  return mpix::dev::class_of(mpix::dev::notify(*ctx, win, target, tag));
}

/* Wait for `count` notifications, and take them. Window, source and tag may be MPIX_DEV_ANY_… Notifications of one
 * source match in the order in which it sent them. */
MPIX_DEV_FN int MPIX_Dev_wait(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int source, int tag, int count) {
  return mpix::dev::class_of(mpix::dev::wait(*ctx, win, source, tag, count, nullptr));
}
/* The same, and what the last of them was. */
MPIX_DEV_FN int MPIX_Dev_wait_status(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int source, int tag, int count,
                                     MPIX_Dev_status* status) {
  mpix::dev::Status last{-1, -1, -1, 0, 0};
  const mpix::dev::Result result = mpix::dev::wait(*ctx, win, source, tag, count, &last);
  return mpix::dev::told(last, result, status);
}
/* *flag = 1, and `count` notifications are taken; or 0, and none is. */
MPIX_DEV_FN int MPIX_Dev_test(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int source, int tag, int count, int* flag,
                              MPIX_Dev_status* status = nullptr) {
  mpix::dev::Status last{-1, -1, -1, 0, 0};
  const mpix::dev::Result result = mpix::dev::test(*ctx, win, source, tag, count, flag, &last);
  return mpix::dev::told(last, result, *flag ? status : nullptr);
}

/* All that this rank has put in this launch is in the windows of its targets, whatever window is named. */
MPIX_DEV_FN int MPIX_Dev_flush(MPIX_Dev_ctx* ctx, MPIX_Dev_win win) {
  return mpix::dev::class_of(mpix::dev::flush(*ctx, win));
}
/* All ranks of the group have come here. Puts without a notification are then visible to them. */
MPIX_DEV_FN int MPIX_Dev_barrier(MPIX_Dev_ctx* ctx, int comm) {
  return mpix::dev::class_of(mpix::dev::barrier(*ctx, mpix::dev::group_of(comm)));
}

/* Collectives: all ranks of the domain call, with the same arguments and in the same order. No barrier is needed: a
 * rank's part, and its scratch memory, are not written before it has called, and when its call has returned it may
 * write them, as nobody reads them any more. Between ranks of a process whose parts share bytes that holds for the call
 * as a whole: they are not written before the last of these ranks has called. Notifications of this window with this
 * tag are the calls' own: a wait for any tag in front of a call may take one of a rank that has called already. All
 * ranks return the same error: MPI_ERR_ROOT, MPI_ERR_WIN, MPI_ERR_TAG, MPI_ERR_RMA_RANGE (of some part), MPI_ERR_OP,
 * MPI_ERR_BUFFER (scratch memory that overlaps the data). Not so MPI_ERR_NO_MEM: the rank's list of pending
 * notifications is full; it has left the domain then, its later calls return MPI_ERR_RMA_SYNC, and others may wait for
 * it.
 *
 * What lies at `disp` of root's part goes to the same place of all parts. Returns when it is in the rank's own. */
MPIX_DEV_FN int MPIX_Dev_bcast(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int root, size_t disp, size_t bytes, int tag) {
  return mpix::dev::class_of(mpix::dev::bcast(*ctx, win, root, disp, bytes, tag));
}
/* The `count` elements at `disp` of all parts are combined (MPIX_DEV_SUM, _MAX, _MIN), one by one; when root's call
 * returns the result lies in their place in its part, and the others have theirs still. T is float, double or an
 * integer of 32 or 64 bits, whose sums wrap around. At `scratch` each part has room for 2 * count elements, which the
 * call uses. The order is always the same, so the bits are: the ranks of each process one after another, then the
 * processes by a binomial tree, from root's on. */
template <class T>
MPIX_DEV_FN int MPIX_Dev_reduce(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int root, size_t disp, size_t count, int op,
                                size_t scratch, int tag) {
  return mpix::dev::class_of(
      mpix::dev::reduce<T>(*ctx, win, root, disp, count, mpix::dev::combine_by(op), scratch, tag));
}

/* All ranks of the group: a window over attached memory, a part of it for each. Up to 64 at a time of each group. All
 * open and close their windows in the same order, or get MPI_ERR_WIN. */
MPIX_DEV_FN int MPIX_Dev_win_open(MPIX_Dev_ctx* ctx, int comm, void* base, size_t bytes, MPIX_Dev_win* win) {
  return mpix::dev::class_of(mpix::dev::win_open(*ctx, mpix::dev::group_of(comm), base, bytes, win));
}
MPIX_DEV_FN int MPIX_Dev_win_close(MPIX_Dev_ctx* ctx, MPIX_Dev_win* win) {
  const mpix::dev::Result result = mpix::dev::win_close(*ctx, *win);
  if (result == mpix::dev::Result::ok) *win = -1;
  return mpix::dev::class_of(result);
}

/* Where that byte of the target's part lies, for loads and stores; null: there is none, or the target is on another
 * node. */
MPIX_DEV_FN void* MPIX_Dev_ptr(MPIX_Dev_ctx* ctx, MPIX_Dev_win win, int target, size_t disp) {
  return mpix::dev::pointer(*ctx, win, target, disp);
}

/* A line on standard error, by the host: "rank 3: log 7: 1, 2, 3". For looking into kernels that run: within some 50
 * ms, and the oldest of more than 256 that come at once are lost, which is said. One thread of the team counts. */
MPIX_DEV_FN void MPIX_Dev_log(MPIX_Dev_ctx* ctx, int id, long long a = 0, long long b = 0, long long c = 0) {
  mpix::dev::log(*ctx, id, a, b, c);
}

#include <mpix_device/channel_calls.h>
#include <mpix_device/halo_calls.h>
#include <mpix_device/launch.h>
#include <mpix_device/request_calls.h>

#endif /* __cplusplus */

#endif /* MPIX_DEVICE_H */
