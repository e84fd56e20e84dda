/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Collective calls along a tree (src/wire/collective_tree.h), for the model checker spin. check.sh runs it.
 *
 * RANKS ranks make the same CALLS calls, of 1 to STEPS pieces, along trees: a star, or a chain, with any root; up and
 * down, up alone, or down alone. What each is, is chosen when the first rank comes to it. A rank has two places in memory
 * of the library, `sent` and `received`, for one piece. Parts have places and words of their own, so there is one. A word
 * is the number of the piece that it tells of.
 *
 * What is checked, in all interleavings:
 *   whole       what is read is of the piece, and of all ranks that it should have come from, for as long as it is read
 *   deadlock    all calls end
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef STEPS
#define STEPS 2
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NO_ENDED
#define has_ended(o) true
#else
#define has_ended(o) ((o) == me || ended[of(me, o)] >= now)
#endif
#ifdef ONE_WORD_FOR_ALL /* a child looks whether its parent has told anybody */
#define result_is_there (ready[of(me, parent)] >= now || ready[of((me + 1) % RANKS, parent)] >= now)
#else
#define result_is_there (ready[of(me, parent)] >= now)
#endif

#define UP 1
#define DOWN 2
#define STAR 1
#define CHAIN 2
byte kind[CALLS + 1], shape[CALLS + 1], root[CALLS + 1], steps[CALLS + 1];

#define SQUARE (RANKS * RANKS)
#define of(t, o) ((t) * RANKS + (o))
byte ready[SQUARE], ended[SQUARE]; /* of t, by o */
byte sent[RANKS], sent_of[RANKS];  /* which piece lies there, and of which ranks; 0 while it is written */
byte received[RANKS];              /* which piece's result */

/* Ranks along a chain begin with its root. */
#define parent_of(r) (shape[k] == STAR -> root[k] : ((r) + RANKS - 1) % RANKS)
#define is_child(r) ((r) != me && (r) != root[k] && parent_of(r) == me)
#define goes_up (kind[k] & UP)
#define goes_down (kind[k] & DOWN)

inline choose() {
  if
  :: kind[k] == 0 ->
    if :: kind[k] = UP :: kind[k] = DOWN :: kind[k] = UP | DOWN fi;
    if :: shape[k] = STAR :: shape[k] = CHAIN fi;
    if :: root[k] = 0 :: root[k] = RANKS - 1 fi;
    steps[k] = 1;
    if :: STEPS > 1 -> steps[k] = 2 :: true fi
  :: else
  fi
}
/* From the begin of a read to its end. */
inline read_sent(o) {
  assert(sent[o] == now);
  d_step { mine = mine | sent_of[o] };
  assert(sent[o] == now)
}

proctype Rank(byte me) {
  byte k, step, now, o, mine, parent;
  do
  :: k == CALLS -> break
  :: atomic { k < CALLS -> k++; choose(); step = 0; parent = parent_of(me) };
    do
    :: atomic { step == steps[k] -> break }
    :: atomic { step < steps[k] -> step++; now++; mine = 1 << me };
      if
      :: goes_up ->
        o = 0;
        do
        :: o == RANKS -> break
        :: o < RANKS && !is_child(o) -> o++
        :: o < RANKS && is_child(o) -> ready[of(me, o)] >= now; read_sent(o); o++
        od;
        if
        :: me != root[k] ->
          sent[me] = 0; /* is being written */
          atomic { sent[me] = now; sent_of[me] = mine };
          ready[of(parent, me)] = now
        :: else -> assert(mine == (1 << RANKS) - 1) /* whole */
        fi
      :: else
      fi;
      if
      :: goes_down ->
        if
        :: me != root[k] ->
          result_is_there;
          assert(received[parent] == now); /* whole: from the begin of the read */
          assert(received[parent] == now)  /* whole: to its end */
        :: else
        fi;
        received[me] = 0; /* is being written */
        received[me] = now;
        o = 0;
        do
        :: o == RANKS -> break
        :: o < RANKS && is_child(o) -> ready[of(o, me)] = now; o++
        :: o < RANKS && !is_child(o) -> o++
        od
      :: else
      fi;
      atomic {
        for (o : 0 .. RANKS - 1) { if :: o != me -> ended[of(o, me)] = now :: else fi };
        o = 0
      };
      atomic { has_ended(0) && has_ended(1) && has_ended(RANKS - 2) && has_ended(RANKS - 1) }
    od
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) { run Rank(i) }
  }
}
