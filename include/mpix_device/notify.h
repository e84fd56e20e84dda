// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "channel_param.h"
#include "layout.h"
#include "memory.h"

/// The words of a channel (mpix_channel.h), and the steps of its kernels.
///
/// A **lane** is one poster at a time, and what it is replied. A **ring** holds tasks: one ring for each lane, or one,
/// the queue, for all. Tasks of a ring are numbered from 1, and number n lies in place n mod depth: its head in one
/// line (memory.h), and each of its words in a line of its own. The flag of a line is tag_of(n), so a head, or a word,
/// that carries it was written for task n: no order between lines is needed, and nothing follows the words. Replies
/// that a lane waits for are numbered, too, and lie in lines likewise.
///
/// | word           | lies in | written by                      | read by             | order |
/// |----------------|---------|---------------------------------|---------------------|-------|
/// | tickets        | device  | posters: fetch and add          | the same; disarm    | none: it gives out numbers. Of a ring for one lane: `posted`, the lane's own |
/// | head, word[]   | pinned  | the poster that was given n, when taken ≥ n - depth | the service, by tag | a post fences once before its lines (behind a block's barrier: for all of the block), and so publishes what came before; an event fences nothing |
/// | taken          | pinned  | the service, when it has copied the task | posters    | release: its loads come before a poster's next stores, which stand behind a branch |
/// | taken_seen     | device  | posters                         | the same            | as `taken`: it was at least that |
/// | reply          | pinned  | whoever replies, once           | the lane, by tag    | release / acquire: publishes what was received |
/// | read, read_up_to | device | the lane: n, when it has read reply n | the same     | program order. A task whose reply has the place of one that was not read is not posted (MPIX_DEV_FULL): so a line is written when nobody reads it any more |
/// | up             | pinned  | kernels: grows                  | the service         | release / acquire |
/// | down           | pinned; device with mpix_words=device | the service: grows; there a stream does, in the order of the calls | kernels | release / acquire |
/// | last           | device  | kernels: what they set `up` to  | the same            | program order |
/// | watched.seen   | device  | the block that looks for all: what it has seen in `down` | others that wait for the flag | release / acquire |
/// | watched.looker | device  | 1: a block that begins to look for all; 0: the same, at its end | the same | compare and swap, acquire; release |
/// | released       | pinned  | the host                        | those that wait, now and then | relaxed |
/// | generation     | device  | the host, when the channel is freed | all calls       | relaxed: to be caught, not to be safe |
/// | notes          | pinned  | threads that wait for long: what, its number, the block | the watch, waiting threads | relaxed; 0: nobody |
///
/// Tags have 31 bits. A head is written for every task, and a reply for every number, so the one before in its place
/// is depth older. A word's line may be left out for long; the service clears the words of each place once in 2³⁰
/// tasks, before it publishes `taken`, so that none is ever 2³¹ older.
///
/// Flow control: the service publishes `taken` when it leaves a ring, so also when it has found nothing more: a poster
/// that waits for room waits for the service alone. tests/model/channel.pml is this table for a model checker.
namespace mpix {
namespace dev {

constexpr std::uint32_t task_words = 5;
constexpr std::uint32_t most_kinds = 1u << 16, most_lanes = 1u << 16, most_depth = 4096;
/// Places of all rings.
constexpr std::uint64_t most_places = 1u << 22;

struct alignas(64) ChannelState {
  std::uint64_t generation;
  std::uint64_t tickets, taken_seen;  ///< of the queue
  std::uint64_t refused;              ///< flags
  std::uint64_t unused[4];
};

/// What a poster needs lies together: a look into memory of the device takes a tenth of a round trip.
struct alignas(64) ChannelLane {
  std::uint64_t generation;
  std::uint64_t posted, taken_seen;  ///< of its ring
  std::uint64_t wanted;              ///< replies
  std::uint64_t read_up_to;          ///< replies that have all been read
  std::uint64_t read_ahead;          ///< of those behind, how many
  std::uint64_t full_waits;
  std::uint64_t unused;
};

/// The lane's words, all in one go.
struct LaneWords {
  std::uint64_t generation, posted, taken_seen, wanted, read_up_to, read_ahead;
};

struct ChannelHost {
  std::uint32_t service_rings, service_sleepers;  ///< host back end: a bell for what kernels do
  std::uint64_t unused_too[15];
  std::uint32_t rings, sleepers;  ///< likewise, for what the host does
  std::uint64_t unused[15];
  alignas(64) std::uint64_t released;
  alignas(64) std::uint64_t notes[8];  ///< by lane, and then by flag: more of them behind

