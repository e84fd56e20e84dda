/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_DEVICE_PARAM_H
#define MPIX_DEVICE_PARAM_H

#include <stdint.h>

/* Grows with every change of what kernels and the library share: a kernel that was compiled with other headers than
 * those of the library in use gets an error from MPIX_Dev_init. */
#define MPIX_DEV_ABI 5

#ifdef __cplusplus
namespace mpix {
namespace dev {
struct Hooks;
struct RankNote;
struct FarWords;
struct FarRank;
struct LogLine;
}  // namespace dev
struct Task;
}  // namespace mpix
typedef const mpix::dev::Hooks MPIX_Dev_hooks;
typedef mpix::dev::RankNote MPIX_Dev_note;
typedef mpix::dev::FarWords MPIX_Dev_far_words;
typedef mpix::dev::FarRank MPIX_Dev_far_rank;
typedef mpix::Task MPIX_Dev_task;
typedef mpix::dev::LogLine MPIX_Dev_log_line;
#else
typedef const void MPIX_Dev_hooks;
typedef void MPIX_Dev_note;
typedef void MPIX_Dev_far_words;
typedef void MPIX_Dev_far_rank;
typedef void MPIX_Dev_task;
typedef void MPIX_Dev_log_line;
#endif

/* What a kernel knows of its domain: an argument of it, by value. Nothing in it is for programs. The tables lie in
 * device memory; mpix_device/layout.h says where each is. */
typedef struct MPIX_Dev_param {
  uint32_t abi;
  uint32_t process, processes; /* of the domain, on this node */
  uint32_t first_rank, ranks_here, ranks;
  uint32_t first_on_node, ranks_on_node; /* as if there were no other node */
  uint32_t lane_lines;                   /* of each lane; a power of two */
  uint32_t lane_shift;                   /* its exponent */
  uint32_t most_pending;                 /* notifications that a rank sets aside */
  uint32_t inline_bytes;                 /* most that travel with a notification */
  uint32_t host_rank;                    /* host back end: which of the ranks here the thread is */
  uint64_t launch;                       /* which of the domain */
  uint64_t lanes_at;                     /* in an inbox */
  uint64_t inbox_bytes;                  /* each */
  char* segment;                         /* this process's control memory */
  char* const* segments;                 /* by process, as mapped here */
  char* const* inboxes;                  /* by rank, as mapped here; null: the rank is on another node */
  uint64_t* released;                    /* host memory: not 0: the domain is broken, and nobody waits any more */
  MPIX_Dev_note* notes;                  /* host memory: by rank here */
  MPIX_Dev_log_line* log;                /* host memory */
  MPIX_Dev_hooks* hooks;                 /* host back end; else null */
  void* waiter;                          /* likewise: the thread's */
  /* Host memory, mpix_device/far.h; null: all ranks are on one node. */
  MPIX_Dev_far_words* far_words;
  MPIX_Dev_far_rank* far_ranks; /* by rank here */
  MPIX_Dev_task* far_tasks;
  char* far_data;
} MPIX_Dev_param;

#endif /* MPIX_DEVICE_PARAM_H */
