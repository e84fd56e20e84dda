/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Blocks that wait for one flag of a channel, of which one looks for all (include/mpix_device/flags.h).
 *
 * The host raises the flag by one when all that wait for less have passed: so a block that nobody tells of what has come
 * stands still, and with it all. A block looks by itself some times, then leaves it to one of them. Where a thread polls,
 * it waits here: what never comes is a deadlock.
 *
 *   BLOCKS, VALUES     block b waits for 1 + b mod VALUES
 *   LOOKS              by itself, at most
 *   NO_END             the block that looks for all leaves it at that when it has what it waits for
 *   NO_TELL            it tells nobody
 *   TELL_AT_THE_END    it tells only of what it waits for
 */
#ifndef BLOCKS
#define BLOCKS 3
#endif
#ifndef VALUES
#define VALUES 2
#endif
#ifndef LOOKS
#define LOOKS 1
#endif

byte down;   /* the flag, in memory of the host */
byte seen;   /* of it, in memory of the GPU */
bit looker;  /* somebody looks for all */
byte passed[VALUES + 1];

#define blocks_for(v) ((BLOCKS + VALUES - (v)) / VALUES)

active proctype host() {
  do
  :: down < VALUES -> (down == 0 || passed[down] == blocks_for(down)); down++
  :: down == VALUES -> break
  od
}

active [BLOCKS] proctype block() {
  byte value = 1 + (_pid - 1) % VALUES, looks, now, told; /* told: it has seen, and told */
  bit for_all;

again:
  if
  :: for_all || looks < LOOKS ->
    if
    :: for_all -> (down > told || down >= value) /* else nothing is new */
    :: else -> looks++
    fi;
    now = down;
    if
    :: for_all ->
#ifdef TELL_AT_THE_END
      if
      :: now >= value -> seen = now
      :: else
      fi;
#else
#ifndef NO_TELL
      seen = now;
#endif
#endif
      told = now
    :: else
    fi;
    if
    :: now < value -> goto again
    :: now >= value ->
#ifndef NO_END
      if
      :: for_all -> looker = 0
      :: else
      fi;
#endif
      goto out
    fi
  :: else ->
    (seen >= value || looker == 0);
    if
    :: seen >= value -> goto out
    :: else
    fi;
    atomic {
      if
      :: looker == 0 -> looker = 1; for_all = 1
      :: else
      fi
    };
    goto again
  fi;
out:
  assert(down >= value); /* there */
  passed[value]++
}
