/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * The lanes of device-side RMA (include/mpix_device/: the table in layout.h; reader.h, rma.h) for the model checker
 * spin. check.sh runs it.
 *
 * Each rank is a process and runs one of the programs below: kernels, from init to finish. An item is a put without a
 * notification (PUT), a notification, whose data go straight into the window (DIRECT) or in lines (IN_LINES) or which
 * has none (READ), or what a flush sends (FLUSHING). An entry is one line here, as its reader wants both of them: the
 * second one, where the first comes before the fence, for whoever has seen that alone only waits for the second. A
 * line holds the item that it tells of, whether it is the entry, and the lap.
 *
 * Memory order. Lines become visible in any order, late or early: a look finds what is stored or what was there before.
 * A look that finds an earlier lap is one made too soon. Counters (room, there, go) only grow, and who polls them only
 * waits for more, so one that is seen late is a poll made late. Data in a window count as seen by others when he who
 * stored them has fenced, and by the target when it has fenced after that: what may be seen before is not relied on.
 * The team is one thread, and a fence for one GPU is one for all.
 *
 * What is checked, in all interleavings:
 *   emptied     a line is written only when what it held was taken, and by one rank
 *   fresh       a line that is accepted is of this notification
 *   whole       who matches a notification sees its data, and those of earlier puts of its source; so does who leaves a
 *               barrier
 *   order       notifications of one source and tag match in the order in which they were sent
 *   flushed     when a flush returns what its rank has put is in the windows, for everybody
 *   alone       an inbox has one reader at a time
 *   deadlock    every kernel gets to its end. A poll in vain blocks, and all else counts up, so no livelock either
 */

/* Parameters; check.sh sets them. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef LINES
#define LINES 2 /* of a lane */
#endif
#ifndef DATA
#define DATA 1 /* lines behind an entry */
#endif
#ifndef PENDING
#define PENDING 6 /* notifications that a rank may set aside */
#endif
#ifndef COUNT
#define COUNT 2 /* how often a rank does what the program says */
#endif
#ifdef MATES /* ranks 0 and 1 are of one process, and the next of another */
#define PROCESSES 2
#define process_of(r) ((r) / 2)
#define ranks_of(p) ((p) == 0 -> 2 : RANKS - 2)
#else
#define PROCESSES RANKS
#define process_of(r) (r)
#define ranks_of(p) 1
#endif

/* What ranks do. To wait is to wait for the later tag first. */
#define CROSS 1    /* notify the next rank; then wait */
#define SELF 2     /* notify oneself; then wait */
#define STAR 3     /* 3 ranks: 0 and 1 notify 2, which notifies both; then wait */
#define PUTS 4     /* CROSS, but a put goes before each notification */
#define FLUSH 5    /* all but the last notify that one, and flush. It runs a kernel that waits once, or not at all, and
                      a second one that waits for the rest; or it runs none */
#define EXCHANGE 6 /* notify the next rank; flush, finish; a second kernel waits */
#define BARRIER 7  /* notify the next rank, put to it, barrier; then wait */
#define CLOSE 8    /* notify the next rank; flush, barrier: all is in the windows */
#define AHEAD 9    /* rank 0 notifies rank 1, which waits once, and finishes; no flush */
#ifndef PROGRAM
#define PROGRAM CROSS
#endif

/* How data travel: each notification chooses anew. */
#define DIRECT 1
#define IN_LINES 2
#define READ 4
#define PUT 8
#define FLUSHING 16
#define ALL (DIRECT | IN_LINES | READ)
#ifndef WAYS
#define WAYS (DIRECT | IN_LINES)
#endif

#define WORLD 0
#define DEVICE 1
#ifndef COMM
#define COMM WORLD
#endif

