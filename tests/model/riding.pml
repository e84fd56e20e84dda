/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Posts that ride in messages between nodes (src/offnode/remote_peers.h), and the first one, which tells where messages go
 * (src/offnode/doorsteps.h), for the model checker spin. check.sh runs it.
 *
 * Two ranks, which put to each other. rank[r] has what r keeps of its one peer. The processes: the streams of each rank;
 * its NIC, which brings what has been started, in any order; and its LatePosts, the thread that sends held posts.
 *
 * A message is a marked one: a front, with the number of posts that rode so far, and a word of data; both are epoch
 * numbers in `front` and `data`, 0 where the slot is wiped. They arrive in any order, and later than the message was
 * started, but the sender's memory is as it was: it is written again in epoch e + D. An epoch may also be direct: it
 * awaits the post, takes no post along, and sets `arrived` when its data are there.
 *
 * The first post of each rank is a write of the record and then its signal; the peer sends nothing before it is told.
 *
 * What is checked, in all interleavings:
 *   found       what is sent goes where the record says, to slots that are there
 *   emptied     a slot is written only when it is wiped
 *   whole       a wait takes the message of its epoch
 *   exposed     direct data come when the target has posted for them, and not yet waited
 *   counted     nobody knows of more posts than there are; at the end each knows all
 *   deadlock    every stream gets to its end
 */

/* Parameters; check.sh sets them. */
#ifndef EPOCHS
#define EPOCHS 3
#endif
#ifndef D
#define D 1 /* slots */
#endif

/* What a rank enqueues, EPOCHS times: */
#define HALO 1      /* post; complete; wait */
#define MIXED 2     /* rank 0: post; complete; wait. Rank 1: complete; post; wait */
#define PINGPONG 3  /* rank 0: complete; post; wait. Rank 1: post; wait; complete */
#define STREAMS 4   /* two streams each: post; wait, and complete */
#define MESSAGES 5  /* as MIXED; between post and wait rank 0 waits for rank 1 to say that it has completed */
#ifndef PROGRAM
#define PROGRAM HALO
#endif

/* Negative controls: one rule left out. Each must lead to a counterexample. */
#ifdef NO_CREDIT
#define has_credit(r, e) rank[r].told
#elif defined(EAGER_FIRST)
#define has_credit(r, e) (e <= D || known(r) >= e + 1 - D)
#else
#define has_credit(r, e) (rank[r].told && (e <= D || known(r) >= e + 1 - D))
#endif
#ifdef NO_LATE_POSTS
#define late_posts_look(r) false
#else
#define late_posts_look(r) (rank[r].held)
#endif

typedef Slot {   /* a slot in the memory of the rank that is put to, and what is on its way there */
  byte front, posts, data, arrived;
  byte front_due, posts_due, data_due, arrived_due;
  bool wipe_due
};

typedef Rank {
  byte posted;             /* words: written by the peer's NIC, as are */
  bool record, told;       /* what its first post tells, and that it has */
  Slot slot[D];
  byte posts_ridden;       /* what it has read in fronts */
  byte opened, sent, closed;
  byte rides_given;
  bool held, held_for_long;
  byte posts_due;          /* posts to the peer that are on their way */
  byte first_due           /* of the first one: WRITE, then SIGNAL */
};

Rank rank[2];

#define WRITE 1
#define SIGNAL 2

#define peer(r) (1 - (r))
#define known(r) (rank[r].posted + rank[r].posts_ridden)
#define slot_of(r, e) rank[r].slot[(e) % D]

/* ---- posts ---- */

inline send_held(r) {
  if
  :: rank[r].held -> rank[r].held = false; rank[r].held_for_long = false; rank[r].posts_due++
  :: else
  fi
}

inline note_ridden(r, number) {
#ifdef RIDDEN_ADDS
  rank[r].posts_ridden = rank[r].posts_ridden + number;
#else
  rank[r].posts_ridden = (number > rank[r].posts_ridden -> number : rank[r].posts_ridden);
#endif
  assert(known(r) <= rank[peer(r)].opened)                                          /* counted */
}

