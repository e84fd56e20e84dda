// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/call_guards.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "base/log.h"
#include "wire/collective_guarded.h"

namespace mpix {

CallGuards::CallGuards(Device& device, const Collective& any) : device_(device), any_(any) {
  const std::uint64_t words[] = {0, 1, 0, 0, 0};  // the last call was 1, as the states say
  device_.write(reinterpret_cast<char*>(any_.guard_mark()), words, sizeof words);
}

void CallGuards::before_receives(Stream stream) {
  if (any_.ranks() == 1) return;
  if (!begun_) begin_service(*this, {}, Looks::may_wait);
  begun_ = true;
  MemoryOps all{{{any_.own_all_came(), guarded_need, true}}, reinterpret_cast<Bell*>(any_.own())};
  device_.run_memory_ops(stream, std::move(all));
}

void CallGuards::note_waits() {
  if (device_.read_word(any_.guard_mark()) == 0) return;
  const auto number = next_number(static_cast<std::uint32_t>(device_.read_word(any_.guarded_ended())));
  ++beat_;
  for (std::uint32_t rank = 0; rank < any_.ranks(); ++rank)  // of a guarded call the step is the number
    if (rank != any_.me && !has_come(device_.read_word(any_.own_ready(0, rank)), progress_word(number, number)))
      store_release(&any_.host->notes[rank], collective_note(number, beat_));
}

Poller::Clock::duration CallGuards::look(Clock::time_point) {
  constexpr auto between_looks = std::chrono::milliseconds(50);
  if (load_acquire(&any_.host->released) != 0)
    device_.write_word(any_.own_all_came(), open_guard);
  else
    note_waits();
  return between_looks;
}

void CallGuards::close() noexcept {
  if (!std::exchange(begun_, false)) return;
  end_service(*this);
  try {
    (void)look(Clock::now());
  } catch (const std::exception& error) {
    failed(error.what());
  }
}

void CallGuards::failed(const char* why) noexcept {
  log(LogLevel::warn, std::string("waits in front of collectives are looked for no more: ") + why);
}

}  // namespace mpix
