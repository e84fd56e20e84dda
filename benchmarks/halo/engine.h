// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>
#include <mpix_device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messages.h"
#include "support/streams.h"
#include "way.h"

namespace halo {

/// Exchanges by a kernel of the program; `changes`: before each it sends other data.
template <bool changes>
struct Stays {
  MPIX_Dev_halo halo;
  int times;
  std::uint64_t* failed;
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
    }
  }
};

/// The library's, over the same data.
class Engine {
 public:
  enum class Route { memory, mpi };
  struct Keys {
    Route route = Route::memory;
    const char *form = "stacked", *sends = "nonblocking";
    int chunk = 0, gather = 0;
  };
  Engine(const Messages& messages, const Keys& keys) {
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
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpix_route", keys.route == Route::mpi ? "mpi" : "auto"));
    CHECK_MPI(MPI_Info_set(info, "mpix_form", keys.form));
    CHECK_MPI(MPI_Info_set(info, "mpix_sends", keys.sends));
    CHECK_MPI(MPI_Info_set(info, "mpix_chunk", std::to_string(keys.chunk).c_str()));
    CHECK_MPI(MPI_Info_set(info, "mpix_gather", std::to_string(keys.gather).c_str()));
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, messages.count(), all.data(), info, &halo_));
    CHECK_MPI(MPI_Info_free(&info));
  }
  ~Engine() { CHECK_MPI(MPIX_Halo_free(&halo_)); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // `changed`: its data become others before each exchange; or null.
  /// A launch each.
  void exchange(int times, Messages* changed = nullptr) {
    enqueue(times, changed);
    stream_.synchronize();
  }
  void enqueue(int times, Messages* changed = nullptr) {
    for (int i = 0; i < times; ++i) {
      if (changed) changed->change(stream_.handle());
      CHECK_MPI(MPIX_Halo_exchange_stream(halo_, stream_.handle()));
    }
  }
  /// One launch for all, which the program's stream lets go on.
  void steps(int times, Messages* changed = nullptr) {
    CHECK_MPI(MPIX_Halo_begin_stream(halo_, times, beside_.handle()));
    for (int i = 0; i < times; ++i) {
      if (changed) changed->change(stream_.handle());
      CHECK_MPI(MPIX_Halo_ready_stream(halo_, stream_.handle()));
      CHECK_MPI(MPIX_Halo_wait_stream(halo_, stream_.handle()));
    }
    stream_.synchronize();
  }
  /// By a kernel of the program.
  void own(int times, int blocks, Messages* changed = nullptr) {
    MPIX_Dev_halo halo;
    CHECK_MPI(MPIX_Halo_get_device(halo_, &halo));
    if (changed) {
      const auto messages = static_cast<std::uint32_t>(changed->count());
      const Stays<true> kernel{halo, times, failure_.word(), changed->changes(times), messages};
      support::launch_blocks(kernel, blocks, 256, stream_.handle());
    } else {
      support::launch_blocks(Stays<false>{halo, times, failure_.word(), {}, 0}, blocks, 256, stream_.handle());
    }
    stream_.synchronize();
    failure_.check();
  }
  support::Stream& stream() { return stream_; }

 private:
  MPIX_Halo halo_ = MPIX_HALO_NULL;
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
    for (const char* const form : {"stream", "stacked"}) {
      const Engine::Keys keys{Engine::Route::mpi, form, blocking ? "blocking" : "nonblocking", 0, gather};
      const auto engine = std::make_shared<Engine>(messages, keys);
      const std::string name = std::string("engine, ") + form + ", " + (blocking ? "Send" : "Isend");
      ways.push_back(engine_way(engine, name, blocking, 1, size.paper));
    }
}

/// As a program has it that asks for nothing.
inline void add_engine_by_memory(const Messages& messages, const Size& size, Ways& ways) {
  for (const char* const form : {"stream", "stacked"}) {
    const auto engine = std::make_shared<Engine>(messages, Engine::Keys{Engine::Route::memory, form});
    ways.push_back(engine_way(engine, std::string("engine, ") + form + ", by memory", false, 1, size.paper));
  }
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
  constexpr int many = 100;
  const int most_blocks = support::ranks_are_blocks ? support::multiprocessors() : 4;
  const int blocks = std::min(2 * messages.blocks(), most_blocks);  // one packs while another unpacks
  const std::string behind = route == Engine::Route::memory ? ", by memory" : "";
  const auto engine = std::make_shared<Engine>(messages, Engine::Keys{route, "stacked", "nonblocking", 0, gather});
  Way way = engine_way(engine, "engine, 100 launches" + behind, false, many, "-");
  way.exchange_changed = [engine, &messages] { engine->exchange(many, &messages); };
  ways.push_back(way);
  way.launches = 1.0 / many;
  way.name = "engine, 100 steps of a launch" + behind;
  way.exchange = [engine](Trace*) { engine->steps(many); };
  way.exchange_changed = [engine, &messages] { engine->steps(many, &messages); };
  ways.push_back(way);
  way.name = "engine, 100 steps of a kernel" + behind;
  way.exchange = [engine, blocks](Trace*) { engine->own(many, blocks); };
  way.exchange_changed = [engine, blocks, &messages] { engine->own(many, blocks, &messages); };
  ways.push_back(way);
  if (!support::Captured::is_possible) return;
  const auto graph = std::make_shared<support::Captured>(engine->stream(), [&] { engine->enqueue(many); });
  way.name = "engine, 100 captured" + behind;
  way.exchange = [engine, graph](Trace*) {
    graph->launch();
    engine->stream().synchronize();
  };
  way.exchange_changed = [engine, &messages] {
    support::Captured changing(engine->stream(), [&] { engine->enqueue(many, &messages); });
    changing.launch();
    engine->stream().synchronize();
  };
  ways.push_back(way);
}

}  // namespace halo
