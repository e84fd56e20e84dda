/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * MPIs spin while they wait, so with more ranks than cores every message costs a time slice of the
 * scheduler (40 ms for a barrier of 8 ranks on 2 cores). Preloaded, this gives the core away after
 * some polls that found nothing, and naps after many, for an eighth of the time that it has napped so far: naps of 50
 * us alone take an eighth of a core from the tests beside it, in which ranks wait for many seconds. For tests; a
 * benchmark that uses it must say so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

static __thread int idle;
static __thread long napped; /* ns */

static void found_something(void) { idle = napped = 0; }

static void found_nothing(long longest_nap) {
  if (++idle % 100 != 0) return;
  if (idle < 2000) {
    sched_yield();
  } else {
    struct timespec nap = {0, 50000 + napped / 8};
    if (nap.tv_nsec > longest_nap)
      nap.tv_nsec = longest_nap;
    else
      napped += nap.tv_nsec;
    nanosleep(&nap, NULL);
    idle = 1990; /* ten polls, and the next nap */
  }
}

static void* real_one(void** known, const char* name) {
  void* real = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (!real) {
    real = dlsym(RTLD_NEXT, name);
    if (!real) abort();
    __atomic_store_n(known, real, __ATOMIC_RELAXED);
  }
  return real;
}

/* MPICH polls UCX, which says how much it has found. */
unsigned ucp_worker_progress(void* worker);

__attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker) {
  static void* known;
  const unsigned events = ((unsigned (*)(void*))real_one(&known, "ucp_worker_progress"))(worker);
  if (events)
    found_something();
  else
    found_nothing(2000000);
  return events;
}

/* Open MPI 4 does not say: it waits while one poll comes right behind the other, or so it seems. As there may be many
 * small messages instead, the naps stay short. */
void opal_progress(void);

__attribute__((visibility("default"))) void opal_progress(void) {
  static void* known;
  static __thread struct timespec last;
  const long apart = 20000; /* ns */
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if ((now.tv_sec - last.tv_sec) * 1000000000L + now.tv_nsec - last.tv_nsec > apart) found_something();
  ((void (*)(void))real_one(&known, "opal_progress"))();
  found_nothing(200000);
  clock_gettime(CLOCK_MONOTONIC, &last);
}
