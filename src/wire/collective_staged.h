// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "wire/collective.h"
#include "wire/collective_spans.h"
#include "wire/row_copy.h"

/// Staged calls: no kernel runs, so ranks that use a GPU in turns need no turn. The stream copies what its rank gives
/// into memory of the host that the ranks of the node share, and waits there, in memory operations; the service of each
/// rank combines, or moves, a part of it; then the stream copies the result out. No call is rooted: all wait for all.
///
/// Calls whose data the copy engine moves take the same steps, but for what is between arrived and done
/// (wire/collective_copied.h).
///
/// On a node a call is its one part; between nodes it may have others (collective/between_nodes.h), the same on all
/// ranks of a node whose calls are the same.
///
/// What does not go into that memory at once goes in pieces, one behind the other. Services number them, streams do
/// not: what a stream does is the same each time, so that a graph can hold it. Words of rank r, for piece k:
///
/// | word          | written by r's stream                 | by r's service                                          | read by            |
/// |---------------|---------------------------------------|---------------------------------------------------------|--------------------|
/// | part          | what is to be done, before sent       |                                                         | r's service        |
/// | copied, place | not 0: a CopiedCall; and where its data lie; before sent | copied: 0, as it takes sent          | r's service; place: all services |
/// | sent          | the call, behind the copies in        | 0, as it takes it                                       | r's service        |
/// | arrived, word | | k and the call, when it has taken sent                                                          | all services       |
/// | done          | | k, when its part of the result is there, of what all gave once arrived[] of all were k          | all services       |
/// | filled, taken | | of a copied call                                                                                | all services       |
/// | instead       | | once: a call of another way, in which r's stream waits for one that has arrived in k          | services that wait for r |
/// | go            | 0, when it has passed                 | 1, once done[] of all are k                             | r's stream         |
/// | over          | 1, behind the copies out              | 0, before go                                            | who ends the calls |
///
/// | memory       | is written                                    | may be written again                                   |
/// |--------------|-----------------------------------------------|--------------------------------------------------------|
/// | given(r)     | by r's copies in, before sent                 | behind go: all are done, and nobody reads it any more  |
/// | result(...)  | by services, behind arrived[] of all          | behind arrived[] of all of k + 1: a stream tells sent behind its copies out |
/// | word, place of r | before arrived                            | behind go: all have read it before they were done      |
/// | sent, part   | by r's stream                                 | behind go: the service has taken them before           |
///
/// arrived and done are releases, and acquired; a memory operation comes behind what is in front of it in its stream,
/// and before what is behind. tests/model/staged.pml.
namespace mpix {

struct StagedWords {
  alignas(64) Bell bell;  ///< of the stream, where it is the host's
  alignas(64) std::uint64_t sent;
  std::uint64_t part;
  std::uint64_t copied;
  alignas(64) std::uint64_t go;
  alignas(64) std::uint64_t over;
  alignas(64) std::uint64_t arrived;
  std::uint64_t word, place;
  std::uint64_t instead;
  alignas(64) std::uint64_t done;
  alignas(64) std::uint64_t filled;
  alignas(64) CollectiveNote note;  ///< for reports (collective/node_notes.h)
};

/// What the ranks of a node share.
struct StagedMemory {
  char* base = nullptr;
  std::uint32_t ranks = 0;
  std::uint64_t room = 0;  ///< of what a rank gives in a piece, and of a result

