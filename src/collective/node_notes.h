// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/device.h"
#include "wire/collective_staged.h"

namespace mpix {

/// What the ranks of a node tell each other for their reports: each its own, in its memory for collectives, or where
/// there are staged calls in the node's. Waits: 0, or 1 and the rank of another node that its service waits for.
///
/// A rank that wants to know asks, seldom: for a GPU that is a copy.
class NodeNotes {
 public:
  /// `memory`: for collectives, by rank of the node; in each a note at `at`. `on_host`: if there is some: staged calls
  /// wait for the service, which must not wait for a GPU then.
  NodeNotes(Device& device, std::vector<char*> memory, std::uint64_t at, std::uint32_t me, const StagedMemory& on_host)
      : device_(device), memory_(std::move(memory)), at_(at), me_(me), on_host_(on_host) {}

  /// This rank waits for one of another node; -1: for nobody any more. By one thread at a time.
  void tell_wait(int rank);
  /// Once.
  void tell_difference(const CallDifference& difference);

  // Of a rank of this node, by its number there; any thread.
  /// Whom it waits for; -1: it has not told.
  int wait_of(std::size_t local) const;
  CallDifference difference_of(std::size_t local) const;

 private:
  CollectiveNote* note_of(std::size_t local) const;
  std::uint64_t load(const std::uint64_t* word) const;
  void store(std::uint64_t* word, std::uint64_t value);

  Device& device_;
  const std::vector<char*> memory_;
  const std::uint64_t at_;
  const std::uint32_t me_;
  const StagedMemory on_host_;
  bool has_told_wait_ = false;
};

}  // namespace mpix
