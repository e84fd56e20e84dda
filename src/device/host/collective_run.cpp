// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/collective_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <vector>

#include "base/log.h"
#include "wire/collective_chosen.h"
#include "wire/collective_guarded.h"
#include "wire/collective_tree.h"

namespace mpix {
namespace {

/// The crew of a host stream (wire/collective_lines.h).
struct Alone {
  static constexpr std::uint32_t counted_parts = 1, batch = 1, part = 0;
  static constexpr bool root_has_all = false;
  const Collective& call;
  const Polling& polling;

  Workers workers() const { return Workers{0, 1}; }
  bool agree(bool yes) const { return yes; }
  std::uint64_t now() const {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  void tell(std::uint32_t rank) const { ring(reinterpret_cast<Bell*>(call.memory(rank))); }

  bool await(std::uint32_t rank, const Line* line, std::uint32_t number, std::uint64_t* data) const {
    return until(rank, [&] { return line_arrived(line, number, data); });
  }
  bool await(std::uint32_t rank, const std::uint64_t* word, std::uint64_t progress) const {
    return until(rank, [&] { return has_come(load_acquire(word), progress); });
  }

  void report(std::uint32_t rank, std::uint64_t mine, std::uint64_t theirs) const {
    CollectiveWords& words = *call.host;
    words.mine = mine;
    words.theirs = theirs;
    store_release(&words.differs, rank + 1);
    store_release(&words.released, 1);
  }

  /// By a function that knows the type: of whole operands, one after another.
  bool combine_by_function(const Collective& c, std::uint32_t step, std::uint64_t chunk, std::uint64_t first,
                           std::uint64_t last) const {
    if (first >= last) return true;
    const std::uint64_t bytes = std::min(8 * (last - first), c.bytes - 8 * (chunk + first));
    std::vector<std::uint64_t> result(last - first), next(last - first);
    const char* const own = c.send + c.me * c.send_stride;
    for (std::uint32_t rank = 0; rank < c.ranks(); ++rank) {
      const Line* const place = c.lines(c.me, rank, step);
      for (std::uint64_t i = first; i < last; ++i) {
        std::uint64_t& word = next[i - first];
        if (rank == c.me)
          word = load_word(own, chunk + i, c.bytes);
        else if (!await(rank, place + i, step, &word))
          return false;
      }
      if (rank > 0) c.function(c.context, result.data(), next.data(), bytes);
      result.swap(next);
    }
    std::memcpy(c.recv + 8 * (chunk + first), result.data(), bytes);
    return true;
  }

  template <class Given>
  bool combine_by_function(const Collective& c, const Given& given, Span span) const {
    std::vector<std::uint64_t> result((span.bytes + 7) / 8), next(result.size());
    for (std::uint32_t rank = 0; rank < c.ranks(); ++rank) {
      std::memcpy(next.data(), given(rank) + span.begin, span.bytes);
      if (rank > 0) c.function(c.context, result.data(), next.data(), span.bytes);
      result.swap(next);
    }
    std::memcpy(c.recv + span.begin, result.data(), span.bytes);
    return true;
  }

 private:
  template <class Look>
  bool until(std::uint32_t rank, Look look) const {
    if (look()) return true;
    Patience patience(reinterpret_cast<Bell*>(call.own()), polling);
    for (std::uint32_t beat = 1;; ++beat) {
      patience.pause();
      if (look()) return true;
      if (load_relaxed(&call.host->released) != 0) return false;
      if (!patience.slept() && beat % 256 != 0) continue;
      store_release(&call.host->called, call.word);
      store_release(&call.host->notes[rank], collective_note(call_number(), beat));
    }
  }
  std::uint32_t call_number() const { return next_number(call.states()->call); }
};

bool run(CollectiveLaunch& launch, const Polling& polling) {
  const Alone crew{launch.call, polling};
  PlaceTable table;
  if (launch.ways.count > 0) return ChosenCall<Alone>(crew, launch.call, launch.ways, table).run();
  if (launch.call.half != CallHalf::whole) return GuardedCall<Alone>(crew, launch.call).run();
  if (launch.tree.count > 0) return TreeCall<Alone>(crew, launch.call, table, launch.tree).run();
  if (!launch.call.direct) return run_by_lines(crew, launch.call);
  return DirectCall<Alone>(crew, launch.call, table).run();
}

}  // namespace

bool run_on_host(CollectiveLaunch& launch, const Polling& polling) {
  if (load_relaxed(&launch.call.host->released) != 0) return false;
  try {
    return run(launch, polling);
  } catch (const std::exception& error) {  // nobody to throw to
    log(LogLevel::error, std::string("a collective call in a stream failed: ") + error.what());
    store_release(&launch.call.host->released, 1);
    return false;
  }
}

}  // namespace mpix
