/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Collectives by packs (src/wire/collective_packs.h), for the model checker spin. check.sh runs it.
 *
 * RANKS ranks make the same CALLS calls; what each is, is chosen when the first rank comes to it: all-to-all, or from a
 * root, or to it; by packs, in 1 to STEPS steps, or in 1 where it has a root; or by other ways (lines, direct), of which
 * only this matters here: who hears from whom. Steps by packs are numbered over all calls.
 *
 * A call has one part or two. In each step there are SLOTS packs for each target, in the place of the step's number: all
 * of them are the only part's, or each is one part's. In the last step there may be data for the first one alone; a part
 * that would send nothing in a step of several sends a pack all the same. A pack is number and data in one, so here it is
 * the number of its step. Nothing says when a pack has been read. Parts of a rank begin a call when all parts of the one
 * before have ended; the first one says to all others which call has begun.
 *
 * A call may be in shares: each two steps are made for one of the packs after the other, and in the second of them a rank
 * sends what it has made of the first. Where there is a root, it has no share, and between the first and the last of a
 * part's packs only those tell each other something who have to.
 *
 * Stores are seen at once, and those that no read comes between are made at once: see collective.pml.
 *
 * What is checked, in all interleavings:
 *   unread      a pack has been read before the next is stored in its place
 *   deadlock    all calls end
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef STEPS
#define STEPS 3
#endif
#ifndef PLACES
#define PLACES 2
#endif
#define PARTS 2
#define SLOTS 2

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

#ifdef SHARES
#define with_shares true
#else
#define with_shares false
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NO_SAID
#define all_said true
#else
#define all_said everybody(said_before)
#endif
#ifdef ROOTED_STEPS
#define most_steps STEPS
#else
#define most_steps (has_root(k) && !shared[k] -> 1 : STEPS)
#endif
#ifdef NO_SECOND_HALF
#define share_is_there (half == 1 || everybody(has_share))
#else
#define share_is_there everybody(has_share)
#endif
#ifdef NOTHING_WITHOUT_DATA
#define sends_nothing(r) (is_short && (r) == 1)
#else
#define sends_nothing(r) (is_short && (r) == 1 && (parts[k] == 1 || steps[k] == 1))
#endif

#ifdef NO_FIRST_TURN
#define is_first_turn false
#else
#define is_first_turn (f - half == first[k] && slot == 0)
#endif
#ifdef NO_LAST_TURN
#define is_last_turn false
#else
#define is_last_turn (f - half + 2 == first[k] + steps[k] && (slot == 1 || is_short))
#endif
#ifdef NOTHING_FOR_THE_ROOT
#define tells_root false
#else
#define tells_root true
#endif
#ifdef ONE_TURN_IS_ENOUGH
#define all_tell (is_first_turn || is_last_turn)
#else
#define all_tell (parts[k] == 2 || is_first_turn || is_last_turn)
#endif

/* What is called, by all: kind 0 is not yet chosen. Steps first … first + steps - 1; steps 0: not by packs. */
byte kind[CALLS + 2], root[CALLS + 2], steps[CALLS + 2], first[CALLS + 2], parts[CALLS + 2];
bool short_end[CALLS + 2]; /* the second pack of the last step has no data */
bool shared[CALLS + 2];

#define of(t, o) ((t) * RANKS + (o))
byte roots; /* ranks that have been a root: they are told apart only then */
byte pack[PLACES * SLOTS * RANKS * RANKS]; /* of rank t, stored by rank o */
#define pack_of(t, o, n, r) pack[((n) % PLACES * SLOTS + (r)) * RANKS * RANKS + of(t, o)]
byte said[RANKS]; /* the last call that a rank has said it has begun */
/* For assertions: the last number that has been read. */
byte line_read[SLOTS * RANKS * RANKS];
#define read_of(t, o, r) line_read[(r) * RANKS * RANKS + of(t, o)]

#define has_root(call) (kind[call] & ROOTED)
#define is_rooted(call) (has_root(call) && !shared[call])
#define is_target(t) ((t) != me && (kind[k] == ALL || (kind[k] == FROM -> root[k] == me : root[k] == (t))))
#define is_source(o) ((o) != me && (kind[k] == ALL || (kind[k] == FROM -> root[k] == (o) : root[k] == me)))
/* In shares: what o sends t in between. */
#define in_first(o, t) (kind[k] == ALL || (kind[k] == FROM -> (o) == root[k] : (t) != root[k]))
#define in_second(o, t) \
  (kind[k] == ALL || ((o) != root[k] && (kind[k] == FROM -> (t) != root[k] || tells_root : (t) == root[k])))
