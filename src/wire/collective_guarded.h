// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_lines.h"
#include "wire/collective_spans.h"
#include "wire/guard.h"

/// Calls behind guards, for a GPU that several ranks use in turns (wire/guard.h): turns are dear, and bytes are not. A
/// call is two launches. *Sends* wait for nobody: they copy what this rank gives into its own memory of the library.
/// In front of *receives* the stream waits in a memory operation until all others have sent; they read the memory of
/// all ranks, combine it, and write the result. A rank's receives and its next sends are in one turn, whatever the
/// size; what does not go into that memory at once is several calls. No call is rooted: all hear from all.
///
/// | word          | lies in | counts                                           | up                                  | down |
/// |---------------|---------|--------------------------------------------------|-------------------------------------|------|
/// | came[k mod 2] | t       | parts that the others have sent in call k        | by each part of o's sends           | by the last of them, by all |
/// | all_came      | t       | calls that all others have sent, less t's ended  | by the last of them                 | by t's receives |
///
/// The guard waits until all_came is 1, which a graph can hold. Then the kernel finds calls[k] and ready[] of all.
/// While t has not ended k nobody sends more than k + 1, so two words came are enough.
///
/// What o gives in k lies in the first or the second place of its memory, by k's step, where that of k - 2 was. Before
/// its sends of k it has waited for ready[] of k - 1 of all, so all have ended k - 2, and read it. A launch begins when
/// the one before has ended, so parts need not be told apart.
///
/// A step up is a release at system scope behind all that a part tells. Nobody reads anything else by the guard, and
/// one that passes too early costs time, not data: the kernels poll as ever. The guard asks for no more than the kernel
/// behind it (tests/model/guarded.pml).
namespace mpix {

constexpr std::uint64_t guarded_need = 1;

template <class Crew>
class GuardedCall {
 public:
  MPIX_STEP GuardedCall(const Crew& crew, const Collective& c)
      : crew_(crew),
        c_(c),
        state_(load_state(c.states() + crew.part)),
        call_(next_number(state_.call)),
        step_(next_number(state_.step)),
        part_(cut(Span{0, c.bytes}, crew.part, c.parts)) {}

  /// Whether all went well. In any case no guard is waited for behind receives; the service looks at the mark.
  MPIX_STEP bool run() {
    if (c_.half == CallHalf::sends) return run_sends();
    if (crew_.part == 0 && crew_.workers().index == 0) store_release(c_.guard_mark(), 0);
    return run_receives();
  }

 private:
  MPIX_STEP bool run_sends() const {
    announce_call(crew_, c_, call_);
    if (c_.gives()) {
      const bool by_blocks = c_.send_stride != 0;
      char* const to = c_.own() + c_.half_place(step_) + part_.begin;
      for (std::uint32_t block = 0; block < (by_blocks ? c_.ranks() : 1); ++block)
        if (!by_blocks || block != c_.me)
          copy_bytes(to + block * c_.piece_bytes, c_.send + block * c_.send_stride + part_.begin, part_.bytes,
                     crew_.workers());
    }
    (void)crew_.agree(true);  // all have copied theirs
    const Workers workers = crew_.workers();
    for (std::uint32_t rank = workers.index; rank < c_.ranks(); rank += workers.size) {
      if (rank == c_.me) continue;
      store_release(c_.ready(rank, crew_.part, c_.me), progress_word(call_, step_));
      count(rank);
      crew_.tell(rank);
    }
    if (crew_.part == 0 && workers.index == 0) {
      c_.host->called = c_.word;
      store_release(c_.guard_mark(), 1);
    }
    return true;
  }
  MPIX_STEP void count(std::uint32_t rank) const {
    // The first part counts for those that this launch does not have: another rank may have others, by mistake.
    const std::uint64_t mine = crew_.part == 0 ? most_parts - (c_.parts - 1) : 1, all = most_parts * (c_.ranks() - 1);
    std::uint64_t* const came = c_.came(rank, step_);
    if (fetch_add(came, mine) + mine != all) return;
    add_release(came, -all);
    step(c_.all_came(rank), 1);
  }

  MPIX_STEP bool run_receives() {
    const Workers workers = crew_.workers();
    bool good = true;
    for (std::uint32_t rank = workers.index; good && rank < c_.ranks(); rank += workers.size)
      if (rank != c_.me)
        good = calls_the_same(crew_, c_, c_.word, call_, rank) &&
               crew_.await(rank, c_.ready(c_.me, crew_.part, rank), progress_word(call_, step_));
    state_.call = call_;
    if (!crew_.agree(good)) return give_up_call(crew_, c_, state_);
    if (c_.gets_result() && !(c_.combines() ? combine_all() : take_all())) return give_up_call(crew_, c_, state_);
    state_.step = step_;
    (void)crew_.agree(true);  // what has run reads no memory of others any more
    leave_state(crew_, c_, state_, 1);
    if (crew_.part != 0 || workers.index != 0) return true;
    if (c_.ranks() > 1) step(c_.all_came(c_.me), -1);
    store_release(c_.guarded_ended(), call_);  // for the service
    return true;
  }

  struct Given {
    const GuardedCall& call;
    std::uint32_t block;  ///< of each rank's
    MPIX_STEP const char* operator()(std::uint32_t rank) const {
      const Collective& c = call.c_;
      if (rank == c.me) return c.send + block * c.send_stride;
      return c.memory(rank) + c.half_place(call.step_) + block * c.piece_bytes;
    }
  };
  struct Result {
    const Collective& c;
    MPIX_STEP char* operator()(std::uint32_t) const { return c.recv; }
  };
  MPIX_STEP bool combine_all() const {
    const Given given{*this, c_.send_stride != 0 ? c_.me : 0};
    if (c_.operation == Operation::by_function) return crew_.combine_by_function(c_, given, part_);
    combine_spans(crew_.workers(), c_.operation, c_.element, given, c_.ranks(), Result{c_}, 0, 1, part_);
    return true;
  }
  MPIX_STEP bool take_all() const {
    const Given given{*this, c_.send_stride != 0 ? c_.me : 0};
    for (std::uint32_t rank = 0; rank < c_.ranks(); ++rank) {
      if (c_.kind == CollectiveKind::bcast ? rank != c_.root : c_.kind == CollectiveKind::barrier) continue;
      char* const to = c_.recv + rank * c_.recv_stride;
      if (given(rank) != to) copy_bytes(to + part_.begin, given(rank) + part_.begin, part_.bytes, crew_.workers());
    }
    return true;
  }

  const Crew& crew_;
  const Collective& c_;
  CollectiveState state_;
  const std::uint32_t call_, step_;
  const Span part_;
};

}  // namespace mpix
