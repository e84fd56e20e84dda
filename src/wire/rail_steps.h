// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/rail.h"

/// What a rank does for an exchange between nodes, but for what its service does. Words and order are in rail.h. A crew
/// (collective_lines.h) has here:
///
/// | of a crew | a host stream's thread                 | a GPU's blocks                           |
/// |-----------|----------------------------------------|------------------------------------------|
/// | workers   | itself                                 | all threads of all blocks                |
/// | agree     | its own word                           | a barrier of the block                   |
/// | leads     | yes                                    | the first thread of the first block      |
/// | await     | serves, then naps. False: released     | looks. Likewise                          |
///
/// Where there are several blocks, phases are launches of their own: the end of a kernel is their barrier.
namespace mpix {

template <class Crew>
class RailSteps {
 public:
  MPIX_STEP RailSteps(const Crew& crew, const RailStep& step) : crew_(crew), s_(step), p_(step.places) {}

  /// False: released.
  MPIX_STEP bool run() {
    if (s_.does(RailStep::pack)) pack();
    number_ = load_relaxed(p_.number);
    if (s_.does(RailStep::fill) || s_.does(RailStep::meet)) ++number_;
    if (s_.does(RailStep::fill)) fill();
    if (s_.does(RailStep::meet) && !meet()) return false;
    if (s_.does(RailStep::take) && !take()) return false;
    if (s_.does(RailStep::leave)) {
      (void)crew_.agree(true);
      if (crew_.leads()) store_release(&p_.words->over, number_);
    }
    return true;
  }

 private:
  MPIX_STEP void pack() const {
    for (std::uint32_t i = 0; i < p_.locals * p_.columns; ++i)
      copy_bytes(s_.packing.to + i * s_.bytes, s_.packing.from + p_.target[i] * s_.packing.stride, s_.bytes,
                 crew_.workers());
  }

  MPIX_STEP void fill() const {
    for (std::uint32_t i = 0; i < p_.partners; ++i) {
      if (!s_.sends_data(i)) continue;
      const RailPartner partner = p_.partner[i];
      const bool same = s_.filling.by == RailStep::By::same;
      const std::uint64_t index = same                                    ? 0
                                  : s_.filling.by == RailStep::By::node   ? partner.node
                                  : s_.filling.by == RailStep::By::column ? partner.column
                                                                          : partner.rank;
      char* const to = p_.out_data(number_, same ? 0 : i);
      const char* const from = s_.filling.from + index * s_.filling.stride;
      for (std::uint32_t block = 0; block < s_.filling.blocks; ++block)
        copy_bytes(to + block * s_.bytes, from + block * s_.filling.block_stride, s_.bytes, crew_.workers());
      if (same) return;
    }
  }

  MPIX_STEP bool meet() const {
    bool good = crew_.agree(true);
    if (crew_.leads()) {
      const std::uint64_t words[6] = {s_.word,
                                      s_.sent_bytes(),
                                      s_.filling.to,
                                      s_.needs,
                                      s_.filling.by == RailStep::By::same ? 1u : 0u,
                                      static_cast<std::uint64_t>(s_.route)};
      const Lane lane{p_.words->tasks, 2};
      write_task(lane, number_, TaskKind::rail, words);
      fence_stores();
      publish_task(lane, number_);
      good = crew_.await(s_, number_);
      if (good) *p_.number = number_;
    }
    return crew_.agree(good);
  }

  /// Of operand i of those that are combined or moved; null: it is none.
  MPIX_STEP const char* operand(std::uint32_t i) const {
    const bool by_node = s_.taking.how == RailStep::Take::combine_nodes || s_.taking.how == RailStep::Take::nodes;
    const std::uint32_t partner = by_node ? p_.source[i] : p_.rank[i].partner;
    const std::uint64_t block = by_node ? 0 : p_.rank[i].local;
    if (partner != rail_nobody && s_.route == RailRoute::gathered)
      return p_.gathered + p_.gathered_at(number_, p_.partner[partner].node, s_.sent_bytes()) + block * s_.bytes;
    if (partner != rail_nobody) return p_.in_data(number_, partner) + block * s_.bytes;
    return s_.taking.own ? s_.taking.own + block * s_.taking.own_stride : nullptr;
  }

