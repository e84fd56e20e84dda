// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "wire/program.h"
#include "wire/reduction.h"

/// What the ranks of a node share for the collectives of a communicator, and what a call tells those who run it.
///
/// Calls have numbers, and steps have: both are the same on all ranks, as all make the same calls, and both grow for
/// ever (next_number). A call has one step for each chunk of its data. A call is *rooted* where some rank need not hear
/// from all others (bcast and reduce, but for those in shares); in the others every rank hears from every rank in every
/// step.
///
/// Written by o into the memory of t, where t polls:
///
/// | word                        | by                           | order                                                |
/// |-----------------------------|------------------------------|------------------------------------------------------|
/// | calls[call mod 4][o]        | part 0, at the begin: what is called, to all; t polls it where it hears from o, where the call before was rooted, and before the second step of what it sends o | none: a line |
/// | lines[step mod 2][o]        | each part its own, with data | none: each half line carries the step                |
/// | packs[number mod 2][o]      | each part its own, with data | none: one store carries all; see collective_packs.h |
/// | begun[part][o] = call, step     | each part, in each step of a rooted call, to all | relaxed: what it has read, it has |
/// | places[call mod 2][o]       | part 0, at the begin of a direct call: where o's buffers lie | none: lines, and behind
/// |                             |                              | kernels that have ended                              |
/// | ready[part][o] = call, step     | each part, when its share of what o gives lies in o's memory for pieces; along a tree, also: the result lies there | release, acquire |
/// | ended[part][o] = call, step     | each part, when it has read what it reads of others' data, and written what it writes | release, acquire |
/// | note (of o's own)           | o's service, of what it knows; see CollectiveNote | release, acquire: for reports |
/// | times, choices              | see collective_chosen.h | |
/// | came, all_came              | see collective_guarded.h | |
///
/// **A call writes nothing before it knows that all ranks have begun the call before** (its last step, in each part).
/// Behind a call in which all hear from all it does know. Behind a rooted one it waits for calls[] of it, which it
/// compares, and where that had several steps for begun[].
///
/// Two places for lines and calls are enough. Step f goes where f - 2 was. Within a call: to write f, part p of o has
/// seen that part p of t has begun f - 1, by its lines or by begun[], and so has ended f - 2; and parts keep to regions
/// of their own, which are those of all steps of the call. In the first step of a call: all of t has begun f - 1; if
/// f - 2 was of that call, by the parts which do the same region; if of an earlier one, that has ended. In the second:
/// all of t has begun f - 1, which is this call, and so the call of f - 2 has ended. A part that has no data in the
/// last of several steps sends and awaits a line all the same, or it would not know. Calls: of t a part may begin late,
/// when part 0 has announced its call long ago, and o has gone on to the next one, or ended that; but not to the one
/// behind, for which t has to have begun the next. So calls k - 1 to k + 1 have places of their own.
///
/// Direct calls read and write memory of other ranks. They begin when places[] of all are here; then what those name is
/// there, and may be written: streams have got to the call. Where some buffer is not attached, pieces go through memory
/// of the library: copied there before ready[], and out of it behind ended[]. ended[] of all means that all have read
/// what they read of me, and that my result is whole, or there to be taken. collective_direct.h and collective_tree.h
/// have the steps.
///
/// A line holds the step of 32 bits, and lies where it is for long where calls are short: one that has been there for
/// 2^32 steps would be taken for new. So in the last step of a call part 0 clears one line beyond those that the call
/// uses, up to the highest ever used; nobody writes there before this rank has begun the next call. Calls of several
/// steps use all lines. The lines of places[] are cleared where a call does not use them.
namespace mpix {

enum class CollectiveKind : std::uint8_t { barrier, bcast, reduce, allreduce, reduce_scatter, allgather, alltoall };

/// As a call announces itself to the others: all that has to be the same.
struct CallWord {
  static constexpr unsigned byte_bits = 36, root_bits = 16, element_bits = 5, operation_bits = 4;
  static constexpr std::uint32_t functions_of_a_kind = 1u << element_bits;
  CollectiveKind kind;
  Operation operation;
  Element element;
  std::uint32_t root;          ///< 0 where there is none
  std::uint64_t bytes;         ///< of a block
  std::uint32_t function = 0;  ///< which, where the operation is by one; see collective/said_function.h

