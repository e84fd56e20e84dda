/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Channels between kernels and the CPU (include/mpix_device/notify.h has the table of words), for the model checker
 * spin. check.sh runs it.
 *
 * LANES posters post COUNT tasks each, in rings of DEPTH places: one for each lane, or, with QUEUE, one for all. A task
 * has a word or none, and wants a reply or none, as it happens. A line is flag and data in one, so here it is the number
 * of the task that it was written for, and its flag is that number modulo TAGS. Lines of a task, its head and its word,
 * are seen some time, in any order; what came before the fence is seen at once. A service visits rings that have a task,
 * takes up to MOST in a row, clears words each CLEAR_EACH numbers, and publishes `taken` when it leaves. It replies at
 * once, or leaves that to another thread, which does it in any order. A poster waits for its replies when it likes, in
 * any order, and at the end for all of them.
 *
 * What is checked, in all interleavings:
 *   overwrite   a line is stored only when the service has copied what was there
 *   fresh       head and word that are taken are those of the task
 *   whole       what was written before a post is there when its task is taken, and likewise for replies
 *   order       tasks of a lane are taken in the order of its posts
 *   unread      a reply is stored only where the one before has been read
 *   deadlock    all tasks are taken, all posters end
 */
#ifndef LANES
#define LANES 2
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef COUNT
#define COUNT 3 /* up to 6 */
#endif
#ifndef MOST
#define MOST DEPTH
#endif
#ifndef REPLIES
#define REPLIES SOME /* NO, AT_ONCE, SOME: at once, or later by another thread */
#endif
#define NO 0
#define AT_ONCE 1
#define SOME 2
#ifndef TAGS
#define TAGS 128
#endif
#define CLEAR_EACH (TAGS / 2)

#ifdef QUEUE
#define RINGS 1
#define ring_of(lane) 0
#define NUMBERS (LANES * COUNT + 1)
#else
#define RINGS LANES
#define ring_of(lane) lane
#define NUMBERS (COUNT + 1)
#endif
#define place(r, n) ((r) * DEPTH + (n) % DEPTH)
#define task(r, n) ((r) * NUMBERS + (n))
#define is(line, n) ((line) != 0 && (line) % TAGS == (n) % TAGS)

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NO_CREDIT
#define has_room(n, seen) true
#else
#define has_room(n, seen) ((n) <= (seen) + DEPTH)
#endif
#ifdef ANY_WORD
#define has_come(r, n) true
#else
#define has_come(r, n) (!has_word[task(r, n)] || is(word[place(r, n)], n))
#endif
#ifdef REUSED_EARLY
#define is_free(r) true
#else
#define is_free(r) ((r) <= DEPTH || was_read[place(me, r)] + DEPTH == (r))
#endif

/* Of posters. */
byte tickets[RINGS];
byte taken_seen[RINGS]; /* a hint, of the queue for all */
byte wanted[LANES];     /* replies */
byte was_read[LANES * DEPTH];
byte reply_read[LANES]; /* for assertions and choices: bit r - 1: reply r */

/* What others see; and what was stored, and is not seen yet. */
byte head[RINGS * DEPTH], word[RINGS * DEPTH], taken[RINGS], reply[LANES * DEPTH];
byte stored_head[RINGS * DEPTH], stored_word[RINGS * DEPTH];
byte data[LANES], stored_data[LANES]; /* the last task in front of which it was written */
byte answer[LANES];                   /* the last replies: bits, likewise */

/* What stands in a head, by ring and number; `number` of the lane: 1, 2, ... */
byte poster[RINGS * NUMBERS], number[RINGS * NUMBERS];
bool has_word[RINGS * NUMBERS], wants[RINGS * NUMBERS];

/* Of the service. */
byte copied[RINGS], replies[LANES], to_reply[LANES], tasks[LANES];

#define may_wait(r) ((r) <= wanted[me] && !(reply_read[me] & (1 << ((r) - 1))))
#define may_post (i <= COUNT)
#define may_want(r) (REPLIES != NO && i <= COUNT && is_free(r))

proctype Poster(byte me) {
  byte i = 1, n, r, seen;
again:
  do
  :: i > COUNT && reply_read[me] == (1 << wanted[me]) - 1 -> break
  :: may_wait(1) -> r = 1; goto wait
  :: may_wait(2) -> r = 2; goto wait
  :: may_wait(3) -> r = 3; goto wait
  :: may_wait(4) -> r = 4; goto wait
  :: may_wait(5) -> r = 5; goto wait
  :: may_wait(6) -> r = 6; goto wait
  :: may_post -> r = 0; goto post
  :: may_want(wanted[me] + 1) -> r = 1; goto post
  od;
  goto over;
wait:
  is(reply[place(me, r)], r);
  atomic {
    assert(reply[place(me, r)] == r);        /* fresh */
    assert(answer[me] & (1 << (r - 1)));     /* whole: of data[] that were received */
    reply_read[me] = reply_read[me] | (1 << (r - 1));
    was_read[place(me, r)] = r
  }
  r = 0;
  goto again;
post:
  atomic { /* the number is given out; what the head will say is only written down */
    stored_data[me] = i;
#ifndef NO_FENCE
    data[me] = i;
#endif
    tickets[ring_of(me)]++;
    n = tickets[ring_of(me)];
    poster[task(ring_of(me), n)] = me;
    number[task(ring_of(me), n)] = i;
    wants[task(ring_of(me), n)] = r;
    wanted[me] = wanted[me] + r;
    if :: true -> has_word[task(ring_of(me), n)] = 1 :: true fi;
    seen = taken_seen[ring_of(me)]
  }
  if
  :: has_room(n, seen)
  :: else ->
    atomic { has_room(n, taken[ring_of(me)]); seen = taken[ring_of(me)] }
    taken_seen[ring_of(me)] = seen
  fi;
  if
  :: has_word[task(ring_of(me), n)] ->
    atomic {
      assert(copied[ring_of(me)] + DEPTH >= n);  /* overwrite */
      assert(stored_word[place(ring_of(me), n)] == 0);
      stored_word[place(ring_of(me), n)] = n
    }
  :: else
  fi;
  atomic {
    assert(copied[ring_of(me)] + DEPTH >= n);  /* overwrite */
    assert(stored_head[place(ring_of(me), n)] == 0);
    stored_head[place(ring_of(me), n)] = n;
    i++; n = 0; seen = 0; r = 0
  }
  goto again;
over:
  skip
}

