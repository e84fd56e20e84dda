// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <functional>

namespace test {

/// Captures what `body` enqueues in the stream, and launches it so many times.
using Replay = std::function<void(void* stream, const std::function<void()>& body, int times)>;

/// Run `epochs` random epochs: sparse directed graphs of ranks, new groups in every epoch, random
/// puts over windows in all kinds of memory, random delays; every byte of every window is checked
/// in stream order after every epoch, and before the next one. Collective; the same arguments on
/// all ranks. With `replay` some of them are captured, and run several times.
void run_random_graphs(std::uint64_t seed, int epochs, const Replay& replay = {});

}  // namespace test
