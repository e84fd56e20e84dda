// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/call_guards.h"

#include <cstddef>
#include <utility>

#include "wire/collective_guarded.h"

namespace mpix {

CallGuards::CallGuards(Device& device, const Collective& any) : device_(device), any_(any) {
  std::vector<std::uint64_t> at_first(std::size_t{1} + any.ranks(), come_at_first);
  at_first[0] = 1;  // as the states say
  device_.write(reinterpret_cast<char*>(any_.guarded_ended()), at_first.data(), at_first.size() * sizeof at_first[0]);
}

std::uint64_t CallGuards::needed(std::uint64_t mark) const {
  return mark == sends ? come_before_sends : come_before_receives;
}

bool CallGuards::waits_for(std::uint64_t mark, std::uint32_t rank) const {
  return rank != any_.me && (mark < receives_of_one || rank == mark - receives_of_one);
}

void CallGuards::enqueue(std::uint64_t mark, Stream stream) {
  MemoryOps all{{{any_.guard_mark(), mark, false}}, reinterpret_cast<Bell*>(any_.own()), nullptr};
  for (std::uint32_t rank = 0; rank < any_.ranks(); ++rank)
    if (waits_for(mark, rank)) all.ops.push_back({any_.come(rank), needed(mark), true});
  device_.run_memory_ops(stream, std::move(all));
}

void CallGuards::before_sends(Stream stream) { enqueue(sends, stream); }

void CallGuards::before_receives(const Collective& call, Stream stream) {
  if (call.gets_result())
    enqueue(call.kind == CollectiveKind::bcast ? receives_of_one + call.root : receives_of_all, stream);
}

void CallGuards::note_waits() {
  const std::uint64_t mark = device_.read_word(any_.guard_mark());
  if (mark == no_guard) return;
  const auto number = next_number(static_cast<std::uint32_t>(device_.read_word(any_.guarded_ended())));
  ++beat_;
  for (std::uint32_t rank = 0; rank < any_.ranks(); ++rank)
    if (waits_for(mark, rank) && device_.read_word(any_.come(rank)) < needed(mark))
      store_release(&any_.host->notes[rank], collective_note(number, beat_));
}

void CallGuards::open() {
  for (std::uint32_t rank = 0; rank < any_.ranks(); ++rank)
    if (rank != any_.me) device_.write_word(any_.come(rank), open_guard);
}

}  // namespace mpix
