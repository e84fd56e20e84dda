// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/rail_shape.h"

#include <algorithm>
#include <map>

#include "collective/rail_rounds.h"

namespace mpix {
namespace {

constexpr std::uint64_t least_slot = 4096, most_slot = 4u << 20;
constexpr std::uint64_t least_of_a_node = 64, most_of_a_node = 16 * 1024, shares_of_scratch = 16;

std::uint64_t parts_of(std::uint64_t all, std::uint64_t each) { return (all + each - 1) / each; }

}  // namespace

RailShape::RailShape(const Team& team, int rank) : rank_(rank) {
  std::map<int, std::uint32_t> numbers;
  for (int other = 0; other < team.size(); ++other) {
    const auto [found, is_new] = numbers.try_emplace(team.node_of(other), static_cast<std::uint32_t>(numbers.size()));
    if (is_new) node_ranks_.emplace_back();
    std::vector<int>& there = node_ranks_[found->second];
    of_rank_.push_back({found->second, static_cast<std::uint32_t>(there.size())});
    there.push_back(other);
  }
  node_ = node_of(rank);
  is_even_ =
      std::all_of(node_ranks_.begin(), node_ranks_.end(), [this](const auto& node) { return node.size() == locals(); });
  sources_.assign(nodes(), rail_nobody);
  const std::vector<std::uint32_t> served = served_by(local());
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    if (node == node_) continue;
    const std::uint32_t least = std::min(locals(), size_of(node));
    for (const int other : node_ranks_[node]) {
      if (local_of(other) % least != local() % least) continue;
      if (local_of(other) == local() % size_of(node)) sources_[node] = static_cast<std::uint32_t>(partners_.size());
      RailPartner partner{static_cast<std::uint32_t>(other), node, 0, 0, 0};
      partner.leads = local_of(other) == local() % size_of(node) ? 1 : 0;
      const auto column = std::find(served.begin(), served.end(), partner.rank);
      if (column != served.end()) {
        partner.column = static_cast<std::uint32_t>(column - served.begin());
        partner.gives = 1;
      }
      partners_.push_back(partner);
    }
  }
}

/// The ranks that rank `local` of this node is the source for, and itself: by node.
std::vector<std::uint32_t> RailShape::served_by(std::uint32_t local) const {
  std::vector<std::uint32_t> served;
  for (const std::vector<int>& node : node_ranks_)
    for (const int rank : node)
      if (local_of(rank) % locals() == local) served.push_back(static_cast<std::uint32_t>(rank));
  return served;
}

std::uint32_t RailShape::most_locals() const {
  std::uint32_t most = 0;
  for (std::uint32_t node = 0; node < nodes(); ++node) most = std::max(most, size_of(node));
  return most;
}

std::uint32_t RailShape::partner_of(int rank) const {
  for (std::size_t i = 0; i < partners_.size(); ++i)
    if (partners_[i].rank == static_cast<std::uint32_t>(rank)) return static_cast<std::uint32_t>(i);
  return rail_nobody;
}

std::vector<RailRank> RailShape::by_rank() const {
  std::vector<RailRank> all;
  for (const Of& of : of_rank_) all.push_back({sources_[of.node], of.local});
  return all;
}

std::uint32_t RailShape::columns() const {
  std::size_t most = 0;
  for (std::uint32_t local = 0; local < locals(); ++local) most = std::max(most, served_by(local).size());
  return static_cast<std::uint32_t>(most);
}

std::uint32_t RailShape::column() const {
  const std::vector<std::uint32_t> served = served_by(local());
  return static_cast<std::uint32_t>(std::find(served.begin(), served.end(), static_cast<std::uint32_t>(rank_)) -
                                    served.begin());
}

std::vector<std::uint32_t> RailShape::targets() const {
  std::vector<std::uint32_t> all;
  for (std::uint32_t local = 0; local < locals(); ++local) {
    const std::vector<std::uint32_t> served = served_by(local);
    for (std::size_t column = 0; column < columns(); ++column)
      all.push_back(served[std::min(column, served.size() - 1)]);
  }
  return all;
}

std::uint64_t RailShape::slot_bytes(std::uint64_t scratch) const {
  std::uint64_t most = 1;
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    const std::uint64_t here = size_of(node);
    std::uint64_t partners = 0, columns = 0;
    for (std::uint32_t other = 0; other < nodes(); ++other) {
      const std::uint64_t there = size_of(other);
      columns += parts_of(there, here);
      if (other != node) partners += parts_of(there, std::min(here, there));
    }
    most = std::max(most, 4 * partners + 2 * columns);
  }
  const std::uint64_t least = std::max(least_slot, parts_of(64 * most_locals(), 4096) * 4096);
  return std::max(least, std::min(most_slot, scratch / most / 4096 * 4096));
}

RailShape::Position RailShape::position_with(const Team& team, const RailPartner& partner) const {
  if (is_even_) return {node_ < partner.node ? node_ : node_ - 1, static_cast<std::uint32_t>(partners_.size())};
  const RailShape there(team, static_cast<int>(partner.rank));
  return {there.partner_of(rank_), static_cast<std::uint32_t>(there.partners().size())};
}

std::uint64_t RailShape::node_bytes(std::uint64_t scratch, std::uint32_t rounds_above) const {
  if (!is_even_ || nodes() <= rounds_above || nodes() == 1) return 0;
  return std::clamp(scratch / shares_of_scratch / nodes() / 64 * 64, least_of_a_node, most_of_a_node);
}

RailPlaces RailShape::places(std::uint64_t slot_bytes, std::uint64_t node_bytes) const {
  RailPlaces p{};
  p.ranks = ranks();
  p.nodes = nodes();
  p.partners = static_cast<std::uint32_t>(partners_.size());
  p.node = node_;
  p.locals = locals();
  p.me = local();
  p.columns = columns();
  p.column = column();
  p.slot_bytes = slot_bytes;
  p.node_bytes = std::min(node_bytes, slot_bytes);  // it is sent from a slot
  p.rounds = node_bytes > 0 ? RailRounds(nodes(), node_).count() : 0;
  return p;
}

}  // namespace mpix
