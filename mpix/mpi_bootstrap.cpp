// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpi_bootstrap.h"

#include <algorithm>
#include <cstring>

#include "errors.h"
#include "team/differing.h"

namespace mpix {
namespace {

constexpr std::size_t text_bytes = 384;

}  // namespace

MpiBootstrap::MpiBootstrap(MPI_Comm comm, const CommState& state, unsigned flags, int more)
    : comm_(comm),
      state_(state),
      flags_(flags),
      exchanges_before_node_(std::max(more, 0) + (state.team            ? 0
                                                  : state.spans_nodes() ? 2
                                                                        : 1)),
      node_is_over_(more == no_node),
      packets_(state.nodes.size()) {
  check(PMPI_Comm_rank(comm, &rank_));
}

void MpiBootstrap::gather(const void* mine, std::size_t bytes, void* all, MPI_Comm comm) {
  const int count = static_cast<int>(bytes);
  if (PMPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm) != MPI_SUCCESS) end("MPI_Allgather failed");
}

void MpiBootstrap::end(const std::string& verdict) {
  ended_ = true;
  verdict_ = verdict;
  throw Error(fault_, verdict_);
}

void MpiBootstrap::exchange(const Packet& mine, const std::string& failure) {
  gather(&mine, sizeof mine, packets_.data(), comm_);
  if (exchanges_before_node_ > 0) --exchanges_before_node_;
  flags_of_all_ = 0;
  for (const Packet& packet : packets_) flags_of_all_ |= packet.flags;
  if (std::all_of(packets_.begin(), packets_.end(), [](const Packet& p) { return p.state == goes_along; })) return;

  // All see that, and tell how.
  std::vector<char> own(text_bytes), texts(text_bytes * packets_.size());
  std::memcpy(own.data(), failure.data(), std::min(failure.size(), text_bytes - 1));
  gather(own.data(), text_bytes, texts.data(), comm_);
  const auto text_of = [&](std::size_t rank) { return std::string(&texts[rank * text_bytes]); };
  const auto has_failed = [](const Packet& p) { return p.state == failed; };
  const auto first =
      static_cast<std::size_t>(std::find_if(packets_.begin(), packets_.end(), has_failed) - packets_.begin());
  if (first == packets_.size()) end("MPI_Allgather failed on a node");
  // What the engine noticed on several ranks alike is nobody's in particular, and it names a rank itself.
  const std::string text = text_of(first);
  fault_ = static_cast<Fault>(packets_[first].fault);
  bool common = true;
  for (std::size_t rank = 0; rank < packets_.size(); ++rank)
    common = common && has_failed(packets_[rank]) && text_of(rank) == text;
  end((common || text.rfind("rank ", 0) == 0 ? "" : "rank " + std::to_string(first) + ": ") + text);
}

void MpiBootstrap::allgather(const void* mine, std::size_t bytes, void* all) {
  if (ended_) throw Error(fault_, verdict_);
  Packet packet{};
  packet.flags = static_cast<std::uint8_t>(flags());
  const std::size_t first = std::min(bytes, Packet::room);
  const std::size_t rest = bytes - first;
  // Memory first: between two collectives of one exchange no rank may leave.
  std::vector<char> rests(rest * packets_.size());
  std::memcpy(packet.bytes, mine, first);
  exchange(packet, "");
  char* out = static_cast<char*>(all);
  for (std::size_t r = 0; r < packets_.size(); ++r) std::memcpy(out + r * bytes, packets_[r].bytes, first);

  if (rest == 0) return;
  gather(static_cast<const char*>(mine) + first, rest, rests.data(), comm_);
  for (std::size_t r = 0; r < packets_.size(); ++r) std::memcpy(out + r * bytes + first, &rests[r * rest], rest);
}

void MpiBootstrap::node_allgather(const void* mine, std::size_t bytes, void* all) {
  if (ended_) throw Error(fault_, verdict_);
  if (bytes > NodePacket::room) throw Error(Fault::other, "a card is too large");
  NodePacket packet{};
  std::memcpy(packet.bytes, mine, bytes);
  const std::vector<NodePacket> packets = exchange_on_node(packet);
  char* out = static_cast<char*>(all);
  for (const NodePacket& one : packets) {
    std::memcpy(out, one.bytes, bytes);
    out += bytes;
    has_heard_ = has_heard_ || one.state != goes_along;
  }
  if (has_heard_) throw Error(Fault::other, "another rank of the node failed");
}

std::vector<MpiBootstrap::NodePacket> MpiBootstrap::exchange_on_node(const NodePacket& mine) {
  int locals = 0;
  check(PMPI_Comm_size(state_.node, &locals));
  std::vector<NodePacket> packets(static_cast<std::size_t>(locals));
  node_is_over_ = true;
  gather(&mine, sizeof mine, packets.data(), state_.node);
  return packets;
}

std::string MpiBootstrap::agree(const std::string& failure, Fault fault) {
  if (ended_) return verdict_;
  try {
    if (exchanges_before_node_ == 0 && !node_is_over_) {
      NodePacket packet{};
      packet.state = failed;
      exchange_on_node(packet);
    }
    Packet packet{};
    packet.state = has_heard_ ? heard_of_one : failed;
    packet.fault = static_cast<std::uint8_t>(fault);
    packet.flags = static_cast<std::uint8_t>(flags());
    exchange(packet, failure);
  } catch (const Error&) {
    // The verdict says it.
  }
  return verdict_;
}

void check_same_call(const std::string& name, Bootstrap& ranks, Fault fault) {
  struct Called {
    char name[32];
  } mine{};
  name.copy(mine.name, sizeof mine.name - 1);
  const std::string by_rank = differing(ranks.allgather(mine), [](const Called& called) { return called.name; });
  if (!by_rank.empty()) throw Error(fault, "the ranks have made different calls: " + by_rank);
}

}  // namespace mpix
