// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "team/route.h"

#include <algorithm>

#include "team/neighbourhood.h"

namespace mpix {

Route route_by_stores(const Peer& target, const PutsToRank& puts) {
  // Overlapping puts can sum up to more than the window, which the slot is made for (slot_lines_for).
  if (puts.bytes <= std::min(target.eager_bytes, target.window_bytes)) {
    const std::uint32_t lines = data_lines(target.outbox);
    if (puts.bytes <= target.packs_above && puts.lines <= lines) return Route::mailbox;
    if (puts.bytes > target.packs_above && puts.packs <= target.outbox.slot_packs && 1 + 2 * puts.count <= lines)
      return Route::packs;
  }
  return target.staged ? Route::staged : Route::direct;
}

Route route_by_relay(const Peer& target, std::size_t bytes, std::size_t message_bytes) {
  return bytes <= target.eager_bytes && message_bytes <= target.inbox_bytes ? Route::relayed : Route::relayed_apart;
}

}  // namespace mpix