/* Lines are seen. */
proctype Memory(byte p) {
end:
  do
  :: atomic { stored_head[p] != 0 -> head[p] = stored_head[p]; stored_head[p] = 0 }
  :: atomic { stored_word[p] != 0 -> word[p] = stored_word[p]; stored_word[p] = 0 }
  od
}
#ifdef NO_FENCE
proctype Data(byte lane) {
end:
  do
  :: atomic { data[lane] != stored_data[lane] -> data[lane] = stored_data[lane] }
  od
}
#endif

inline give(lane, r) {
  atomic {
#ifndef REPLY_FIRST
    answer[lane] = answer[lane] | (1 << (r - 1));
#endif
    assert(r <= DEPTH || (reply_read[lane] & (1 << (r - DEPTH - 1)))); /* unread */
    reply[place(lane, r)] = r
  }
#ifdef REPLY_FIRST
  answer[lane] = answer[lane] | (1 << (r - 1))
#endif
}

/* Another thread. */
#define left(r) (to_reply[lane] & (1 << ((r) - 1)))
proctype Replier(byte lane) {
  byte r;
end:
  do
  :: left(1) -> r = 1; give(lane, r); to_reply[lane] = to_reply[lane] & ~(1 << (r - 1))
  :: left(2) -> r = 2; give(lane, r); to_reply[lane] = to_reply[lane] & ~(1 << (r - 1))
  :: left(3) -> r = 3; give(lane, r); to_reply[lane] = to_reply[lane] & ~(1 << (r - 1))
  :: left(4) -> r = 4; give(lane, r); to_reply[lane] = to_reply[lane] & ~(1 << (r - 1))
  :: left(5) -> r = 5; give(lane, r); to_reply[lane] = to_reply[lane] & ~(1 << (r - 1))
  :: left(6) -> r = 6; give(lane, r); to_reply[lane] = to_reply[lane] & ~(1 << (r - 1))
  od
}

#define is_there(r) (is(head[place(r, copied[r] + 1)], copied[r] + 1) && has_come(r, copied[r] + 1))

active proctype Service() {
  byte ring, here, n, lane, r, all, word_seen;
look:
  do
  :: all == LANES * COUNT -> break
  :: all < LANES * COUNT && is_there(0) -> ring = 0; goto visit
#if RINGS > 1
  :: is_there(1) -> ring = 1; goto visit
#endif
  od;
  goto over;
visit:
  do
  :: here < MOST && is_there(ring) ->
    n = copied[ring] + 1;
    assert(head[place(ring, n)] == n);  /* fresh */
#ifdef TAKEN_FIRST
    taken[ring] = n;
#endif
    if
    :: has_word[task(ring, n)] -> word_seen = word[place(ring, n)]; assert(word_seen == n)  /* fresh */
    :: else
    fi;
    atomic {
      lane = poster[task(ring, n)];
#ifndef NO_CLEAR
      if :: n % CLEAR_EACH < DEPTH -> word[place(ring, n)] = 0 :: else fi;
#endif
      copied[ring] = n
    }
    atomic {
      tasks[lane]++;
      assert(number[task(ring, n)] == tasks[lane]);      /* order */
      assert(data[lane] >= number[task(ring, n)]);       /* whole */
      r = wants[task(ring, n)];
      poster[task(ring, n)] = 0; number[task(ring, n)] = 0;  /* no more of interest */
      has_word[task(ring, n)] = 0; wants[task(ring, n)] = 0
    }
    if
    :: r ->
      replies[lane]++;
      r = replies[lane];
      if
      :: true -> give(lane, r)
#if REPLIES == SOME
      :: true -> to_reply[lane] = to_reply[lane] | (1 << (r - 1))
#endif
      fi
    :: else
    fi;
    here++; all++; n = 0; lane = 0; r = 0; word_seen = 0
  :: else -> break
  od;
#ifdef NO_PUBLISH_WHEN_EMPTY
  if :: here == MOST -> taken[ring] = copied[ring] :: else fi;
#else
  taken[ring] = copied[ring];
#endif
  here = 0;
  goto look;
over:
  skip
}

init {
  byte i;
  atomic {
    do
    :: i == LANES -> break
    :: else ->
      run Poster(i);
#if REPLIES == SOME
      run Replier(i);
#endif
#ifdef NO_FENCE
      run Data(i);
#endif
      i++
    od;
    i = 0;
    do
    :: i == RINGS * DEPTH -> break
    :: else -> run Memory(i); i++
    od
  }
}