/* Negative controls: one rule left out or wrong. Each must lead to a counterexample. */
#if defined(NO_CREDIT)
#define has_room(l, end) true
#elif defined(GENEROUS)
#define has_room(l, end) (room[l] + 1 >= (end))
#else
#define has_room(l, end) (room[l] >= (end))
#endif
#ifdef EARLY_ENTRY
#define is_entry_of(v, n) ((v) != 0)
#else
#define is_entry_of(v, n) (lap_in(v) == lap_of(n))
#endif
#ifdef EARLY_LAP
#define is_data_of(v, n) ((v) != 0)
#else
#define is_data_of(v, n) (lap_in(v) == lap_of(n))
#endif
#ifdef NO_LOCK
#define is_free(t) true
#else
#define is_free(t) (!lock[t])
#endif
#if defined(NO_LOCK) || defined(LOCK_NOT_HELD)
#define held false
#else
#define held true
#endif
#ifdef FLUSH_TAKES_A_PLACE
#define takes_no_place(m) false
#else
#define takes_no_place(m) (item[m].kind == FLUSHING)
#endif
#ifdef MUTE_READS
#define SAYS_AFTER IN_LINES
#else
#define SAYS_AFTER (IN_LINES | READ)
#endif
#ifdef FORGETS_PUTS
#define forgets_puts(comm) true
#else
#define forgets_puts(comm) (comm == WORLD)
#endif
#ifdef MANY_TARGETS /* no control: more than a rank keeps in mind, so it flushes where its process has sent anything */
#define is_unflushed(t) sent[lane(process_of(me), t)]
#else
#define is_unflushed(t) unflushed[t]
#endif

/* ---- memory ---- */

#define lane(p, t) ((p) * RANKS + (t))
#define LANES (PROCESSES * RANKS)
#define lap_of(n) ((n) / LINES + 1)
#define slot(l, n) ((l) * LINES + (n) % LINES)

/* A line; 0: never written. */
#define line_of(m, is_entry, n) (lap_of(n) * 64 + (m) * 2 + (is_entry))
#define lap_in(v) ((v) / 64)
#define item_in(v) ((v) / 2 % 32)
#define is_entry(v) ((v) % 2)

byte sent[LANES], room[LANES], head[LANES];
short line[LANES * LINES], before[LANES * LINES]; /* what is stored, and what may be seen instead */
bool lock[RANKS];
byte live[RANKS], pending[RANKS * PENDING]; /* items, oldest first */
byte arrived[2 * PROCESSES], go[2 * PROCESSES], there[2 * PROCESSES * PROCESSES];
#define own(comm) ((comm) * PROCESSES + process_of(me))
#define there_of(comm, segment, p) there[((comm) * PROCESSES + (segment)) * PROCESSES + (p)]
#define is_there(comm, p) (there_of(comm, process_of(me), p) >= passed[comm])
#if PROCESSES > 2
#define all_there(comm) (is_there(comm, 0) && is_there(comm, 1) && is_there(comm, 2))
#else
#define all_there(comm) (is_there(comm, 0) && is_there(comm, 1))
#endif

/* Items are numbered by rank, in the order of its program. */
#if PROGRAM == STAR || PROGRAM == PUTS || PROGRAM == FLUSH || PROGRAM == BARRIER
#define EACH (2 * COUNT)
#else
#define EACH (COUNT + 1)
#endif
#define ITEMS (RANKS * EACH)
#define source_of(m) ((m) / EACH)
typedef Item {
  byte kind, to, tag;
  bool after;         /* puts */
  byte data;          /* for assertions, as are the next: where they are */
  bool known;         /* the target sees them */
  bool matched;
  byte round          /* the barrier that comes next */
};
Item item[ITEMS];
#define has_data(m) (item[m].kind & (DIRECT | IN_LINES | PUT))
#define has_lines(m) (item[m].kind == IN_LINES)
#define lines_of(m) (has_lines(m) -> 1 + DATA : 1)
#define THERE 1                /* 0: nowhere */
#define stored_by(r) (2 + (r)) /* and not fenced */

bool is_read[RANKS]; /* for assertions: somebody takes what lies at the front of a lane */

inline fence() {
  d_step { for (i : 0 .. ITEMS - 1) { if :: item[i].data == stored_by(me) -> item[i].data = THERE :: else fi }; i = 0 }
}
inline acquire() {
  d_step {
    for (i : 0 .. ITEMS - 1) { if :: item[i].to == me && item[i].data == THERE -> item[i].known = true :: else fi };
    i = 0
  }
}

