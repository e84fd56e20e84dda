/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_HALO_H
#define MPIX_HALO_H

/* The halo engine: point-to-point messages of a halo exchange, packed and unpacked by one kernel in a stream. On a node
 * the kernel packs into memory of the rank that unpacks; elsewhere it tells a thread of the library of each message as
 * soon as it is packed, which sends it while others are being packed, and tells the kernel of each that has arrived. No
 * synchronization, and one launch an exchange, or for many.
 *
 *     MPIX_Halo_create(comm, 26, messages, MPI_INFO_NULL, &halo);     // once: what goes where, from which boxes
 *     for (int step = 0; step < steps; ++step) {
 *       compute<<<..., stream>>>(...);
 *       MPIX_Halo_exchange_stream(halo, stream);                      // also in a captured graph
 *     }
 *
 * It needs no window at the other end: both ends name messages by rank and tag. doc/notifications.md says when to take
 * it, and when stream epochs. */

#include <mpi.h>
#include <mpix_device/halo_param.h>
#include <stddef.h>

#ifndef MPIX_PUBLIC
#define MPIX_PUBLIC
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MPIX_Halo_s* MPIX_Halo;
#define MPIX_HALO_NULL ((MPIX_Halo)0)

/* Elements in up to three dimensions, of one array or of several (fields) that are alike. Strides in bytes; element
 * (i, j, k) of field f lies at base + i stride[0] + j stride[1] + k stride[2] + f field_stride, for all i < count[0]
 * and so on, as far as there are `dims`. Memory of the device in use, or of the host that kernels reach. */
typedef struct MPIX_Box {
  void* base;
  size_t element; /* bytes */
  int dims;       /* 1 to 3 */
  long count[3], stride[3];
  int fields; /* 1 and more; 0 is 1 */
  long field_stride;
} MPIX_Box;

/* What goes to `peer`, with send_tag, from its send boxes one after another; and what comes from it, with recv_tag,
 * into the others. Several messages to one peer have different tags. MPI_PROC_NULL: nothing is packed or unpacked. */
typedef struct MPIX_Halo_message {
  int peer, send_tag, recv_tag;
  int send_boxes, recv_boxes;
  const MPIX_Box *send, *recv;
} MPIX_Halo_message;

/* Collective over `comm`, which may be freed afterwards. Up to 4096 messages; 0 are legal. Info keys (the first value
 * is preset, and chunks are the same on all ranks; man MPIX_Halo_create says more):
 *
 *   mpix_route       auto: by memory, to ranks that share theirs, and else by MPI; mpi: all by MPI
 *   mpix_form        stacked: several blocks share a large message; stream: a block each; barrier: all blocks share a
 *                    large one, and meet; launches: one packs, another unpacks; blocks: a launch a message
 *   mpix_buffers     pinned: memory of the host that kernels reach; copied: the copy engine carries it; device: MPI is
 *                    given memory of the GPU
 *   mpix_sends       nonblocking; blocking: one after another, each by MPI_Send
 *   mpix_receives    testsome, testany; waitall: none is unpacked before all have come
 *   mpix_order       interleaved; sends-first: receives are looked at when all is sent
 *   mpix_pack_order  given; largest: the largest message is packed first
 *   mpix_chunk       bytes: longer messages go in pieces, 2048 at most; 0: they do not
 *   mpix_gather      bytes (8192): messages no longer than that, to one rank, go in one of MPI; 0: each goes by itself
 *   mpix_packers     blocks of a launch, at most; 0: by the device and the messages
 *   mpix_halves      1; 2: buffers of a message, so that an exchange need not wait for the sends of the one before
 *   mpix_coherence   coherent; noncoherent memory is refused
 *   mpix_name        for reports
 *
 * Errors, on all ranks: MPI_ERR_ARG, MPI_ERR_RANK, MPI_ERR_TAG, MPI_ERR_TRUNCATE (the two ends of a message differ in
 * bytes); MPI_ERR_TAG also where one end alone names a message; MPI_ERR_COMM (none, or an inter-communicator),
 * MPI_ERR_INFO_VALUE, MPI_ERR_NO_MEM, MPI_ERR_UNSUPPORTED_OPERATION (MPI_THREAD_MULTIPLE is needed). */
MPIX_PUBLIC int MPIX_Halo_create(MPI_Comm comm, int messages, const MPIX_Halo_message message[], MPI_Info info,
                                 MPIX_Halo* halo);
/* Collective: waits until all exchanges of this process that were enqueued are over, and for all ranks where some go by
 * memory. No graph with one, and no kernel of the program that has it, runs afterwards. MPI_ERR_OTHER while steps are
 * to come. */
MPIX_PUBLIC int MPIX_Halo_free(MPIX_Halo* halo);

/* Enqueue: pack, send, receive, unpack. Before it in stream order the send boxes are filled; after it the receive boxes
 * are. All ranks that share messages call it as often, in the same order. Exchanges of one halo are in stream order, in
 * one stream or by events. */
MPIX_PUBLIC int MPIX_Halo_exchange_stream(MPIX_Halo halo, void* stream);

/* Steps: many exchanges in one launch, which stays and takes `stream` for itself. In another stream the program says
 * when the send boxes of the next one are filled, and waits for the receive boxes:
 *
 *     MPIX_Halo_begin_stream(halo, steps, beside);
 *     for (int step = 0; step < steps; ++step) {
 *       MPIX_Halo_ready_stream(halo, stream);       // behind what has filled the send boxes
 *       inside<<<..., stream>>>(...);               // meanwhile
 *       MPIX_Halo_wait_stream(halo, stream);        // what follows finds the receive boxes filled
 *       border<<<..., stream>>>(...);
 *     }
 *
 * begin: no steps of an earlier one are to come. wait: for all that were made ready. end: no further ones, though fewer
 * were made ready than begun; all ranks make as many ready. MPI_ERR_OTHER: a step that was not begun, an exchange by
 * itself while steps are to come; MPI_ERR_ARG: the stream of the launch; MPI_ERR_UNSUPPORTED_OPERATION: in a capture,
 * and where processes use the GPU in turns. */
MPIX_PUBLIC int MPIX_Halo_begin_stream(MPIX_Halo halo, long steps, void* stream);
MPIX_PUBLIC int MPIX_Halo_ready_stream(MPIX_Halo halo, void* stream);
MPIX_PUBLIC int MPIX_Halo_wait_stream(MPIX_Halo halo, void* stream);
MPIX_PUBLIC int MPIX_Halo_end_stream(MPIX_Halo halo, void* stream);

/* For kernels of the program that exchange by themselves: MPIX_Dev_halo_… in mpix_device.h. They, the calls above and
 * graphs follow each other, one exchange after the other. */
MPIX_PUBLIC int MPIX_Halo_get_device(MPIX_Halo halo, MPIX_Dev_halo* device);

typedef struct MPIX_Halo_stats {
  unsigned long long exchanges;              /* that were enqueued, and steps that are ready; in a graph once */
  unsigned long long sent, received;         /* messages */
  unsigned long long send_bytes, recv_bytes; /* of one exchange */
  unsigned long long blocks;                 /* of its kernel */
  unsigned long long by_memory;              /* messages of an exchange that MPI has nothing to do with */
  unsigned long long mpi_sends;              /* messages of MPI: short ones to one rank go in one */
} MPIX_Halo_stats;
/* Later versions only append. */
MPIX_PUBLIC int MPIX_Halo_get_stats(MPIX_Halo halo, MPIX_Halo_stats* stats, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* MPIX_HALO_H */
