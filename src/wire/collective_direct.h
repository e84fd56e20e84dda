// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_lines.h"
#include "wire/collective_spans.h"

/// The steps of a direct call: ranks read what others send where it lies, and write results where they belong. The
/// words and the order argument are in collective.h, crews in collective_lines.h.
///
/// | call           | rank r reads                | and writes                                |
/// |----------------|-----------------------------|-------------------------------------------|
/// | allreduce      | shard r of all              | their combination, to all                 |
/// | reduce         | shard r of all              | their combination, to the root            |
/// | reduce_scatter | block r of all              | their combination, to its own result      |
/// | bcast          | the root's                  | to its own result                         |
/// | allgather      | the block of each           | to its own result                         |
/// | alltoall       | block r of each             | to its own result                         |
///
/// A block, or in the first two calls a shard, is cut into parts; part p reads and writes part p of it, and waits for
/// part p of the other ranks alone.
namespace mpix {

/// Where things are, for a crew: by rank. Null: in memory of the library.
struct DirectTable {
  static constexpr std::uint32_t most = 64;
  const char* from[most];
  char* to[most];
};

template <class Crew>
class DirectCall {
 public:
  MPIX_STEP DirectCall(const Crew& crew, const Collective& c, DirectTable& table) : crew_(crew), c_(c), table_(table) {}

  MPIX_STEP bool run() {
    CollectiveState state = load_state(c_.states() + crew_.part);
    const bool is_used = crew_.part < c_.parts;
    if (is_used && !await_call_before(crew_, c_, state)) return false;
    call_ = next_number(state.call);
    if (is_used) announce_call(crew_, c_, call_);
    if (!find_places(call_)) return false;
    const std::uint64_t piece = is_staged_ && c_.piece_bytes < c_.bytes ? c_.piece_bytes : c_.bytes;
    if (!is_used) return leave_unused(state, static_cast<std::uint32_t>((c_.bytes + piece - 1) / piece));
    state.call = call_;
    full_ = piece;
    std::uint32_t steps = 0;
    for (std::uint64_t begin = 0; begin < c_.bytes; begin += piece, ++steps) {
      state.step = next_number(state.step);
      piece_ = Span{begin, c_.bytes - begin < piece ? c_.bytes - begin : piece};
      if (is_staged_ && !stage(state.step)) return false;
      move();
      if (!meet<&Collective::ended>(state.step)) return false;
      if (!table_.to[c_.me]) take_out();
    }
    leave(state);
    return true;
  }

 private:
  MPIX_STEP bool leave_unused(CollectiveState state, std::uint32_t steps) const {
    state.call = call_;
    for (std::uint32_t i = 0; i < steps; ++i) state.step = next_number(state.step);
    leave(state);
    return true;
  }
  MPIX_STEP std::uint32_t blocks() const {
    return c_.kind == CollectiveKind::alltoall || c_.kind == CollectiveKind::reduce_scatter ? c_.ranks() : 1;
  }
  MPIX_STEP bool is_sharded() const {
    return c_.kind == CollectiveKind::allreduce || c_.kind == CollectiveKind::reduce;
  }

  /// False: released, or the ranks call different things.
  MPIX_STEP bool find_places(std::uint32_t call) {
    const Workers workers = crew_.workers();
    bool good = true, all_attached = true;
    // Who was called, where its data are, where its result is: looked for at once, by a worker each.
    for (std::uint32_t i = workers.index; good && i < 3 * c_.ranks(); i += workers.size) {
      const std::uint32_t rank = i / 3, which = i % 3;
      if (which == 2) {
        good = rank == c_.me || calls_the_same(crew_, c_, c_.word, call, rank);
        continue;
      }
      std::uint64_t word = which == 0 ? c_.send_place : c_.recv_place;
      if (rank != c_.me) good = crew_.await(rank, c_.place_lines(c_.me, rank, call) + which, call, &word);
      if (!good) break;
      char* at = nullptr;
      if (word == not_attached)
        all_attached = false;
      else if (word == not_used)
        at = c_.memory(rank);  // any
      else
        at = c_.attached[rank * most_attached + static_cast<std::uint32_t>(word >> 56)] +
             (word & ((std::uint64_t{1} << 56) - 1));
      if (which == 0)
        table_.from[rank] = at;
      else
        table_.to[rank] = at;
    }
    if (!crew_.agree(good)) return false;
    is_staged_ = !crew_.agree(all_attached);
    return true;
  }

  /// Where a rank's block for another one lies, from this piece's begin of it on.
  MPIX_STEP const char* source(std::uint32_t rank, std::uint32_t block) const {
    if (rank == c_.me) return c_.send + block * c_.send_stride + piece_.begin;
    if (const char* const from = table_.from[rank]) return from + block * c_.send_stride + piece_.begin;
    return c_.memory(rank) + c_.places.sent() + block * c_.piece_bytes;
  }
  MPIX_STEP char* target(std::uint32_t rank) const {
    if (rank == c_.me) return c_.recv + piece_.begin;
    if (char* const to = table_.to[rank]) return to + piece_.begin;
    return c_.memory(rank) + c_.places.received();
  }
  /// Pieces are cut as the first one, also the last, which may be shorter: memory of the library belongs to the same
  /// part in all of them.
  MPIX_STEP Span whole() const { return {0, full_}; }
  MPIX_STEP Span of_part(Span span) const {
    const Span part = cut(span, crew_.part, c_.parts);
    const std::uint64_t end = part.begin + part.bytes < piece_.bytes ? part.begin + part.bytes : piece_.bytes;
    return {part.begin, part.begin < end ? end - part.begin : 0};
  }

