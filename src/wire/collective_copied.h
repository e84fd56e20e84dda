// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "wire/collective_staged.h"

/// Copied calls: allgather, alltoall and bcast whose data the copy engine moves, started by the services, so that no
/// kernel runs and no multiprocessor is taken. They begin and end as staged calls do (StagedSteps); in between, behind
/// arrived[] of all and before done, each rank's service
///
/// - takes what others give it, from where it lies in attached memory, at once;
/// - or in pieces through memory of the library, which has some places for them: it fills places with what it gives
///   itself, and takes what others have filled.
///
/// | word of the call        | by                     | when                                  | order            |
/// |-------------------------|------------------------|---------------------------------------|------------------|
/// | filled = number, p      | the service of r       | p pieces of r's have come to a place  | release, acquire |
/// | taken(t, r) = number, p | the service of t       | t has copied p pieces of r's          | release, acquire |
///
/// Piece p goes where p - copied_places was: when all that it is for have taken that. Words of the call before count
/// for nothing, and none of the next is there before this rank is done. A service is done when it has taken everything,
/// and filled everything; when all are done, nobody reads a place, or what a rank gave, any more. Behind arrived[] of
/// all no kernel of a call before uses the places. Where blocks are replaced (alltoall in place), a rank takes piece p
/// of the others when its own piece p has been filled. tests/model/copied.pml.
namespace mpix {

/// For pieces, of a rank. A copy is told of some 10 us after it has ended: several are under way meanwhile.
constexpr std::uint32_t copied_places = 4;

/// What the service has to know of one.
struct CopiedCall {
  CollectiveKind kind;
  bool in_place;
  std::uint32_t root;
  const char* send;
  char* recv;
  std::uint64_t bytes;  ///< of a block
  std::uint64_t place;  ///< of what is sent: in attached memory, or not_attached

  bool sends_blocks() const { return kind == CollectiveKind::alltoall; }
  bool replaces() const { return in_place && sends_blocks(); }
  bool gives(std::uint32_t rank) const { return kind != CollectiveKind::bcast || rank == root; }
  bool takes(std::uint32_t rank) const { return kind != CollectiveKind::bcast || rank != root; }
};

/// The copies of a rank, of one call at a time. `Copier`: device/copier.h.
template <class Copier>
class CopiedMoves {
 public:
  /// Memory of the library for pieces, of each rank.
  struct Places {
    std::vector<char*> of_rank;
    std::uint64_t bytes;
  };
  /// Where `place` of a rank is; throws where nothing is there.
  using Attached = std::function<const char*(std::uint32_t rank, std::uint64_t place)>;

  CopiedMoves(const StagedMemory& memory, std::uint32_t me, Places places, Attached attached,
              std::unique_ptr<Copier> fills, std::unique_ptr<Copier> takes)
      : memory_(memory), me_(me), places_(std::move(places)), attached_(std::move(attached)), sources_(memory.ranks) {
    fills_.copier = std::move(fills);
    takes_.copier = std::move(takes);
  }

  void begin(const CopiedCall& call, std::uint64_t number) {
    call_ = call;
    number_ = static_cast<std::uint32_t>(number);
    constexpr std::uint64_t unit = 64;
    piece_ = std::max(unit, place_bytes() / (call.sends_blocks() ? memory_.ranks : 1) / unit * unit);
    const auto pieces = static_cast<std::uint32_t>((call.bytes + piece_ - 1) / piece_);
    fills_wanted_ = call.gives(me_) && call.place == not_attached ? pieces : 0;
    fills_started_ = fills_ended_ = 0;
    has_own_ = call.kind != CollectiveKind::bcast && !call.in_place;
    takes_to_end_ = 0;
    for (std::uint32_t rank = 0; rank < memory_.ranks; ++rank) {
      Source& source = sources_[rank];
      source = Source{};
      if (rank == me_ || !call.gives(rank) || !call.takes(me_)) continue;
      source.is_whole = memory_.words(rank).place != not_attached;
      source.wanted = source.is_whole ? 1 : pieces;
      takes_to_end_ += source.wanted;
    }
  }

  /// Starts what can be started. Whether anything went on.
  bool step() {
    bool moved = end_fills();
    moved = end_takes() || moved;
    for (; fills_started_ < fills_wanted_ && is_free(fills_started_); moved = true) fill(fills_started_++);
    for (std::uint32_t rank = 0; rank < memory_.ranks; ++rank)
      for (Source& source = sources_[rank]; source.started < source.wanted && is_there(rank, source); moved = true)
        take(rank, source.started++);
    if (has_own_ && fills_started_ == fills_wanted_) copy_own();  // nobody waits for it
    return moved;
  }
  bool is_over() const { return !has_own_ && is_quiet() && fills_ended_ == fills_wanted_ && takes_to_end_ == 0; }
  /// No copy is under way.
  bool is_quiet() const { return fills_.under_way.empty() && takes_.under_way.empty(); }
  /// Of a call that is given up.
  void end_copies() {
    (void)end_fills();
    (void)end_takes();
  }

