// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "group_ranks.h"

#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>

#include "errors.h"
#include "program.h"

namespace mpix {
namespace {

/// Grows before a group is freed.
std::atomic<std::uint64_t> groups_freed{1};

struct Known {
  MPI_Group group;
  std::uint64_t window;  ///< its number: unlike its address never another's
  std::uint64_t freed;   ///< of groups_freed; 0: empty
  std::vector<int> ranks;
};
constexpr unsigned known_bits = 3;

void translate(const WinState& state, MPI_Group group, std::vector<int>& in_window) {
  thread_local std::vector<int> in_group;
  int size = 0;
  check(PMPI_Group_size(group, &size));
  const auto count = static_cast<std::size_t>(size);
  in_window.resize(count);
  if (in_group.size() < count) {
    in_group.resize(count);
    std::iota(in_group.begin(), in_group.end(), 0);
  }
  if (size > 0) check(PMPI_Group_translate_ranks(group, size, in_group.data(), state.group, in_window.data()));
  for (int rank = 0; rank < size; ++rank)
    if (in_window[static_cast<std::size_t>(rank)] == MPI_UNDEFINED)
      throw Error(Fault::rank,
                  "rank " + std::to_string(rank) + " of the group is a process that is not in the window's group");
}

}  // namespace

const std::vector<int>& ranks_in_window(const WinState& state, MPI_Group group) {
  thread_local Known known[1u << known_bits];
  if (group == MPI_GROUP_NULL) throw Error(Fault::communication_group, "the group is MPI_GROUP_NULL");
  const bool remembers = !fortran_is_loaded();
  const std::uint64_t freed = groups_freed.load(std::memory_order_acquire);
  Known& slot = known[slot_of_handle<known_bits>(group)];
  if (remembers && slot.group == group && slot.window == state.number && slot.freed == freed) return slot.ranks;
  slot.freed = 0;
  translate(state, group, slot.ranks);
  slot.group = group;
  slot.window = state.number;
  slot.freed = remembers ? freed : 0;
  return slot.ranks;
}

}  // namespace mpix

MPIX_INTERPOSED int MPI_Group_free(MPI_Group* group) {
  mpix::groups_freed.fetch_add(1, std::memory_order_release);
  return PMPI_Group_free(group);
}
