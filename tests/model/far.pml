/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * What ranks of a domain put to other nodes (src/domain/far_link.h, src/domain/courier.h), for the model checker spin.
 * check.sh runs it.
 *
 * STREAM: one link. The sender appends COUNT messages, of one unit or two, to a ring of RING units, and starts transfers
 * of one message or of all that there are, FLIGHTS at a time. The network writes a transfer's units at the receiver, and
 * then the number of its first message; transfers overtake each other. The receiver looks for the number at the position
 * that is next, takes the message, sets the first words of its units to 0, and tells how far it has come, which the
 * sender hears some time later. The first word of a second unit is data, and here the worst that they can be: the number
 * of a message that may come to lie there.
 *
 * THIRD: A puts to T, all meet in a barrier, and C reads at T. Links are channels, in order each.
 *
 * CROSSING: two couriers, whose ranks put and read in both directions; rings that hold a put and a reply. A get is taken
 * at once, and its reply goes when there is room, before anything else does.
 *
 * What is checked, in all interleavings:
 *   whole       a message is taken when all of it is there, once, in its turn; C reads what A has put
 *   deadlock    all messages are taken
 */
#define STREAM 1
#define THIRD 2
#define CROSSING 3
#ifndef PROGRAM
#define PROGRAM STREAM
#endif

#if PROGRAM == STREAM
#ifndef RING
#define RING 4
#endif
#ifndef COUNT
#define COUNT 4
#endif
#define FLIGHTS 2

byte out_first[RING], out_rest[RING];  /* at the sender: of each unit the first word, and the rest */
byte first[RING], landing[RING];       /* at the receiver */
byte begin_of[COUNT + 1];              /* positions of messages; of the next one, too */
byte appended;                         /* messages */
byte sent;
byte told, heard;                      /* positions: by the receiver, and as the sender knows */
byte done_with;                             /* the network reads nothing before */
byte from[FLIGHTS], to[FLIGHTS];       /* messages of a transfer; the same: it is over, or there was none */
byte started, ended;                   /* transfers, in their order */

#ifdef NO_CREDIT
#define room(units) true
#else
#define least(a, b) (a < b -> a : b)
#define room(units) (begin_of[appended] + units <= least(heard, done_with) + RING)
#endif

inline append(units) {
  at = begin_of[appended];
  out_first[at % RING] = at + 1;
  out_rest[at % RING] = appended + 1;
  if
  :: units == 2 ->
    out_first[(at + 1) % RING] = at + 1 + RING + 1;
    out_rest[(at + 1) % RING] = appended + 1
  :: else
  fi;
  begin_of[appended + 1] = at + units;
  appended++
}

active proctype sender() {
  byte at, until;
  do
  :: atomic { appended < COUNT && room(1) -> append(1) }
  :: atomic { appended < COUNT && room(2) -> append(2) }
  :: atomic {
      sent < appended && started - ended < FLIGHTS ->
      if
      :: until = sent + 1
      :: until = appended
      fi;
      to[started % FLIGHTS] = until;
      from[started % FLIGHTS] = sent;
      sent = until;
      started++
    }
  :: atomic {
      ended < started && from[ended % FLIGHTS] == to[ended % FLIGHTS] ->
      done_with = begin_of[to[ended % FLIGHTS]];
      ended++
    }
  :: heard < told -> heard = told
  :: atomic { appended == COUNT && sent == COUNT && ended == started -> break }
  od
}

active [FLIGHTS] proctype network() {
  byte at, last, slot = _pid - 1;
  do
  :: from[slot] < to[slot] ->
    at = begin_of[from[slot]];
    last = begin_of[to[slot]];
#ifdef SIGNAL_FIRST
    first[at % RING] = at + 1;
#endif
    landing[at % RING] = out_rest[at % RING];
    at++;
    do
    :: at < last ->
      atomic {
        first[at % RING] = out_first[at % RING];
        landing[at % RING] = out_rest[at % RING]
      };
      at++
    :: else -> break
    od;
#ifndef SIGNAL_FIRST
    at = begin_of[from[slot]];
    first[at % RING] = at + 1;
#endif
    from[slot] = to[slot]
  :: ended == started && sent == COUNT -> break
  od
}

active proctype receiver() {
  byte at, unit, taken;
  do
  :: taken < COUNT && first[at % RING] == at + 1 ->
    unit = at;
    do
    :: atomic { unit < begin_of[taken + 1] -> assert(landing[unit % RING] == taken + 1) }; unit++
    :: else -> break
    od;
#ifdef CREDIT_FIRST
    told = unit;
#endif
#ifndef NO_CLEAR
    do
    :: at < unit -> first[at % RING] = 0; at++
    :: else -> break
    od;
#else
    at = unit;
#endif
    told = unit;
    taken++
  :: taken == COUNT -> break
  od
}
#endif

#if PROGRAM == THIRD
#define A 0
#define T 1
#define C 2
mtype = { put, ask, meet, get };

chan a_t = [4] of { mtype };
chan a_c = [4] of { mtype };
chan c_t = [4] of { mtype };
chan t_c = [4] of { mtype };
byte landing[1];     /* T's window */
bit answered;        /* to A: what came before its question is there */
byte met_t;          /* who has come, as T has heard */
byte read_there = 2; /* what C is answered; 2: not yet */

active proctype a() {
  a_t!put;
#ifndef NO_FLUSH
  a_t!ask;
  answered == 1;
#endif
  if
  :: a_t!meet; a_c!meet
  :: a_c!meet; a_t!meet
  fi
}

/* T's courier; T itself comes to the barrier at any time. */
active proctype t() {
  bool came = false;
  byte over = 0;
  do
  :: !came -> t_c!meet; came = true
  :: a_t?put -> landing[0] = 1
  :: a_t?ask -> answered = 1
  :: a_t?meet -> over++
  :: c_t?meet -> over++
  :: c_t?get -> read_there = landing[0]; over++
  :: came && over == 3 -> break
  od
}

active proctype c() {
  c_t!meet;
  a_c?meet;
  t_c?meet;
  c_t!get;
  read_there != 2;
  assert(landing[0] == 1 && read_there == 1)
}
#endif

#if PROGRAM == CROSSING
#define RING 4
#define PUTS 3
mtype = { put, get, reply };

chan way[2] = [RING] of { mtype };
byte used[2]; /* units of each ring: a get takes one, and what has data two */

#define room(units) (used[me] + units <= RING)

inline append(what, units) {
  used[me] = used[me] + units;
  way[me]!what
}
inline take(what, units) {
  way[1 - me]?what;
  used[1 - me] = used[1 - me] - units
}

proctype courier(bit me) {
  byte puts = PUTS, taken, waiting;
  bit asked, answered, got;
  do
  :: atomic { puts > 0 && waiting == 0 && room(2) -> append(put, 2); puts-- }
  :: atomic { !asked && waiting == 0 && room(1) -> append(get, 1); asked = true }
  :: atomic { way[1 - me]?[put] -> take(put, 2); taken++ }
#ifdef KEEP_BACK
  :: atomic { way[1 - me]?[get] && room(2) -> take(get, 1); append(reply, 2); answered = true }
#else
  :: atomic { way[1 - me]?[get] -> take(get, 1); waiting++ }
  :: atomic { waiting > 0 && room(2) -> waiting--; append(reply, 2); answered = true }
#endif
  :: atomic { way[1 - me]?[reply] -> take(reply, 2); got = true }
  :: puts == 0 && taken == PUTS && answered && got -> break
  od
}

init {
  atomic { run courier(0); run courier(1) }
}
#endif
