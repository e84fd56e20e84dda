// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/outgoing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "wire/memory.h"

namespace mpix {

namespace {

using Hold = std::lock_guard<std::mutex>;

/// Of a chunk, where an epoch does not need more.
constexpr std::uint64_t most_units_ahead = (std::uint64_t{64} << 20) / Outgoing::unit;

}  // namespace

void Outgoing::add_chunk(std::uint64_t units) {
  // One unit between two chunks belongs to none: their pieces never touch.
  if (end_ + units + 1 > most_units)
    throw Error(Fault::memory, "the puts of all epochs to ranks of other nodes need more than 16 GiB of pinned memory");
  Chunk chunk{end_, units, device_.allocate_pinned(units * unit), nullptr};
  chunk.registration = network_.register_source(chunk.memory.get(), units * unit);
  end_ += units + 1;
  free_.emplace(chunk.first, units);
  chunks_.push_back(std::move(chunk));
}

const Outgoing::Chunk& Outgoing::chunk_of(std::uint64_t place) const {
  return *std::find_if(chunks_.begin(), chunks_.end(),
                       [&](const Chunk& chunk) { return place >= chunk.first && place < chunk.first + chunk.units; });
}

Outgoing::Block Outgoing::take(std::size_t bytes) {
  const std::uint64_t units = rounded_up(bytes) / unit;
  Hold hold(mutex_);
  take_back();
  const auto fits = [&](const auto& piece) { return piece.second >= units; };
  auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) {
    add_chunk(std::max(units, chunks_.empty() ? least_ : std::min(2 * chunks_.back().units, most_units_ahead)));
    found = std::find_if(free_.begin(), free_.end(), fits);
  }
  const std::uint64_t place = found->first, left = found->second - units;
  free_.erase(found);
  if (left > 0) free_.emplace(place + units, left);
  const Chunk& chunk = chunk_of(place);
  return {chunk.memory.get() + (place - chunk.first) * unit, place};
}

void Outgoing::give_back(const Block& block, std::size_t bytes, const Epochs& epochs) {
  Hold hold(mutex_);
  leaving_.push_back({block.place, rounded_up(bytes) / unit, load_acquire(epochs.sent), epochs.finished});
}

void Outgoing::take_back() {
  const auto gone = std::remove_if(leaving_.begin(), leaving_.end(), [this](const Leaving& piece) {
    if (load_acquire(piece.finished) < piece.sent) return false;
    put_back(piece.first, piece.units);
    return true;
  });
  leaving_.erase(gone, leaving_.end());
}

void Outgoing::put_back(std::uint64_t first, std::uint64_t units) {
  const auto next = free_.lower_bound(first);
  if (next != free_.end() && first + units == next->first) {
    units += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(first);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == first) {
      before->second += units;
      return;
    }
  }
  free_.emplace(first, units);
}

Outgoing::Source Outgoing::source(std::uint64_t place) {
  Hold hold(mutex_);
  const Chunk& chunk = chunk_of(place);
  return {chunk.memory.get() + (place - chunk.first) * unit, chunk.registration.get()};
}

}  // namespace mpix
