// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/remote_plan.h"

#include "team/route.h"

namespace mpix {
namespace {

/// Marks cost a copy on each side, and an eighth more on the way; a signal costs an operation.
constexpr std::size_t most_marked_bytes = 64 * 1024;

}  // namespace

RemoteSend RemoteSend::build(RemotePeer& peer, RemotePeers& peers, const std::vector<const Put*>& puts,
                             std::uint64_t displacement_unit, Stats& effect) {
  RemoteSend send;
  send.peer = &peer;
  std::size_t message = RemoteMessage::head;
  std::size_t gathered = 0;
  const std::size_t room = MarkedMessage::capacity(peer.slot_bytes / 8);
  for (const Put* put : puts) {
    const std::uint64_t offset = put->offset(displacement_unit);
    const std::size_t share = RemoteMessage::share(put->bytes);
    const bool gathers = peers.gathers(put->bytes, gathered) && message + share <= room;
    count(effect, gathers ? Route::message : Route::network, put->bytes);
    if (gathers) {
      gathered += put->bytes;
      message += share;
      send.gathered.push_back({put->source, put->bytes, offset});
      continue;
    }
    auto registration = peers.budget().network().register_source(put->source, put->bytes);
    send.direct.push_back({put->source, registration.get(), put->bytes, {}, offset});
    if (registration) send.sources.push_back(std::move(registration));
  }
  if (!send.gathered.empty()) send.message_bytes = message;
  send.marked = peers.marks_messages() && send.direct.empty() && send.message_bytes <= most_marked_bytes;
  effect.network_operations += send.operations();
  return send;
}

Grant grant_for(const std::vector<RemoteSend>& sends) {
  Grant grant;
  for (const RemoteSend& send : sends) grant.add({send.operations(), 1});
  return grant;
}

}  // namespace mpix