/* In fronts that no wait has read yet. */
inline look_at_fronts(r, s) {
#ifdef NO_FRONTS
  skip
#else
  for (s : 0 .. D - 1) {
    if :: rank[r].slot[s].front -> note_ridden(r, rank[r].slot[s].posts) :: else fi
  };
  s = 0
#endif
}
#ifdef NO_FRONTS
#define ridden_in_fronts(r) false
#elif D == 1
#define ridden_in_front(r, s) (rank[r].slot[s].front && rank[r].slot[s].posts > rank[r].posts_ridden)
#define ridden_in_fronts(r) ridden_in_front(r, 0)
#else
#define ridden_in_front(r, s) (rank[r].slot[s].front && rank[r].slot[s].posts > rank[r].posts_ridden)
#define ridden_in_fronts(r) (ridden_in_front(r, 0) || ridden_in_front(r, 1))
#endif

inline post(r) {
  atomic {
    rank[r].opened++;
    if
#ifndef FIRST_RIDES
    :: rank[r].opened == 1 -> rank[r].first_due = WRITE
    :: rank[r].opened > 1 ->
#else
    :: true ->
#endif
    if /* whether it may ride was found when it was called, by what posts before it did */
    :: true ->
      send_held(r); /* the one before */
      rank[r].held = true;
      rank[r].held_for_long = false
    :: true -> rank[r].posts_due++
    fi
    fi
  }
}

/* ---- complete ---- */

inline start_message(r, e) {
#ifndef RIDES_EARLY
  if :: rank[r].held -> rank[r].held = false; rank[r].held_for_long = false; rank[r].rides_given++ :: else fi;
#endif
  assert(!slot_of(peer(r), e).front && !slot_of(peer(r), e).data);                  /* emptied */
  assert(!slot_of(peer(r), e).front_due && !slot_of(peer(r), e).data_due);          /* emptied */
  slot_of(peer(r), e).front_due = e;
  slot_of(peer(r), e).data_due = e;
  slot_of(peer(r), e).posts_due = rank[r].rides_given
}

#define is_ready(r, e, direct) (has_credit(r, e) && (!direct || known(r) >= e))
inline start(r, e, direct) {
  assert(rank[r].record && rank[peer(r)].opened > 0);                               /* found */
  if
  :: direct -> slot_of(peer(r), e).arrived_due = e
  :: else -> start_message(r, e)
  fi;
  rank[r].sent = e
}

/* The first look, and then one whenever something has changed. Its own posts wait for no more than the first. */
inline complete(r, e, direct, s) {
  atomic {
    e = rank[r].sent + 1;
    if :: direct = false :: direct = true fi;
    look_at_fronts(r, s);
#ifdef RIDES_EARLY /* as if a message took a post along before it can start */
    if
    :: rank[r].held && !direct -> rank[r].held = false; rank[r].held_for_long = false; rank[r].rides_given++
    :: else
    fi;
#endif
    if
    :: is_ready(r, e, direct) -> start(r, e, direct)
    :: else
    fi;
    send_held(r)
  };
  do
  :: atomic { rank[r].sent < e && is_ready(r, e, direct) -> start(r, e, direct); break }
  :: atomic { rank[r].sent < e && ridden_in_fronts(r) -> look_at_fronts(r, s) }
  :: atomic { rank[r].sent == e -> break }
  od;
  direct = false
}
/* ---- wait ---- */

inline wait(r, e) {
  atomic { e = rank[r].closed + 1; send_held(r) };
  atomic {
    (slot_of(r, e).front && slot_of(r, e).data) || slot_of(r, e).arrived == e;
    if
    :: slot_of(r, e).arrived == e -> slot_of(r, e).arrived = 0
    :: else ->
      assert(slot_of(r, e).front == e && slot_of(r, e).data == e);                  /* whole */
      note_ridden(r, slot_of(r, e).posts);
#ifdef LATE_WIPE /* as if the post behind the wait did not come after the wipe */
      slot_of(r, e).wipe_due = true;
#else
      slot_of(r, e).front = 0; slot_of(r, e).data = 0; slot_of(r, e).posts = 0;
#endif
    fi;
    rank[r].closed = e
  }
}

/* ---- the network, and LatePosts ---- */

