/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Collectives on streams (one part of them), for the model checker spin. check.sh runs it.
 *
 * RANKS ranks make the same CALLS calls; what each is, is chosen when the first rank comes to it: all-to-all, or rooted:
 * from the root (broadcast) or to it (reduction), of 1 to STEPS steps. Steps are numbered over all calls. In each a rank
 * stores a line at its targets, in the sub-slot of the number's parity, and waits for the lines of its sources. A line
 * is flag and data in one, so here it is the number of its step. Nothing says when a line has been read: a rank stores
 * one where it knows that the target has begun a later step than the one whose line lies there. From an all-to-all step
 * a rank learns that. From a rooted one it does not, so there are two words more, which all ranks store at all others:
 *
 *   said      the number of a call and what was called, when it begins, in the place of its parity; compared, too
 *   started   the number of a step, in rooted calls of several
 *
 * Stores are seen at once, in the order of the program, or of any order where it gives none. Nothing is lost by that:
 * no rank ever looks whether a word is not there, it only waits; so a store that arrives late, or after another, is a
 * reader that looks late. And a line that is stored too early is so whenever it arrives. Likewise a rank reads the lines
 * of a step when the last is there; and TOGETHER stores at once what no read comes between.
 *
 * PARTS do a call of a rank, each with lines of its own, or the first with all of them; all have ended before the next
 * call begins. In the last step of several the second may have no data; it sends a line all the same. As all parts look
 * at what was said, three places of it are needed, or two where any later number does for all parts but the first.
 *
 * What is checked, in all interleavings:
 *   unread      what lies in a place has been read before the next is stored there
 *   deadlock    all calls end: as a wait is for a number itself, each rank has seen the value of each step
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef STEPS
#define STEPS 2
#endif
#ifndef PARTS
#define PARTS 1
#endif
#ifndef SAIDS
#if PARTS > 1
#define SAIDS 3
#else
#define SAIDS 2
#endif
#endif
#ifndef SUBSLOTS
#define SUBSLOTS 2
#endif

#define ALL 1
#define FROM 2 /* the root */
#define TO 4
#define ROOTED (FROM | TO)
#ifndef KINDS
#define KINDS (ALL | FROM | TO)
#endif

#if RANKS > 2
#define everybody(holds) (holds(0) && holds(1) && holds(2))
#else
#define everybody(holds) (holds(0) && holds(1))
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NO_SAID
#define all_said true
#else
#define all_said everybody(said_before)
#endif
#ifdef ANY_LATER /* no control: it is enough that the first part compares */
#define is_later(n) (part > 0 && (n) >= k - 1)
#else
#define is_later(n) false
#endif
#ifdef NO_STARTED
#define all_started true
#else
#define all_started everybody(started_last)
#endif
#ifdef NO_STARTED_WITHIN
#define may_store(t) true
#else
#define may_store(t) (!is_rooted(k) || f == first[k] || started_of(me, t, part) >= f - 1)
#endif

/* What is called, by all: kind 0 is not yet chosen. Steps first … first + steps - 1. */
byte kind[CALLS + 2], root[CALLS + 2], steps[CALLS + 2], first[CALLS + 2], parts[CALLS + 2];
bool short_end[CALLS + 2]; /* the second part has nothing in the last step */
byte roots; /* ranks that have been a root: they are told apart only then */

/* Of rank t, stored by rank o; lines are of a region each, as many as there are parts. */
#define SQUARE (RANKS * RANKS)
#define of(t, o) ((t) * RANKS + (o))
byte line[SUBSLOTS * PARTS * SQUARE], said[SAIDS * SQUARE], started[PARTS * SQUARE];
#define line_of(t, o, n, region) line[((n) % SUBSLOTS * PARTS + (region)) * SQUARE + of(t, o)]
#define said_of(t, o, n) said[(n) % SAIDS * SQUARE + of(t, o)]
#define started_of(t, o, p) started[(p) * SQUARE + of(t, o)]

/* For assertions: the last number that has been read; of said by the first part. */
byte line_read[PARTS * SQUARE], said_read[SQUARE];
#define line_read_of(t, o, region) line_read[(region) * SQUARE + of(t, o)]

/* What the part has to do with a region in the step. */
#ifdef NOTHING_IN_SHORT_ENDS
#define is_empty (parts[k] == 2 && part == 1 && short_end[k] && steps[k] > 1 && f == last_of(k))
#else
#define is_empty false
#endif
#define has_region(r) ((r) < PARTS && (parts[k] == 1 || part == (r)) && !is_empty)

#define is_rooted(call) (kind[call] & ROOTED)
#define is_target(t) ((t) != me && (kind[k] == ALL || (kind[k] == FROM -> root[k] == me : root[k] == (t))))
#define is_source(o) ((o) != me && (kind[k] == ALL || (kind[k] == FROM -> root[k] == (o) : root[k] == me)))
#define last_of(call) (first[call] + steps[call] - 1)

#define said_before(o) ((o) == me || said_of(me, o, k - 1) == k - 1 || is_later(said_of(me, o, k - 1)))
#define started_part(o, p) (started_of(me, o, p) >= last_of(k - 1))
#define started_last(o) \
  ((o) == me || steps[k - 1] == 1 || (started_part(o, 0) && (parts[k - 1] == 1 || started_part(o, PARTS - 1))))
