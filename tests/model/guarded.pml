/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Collectives on streams behind guards (src/wire/collective_guarded.h), for the model checker spin. check.sh runs it.
 *
 * RANKS ranks make the same CALLS calls, of one step and 1 to PARTS parts; what each is, is chosen when the first rank
 * comes to it. A call is two launches: sends, which store what was called and the data, and then count at the other
 * ranks; and receives, which count down. In front of each is a guard, which waits for counts. What the lines hold until
 * when is not the matter here (collective.pml): the launches wait as ever.
 *
 * What is checked, in all interleavings:
 *   there       a launch behind its guard finds all that it waits for
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

#define ALL 1
#define FROM 2 /* the root */
#define TO 4

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef COUNT_EARLY
#define all_stored(p) true
#else
#define all_stored(p) ((stored & of_part(p)) == (of_part(p) & ~of_me))
#endif
#ifdef NO_GUARD_OF_SENDS
#define begun_before(o) true
#elif defined(SENDS_WANT_THIS_CALL)
#define begun_before(o) ((o) == me || come[of(me, o)] >= 2 * PARTS)
#else
#define begun_before(o) ((o) == me || come[of(me, o)] >= PARTS)
#endif
#ifdef COUNT_LAUNCHED_ONLY
#define counts(p) 1
#else
#define counts(p) ((p) == 0 -> PARTS - (parts[k] - 1) : 1)
#endif

byte kind[CALLS + 2], root[CALLS + 2], parts[CALLS + 2];

/* Of rank t, by rank o. */
#define SQUARE (RANKS * RANKS)
#define of(t, o) ((t) * RANKS + (o))
byte come[SQUARE], said_there[SQUARE], data_there[PARTS * SQUARE];
#define data_of(t, o, p) data_there[(p) * SQUARE + of(t, o)]

#define bit(p, t) (1 << ((p) * RANKS + (t)))
#define of_part(p) (((1 << RANKS) - 1) << ((p) * RANKS))
#define of_me (bit(0, me) | bit(1, me))
#define all_of_all ((parts[k] == 2 -> of_part(0) | of_part(1) : of_part(0)) & ~of_me)

#define is_rooted(call) (kind[call] == FROM || kind[call] == TO)
#define hears(o) ((o) != me && (kind[k] == ALL || (kind[k] == FROM -> root[k] == (o) : root[k] == me)))
#define has_come(o) (!hears(o) || come[of(me, o)] >= 2 * PARTS)

inline choose() {
  if
  :: kind[k] == 0 ->
    if :: kind[k] = ALL :: kind[k] = FROM :: kind[k] = TO fi;
    if :: kind[k] != ALL -> root[k] = RANKS - 1 :: true fi;
    parts[k] = 1;
    if :: PARTS > 1 -> parts[k] = 2 :: true fi
  :: else
  fi
}

inline store(p, t) {
  if :: p == 0 -> said_there[of(t, me)] = k :: else fi;
  data_of(t, me, p) = k;
  stored = stored | bit(p, t)
}
inline count(p, t) {
  come[of(t, me)] = come[of(t, me)] + counts(p);
  counted = counted | bit(p, t)
}
#define may_store(p, t) (t < RANKS && (t) != me && (p) < parts[k] && !(stored & bit(p, t)))
#define may_count(p, t) (t < RANKS && (t) != me && (p) < parts[k] && !(counted & bit(p, t)) && all_stored(p))

proctype Rank(byte me) {
  byte k, o;
  short stored, counted;
  do
  :: k == CALLS -> break
  :: atomic { k < CALLS -> k++; choose() };
    atomic {
      begun_before(0) && begun_before(1) && begun_before(RANKS - 1);
      for (o : 0 .. RANKS - 1) { assert(o == me || !is_rooted(k - 1) || said_there[of(me, o)] >= k - 1) }; /* there */
      o = 0
    };
    do
    :: atomic { may_store(0, 0) -> store(0, 0) }
    :: atomic { may_store(0, 1) -> store(0, 1) }
    :: atomic { may_store(0, 2) -> store(0, 2) }
    :: atomic { may_store(1, 0) -> store(1, 0) }
    :: atomic { may_store(1, 1) -> store(1, 1) }
    :: atomic { may_store(1, 2) -> store(1, 2) }
    :: atomic { may_count(0, 0) -> count(0, 0) }
    :: atomic { may_count(0, 1) -> count(0, 1) }
    :: atomic { may_count(0, 2) -> count(0, 2) }
    :: atomic { may_count(1, 0) -> count(1, 0) }
    :: atomic { may_count(1, 1) -> count(1, 1) }
    :: atomic { may_count(1, 2) -> count(1, 2) }
    :: atomic { stored == all_of_all && counted == all_of_all -> stored = 0; counted = 0; break }
    od;
    atomic {
      has_come(0) && has_come(1) && has_come(RANKS - 1);
      for (o : 0 .. RANKS - 1) {
        assert(!hears(o) || said_there[of(me, o)] >= k); /* there; or, in the other place, the next, too */
        assert(!hears(o) || data_of(me, o, 0) >= k);
        assert(!hears(o) || parts[k] == 1 || data_of(me, o, PARTS - 1) >= k)
      };
      o = 0
    };
    atomic {
      for (o : 0 .. RANKS - 1) { if :: o != me -> come[of(me, o)] = come[of(me, o)] - PARTS :: else fi };
      o = 0
    }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. SQUARE - 1) { come[i] = PARTS };
    for (i : 0 .. RANKS - 1) { run Rank(i) }
  }
}
