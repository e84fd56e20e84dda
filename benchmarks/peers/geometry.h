// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace peers {

/// One message of an exchange. All ranks have the same slots, in the same order: what an origin sends from
/// its slot arrives in that slot of its target. So slots of the same pair of ranks are in the same order on
/// both sides.
struct Message {
  std::size_t bytes;
  std::size_t slot;  ///< offset in the memory to send from, and in that to receive into
  int target;        ///< receives what is sent from the slot
  int origin;        ///< sends what arrives in the slot
};

/// What each rank sends to each other. A face is the largest message; edges and corners follow from it.
struct Exchange {
  std::string name;
  std::string about;
  std::size_t face;
  std::vector<Message> messages;
  std::size_t bytes;            ///< of all slots
  std::vector<int> neighbours;  ///< each rank once
};

/// near: a grid of 2 ranks a side, each rank with every other: faces, edges, a corner (2, 4 or 8 ranks).
/// full: a periodic grid in 3 dimensions, 26 messages a rank, however few ranks there are.
/// ring: both neighbours in a ring.
/// pair: the neighbour in a pair of ranks (even numbers of ranks).
/// Throws std::runtime_error if there is no such exchange of so many ranks.
Exchange make_exchange(const std::string& name, std::size_t face, int rank, int ranks);

}  // namespace peers
