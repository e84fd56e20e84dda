// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/doorsteps.h"

namespace mpix {

void Doorsteps::offer(const Team& team, Network& network, WindowCard& card) {
  me_ = team.rank();
  table_.resize(static_cast<std::size_t>(team.size()));
  exposed_ = network.expose(table_.data(), table_.size() * sizeof(Doorstep));
  card.set_table(exposed_->remote());
}

void Doorsteps::connect(const Team& team, const std::vector<WindowCard>& cards) {
  if (!exposed_) return;
  tables_.reserve(cards.size());
  reaches_.reserve(cards.size());
  for (int rank = 0; rank < team.size(); ++rank) {
    const WindowCard& card = cards[static_cast<std::size_t>(rank)];
    tables_.push_back(card.table());
    reaches_.push_back(!team.same_node(rank) && card.has_table && team.far(rank).reachable);
    if (reaches_.back()) reaches_some_ = true;
  }
}

}  // namespace mpix