 private:
  struct Source {
    bool is_whole = false;  ///< in attached memory; else in pieces
    std::uint32_t wanted = 0, started = 0, ended = 0;
  };
  struct Copy {
    std::uint32_t rank;
    bool counts;  ///< a piece, with it
    std::uint64_t number = 0;
  };
  /// Copies one behind the other.
  struct Line {
    std::unique_ptr<Copier> copier;
    std::deque<Copy> under_way;
  };

  std::uint64_t word(std::uint32_t pieces) const { return std::uint64_t{number_} << 32 | pieces; }
  std::uint32_t pieces_in(const std::uint64_t* word) const {
    const std::uint64_t seen = load_acquire(word);
    return seen >> 32 == number_ ? static_cast<std::uint32_t>(seen) : 0;
  }
  std::uint64_t place_bytes() const { return places_.bytes / copied_places / 64 * 64; }
  std::uint64_t bytes_of(std::uint32_t piece) const { return std::min(piece_, call_.bytes - piece * piece_); }
  char* place_of(std::uint32_t rank, std::uint32_t piece, std::uint32_t block) const {
    return places_.of_rank[rank] + piece % copied_places * place_bytes() + (call_.sends_blocks() ? block * piece_ : 0);
  }

  bool is_free(std::uint32_t piece) const {
    if (piece < copied_places) return true;
    for (std::uint32_t rank = 0; rank < memory_.ranks; ++rank)
      if (rank != me_ && call_.takes(rank) && pieces_in(memory_.taken(rank, me_)) <= piece - copied_places)
        return false;
    return true;
  }
  bool is_there(std::uint32_t rank, const Source& source) const {
    if (call_.replaces() && fills_ended_ < (source.is_whole ? fills_wanted_ : source.started + 1)) return false;
    if (source.is_whole) return true;
    return pieces_in(&memory_.words(rank).filled) > source.started;
  }

  void start(Line& line, char* to, const char* from, std::uint64_t bytes, Copy copy) {
    copy.number = line.copier->start(to, from, bytes);
    line.under_way.push_back(copy);
    if (copy.counts) line.copier->mark();
  }
  void fill(std::uint32_t piece) {
    const std::uint64_t at = piece * piece_;
    if (!call_.sends_blocks())
      return start(fills_, place_of(me_, piece, 0), call_.send + at, bytes_of(piece), {me_, true});
    const std::uint32_t last = me_ == memory_.ranks - 1 ? me_ - 1 : memory_.ranks - 1;
    for (std::uint32_t rank = 0; rank < memory_.ranks; ++rank)
      if (rank != me_)
        start(fills_, place_of(me_, piece, rank), call_.send + rank * call_.bytes + at, bytes_of(piece),
              {me_, rank == last});
  }
  void copy_own() {
    has_own_ = false;
    const std::uint64_t at = me_ * call_.bytes;
    start(fills_, call_.recv + at, call_.send + (call_.sends_blocks() ? at : 0), call_.bytes, {me_, false});
  }
  void take(std::uint32_t rank, std::uint32_t piece) {
    char* const to = call_.recv + (call_.kind == CollectiveKind::bcast ? 0 : rank * call_.bytes);
    if (sources_[rank].is_whole) {
      const char* const from = attached_(rank, memory_.words(rank).place);
      return start(takes_, to, from + (call_.sends_blocks() ? me_ * call_.bytes : 0), call_.bytes, {rank, true});
    }
    start(takes_, to + piece * piece_, place_of(rank, piece, me_), bytes_of(piece), {rank, true});
  }

  template <class Ended>
  static bool end(Line& line, Ended ended) {
    if (line.under_way.empty()) return false;
    bool any = false;
    for (const std::uint64_t finished = line.copier->finished();
         !line.under_way.empty() && line.under_way.front().number <= finished; line.under_way.pop_front(), any = true)
      if (line.under_way.front().counts) ended(line.under_way.front());
    return any;
  }
  bool end_fills() {
    return end(fills_, [this](const Copy&) { store_release(&memory_.words(me_).filled, word(++fills_ended_)); });
  }
  bool end_takes() {
    return end(takes_, [this](const Copy& copy) {
      --takes_to_end_;
      Source& source = sources_[copy.rank];
      ++source.ended;
      if (!source.is_whole) store_release(memory_.taken(me_, copy.rank), word(source.ended));
    });
  }

  const StagedMemory memory_;
  const std::uint32_t me_;
  const Places places_;
  const Attached attached_;
  Line fills_, takes_;
  CopiedCall call_{};
  std::uint32_t number_ = 0;
  std::uint64_t piece_ = 0;
  std::uint32_t fills_wanted_ = 0, fills_started_ = 0, fills_ended_ = 0;
  bool has_own_ = false;  ///< to copy: what it gives itself
  std::vector<Source> sources_;
  std::uint64_t takes_to_end_ = 0;
};

}  // namespace mpix