  /// Copy what others read of this rank, and wait until all have.
  MPIX_STEP bool stage(std::uint32_t step) {
    if (!table_.from[c_.me]) {
      char* const to = c_.own() + c_.places.sent();
      for (std::uint32_t i = 0; i < (is_sharded() ? c_.ranks() : blocks()); ++i) {
        if (i == c_.me && (is_sharded() || blocks() > 1)) continue;
        const Span span = of_part(is_sharded() ? cut(whole(), i, c_.ranks()) : whole());
        const std::uint32_t block = is_sharded() ? 0 : i;
        copy_bytes(to + block * c_.piece_bytes + span.begin, source(c_.me, block) + span.begin, span.bytes,
                   crew_.workers());
      }
    }
    return meet<&Collective::ready>(step);
  }

  /// What was done before is done, and all others have come as far, too.
  template <std::uint64_t* (Collective::*word)(std::uint32_t, std::uint32_t, std::uint32_t) const>
  MPIX_STEP bool meet(std::uint32_t step) const {
    if (!crew_.agree(true)) return false;
    const Workers workers = crew_.workers();
    bool good = true;
    for (std::uint32_t rank = workers.index; rank < c_.ranks(); rank += workers.size) {
      if (rank == c_.me) continue;
      store_release((c_.*word)(rank, crew_.part, c_.me), progress_word(call_, step));
      crew_.tell(rank);
    }
    for (std::uint32_t rank = workers.index; good && rank < c_.ranks(); rank += workers.size)
      if (rank != c_.me) good = crew_.await(rank, (c_.*word)(c_.me, crew_.part, rank), progress_word(call_, step));
    return crew_.agree(good);
  }

  MPIX_STEP void move() const {
    switch (c_.kind) {
      case CollectiveKind::allreduce:
      case CollectiveKind::reduce:
        return combine_span(0, of_part(cut(whole(), c_.me, c_.ranks())));
      case CollectiveKind::reduce_scatter:
        return combine_span(c_.me, of_part(whole()));
      case CollectiveKind::bcast:
        if (c_.me != c_.root) copy(c_.root, 0);
        return;
      case CollectiveKind::allgather:
      case CollectiveKind::alltoall:
        for (std::uint32_t next = 0; next < c_.ranks(); ++next)
          copy((c_.me + next) % c_.ranks(), c_.kind == CollectiveKind::alltoall ? c_.me : 0);
        return;
      case CollectiveKind::barrier:
        return;
    }
  }

  MPIX_STEP void copy(std::uint32_t rank, std::uint32_t block) const {
    const Span span = of_part(whole());
    const char* const from = source(rank, block) + span.begin;
    char* const to = c_.recv + rank * c_.recv_stride + piece_.begin + span.begin;
    if (from != to) copy_bytes(to, from, span.bytes, crew_.workers());
  }

  MPIX_STEP std::uint32_t first_target() const {
    return c_.kind == CollectiveKind::allreduce ? 0 : c_.kind == CollectiveKind::reduce ? c_.root : c_.me;
  }
  MPIX_STEP std::uint32_t targets_end() const {
    return c_.kind == CollectiveKind::allreduce ? c_.ranks() : first_target() + 1;
  }

  struct Sources {
    const DirectCall& call;
    std::uint32_t block;
    MPIX_STEP const char* operator()(std::uint32_t rank) const { return call.source(rank, block); }
  };
  struct Targets {
    const DirectCall& call;
    MPIX_STEP char* operator()(std::uint32_t rank) const { return call.target(rank); }
  };
  /// Of the same block of all ranks, in their order.
  MPIX_STEP void combine_span(std::uint32_t block, Span span) const {
    combine_spans(crew_.workers(), c_.operation, c_.element, Sources{*this, block}, c_.ranks(), Targets{*this},
                  first_target(), targets_end(), span);
  }

  /// What others have written into memory of the library, to where it belongs.
  MPIX_STEP void take_out() const {
    const char* const from = c_.own() + c_.places.received();
    for (std::uint32_t rank = 0; rank < c_.ranks(); ++rank) {
      if (rank == c_.me) continue;
      const Span span = of_part(cut(whole(), rank, c_.ranks()));
      copy_bytes(c_.recv + piece_.begin + span.begin, from + span.begin, span.bytes, crew_.workers());
    }
  }

  MPIX_STEP void leave(CollectiveState state) const {
    state.word = c_.word;
    state.parts = static_cast<std::uint16_t>(c_.parts);
    state.rooted = state.several_steps = 0;  // all have heard from all
    const Workers workers = crew_.workers();
    if (workers.index == 0) c_.states()[crew_.part] = state;
    if (crew_.part != 0) return;
    for (std::uint32_t part = c_.launched + workers.index; part < Crew::counted_parts; part += workers.size)
      c_.states()[part] = state;
  }

  const Crew& crew_;
  const Collective& c_;
  DirectTable& table_;
  std::uint32_t call_ = 0;
  Span piece_{};
  std::uint64_t full_ = 0;  ///< bytes of a piece that is not the last
  bool is_staged_ = false;
};

}  // namespace mpix
