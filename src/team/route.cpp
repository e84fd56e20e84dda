// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "team/route.h"

#include <algorithm>

#include "team/neighbourhood.h"

namespace mpix {

Route route_by_stores(const Peer& target, std::size_t bytes, std::size_t lines) {
  // Overlapping puts can sum up to more than the window, which the slot is made for (slot_lines_for).
  if (bytes <= std::min(target.eager_bytes, target.window_bytes) && lines <= data_lines(target.outbox))
    return Route::mailbox;
  return target.staged ? Route::staged : Route::direct;
}

Route route_by_relay(const Peer& target, std::size_t bytes, std::size_t message_bytes) {
  return bytes <= target.eager_bytes && message_bytes <= target.inbox_bytes ? Route::relayed : Route::relayed_apart;
}

}  // namespace mpix
