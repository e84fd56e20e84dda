/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Exchanges of collectives between many nodes, which go in rounds (src/wire/rail.h), for the model checker spin.
 * check.sh runs it.
 *
 * RANKS ranks, each on a node of its own, make the same COUNT exchanges. They stand in a circle, and each tells the one
 * before it, in RANKS - 1 rounds, what it knows: collective/rail_rounds.h does so with several messages a round.
 * An exchange is one of three, as is chosen for each:
 *   gathered    what each has goes along with the rounds; all need all of it
 *   passed_on   what the first rank has goes along the circle; it needs nothing
 *   direct      each sends to the one before it, and needs that
 * Messages have places by parity, at both ends. A transfer reads the places that it sends from at any time until it is
 * over, which is later than that it has come, and transfers may overtake each other. Three run at once for each rank:
 * its stream, its service, and its network.
 *
 * A rank sends one message a round, the root is the first rank, and room for transfers is not bounded: a network takes
 * what it is given.
 *
 * What is checked, in all interleavings:
 *   unread      what is written, at either end, is not read any more by the rank that it was for before
 *   whole       what a stream takes, and what is passed on, is of its exchange
 *   deadlock    all exchanges end
 */
#ifndef COUNT
#define COUNT 3
#endif
#ifndef PLACES
#define PLACES 2
#endif
#ifndef FREE
#define FREE 2 /* exchanges of which each may be of any kind */
#endif
#define RANKS 3

/* messages of an exchange: of both rounds, and data by themselves */
#define ROUND_0 0
#define ROUND_1 1
#define DATA 2
#define MESSAGES 3

#define GATHERED 0
#define PASSED_ON 1
#define DIRECT 2

#define NEXT(rank) (((rank) + 1) % RANKS)
#define BEFORE(rank) (((rank) + RANKS - 1) % RANKS)
#define OF(rank, m) ((rank) * MESSAGES + (m))
#define AT(rank, m, k) (OF(rank, m) * PLACES + (k) % PLACES)
#define OUT(rank, k) ((rank) * PLACES + (k) % PLACES)

byte kind[COUNT + 1];
byte out[RANKS * PLACES];               /* what a stream has filled: which exchange's */
byte data[RANKS * MESSAGES * PLACES];   /* what has come, by the message that brings it: which exchange's */
byte number[RANKS * MESSAGES * PLACES]; /* its signal */
byte flies[RANKS * MESSAGES * PLACES];  /* a transfer, by sender: of which exchange; 0: none */
byte done[RANKS * MESSAGES * PLACES];   /* of it: data, then the signal, or the other way */
byte sent[RANKS * MESSAGES], heard[RANKS * MESSAGES]; /* of rounds: the last */
byte data_sent[RANKS * PLACES], data_heard[RANKS * PLACES]; /* which exchange's */
byte posted[RANKS], arrived[RANKS];
byte taken[RANKS]; /* exchanges whose data a stream needs no more */
byte place_read[RANKS], said_read[RANKS]; /* assertions name what they are about */

#define SENDS(rank, k) (kind[k] == DIRECT || (kind[k] == PASSED_ON && (rank) != 1))
#define HEARS(rank, k) (kind[k] == DIRECT || (kind[k] == PASSED_ON && (rank) != 0))

#define FLIES(m, k) (flies[AT(me, m, k)] == (k))
#define IS_MET(k) (sent[OF(me, ROUND_1)] >= (k) && heard[OF(me, ROUND_1)] >= (k))
#define HAS_SENT(k) (!SENDS(me, k) || data_sent[OUT(me, k)] >= (k))
#define HAS_HEARD(k) (!HEARS(me, k) || data_heard[OUT(me, k)] == (k))
/* All that it has sent in k has left. */
#define GONE(k) (HAS_SENT(k) && !FLIES(ROUND_0, k) && !FLIES(ROUND_1, k) && !FLIES(DATA, k))
#ifndef NO_LEFT
#define LEFT(k) ((k) == 0 || (IS_MET(k) && GONE(k)))
#else
#define LEFT(k) true
#endif
#if defined(TOO_EARLY)
#define MAY_BEGIN(k) ((k) == 1 || kind[(k) - 1] == DIRECT || GONE((k) - 1))
#elif defined(TOO_LATE)
#define MAY_BEGIN(k) IS_MET(k)
#elif defined(STILL_PASSED_ON)
#define MAY_BEGIN(k) ((k) == 1 || IS_MET((k) - 1))
#else
#define MAY_BEGIN(k) ((k) == 1 || (IS_MET((k) - 1) && (kind[(k) - 1] == DIRECT || GONE((k) - 1))))
#endif

