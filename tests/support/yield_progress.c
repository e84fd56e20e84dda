/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * MPICH spins while it waits, so with more ranks than cores every message costs a time slice of the
 * scheduler (40 ms for a barrier of 8 ranks on 2 cores). Preloaded, this gives the core away after
 * some polls of UCX that found nothing, and naps after many, the longer the longer it has waited: naps of 50 us alone
 * take an eighth of a core from the tests beside it, in which ranks wait for many seconds. For tests; a benchmark that
 * uses it must say so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

typedef unsigned (*progress_fn)(void* worker);

unsigned ucp_worker_progress(void* worker);

__attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker) {
  static progress_fn real;
  static __thread int idle, naps;
  progress_fn progress = __atomic_load_n(&real, __ATOMIC_RELAXED);
  if (!progress) {
    progress = (progress_fn)dlsym(RTLD_NEXT, "ucp_worker_progress");
    if (!progress) abort();
    __atomic_store_n(&real, progress, __ATOMIC_RELAXED);
  }

  unsigned events = progress(worker);
  if (events)
    idle = naps = 0;
  else if (++idle % 100 == 0) {
    if (idle < 2000) {
      sched_yield();
    } else {
      const struct timespec nap = {0, 50000 + naps * 2000}; /* longer with the wait so far, up to 2 ms after a second */
      if (naps < 975) ++naps;
      nanosleep(&nap, NULL);
      idle = 1990; /* ten polls, and the next nap */
    }
  }
  return events;
}
