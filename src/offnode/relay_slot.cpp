// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/relay_slot.h"

namespace mpix {

void RelaySlot::reset() {
  seen_ = end_ = descriptor_lines_ = 0;
  headers_seen_ = 1;
  staged_.clear();
}

void RelaySlot::note(std::uint32_t line, std::uint64_t data) {
  if (line == 0) {
    header_ = Header{data};
    descriptor_lines_ = header_.is_single() ? 0 : 2 * header_.descriptors();
    end_ = header_.is_single() ? Header::single_payload + (header_.single_bytes() + 7) / 8 : 1 + descriptor_lines_;
    return;
  }
  if (line > descriptor_lines_) {
    if (!staged_.empty()) staged_[line - line_of_data(0)].data = reinterpret_cast<const char*>(data);
    return;
  }
  if (line % 2 != 0) return;  // an offset
  const Descriptor put{0, data, nullptr};
  if (put.staged())
    staged_.push_back({put.bytes(), nullptr}), ++end_;
  else
    end_ += static_cast<std::uint32_t>((put.bytes() + 7) / 8);
}

bool RelaySlot::look(const Ring& ring, std::uint64_t epoch) {
  const Line* slot = slot_of(ring, epoch);
  const std::uint32_t flag = flag_of(epoch);
  std::uint64_t data;
  for (; seen_ == 0 || seen_ < end_; ++seen_) {
    if (!line_arrived(slot + seen_, flag, &data)) return false;
    note(seen_, data);
  }
  for (; headers_seen_ < direct_parts(); ++headers_seen_)
    if (!line_arrived(slot + header_line(ring, headers_seen_), flag, &data)) return false;
  return true;
}

}  // namespace mpix
