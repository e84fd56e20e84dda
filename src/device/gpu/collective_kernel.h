// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/gpu/collective_launcher.h"
#include "wire/collective_direct.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// A wait has taken a while, again. False: it is released.
GPU_OUT_OF_LINE bool still_waits(const Collective& c, std::uint32_t call, std::uint32_t rank, std::uint32_t beat) {
  c.host->called = c.word;
  store_after_loads(&c.host->notes[rank], collective_note(call, beat));
  return load_relaxed(&c.host->released) == 0;
}

GPU_OUT_OF_LINE void tell_of_difference(const Collective& c, std::uint32_t rank, std::uint64_t mine,
                                        std::uint64_t theirs) {
  c.host->mine = mine;
  c.host->theirs = theirs;
  store_release(&c.host->differs, rank + 1);
  store_release(&c.host->released, 1);
}

/// The crew of a block (wire/collective_lines.h).
struct CollectiveBlock {
  static constexpr std::uint32_t counted_parts = most_parts, batch = 4, polls_between_looks = 4096;
  static constexpr bool root_has_all = true;
  const Collective& call;
  std::uint32_t part;

  __device__ Workers workers() const { return Workers{threadIdx.x, blockDim.x}; }
  __device__ bool agree(bool yes) const { return !__syncthreads_or(!yes); }
  __device__ void tell(std::uint32_t) const {}
  __device__ std::uint64_t now() const { return static_cast<std::uint64_t>(clock64()); }
  __device__ bool await(std::uint32_t rank, const Line* line, std::uint32_t number, std::uint64_t* data) const {
    for (std::uint32_t polls = 1; !line_arrived(line, number, data); ++polls)
      if (polls % polls_between_looks == 0 && !still_waits(call, number, rank, polls / polls_between_looks))
        return false;
    return true;
  }
  __device__ bool await(std::uint32_t rank, const std::uint64_t* word, std::uint64_t progress) const {
    for (std::uint32_t polls = 1; !has_come(load_relaxed(word), progress); ++polls)
      if (polls % polls_between_looks == 0 &&
          !still_waits(call, static_cast<std::uint32_t>(progress), rank, polls / polls_between_looks))
        return false;
    (void)load_acquire(word);
    return true;
  }
  __device__ void report(std::uint32_t rank, std::uint64_t mine, std::uint64_t theirs) const {
    tell_of_difference(call, rank, mine, theirs);
  }
  /// The host has refused those.
  template <class Given>
  __device__ bool combine_by_function(const Collective&, const Given&, Span) const {
    return false;
  }
  __device__ bool combine_by_function(const Collective&, std::uint32_t, std::uint64_t, std::uint64_t,
                                      std::uint64_t) const {
    return false;
  }
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