  MPIX_STEP bool take() const {
    switch (s_.taking.how) {
      case RailStep::Take::combine_nodes:
        return combine_all(p_.nodes);
      case RailStep::Take::combine_ranks:
        return combine_all(p_.ranks);
      case RailStep::Take::nodes:
        move_all(p_.nodes);
        return true;
      case RailStep::Take::ranks:
        move_all(p_.ranks);
        return true;
      case RailStep::Take::partner:
        copy_bytes(s_.taking.to, p_.in_data(number_, s_.taking.only), s_.bytes, crew_.workers());
        return true;
    }
    return true;
  }

  MPIX_STEP void move_all(std::uint32_t count) const {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (s_.taking.only != rail_everybody && s_.taking.only != i) continue;
      const char* const from = operand(i);
      char* const to = s_.taking.to + i * s_.taking.stride;
      if (from && from != to) copy_bytes(to, from, s_.bytes, crew_.workers());
    }
  }

  /// Operands in their order, into the result, which may be one of them.
  MPIX_STEP bool combine_all(std::uint32_t count) const {
    if (s_.taking.operation == Operation::by_function)
      return crew_.combine_by_function(s_, count, [this](std::uint32_t i) { return operand(i); });
    std::uintptr_t odd = reinterpret_cast<std::uintptr_t>(s_.taking.to);
    for (std::uint32_t i = 0; i < count; ++i) odd |= reinterpret_cast<std::uintptr_t>(operand(i));
    std::uint64_t done = 0;
    if (odd % 16 == 0) done = combine_quads<4>(count);
    combine_words(count, done);
    return true;
  }

  /// As many bytes as so many quads a worker and turn go into; returns how far it has come.
  template <std::uint32_t quads>
  MPIX_STEP std::uint64_t combine_quads(std::uint32_t count) const {
    const Workers workers = crew_.workers();
    const std::uint64_t turn = std::uint64_t{16} * quads * workers.size;
    std::uint64_t done = 0;
    for (; done + turn <= s_.bytes; done += turn) {
      const std::uint64_t at = done + 16 * workers.index;
      std::uint64_t result[2 * quads], next[2 * quads];
      load_quads<quads>(result, operand(0) + at, workers);
      for (std::uint32_t i = 1; i < count; ++i) {
        load_quads<quads>(next, operand(i) + at, workers);
        combine<2 * quads>(s_.taking.operation, s_.taking.element, result, next);
      }
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < quads; ++i)
        store_pair(s_.taking.to + at + std::uint64_t{16} * i * workers.size, result + 2 * i);
    }
    return done;
  }
  template <std::uint32_t quads>
  static MPIX_STEP void load_quads(std::uint64_t* words, const char* from, Workers workers) {
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < quads; ++i) load_pair(from + std::uint64_t{16} * i * workers.size, words + 2 * i);
  }

  /// What is left, or not aligned: two words a turn, so that all elements are whole.
  MPIX_STEP void combine_words(std::uint32_t count, std::uint64_t done) const {
    const Workers workers = crew_.workers();
    const std::uint64_t bytes = s_.bytes - done, words = (bytes + 7) / 8;
    for (std::uint64_t w = 2 * workers.index; w < words; w += 2 * workers.size) {
      std::uint64_t result[2] = {}, next[2] = {};
      const bool both = w + 1 < words;
      for (std::uint32_t i = 0; i < count; ++i) {
        const char* const from = operand(i) + done;
        next[0] = load_word(from, w, bytes);
        if (both) next[1] = load_word(from, w + 1, bytes);
        if (i == 0) {
          result[0] = next[0];
          result[1] = next[1];
        } else {
          combine<2>(s_.taking.operation, s_.taking.element, result, next);
        }
      }
      store_word(s_.taking.to + done, w, bytes, result[0]);
      if (both) store_word(s_.taking.to + done, w + 1, bytes, result[1]);
    }
  }

  const Crew& crew_;
  const RailStep& s_;
  const RailPlaces& p_;
  std::uint64_t number_ = 0;
};

}  // namespace mpix
