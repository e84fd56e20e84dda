// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>
#include <mpix_device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "messages.h"
#include "support/streams.h"
#include "way.h"

namespace halo {

/// The time of each exchange of many: when it was over, by the clock of kernels.
struct Stamp {
  std::uint64_t* to;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread == 0) *to = MPIX_Dev_clock();
  }
};

/// Exchanges by a kernel of the program; `changes`: before each it sends other data.
template <bool changes>
struct Stays {
  MPIX_Dev_halo halo;
  int times;
  std::uint64_t* failed;
  std::uint64_t* stamps;  ///< by exchange; or null
  FillAll first;
  std::uint32_t messages;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    std::uint64_t step = MPIX_Dev_halo_begin(team, halo);
    for (int i = 0; i < times; ++i) {
      int result = MPIX_DEV_DONE;
      if constexpr (changes) {
        for (std::uint32_t m = team.block; m < messages; m += team.blocks)
          first.fill(team, m, first.change + static_cast<std::uint64_t>(i));
        result = MPIX_Dev_halo_sync(team, halo);
      }
      if (result == MPIX_DEV_DONE) result = MPIX_Dev_halo_exchange(team, halo, ++step);
      if (result == MPIX_DEV_DONE) result = MPIX_Dev_halo_sync(team, halo);
      if (result != MPIX_DEV_DONE) return tell_failure(team, failed, result);
      if (stamps && team.block == 0) Stamp{stamps + i}(team);
    }
  }
};

/// The same, a block a message, with the times at which each packs and unpacks in the last exchange: by block, begin
/// and end, and behind them those of unpacking.
struct Traced {
  MPIX_Dev_halo halo;
  int times;
  std::uint64_t *failed, *stamps;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    std::uint64_t step = MPIX_Dev_halo_begin(team, halo);
    for (int i = 1; i <= times; ++i) {
      std::uint64_t* const packing = i == times ? stamps + 2 * std::size_t{team.block} : nullptr;
      std::uint64_t* const unpacking = packing ? packing + 2 * std::size_t{team.blocks} : nullptr;
      ++step;
      stamp_here(team, packing);
      int result = MPIX_Dev_halo_send(team, halo, team.block, step);
      stamp_here(team, packing ? packing + 1 : nullptr);
      stamp_here(team, unpacking);
      if (result == MPIX_DEV_DONE) result = MPIX_Dev_halo_receive(team, halo, team.block, step);
      stamp_here(team, unpacking ? unpacking + 1 : nullptr);
      if (result == MPIX_DEV_DONE) result = MPIX_Dev_halo_sync(team, halo);
      if (result != MPIX_DEV_DONE) return tell_failure(team, failed, result);
    }
  }
};

/// What else there is to do for each exchange.
struct Extra {
  Messages* changed = nullptr;      ///< its data become others before; or null
  std::uint64_t* stamps = nullptr;  ///< when each is over; or null
};

