/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * MPIs spin while they wait, so with more ranks than cores every message costs a time slice of the
 * scheduler (40 ms for a barrier of 8 ranks on 2 cores). Preloaded, this gives the core away after
 * some polls that found nothing, and naps after many, the longer the longer it has waited: naps of 50 us alone
 * take an eighth of a core from the tests beside it, in which ranks wait for many seconds. For tests; a benchmark that
 * uses it must say so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

static __thread int idle, naps;

static void found_something(void) { idle = naps = 0; }

static void found_nothing(int most_naps) {
  if (++idle % 100 != 0) return;
  if (idle < 2000) {
    sched_yield();
  } else {
    const struct timespec nap = {0, 50000 + naps * 2000}; /* longer with the wait so far */
    if (naps < most_naps) ++naps;
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
    found_nothing(975); /* up to 2 ms after a second */
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
  found_nothing(75); /* up to 200 us */
  clock_gettime(CLOCK_MONOTONIC, &last);
}
