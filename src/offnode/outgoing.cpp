// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/outgoing.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace mpix {

namespace {

using Hold = std::lock_guard<std::mutex>;

}  // namespace

std::size_t Outgoing::range_bytes(std::size_t bytes) {
  std::size_t quarter = std::size_t{16} << 10;
  while (bytes > 8 * quarter) quarter *= 2;
  return std::max<std::size_t>(4, (bytes + quarter - 1) / quarter) * quarter;
}

RelayedSend Outgoing::enter(PlannedMessage planned) {
  Hold hold(mutex_);
  drop_old();
  const std::size_t in_front = entries_bytes(planned.entries.size()), needed = in_front + planned.bytes;
  std::vector<std::shared_ptr<const Registration>> sources;
  for (const DirectPut& put : planned.direct) sources.push_back(network_.register_source(put.source, put.bytes));
  if (ranges_.empty() || ranges_.front().bytes < needed) {
    Range range{nullptr, range_bytes(needed), nullptr};
    range.memory = device_.allocate_pinned(range.bytes);
    range.registration = network_.register_source(range.memory.get(), range.bytes);
    ranges_.push_front(std::move(range));
  }
  const Range& range = ranges_.front();
  Message& message = messages_[++last_number_];
  message.planned = std::move(planned);
  message.entries = range.memory.get();
  message.data = message.entries + in_front;
  message.registration = range.registration.get();
  message.sources = std::move(sources);
  RelayedSend send{};
  send.out = &out_;
  send.data = message.data;
  send.bytes = message.planned.bytes;
  send.message = last_number_;
  send.chunk_shift = message.planned.chunk_shift;
  send.reads_origin = !message.planned.direct.empty();
  return send;
}

/// The kernels of the plan have ended, so their tasks are there.
void Outgoing::leave(std::uint64_t number) {
  Hold hold(mutex_);
  Message& message = messages_.at(number);
  message.has_ended = true;
  message.last_task = last_task(out_.lane());
}

const Outgoing::Message& Outgoing::message(std::uint64_t number) {
  Hold hold(mutex_);
  return messages_.at(number);
}

void Outgoing::drop_old() {
  const std::uint64_t over = load_acquire(&out_.allowed) - 1;
  for (auto at = messages_.begin(); at != messages_.end();)
    at = at->second.has_ended && at->second.last_task <= over ? messages_.erase(at) : std::next(at);
  const auto is_unused = [&](const Range& range) {
    return std::none_of(messages_.begin(), messages_.end(),
                        [&](const auto& one) { return one.second.entries == range.memory.get(); });
  };
  if (!ranges_.empty())
    ranges_.erase(std::remove_if(std::next(ranges_.begin()), ranges_.end(), is_unused), ranges_.end());
}

}  // namespace mpix