#define S(t) rank[t].slot[s]
inline bring_front(t) {
  S(t).front = S(t).front_due; S(t).posts = S(t).posts_due;
  S(t).front_due = 0; S(t).posts_due = 0; s = 0
}
inline bring_data(t) { S(t).data = S(t).data_due; S(t).data_due = 0; s = 0 }
inline bring_arrived(t) {
  assert(rank[t].opened >= S(t).arrived_due && rank[t].closed < S(t).arrived_due);  /* exposed */
  S(t).arrived = S(t).arrived_due; S(t).arrived_due = 0; s = 0
}

proctype nic(byte r) { /* from r to its peer */
  byte s;
end:
  do
  :: atomic { rank[r].posts_due ->
      rank[r].posts_due--; rank[peer(r)].posted++;
      assert(known(peer(r)) <= rank[r].opened) }                                    /* counted */
#ifdef SIGNAL_FIRST
  :: atomic { rank[r].first_due == WRITE ->
      rank[r].first_due = SIGNAL; rank[peer(r)].told = true; rank[peer(r)].posted++ }
  :: atomic { rank[r].first_due == SIGNAL -> rank[r].first_due = 0; rank[peer(r)].record = true }
#else
  :: atomic { rank[r].first_due == WRITE -> rank[r].first_due = SIGNAL; rank[peer(r)].record = true }
  :: atomic { rank[r].first_due == SIGNAL ->
      rank[r].first_due = 0; rank[peer(r)].told = true; rank[peer(r)].posted++ }
#endif
  :: atomic { slot_of(peer(r), 0).front_due -> s = 0; bring_front(peer(r)) }
  :: atomic { slot_of(peer(r), 0).data_due -> s = 0; bring_data(peer(r)) }
  :: atomic { slot_of(peer(r), 0).arrived_due -> s = 0; bring_arrived(peer(r)) }
#if D == 2
  :: atomic { slot_of(peer(r), 1).front_due -> s = 1; bring_front(peer(r)) }
  :: atomic { slot_of(peer(r), 1).data_due -> s = 1; bring_data(peer(r)) }
  :: atomic { slot_of(peer(r), 1).arrived_due -> s = 1; bring_arrived(peer(r)) }
#endif
#ifdef LATE_WIPE
  :: atomic { slot_of(peer(r), 0).wipe_due ->
      slot_of(peer(r), 0).wipe_due = false; slot_of(peer(r), 0).front = 0; slot_of(peer(r), 0).data = 0 }
#endif
  od
}
proctype late_posts(byte r) {
end:
  do
  :: atomic { late_posts_look(r) ->
      if :: rank[r].held_for_long -> send_held(r) :: else -> rank[r].held_for_long = true fi }
  od
}

/* ---- the streams ---- */

byte running; /* of the streams */

proctype stream(byte r) {
  byte n, e, s;
  bool direct;
  for (n : 1 .. EPOCHS) {
#if PROGRAM == HALO
    post(r); complete(r, e, direct, s); wait(r, e)
#elif PROGRAM == MIXED || PROGRAM == MESSAGES
    if
    :: r == 0 ->
      post(r);
#if PROGRAM == MESSAGES
      rank[peer(r)].sent >= n;
#endif
      complete(r, e, direct, s); wait(r, e)
    :: else -> complete(r, e, direct, s); post(r); wait(r, e)
    fi
#elif PROGRAM == PINGPONG
    if
    :: r == 0 -> complete(r, e, direct, s); post(r); wait(r, e)
    :: else -> post(r); wait(r, e); complete(r, e, direct, s)
    fi
#elif PROGRAM == STREAMS
    post(r); wait(r, e)
#endif
  };
  running--
}

#if PROGRAM == STREAMS
proctype access_stream(byte r) {
  byte n, e, s;
  bool direct;
  for (n : 1 .. EPOCHS) { complete(r, e, direct, s) };
  running--
}
#endif

init {
  byte r, s;
  atomic {
    for (r : 0 .. 1) {
      run stream(r);
      running++;
#if PROGRAM == STREAMS
      run access_stream(r);
      running++;
#endif
      run nic(r);
      run late_posts(r)
    }
  };
  running == 0 && !rank[0].held && !rank[1].held && !rank[0].posts_due && !rank[1].posts_due &&
    !rank[0].first_due && !rank[1].first_due;
  assert(known(0) == rank[1].opened && known(1) == rank[0].opened)                  /* counted */
}