inline match(m) {
  d_step {
    for (i : 0 .. m) {
      if
      :: source_of(i) == source_of(m) && item[i].to == me ->
        assert(item[i].known || !has_data(i));                                      /* whole */
        assert(item[i].matched == (i < m) || item[i].tag != item[m].tag || item[i].kind >= PUT) /* order */
      :: else
      fi
    };
    i = 0;
    item[m].matched = true
  }
}

/* ---- a reader: of its own lanes, or of those of `inbox` ---- */

#define is_asked_for(t, m) ((t) == me && asks && item[m].tag == tag && item[m].kind != FLUSHING)
#define has_place(t, m) (live[t] < PENDING || is_asked_for(t, m) || takes_no_place(m))
#define front(p, t) slot(lane(p, t), head[lane(p, t)])
#define fits(v, p, t) (is_entry_of(v, head[lane(p, t)]) && has_place(t, item_in(v)))
#define is_ready(p, t) (fits(line[front(p, t)], p, t) || fits(before[front(p, t)], p, t))
#if PROCESSES > 2
#define some_ready(t) (is_ready(0, t) || is_ready(1, t) || is_ready(2, t))
#else
#define some_ready(t) (is_ready(0, t) || is_ready(1, t))
#endif

#define at(k) slot(l, head[l] + k)
inline give_room() { room[l] = head[l] + lines_of(m) + LINES }

inline take(may) {
  atomic { /* look */
    (may) && some_ready(inbox) ->
    if
    :: is_ready(0, inbox) -> l = lane(0, inbox)
    :: is_ready(1, inbox) -> l = lane(1, inbox)
#if PROCESSES > 2
    :: is_ready(2, inbox) -> l = lane(2, inbox)
#endif
    fi;
    if
    :: fits(line[at(0)], l / RANKS, inbox) -> v = line[at(0)]
    :: fits(before[at(0)], l / RANKS, inbox) -> v = before[at(0)]
    fi;
    assert(!is_read[inbox]);                                                        /* alone */
    is_read[inbox] = true;
    m = item_in(v);
    assert(is_entry(v) && lap_in(v) == lap_of(head[l]));                            /* fresh */
    v = 0
  };
#ifdef ROOM_FIRST
  give_room();
#endif
  atomic { /* move_data; settle */
    if
    :: has_lines(m) ->
      for (k : 1 .. DATA) {
        if
        :: is_data_of(line[at(k)], head[l] + k) -> v = line[at(k)]
        :: is_data_of(before[at(k)], head[l] + k) -> v = before[at(k)]
        fi;
        assert(item_in(v) == m && !is_entry(v))                                     /* fresh */
      };
      item[m].data = stored_by(me);
      item[m].known = (inbox == me)
    :: else
    fi;
    if
#ifndef NO_ACQUIRE
    :: item[m].kind == DIRECT -> acquire()
#endif
#ifndef NO_ACQUIRE_AFTER_PUTS
    :: item[m].after -> acquire()
#endif
#ifndef ROOM_UNFENCED
    :: item[m].kind == FLUSHING -> fence()
#endif
    :: else
    fi;
    give_room();
    head[l] = head[l] + lines_of(m);
    if
    :: item[m].kind == FLUSHING
    :: is_asked_for(inbox, m) -> asks = false; match(m)
    :: else -> pending[inbox * PENDING + live[inbox]] = m; live[inbox]++
    fi;
    is_read[inbox] = false;
    l = 0; k = 0; m = 0; v = 0
  }
}

/* Where nothing lies in the lanes of t that changes nothing. */
inline read_for(t, may) {
  atomic { (may) && inbox == me && (t) != me && is_free(t) && some_ready(t) -> inbox = t; lock[t] = lock[t] || held };
  take(true)
}
inline end_read_for() {
  atomic { inbox != me -> fence(); lock[inbox] = lock[inbox] && !held; inbox = me }
}

inline wait(which) {
  atomic { /* take_pending */
    tag = which; asks = true;
    for (k : 1 .. live[me]) {
      m = pending[me * PENDING + k - 1];
      if
      :: asks && item[m].tag == tag -> asks = false; match(m)
#ifdef NOT_THE_OLDEST
      :: asks
#else
      :: asks && item[m].tag != tag
#endif
      :: !asks && k > 1 -> pending[me * PENDING + k - 2] = m
      fi
    };
    if :: !asks -> live[me]--; pending[me * PENDING + live[me]] = 0 :: else fi;
    k = 0; m = 0
  };
  do
  :: take(asks)
  :: atomic { !asks -> tag = 0; break }
  od
}

