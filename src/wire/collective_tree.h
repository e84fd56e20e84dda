// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_placed.h"

/// The steps of a call along a tree of ranks, whose root is that of the call, or rank 0: what I. Faraji's GSB (a star,
/// the GPU shared buffer), BTB (a binomial tree) and their four combinations among the ranks of a GPU and between GPUs
/// come to, where kernels lead them (collective/tree.h). All-reduce goes up and down, reduce up, bcast down.
///
/// | rank      | up: reads, behind ready[] of its children  | and writes                    | down: reads, behind ready[] of its parent | and writes |
/// |-----------|--------------------------------------------|-------------------------------|------------------------------------------|------------|
/// | leaf      |                                            | its own: to sent, if not attached | the parent's result                  | its result |
/// | between   | its own and the children's                 | their combination, to sent    | the parent's result                      | its result; and to received, if not attached |
/// | root      | its own and the children's                 | its result; likewise          |                                          |            |
///
/// A rank's word ready[] at its parent says that what it gives is there, and at its children that the result is. A
/// piece is over when all have told ended[]: then the next may be written where it was (tests/model/tree.pml).
namespace mpix {

/// A rank's place in a tree.
struct TreePlace {
  static constexpr std::uint32_t most = PlaceTable::most, combines = 128;
  static_assert(most <= combines, "a byte has a rank, and a bit");

  std::uint8_t count;   ///< of operands: what is combined, in this order, this rank's own among them; 0: no tree
  std::uint8_t parent;  ///< the root's is itself
  std::uint8_t operands[most];  ///< ranks; of a child that combines, with that bit

  MPIX_FN std::uint32_t rank(std::uint32_t index) const { return operands[index] % combines; }
  MPIX_FN bool is_leaf(std::uint32_t index) const { return (operands[index] & combines) == 0; }
  MPIX_FN bool has_children() const { return count > 1; }
};

template <class Crew>
class TreeCall : public PlacedCall<Crew, TreeCall<Crew>> {
  using Base = PlacedCall<Crew, TreeCall<Crew>>;
  friend Base;
  using Base::c_;
  using Base::call_;
  using Base::crew_;
  using Base::piece_;
  using Base::table_;

 public:
  MPIX_STEP TreeCall(const Crew& crew, const Collective& c, PlaceTable& table, const TreePlace& place)
      : Base(crew, c, table), place_(place) {}

 private:
  MPIX_STEP bool goes_in_pieces() const { return true; }
  /// A piece is over when all have said so: then nobody reads or writes there.
  MPIX_STEP bool run_pieces(std::uint32_t* step) {
    for (std::uint64_t begin = 0; begin < c_.bytes; begin += Base::full_) {
      *step = next_number(*step);
      Base::begin_piece(begin);
      if (!move(*step)) return false;
      Base::template tell_all<&Collective::ended>(*step);
      if (!Base::template await_all<&Collective::ended>(*step)) return false;
    }
    return true;
  }

  MPIX_STEP bool move(std::uint32_t step) const {
    const std::uint64_t now = progress_word(call_, step);
    const Span span = Base::of_part(Base::whole());
    if (c_.kind != CollectiveKind::bcast && !go_up(now, span)) return false;
    if (c_.kind == CollectiveKind::reduce) return true;
    return go_down(now, span);
  }
  MPIX_STEP bool go_up(std::uint64_t now, Span span) const {
    if (place_.has_children()) {
      if (!await_children(now)) return false;
      const Targets targets{*this};
      const bool both = is_root() && writes_twice();
      combine_spans(crew_.workers(), c_.operation, c_.element, Operands{*this}, place_.count, targets, 0, both ? 2 : 1,
                    span);
    } else if (!table_.from[c_.me]) {
      copy_bytes(c_.own() + c_.places.sent() + span.begin, c_.send + piece_.begin + span.begin, span.bytes,
                 crew_.workers());
    }
    (void)crew_.agree(true);
    if (!is_root() && crew_.workers().index == 0) tell(place_.parent, now);
    return true;
  }

  MPIX_STEP bool go_down(std::uint64_t now, Span span) const {
    if (!is_root()) {
      const bool good =
          crew_.workers().index != 0 || crew_.await(place_.parent, c_.ready(c_.me, crew_.part, place_.parent), now);
      if (!crew_.agree(good)) return false;
      const char* const from = result_of(place_.parent) + span.begin;
      copy_bytes(c_.recv + piece_.begin + span.begin, from, span.bytes, crew_.workers());
      if (writes_twice()) copy_bytes(c_.own() + c_.places.received() + span.begin, from, span.bytes, crew_.workers());
    } else if (c_.kind == CollectiveKind::bcast && !table_.from[c_.me]) {
      copy_bytes(c_.own() + c_.places.received() + span.begin, c_.send + piece_.begin + span.begin, span.bytes,
                 crew_.workers());
    }
    (void)crew_.agree(true);
    for_children([&](std::uint32_t rank) { tell(rank, now); });
    return true;
  }

  MPIX_STEP void tell(std::uint32_t rank, std::uint64_t now) const {
    store_release(c_.ready(rank, crew_.part, c_.me), now);
    crew_.tell(rank);
  }
  MPIX_STEP bool await_children(std::uint64_t now) const {
    bool good = true;
    for_children([&](std::uint32_t rank) { good = good && crew_.await(rank, c_.ready(c_.me, crew_.part, rank), now); });
    return crew_.agree(good);
  }
  /// By a worker each.
  template <class Do>
  MPIX_STEP void for_children(Do work) const {
    const Workers workers = crew_.workers();
    for (std::uint32_t i = workers.index; i < place_.count; i += workers.size)
      if (place_.rank(i) != c_.me) work(place_.rank(i));
  }
  MPIX_STEP bool is_root() const { return place_.parent == c_.me; }

  /// Its result is where the children cannot read it.
  MPIX_STEP bool writes_twice() const {
    return place_.has_children() && c_.kind != CollectiveKind::reduce && !table_.to[c_.me];
  }
  MPIX_STEP const char* result_of(std::uint32_t rank) const {
    const char* const at = c_.kind == CollectiveKind::bcast && rank == c_.root ? table_.from[rank] : table_.to[rank];
    return at ? at + piece_.begin : c_.memory(rank) + c_.places.received();
  }
  struct Operands {
    const TreeCall& call;
    MPIX_STEP const char* operator()(std::uint32_t index) const {
      const Collective& c = call.c_;
      const std::uint32_t rank = call.place_.rank(index);
      if (rank == c.me) return c.send + call.piece_.begin;
      const char* const from = call.place_.is_leaf(index) ? call.table_.from[rank] : nullptr;
      return from ? from + call.piece_.begin : c.memory(rank) + c.places.sent();
    }
  };
  struct Targets {
    const TreeCall& call;
    MPIX_STEP char* operator()(std::uint32_t index) const {
      const Collective& c = call.c_;
      if (index == 1) return c.own() + c.places.received();
      return call.is_root() ? c.recv + call.piece_.begin : c.own() + c.places.sent();
    }
  };

  const TreePlace& place_;
};

}  // namespace mpix
