// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/guards.h"

#include <algorithm>
#include <utility>

namespace mpix {

void Guards::before_send(const AccessPlan& plan, const ExposurePlan* then, Call call, Stream stream) {
  enqueue(Side::targets, Record{call, plan.targets, plan.credits, then ? then->origins : std::vector<int>()}, stream);
}

void Guards::before_receive(const ExposurePlan& plan, Call call, Stream stream) {
  enqueue(Side::origins, Record{call, plan.origins, std::vector<std::uint64_t>(plan.origins.size(), most_parts), {}},
          stream);
}

void Guards::enqueue(Side side, Record record, Stream stream) {
  if (record.ranks.empty()) return;
  std::vector<MemoryOp> waits;
  for (std::size_t i = 0; i < record.ranks.size(); ++i)
    waits.push_back({awaited_word(side, record.ranks[i]), record.needed[i], true});
  GuardMarks* const marks = peers_.guard_marks();
  const std::uint64_t mark = mark_of(std::move(record));
  MemoryOps all{{{side == Side::targets ? &marks->targets : &marks->origins, mark, false}}, peers_.bell(), words_};
  all.ops.insert(all.ops.end(), waits.begin(), waits.end());
  device_.run_memory_ops(stream, std::move(all));
}

std::uint64_t* Guards::awaited_word(Side side, int rank) const {
  PairWords* const words = peers_.peer(rank).words;
  return side == Side::targets ? &words->credit : &words->pending;
}

const std::uint64_t* Guards::counter(Side side, int rank) const {
  const PairCounters& own = peers_.peer(rank).words->own;
  return side == Side::targets ? &own.sent[0] : &own.closed[0];
}

std::uint64_t Guards::mark_of(Record&& record) {
  std::lock_guard<std::mutex> hold(mutex_);
  auto known = std::find(records_.begin(), records_.end(), record);
  const auto place = static_cast<std::uint64_t>(known - records_.begin());
  if (known == records_.end()) records_.push_back(std::move(record));
  return place + 1;
}

void Guards::open() {
  for (int rank : peers_.team().locals()) {
    if (!peers_.peer(rank).reachable) continue;
    for (Side side : {Side::targets, Side::origins}) device_.write_word(awaited_word(side, rank), open_guard);
  }
}

void Guards::add_missing(MissingRanks& missing, Side side, int rank, std::uint64_t needed, std::uint64_t done) const {
  if (device_.read_word(awaited_word(side, rank)) >= needed) return;
  const Farewell farewell = peers_.farewell_of(rank);
  if (side == Side::origins)
    missing.add(rank, Missing::completion, done + 1, farewell);
  else
    missing.add(rank, Missing::post, done + needed - peers_.peer(rank).outbox.depth, farewell);
}

Guards::Waiting Guards::look(Side side) {
  const GuardMarks* const marks = peers_.guard_marks();
  Waiting waiting;
  waiting.mark = device_.read_word(side == Side::targets ? &marks->targets : &marks->origins);
  if (waiting.mark == 0) return waiting;
  Record record;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    record = records_.at(waiting.mark - 1);
  }
  waiting.call = record.call;
  MissingRanks missing;
  for (std::size_t i = 0; i < record.ranks.size(); ++i) {
    const std::uint64_t done = device_.read_word(counter(side, record.ranks[i]));
    waiting.progress += done;
    add_missing(missing, side, record.ranks[i], record.needed[i], done);
  }
  if (!missing.text().empty())
    for (int rank : record.then)
      add_missing(missing, Side::origins, rank, most_parts, device_.read_word(counter(Side::origins, rank)));
  waiting.missing = missing.text();
  return waiting;
}

}  // namespace mpix
