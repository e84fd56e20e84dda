/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Meetings of the blocks of a grid, one behind the other (meet_blocks, include/mpix_device/halo.h): each adds to a word,
 * 1 but for the first, all together half of what it holds, and waits until its highest bit is another. Eight bits here.
 *
 *   BLOCKS, MEETINGS
 *   ONE_LESS           the first adds one less
 *   WAIT_FOR_THE_REST  blocks wait until the bits below are as before, in place of the highest
 *   TWO_STEPS          the addition is none: the word is read, and written
 */
#ifndef BLOCKS
#define BLOCKS 3
#endif
#ifndef MEETINGS
#define MEETINGS 4
#endif
#define TURNED 128

byte word;
byte come[BLOCKS]; /* meetings that it has come to */

active [BLOCKS] proctype block() {
  byte before, after, mine = 1, other, met;
  if
#ifdef ONE_LESS
  :: _pid == 0 -> mine = TURNED - BLOCKS
#else
  :: _pid == 0 -> mine = TURNED - (BLOCKS - 1)
#endif
  :: else
  fi;
  do
  :: met < MEETINGS ->
    come[_pid] = met + 1;
#ifdef TWO_STEPS
    before = word;
    word = before + mine;
#else
    d_step {
      before = word;
      word = before + mine
    };
#endif
    after = before + mine;
    if
    :: (after ^ before) & TURNED
    :: else ->
#ifdef WAIT_FOR_THE_REST
      ((word & (TURNED - 1)) == 0)
#else
      ((word ^ before) & TURNED)
#endif
    fi;
    other = 0;
    do
    :: other < BLOCKS -> assert(come[other] > met); other++ /* given */
    :: else -> break
    od;
    other = 0;
    met++
  :: else -> break
  od
}
