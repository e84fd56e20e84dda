/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * The on-node epoch protocol (src/wire/protocol.h, program.h) for the model checker spin. check.sh runs it.
 *
 * Each rank has one stream, a process that launches kernels and waits for each to end. A kernel serves every
 * peer independently, so for each ordered pair o -> t two processes stand for the parts of the kernels:
 *     origin_side(o, t)   complete kernel of o:  may_send, send, write_header, advance
 *     target_side(o, t)   post kernel of t:      announce
 *                         wait kernel of t:      has_arrived, receive, scrub, advance
 *
 * Data are epoch numbers: what epoch e sends is the value e, and a line keeps beside its flag, which repeats
 * after K epochs, the true epoch in `truth`, which only assertions look at.
 *
 * Memory order. Stores into the slot and into the window are "on their way" when the complete kernel ends, and
 * become visible later, in any order, except that the header, a release store, comes after direct data, and
 * that the pair's epochs do not mix: nobody looks at the slot of the next one before, and its direct data wait
 * for a post. The counters are visible at once: they only grow, and who polls them only ever waits for more,
 * so a counter that is seen late is the same as a poll made late. What the kernels of t before the post load and
 * store comes before the post, the wipe of scrub too, and what o stores after a poll comes after. A half
 * line that carries its own flag counts as a line; the target's staging memory counts as its window.
 *
 * FREE: a post is not a kernel but a point of the stream, and the next kernel of the stream carries it. A service of t
 * (src/epoch/free_posts.h) may tell o of it as soon as the point has passed; what it stores is under way for any time.
 *
 * PACKED data lie in places of their own, DP of them, whatever D is, and carry the true epoch, which never repeats
 * (src/wire/pack.h). A whole pack counts as one store.
 *
 * What is checked, in all interleavings:
 *   overwrite   a slot is written only after its last epoch was emptied; so an origin is at most D ahead
 *   exposed     the window changes only in the exposure epoch that the data belong to
 *   fresh       a line that is accepted carries the data of this epoch
 *   whole       at the end of the wait kernel the window holds the data of this epoch, all of it, nothing else
 *   deadlock    every stream gets to its end (spin: no invalid end state). There is no cycle of states (a
 *               failing poll is a guard that blocks, all else counts up), so no livelock either.
 *
 * Found with it: it takes K / gcd(K, D) > ROUNDS * L, no less, for a line may lie in its slot, unused, for
 * ROUNDS * L rounds of the ring before scrub wipes it. In the library K = 2^32 - 1 is odd and D a power of
 * two, so K > ROUNDS * L will do.
 */

/* Parameters; check.sh sets them. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef EPOCHS
#define EPOCHS 4 /* of each stream */
#endif
#ifndef D
#define D 2 /* slots of a ring */
#endif
#ifndef L
#define L 1 /* lines of a slot behind its header, 0 .. 2 */
#endif
#ifndef ROUNDS
#define ROUNDS 1 /* rounds of the ring to each line that is scrubbed: rounds_per_scrub */
#endif
#ifndef K
#define K (D + 1) /* flags repeat after K epochs */
#endif

/* What a rank enqueues, EPOCHS times: */
#define HALO 1     /* with every other rank: post; complete; wait */
#define FUSED 2    /* with every other rank: post; complete_wait */
#define RING 3     /* post to rank r - 1; complete to rank r + 1; wait; around the ring */
#define PIPELINE 4 /* from rank r - 1: post; wait. To rank r + 1: complete. With 2 ranks: producer, consumer */
#define PINGPONG 5 /* rank 0: complete; post; wait. Rank 1: post; wait; complete */
#define AWAIT 6    /* as HALO, but between its post and its complete rank 0 waits for the complete of rank 1 */
#ifndef PROGRAM
#define PROGRAM HALO
#endif

/* How data may travel. Each epoch of each pair chooses anew: one way, both, or no data at all. */
#define EAGER 1
#define DIRECT 2 /* alone: every epoch is direct */
#define PACKED 4 /* besides; not together with direct data */
#ifndef WAYS
#define WAYS (EAGER | DIRECT)
#endif
#ifndef DP
#define DP (D < 2 -> D : 2) /* epochs whose packs there is room for: Ring::pack_depth() */
#endif
#define MOST_LINES ((WAYS & EAGER) -> L : 0)

/* Negative controls: one rule of the protocol left out or wrong. Each must lead to a counterexample. */
#if defined(NO_CREDIT)
#define has_credit true
#elif defined(MEAN_CREDIT)
#define has_credit (P.posted + D > e + 1)
#elif defined(GENEROUS_CREDIT)
#define has_credit (P.posted + D >= e)
#else
#define has_credit (P.posted + D > e)
#endif
#ifdef GENEROUS_PACKS
#define has_room_for_packs (P.posted + D > e)
#else
#define has_room_for_packs (P.posted + DP > e)
#endif
#ifdef NO_POST
#define is_exposed true
#else
#define is_exposed (P.posted >= e)
#endif
#ifdef RELAXED_HEADER
#define header_may_pass true
#else
#define header_may_pass (!on_its_way(DATA)) /* a release store */
#endif