/* The second round begins when the first is over. */
#define MAY_GO_ON(m, k) (m == ROUND_0 || (sent[OF(me, ROUND_0)] >= (k) && heard[OF(me, ROUND_0)] >= (k)))
#ifndef BEFORE_IT_CAME
#define HAS_DATA(k) (kind[k] != PASSED_ON || me == 0 || data_heard[OUT(me, k)] == (k))
#else
#define HAS_DATA(k) true
#endif

#define START(m, k) \
  flies[AT(me, m, k)] = k; \
  done[AT(me, m, k)] = (HAS_CONTENT(m, k) -> 0 : 1)
#define HAS_CONTENT(m, k) (m == DATA || kind[k] == GATHERED)

#define TO_TELL(m) (sent[OF(me, m)] + 1)
#define TELL(m) \
  atomic { \
    sent[OF(me, m)] < posted[me] && MAY_BEGIN(TO_TELL(m)) && MAY_GO_ON(m, TO_TELL(m)) && \
    flies[AT(me, m, TO_TELL(m))] == 0 -> \
    sent[OF(me, m)]++; \
    START(m, sent[OF(me, m)]) \
  }
#define SEND_DATA(k) \
  atomic { \
    (k) > 0 && SENDS(me, k) && data_sent[OUT(me, k)] != (k) && MAY_BEGIN(k) && HAS_DATA(k) && \
    flies[AT(me, DATA, k)] == 0 -> \
    data_sent[OUT(me, k)] = k; \
    START(DATA, k) \
  }

#define TO_HEAR(m) (heard[OF(me, m)] + 1)
#define HEAR(m) \
  atomic { \
    heard[OF(me, m)] < posted[me] && MAY_GO_ON(m, TO_HEAR(m)) && number[AT(me, m, TO_HEAR(m))] == TO_HEAR(m) -> \
    heard[OF(me, m)]++ \
  }
#define HEAR_DATA(k) \
  atomic { \
    (k) > 0 && HEARS(me, k) && data_heard[OUT(me, k)] != (k) && number[AT(me, DATA, k)] == (k) -> \
    data_heard[OUT(me, k)] = k \
  }

#define HAS(k) (kind[k] == GATHERED -> IS_MET(k) : HAS_HEARD(k))

proctype Stream(byte me) {
  byte k = 1;
  do
  :: k > COUNT -> break
  :: else ->
    d_step {
      place_read[me] = flies[AT(me, ROUND_0, k)];
      assert(place_read[me] == 0);
      place_read[me] = flies[AT(me, ROUND_1, k)];
      assert(place_read[me] == 0);
      place_read[me] = flies[AT(me, DATA, k)];
      assert(place_read[me] == 0);
      out[OUT(me, k)] = k;
      posted[me] = k
    }
    arrived[me] >= k;
    d_step {
      assert(kind[k] != GATHERED || (data[AT(me, ROUND_0, k)] == k && data[AT(me, ROUND_1, k)] == k));
      assert(!HEARS(me, k) || data[AT(me, DATA, k)] == k);
      taken[me] = k
    }
    k++
  od;
  LEFT(COUNT) /* of the last one, too */
}