  MPIX_FN std::uint64_t packed() const {
    const bool by_function = operation == Operation::by_function;
    std::uint64_t word = static_cast<std::uint64_t>(kind) + 1;
    word = word << operation_bits |
           (static_cast<std::uint64_t>(operation) + (by_function ? function / functions_of_a_kind : 0));
    word = word << element_bits | (by_function ? function % functions_of_a_kind : static_cast<std::uint64_t>(element));
    word = word << root_bits | root;
    return word << byte_bits | (bytes & ((std::uint64_t{1} << byte_bits) - 1));
  }
  static CallWord of(std::uint64_t word) {
    CallWord call{};
    call.bytes = word & ((std::uint64_t{1} << byte_bits) - 1);
    word >>= byte_bits;
    call.root = static_cast<std::uint32_t>(word & ((1u << root_bits) - 1));
    word >>= root_bits;
    const auto element = static_cast<std::uint32_t>(word & ((1u << element_bits) - 1));
    word >>= element_bits;
    const auto operation = static_cast<std::uint32_t>(word & ((1u << operation_bits) - 1));
    constexpr auto by_function = static_cast<std::uint32_t>(Operation::by_function);
    if (operation < by_function) {
      call.operation = static_cast<Operation>(operation);
      call.element = static_cast<Element>(element);
    } else {
      call.operation = Operation::by_function;
      call.function = (operation - by_function) * functions_of_a_kind + element;
    }
    call.kind = static_cast<CollectiveKind>((word >> operation_bits) - 1);
    return call;
  }
};

/// Two ranks of the communicator that have called different things.
struct CallDifference {
  std::uint64_t ranks;     ///< the one + 1, and the other; 0: none
  std::uint64_t calls[2];  ///< CallWord of each

  static CallDifference of(int one, std::uint64_t called, int other, std::uint64_t other_called) {
    const std::uint64_t first = static_cast<std::uint32_t>(one) + std::uint64_t{1};
    return {first << 32 | static_cast<std::uint32_t>(other), {called, other_called}};
  }
  bool is_known() const { return ranks != 0; }
  int rank(unsigned index) const {
    return static_cast<int>(index == 0 ? static_cast<std::uint32_t>(ranks >> 32) - 1
                                       : static_cast<std::uint32_t>(ranks));
  }
};

/// What a rank's service tells others for their reports: those of its node in memory of its own, its partners on other
/// nodes in theirs. Nothing hangs on it.
struct CollectiveNote {
  std::uint64_t waits;        ///< for whom: see collective/node_notes.h, collective/rail_waits.h
  CallDifference difference;  ///< once: that calls are over, and why; its ranks are written last
};

/// The number after n; never 0, and places of two and of four come in turns for ever.
MPIX_FN std::uint32_t next_number(std::uint32_t n) { return n == UINT32_MAX ? 4 : n + 1; }

/// How far a part has come: what it writes into begun[], ready[] and ended[].
MPIX_FN std::uint64_t progress_word(std::uint32_t call, std::uint32_t step) { return std::uint64_t{call} << 32 | step; }
/// Nobody is more than a call ahead of a part that waits for it, nor in the same call more than two steps; numbers may
/// begin again meanwhile. In the next call a part may be many steps ahead: it waits for that part of the other ranks
/// alone, and not for one of them that begins late. A word of long ago, as there were other calls, is not taken for a
/// new one: both its numbers would have to fit.
MPIX_FN bool has_come(std::uint64_t seen, std::uint64_t needed) {
  constexpr std::uint32_t most_calls = 1 + 4, most_steps = 2 + 4;
  const auto calls = static_cast<std::uint32_t>((seen >> 32) - (needed >> 32)),
             steps = static_cast<std::uint32_t>(seen - needed);
  return calls == 0 ? steps <= most_steps : calls <= most_calls && steps <= UINT32_MAX / 2;
}

/// What a part of a rank's calls knows of those before. In its own memory; a call leaves it for the next one.
struct alignas(32) CollectiveState {
  std::uint64_t word;        ///< what the last call was; see CallWord
  std::uint32_t step, call;  ///< the last ones; 1 before the first
  std::uint32_t highest;     ///< lines that were ever used of a place; of part 0
  std::uint32_t swept[2];    ///< likewise: where to clear next, by place
  std::uint16_t parts;       ///< of the last call
  std::uint8_t rooted, several_steps;
};

/// Calls of a kind, and of sizes up to a power of two and above the one before, are of a class.
constexpr std::uint32_t collective_kinds = 7, sizes_of_a_kind = CallWord::byte_bits + 1;
constexpr std::uint32_t call_classes = collective_kinds * sizes_of_a_kind;

/// Calls of a rank in a row whose words have lines of their own.
constexpr std::uint32_t calls_said = 4;

/// Where what lies in a rank's memory; the same on all ranks.
struct CollectivePlaces {
  static constexpr std::uint64_t choice_bytes = 32 + (call_classes + std::uint64_t{3}) / 4 * 4 * (8 + 32);

