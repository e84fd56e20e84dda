// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_placed.h"

/// The steps of a direct call: ranks read what others send where it lies, and write results where they belong.
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
/// part p of the other ranks alone. Of two ranks with a GPU each the root of a reduction has all of it: the link
/// carries as much towards the root as with shards, and nothing the other way (2 H200, captured, 8 and 64 MiB: 29.4
/// and 189 us; with shards 30.4 and 200).
///
/// Where some buffer is not attached, data go through memory of the library, in pieces. What others read of a rank is
/// copied to *sent* before (staged). A combination for a rank whose result is not attached goes to *received*: of that
/// rank, which copies it from there; or, where ranks share a GPU (takes_from_others), of the one that has made it, once
/// for all: that is fewer bytes in memory, but two ways over a link one after the other.
///
/// | a rank, in a piece             | so that                                                                     |
/// |--------------------------------|-----------------------------------------------------------------------------|
/// | stages it, tells ready[]       | (the first one before it knows where the others' buffers lie)               |
/// | awaits ready[]                 | what it reads is there, and all have taken the last piece out of *received*  |
/// | reads, combines, tells ended[] |                                                                             |
/// | awaits ended[]                 | what it takes is there; nobody reads what it has staged, nor its own buffer |
/// | takes                          |                                                                             |
///
/// The next call finds that all have taken the last piece by places[], which a rank writes when it begins.
namespace mpix {

template <class Crew>
class DirectCall : public PlacedCall<Crew, DirectCall<Crew>> {
  using Base = PlacedCall<Crew, DirectCall<Crew>>;
  friend Base;
  using Base::c_;
  using Base::crew_;
  using Base::of_part;
  using Base::piece_;
  using Base::table_;
  using Base::whole;

 public:
  using Base::Base;

 private:
  MPIX_STEP bool goes_in_pieces() const { return Base::is_staged_; }
  /// A rank whose buffer is not attached knows that there will be pieces. What it has staged in a call before all have
  /// read, as it has heard in that call.
  MPIX_STEP void begin_early(std::uint32_t step) {
    if (c_.send_place != not_attached && c_.recv_place != not_attached) return;
    Base::full_ = c_.piece_bytes < c_.bytes ? c_.piece_bytes : c_.bytes;
    Base::begin_piece(0);
    tell_staged(step);
    is_told_ = true;
  }
  MPIX_STEP void tell_staged(std::uint32_t step) const {
    stage();
    Base::template tell_all<&Collective::ready>(step);
  }

  MPIX_STEP bool run_pieces(std::uint32_t* step) {
    for (std::uint32_t rank = first_target(); rank < targets_end() && left_here_for_ == UINT32_MAX; ++rank)
      if (rank != c_.me && !table_.to[rank]) left_here_for_ = rank;
    for (std::uint64_t begin = 0; begin < c_.bytes; begin += Base::full_) {
      *step = next_number(*step);
      Base::begin_piece(begin);
      if (Base::is_staged_) {
        if (!is_told_) tell_staged(*step);
        is_told_ = false;
        if (!Base::template await_all<&Collective::ready>(*step)) return false;
      }
      move();
      Base::template tell_all<&Collective::ended>(*step);
      if (!Base::template await_all<&Collective::ended>(*step)) return false;
      take_out();
    }
    return true;
  }

  MPIX_STEP std::uint32_t blocks() const {
    return c_.kind == CollectiveKind::alltoall || c_.kind == CollectiveKind::reduce_scatter ? c_.ranks() : 1;
  }
  MPIX_STEP bool is_sharded() const {
    return c_.kind == CollectiveKind::allreduce || c_.kind == CollectiveKind::reduce;
  }

