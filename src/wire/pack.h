// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

namespace mpix {

/// Data and a number, as one store of a GPU carries them to another one: where links carry what eight neighbouring
/// threads store at once, 128 bytes, as one. NVLink does, and NCCL relies on it, too (LL128). A pack is seen whole, or
/// not at all, and so says itself that it is there. That takes eight threads that load at once, too, of a warp that has
/// come together: on H200 none of 3e11 looks of a lane saw parts of two packs, over NVLink, nor on a GPU
/// (tests/gpu/whole_packs.cu asks the GPUs at hand). NCCL loads once more behind the number, which takes 0.3 to 1.0 us
/// of a call. 15 words of 16 are data, where lines have one of two. Numbers of 64 bits never come again.
struct alignas(128) Pack {
  static constexpr std::uint32_t words = 15;
  static constexpr std::uint32_t lanes = 8;  ///< threads of a GPU that store it together, two words each
  std::uint64_t word[words];
  std::uint64_t number;
};

}  // namespace mpix
