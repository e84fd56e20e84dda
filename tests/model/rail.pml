/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Exchanges of collectives between nodes (src/wire/rail.h), for the model checker spin. check.sh runs it.
 *
 * RANKS ranks, each on a node of its own, which are all partners, make the same COUNT exchanges. In each a rank sends a
 * message to each other one, and needs those of all, or of the first rank alone, which then needs none; that is chosen
 * for each exchange. A message is data, and a number as the signal; both go to the place of the exchange's parity. Its
 * transfer reads the place that the sender has filled, at any time until it is over, and transfers may overtake each
 * other. Three run at once for each rank: its stream, its service, and its network.
 *
 * What is checked, in all interleavings:
 *   unread      what is written, at either end, is not read any more by whom it was for before
 *   whole       what a stream takes is of its exchange
 *   deadlock    all exchanges end
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef COUNT
#define COUNT 4
#endif
#ifndef PLACES
#define PLACES 2
#endif

#define PAIR(to, from) ((to) * RANKS + (from))
#define AT(to, from, k) (PAIR(to, from) * PLACES + (k) % PLACES)
#define OUT(rank, k) ((rank) * PLACES + (k) % PLACES)

byte data[RANKS * RANKS * PLACES];   /* of a place for what comes: which exchange's */
byte number[RANKS * RANKS * PLACES]; /* its header's */
byte out[RANKS * PLACES];            /* what a stream has filled: which exchange's */
byte flies[RANKS * RANKS * PLACES];  /* a transfer: of which exchange; 0: none */
bool copied[RANKS * RANKS * PLACES]; /* the first half of it is done: the data, as a rule */
byte sent[RANKS * RANKS], heard[RANKS * RANKS];
byte posted[RANKS], arrived[RANKS];
byte taken[RANKS]; /* exchanges whose data a stream needs no more */
bool rooted[COUNT + 1];
byte place_read[RANKS]; /* assertions name what they are about */

#define NEEDS(rank, from, k) (!rooted[k] || ((from) == 0 && (rank) != 0))

proctype Stream(byte me) {
  byte k = 1, other;
  do
  :: k > COUNT -> break
  :: else ->
    /* no transfer reads the place */
    d_step {
      other = 0;
      do
      :: other == RANKS -> break
      :: else ->
        place_read[me] = flies[AT(other, me, k)];
        assert(other == me || place_read[me] == 0);
        other++
      od;
      other = 0;
      out[OUT(me, k)] = k
    }
    posted[me] = k;
    arrived[me] >= k;
    other = 0;
    do
    :: other == RANKS -> break
    :: else ->
      if
      :: other != me && NEEDS(me, other, k) -> assert(data[AT(me, other, k)] == k)
      :: else
      fi;
      other++
    od;
    taken[me] = k;
    k++
  od
}

#if defined(TOO_EARLY)
#define MAY_SEND(me, to, k) true
#elif defined(ONE_BEHIND)
#define MAY_SEND(me, to, k) (heard[PAIR(me, to)] + 2 >= (k))
#elif defined(TOO_LATE)
#define MAY_SEND(me, to, k) (heard[PAIR(me, to)] >= (k))
#else
#define MAY_SEND(me, to, k) (heard[PAIR(me, to)] + 1 >= (k))
#endif

/* What a service and a network cannot do now they wait for: if they turned instead, nothing would ever stand still, and
 * no deadlock be found. */
#define NEXT ((me + 1) % RANKS)
#define LAST ((me + RANKS - 1) % RANKS)

#define NEXT_TO(to) (sent[PAIR(to, me)] + 1)
#define SEND(to) \
  atomic { \
    sent[PAIR(to, me)] < posted[me] && MAY_SEND(me, to, NEXT_TO(to)) && flies[AT(to, me, NEXT_TO(to))] == 0 -> \
    sent[PAIR(to, me)]++; \
    flies[AT(to, me, sent[PAIR(to, me)])] = sent[PAIR(to, me)]; \
    copied[AT(to, me, sent[PAIR(to, me)])] = false \
  }

#define NEXT_FROM(from) (heard[PAIR(me, from)] + 1)
#define HEAR(from) \
  atomic { \
    heard[PAIR(me, from)] < posted[me] && number[AT(me, from, NEXT_FROM(from))] == NEXT_FROM(from) -> \
    heard[PAIR(me, from)]++ \
  }

#define FLIES(to, p, k) (flies[PAIR(to, me) * PLACES + (p)] != 0 && flies[PAIR(to, me) * PLACES + (p)] <= (k))
/* All that it has sent to one in k and before has left. */
#ifndef NO_LEFT
#define LEFT(to, k) (sent[PAIR(to, me)] >= (k) && !FLIES(to, 0, k) && !FLIES(to, PLACES - 1, k))
#else
#define LEFT(to, k) true
#endif
#define HAS(from, k) (!NEEDS(me, from, k) || heard[PAIR(me, from)] >= (k))

proctype Service(byte me) {
end:
  do
  :: SEND(NEXT)
  :: HEAR(NEXT)
#if RANKS > 2
  :: SEND(LAST)
  :: HEAR(LAST)
#endif
  :: atomic {
      arrived[me] < posted[me] && HAS(NEXT, arrived[me] + 1) && HAS(LAST, arrived[me] + 1) && LEFT(NEXT, arrived[me]) &&
      LEFT(LAST, arrived[me]) ->
      arrived[me]++
    }
  od
}

#ifndef SIGNAL_FIRST
#define FIRST write_data
#define SECOND write_number
#else
#define FIRST write_number
#define SECOND write_data
#endif
#define write_data(to, at) \
  assert(taken[to] + 2 >= flies[at]); \
  place_read[me] = out[OUT(me, flies[at])]; \
  assert(place_read[me] == flies[at]); \
  place_read[me] = 0; \
  data[at] = flies[at]
#define write_number(to, at) \
  assert(number[at] < flies[at]); \
  number[at] = flies[at]
#define TRANSFER(to, at) \
  atomic { flies[at] != 0 && !copied[at] -> FIRST(to, at); copied[at] = true } \
  :: atomic { flies[at] != 0 && copied[at] -> SECOND(to, at); flies[at] = 0; copied[at] = false }
#define PLACE(to, p) (PAIR(to, me) * PLACES + (p))

proctype Network(byte me) {
end:
  do
  :: TRANSFER(NEXT, PLACE(NEXT, 0))
  :: TRANSFER(NEXT, PLACE(NEXT, PLACES - 1))
#if RANKS > 2
  :: TRANSFER(LAST, PLACE(LAST, 0))
  :: TRANSFER(LAST, PLACE(LAST, PLACES - 1))
#endif
  od
}

init {
  atomic {
    byte i = 1;
    do
    :: i > COUNT -> break
    :: else ->
      if
      :: rooted[i] = true
      :: rooted[i] = false
      fi;
      i++
    od;
    i = 0;
    do
    :: i == RANKS -> break
    :: else ->
      run Stream(i);
      run Service(i);
      run Network(i);
      i++
    od
  }
}
