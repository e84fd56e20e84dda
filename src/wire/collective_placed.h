// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_lines.h"
#include "wire/collective_spans.h"

/// Calls whose ranks tell each other where their buffers lie, and what those have in common: the words and the order
/// argument are in collective.h, crews in collective_lines.h. How data go is said by the header of each kind of them:
/// collective_direct.h and collective_tree.h.
///
/// A block is cut into parts; a part waits for the same part of the other ranks alone. Where memory of the library is
/// in between, it is cut into pieces before, as large as that, and each piece is a step. A piece is over when all have
/// said so (ended[]): then nobody reads or writes there.
namespace mpix {

/// Where things are, for a crew: by rank. Null: in memory of the library.
struct PlaceTable {
  static constexpr std::uint32_t most = 64;
  const char* from[most];
  char* to[most];
};

/// `Steps`: the class that derives from this one, and has
///   bool goes_in_pieces():                  of piece_bytes each; else all is one
///   bool run_pieces(std::uint32_t* step):   all of them; next_number(*step) is the first one's, and *step becomes that
///   of
///                                           the last. False: released
/// and may have
///   void begin_early(std::uint32_t step):   what needs no word of the others, in the first one
template <class Crew, class Steps>
class PlacedCall {
 public:
  MPIX_STEP PlacedCall(const Crew& crew, const Collective& c, PlaceTable& table) : crew_(crew), c_(c), table_(table) {}

  MPIX_STEP bool run() {
    Steps& steps = static_cast<Steps&>(*this);
    CollectiveState state = load_state(c_.states() + crew_.part);
    const bool is_used = crew_.part < c_.parts;
    if (is_used && !await_call_before(crew_, c_, state)) return false;
    state.call = call_ = next_number(state.call);
    if (is_used) announce_call(crew_, c_, call_);
    if (is_used) steps.begin_early(next_number(state.step));
    if (!find_places(call_)) return give_up_call(crew_, c_, state);
    full_ = steps.goes_in_pieces() && c_.piece_bytes < c_.bytes ? c_.piece_bytes : c_.bytes;
    if (is_used) {
      if (!steps.run_pieces(&state.step)) return give_up_call(crew_, c_, state);
    } else {
      for (std::uint64_t begin = 0; begin < c_.bytes; begin += full_) state.step = next_number(state.step);
    }
    leave(state);
    return true;
  }

 protected:
  MPIX_STEP void begin_early(std::uint32_t) const {}

  /// So many copies, of so many bytes or less: small ones at once, by some workers each.
  template <class Copy>
  MPIX_STEP void copy_each(std::uint32_t count, std::uint64_t bytes, Copy copy) const {
    constexpr std::uint32_t fewest = 32, bytes_of_a_worker = 16;
    const Workers all = crew_.workers();
    std::uint32_t size = all.size;
    while (size % 2 == 0 && size > fewest && std::uint64_t{size / 2} * bytes_of_a_worker >= bytes) size /= 2;
    for (std::uint32_t i = all.index / size; i < count; i += all.size / size) copy(i, Workers{all.index % size, size});
  }

  /// Pieces are cut as the first one, also the last, which may be shorter: memory of the library belongs to the same
  /// part in all of them.
  MPIX_STEP Span whole() const { return {0, full_}; }
  MPIX_STEP Span of_part(Span span) const {
    const Span part = cut(span, crew_.part, c_.parts);
    const std::uint64_t end = part.begin + part.bytes < piece_.bytes ? part.begin + part.bytes : piece_.bytes;
    return {part.begin, part.begin < end ? end - part.begin : 0};
  }

  MPIX_STEP void begin_piece(std::uint64_t begin) {
    piece_ = Span{begin, c_.bytes - begin < full_ ? c_.bytes - begin : full_};
  }

  using Word = std::uint64_t* (Collective::*)(std::uint32_t at, std::uint32_t part, std::uint32_t of) const;

  /// What was done before is done.
  template <Word word>
  MPIX_STEP void tell_all(std::uint32_t step) const {
    (void)crew_.agree(true);
    const Workers workers = crew_.workers();
    for (std::uint32_t rank = workers.index; rank < c_.ranks(); rank += workers.size) {
      if (rank == c_.me) continue;
      store_release((c_.*word)(rank, crew_.part, c_.me), progress_word(call_, step));
      crew_.tell(rank);
    }
  }
  /// All others have told as much. False: released.
  template <Word word>
  MPIX_STEP bool await_all(std::uint32_t step) const {
    const Workers workers = crew_.workers();
    bool good = true;
    for (std::uint32_t rank = workers.index; good && rank < c_.ranks(); rank += workers.size)
      if (rank != c_.me) good = crew_.await(rank, (c_.*word)(c_.me, crew_.part, rank), progress_word(call_, step));
    return crew_.agree(good);
  }

  const Crew& crew_;
  const Collective& c_;
  PlaceTable& table_;
  std::uint32_t call_ = 0;
  Span piece_{};
  std::uint64_t full_ = 0;  ///< bytes of a piece that is not the last
  bool is_staged_ = false;  ///< some buffer is not attached

 private:
  /// False: released, or the ranks call different things.
  MPIX_STEP bool find_places(std::uint32_t call) {
    const Workers workers = crew_.workers();
    bool good = true, all_attached = true;
    // What was called, where its data are, where its result is: looked for at once, by a worker each. A call that goes
    // by lines, by mistake, tells no places: one worker alone asks first what was called.
    constexpr std::uint32_t called = 2;
    for (std::uint32_t i = workers.index; good && i < 3 * c_.ranks(); i += workers.size) {
      const std::uint32_t rank = i / 3, which = (i + called) % 3;
      if (which == called) {
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
};

}  // namespace mpix