#define goes(o, t) ((o) != (t) && (all_tell || (half == 0 -> in_first(o, t) : in_second(o, t))))
#define is_short (short_end[k] && f >= first[k] + steps[k] - (shared[k] -> 2 : 1))
#define has_slot(r) ((parts[k] == 1 || part == (r)) && !sends_nothing(r))
#define said_before(o) ((o) == me || said[o] >= k - 1)
#define has_said(o) (!(shared[k] -> (o) != me : is_source(o)) || said[o] >= k)
#define has_pack_in(o, r) (!has_slot(r) || pack_of(me, o, f, r) == f)
#define has_share(o) (!goes(o, me) || has_pack_in(o, slot))
#define has_packs(o) (!is_source(o) || (has_pack_in(o, 0) && has_pack_in(o, 1)))

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
    if
    :: steps[k] = 0
    :: steps[k] = 1
    :: with_shares -> steps[k] = 2; shared[k] = true
    fi;
    do
    :: steps[k] > 0 && steps[k] < most_steps -> steps[k] = steps[k] + (shared[k] -> 2 : 1)
    :: break
    od;
    parts[k] = 1;
    if :: parts[k] = 2 :: true fi;
    if :: steps[k] > 0 -> short_end[k] = true :: true fi;
    first[k] = first[k - 1] + steps[k - 1]
  :: else
  fi
}

#define store_pack(t, r) \
  if \
  :: has_slot(r) -> \
    assert(pack_of(t, me, f, r) == 0 || read_of(t, me, r) >= pack_of(t, me, f, r)); /* unread */ \
    pack_of(t, me, f, r) = f \
  :: else \
  fi
#define store_packs(t) store_pack(t, 0); store_pack(t, 1)

inline send() {
  for (t : 0 .. RANKS - 1) { if :: is_target(t) -> store_packs(t) :: else fi }; t = 0
}
inline send_one(r) {
  for (t : 0 .. RANKS - 1) { if :: goes(me, t) -> store_pack(t, r) :: else fi }; t = 0
}

#define note(r) \
  for (o : 0 .. RANKS - 1) { \
    if :: (shared[k] -> goes(o, me) : is_source(o)) && has_slot(r) -> read_of(me, o, r) = f :: else fi \
  }; \
  o = 0
/* Those of a step are read one after another: the next of the group's is sent when all are. */
inline receive() { note(0); note(1) }

#ifdef ALWAYS_AHEAD
#define is_ahead true
#else
#define is_ahead (parts[k] == 1 && kind[k] != FROM)
#endif

inline go_on() {
  half = 0;
  f--;
  if
  :: parts[k] == 1 && slot == 0 && has_slot(1) -> slot = 1
  :: else -> f = f + 2; slot = (parts[k] == 1 -> 0 : part)
  fi
}
inline send_next() { if :: f < first[k] + steps[k] -> send_one(slot) :: else fi }

/* The first half of a turn has come, or the second. The next turn's first packs go out before the second half is
 * awaited, where a place has several turns. */
inline next_half() {
  if :: everybody(has_share) -> note(slot) :: else fi;
  if
  :: half == 0 ->
    half = 1;
    f++;
    send_one(slot);
    if
    :: is_ahead ->
      this_f = f;
      this_slot = slot;
      go_on();
      send_next();
      half = 1;
      f = this_f;
      slot = this_slot;
      this_f = 0;
      this_slot = 0
    :: else
    fi
  :: else ->
    go_on();
    if :: !is_ahead -> send_next() :: else fi
  fi
}

byte called[RANKS * PARTS], ended[RANKS];
#define called_by called[me * PARTS + part]

proctype Stream(byte me; byte part) {
  byte k, f, t, o, slot, this_f, this_slot;
  bit half;
  do
  :: atomic {
      called_by < CALLS && ended[me] >= PARTS * called_by ->
      called_by++;
      k = called_by;
      choose();
      f = first[k]
    };
    if
    :: atomic { part >= parts[k] -> ended[me]++; k = 0; f = 0 }
    :: atomic {
        part < parts[k] && (!is_rooted(k - 1) || all_said);
        if :: part == 0 -> said[me] = k :: else fi;
        if
        :: shared[k] -> slot = (parts[k] == 1 -> 0 : part); send_one(slot)
        :: !shared[k] && steps[k] > 0 -> send()
        :: else
        fi
      };
      do
      :: atomic { shared[k] && f < first[k] + steps[k] && share_is_there -> next_half() }
      :: atomic { shared[k] && f == first[k] + steps[k] -> slot = 0; break }
      :: atomic { !shared[k] && f + 1 < first[k] + steps[k] && everybody(has_packs) -> receive(); f++; send() }
      :: atomic { !shared[k] && f + 1 == first[k] + steps[k] && everybody(has_packs) -> receive(); break }
      :: atomic { steps[k] == 0 -> break }
      od;
      atomic { everybody(has_said) -> ended[me]++; k = 0; f = 0 } /* compare what was called */
    fi
  :: atomic { called_by == CALLS -> break }
  od
}

init {
  byte r, p;
  atomic {
    first[0] = 1;
    for (r : 0 .. RANKS - 1) { for (p : 0 .. PARTS - 1) { run Stream(r, p) } };
    r = 0; p = 0
  }
}