#define has_line_in(o, r) (!has_region(r) || line_of(me, o, f, (r) % PARTS) == f)
#define has_line(o) (!is_source(o) || (has_line_in(o, 0) && has_line_in(o, 1)))
#define has_said(o) (!is_source(o) || said_of(me, o, k) == k)

inline choose() {
  if
  :: kind[k] == 0 ->
    if
    :: KINDS & ALL -> kind[k] = ALL
    :: KINDS & FROM -> kind[k] = FROM
    :: KINDS & TO -> kind[k] = TO
    fi;
    if
    :: kind[k] != ALL ->
      if
      :: root[k] = 0
      :: roots >= 1 -> root[k] = 1
      :: roots >= 2 -> root[k] = RANKS - 1
      fi;
      if :: root[k] == roots -> roots++ :: else fi
    :: else
    fi;
    steps[k] = 1;
    do
    :: steps[k] < STEPS -> steps[k]++
    :: break
    od;
    parts[k] = 1;
#if PARTS > 1
    if :: parts[k] = 2 :: true fi;
    if :: parts[k] == 2 && steps[k] > 1 -> short_end[k] = true :: true fi;
#endif
    first[k] = first[k - 1] + steps[k - 1]
  :: else
  fi
}

inline store_said(t) {
  assert(said_of(t, me, k) == 0 || said_read[of(t, me)] >= said_of(t, me, k)); /* unread */
  said_of(t, me, k) = k
}
#define store_line_in(t, r) \
  if \
  :: has_region(r) -> \
    assert(line_of(t, me, f, (r) % PARTS) == 0 || \
           line_read_of(t, me, (r) % PARTS) >= line_of(t, me, f, (r) % PARTS)); /* unread */ \
    line_of(t, me, f, (r) % PARTS) = f \
  :: else \
  fi
#define store_line(t) store_line_in(t, 0); store_line_in(t, 1)
#define store_started(t) started_of(t, me, part) = f

/* One store for each other rank, in any order. */
#ifdef TOGETHER
#define at_once atomic
#else
#define at_once
#endif
#define all_ranks (bit(RANKS) - 1)
#define bit(t) (1 << (t))
#define due(t) ((t) < RANKS && !(done & bit(t)) && (t) != me)

#define store_at_others(store) \
  done = bit(me); \
  do \
  :: atomic { due(0) -> store(0); done = done | bit(0) } \
  :: atomic { due(1) -> store(1); done = done | bit(1) } \
  :: atomic { due(2) -> store(RANKS - 1); done = done | bit(2) } \
  :: atomic { done == all_ranks -> done = 0; break } \
  od

#define is_due(t) (due(t) && is_target(t))
inline store_lines() {
  do
  :: atomic { is_due(0) && may_store(0) -> store_line(0); done = done | bit(0) }
  :: atomic { is_due(1) && may_store(1) -> store_line(1); done = done | bit(1) }
  :: atomic { is_due(2) && may_store(2) -> store_line(RANKS - 1); done = done | bit(2) }
  :: atomic { !is_due(0) && !is_due(1) && !is_due(2) -> done = 0; break }
  od
}

#define note_read(what, from_whom, n) \
  for (o : 0 .. RANKS - 1) { if :: from_whom(o) -> what[of(me, o)] = n :: else fi }; o = 0

#define note_line(r) \
  for (o : 0 .. RANKS - 1) { \
    if :: is_source(o) && has_region(r) -> line_read_of(me, o, (r) % PARTS) = f :: else fi \
  }; \
  o = 0
inline read_lines() { atomic { everybody(has_line) -> note_line(0); note_line(1) } }

/* What a rank's streams do: a part of one call after the other. */
byte called[RANKS * PARTS], ended[RANKS];
#define called_by(p) called[me * PARTS + (p)]

inline take_call() {
  called_by(part)++; k = called_by(part);
  choose();
  f = first[k]
}
inline leave_call() { ended[me]++; k = 0; f = 0 }

proctype Stream(byte me; byte part) {
  byte k, f, done, o;
  do
#ifdef TWO_STREAMS
  :: atomic { called_by(part) < CALLS -> take_call() };
#else
  :: atomic { called_by(part) < CALLS && ended[me] >= PARTS * called_by(part) -> take_call() };
#endif
    if
    :: atomic { part >= parts[k] -> leave_call() }
    :: atomic { part < parts[k] };
      at_once {
        atomic {
          !is_rooted(k - 1) || (all_said && all_started) ->
          if :: is_rooted(k - 1) && part == 0 -> note_read(said_read, said_before, k - 1) :: else fi
        };
        if :: part == 0 -> store_at_others(store_said) :: else fi;
        if :: is_rooted(k) && steps[k] > 1 -> store_at_others(store_started) :: else fi;
        store_lines()
      };
      do
      :: f < last_of(k) ->
        at_once {
          read_lines();
          f++;
          if :: is_rooted(k) -> store_at_others(store_started) :: else fi;
          store_lines()
        }
      :: f == last_of(k) -> break
      od;
      read_lines();
      atomic { /* compare what was called */
        everybody(has_said) ->
        if :: part == 0 -> note_read(said_read, is_source, k) :: else fi;
        leave_call()
      }
    fi
  :: atomic { called_by(part) == CALLS -> break }
  od
}

init {
  byte r, p;
  atomic {
    first[0] = 1;
    for (r : 0 .. RANKS - 1) { for (p : 0 .. PARTS - 1) { run Stream(r, p) } };
#ifdef TWO_STREAMS
    run Stream(0, 0);
#endif
    r = 0; p = 0
  }
}
