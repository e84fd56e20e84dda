/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Messages of a halo by memory (include/mpix_device/halo_words.h has the table of words), for the model checker spin.
 * check.sh runs it.
 *
 * Two ranks exchange a message each way, COUNT times. A message has two parts, and a rank two blocks: block b packs part
 * b, and then unpacks the other one, which another block of the other rank has packed. Buffers of a message are HALVES.
 * With AHEAD one block is all of a rank, and packs the message of the next exchange before it unpacks that of this one.
 * With LINES each part is a line, with its tag.
 *
 * Memory order. What a block has stored is seen by others when it has fenced; before, a look finds it, or what was
 * there. Words (there, room) only grow, and who polls them only waits for more, so one that is seen late is a poll made
 * late. A line is seen as a whole.
 *
 * What is checked, in all interleavings:
 *   unread      a part is stored only when what it held was unpacked
 *   whole       what is unpacked is what was packed for this exchange
 *   deadlock    both ranks end
 */
#ifndef COUNT
#define COUNT 5
#endif
#ifndef HALVES
#define HALVES 2
#endif
#ifdef AHEAD
#define BLOCKS 1
#else
#define BLOCKS 2
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NO_ROOM
#define has_room(r, s) true
#else
#ifdef ONE_MORE
#define has_room(r, s) (room[r] + HALVES + 1 >= (s))
#else
#define has_room(r, s) (room[r] + HALVES >= (s))
#endif
#endif

#define at(r, s, p) (((r) * HALVES + (s) % HALVES) * 2 + (p)) /* part p of what rank r unpacks */

/* By rank. */
byte there[2]; /* of the message that it unpacks; told by the other */
byte room[2];  /* of that which it packs */
byte packed[2], unpacked[2], ended[2]; /* arrived: blocks, so far */
/* By part: as stored; as all see it; as it was unpacked. */
byte data[4 * HALVES], known[4 * HALVES], part_read[4 * HALVES];

inline fence(b) { /* what this block has stored, and what others have that it has seen by `packed` */
  d_step {
    i = 0;
    do
    :: i < 2 ->
      if
      :: (BLOCKS == 1 || i == b || has_seen) -> known[at(1 - me, s, i)] = data[at(1 - me, s, i)]
      :: else
      fi;
      i++
    :: else -> break
    od;
    i = 0
  }
}

inline store(p) {
  atomic {
    assert(part_read[at(1 - me, s, p)] + HALVES >= s);
    data[at(1 - me, s, p)] = s
#ifdef LINES
    ; known[at(1 - me, s, p)] = s
#endif
  }
}

inline pack() {
  has_room(me, s);
#ifdef TELL_FIRST
  if
  :: s > there[1 - me] -> there[1 - me] = s
  :: else
  fi;
#endif
  store(b);
#ifdef AHEAD
  store(1 - b);
#endif
#if !defined(LINES)
#ifndef NO_FENCE
  fence(b);
#endif
#ifdef EACH_TELLS
  is_last = true;
#else
  atomic {
    packed[me]++;
    is_last = (packed[me] == s * BLOCKS);
  }
#endif
  if
  :: is_last ->
    has_seen = true;
#ifndef NO_FENCE
    fence(b);
#endif
    has_seen = false;
    if
    :: s > there[1 - me] -> there[1 - me] = s
    :: else
    fi
  :: else
  fi
#endif
}

inline read_part(p) {
  /* as far as nobody has fenced it, a look may find the one before */
  if
  :: known[at(me, s, p)] != data[at(me, s, p)] -> assert(known[at(me, s, p)] == s)
  :: else
  fi;
  assert(data[at(me, s, p)] == s);
  part_read[at(me, s, p)] = s
}

inline unpack() {
#ifdef LINES
  (data[at(me, s, 1 - b)] == s);
#ifdef AHEAD
  (data[at(me, s, b)] == s);
#endif
#else
  (there[me] >= s);
#endif
#ifdef ROOM_FIRST
  room[1 - me] = s;
#endif
  atomic { read_part(1 - b) }
#ifdef AHEAD
  atomic { read_part(b) }
#endif
#ifdef EACH_FREES
  is_last = true;
#else
  atomic {
    unpacked[me]++;
    is_last = (unpacked[me] == s * BLOCKS);
  }
#endif
  if
  :: is_last && s > room[1 - me] -> room[1 - me] = s
  :: else
  fi
}

proctype block(byte me, b) {
  byte s = 1, i;
  bool is_last, has_seen;
#ifdef AHEAD
  pack();
  do
  :: s <= COUNT ->
    if
    :: s < COUNT -> s++; pack(); s--
    :: else
    fi;
    unpack();
    s++
  :: else -> break
  od
#else
  do
  :: s <= COUNT ->
    pack();
    unpack();
    ended[me]++;
    (ended[me] >= s * BLOCKS); /* the next exchange is another launch, or blocks meet */
    s++
  :: else -> break
  od
#endif
}

init {
  atomic {
    run block(0, 0);
    run block(1, 0);
#ifndef AHEAD
    run block(0, 1);
    run block(1, 1);
#endif
  }
}
