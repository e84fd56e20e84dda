// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective.h"

/// The steps of a call by lines, and what it shares with direct ones; the words and the order argument are in
/// collective.h. Those who do the steps of a part together are a crew:
///
/// | of a crew     | a host stream's thread         | a block of a GPU                                        |
/// |---------------|--------------------------------|---------------------------------------------------------|
/// | part          | 0, the only one                | which                                                   |
/// | counted_parts | 1                              | most_parts: as many states are kept                     |
/// | workers       | itself                         | its threads                                             |
/// | agree         | its own word                   | a barrier: whether all say yes                          |
/// | await         | looks, then sleeps on its bell | looks; each for itself. False: the wait is released     |
/// | tell          | rings the rank's bell          | nothing                                                 |
/// | now           | nanoseconds                    | cycles of its multiprocessor                            |
/// | batch         | lines looked at in one go      |                                                         |
/// | root_has_all  | no                             | yes: see collective_direct.h                            |
namespace mpix {

MPIX_STEP CollectiveState load_state(const CollectiveState* from) {
  std::uint64_t words[sizeof(CollectiveState) / 8];
  static_assert(sizeof words == 32, "two pairs");
  load_pair(from, words);
  load_pair(reinterpret_cast<const char*>(from) + 16, words + 2);
  CollectiveState state;
  memcpy(&state, words, sizeof state);
  return state;
}

/// Has rank `rank` called the same, which is `mine`?
template <class Crew>
MPIX_STEP bool calls_the_same(const Crew& crew, const Collective& c, std::uint64_t mine, std::uint32_t call,
                              std::uint32_t rank) {
  std::uint64_t theirs = 0;
  if (!crew.await(rank, c.call_line(c.me, rank, call), call, &theirs)) return false;
  if (theirs == mine) return true;
  crew.report(rank, mine, theirs);
  return false;
}

/// Before anything is written. False: the wait is released.
template <class Crew>
MPIX_STEP bool await_call_before(const Crew& crew, const Collective& c, const CollectiveState& state) {
  if (!state.rooted) return true;
  const Workers workers = crew.workers();
  bool good = true;
  for (std::uint32_t rank = workers.index; good && rank < c.ranks(); rank += workers.size)
    if (rank != c.me) good = calls_the_same(crew, c, state.word, state.call, rank);
  if (state.several_steps) {
    const std::uint32_t words = state.parts * c.ranks();
    for (std::uint32_t i = workers.index; good && i < words; i += workers.size)
      if (i % c.ranks() != c.me)
        good = crew.await(i % c.ranks(), c.begun(c.me, i / c.ranks(), i % c.ranks()),
                          progress_word(state.call, state.step));
  }
  return crew.agree(good);
}

template <class Crew>
MPIX_STEP void announce_call(const Crew& crew, const Collective& c, std::uint32_t call) {
  if (crew.part != 0) return;
  const Workers workers = crew.workers();
  for (std::uint32_t rank = workers.index; rank < c.ranks(); rank += workers.size) {
    if (rank == c.me) continue;
    if (c.direct) {
      Line* const places = c.place_lines(rank, c.me, call);
      write_entry(places, c.send_place, c.recv_place, call);
    }
    write_line(c.call_line(rank, c.me, call), c.word, call);
    if (c.direct || !c.sends_to(rank)) crew.tell(rank);
  }
}

/// A line beyond those that the call uses; see collective.h.
template <class Crew>
MPIX_STEP void sweep(const Crew& crew, const Collective& c, CollectiveState& state, std::uint32_t step,
                     std::uint32_t used, const Workers& workers) {
  if (crew.part != 0) return;
  std::uint32_t& next = state.swept[step % 2];
  const std::uint32_t at = next < used || next >= state.highest ? used : next;
  for (std::uint32_t rank = workers.index; rank < c.ranks(); rank += workers.size) {
    Line* const places = c.place_lines(c.me, rank, state.call);
    places[0] = places[1] = Line{};
    if (state.highest > used) c.lines(c.me, rank, step)[at] = Line{};
  }
  next = at + 1;
}

template <class Crew>
MPIX_STEP void leave_state(const Crew& crew, const Collective& c, CollectiveState state, std::uint32_t steps,
                           const Workers& workers) {
  state.word = c.word;
  state.parts = static_cast<std::uint16_t>(c.parts);
  state.rooted = c.is_rooted();
  state.several_steps = steps > 1;
  if (workers.index == 0) c.states()[crew.part] = state;
  if (crew.part != 0) return;
  for (std::uint32_t part = c.launched + workers.index; part < Crew::counted_parts; part += workers.size)
    c.states()[part] = state;
}
template <class Crew>
MPIX_STEP void leave_state(const Crew& crew, const Collective& c, const CollectiveState& state, std::uint32_t steps) {
  leave_state(crew, c, state, steps, crew.workers());
}

/// A call that has had its number is given up: the next one has another, and the others have heard of this one.
template <class Crew>
MPIX_STEP bool give_up_call(const Crew& crew, const Collective& c, const CollectiveState& state) {
  leave_state(crew, c, state, 1);
  return false;
}

/// A part that was launched and has nothing to do.
template <class Crew>
MPIX_STEP bool leave_unused(const Crew& crew, const Collective& c, CollectiveState state, std::uint32_t steps) {
  state.call = next_number(state.call);
  for (std::uint32_t i = 0; i < steps; ++i) state.step = next_number(state.step);
  leave_state(crew, c, state, steps);
  return true;
}

/// Words [first, last) of the operands of all ranks, as they come; into the result.
template <std::uint32_t unit, class Crew>
MPIX_STEP bool combine_lines(const Crew& crew, const Collective& c, std::uint32_t step, std::uint64_t chunk,
                             std::uint64_t first, std::uint64_t last) {
  const Workers workers = crew.workers();
  const char* const own = c.send + c.me * c.send_stride;
  const Line* const place = c.lines(c.me, 0, step);
  for (std::uint64_t i = first + workers.index * unit; i < last; i += workers.size * unit) {
    std::uint64_t result[unit] = {};
    for (std::uint32_t from = 0; from < c.ranks(); from += Crew::batch) {
      std::uint64_t words[Crew::batch][unit];
      bool there[Crew::batch][unit];
      MPIX_UNROLL
      for (std::uint32_t k = 0; k < Crew::batch; ++k) {
        const std::uint32_t rank = from + k;
        MPIX_UNROLL
        for (std::uint32_t u = 0; u < unit; ++u) {
          there[k][u] = rank >= c.ranks() || i + u >= last;
          if (there[k][u]) continue;
          if (rank == c.me) {
            words[k][u] = load_word(own, chunk + i + u, c.bytes);
            there[k][u] = true;
          } else {
            there[k][u] = line_arrived(place + std::uint64_t{rank} * c.places.lines + i + u, step, &words[k][u]);
          }
        }
      }
      MPIX_UNROLL
      for (std::uint32_t k = 0; k < Crew::batch; ++k) {
        const std::uint32_t rank = from + k;
        if (rank >= c.ranks()) break;
        MPIX_UNROLL
        for (std::uint32_t u = 0; u < unit; ++u)
          if (!there[k][u] &&
              !crew.await(rank, place + std::uint64_t{rank} * c.places.lines + i + u, step, &words[k][u]))
            return false;
        if (rank == 0) {
          MPIX_UNROLL
          for (std::uint32_t u = 0; u < unit; ++u) result[u] = words[k][u];
        } else {
          combine<unit>(c.operation, c.element, result, words[k]);
        }
      }
    }
    MPIX_UNROLL
    for (std::uint32_t u = 0; u < unit; ++u)
      if (i + u < last) store_word(c.recv, chunk + i + u, c.bytes, result[u]);
  }
  return true;
}

/// Words [first, last) of the block of each rank that this one hears.
template <class Crew>
MPIX_STEP bool take_lines(const Crew& crew, const Collective& c, std::uint32_t step, std::uint64_t chunk,
                          std::uint64_t first, std::uint64_t last) {
  const Workers workers = crew.workers();
  for (std::uint32_t rank = 0; rank < c.ranks(); ++rank) {
    char* const to = c.recv + rank * c.recv_stride;
    if (c.hears(rank)) {
      const Line* const place = c.lines(c.me, rank, step);
      for (std::uint64_t i = first + workers.index; i < last; i += workers.size) {
        std::uint64_t word = 0;
        if (!crew.await(rank, place + i, step, &word)) return false;
        store_word(to, chunk + i, c.bytes, word);
      }
    } else if (rank == c.me && c.kind != CollectiveKind::bcast) {
      const char* const from = c.send + rank * c.send_stride;
      if (from == to) continue;
      for (std::uint64_t i = first + workers.index; i < last; i += workers.size)
        store_word(to, chunk + i, c.bytes, load_word(from, chunk + i, c.bytes));
    }
  }
  return true;
}

template <class Crew>
MPIX_STEP void send_lines(const Crew& crew, const Collective& c, std::uint32_t step, std::uint64_t chunk,
                          std::uint64_t first, std::uint64_t last) {
  const Workers workers = crew.workers();
  // Each begins with the rank behind its own, lest all send to one at a time.
  for (std::uint32_t next = 1; next < c.ranks(); ++next) {
    const std::uint32_t rank = c.me + next < c.ranks() ? c.me + next : c.me + next - c.ranks();
    if (!c.sends_to(rank)) continue;
    const char* const from = c.send + rank * c.send_stride;
    Line* const place = c.lines(rank, c.me, step);
    for (std::uint64_t i = first + workers.index; i < last; i += workers.size)
      write_line(place + i, load_word(from, chunk + i, c.bytes), step);
    crew.tell(rank);
  }
}

/// A part without data in a step: its first line goes to all, and comes from all.
template <class Crew>
MPIX_STEP bool exchange_nothing(const Crew& crew, const Collective& c, std::uint32_t step, std::uint64_t line) {
  const Workers workers = crew.workers();
  bool good = true;
  for (std::uint32_t rank = workers.index; rank < c.ranks(); rank += workers.size) {
    if (rank == c.me) continue;
    write_line(c.lines(rank, c.me, step) + line, 0, step);
    crew.tell(rank);
  }
  for (std::uint32_t rank = workers.index; good && rank < c.ranks(); rank += workers.size) {
    std::uint64_t nothing = 0;
    if (rank != c.me) good = crew.await(rank, c.lines(c.me, rank, step) + line, step, &nothing);
  }
  return crew.agree(good);
}

/// The ranks that this one hears have called the same. All parts look: none writes a result before.
template <class Crew>
MPIX_STEP bool all_call_the_same(const Crew& crew, const Collective& c, std::uint32_t call) {
  const Workers workers = crew.workers();
  bool good = true;
  for (std::uint32_t rank = workers.index; good && rank < c.ranks(); rank += workers.size)
    if (c.hears(rank)) good = calls_the_same(crew, c, c.word, call, rank);
  return crew.agree(good);
}

/// A call by lines. False: it was released, or the ranks have called different things.
template <class Crew>
MPIX_STEP bool run_by_lines(const Crew& crew, const Collective& c) {
  CollectiveState state = load_state(c.states() + crew.part);
  const std::uint64_t words = (c.bytes + 7) / 8;
  const std::uint32_t steps = words == 0 ? 1 : static_cast<std::uint32_t>((words + c.chunk_words - 1) / c.chunk_words);
  if (crew.part >= c.parts) return leave_unused(crew, c, state, steps);
  if (!await_call_before(crew, c, state)) return false;
  const std::uint32_t call = state.call = next_number(state.call);
  announce_call(crew, c, call);
  const std::uint64_t of_part = c.chunk_words / c.parts;
  const std::uint32_t used = static_cast<std::uint32_t>(c.chunk_words);
  const Workers workers = crew.workers();
  const bool is_paced = c.is_rooted() && steps > 1;
  for (std::uint32_t i = 0; i < steps; ++i) {
    const std::uint32_t before = state.step, step = state.step = next_number(before);
    const std::uint64_t chunk = i * c.chunk_words;
    const std::uint64_t length = words - chunk < c.chunk_words ? words - chunk : c.chunk_words;
    const std::uint64_t first = crew.part * of_part < length ? crew.part * of_part : length;
    const std::uint64_t last = first + of_part < length ? first + of_part : length;
    if (is_paced) {
      bool good = true;
      for (std::uint32_t rank = workers.index; rank < c.ranks(); rank += workers.size) {
        if (rank == c.me) continue;
        store_after_loads(c.begun(rank, crew.part, c.me), progress_word(call, step));
        crew.tell(rank);
        if (i == 0 || !c.sends_to(rank)) continue;
        // In another call it may have no steps to wait for, and this rank need not hear from it.
        good = good && (i > 1 || calls_the_same(crew, c, c.word, call, rank)) &&
               crew.await(rank, c.begun(c.me, crew.part, rank), progress_word(call, before));
      }
      if (!crew.agree(good)) return give_up_call(crew, c, state);
    }
    send_lines(crew, c, step, chunk, first, last);
    // What is sent has been read before results are written, which may be in its place.
    if (i == 0 ? !all_call_the_same(crew, c, call) : !crew.agree(true)) return give_up_call(crew, c, state);
    if (c.gets_result()) {
      bool good = true;
      if (!c.combines())
        good = take_lines(crew, c, step, chunk, first, last);
      else if (c.operation == Operation::by_function)
        good = crew.combine_by_function(c, step, chunk, first, last);
      else if (words_of(c.element) == 2)
        good = combine_lines<2>(crew, c, step, chunk, first, last);
      else
        good = combine_lines<1>(crew, c, step, chunk, first, last);
      if (!crew.agree(good)) return give_up_call(crew, c, state);
    }
    if (first == last && i > 0 && !c.is_rooted() && !exchange_nothing(crew, c, step, crew.part * of_part))
      return give_up_call(crew, c, state);
    if (i + 1 == steps) sweep(crew, c, state, step, used, workers);
  }
  if (state.highest < used) state.highest = used;
  leave_state(crew, c, state, steps);
  return true;
}

}  // namespace mpix
