// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/doorsteps.h"

#include "base/error.h"
#include "base/log.h"
#include "net/shipment.h"

namespace mpix {

void Doorsteps::offer(const Team& team, Network& network, WindowCard& card) {
  me_ = team.rank();
  const auto ranks = static_cast<std::size_t>(team.size());
  table_.resize(ranks);
  tables_.reserve(ranks);
  reaches_.reserve(ranks);
  try {
    exposed_ = network.expose(table_.data(), table_.size() * sizeof(Doorstep));
    card.set_table(exposed_->remote());
  } catch (const Error& error) {
    why_not_ = error.what();
    log(LogLevel::info, why_not_);  // a call that needs it tells
  }
}

void Doorsteps::connect(const Team& team, const std::vector<WindowCard>& cards) {
  if (!exposed_) return;
  for (int rank = 0; rank < team.size(); ++rank) {
    const WindowCard& card = cards[static_cast<std::size_t>(rank)];
    tables_.push_back(card.table());
    reaches_.push_back(!team.same_node(rank) && card.has_table && team.far(rank).reachable);
    if (reaches_.back()) reaches_some_ = true;
  }
}

std::string Doorsteps::probe(Network& network, Connection to, int rank) const {
  const std::string why = network.probe(to, table(rank), offset_of_mine());
  return why.empty() ? why : lost("rank " + std::to_string(rank), why);
}

}  // namespace mpix