/// The library's, over the same data.
class Engine {
 public:
  enum class Route { memory, mpi };
  struct Keys {
    Route route = Route::memory;
    const char *form = "stacked", *sends = "nonblocking";
    int chunk = 0, gather = 0;
    const char* buffers = "pinned";
  };
  /// `refused`: why there is none, on all ranks; or null, where there has to be one.
  Engine(const Messages& messages, const Keys& keys, std::string* refused = nullptr)
      : stamps_(static_cast<std::uint64_t*>(support::allocate_pinned(most_at_once * sizeof(std::uint64_t)))) {
    const auto count = static_cast<std::size_t>(messages.count());
    std::vector<MPIX_Box> boxes(2 * count);
    std::vector<MPIX_Halo_message> all;
    for (int m = 0; m < messages.count(); ++m) {
      MPIX_Box* const pair = &boxes[2 * static_cast<std::size_t>(m)];
      for (const bool out : {true, false}) {
        MPIX_Box& box = pair[out ? 0 : 1];
        box = MPIX_Box{};
        box.base = out ? messages.send_data(m) : messages.recv_data(m);
        box.element = 8;
        box.dims = 1;
        box.count[0] = static_cast<long>(messages.words(m));
        box.stride[0] = 8;
      }
      all.push_back(MPIX_Halo_message{messages.peer(), m, m, 1, 1, pair, pair + 1});
    }
    support::load_blocks<Stamp>();
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpix_route", keys.route == Route::mpi ? "mpi" : "auto"));
    CHECK_MPI(MPI_Info_set(info, "mpix_form", keys.form));
    CHECK_MPI(MPI_Info_set(info, "mpix_sends", keys.sends));
    CHECK_MPI(MPI_Info_set(info, "mpix_chunk", std::to_string(keys.chunk).c_str()));
    CHECK_MPI(MPI_Info_set(info, "mpix_gather", std::to_string(keys.gather).c_str()));
    CHECK_MPI(MPI_Info_set(info, "mpix_buffers", keys.buffers));
    MPI_Comm comm = MPI_COMM_NULL;
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (refused) CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    const int result = MPIX_Halo_create(comm, messages.count(), all.data(), info, &halo_);
    if (refused && result != MPI_SUCCESS)
      *refused = support::mpi_error_text(result);
    else
      CHECK_MPI(result);
    CHECK_MPI(MPI_Comm_free(&comm));
    CHECK_MPI(MPI_Info_free(&info));
  }
  ~Engine() {
    if (halo_ != MPIX_HALO_NULL) CHECK_MPI(MPIX_Halo_free(&halo_));
    support::release_pinned(stamps_);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// A launch each.
  void exchange(int times, const Extra& extra = {}) {
    enqueue(times, extra);
    stream_.synchronize();
  }
  void enqueue(int times, const Extra& extra = {}) {
    for (int i = 0; i < times; ++i) {
      before(extra);
      CHECK_MPI(MPIX_Halo_exchange_stream(halo_, stream_.handle()));
      behind(extra, i);
    }
  }
  /// One launch for all, which the program's stream lets go on.
  void steps(int times, const Extra& extra = {}) {
    CHECK_MPI(MPIX_Halo_begin_stream(halo_, times, beside_.handle()));
    for (int i = 0; i < times; ++i) {
      before(extra);
      CHECK_MPI(MPIX_Halo_ready_stream(halo_, stream_.handle()));
      CHECK_MPI(MPIX_Halo_wait_stream(halo_, stream_.handle()));
      behind(extra, i);
    }
    stream_.synchronize();
  }
  /// By a kernel of the program.
  void own(int times, int blocks, const Extra& extra = {}) {
    if (extra.changed) {
      const auto messages = static_cast<std::uint32_t>(extra.changed->count());
      launch(Stays<true>{device(), times, failure_.word(), extra.stamps, extra.changed->changes(times), messages},
             blocks, 256);
    } else {
      launch(Stays<false>{device(), times, failure_.word(), extra.stamps, {}, 0}, blocks, 256);
    }
  }
  void traced(int times, int blocks, int threads, std::uint64_t* stamps) {
    launch(Traced{device(), times, failure_.word(), stamps}, blocks, threads);
  }
  /// Microseconds from the end of one exchange to that of the next, which a call has stamped.
  std::vector<double> times_of_each(int times) const {
    std::vector<double> all;
    for (int i = 1; i < times; ++i) all.push_back(static_cast<double>(stamps_[i] - stamps_[i - 1]) * 1e-3);
    return all;
  }
  std::uint64_t* stamps() const { return stamps_; }
  support::Stream& stream() { return stream_; }

  static constexpr int most_at_once = 100;

 private:
  void before(const Extra& extra) {
    if (extra.changed) extra.changed->change(stream_.handle());
  }
  void behind(const Extra& extra, int i) {
    if (extra.stamps) support::launch_blocks(Stamp{extra.stamps + i}, 1, 1, stream_.handle());
  }
  MPIX_Dev_halo device() const {
    MPIX_Dev_halo halo;
    CHECK_MPI(MPIX_Halo_get_device(halo_, &halo));
    return halo;
  }
  template <class Kernel>
  void launch(const Kernel& kernel, int blocks, int threads) {
    support::launch_blocks(kernel, blocks, threads, stream_.handle());
    stream_.synchronize();
    failure_.check();
  }

  MPIX_Halo halo_ = MPIX_HALO_NULL;
  std::uint64_t* const stamps_;
  support::Stream stream_, beside_;
  Failure failure_;
};

inline Way engine_way(const std::shared_ptr<Engine>& engine, const std::string& name, bool blocking, int at_once,
                      const char* paper) {
  Way way;
  way.name = name;
  way.blocks = blocking;
  way.at_once = at_once;
  way.paper = paper;
  way.launches = 1;
  way.exchange = [engine, at_once](Trace*) { engine->exchange(at_once); };
  return way;
}

inline void add_engine(const Messages& messages, const Size& size, int gather, Ways& ways) {
  for (const bool blocking : {false, true})
    for (const char* const form : {"stream", "stacked", "barrier"}) {
      const Engine::Keys keys{Engine::Route::mpi, form, blocking ? "blocking" : "nonblocking", 0, gather};
      const auto engine = std::make_shared<Engine>(messages, keys);
      const std::string name = std::string("engine, ") + form + ", " + (blocking ? "Send" : "Isend");
      ways.push_back(engine_way(engine, name, blocking, 1, size.paper));
    }
}

/// Its other forms and buffers. Those of the device: where MPI takes them.
inline void add_other_forms(const Messages& messages, bool mpi_is_staged, int gather, Ways& ways) {
  for (const std::string form : {"launches", "blocks"}) {
    const Engine::Keys keys{Engine::Route::mpi, form.c_str(), "nonblocking", 0, gather};
    ways.push_back(engine_way(std::make_shared<Engine>(messages, keys), "engine, " + form + ", Isend", false, 1, "-"));
    ways.back().launches = form == "launches" ? 2 : 2 * messages.count();
  }
  for (const std::string buffers : {"copied", "device"}) {
    if (buffers == "device" && mpi_is_staged) continue;
    std::string refused;
    const Engine::Keys keys{Engine::Route::mpi, "stacked", "nonblocking", 0, gather, buffers.c_str()};
    const auto engine = std::make_shared<Engine>(messages, keys, &refused);
    if (refused.empty())
      ways.push_back(engine_way(engine, "engine, stacked, " + buffers + ", Isend", false, 1, "-"));
    else if (messages.rank() == 0)
      std::fprintf(stderr, "without the engine's buffers of the device: %s\n", refused.c_str());
  }
}

/// As a program has it that asks for nothing.
inline void add_engine_by_memory(const Messages& messages, const Size& size, Ways& ways) {
  for (const char* const form : {"stream", "stacked", "barrier"}) {
    const auto engine = std::make_shared<Engine>(messages, Engine::Keys{Engine::Route::memory, form});
    ways.push_back(engine_way(engine, std::string("engine, ") + form + ", by memory", false, 1, size.paper));
  }
}

/// For the timeline: of ten exchanges of a kernel the last, of whose sends the program sees nothing.
inline Way traced_engine(const Messages& messages, int threads, int gather) {
  const Engine::Keys keys{Engine::Route::mpi, "stream", "nonblocking", 0, gather};
  const auto engine = std::make_shared<Engine>(messages, keys);
  Way way = engine_way(engine, "engine, the last of 10 steps of a kernel", false, 10, "-");
  way.traced = Way::Blocks::of_messages;
  way.exchange = [engine, threads, &messages](Trace* trace) {
    const Spanned whole(trace, "exchange");
    engine->traced(10, messages.count(), threads, messages.stamps());
  };
  return way;
}

/// Large messages in several of MPI: packed, sent and unpacked beside each other.
inline void add_chunks(const Messages& messages, int gather, Ways& ways) {
  int largest = 0;
  for (int m = 0; m < messages.count(); ++m) largest = std::max(largest, messages.bytes(m));
  for (const int kib : {64, 256, 1024}) {
    if (largest <= kib * 1024) continue;
    const auto engine = std::make_shared<Engine>(
        messages, Engine::Keys{Engine::Route::mpi, "stacked", "nonblocking", kib * 1024, gather});
    ways.push_back(engine_way(engine, "engine, chunks of " + std::to_string(kib) + " KiB", false, 1, "-"));
  }
}

/// Many exchanges in a row, without the CPU's program between them; with a launch each, with one for all, and captured.
inline void add_many(Messages& messages, Engine::Route route, int gather, Ways& ways) {
  constexpr int many = Engine::most_at_once;
  const int most_blocks = support::ranks_are_blocks ? support::multiprocessors() : 4;
  const int blocks = std::min(2 * messages.parts(), most_blocks);  // one packs while another unpacks
  const std::string behind = route == Engine::Route::memory ? ", by memory" : "";
  const auto engine = std::make_shared<Engine>(messages, Engine::Keys{route, "stacked", "nonblocking", 0, gather});
  Way way = engine_way(engine, "engine, 100 launches" + behind, false, many, "-");
  way.exchange_changed = [engine, &messages] { engine->exchange(many, {&messages}); };
  const auto stamped = [&engine](auto exchange) {
    return [engine, exchange] {
      exchange(Extra{nullptr, engine->stamps()});
      return engine->times_of_each(many);
    };
  };
  way.times_of_each = stamped([engine](const Extra& extra) { engine->exchange(many, extra); });
  ways.push_back(way);
  way.launches = 1.0 / many;
  way.name = "engine, 100 steps of a launch" + behind;
  way.exchange = [engine](Trace*) { engine->steps(many); };
  way.exchange_changed = [engine, &messages] { engine->steps(many, {&messages}); };
  way.times_of_each = stamped([engine](const Extra& extra) { engine->steps(many, extra); });
  ways.push_back(way);
  way.name = "engine, 100 steps of a kernel" + behind;
  way.exchange = [engine, blocks](Trace*) { engine->own(many, blocks); };
  way.exchange_changed = [engine, blocks, &messages] { engine->own(many, blocks, {&messages}); };
  way.times_of_each = stamped([engine, blocks](const Extra& extra) { engine->own(many, blocks, extra); });
  ways.push_back(way);
  if (!support::Captured::is_possible) return;
  const auto graph = std::make_shared<support::Captured>(engine->stream(), [&] { engine->enqueue(many); });
  way.name = "engine, 100 captured" + behind;
  way.exchange = [engine, graph](Trace*) {
    graph->launch();
    engine->stream().synchronize();
  };
  way.exchange_changed = [engine, &messages] {
    support::Captured changing(engine->stream(), [&] { engine->enqueue(many, {&messages}); });
    changing.launch();
    engine->stream().synchronize();
  };
  const auto stamping = std::make_shared<support::Captured>(engine->stream(), [&] {
    engine->enqueue(many, {nullptr, engine->stamps()});
  });
  way.times_of_each = [engine, stamping] {
    stamping->launch();
    engine->stream().synchronize();
    return engine->times_of_each(many);
  };
  ways.push_back(way);
}

}  // namespace halo