#define flag_of(e) ((e) % K + 1) /* 0: never written, or scrubbed */

/* What an epoch may store: line 0, the header; lines 1 .. L; direct data; a pack. */
#define HEADER 0
#define DATA (L + 1)
#define PACK (L + 2)

typedef Slot {        /* in the memory of t */
  byte flag[L + 1];
  byte truth[L + 1];  /* for assertions: the epoch that wrote the line */
  byte lines;         /* in the header: so many lines follow */
  bool packed;        /* in the header: the data are in a pack */
  bool direct         /* for assertions: data went straight into the window */
};

typedef Pair {
  byte posted;        /* in the memory of o, written by t */
  byte sent;          /* o alone */
  byte opened;        /* t alone */
  byte closed;        /* t alone */
  Slot slot[D];
  byte pack[2];       /* by epoch mod DP: the epoch that wrote it */
  byte window[L + 3]  /* place i is for line i, DATA for direct data, PACK for packed; 0: as the user left it */
};

Pair pair[RANKS * RANKS];
#define P pair[o * RANKS + t]
#define S P.slot[e % D]

/* Kernels launched so far on the stream of a rank, and how many peers the running one has still to serve. */
byte posts[RANKS], completes[RANKS], waits[RANKS], busy[RANKS];

#if PROGRAM == PIPELINE
#define is_pair(o, t) (t == o + 1)
#define peers(r) 1
#elif PROGRAM == RING
#define is_pair(o, t) (t == (o + 1) % RANKS)
#define peers(r) 1
#else
#define is_pair(o, t) (o != t)
#define peers(r) (RANKS - 1)
#endif

#ifdef FREE
byte points[RANKS], held[RANKS]; /* of the stream's posts so far; posts that no kernel carries yet */
#define posted_to(o, t) points[t]
#else
#define posted_to(o, t) pair[o * RANKS + t].opened
#endif

inline store_line(i) {
  assert(P.closed + D >= e);                      /* overwrite */
  S.flag[i] = flag_of(e);
  S.truth[i] = e
}

inline store_pack() {
  assert(P.closed + DP >= e);                     /* overwrite */
  P.pack[e % DP] = e
}

inline store_window(i) {
  assert(posted_to(o, t) == e && P.closed == e - 1);     /* exposed */
  P.window[i] = e
}

/* ---- complete kernel of o, the part for target t ---- */

#define on_its_way(i) ((stores >> (i)) & 1)
#define arrived(i) stores = stores & ~(1 << (i))

#ifdef FREE
#ifdef RAISE_EARLY /* as if the service did not look at the point */
#define passed(t) (points[t] < EPOCHS -> points[t] + 1 : points[t])
#else
#define passed(t) points[t]
#endif
proctype service(byte o, t) {
  byte k;
end:
  do
#ifndef NO_RAISE
  :: passed(t) > k ->
    k = passed(t);
    if
    :: P.opened >= k /* its carrier has run */
    :: true ->
#ifdef RAISE_STORES /* and never mind what is there */
      P.posted = k
#else
      P.posted = (P.posted > k -> P.posted : k)
#endif
    fi
#else
  :: false
#endif
  od
}
#endif

proctype origin_side(byte o, t) {
  byte e, lines, stores;
  bool direct, packed;
end:
  do
  :: atomic {
      completes[o] > P.sent ->
      e = P.sent + 1;
      select(lines : 0 .. MOST_LINES);
      if :: WAYS != DIRECT -> direct = false :: WAYS & DIRECT -> direct = true fi;
      if :: packed = false :: (WAYS & PACKED) && !direct -> packed = true; lines = 0 fi;
      (packed -> has_room_for_packs : has_credit) && (!direct || is_exposed); /* may_send */
      /* send, write_header, advance: the kernel ends, but its stores are on their way */
      stores = ((1 << (lines + 1)) - 1) | (direct << DATA) | (packed << PACK);
      P.sent = e;
      busy[o]--
    }
    do /* in any order */
    :: on_its_way(HEADER) && header_may_pass ->
      d_step { store_line(HEADER); S.lines = lines; S.packed = packed; S.direct = direct; arrived(HEADER) }
#if L >= 1
    :: on_its_way(1) -> d_step { store_line(1); arrived(1) }
#endif
#if L >= 2
    :: on_its_way(2) -> d_step { store_line(2); arrived(2) }
#endif
    :: on_its_way(DATA) -> d_step { store_window(DATA); arrived(DATA) }
    :: on_its_way(PACK) -> d_step { store_pack(); arrived(PACK) }
    :: !stores -> break
    od
  od
}