proctype Service(byte me) {
end:
  do
  :: TELL(ROUND_0)
  :: TELL(ROUND_1)
  :: SEND_DATA(posted[me] - 1)
  :: SEND_DATA(posted[me])
  :: HEAR(ROUND_0)
  :: HEAR(ROUND_1)
  :: HEAR_DATA(posted[me] - 1)
  :: HEAR_DATA(posted[me])
  :: atomic {
      arrived[me] < posted[me] && HAS(arrived[me] + 1) && LEFT(arrived[me]) ->
      arrived[me]++
    }
  od
}

/* What a message is made of: what the stream has filled, which has the header too, and what it passes on. */
#define READ(m, k) \
  place_read[me] = out[OUT(me, k)]; \
  assert(place_read[me] == k); \
  if \
  :: m == ROUND_1 && kind[k] == GATHERED -> assert(data[AT(me, ROUND_0, k)] == k) \
  :: m == DATA && kind[k] == PASSED_ON && me != 0 -> assert(data[AT(me, DATA, k)] == k) \
  :: else \
  fi; \
  place_read[me] = 0
#define WRITE_DATA(m, k) \
  READ(m, k); \
  if \
  :: HAS_CONTENT(m, k) -> \
    assert(taken[BEFORE(me)] + PLACES >= k); \
    data[AT(BEFORE(me), m, k)] = k \
  :: else \
  fi
#define LAST_HEARD(m, k) (m == DATA -> data_heard[OUT(BEFORE(me), k)] : heard[OF(BEFORE(me), m)])
#define WRITE_NUMBER(m, k) \
  said_read[me] = number[AT(BEFORE(me), m, k)]; \
  assert(said_read[me] <= LAST_HEARD(m, k)); \
  said_read[me] = 0; \
  number[AT(BEFORE(me), m, k)] = k
#ifndef SIGNAL_FIRST
#define FIRST WRITE_DATA
#define SECOND WRITE_NUMBER
#else
#define FIRST WRITE_NUMBER
#define SECOND WRITE_DATA
#endif
/* What it passes on it reads until it is over, though all be there: a network may have to send it again. (What a stream
 * has filled is not overwritten before; see Stream.) */
#define PASSES_ON(m, k) ((m == ROUND_1 && kind[k] == GATHERED) || (m == DATA && kind[k] == PASSED_ON && me != 0))
#define OVER(m, p) \
  flies[OF(me, m) * PLACES + (p)] = 0; \
  done[OF(me, m) * PLACES + (p)] = 0
#define TRANSFER(m, p) \
  atomic { FLIES_AT(m, p, 0) -> FIRST(m, flies[OF(me, m) * PLACES + (p)]); done[OF(me, m) * PLACES + (p)] = 1 } \
  :: atomic { \
    FLIES_AT(m, p, 1) -> \
    SECOND(m, flies[OF(me, m) * PLACES + (p)]); \
    if \
    :: PASSES_ON(m, flies[OF(me, m) * PLACES + (p)]) -> done[OF(me, m) * PLACES + (p)] = 2 \
    :: else -> OVER(m, p) \
    fi \
  } \
  :: atomic { FLIES_AT(m, p, 2) -> READ(m, flies[OF(me, m) * PLACES + (p)]); OVER(m, p) }
#define FLIES_AT(m, p, stage) (flies[OF(me, m) * PLACES + (p)] != 0 && done[OF(me, m) * PLACES + (p)] == stage)

proctype Network(byte me) {
end:
  do
  :: TRANSFER(ROUND_0, 0)
  :: TRANSFER(ROUND_1, 0)
  :: TRANSFER(DATA, 0)
#if PLACES > 1
  :: TRANSFER(ROUND_0, 1)
  :: TRANSFER(ROUND_1, 1)
  :: TRANSFER(DATA, 1)
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
#ifndef NO_GATHERED
      :: i <= FREE -> kind[i] = GATHERED
#endif
      :: i <= FREE -> kind[i] = PASSED_ON
      :: i <= FREE -> kind[i] = DIRECT
      :: i > FREE -> kind[i] = kind[i - PLACES] /* in the same places */
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
