/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Copied collectives (src/wire/collective_copied.h), for the model checker spin. check.sh runs it.
 *
 * The services of RANKS ranks make CALLS calls, an alltoall in place of PIECES pieces each, by PLACES places; what rank 0 gives lies in
 * attached memory where ATTACHED is defined, and then its blocks are not replaced. A copy takes a while: it reads, and
 * writes, from when it is started until it has ended.
 *
 * What is checked, in all interleavings:
 *   whole       what is taken of a place is the piece that was to be there, while it is copied
 *   there       what is taken of attached memory is what was given in this call, while it is copied
 *   emptied     a piece of a block is not replaced before it has been filled into a place
 *   deadlock    all calls end
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef PIECES
#define PIECES 3
#endif
#ifndef PLACES
#define PLACES 2
#endif
#ifndef CALLS
#define CALLS 2
#endif

#define of_call(word) (word / 8 == call)
#ifdef ATTACHED
#define is_whole(rank) (rank == 0)
#else
#define is_whole(rank) false
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NOT_ALL_ARRIVED
#define all_arrived true
#else
#define all_arrived (arrived[0] >= call && arrived[1] >= call && arrived[RANKS - 1] >= call)
#endif
#ifdef NOT_ALL_DONE
#define all_done true
#else
#define all_done (finished[0] >= call && finished[1] >= call && finished[RANKS - 1] >= call)
#endif
#ifdef NOT_TAKEN
#define has_taken(by, piece) true
#else
#define has_taken(by, piece) \
  ((by) == me || (of_call(taken[(by) * RANKS + me]) && taken[(by) * RANKS + me] % 8 > piece - PLACES))
#endif
#define is_free(piece) (piece < PLACES || (has_taken(0, piece) && has_taken(1, piece) && has_taken(RANKS - 1, piece)))
#ifdef NO_NUMBERS
#define is_filled(rank, piece) (filled[rank] % 8 > piece)
#else
#define is_filled(rank, piece) (of_call(filled[rank]) && filled[rank] % 8 > piece)
#endif
#ifdef REPLACED_AT_ONCE
#define may_replace(piece) true
#else
#define may_replace(piece) (is_whole(me) || fills_ended > piece)
#endif

byte arrived[RANKS], finished[RANKS];
byte filled[RANKS], taken[RANKS * RANKS]; /* 8 calls + pieces */
byte given[RANKS];                        /* in attached memory: of which call; 0: the program writes it */
byte data[RANKS * PLACES];                     /* in a place: 8 calls + piece; 0: it is being written */
bool moved[RANKS * 4];                    /* the piece of a rank's blocks is replaced */

inline check(rank, piece) {
  if
  :: is_whole(rank) -> assert(given[rank] == call) /* there */
  :: else -> assert(data[rank * PLACES + piece % PLACES] == call * 8 + piece) /* whole */
  fi
}

proctype Service(byte me) {
  byte call, fills_started, fills_ended, s;
  byte started[RANKS], ended[RANKS];
  do
  :: call == CALLS -> break
  :: call < CALLS ->
    call++;
    d_step {
      given[me] = call;
      for (s : 0 .. PIECES - 1) { moved[me * 4 + s] = false };
      for (s : 0 .. RANKS - 1) {
        started[s] = 0;
        ended[s] = 0
      };
      started[me] = PIECES;
      ended[me] = PIECES;
      fills_started = 0;
      fills_ended = 0;
      if :: is_whole(me) -> fills_started = PIECES; fills_ended = PIECES :: else fi;
      arrived[me] = call
    }
    all_arrived;
    s = 0;
    do
    :: atomic {
         fills_started < PIECES && fills_started == fills_ended && is_free(fills_started) ->
         assert(!moved[me * 4 + fills_started]); /* emptied */
         data[me * PLACES + fills_started % PLACES] = 0;
         fills_started++
       }
    :: atomic {
         fills_started > fills_ended ->
         assert(!moved[me * 4 + fills_ended]); /* emptied */
         data[me * PLACES + fills_ended % PLACES] = call * 8 + fills_ended;
         fills_ended++;
         filled[me] = call * 8 + fills_ended
       }
    :: atomic {
         started[s] == ended[s] && started[s] < PIECES && may_replace(started[s]) &&
           (is_whole(s) || is_filled(s, started[s])) ->
         check(s, started[s]);
         moved[me * 4 + started[s]] = true;
         started[s]++
       }
    :: atomic {
         started[s] > ended[s] ->
         check(s, ended[s]);
         ended[s]++;
         taken[me * RANKS + s] = call * 8 + ended[s]
       }
    :: ended[s] == PIECES && s < RANKS - 1 -> s++
    :: ended[s] == PIECES && s == RANKS - 1 && fills_ended == PIECES -> break
    :: s < RANKS - 1 && RANKS > 2 -> s++
    :: s > 0 && RANKS > 2 -> s--
    od;
    finished[me] = call;
    all_done;
    given[me] = 0
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) { run Service(i) }
  }
}
