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
#else
#define MAY_SEND(me, to, k) (heard[PAIR(me, to)] + 1 >= (k))
#endif

/* All that it has sent in k and before has left. */
inline look_left(k) {
  d_step {
    has_left = true;
    other = 0;
    do
    :: other == RANKS -> break
    :: else ->
      if
      :: other != me && sent[PAIR(other, me)] < (k) -> has_left = false
      :: else
      fi;
      p = 0;
      do
      :: p == PLACES -> break
      :: else ->
        if
        :: flies[PAIR(other, me) * PLACES + p] != 0 && flies[PAIR(other, me) * PLACES + p] <= (k) -> has_left = false
        :: else
        fi;
        p++
      od;
      other++
    od;
    other = 0;
    p = 0
  }
}
inline look_needed(k) {
  d_step {
    has_all = true;
    other = 0;
    do
    :: other == RANKS -> break
    :: else ->
      if
      :: other != me && NEEDS(me, other, k) && heard[PAIR(me, other)] < (k) -> has_all = false
      :: else
      fi;
      other++
    od;
    other = 0
  }
}

proctype Service(byte me) {
  byte other, to, p;
  bool has_left, has_all;
end:
  do
  :: atomic { /* send */
    select(to : 0 .. (RANKS - 1));
    if
    :: to != me && sent[PAIR(to, me)] < posted[me] && MAY_SEND(me, to, sent[PAIR(to, me)] + 1) &&
       flies[AT(to, me, sent[PAIR(to, me)] + 1)] == 0 ->
      sent[PAIR(to, me)]++;
      flies[AT(to, me, sent[PAIR(to, me)])] = sent[PAIR(to, me)];
      copied[AT(to, me, sent[PAIR(to, me)])] = false
    :: else
    fi;
    to = 0
  }
  :: atomic { /* hear */
    select(to : 0 .. (RANKS - 1));
    if
    :: to != me && heard[PAIR(me, to)] < posted[me] &&
       number[AT(me, to, heard[PAIR(me, to)] + 1)] == heard[PAIR(me, to)] + 1 -> heard[PAIR(me, to)]++
    :: else
    fi;
    to = 0
  }
  :: atomic { arrived[me] < posted[me] ->
    look_needed(arrived[me] + 1);
#ifndef NO_LEFT
    look_left(arrived[me]);
#else
    has_left = true;
#endif
    if
    :: has_all && has_left -> arrived[me]++
    :: else
    fi;
    has_all = false;
    has_left = false
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
#define write_data \
  assert(taken[to] + 2 >= flies[at]); \
  place_read[me] = out[OUT(me, flies[at])]; \
  assert(place_read[me] == flies[at]); \
  data[at] = flies[at]
#define write_number \
  assert(number[at] < flies[at]); \
  number[at] = flies[at]

proctype Network(byte me) {
  byte to, p, at;
end:
  do
  :: atomic {
      select(to : 0 .. (RANKS - 1));
      select(p : 0 .. (PLACES - 1));
      at = PAIR(to, me) * PLACES + p;
      if
      :: flies[at] != 0 && !copied[at] -> FIRST; copied[at] = true
      :: flies[at] != 0 && copied[at] -> SECOND; flies[at] = 0; copied[at] = false
      :: else
      fi;
      to = 0;
      p = 0;
      at = 0;
      place_read[me] = 0
    }
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
