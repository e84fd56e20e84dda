/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_COLLECTIVES_H
#define MPIX_COLLECTIVES_H

/* Collectives on streams: the calls of MPI, with a stream as last argument.
 *
 *     MPIX_Allreduce_stream(&dot, &sum, 1, MPI_DOUBLE, MPI_SUM, comm, stream);   // enqueue, and return
 *
 * A call checks its arguments, enqueues, and returns: it waits neither for the stream nor for another process. The
 * first on a communicator is the exception: it is collective as MPI's are, as the ranks introduce themselves to each
 * other; MPIX_Comm_prepare_stream does that beforehand. In stream order sendbuf is read and recvbuf written; what is
 * enqueued behind the call may use both.
 *
 * Order. All ranks make the same calls on a communicator, in the same order, as MPI demands; and here that is the order
 * in which they run: in one stream, or in streams that events order. Calls in a stream that is being captured become
 * part of the graph, and take place at each launch of it; two of one communicator never stand in parallel branches.
 * Calls on different communicators are independent; but where several streams carry them, the order must not become a
 * circle through the ranks.
 *
 * Results. Operands are combined in the order of the ranks, from 0 on: ((x0 op x1) op x2) op ... Where the ranks are on
 * several nodes, those of each node are, in their order, and then the nodes, in the order of their lowest ranks; but
 * all in the order of the ranks where an operation of MPI_Op_create does not commute. So all ranks have the same bits,
 * in each run, whatever way the data take; but along trees (MPIX_COLL=gsb and its like) floating numbers are combined
 * as the tree has it: sums and products may have other last bits, minima and maxima may be another NaN, a number in
 * place of one, or the other zero.
 *
 * Arguments are those of MPI. MPI_IN_PLACE is taken where MPI takes it. Every predefined operation works with every
 * type that MPI allows for it. What libmpix leaves to MPI is for host streams, under MPI_THREAD_MULTIPLE: numbers of
 * more than 8 bytes (long double), what contains them, and operations of MPI_Op_create on predefined types of numbers,
 * which must live until the call has run. Derived types must be contiguous, and only move data.
 *
 * Errors. MPI_SUCCESS or an MPI error code, through the communicator's error handler; MPI_Error_string has the reason.
 * A call that returns an error has enqueued nothing, but for errors of a GPU's driver in calls of several launches,
 * after which the communicator's calls return MPI_ERR_RMA_SYNC. Ranks that call different things (another call, count,
 * type, operation or root) are told so: a report names what each has called, and the communicator's calls return
 * MPI_ERR_RMA_SYNC from then on. The same holds where a wait runs into MPIX_TIMEOUT under MPIX_ON_TIMEOUT=error.
 * MPI_ERR_UNSUPPORTED_OPERATION: ranks of a node that cannot reach each other's memory, or nodes that no network of
 * libmpix connects, or libmpix is not in front of MPI. */

#include <mpi.h>
#include <stddef.h>

#ifndef MPIX_PUBLIC
#if defined(__GNUC__)
#define MPIX_PUBLIC __attribute__((visibility("default")))
#else
#define MPIX_PUBLIC
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* In stream order: hold the stream until every rank's stream has come to its call. */
MPIX_PUBLIC int MPIX_Barrier_stream(MPI_Comm comm, void* stream);

MPIX_PUBLIC int MPIX_Bcast_stream(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, void* stream);

/* recvbuf is used at the root only; there sendbuf may be MPI_IN_PLACE. */
MPIX_PUBLIC int MPIX_Reduce_stream(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                                   int root, MPI_Comm comm, void* stream);

MPIX_PUBLIC int MPIX_Allreduce_stream(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                                      MPI_Comm comm, void* stream);

/* Each rank gets recvcount elements of the result; in place recvbuf has those of all ranks, and the result goes to its
 * begin. */
MPIX_PUBLIC int MPIX_Reduce_scatter_block_stream(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype type,
                                                 MPI_Op op, MPI_Comm comm, void* stream);

MPIX_PUBLIC int MPIX_Allgather_stream(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                                      int recvcount, MPI_Datatype recvtype, MPI_Comm comm, void* stream);

MPIX_PUBLIC int MPIX_Alltoall_stream(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                                     int recvcount, MPI_Datatype recvtype, MPI_Comm comm, void* stream);

/* Collective; may wait: what the first call on the communicator does otherwise. */
MPIX_PUBLIC int MPIX_Comm_prepare_stream(MPI_Comm comm, MPI_Info info);

/* Collective; may wait: the other ranks map memory of this one, so that large collectives read and write it where it
 * lies. A rank may bring none (bytes 0). Buffers elsewhere are copied through memory of the library. What is attached
 * must not be freed before it is detached, or the communicator is.
 * Errors: MPI_ERR_RMA_ATTACH (memory that cannot be mapped, or overlaps what is attached), MPI_ERR_NO_MEM (16 are
 * attached). */
MPIX_PUBLIC int MPIX_Comm_attach(MPI_Comm comm, void* base, MPI_Aint bytes);

/* Collective; waits for what is enqueued, but not for graphs. `base` as at the attach.
 * Errors: MPI_ERR_RMA_ATTACH (it is not attached). */
MPIX_PUBLIC int MPIX_Comm_detach(MPI_Comm comm, void* base);

/* Counters of one communicator in this process. They count what has been enqueued, and a call in a graph once. */
typedef struct MPIX_Comm_stats {
  unsigned long long calls;         /* all of them */
  unsigned long long calls_lines;   /* by lines: data and flags travel together */
  unsigned long long calls_direct;  /* by reading and writing memory of the other ranks */
  unsigned long long bytes;         /* that this rank contributed */
  unsigned long long memory_bytes;  /* of the library, for this communicator, on this rank */
  unsigned long long calls_nodes;   /* on a communicator of several nodes; not counted by the way they take on a node */
  unsigned long long node_ranks;    /* of the communicator on this node: as tables of ways have it (MPIX_COLL_TABLE) */
  unsigned long long sharers;       /* likewise: the most of these that share a GPU; 1 on host streams */
  unsigned long long calls_chosen;  /* that choose their way where they run (MPIX_COLL_SELECT=dynamic) */
  unsigned long long chosen_direct; /* of these, those that have run, and have gone direct */
  unsigned long long calls_packs;   /* by packs: a flag for 15 words, over NVLink */
  unsigned long long calls_trees;   /* along a tree of ranks (MPIX_COLL=gsb and its like) */
  unsigned long long calls_turns;   /* behind waits in memory operations: see MPIX_WAIT */
  unsigned long long calls_staged;  /* by the copy engine and the CPU, without a kernel (MPIX_COLL=staged) */
  unsigned long long calls_copies;  /* whose data the copy engine moves, without a kernel (MPIX_COLL=copies) */
  unsigned long long blocks;        /* of a GPU that a call may have; 0: calls wait in memory operations */
} MPIX_Comm_stats;

/* Copy at most `size` bytes of the counters: pass sizeof(MPIX_Comm_stats). Fields that this library does not know are
 * set to zero. */
MPIX_PUBLIC int MPIX_Comm_get_stats(MPI_Comm comm, MPIX_Comm_stats* stats, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* MPIX_COLLECTIVES_H */
