// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "wire/program.h"

/// Guards: waits for a GPU that several ranks use in turns, without MPS. A kernel that waits there keeps the GPU for
/// its whole time slice, though the rank that it waits for cannot run meanwhile. So in front of each kernel that
/// would wait, the stream waits in memory operations, which give the GPU away; when they let the kernel pass, what it
/// polls for is there. The kernels are the same as ever.
///
/// A guard waits on a word that counts, so that its operations are constants, and a graph that has captured them can
/// be replayed. For each ordered pair o -> t:
///
/// | word    | lies in | counts                                   | up                   | down                     |
/// |---------|---------|------------------------------------------|----------------------|--------------------------|
/// | credit  | o       | t's posts less o's epochs, plus depth    | 1 by t's post kernel | 1 by o's complete kernel |
/// | pending | t       | o's epochs less t's waits, in most_parts | by o's complete      | by t's wait kernel       |
///
/// | guard of          | waits for                   | then the kernel finds                                       |
/// |-------------------|-----------------------------|-------------------------------------------------------------|
/// | o's complete(e)   | credit >= depth + 2 less    | posted >= e + 1 less those slots (1 where something goes    |
/// |                   | the slots that it may use   | direct): credit was posted - (e - 1) + depth                |
/// | t's wait(e)       | pending >= most_parts       | every part of epoch e sent: pending was all that was sent,  |
/// |                   |                             | of any epoch, less (e - 1) x most_parts; a part sends e     |
/// |                   |                             | before e + 1, and only after all parts have sent e - 1      |
///
/// Order: each step up is a release at system scope, after `posted` or the last header and line of a part, and a
/// memory operation comes before what follows it in its stream, which so finds what came before the step. Nobody
/// reads anything else by a guard: what a kernel polls for it still polls for, with the order of program.h. A guard
/// that passes too early would cost time, not data.
///
/// Deadlock: a guard asks for no more than its kernel. It only must not hold back what the other side's guard waits
/// for: posts are not carried by guarded kernels, and a call that both sends and receives has two, each behind its own
/// guard.
namespace mpix {

/// High enough to let pass whatever is enqueued on a window that is broken or gone.
constexpr std::uint64_t open_guard = std::uint64_t{1} << 48;

/// One operation of a stream on one word.
struct MemoryOp {
  std::uint64_t* word;
  std::uint64_t value;
  bool waits;  ///< until the word is at least value; else write it
};

/// What a guard's stream is in: written by memory operations in front of their waits, 0 again when the kernel behind
/// them has run. For the service.
struct alignas(64) GuardMarks {
  std::uint64_t targets;  ///< waited for, as an origin
  std::uint64_t origins;  ///< waited for, as a target
};

/// A system-scope step of a word that guards wait on.
MPIX_FN void step(std::uint64_t* word, std::int64_t by) { add_release(word, static_cast<std::uint64_t>(by)); }

/// What the guard of a send waits for.
inline std::uint64_t credit_needed(const SendPeer& peer) { return peer.ring.depth + 2 - peer.slots; }

MPIX_FN void count_post(const PostPeer& peer) { step(&peer.there->credit, 1); }

/// What there is to count for guards when a part is over: one thread of the part.
MPIX_FN void count_sent(PairWords* words, PairWords* there, std::uint32_t part, std::uint32_t parts) {
  if (part == 0) step(&words->credit, -1);
  // The first part counts for those that this launch does not have.
  step(&there->pending, part == 0 ? most_parts - (parts - 1) : 1);
}

MPIX_FN void count_received(PairWords* words, std::uint32_t part) {
  if (part == 0) step(&words->pending, -static_cast<std::int64_t>(most_parts));
}

}  // namespace mpix
