// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "wire/protocol.h"

/// How a kernel that polls for long tells the host what it waits for: now and then it writes a note, one word, into
/// HostWords::notes. Each note carries a beat that differs from the one before. A note that no longer changes is of
/// a wait that is over, so nothing has to be taken back, and a wait that is short writes nothing at all.
namespace mpix {

enum class Missing : std::uint32_t {
  post,        ///< the target has not posted `epoch`
  completion,  ///< the origin has not completed `epoch`
  departure,   ///< the target has not posted `epoch`, or the network not taken its data from the origin buffers
};

struct WaitNote {
  std::uint64_t epoch;
  Missing missing;
  bool fused;  ///< in a kernel that both sends and receives
};

/// What an entry that is not served yet waits for.
MPIX_FN WaitNote waits_for(const SendPeer& peer, bool fused) {
  const std::uint64_t needed = post_needed(peer, peer.words->own.sent[0] + 1);
  // What a relayed one waits for is the end of the epoch before, and that waits for its post; or, when that is over,
  // its own end (has_left).
  if (!peer.relayed) return {needed, Missing::post, fused};
  if (load_relaxed(peer.allowed) < needed) return {needed - 1, Missing::post, fused};
  return {needed, Missing::departure, fused};
}
MPIX_FN WaitNote waits_for(const ReceivePeer& peer, bool fused) {
  return {peer.words->own.closed[0] + 1, Missing::completion, fused};
}

constexpr unsigned note_beat_bits = 16;

/// Never 0, as epochs begin with 1.
MPIX_FN std::uint64_t packed(const WaitNote& note, std::uint32_t beat) {
  const std::uint64_t what = (note.epoch << 3) | (static_cast<std::uint64_t>(note.missing) << 1) | (note.fused ? 1 : 0);
  return (what << note_beat_bits) | (beat & ((1u << note_beat_bits) - 1));
}

/// The same for all notes of one wait.
inline std::uint64_t without_beat(std::uint64_t note) { return note >> note_beat_bits; }

inline WaitNote unpacked(std::uint64_t note) {
  const std::uint64_t what = without_beat(note);
  return {what >> 3, static_cast<Missing>((what >> 1) & 3), (what & 1) != 0};
}

}  // namespace mpix
