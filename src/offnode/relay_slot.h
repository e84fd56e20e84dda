// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <vector>

#include "wire/protocol.h"

namespace mpix {

/// The next epoch of an outbox, as the relay finds it: by what stands in its lines, and not by what was enqueued, so
/// that it makes no difference whether a graph has sent it.
class RelaySlot {
 public:
  /// A put that is staged. All of the epoch are, or none.
  struct Staged {
    std::uint64_t bytes;
    const char* data;  ///< in outgoing memory (offnode/outgoing.h), as the `i`-th line for data says
  };
  std::uint32_t line_of_data(std::size_t i) const {
    return line_of_staged(header_.descriptors(), static_cast<std::uint32_t>(i));
  }

  /// Look for the lines that are missing. True when all are there; the data of staged puts then is, too.
  bool look(const Ring& ring, std::uint64_t epoch);
  /// For the next epoch.
  void reset();

  /// Lines from the first on that the epoch has.
  std::uint32_t lines() const { return end_; }
  const std::vector<Staged>& staged() const { return staged_; }
  std::uint32_t direct_parts() const { return header_.is_single() ? 0 : header_.direct_parts(); }
  /// The header for the target, to which all comes from one: the other parts' have said what they had to say.
  Header header_to_send() const { return direct_parts() > 0 ? Header::of(header_.descriptors(), 1) : header_; }

 private:
  void note(std::uint32_t line, std::uint64_t data);

  std::uint32_t seen_ = 0;  ///< lines
  std::uint32_t end_ = 0;
  std::uint32_t headers_seen_ = 1;
  std::uint32_t descriptor_lines_ = 0;
  Header header_{};
  std::vector<Staged> staged_;
};

}  // namespace mpix
