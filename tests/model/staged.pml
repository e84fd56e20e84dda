/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Staged collectives (src/wire/collective_staged.h), for the model checker spin. check.sh runs it.
 *
 * RANKS ranks make PIECES pieces of calls. Each has a stream, which copies in, waits, and copies out; a service, which
 * makes a part of the result of what all gave; and somebody who ends its calls when all have run.
 *
 * What is checked, in all interleavings:
 *   there       what a service combines is what all gave in this piece, while it reads
 *   whole       what a stream copies out is the result of this piece, while it reads
 *   over        nothing is copied out any more when the calls are ended
 *   deadlock    all pieces end
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef PIECES
#define PIECES 3
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NOT_ALL_ARRIVED
#define all_arrived true
#else
#define all_arrived (arrived[0] >= k && arrived[1] >= k && (RANKS < 3 || arrived[RANKS - 1] >= k))
#endif
#ifdef NOT_ALL_DONE
#define all_done true
#else
#define all_done (finished[0] >= k && finished[1] >= k && (RANKS < 3 || finished[RANKS - 1] >= k))
#endif

bool sent[RANKS], go[RANKS], over[RANKS], ended[RANKS];
byte arrived[RANKS], finished[RANKS], passed[RANKS];
byte given[RANKS], result[RANKS]; /* of which piece; a part of the result is that of a rank */

inline check_given() {
  d_step {
    for (i : 0 .. RANKS - 1) { assert(given[i] == k) }; /* there */
    i = 0
  }
}
inline check_result(piece) {
  d_step {
    for (i : 0 .. RANKS - 1) { assert(result[i] == piece) }; /* whole */
    i = 0;
    assert(!ended[me]) /* over */
  }
}

proctype Stream(byte me) {
  byte k, i;
  do
  :: k == PIECES -> break
  :: k < PIECES ->
    given[me] = k + 1;
    sent[me] = true;
#ifdef CLEARED_BEHIND_SENT
    go[me] = false;
#endif
#ifdef COPIED_OUT_LATE
    if :: k > 0 -> check_result(k) :: else fi;
#endif
    go[me];
#ifndef CLEARED_BEHIND_SENT
    go[me] = false;
#endif
    k++;
#ifndef COPIED_OUT_LATE
    check_result(k); /* it begins to read, */
    check_result(k); /* and has read */
#endif
    over[me] = true
  od
}

proctype Service(byte me) {
  byte k, i;
  do
  :: k == PIECES -> break
  :: k < PIECES ->
    sent[me];
#ifndef TAKEN_LATE
    sent[me] = false;
#endif
#ifndef OVER_LATE
    over[me] = false;
#endif
    k++;
    arrived[me] = k;
    all_arrived;
    check_given();
    check_given();
    result[me] = k;
    finished[me] = k;
    all_done;
    go[me] = true;
#ifdef TAKEN_LATE
    sent[me] = false;
#endif
    passed[me] = k;
#ifdef OVER_LATE
    over[me] = false;
#endif
  od
}

proctype Ender(byte me) {
  passed[me] == PIECES;
  over[me];
  ended[me] = true
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) {
      over[i] = true;
      run Stream(i);
      run Service(i);
      run Ender(i)
    }
  }
}