/* ---- a rank that puts ---- */

inline new_item(whom, which) {
  mine = me * EACH + items; items++;
  item[mine].to = whom; item[mine].tag = which; item[mine].round = passed[COMM] + 1
}
inline put(whom) {
  atomic {
    new_item(whom, 0); item[mine].kind = PUT; item[mine].data = stored_by(me); mine = 0;
    unfenced = true; has_put = true
  }
}

inline store_line(n, what) {
  assert((n) < head[to] + LINES && lap_in(line[slot(to, n)]) < lap_of(n));          /* emptied */
  before[slot(to, n)] = line[slot(to, n)];
  line[slot(to, n)] = what
}

inline send(whom, which, ways) {
  atomic {
    new_item(whom, which);
    if
    :: (ways) & DIRECT -> item[mine].kind = DIRECT; item[mine].data = stored_by(me)
    :: (ways) & IN_LINES -> item[mine].kind = IN_LINES
    :: (ways) & READ -> item[mine].kind = READ
    :: (ways) & FLUSHING -> item[mine].kind = FLUSHING
    fi;
    item[mine].after = has_put && (item[mine].kind & SAYS_AFTER);
    if
#ifndef NO_FENCE
    :: item[mine].kind == DIRECT -> fence(); unfenced = false
#endif
#ifndef NO_FENCE_OF_PUTS
    :: item[mine].kind != DIRECT && unfenced -> fence(); unfenced = false
#endif
    :: else
    fi;
    to = lane(process_of(me), whom);
    first = sent[to]
#ifdef NO_ATOMIC_ADD
  };
  atomic {
#else
    ;
#endif
    sent[to] = first + lines_of(mine)
  };
  do
  :: atomic {
      inbox == me && has_room(to, first + lines_of(mine)) ->
      store_line(first, line_of(mine, 1, first));
      for (k : 2 .. lines_of(mine)) { store_line(first + k - 1, line_of(mine, 0, first + k - 1)) };
      if :: has_lines(mine) -> unflushed[to % RANKS] = true :: else fi;
      first = 0; to = 0; mine = 0; k = 0
    };
    break
#ifndef NO_DRAIN /* what it would take when there is room it takes in its next call */
  :: take(!has_room(to, first + lines_of(mine)))
#endif
#ifndef NO_READ_FOR_ROOM
  :: read_for(to % RANKS, !has_room(to, first + lines_of(mine)))
  :: end_read_for()
#endif
  od
}

inline flush() {
  atomic { fence(); unfenced = false };
#ifndef NO_FLUSH
  for (target : 0 .. RANKS - 1) {
    if
    :: is_unflushed(target) ->
#ifndef FLUSHES_WITHOUT_AN_ENTRY
      send(target, 0, FLUSHING);
#endif
      atomic { end_of = sent[lane(process_of(me), target)] + LINES; unflushed[target] = false };
      do
      :: inbox == me && room[lane(process_of(me), target)] >= end_of -> break
      :: take(true)
#ifndef NO_READ_FOR
      :: read_for(target, true)
      :: end_read_for()
#endif
      od
    :: else
    fi
  };
  atomic { target = 0; end_of = 0 };
#endif
  d_step {
    for (i : 0 .. ITEMS - 1) { assert(source_of(i) != me || !has_data(i) || item[i].data == THERE) }; /* flushed */
    i = 0
  }
}

inline barrier(comm) {
  atomic {
#ifndef NO_BARRIER_FENCE
    fence();
#endif
    unfenced = false;
    passed[comm]++; arrived[own(comm)]++;
    is_last = (arrived[own(comm)] == passed[comm] * ranks_of(process_of(me)))
  };
  for (k : 1 .. (is_last -> PROCESSES : 0)) {
    if
    :: comm == WORLD || k - 1 == process_of(me) -> there_of(comm, k - 1, process_of(me)) = passed[comm]
    :: else
    fi
  };
  k = 0;
  do
  :: is_last && all_there(comm) -> go[own(comm)] = passed[comm]; break
  :: !is_last && go[own(comm)] >= passed[comm] -> break
#ifndef NO_DRAIN_IN_BARRIER
  :: take(true)
#endif
  od;
#ifndef NO_BARRIER_ACQUIRE
  acquire();
#endif
  is_last = false;
  has_put = has_put && !forgets_puts(comm)
}