  std::uint32_t ranks;
  std::uint32_t lines;  ///< of a place: a word of data each
  std::uint32_t packs;  ///< likewise; 0: ranks do not tell each other packs
  std::uint64_t scratch_bytes;

  MPIX_FN std::uint64_t states() const { return sizeof(Bell); }
  MPIX_FN std::uint64_t calls() const { return states() + most_parts * sizeof(CollectiveState); }
  MPIX_FN std::uint64_t places() const { return calls() + std::uint64_t{calls_said} * ranks * sizeof(Line); }
  MPIX_FN std::uint64_t begun() const { return places() + std::uint64_t{4} * ranks * sizeof(Line); }
  MPIX_FN std::uint64_t ready() const { return begun() + std::uint64_t{most_parts} * ranks * 8; }
  MPIX_FN std::uint64_t ended() const { return ready() + std::uint64_t{most_parts} * ranks * 8; }
  MPIX_FN std::uint64_t lines_at() const { return (ended() + std::uint64_t{most_parts} * ranks * 8 + 255) / 256 * 256; }
  MPIX_FN std::uint64_t sent() const { return lines_at() + std::uint64_t{2} * ranks * lines * sizeof(Line); }
  MPIX_FN std::uint64_t received() const { return sent() + scratch_bytes; }
  MPIX_FN std::uint64_t note() const { return received() + scratch_bytes; }
  MPIX_FN std::uint64_t choices() const { return (note() + sizeof(CollectiveNote) + 63) / 64 * 64; }
  MPIX_FN std::uint64_t times() const { return choices() + choice_bytes; }
  MPIX_FN std::uint64_t packed() const { return times() + std::uint64_t{4} * ranks * sizeof(Line); }
  MPIX_FN std::uint64_t guards() const { return (packed() + most_parts * 8 + 63) / 64 * 64; }
  MPIX_FN std::uint64_t packs_at() const {
    return (guards() + std::uint64_t{5} * sizeof(std::uint64_t) + 127) / 128 * 128;
  }
  MPIX_FN std::uint64_t all() const { return packs_at() + std::uint64_t{2} * ranks * packs * sizeof(Pack); }
};

/// Memory that ranks have attached: where each one's is, as mapped here; by attachment and rank.
constexpr std::uint32_t most_attached = 16;
/// In a line of places[]: which attachment, and where in it; not_attached: it is not in any.
constexpr std::uint64_t not_attached = UINT64_MAX;
/// Likewise: nobody reads or writes there.
constexpr std::uint64_t not_used = UINT64_MAX - 1;
MPIX_FN std::uint64_t place_word(std::uint32_t attachment, std::uint64_t offset) {
  return std::uint64_t{attachment} << 56 | offset;
}

/// What those who run a call and the host tell each other; in memory of the host.
struct CollectiveWords {
  std::uint64_t released;      ///< by either: wait no more; the communicator's calls are over
  std::uint64_t differs;       ///< by a rank whose call is not that of rank `differs - 1` ...
  std::uint64_t mine, theirs;  ///< ... and what they called
  std::uint64_t run;           ///< by a host stream: calls that have run
  std::uint64_t called;        ///< by a call that waits for long, or that others may find waiting: what it is
  std::uint64_t notes[1];      ///< by rank waited for; as many as there are ranks
};

/// A note that a call waits for a rank for long: it changes for as long as the wait lasts.
MPIX_FN std::uint64_t collective_note(std::uint32_t call, std::uint32_t beat) {
  return std::uint64_t{call} << 32 | (beat | 1u << 31);
}

/// What a launch does of a call; see collective_guarded.h.
enum class CallHalf : std::uint8_t { whole, sends, receives };

/// A call, as kernels and host streams get it.
struct Collective {
  static constexpr std::uint32_t most_near = 8;

