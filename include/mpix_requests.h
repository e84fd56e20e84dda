/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_REQUESTS_H
#define MPIX_REQUESTS_H

/* Kernel-triggered MPI: a running kernel starts and completes persistent requests that the host has made.
 *
 *     MPI_Recv_init(in, count, MPI_DOUBLE, left, 0, comm, &request);        // memory of the host that kernels reach
 *     MPIX_Get_drequest(request, &receive);                                 // likewise a send
 *     step<<<1, threads, 0, stream>>>(send, receive);
 *
 *     __global__ void step(MPIX_Drequest send, MPIX_Drequest receive) {     // #include <mpix_device.h>
 *       for (...) {
 *         pack(...);
 *         __syncthreads();
 *         if (threadIdx.x == 0) {
 *           MPIX_Start(&receive);
 *           MPIX_Start(&send);                                              // all that the block packed goes out
 *           MPIX_Wait(&receive, MPI_STATUS_IGNORE);
 *           MPIX_Wait(&send, MPI_STATUS_IGNORE);
 *         }
 *         __syncthreads();
 *         unpack(...);                                                      // what has come is there
 *       }
 *     }
 *
 * The names for kernels (MPIX_Start, MPIX_Startall, MPIX_Test, MPIX_Testall, MPIX_Testany, MPIX_Wait, MPIX_Waitall,
 * MPIX_Waitany; MPIX_Pready, MPIX_Pready_range, MPIX_Parrived) are in mpix_device.h: those of HPE Cray MPICH, with its
 * arguments. A thread of the library calls MPI for kernels, so any MPI will do that gives MPI_THREAD_MULTIPLE. Without
 * a GPU (MPIX_DEVICE=host) kernels are threads (MPIX_Host_stream_launch_grid). doc/kernel-triggered.md is the guide.
 *
 * A request that has a device request is still the program's, and is left alone: MPI_Start, MPI_Wait, MPI_Test and
 * MPI_Cancel of it are errors that nobody notices (libmpix does not stand in front of them); MPI_Request_free is one
 * that is told. Its buffer has to be memory that both MPI and kernels reach while a kernel runs: pinned memory of the
 * host, or memory of the GPU where MPI is GPU-aware and needs no kernel or copy of its own for it.
 *
 * Calls are local, and may come from several threads at once. Errors go through the error handler of MPI_COMM_WORLD; a
 * call that returns one has changed nothing. Where MPI reports an error for a request that a kernel has started, all
 * device requests are broken: kernels wait no more (MPIX_DEV_RELEASED), and calls here return MPI_ERR_OTHER with the
 * reason, until the last device request has been freed. */

#include <mpi.h>
#include <mpix_device/request_param.h>

#ifndef MPIX_PUBLIC
#define MPIX_PUBLIC
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What kernels get for `request`, by value. It is persistent, inactive, and made by this program with MPI_Send_init,
 * MPI_Bsend_init, MPI_Ssend_init, MPI_Rsend_init, MPI_Recv_init, MPI_Psend_init or MPI_Precv_init. Errors:
 * MPI_ERR_REQUEST (it is not: null, not made so, freed, active as far as MPI says; it has a device request already),
 * MPI_ERR_UNSUPPORTED_OPERATION (MPI lets one thread at a time call it: MPI_Init_thread with MPI_THREAD_MULTIPLE, or
 * MPIX_CHANNEL_THREAD=on), MPI_ERR_ARG, MPI_ERR_NO_MEM, MPI_ERR_OTHER (broken). */
MPIX_PUBLIC int MPIX_Get_drequest(MPI_Request request, MPIX_Drequest* drequest);

/* No kernel uses it any more: one that does gets MPIX_DEV_RELEASED. `*drequest` is zeroed, and the request is the
 * program's alone, inactive again. Errors: MPI_ERR_REQUEST (no device request), MPI_ERR_OTHER (it is active: a kernel
 * has started it, and MPI has not completed it). */
MPIX_PUBLIC int MPIX_Free_drequest(MPIX_Drequest* drequest);

#ifdef __cplusplus
}
#endif

#endif /* MPIX_REQUESTS_H */
