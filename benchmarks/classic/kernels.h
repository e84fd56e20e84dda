// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "benchmarks/collectives/call.h"
#include "benchmarks/collectives/loops.h"
#include "benchmarks/dev/stream.h"

namespace classic {

/// Of parts that follow each other, in the order of ranks. One of them may lie elsewhere.
struct SumOfParts {
  const float* parts;
  std::size_t pitch;
  int count_of_parts;
  const float* moved;  ///< the part of its number, or null
  int number_of_moved;
  float* sum;
  std::size_t count;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    loops::for_all(count, block, blocks, [&](std::size_t i) {
      float all = 0;
      for (int part = 0; part < count_of_parts; ++part)
        all += moved && part == number_of_moved ? moved[i] : parts[static_cast<std::size_t>(part) * pitch + i];
      sum[i] = all;
    });
  }
};

struct SumOfTwo {
  const float *one, *other;
  float* sum;
  std::size_t count;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    loops::for_all(count, block, blocks, [&](std::size_t i) { sum[i] = one[i] + other[i]; });
  }
};

/// A block of a rank, which changes from turn to turn.
struct FillBlock {
  float* block_of_rank;
  std::size_t count;
  int rank;
  std::uint64_t turn;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    loops::for_all(count, block, blocks,
                   [&](std::size_t i) { block_of_rank[i] = collectives::value_of<float>(rank, turn, i); });
  }
};

struct CompareBlock {
  const float* block_of_rank;
  std::size_t count;
  int rank;
  std::uint64_t turn;
  std::uint64_t* wrong;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    std::uint64_t mine = 0;
    loops::for_all(count, block, blocks, [&](std::size_t i) {
      if (!(block_of_rank[i] == collectives::value_of<float>(rank, turn, i))) ++mine;
    });
    if (mine > 0) (void)mpix::fetch_add_on_device(wrong, mine);
  }
};

inline void sum_parts(launcher::Stream& stream, const float* parts, std::size_t pitch, int count_of_parts, float* sum,
                      std::size_t count, const float* moved = nullptr, int number_of_moved = 0) {
  const int blocks = loops::blocks_for(count);
  stream.run(SumOfParts{parts, pitch, count_of_parts, moved, number_of_moved, sum, count, blocks}, blocks);
}
inline void sum_two(launcher::Stream& stream, const float* one, const float* other, float* sum, std::size_t count) {
  const int blocks = loops::blocks_for(count);
  stream.run(SumOfTwo{one, other, sum, count, blocks}, blocks);
}

}  // namespace classic