  MPIX_FN static std::uint64_t bytes(std::uint64_t lanes, std::uint64_t flags) {
    return sizeof(ChannelHost) + (lanes + flags) * sizeof(std::uint64_t);
  }
};

/// What the library does for threads that are blocks.
struct ChannelHooks {
  /// After a look in vain. *patience is null before the first. Not 0: the next one will sleep.
  int (*pause)(ChannelHost* host, void** patience);
  void (*end)(void* patience);
  /// There is something for the service.
  void (*post)(ChannelHost* host);
  /// There is something for other threads that are blocks.
  void (*wake)(ChannelHost* host);
  /// Which of them the thread is; BlockNote::no_block: none that is known.
  std::uint32_t (*block)();
};

MPIX_FN std::uint32_t task_tag(std::uint64_t number) { return static_cast<std::uint32_t>(number) | 0x80000000u; }

struct TaskHead {
  std::uint32_t lane, kind, words;
  std::uint64_t reply;  ///< 1: wanted

  MPIX_FN std::uint64_t packed() const {
    return std::uint64_t{lane} | std::uint64_t{kind} << 16 | std::uint64_t{words} << 32 | reply << 40;
  }
  MPIX_FN static TaskHead unpacked(std::uint64_t data) {
    return TaskHead{static_cast<std::uint32_t>(data & 0xffff), static_cast<std::uint32_t>(data >> 16 & 0xffff),
                    static_cast<std::uint32_t>(data >> 32 & 0xff), data >> 40 & 1};
  }
};

/// Where a reply is awaited. A ticket also says of which channel it is, as far as 8 bits do.
struct Ticket {
  std::uint32_t lane;
  std::uint64_t number;
  std::uint32_t channel;

  MPIX_FN std::uint64_t packed() const {
    return std::uint64_t{channel & 0xff} << 56 | std::uint64_t{lane} << 40 | (number & 0xffffffffff);
  }
};
/// `near`: some number of that lane, less than 2³⁹ from the ticket's.
MPIX_FN Ticket unpacked_ticket(std::uint64_t ticket, std::uint64_t near) {
  const std::uint64_t low = ticket & 0xffffffffff, ahead = (low - near) & 0xffffffffff;
  return Ticket{static_cast<std::uint32_t>(ticket >> 40 & 0xffff),
                ahead < std::uint64_t{1} << 39 ? near + ahead : near - ((near - low) & 0xffffffffff),
                static_cast<std::uint32_t>(ticket >> 56)};
}
MPIX_FN std::uint32_t lane_of_ticket(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket >> 40 & 0xffff); }

/// A GPU serves looks at the host's memory one behind the other where they are for one sector of 32 bytes, and holds up
/// all else meanwhile: beside 27 blocks that waited for words in a row a kernel that moves memory took 2.3 times as
/// long (H200; words 16 bytes apart 1.17, from 32 on 1.01). So words that kernels wait for are a cache line apart,
/// where those that the host reads may lie in a row.
constexpr std::uint32_t sector = 32, words_apart = 8;

/// A number of what is awaited, and the block that waits, in 62 bits: where one of them is too large for that the
/// number alone. Of several blocks that wait for the same number the first has the least note.
struct BlockNote {
  static constexpr std::uint32_t no_block = ~0u;
  static constexpr std::uint64_t with_block = std::uint64_t{1} << 61;

  std::uint64_t number;
  std::uint32_t block;