  StagedWords& words(std::uint32_t rank) const { return reinterpret_cast<StagedWords*>(base)[rank]; }
  /// What rank `by` has taken of what `of` has filled.
  std::uint64_t* taken(std::uint32_t by, std::uint32_t of) const {
    return reinterpret_cast<std::uint64_t*>(base + ranks * sizeof(StagedWords) + by * taken_bytes(ranks)) + of;
  }
  char* given(std::uint32_t rank) const {
    return base + ranks * (sizeof(StagedWords) + taken_bytes(ranks)) + rank * room;
  }
  char* result(std::uint32_t rank) const { return given(ranks + rank); }
  static std::uint64_t taken_bytes(std::uint32_t ranks) {
    return (ranks * sizeof(std::uint64_t) + 63) / 64 * 64;  // written by one rank
  }
  static std::uint64_t bytes(std::uint32_t ranks, std::uint64_t room) {
    return ranks * (sizeof(StagedWords) + taken_bytes(ranks) + 2 * room);
  }
};

/// A piece of each block of a call.
struct StagedPiece {
  std::uint64_t at, bytes;
};

inline bool sends_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::alltoall || kind == CollectiveKind::reduce_scatter;
}
inline StagedPiece staged_piece(const StagedMemory& memory, CollectiveKind kind, std::uint64_t at,
                                std::uint64_t bytes) {
  constexpr std::uint64_t unit = 64;  // holds whole elements
  const std::uint64_t most = memory.room / (sends_blocks(kind) ? memory.ranks : 1) / unit * unit;
  return {at, std::min(most, bytes - at)};
}

/// What the stream does in front of `sent`.
inline RowCopy copy_in(const StagedMemory& memory, const Collective& c, StagedPiece piece) {
  const bool gives = c.kind == CollectiveKind::bcast ? c.me == c.root : c.kind != CollectiveKind::barrier;
  if (!gives || piece.bytes == 0) return {};
  return {memory.given(c.me), piece.bytes, c.send + piece.at,
          c.send_stride,      piece.bytes, sends_blocks(c.kind) ? c.ranks() : 1};
}

/// And behind `go`.
inline RowCopy copy_out(const StagedMemory& memory, const Collective& c, StagedPiece piece) {
  if (!c.gets_result() || c.kind == CollectiveKind::barrier || piece.bytes == 0) return {};
  char* const to = c.recv + piece.at;
  switch (c.kind) {
    case CollectiveKind::allgather:
      return {to, c.recv_stride, memory.result(0), memory.room, piece.bytes, c.ranks()};
    case CollectiveKind::alltoall:
      return {to, c.recv_stride, memory.result(c.me), piece.bytes, piece.bytes, c.ranks()};
    case CollectiveKind::reduce_scatter:
      return {to, 0, memory.result(c.me), 0, piece.bytes, 1};
    default:
      return {to, 0, memory.result(0), 0, piece.bytes, 1};
  }
}

/// A rank's part of the result of a piece. Operands are combined in the order of the ranks.
class StagedPart {
 public:
  StagedPart(const StagedMemory& memory, const CallWord& call, std::uint32_t me, std::uint64_t bytes)
      : memory_(memory), call_(call), me_(me), bytes_(bytes) {}

  void make() const {
    const Span mine = cut(Span{0, bytes_}, me_, memory_.ranks);
    switch (call_.kind) {
      case CollectiveKind::barrier:
        return;
      case CollectiveKind::bcast:
        return move(memory_.result(0) + mine.begin, memory_.given(call_.root) + mine.begin, mine.bytes);
      case CollectiveKind::reduce:
      case CollectiveKind::allreduce:
        return combine(0, 0, mine);
      case CollectiveKind::reduce_scatter:
        return combine(me_ * bytes_, me_, Span{0, bytes_});
      case CollectiveKind::allgather:
        return move(memory_.result(me_), memory_.given(me_), bytes_);
      case CollectiveKind::alltoall:
        for (std::uint32_t rank = 0; rank < memory_.ranks; ++rank)
          move(memory_.result(me_) + rank * bytes_, memory_.given(rank) + me_ * bytes_, bytes_);
        return;
    }
  }

 private:
  static void move(char* to, const char* from, std::uint64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  /// Of what each rank gave, what lies `at`, into the result of a rank.
  void combine(std::uint64_t at, std::uint32_t into, Span span) const {
    const auto from = [&](std::uint32_t rank) -> const char* { return memory_.given(rank) + at; };
    const auto to = [&](std::uint32_t) -> char* { return memory_.result(into); };
    if (span.bytes > 0)
      combine_spans(Workers{0, 1}, call_.operation, call_.element, from, memory_.ranks, to, 0, 1, span);
  }

  const StagedMemory& memory_;
  const CallWord call_;
  const std::uint32_t me_;
  const std::uint64_t bytes_;
};

/// The service's steps of a rank.
class StagedSteps {
 public:
  StagedSteps(const StagedMemory& memory, std::uint32_t me) : memory_(memory), me_(me), mine_(memory.words(me)) {
    store_release(&mine_.over, 1);
  }