  CollectiveKind kind;
  Operation operation;
  Element element;
  bool direct, packed;     ///< neither: by lines
  bool shared;             ///< by packs: ranks have shares of the work, and tell each other; see collective_packs.h
  bool all_hear;           ///< by packs: all hear from all, though there is a root
  bool takes_from_others;  ///< direct; see collective_direct.h
  bool lets_next_start;    ///< on a GPU, while this one waits
  CallHalf half;           ///< not whole: none of these; see collective_guarded.h
  std::uint32_t me, root;
  std::uint32_t parts;
  std::uint32_t launched;  ///< as many parts as the launch has: no fewer
  CollectivePlaces places;
  const char* send;  ///< block b of it at b * send_stride
  char* recv;        ///< likewise
  std::uint64_t bytes, send_stride, recv_stride;
  std::uint64_t word;         ///< CallWord
  std::uint64_t chunk_words;  ///< by lines: of each step, a multiple of 2 * parts, and all lines if there are several
  std::uint32_t pack_turns;   ///< by packs: of each step; see collective_packs.h
  std::uint64_t piece_bytes;  ///< of a block in memory of the library: of each step of a direct call, of a guarded call
  std::uint64_t send_place, recv_place;
  char* const* attached;  ///< most_attached for each rank
  char* mine;             ///< memory of this rank, and
  char* near[most_near];
  char* const* far;  ///< of each, in a table that a GPU's host cannot read; near has the first ones
  CollectiveWords* host;
  void (*function)(void* context, const void* in, void* inout, std::uint64_t bytes);  ///< for Operation::by_function
  void* context;

  MPIX_FN std::uint32_t ranks() const { return places.ranks; }
  MPIX_FN char* memory(std::uint32_t rank) const { return rank < most_near ? near[rank] : far[rank]; }
  MPIX_FN char* own() const { return mine; }
  MPIX_FN bool has_root() const { return kind == CollectiveKind::bcast || kind == CollectiveKind::reduce; }
  /// Some ranks hear from no other one.
  MPIX_FN bool is_rooted() const { return has_root() && !shared && !all_hear; }
  MPIX_FN bool combines() const {
    return kind == CollectiveKind::reduce || kind == CollectiveKind::allreduce ||
           kind == CollectiveKind::reduce_scatter;
  }
  /// In a way that kernels have straight code for.
  MPIX_FN bool combines_usually() const {
    return element >= Element::i32 && element <= Element::f64 && operation >= Operation::sum &&
           operation <= Operation::minimum;
  }
  /// Ranks that have a share, of a call in shares: a root has none.
  MPIX_FN std::uint32_t holders() const { return ranks() - (has_root() ? 1 : 0); }
  /// Whether this rank sends data to the other one, or gets some of it; where calls are not shared.
  MPIX_FN bool sends_to(std::uint32_t rank) const {
    return rank != me && (kind == CollectiveKind::bcast ? me == root : kind != CollectiveKind::reduce || rank == root);
  }
  MPIX_FN bool hears(std::uint32_t rank) const {
    return rank != me && (kind == CollectiveKind::bcast ? rank == root : kind != CollectiveKind::reduce || me == root);
  }
  /// Some other rank is to get data of this one.
  MPIX_FN bool gives() const {
    return kind == CollectiveKind::bcast ? me == root : kind != CollectiveKind::reduce || me != root;
  }
  MPIX_FN bool gets_result() const {
    return kind == CollectiveKind::bcast ? me != root : kind != CollectiveKind::reduce || me == root;
  }

