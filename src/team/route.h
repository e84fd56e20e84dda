// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stats.h"

namespace mpix {

struct Peer;

/// How a put reaches its target. The puts of an epoch to one rank that streams or kernels reach by stores go one way:
/// where one has to wait for the post, the others lose nothing by waiting with it, and by mailbox they would be two
/// copies.
///
/// | route       | where to                | taken for                                 | waits for the post | copies of the data |
/// |-------------|-------------------------|-------------------------------------------|--------------------|--------------------|
/// | mailbox     | node                    | as much as `eager_bytes`, if a slot holds it | no              | into a slot; out of it, by the target |
/// | packs       | node, a link that carries them | of that, more than `packs_above`   | no                 | the same              |
/// | direct      | node, window mapped     | more                                      | yes                | one                |
/// | staged      | node, window not mapped | more                                      | yes                | into memory that mirrors the window; out of it, by the target |
/// | copy_engine | as direct, on a GPU     | a put worth an operation of its own       | yes                | one, by the copy engine, beside all kernels |
/// | relayed     | other node, from a GPU  | as much as `eager_bytes`, if the inbox holds it | the relay does | into a message; the network's; out of the inbox |
/// | relayed_apart | the same              | more                                      | the relay does     | the same, out of landing memory, which is asked for |
/// | relayed_direct | the same, where the network reaches memory of devices | a put of more than `direct_above` | yes | the network's |
/// | message     | other node, from a host stream | as much as gathers well            | no                 | gathered; the network's; scattered |
/// | network     | the same                | more                                      | yes                | the network's      |
enum class Route : std::uint8_t {
  mailbox,
  packs,
  direct,
  staged,
  copy_engine,
  relayed,
  relayed_apart,
  relayed_direct,
  message,
  network
};

/// What the puts of an epoch to a target come to, or would.
struct PutsToRank {
  std::size_t bytes = 0, count = 0;
  std::size_t lines = 1;  ///< of a slot, with the header
  std::size_t packs = 0;
};
/// For those to a target that is mapped here.
Route route_by_stores(const Peer& target, const PutsToRank& puts);
/// For those to a relayed one: `bytes` of data in all, and of the whole message.
Route route_by_relay(const Peer& target, std::size_t bytes, std::size_t message_bytes);

/// What a put of so many bytes adds to the statistics.
inline void count(Stats& stats, Route route, std::size_t bytes) {
  switch (route) {
    case Route::mailbox:
    case Route::packs:
      stats.bytes_mailbox += bytes;
      break;
    case Route::direct:
      stats.bytes_direct += bytes;
      break;
    case Route::staged:
      stats.bytes_staged += bytes;
      break;
    case Route::copy_engine:
      stats.bytes_copied += bytes;
      break;
    case Route::relayed:
    case Route::message:
      stats.bytes_network_eager += bytes;
      break;
    case Route::relayed_apart:
    case Route::relayed_direct:
    case Route::network:
      stats.bytes_network_direct += bytes;
      break;
  }
}

}  // namespace mpix