  enum class Step { nothing, took, made, moves, passed, differs };
  /// The next one, if it can be made. Behind `moves`, none until have_moved().
  Step step() {
    switch (state_) {
      case State::idle:
        return take();
      case State::gathering:
        return gather();
      case State::moving:
        return Step::nothing;
      case State::finishing:
        return finish();
    }
    return Step::nothing;
  }
  /// The data of the call that moves have.
  void have_moved() {
    store_release(&mine_.done, number_);
    state_ = State::finishing;
  }
  /// Of a broken communicator: let the stream pass.
  bool release() {
    const bool was_there = state_ != State::idle || load_acquire(&mine_.sent) != 0;
    if (!was_there) return false;
    store_release(&mine_.sent, 0);
    state_ = State::idle;
    store_release(&mine_.go, 1);
    return true;
  }

  bool is_idle() const { return state_ == State::idle; }
  /// It waits for that rank, which is not there yet.
  bool misses(std::uint32_t rank) const {
    if (state_ == State::idle) return false;
    const StagedWords& words = memory_.words(rank);
    return load_acquire(state_ == State::gathering ? &words.arrived : &words.done) != number_;
  }
  std::uint64_t number() const { return number_; }
  bool is_moving() const { return state_ == State::moving; }
  /// The CopiedCall of the call that is under way; 0: it is a staged one.
  std::uint64_t copied() const { return copied_; }
  /// Behind `differs`: whose call is another one, and which.
  std::uint32_t other() const { return other_; }
  std::uint64_t word() const { return word_; }
  std::uint64_t other_word() const {
    const std::uint64_t instead = load_acquire(&memory_.words(other_).instead);
    return instead != 0 ? instead : memory_.words(other_).word;
  }

 private:
  enum class State { idle, gathering, moving, finishing };

  Step take() {
    const std::uint64_t word = load_acquire(&mine_.sent);
    if (word == 0) return Step::nothing;
    part_ = mine_.part;
    copied_ = mine_.copied;
    mine_.copied = 0;
    store_release(&mine_.sent, 0);
    store_release(&mine_.over, 0);
    mine_.word = word_ = word;
    store_release(&mine_.arrived, ++number_);
    state_ = State::gathering;
    return Step::took;
  }
  Step gather() {
    for (std::uint32_t rank = 0; rank < memory_.ranks; ++rank) {
      if (!misses(rank)) continue;
      other_ = rank;
      return load_acquire(&memory_.words(rank).instead) != 0 ? Step::differs : Step::nothing;
    }
    for (other_ = 0; other_ < memory_.ranks; ++other_)
      if (other_word() != word_) return Step::differs;
    if (copied_ != 0) {
      state_ = State::moving;
      return Step::moves;
    }
    const CallWord part = CallWord::of(part_);
    const StagedPiece piece = staged_piece(memory_, part.kind, at_, part.bytes);
    StagedPart(memory_, part, me_, piece.bytes).make();
    at_ = piece.at + piece.bytes < part.bytes ? piece.at + piece.bytes : 0;
    store_release(&mine_.done, number_);
    state_ = State::finishing;
    return Step::made;
  }
  Step finish() {
    for (std::uint32_t rank = 0; rank < memory_.ranks; ++rank)
      if (misses(rank)) return Step::nothing;
    state_ = State::idle;
    store_release(&mine_.go, 1);
    return Step::passed;
  }

  const StagedMemory memory_;
  const std::uint32_t me_;
  StagedWords& mine_;
  State state_ = State::idle;
  std::uint64_t number_ = 0, word_ = 0, part_ = 0, copied_ = 0;
  std::uint64_t at_ = 0;  ///< of the next piece, in its call
  std::uint32_t other_ = 0;
};

}  // namespace mpix
