// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpi_bootstrap.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "errors.h"

namespace mpix {

MpiBootstrap::MpiBootstrap(MPI_Comm comm, std::vector<int> nodes, std::vector<int> processes, unsigned flags)
    : comm_(comm), nodes_(std::move(nodes)), processes_(std::move(processes)), flags_(flags), packets_(nodes_.size()) {
  check(PMPI_Comm_rank(comm, &rank_));
}

void MpiBootstrap::gather(const void* mine, std::size_t bytes, void* all) {
  const int count = static_cast<int>(bytes);
  if (PMPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_) != MPI_SUCCESS) end("MPI_Allgather failed");
}

void MpiBootstrap::end(const std::string& verdict) {
  ended_ = true;
  verdict_ = verdict;
  throw Error(Fault::other, verdict_);
}

void MpiBootstrap::exchange(const Packet& mine) {
  gather(&mine, sizeof mine, packets_.data());
  for (const Packet& packet : packets_) flags_of_all_ |= packet.flags;
  const auto failed = std::find_if(packets_.begin(), packets_.end(), [](const Packet& p) { return p.failed; });
  if (failed == packets_.end()) return;
  // What the engine noticed on all ranks alike is nobody's in particular.
  const bool common = std::all_of(packets_.begin(), packets_.end(), [&](const Packet& p) {
    return p.failed && std::strcmp(p.bytes, failed->bytes) == 0;
  });
  end((common ? "" : "rank " + std::to_string(failed - packets_.begin()) + ": ") + failed->bytes);
}

void MpiBootstrap::allgather(const void* mine, std::size_t bytes, void* all) {
  if (ended_) throw Error(Fault::other, verdict_);
  Packet packet{};
  packet.flags = flags_;
  const std::size_t first = std::min(bytes, Packet::room);
  const std::size_t rest = bytes - first;
  // Memory first: between two collectives of one exchange no rank may leave.
  std::vector<char> rests(rest * packets_.size());
  std::memcpy(packet.bytes, mine, first);
  exchange(packet);
  char* out = static_cast<char*>(all);
  for (std::size_t r = 0; r < packets_.size(); ++r) std::memcpy(out + r * bytes, packets_[r].bytes, first);

  if (rest == 0) return;
  gather(static_cast<const char*>(mine) + first, rest, rests.data());
  for (std::size_t r = 0; r < packets_.size(); ++r) std::memcpy(out + r * bytes + first, &rests[r * rest], rest);
}

std::string MpiBootstrap::agree(const std::string& failure) {
  if (ended_) return verdict_;
  Packet packet{};
  packet.failed = 1;
  packet.flags = flags_;
  std::memcpy(packet.bytes, failure.data(), std::min(failure.size(), Packet::room - 1));
  try {
    exchange(packet);
  } catch (const Error&) {
    // The verdict says it.
  }
  return verdict_;
}

}  // namespace mpix
