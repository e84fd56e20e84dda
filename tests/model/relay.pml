/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Messages that kernels pack, a relay sends and kernels unpack (src/wire/relayed.h), for the model checker spin. check.sh
 * runs it.
 *
 * One pair, o -> t. Two parts of o's complete pack an epoch's message, CHUNKS chunks, into the one outgoing block: a
 * byte of each part and chunk, which holds the number of the epoch. Stores of a part are seen when it has fenced, or at
 * any time before. The last part to count itself hands the chunk on. o's relay starts transfers, a chunk each; the
 * network reads the block and writes landing memory in any order, and then the signal; when all of an epoch has left it
 * says that the next one may be packed. t posts, waits for the chunks, moves them into its window, and posts again. With
 * two inboxes, and one chunk, messages use them in turns, and may be sent ahead of their own post.
 *
 * What is checked, in all interleavings:
 *   whole       a wait finds in each chunk what was packed for its epoch
 *   emptied     landing memory is written only when t has moved what was there
 *   deadlock    all epochs come to their end
 */
#ifndef EPOCHS
#define EPOCHS 3
#endif
#ifndef CHUNKS
#define CHUNKS 2
#endif
#ifndef INBOXES
#define INBOXES 1 /* 2: CHUNKS 1 */
#endif
#define PARTS 2
#define SLOTS (CHUNKS * INBOXES)
#define slot_of(c, e) (INBOXES == 1 -> c : e % INBOXES)

typedef Chunk { byte of_part[PARTS] };

byte allowed = 1;
byte posted;                /* as o's relay knows it */
Chunk block[CHUNKS];        /* outgoing memory, as others see it */
Chunk stored[CHUNKS];       /* and what parts have stored there */
byte packed_parts[CHUNKS];  /* device memory: atomic */
byte handed_on[CHUNKS];     /* the task, and the flags of further chunks */
Chunk landing[SLOTS];
byte moved[SLOTS];          /* by t's wait: the last epoch */
byte landed[SLOTS];         /* `arrival`, and the flags of further chunks */

/* The network: to each slot one transfer is under way at most. */
byte started[SLOTS];        /* the last epoch that was */
byte over[SLOTS];           /* the last epoch of which the network needs nothing any more */

#ifdef NO_ALLOWED
#define may_pack(e) true
#else
#define may_pack(e) (allowed >= e)
#endif
#ifdef NO_POST
#define may_send(e) true
#elif defined(GENEROUS)
#define may_send(e) (posted >= 1 && posted + INBOXES >= e)
#else
#define may_send(e) (posted >= 1 && posted + INBOXES > e)
#endif
#ifdef NO_FLAG
#define is_packed(c, e) (handed_on[0] >= e)
#else
#define is_packed(c, e) (handed_on[c] == e)
#endif
#ifdef NO_LANDED
#define flag_of(slot) 0
#elif defined(ONE_ARRIVAL)
#define flag_of(slot) 0
#else
#define flag_of(slot) slot
#endif
#ifdef FIRST_PART
#define hands_on(before) (before == 0)
#else
#define hands_on(before) (before == PARTS - 1)
#endif

proctype Pack(byte part) {
  byte e = 1, c, before;
  do
  :: e > EPOCHS -> break
  :: else ->
    may_pack(e);
    c = 0;
    do
    :: c == CHUNKS -> break
    :: else ->
      stored[c].of_part[part] = e;
#ifndef NO_FENCE
      block[c].of_part[part] = e;
#endif
      atomic {
        before = packed_parts[c];
        packed_parts[c] = (before + 1) % PARTS
      }
      if
      :: hands_on(before) -> handed_on[c] = e
      :: else
      fi;
      c++
    od;
    e++
  od
}

/* Stores are seen some time. */
active proctype Memory() {
  byte c, p;
  do
  :: select(c : 0 .. CHUNKS - 1); select(p : 0 .. PARTS - 1);
     end: atomic { block[c].of_part[p] != stored[c].of_part[p] -> block[c].of_part[p] = stored[c].of_part[p] }
  od
}

active proctype Relay() {
  byte e = 1, c;
  do
  :: e > EPOCHS -> break
  :: else ->
    handed_on[0] == e;
    may_send(e);
    c = 0;
    do
    :: c == CHUNKS -> break
    :: else ->
#ifdef LOSE_CHUNK
      if :: c == 0 || e != 2 -> is_packed(c, e); started[slot_of(c, e)] = e :: else fi;
#else
      is_packed(c, e);
      started[slot_of(c, e)] = e;
#endif
#ifdef ALLOWED_EARLY
      if :: c == CHUNKS - 1 -> allowed = e + 1 :: else fi;
#endif
      c++
    od;
#ifdef ALLOWED_BY_FIRST
    over[slot_of(0, e)] == e;
#else
    c = 0;
    do
    :: c == CHUNKS -> break
    :: else -> over[slot_of(c, e)] == e; c++
    od;
#endif
    if :: allowed < e + 1 -> allowed = e + 1 :: else fi;
    e++
  od
}

active [SLOTS] proctype Network() {
  byte s = _pid - 2, p;  /* behind Memory and Relay */
  do
  :: over[s] < started[s] ->
#ifdef SIGNAL_FIRST
    landed[s] = started[s];
#endif
    p = 0;
    do
    :: p == PARTS -> break
    :: else ->
      atomic {
        assert(moved[s] == (started[s] > INBOXES -> started[s] - INBOXES : 0));  /* emptied */
        landing[s].of_part[p] = block[(INBOXES == 1 -> s : 0)].of_part[p]
      }
      p++
    od;
#ifdef ONE_ARRIVAL
    landed[0] = started[s];
#else
    landed[s] = started[s];
#endif
    over[s] = started[s]  /* at t, and perhaps much later than there */
  :: over[s] + INBOXES > EPOCHS -> break
  od
}

active proctype Wait() {
  byte e = 1, c, p, s;
  do
  :: e > EPOCHS -> break
  :: else ->
#ifdef POST_EARLY
    posted = (e < EPOCHS -> e + 1 : e);
#else
    posted = e;
#endif
    c = 0;
    do
    :: c == CHUNKS -> break
    :: else ->
      s = slot_of(c, e);
      landed[flag_of(s)] == e;
      p = 0;
      do
      :: p == PARTS -> break
      :: else -> assert(landing[s].of_part[p] == e); p++  /* whole */
      od;
      moved[s] = e;
      c++
    od;
    e++
  od
}

init { atomic { run Pack(0); run Pack(1) } }
