// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_lines.h"
#include "wire/guard.h"

/// Calls behind guards, for a GPU that several ranks use in turns (wire/guard.h). A call is two launches, the sends and
/// the receives, and the stream waits in memory operations in front of both. Together they do what run_by_lines does
/// with a call of one step, in the same order; a call that would have several is as many calls.
///
/// Guards wait on a word that counts, for each ordered pair o -> t:
///
/// | word    | lies in | counts                                                     | up             | down              |
/// |---------|---------|------------------------------------------------------------|----------------|-------------------|
/// | come[o] | t       | o's calls begun less t's ended, in most_parts; and as much | by o's sends   | by t's receives   |
/// |         |         | again from the start, as t may end a call before o begins it |              |                   |
///
/// | guard of t's    | waits for                                        | then the kernel finds                           |
/// |-----------------|--------------------------------------------------|-------------------------------------------------|
/// | sends of k      | come >= most_parts, of all others: o has begun   | of all the line of calls[k - 1] (it looks where |
/// |                 | k - 1, as t has ended that                       | k - 1 was rooted)                               |
/// | receives of k   | come >= 2 most_parts, of those that it hears     | their lines of k                                |
///
/// A step up is a release at system scope behind the lines of a part. As there, nobody reads anything else by a guard,
/// and one that passes too early costs time, not data: the kernels poll as ever. A guard asks for no more than the
/// kernel behind it, so it adds no deadlock; sends wait for nobody's receives (tests/model/guarded.pml).
namespace mpix {

constexpr std::uint64_t come_at_first = most_parts, come_before_sends = most_parts,
                        come_before_receives = 2 * most_parts;

template <class Crew>
MPIX_STEP void add_come(const Crew& crew, const Collective& c, bool up) {
  const Workers workers = crew.workers();
  for (std::uint32_t rank = workers.index; rank < c.ranks(); rank += workers.size) {
    if (rank == c.me) continue;
    if (up) {  // the first part counts for those that this launch does not have
      step(c.come_at(rank), crew.part == 0 ? most_parts - (c.parts - 1) : 1);
      crew.tell(rank);
    } else {
      step(c.come(rank), -static_cast<std::int64_t>(most_parts));
    }
  }
}

/// The words that a part of a call of one step has.
struct WordsOfPart {
  std::uint64_t first, last;
  MPIX_FN WordsOfPart(const Collective& c, std::uint32_t part) {
    const std::uint64_t words = (c.bytes + 7) / 8, of_part = c.chunk_words / c.parts;
    first = part * of_part < words ? part * of_part : words;
    last = first + of_part < words ? first + of_part : words;
  }
};

template <class Crew>
MPIX_STEP bool run_sends(const Crew& crew, const Collective& c) {
  const CollectiveState state = load_state(c.states() + crew.part);
  if (!await_call_before(crew, c, state)) return false;
  announce_call(crew, c, next_number(state.call));
  const WordsOfPart words(c, crew.part);
  send_lines(crew, c, next_number(state.step), 0, words.first, words.last);
  (void)crew.agree(true);  // all have sent
  add_come(crew, c, true);
  return true;
}

template <class Crew>
MPIX_STEP bool run_receives(const Crew& crew, const Collective& c) {
  CollectiveState state = load_state(c.states() + crew.part);
  const std::uint32_t call = state.call = next_number(state.call), number = state.step = next_number(state.step);
  if (!all_call_the_same(crew, c, call)) return false;
  const WordsOfPart words(c, crew.part);
  if (c.gets_result()) {
    bool good = true;
    if (!c.combines())
      good = take_lines(crew, c, number, 0, words.first, words.last);
    else if (c.operation == Operation::by_function)
      good = crew.combine_by_function(c, number, 0, words.first, words.last);
    else if (words_of(c.element) == 2)
      good = combine_lines<2>(crew, c, number, 0, words.first, words.last);
    else
      good = combine_lines<1>(crew, c, number, 0, words.first, words.last);
    if (!crew.agree(good)) return false;
  }
  const std::uint32_t used = static_cast<std::uint32_t>(c.chunk_words);
  sweep(crew, c, state, number, used);
  if (state.highest < used) state.highest = used;
  leave_state(crew, c, state, 1);
  if (crew.part == 0) {
    add_come(crew, c, false);
    if (crew.workers().index == 0) store_release(c.guarded_ended(), call);  // for the service
  }
  return true;
}

/// Whether all went well. The mark is cleared in any case.
template <class Crew>
MPIX_STEP bool run_guarded(const Crew& crew, const Collective& c) {
  if (crew.part == 0 && crew.workers().index == 0) store_release(c.guard_mark(), 0);
  return c.half == CallHalf::sends ? run_sends(crew, c) : run_receives(crew, c);
}

}  // namespace mpix