/* ---- post and wait kernels of t, the part for origin o ---- */

/* Every so many rounds of the ring wipe one line that this epoch did not use, each in turn. 0: none now. */
#if L == 0 || defined(NO_SCRUB)
#define line_to_scrub 0
#else
#define turn (1 + (e / D / ROUNDS) % L)
#define line_to_scrub ((e / D) % ROUNDS == 0 && turn > S.lines -> turn : 0)
#endif
inline scrub() { S.flag[wipe] = (wipe -> 0 : S.flag[0]); wipe = 0 }

inline check_window() {
  for (i : 1 .. PACK) {
    assert(P.window[i] ==
           (((i == DATA) -> S.direct : ((i == PACK) -> S.packed : i <= S.lines)) -> e : 0)); /* whole */
    P.window[i] = 0
  }
}

/* What only assertions look at: cleared when done with, for fewer states. */
inline forget_slot() {
  for (i : 0 .. L) { S.truth[i] = 0 }
  S.lines = 0; S.packed = 0; S.direct = 0
}

proctype target_side(byte o, t) {
  byte e, i, wipe;
end:
  do
  :: atomic { /* announce */
      posts[t] > P.opened ->
      P.opened++; P.posted = (P.posted > P.opened -> P.posted : P.opened); busy[t]--
    }
  :: atomic {
      waits[t] > P.closed ->
      e = P.closed + 1;
      for (i : HEADER .. L) { /* threads of a GPU look at lines already while they wait for the header */
        assert(S.flag[i] != flag_of(e) || S.truth[i] == e)                          /* fresh */
      };
      S.flag[HEADER] == flag_of(e); /* has_arrived */
      assert(S.truth[HEADER] == e);                                                 /* fresh */
      i = 1
    }
#ifdef EARLY_POST /* as if the post behind this kernel did not wait for its end */
    P.posted = e + 1;
#endif
    do /* receive; threads read lines in any order, but each waits for its line and for nothing else */
    :: i <= S.lines ->
      d_step {
        S.flag[i] == flag_of(e);
        assert(S.truth[i] == e);                                                    /* fresh */
        store_window(i);
        i++
      }
    :: i > S.lines && S.packed && P.window[PACK] == 0 ->
      d_step { P.pack[e % DP] == e; store_window(PACK) }
    :: i > S.lines && !(S.packed && P.window[PACK] == 0) ->
      atomic {
        wipe = line_to_scrub;
#ifndef LATE_SCRUB
        scrub();
#endif
        check_window(); forget_slot();
        P.closed = e; busy[t]-- /* advance: the kernel ends */
      };
#ifdef LATE_SCRUB /* as if the post behind this kernel did not wait for the wipe */
      P.posted = e + 1;
      scrub();
#endif
      break
    od
  od
}

/* ---- the stream of a rank: a kernel starts when the one before has ended ---- */

#ifdef FREE
#define carried (held[r] -> peers(r) : 0)
inline carry() { posts[r] = posts[r] + held[r]; held[r] = 0 }
inline post() { atomic { !busy[r]; points[r]++; held[r] = 1 } }
#else
#define carried 0
inline carry() { skip }
inline post() { atomic { !busy[r]; busy[r] = peers(r); posts[r]++ } }
#endif
inline complete() { atomic { !busy[r]; busy[r] = peers(r) + carried; carry(); completes[r]++ } }
inline wait() { atomic { !busy[r]; busy[r] = peers(r) + carried; carry(); waits[r]++ } }
inline complete_wait() { atomic { !busy[r]; busy[r] = 2 * peers(r) + carried; carry(); completes[r]++; waits[r]++ } }

proctype stream(byte r) {
  byte n;
  for (n : 1 .. EPOCHS) {
#if PROGRAM == HALO || PROGRAM == RING
    post(); complete(); wait()
#elif PROGRAM == AWAIT
    post();
    if :: r == 0 -> !busy[r]; pair[1 * RANKS + 0].sent >= n :: else fi;
    complete(); wait()
#elif PROGRAM == FUSED
    post(); complete_wait()
#elif PROGRAM == PIPELINE
    if :: r > 0 -> post(); wait() :: else fi;
    if :: r < RANKS - 1 -> complete() :: else fi
#elif PROGRAM == PINGPONG
    if :: r == 0 -> complete(); post(); wait() :: else -> post(); wait(); complete() fi
#endif
  };
  !busy[r]
}

init {
  byte o, t;
  atomic {
    for (o : 0 .. RANKS - 1) {
      run stream(o);
      for (t : 0 .. RANKS - 1) {
        if :: is_pair(o, t) -> run origin_side(o, t); run target_side(o, t)
#ifdef FREE
          ; run service(o, t)
#endif
        :: else fi
      }
    }
  }
}