/* What was put to this rank before the barrier, in these ways. */
inline check_puts(ways) {
  d_step {
    for (i : 0 .. ITEMS - 1) {
      assert(!(item[i].kind & (ways)) || item[i].to != me || item[i].round > passed[COMM] ||
             (COMM == DEVICE && process_of(source_of(i)) != process_of(me)) || item[i].known) /* whole */
    };
    i = 0
  }
}

/* ---- kernels ---- */

inline begin() {
  atomic {
    !lock[me] -> lock[me] = true;
#ifndef NO_LOCK_ACQUIRE
    acquire()
#endif
  }
}

inline finish() {
  do /* what it does not see is late */
  :: take(true)
  :: break
  od;
#ifndef LOCK_KEPT
  atomic { fence(); lock[me] = false }
#endif
}

#define next ((me + 1) % RANKS)
#define last (RANKS - 1)
inline notify_all(whom) { for (n : 1 .. COUNT) { send(whom, n % 2, WAYS) } }
inline wait_all() { for (n : 1 .. COUNT / 2) { wait(0) }; for (n : 1 .. COUNT - COUNT / 2) { wait(1) } }

proctype Rank(byte me) {
  byte inbox = me, tag, items, passed[2]; /* of the rank */
  bool asks, unfenced, has_put, is_last, unflushed[RANKS];
  byte mine, to, first, target, end_of;   /* of a call */
  byte i, k, l, m, n;
  short v;
#if PROGRAM == FLUSH
  if
  :: me < last -> begin(); for (n : 1 .. COUNT) { send(last, 0, WAYS); flush() }; finish()
  :: me == last ->
    begin();
    if :: wait(0); n = 1 :: true fi;
    finish(); begin();
    do :: n < last * COUNT -> wait(0); n++ :: n == last * COUNT -> break od;
    finish()
  :: me == last
  fi
#else
  begin();
#if PROGRAM == CROSS
  notify_all(next); wait_all();
#elif PROGRAM == SELF
  notify_all(me); wait_all();
#elif PROGRAM == STAR
  if
  :: me < last -> notify_all(last); wait_all()
  :: else -> for (n : 2 .. 2 * COUNT + 1) { send(n % 2, n / 2 % 2, WAYS) }; wait_all(); wait_all()
  fi;
#elif PROGRAM == PUTS
  for (n : 1 .. COUNT) { put(next); send(next, n % 2, WAYS) };
  wait_all();
#elif PROGRAM == EXCHANGE
  notify_all(next); flush(); finish(); begin(); wait_all();
#elif PROGRAM == BARRIER
  for (n : 1 .. COUNT) { send(next, n % 2, WAYS); put(next); barrier(COMM); check_puts(PUT) };
  wait_all();
#elif PROGRAM == CLOSE
  notify_all(next); flush(); barrier(COMM); check_puts(DIRECT | IN_LINES);
#elif PROGRAM == AHEAD
  if :: me == 0 -> for (n : 1 .. COUNT) { send(1, 0, WAYS) } :: else -> wait(0) fi;
#endif
  finish()
#endif
}

init {
  byte r, p;
  atomic {
    for (p : 0 .. LANES - 1) { room[p] = LINES };
#ifndef NO_FILL /* who is not awaited counts as there */
    for (p : 0 .. PROCESSES - 1) {
      for (r : 0 .. PROCESSES - 1) {
        if :: r != p -> there_of(DEVICE, p, r) = 255 :: else fi;
        if :: ranks_of(r) == 0 -> there_of(WORLD, p, r) = 255 :: else fi
      }
    };
#endif
    for (r : 0 .. RANKS - 1) { run Rank(r) };
    p = 0; r = 0
  }
}