  MPIX_FN std::uint64_t packed() const {
    const bool fits = number < std::uint64_t{1} << 40 && block < 1u << 21;
    return fits ? with_block | number << 21 | block : number & (with_block - 1);
  }
  MPIX_FN static BlockNote unpacked(std::uint64_t note) {
    if ((note & with_block) == 0) return BlockNote{note, no_block};
    return BlockNote{note >> 21 & 0xffffffffff, static_cast<std::uint32_t>(note & 0x1fffff)};
  }
};

enum class ChannelWait : std::uint64_t { nothing = 0, room, reply, flag };
MPIX_FN std::uint64_t channel_note(ChannelWait what, std::uint64_t number) {
  return number << 2 | static_cast<std::uint64_t>(what);
}

enum class Post : std::uint32_t { ok, full, released, argument, active };

/// Words of one poster at a time, which the host may look at: on a GPU they may lie in its caches.
MPIX_FN std::uint64_t own_word(const std::uint64_t* p) {
#if MPIX_ON_DEVICE
  return *p;
#else
  return load_relaxed(p);
#endif
}
MPIX_FN void set_own_word(std::uint64_t* p, std::uint64_t v) {
#if MPIX_ON_DEVICE
  *p = v;
#else
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
#endif
}

MPIX_FN std::uint64_t place_in(const MPIX_Dev_channel& c, std::uint64_t number) { return number & (c.depth - 1); }
MPIX_FN Line* head_of(const MPIX_Dev_channel& c, std::uint64_t ring, std::uint64_t number) {
  return c.heads + ring * c.ring_lines + place_in(c, number);
}
MPIX_FN Line* words_of(const MPIX_Dev_channel& c, std::uint64_t ring, std::uint64_t number) {
  return c.words + (ring * c.depth + place_in(c, number)) * task_words;
}
MPIX_FN Line* reply_of(const MPIX_Dev_channel& c, std::uint64_t lane, std::uint64_t number) {
  return c.replies + lane * c.ring_lines + place_in(c, number);
}
MPIX_FN std::uint64_t* read_of(const MPIX_Dev_channel& c, std::uint64_t lane, std::uint64_t number) {
  return c.read + lane * c.depth + place_in(c, number);
}
MPIX_FN std::uint64_t* taken_of(const MPIX_Dev_channel& c, std::uint64_t ring) { return c.taken + ring * words_apart; }
MPIX_FN std::uint64_t* down_of(const MPIX_Dev_channel& c, std::uint64_t flag) { return c.down + flag * words_apart; }

MPIX_FN LaneWords words_of_lane(const ChannelLane& lane) {
#if defined(__CUDA_ARCH__)
  LaneWords all;
  // One statement: else the compiler waits for the first, whose channel may be gone, before it loads the others.
  asm volatile(
      "{.reg .b64 a,b,c,d,e,f;"
      "ld.global.v2.u64 {a,b},[%6];ld.global.v2.u64 {c,d},[%6+16];ld.global.v2.u64 {e,f},[%6+32];"
      "mov.b64 %0,a;mov.b64 %1,b;mov.b64 %2,c;mov.b64 %3,d;mov.b64 %4,e;mov.b64 %5,f;}"
      : "=l"(all.generation), "=l"(all.posted), "=l"(all.taken_seen), "=l"(all.wanted), "=l"(all.read_up_to),
        "=l"(all.read_ahead)
      : "l"(&lane)
      : "memory");
  return all;
#elif MPIX_ON_DEVICE
  const auto* const pairs = reinterpret_cast<const ulonglong2*>(&lane);
  const ulonglong2 a = pairs[0], b = pairs[1], c = pairs[2];
  return LaneWords{a.x, a.y, b.x, b.y, c.x, c.y};
#else
  return LaneWords{own_word(&lane.generation), own_word(&lane.posted),     own_word(&lane.taken_seen),
                   own_word(&lane.wanted),     own_word(&lane.read_up_to), own_word(&lane.read_ahead)};
#endif
}

// ---- Kernels -----------------------------------------------------------------------------------------

MPIX_DEV_FN bool is_stale(const MPIX_Dev_channel& c) {
  return c.abi != MPIX_DEV_CHANNEL_ABI || own_word(&c.state->generation) != c.generation;
}

/// A channel that is no more, or broken. Past the caches.
MPIX_DEV_FN bool is_released(const MPIX_Dev_channel& c) {
  const std::uint64_t generation = load_relaxed(&c.state->generation), released = load_relaxed(&c.host->released);
  return generation != c.generation || released != 0;
}

MPIX_DEV_FN void pause_on_device(std::uint32_t looks) {
#if defined(__HIP_DEVICE_COMPILE__)
  if (looks > 64) __builtin_amdgcn_s_sleep(1);
#elif defined(__CUDA_ARCH__)
  if (looks > 64) __nanosleep(looks > 4096 ? 200 : 20);
#else
  (void)looks;
#endif
}

MPIX_DEV_FN std::uint32_t block_here(const ChannelHooks* hooks) {
#if defined(__CUDA_ARCH__)
  (void)hooks;
  std::uint32_t block;
  // Read where it is needed: else a register has it while the kernel waits.
  asm volatile(
      "{.reg .b32 a,b;mov.b32 a,%%ctaid.z;mov.b32 b,%%nctaid.y;mul.lo.u32 a,a,b;mov.b32 b,%%ctaid.y;add.u32 a,a,b;"
      "mov.b32 b,%%nctaid.x;mul.lo.u32 a,a,b;mov.b32 b,%%ctaid.x;add.u32 %0,a,b;}"
      : "=r"(block));
  return block;
#elif MPIX_ON_DEVICE
  (void)hooks;
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
#else
  return hooks->block();
#endif
}

/// A thread that waits: where it says so, when it takes long, and what the host does for it meanwhile.
struct Waiter {
  ChannelHost* host;
  const ChannelHooks* hooks;  ///< host back end
  std::uint64_t* note_at;
};

/// Where several wait for one word, the least note stays: the watch takes one that changes for a new wait, and what is
/// awaited first is missing first. Returns the note where it stands there, else 0.
MPIX_DEV_FN std::uint64_t leave_note(std::uint64_t* at, std::uint64_t note) {
  const std::uint64_t other = load_relaxed(at);
  if (other != 0 && other <= note) return other == note ? note : 0;
  store_after_loads(at, note);
  return note;
}

/// One thread waits until `done`; false: nobody waits any more, which is looked at now and then. It leaves a note when
/// it takes long, which no other wait for that word has: `note()` says what it is by then.
template <class Note, class Released, class Done>
MPIX_DEV_FN bool wait_as(const Waiter& waiter, Note note, Released released, Done done) {
  if (done()) return true;
  bool well = true, is_long = false;
  std::uint64_t noted = 0;
#if !MPIX_ON_DEVICE
  void* patience = nullptr;
#endif
  for (std::uint32_t looks = 1;; ++looks) {
#if MPIX_ON_DEVICE
    is_long = looks % 4096 == 0;
    if (is_long) well = !released();
#else
    well = !released();  // each time: before it sleeps, lest it miss the ring
#endif
    if (!well) break;
    if (is_long)
      if (const std::uint64_t left = leave_note(waiter.note_at, note())) noted = left;  // what it left last is to go
#if MPIX_ON_DEVICE
    pause_on_device(looks);
#else
    is_long = waiter.hooks->pause(waiter.host, &patience) != 0 || looks % 16 == 0;
#endif
    if (done()) break;
  }
#if !MPIX_ON_DEVICE
  if (patience) waiter.hooks->end(patience);
#endif
  if (noted != 0 && load_relaxed(waiter.note_at) == noted) store_after_loads(waiter.note_at, 0);
  return well;
}

template <class Note, class Done>
MPIX_DEV_FN bool wait_in_channel(const MPIX_Dev_channel& c, std::uint64_t noted_at, Note note, Done done) {
  return wait_as(
      Waiter{c.host, c.hooks, c.host->notes + noted_at}, note, [&] { return is_released(c); }, done);
}
MPIX_DEV_FN std::uint64_t note_of_block(const MPIX_Dev_channel& c, ChannelWait what, std::uint64_t number) {
  return channel_note(what, BlockNote{number, block_here(c.hooks)}.packed());
}

MPIX_DEV_FN bool reaches(const std::uint64_t* word, std::uint64_t value, std::uint64_t* seen) {
  *seen = load_before_stores(word);
  return *seen >= value;
}

/// Whether the place of the reply to come is free: the one that had it was read.
MPIX_DEV_FN bool has_place_for_reply(const MPIX_Dev_channel& c, const LaneWords& own, std::uint32_t lane) {
  const std::uint64_t reply = own.wanted + 1;
  return reply - own.read_up_to <= c.depth || own_word(read_of(c, lane, reply)) + c.depth == reply;
}

/// One thread. `ticket`: null: no reply is wanted. `publishes`: what came before.
MPIX_DEV_FN Post post_task(const MPIX_Dev_channel& c, std::uint32_t lane, std::uint32_t kind,
                           const std::uint64_t* words, std::uint32_t count, bool publishes, std::uint64_t* ticket) {
  if (c.abi != MPIX_DEV_CHANNEL_ABI) return Post::released;
  if (lane >= c.lanes || kind >= most_kinds || count > task_words || (count > 0 && !words)) return Post::argument;
  ChannelLane& own = c.lane[lane];
  const LaneWords seen_of_lane = words_of_lane(own);
  if (publishes) fence_stores();
  if (seen_of_lane.generation != c.generation) return Post::released;
  const std::uint64_t reply = seen_of_lane.wanted + 1;
  if (ticket && !has_place_for_reply(c, seen_of_lane, lane)) return Post::full;
  const bool is_queue = c.rings == 1;
  const std::uint32_t ring = is_queue ? 0 : lane;
  std::uint64_t number = seen_of_lane.posted + 1, seen = seen_of_lane.taken_seen;
  if (is_queue) {
    number = fetch_add_on_device(&c.state->tickets, 1) + 1;
    seen = load_before_stores(&c.state->taken_seen);
  } else {
    set_own_word(&own.posted, number);
  }
  if (number - seen > c.depth) {
    const std::uint64_t* const taken = taken_of(c, ring);
    const std::uint64_t needed = number - c.depth;
    if (!reaches(taken, needed, &seen)) {
      set_own_word(&own.full_waits, own_word(&own.full_waits) + 1);
      if (!wait_in_channel(
              c, lane, [&] { return note_of_block(c, ChannelWait::room, number); },
              [&] { return reaches(taken, needed, &seen); }))
        return Post::released;
    }
    if (is_queue)
      store_after_loads(&c.state->taken_seen, seen);  // another's may be older: it is a hint
    else
      set_own_word(&own.taken_seen, seen);
  }
  const std::uint32_t tag = task_tag(number);
  Line* const lines = words_of(c, ring, number);
  for (std::uint32_t i = 0; i < count; ++i) write_line(lines + i, words[i], tag);
  write_line(head_of(c, ring, number), TaskHead{lane, kind, count, ticket ? std::uint64_t{1} : 0}.packed(), tag);
  if (ticket) {
    set_own_word(&own.wanted, reply);
    *ticket = Ticket{lane, reply, static_cast<std::uint32_t>(c.generation)}.packed();
  }
#if !MPIX_ON_DEVICE
  c.hooks->post(c.host);
#endif
  return Post::ok;
}

MPIX_DEV_FN Post check_ticket(const MPIX_Dev_channel& c, std::uint64_t packed, const LaneWords& own, Ticket* ticket) {
  if (own.generation != c.generation) return Post::released;
  *ticket = unpacked_ticket(packed, own.wanted);
  const bool is_own = packed != 0 && ticket->channel == (c.generation & 0xff) && ticket->number <= own.wanted;
  // What was read, and written over, is no more.
  return is_own && ticket->number + c.depth > own.wanted ? Post::ok : Post::argument;
}

/// The reply was there: its place is free from here on.
MPIX_DEV_FN void note_read(const MPIX_Dev_channel& c, const Ticket& ticket, const LaneWords& own) {
  const std::uint64_t number = ticket.number;
  if (number <= own.read_up_to) return;  // once more
  ChannelLane& lane = c.lane[ticket.lane];
  std::uint64_t* const read = read_of(c, ticket.lane, number);
  if (number != own.read_up_to + 1) {
    if (own_word(read) == number) return;
    set_own_word(read, number);
    set_own_word(&lane.read_ahead, own.read_ahead + 1);
    return;
  }
  set_own_word(read, number);
  std::uint64_t up_to = number, ahead = own.read_ahead;
  for (; ahead > 0 && own_word(read_of(c, ticket.lane, up_to + 1)) == up_to + 1; ++up_to) --ahead;
  set_own_word(&lane.read_up_to, up_to);
  if (ahead != own.read_ahead) set_own_word(&lane.read_ahead, ahead);
}

MPIX_DEV_FN bool reply_arrived(const MPIX_Dev_channel& c, const Ticket& ticket, std::uint64_t* value) {
  return line_acquired(reply_of(c, ticket.lane, ticket.number), task_tag(ticket.number), value);
}

MPIX_DEV_FN Post test_reply(const MPIX_Dev_channel& c, std::uint64_t packed, bool* done, std::uint64_t* value) {
  *done = false;
  if (c.abi != MPIX_DEV_CHANNEL_ABI) return Post::released;
  if (lane_of_ticket(packed) >= c.lanes) return Post::argument;
  const LaneWords own = words_of_lane(c.lane[lane_of_ticket(packed)]);
  Ticket ticket{};
  const Post valid = check_ticket(c, packed, own, &ticket);
  if (valid != Post::ok) return valid;
  std::uint64_t there = 0;
  if (!reply_arrived(c, ticket, &there)) return is_released(c) ? Post::released : Post::ok;
  note_read(c, ticket, own);
  if (value) *value = there;
  *done = true;
  return Post::ok;
}

MPIX_DEV_FN Post wait_for_reply(const MPIX_Dev_channel& c, std::uint64_t packed, std::uint64_t* value) {
  if (c.abi != MPIX_DEV_CHANNEL_ABI) return Post::released;
  if (lane_of_ticket(packed) >= c.lanes) return Post::argument;
  const LaneWords own = words_of_lane(c.lane[lane_of_ticket(packed)]);
  Ticket ticket{};
  const Post valid = check_ticket(c, packed, own, &ticket);
  if (valid != Post::ok) return valid;
  std::uint64_t there = 0;  // as a rule the look at the lane's words has let it come
  if (!wait_in_channel(
          c, ticket.lane, [&] { return note_of_block(c, ChannelWait::reply, ticket.number); },
          [&] { return reply_arrived(c, ticket, &there); }))
    return Post::released;
  note_read(c, ticket, own);
  if (value) *value = there;
  return Post::ok;
}

}  // namespace dev
}  // namespace mpix
