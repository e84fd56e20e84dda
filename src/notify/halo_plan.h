// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mpix_device/halo_words.h"

namespace mpix {

/// What a message of the program is made of; at its end in this process.
struct HaloContent {
  std::vector<HaloBox> send, recv;  ///< base, rows and strides; the rest is the plan's
  std::string name;                 ///< for reports: "message 3 (to rank 2, from rank 1)"
  bool is_null = false;             ///< MPI_PROC_NULL: nothing goes, or comes
};

/// How an exchange is launched.
enum class HaloForm {
  stream,    ///< a block packs a message, another unpacks it
  stacked,   ///< several blocks share a large one; the last of them tells
  barrier,   ///< all blocks share a large one, and meet behind it
  launches,  ///< as stacked: a launch packs, another unpacks
  blocks,    ///< a launch for each message, to pack it and to unpack it
};

/// A message of the program, or a chunk of it, each way. A message has as many chunks as its bytes make, and at least
/// one, at both of its ends; so the two ways of a cargo do not end with the same number.
struct HaloCargo {
  std::uint32_t given;
  std::uint64_t send_bytes, recv_bytes;
  std::string name;
  bool sends, receives;
};

/// The tables of a halo, but for where buffers lie.
struct HaloPlan {
  struct Range {
    std::uint32_t first, end;  ///< parts
  };
  std::vector<HaloCargo> cargo;
  std::vector<HaloMessage> messages;  ///< of each cargo
  std::vector<HaloBox> boxes;
  std::vector<HaloPart> parts;
  std::vector<std::uint32_t> first;  ///< by message of the program, and one more
  std::vector<Range> launches;       ///< of an exchange
};

struct HaloShape {
  HaloForm form = HaloForm::stacked;
  std::uint64_t chunk = 0;        ///< bytes, a multiple of 16; 0: messages go as they are
  std::uint32_t most_blocks = 1;  ///< of a launch
  bool largest_first = false;     ///< or as the program has them
};

/// Whether a side of a message of so many bytes may go by lines.
bool fits_lines(const HaloSide& side, const std::vector<HaloBox>& table, std::uint64_t bytes);

HaloPlan plan_halo(const std::vector<HaloContent>& contents, const HaloShape& shape);
/// The parts anew, and never more of them. `from_host`: by cargo, what a GPU unpacks from memory of the host.
void plan_parts(HaloPlan& plan, const HaloShape& shape, const std::vector<bool>& from_host);

}  // namespace mpix
