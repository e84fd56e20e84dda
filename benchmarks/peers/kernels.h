// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// What the benchmark itself runs on the GPU. All of it is enqueued, and can be captured.
namespace peers {

/// One slot, as the kernels see it.
struct Slot {
  std::size_t offset, words;
  int origin, target;
};

/// Count the round up: every word of a round differs from that of the round before.
void launch_next_round(unsigned* round, cudaStream_t stream);

/// Fill all slots with the words of the round.
void launch_fill(char* memory, const Slot* slots, std::size_t count, const unsigned* round, cudaStream_t stream);

/// Count the words in all slots that are not those of the round.
void launch_check(const char* memory, const Slot* slots, std::size_t count, const unsigned* round,
                  unsigned long long* wrong, cudaStream_t stream);

/// A kernel of a program, as small as can be.
void launch_user_kernel(cudaStream_t stream);

/// How often the body of a WHILE node is run: set from `total` before it, counted down in its body.
void launch_begin_loop(cudaGraphConditionalHandle loop, const unsigned* total, unsigned* left, cudaStream_t stream);
void launch_count_down(cudaGraphConditionalHandle loop, unsigned* left, cudaStream_t stream);

}  // namespace peers