  MPIX_FN Line* call_line(std::uint32_t at, std::uint32_t of, std::uint32_t call) const {
    return reinterpret_cast<Line*>(memory(at) + places.calls()) + (call % calls_said) * ranks() + of;
  }
  MPIX_FN Line* place_lines(std::uint32_t at, std::uint32_t of, std::uint32_t call) const {
    return reinterpret_cast<Line*>(memory(at) + places.places()) + 2 * ((call % 2) * ranks() + of);
  }
  MPIX_FN std::uint64_t* begun(std::uint32_t at, std::uint32_t part, std::uint32_t of) const {
    return reinterpret_cast<std::uint64_t*>(memory(at) + places.begun()) + part * ranks() + of;
  }
  MPIX_FN std::uint64_t* ready(std::uint32_t at, std::uint32_t part, std::uint32_t of) const {
    return reinterpret_cast<std::uint64_t*>(memory(at) + places.ready()) + part * ranks() + of;
  }
  MPIX_FN std::uint64_t* own_ready(std::uint32_t part, std::uint32_t of) const {
    return reinterpret_cast<std::uint64_t*>(mine + places.ready()) + part * ranks() + of;
  }
  MPIX_FN std::uint64_t* ended(std::uint32_t at, std::uint32_t part, std::uint32_t of) const {
    return reinterpret_cast<std::uint64_t*>(memory(at) + places.ended()) + part * ranks() + of;
  }
  MPIX_FN Line* lines(std::uint32_t at, std::uint32_t of, std::uint32_t step) const {
    return reinterpret_cast<Line*>(memory(at) + places.lines_at()) +
           (std::uint64_t{step % 2} * ranks() + of) * places.lines;
  }
  MPIX_FN Pack* packs(std::uint32_t at, std::uint32_t of, std::uint64_t number) const {
    return reinterpret_cast<Pack*>(memory(at) + places.packs_at()) + (number % 2 * ranks() + of) * places.packs;
  }
  /// By part: the number of its last step by packs.
  MPIX_FN std::uint64_t* packed_steps() const { return reinterpret_cast<std::uint64_t*>(own() + places.packed()); }
  /// Of a call behind guards: where its data lie in a rank's memory.
  MPIX_FN std::uint64_t half_place(std::uint32_t step) const {
    return step % 2 == 0 ? places.sent() : places.received();
  }
  /// Not 0: this rank's stream is in a guard; see collective_guarded.h.
  MPIX_FN std::uint64_t* guard_mark() const { return guard_words(mine); }
  MPIX_FN std::uint64_t* guarded_ended() const { return guard_words(mine) + 1; }  ///< the number of the last call
  MPIX_FN std::uint64_t* all_came(std::uint32_t at) const { return guard_words(memory(at)) + 2; }
  MPIX_FN std::uint64_t* own_all_came() const { return guard_words(mine) + 2; }
  MPIX_FN std::uint64_t* came(std::uint32_t at, std::uint32_t step) const {
    return guard_words(memory(at)) + 3 + step % 2;
  }
  MPIX_FN CollectiveState* states() const { return reinterpret_cast<CollectiveState*>(own() + places.states()); }

 private:
  MPIX_FN std::uint64_t* guard_words(char* of) const { return reinterpret_cast<std::uint64_t*>(of + places.guards()); }
};

}  // namespace mpix