  MPIX_STEP bool root_has_all() const {
    return Crew::root_has_all && c_.kind == CollectiveKind::reduce && c_.ranks() == 2 && !c_.takes_from_others;
  }
  /// Of the call, which parts then share.
  MPIX_STEP Span shard_of_all(std::uint32_t rank) const {
    if (!is_sharded() || (root_has_all() && rank == c_.root)) return whole();
    return root_has_all() ? Span{0, 0} : cut(whole(), rank, c_.ranks());
  }
  /// This part's of a rank, or of a block.
  MPIX_STEP Span shard(std::uint32_t rank) const { return of_part(shard_of_all(rank)); }
  MPIX_STEP std::uint64_t most_bytes() const { return shard(root_has_all() ? c_.root : 0).bytes; }

  /// Where a rank's block for another one lies, from this piece's begin of it on.
  MPIX_STEP const char* source(std::uint32_t rank, std::uint32_t block) const {
    if (rank == c_.me) return c_.send + block * c_.send_stride + piece_.begin;
    if (const char* const from = table_.from[rank]) return from + block * c_.send_stride + piece_.begin;
    return c_.memory(rank) + c_.places.sent() + block * c_.piece_bytes;
  }
  /// Null: as for the first rank whose buffer is not attached.
  MPIX_STEP char* target(std::uint32_t rank) const {
    if (rank == c_.me) return c_.recv + piece_.begin;
    if (char* const to = table_.to[rank]) return to + piece_.begin;
    if (!c_.takes_from_others) return c_.memory(rank) + c_.places.received();
    return rank == left_here_for_ ? c_.own() + c_.places.received() : nullptr;
  }

  /// Copy what others read of this rank.
  MPIX_STEP void stage() const {
    if (c_.send_place != not_attached) return;
    char* const to = c_.own() + c_.places.sent();
    Base::copy_each(is_sharded() ? c_.ranks() : blocks(), most_bytes(), [&](std::uint32_t i, Workers workers) {
      if (i == c_.me && (is_sharded() || blocks() > 1)) return;
      const Span span = shard(i);
      const std::uint32_t block = is_sharded() ? 0 : i;
      copy_bytes(to + block * c_.piece_bytes + span.begin, c_.send + block * c_.send_stride + piece_.begin + span.begin,
                 span.bytes, workers);
    });
  }

  MPIX_STEP void move() const {
    switch (c_.kind) {
      case CollectiveKind::allreduce:
      case CollectiveKind::reduce:
        return combine_span(0, shard(c_.me));
      case CollectiveKind::reduce_scatter:
        return combine_span(c_.me, of_part(whole()));
      case CollectiveKind::bcast:
        if (c_.me != c_.root) copy(c_.root, 0, crew_.workers());
        return;
      case CollectiveKind::allgather:
      case CollectiveKind::alltoall:
        return Base::copy_each(c_.ranks(), most_bytes(), [&](std::uint32_t next, Workers workers) {
          copy((c_.me + next) % c_.ranks(), c_.kind == CollectiveKind::alltoall ? c_.me : 0, workers);
        });
      case CollectiveKind::barrier:
        return;
    }
  }

  MPIX_STEP void copy(std::uint32_t rank, std::uint32_t block, Workers workers) const {
    const Span span = shard(0);
    const char* const from = source(rank, block) + span.begin;
    char* const to = c_.recv + rank * c_.recv_stride + piece_.begin + span.begin;
    if (from != to) copy_bytes(to, from, span.bytes, workers);
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

  /// What others have combined into memory of the library, to where it belongs.
  MPIX_STEP void take_out() const {
    if (table_.to[c_.me]) return;
    Base::copy_each(c_.ranks() - 1, most_bytes(), [&](std::uint32_t next, Workers workers) {
      const std::uint32_t rank = (c_.me + 1 + next) % c_.ranks();
      const Span span = shard(rank);
      const char* const from = (c_.takes_from_others ? c_.memory(rank) : c_.own()) + c_.places.received();
      copy_bytes(c_.recv + piece_.begin + span.begin, from + span.begin, span.bytes, workers);
    });
    (void)crew_.agree(true);  // what has run reads no memory of others any more
  }

  bool is_told_ = false;                      ///< that this piece is staged
  std::uint32_t left_here_for_ = UINT32_MAX;  ///< the first rank whose result is not attached
};

}  // namespace mpix
