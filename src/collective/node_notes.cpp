// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/node_notes.h"

namespace mpix {

CollectiveNote* NodeNotes::note_of(std::size_t local) const {
  return on_host_.base ? &on_host_.words(static_cast<std::uint32_t>(local)).note
                       : reinterpret_cast<CollectiveNote*>(memory_[local] + at_);
}

std::uint64_t NodeNotes::load(const std::uint64_t* word) const {
  return on_host_.base ? load_acquire(word) : device_.read_word(word);
}

void NodeNotes::store(std::uint64_t* word, std::uint64_t value) {
  if (on_host_.base)
    store_release(word, value);
  else
    device_.write_word(word, value);
}

void NodeNotes::tell_wait(int rank) {
  if (memory_.size() == 1 || has_told_wait_ == (rank >= 0)) return;
  has_told_wait_ = rank >= 0;
  store(&note_of(me_)->waits, rank < 0 ? 0 : std::uint64_t{1} << 32 | static_cast<std::uint32_t>(rank));
}

void NodeNotes::tell_difference(const CallDifference& difference) {
  CallDifference& mine = note_of(me_)->difference;
  store(&mine.calls[0], difference.calls[0]);
  store(&mine.calls[1], difference.calls[1]);
  store(&mine.ranks, difference.ranks);
}

int NodeNotes::wait_of(std::size_t local) const {
  if (local == me_) return -1;
  const std::uint64_t word = load(&note_of(local)->waits);
  return word == 0 ? -1 : static_cast<int>(static_cast<std::uint32_t>(word));
}

CallDifference NodeNotes::difference_of(std::size_t local) const {
  const CallDifference& theirs = note_of(local)->difference;
  CallDifference difference{load(&theirs.ranks), {}};
  if (difference.is_known()) difference = {difference.ranks, {load(&theirs.calls[0]), load(&theirs.calls[1])}};
  return difference;
}

}  // namespace mpix
