/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Collectives on streams behind guards (src/wire/collective_guarded.h), for the model checker spin. check.sh runs it.
 *
 * RANKS ranks make the same CALLS calls, of 1 to PARTS parts; how many, is chosen when the first rank comes to one. A
 * call is two launches: sends, which copy the data to one of two places of their rank, tell the others what was called,
 * and that the data are there, and count that at them; and receives, which read the data of the others. In front of
 * receives is a guard, which waits for what the last one that has counted has raised.
 *
 * What is checked, in all interleavings:
 *   there       receives, behind their guard, find all that they wait for
 *   whole       data are not written over before they are read
 *   deadlock    all calls end
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef PARTS
#define PARTS 2
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef COUNT_EARLY
#define all_told(p) true
#else
#define all_told(p) ((told & of_part(p)) == (of_part(p) & ~of_me))
#endif
#ifdef NO_GUARD
#define guard_passes true
#elif defined(GUARD_WANTS_THE_NEXT)
#define guard_passes (all_came[me] >= 2)
#else
#define guard_passes (all_came[me] >= 1)
#endif
#ifdef COUNT_LAUNCHED_ONLY
#define counts(p) 1
#else
#define counts(p) ((p) == 0 -> PARTS - (parts[k] - 1) : 1)
#endif
#ifdef ONE_WORD
#define word_of(call) 0
#else
#define word_of(call) ((call) % 2)
#endif
#ifdef ONE_PLACE
#define place_of(call) 0
#else
#define place_of(call) ((call) % 2)
#endif
#define may_clear(t) (t < RANKS && (last & (1 << (t))) && !(cleared & (1 << (t))))
#define may_raise(t) (t < RANKS && (last & (1 << (t))) && !(raised & (1 << (t))))

#define ALL_PARTS (PARTS * (RANKS - 1))

byte parts[CALLS + 2];

/* Of rank t, by rank o. */
#define SQUARE (RANKS * RANKS)
#define of(t, o) ((t) * RANKS + (o))
byte said_there[SQUARE], ready_there[PARTS * SQUARE];
#define ready_of(t, o, p) ready_there[(p) * SQUARE + of(t, o)]
byte came[2 * RANKS], all_came[RANKS];
byte data[2 * RANKS]; /* whose data lie there: the call's, of all parts */

#define bit(p, t) (1 << ((p) * RANKS + (t)))
#define of_part(p) (((1 << RANKS) - 1) << ((p) * RANKS))
#define of_me (bit(0, me) | bit(1, me))
#define all_of_all ((parts[k] == 2 -> of_part(0) | of_part(1) : of_part(0)) & ~of_me)

inline choose() {
  if
  :: parts[k] == 0 -> parts[k] = 1; if :: PARTS > 1 -> parts[k] = 2 :: true fi
  :: else
  fi
}
inline tell(p, t) {
  if :: p == 0 -> said_there[of(t, me)] = k :: else fi;
  ready_of(t, me, p) = k;
  told = told | bit(p, t)
}
inline count(p, t) {
  came[2 * t + word_of(k)] = came[2 * t + word_of(k)] + counts(p);
  counted = counted | bit(p, t);
  if :: came[2 * t + word_of(k)] == ALL_PARTS -> last = last | 1 << (t) :: else fi
}
inline clear(t) {
  came[2 * t + word_of(k)] = came[2 * t + word_of(k)] - ALL_PARTS;
  cleared = cleared | 1 << (t)
}
inline raise(t) {
  all_came[t]++;
  raised = raised | 1 << (t)
}
#define may_tell(p, t) (t < RANKS && (t) != me && (p) < parts[k] && !(told & bit(p, t)))
#define may_count(p, t) (t < RANKS && (t) != me && (p) < parts[k] && !(counted & bit(p, t)) && all_told(p))

proctype Rank(byte me) {
  byte k, o, last, cleared, raised;
  short told, counted;
  do
  :: k == CALLS -> break
  :: atomic { k < CALLS -> k++; choose(); data[2 * me + place_of(k)] = k };
    do
    :: atomic { may_tell(0, 0) -> tell(0, 0) }
    :: atomic { may_tell(0, 1) -> tell(0, 1) }
    :: atomic { may_tell(0, 2) -> tell(0, 2) }
    :: atomic { may_tell(1, 0) -> tell(1, 0) }
    :: atomic { may_tell(1, 1) -> tell(1, 1) }
    :: atomic { may_tell(1, 2) -> tell(1, 2) }
    :: atomic { may_count(0, 0) -> count(0, 0) }
    :: atomic { may_count(0, 1) -> count(0, 1) }
    :: atomic { may_count(0, 2) -> count(0, 2) }
    :: atomic { may_count(1, 0) -> count(1, 0) }
    :: atomic { may_count(1, 1) -> count(1, 1) }
    :: atomic { may_count(1, 2) -> count(1, 2) }
    :: atomic { may_clear(0) -> clear(0) }
    :: atomic { may_clear(1) -> clear(1) }
    :: atomic { may_clear(2) -> clear(2) }
    :: atomic { may_raise(0) -> raise(0) }
    :: atomic { may_raise(1) -> raise(1) }
    :: atomic { may_raise(2) -> raise(2) }
    :: atomic {
        told == all_of_all && counted == all_of_all && cleared == last && raised == last ->
        told = 0; counted = 0; last = 0; cleared = 0; raised = 0;
        break
      }
    od;
    atomic {
      guard_passes;
      for (o : 0 .. RANKS - 1) {
        assert(o == me || said_there[of(me, o)] >= k); /* there; or, in the other place, the next, too */
        assert(o == me || ready_of(me, o, 0) >= k);
        assert(o == me || parts[k] == 1 || ready_of(me, o, PARTS - 1) >= k)
      };
      o = 0
    };
    atomic { /* it has read for as long as it likes */
      for (o : 0 .. RANKS - 1) { assert(o == me || data[2 * o + place_of(k)] == k) }; /* whole */
      o = 0
    };
    atomic { all_came[me]-- }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) { run Rank(i) }
  }
}
