// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "messages.h"
#include "way.h"

namespace halo {

/// The library's, over the same data.
class Engine {
 public:
  Engine(const Messages& messages, const char* form, const char* sends) {
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
    CHECK_MPI(MPI_Info_set(info, "mpix_form", form));
    CHECK_MPI(MPI_Info_set(info, "mpix_sends", sends));
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, messages.count(), all.data(), info, &halo_));
    CHECK_MPI(MPI_Info_free(&info));
  }
  ~Engine() { CHECK_MPI(MPIX_Halo_free(&halo_)); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void exchange(int times) {
    for (int i = 0; i < times; ++i) CHECK_MPI(MPIX_Halo_exchange_stream(halo_, nullptr));
    support::synchronize();
  }

 private:
  MPIX_Halo halo_ = MPIX_HALO_NULL;
};

inline Way engine_way(const std::shared_ptr<Engine>& engine, const std::string& name, bool blocking, int at_once,
                      const char* paper) {
  Way way;
  way.name = name;
  way.blocks = blocking;
  way.at_once = at_once;
  way.paper = paper;
  way.exchange = [engine, at_once](Trace*) { engine->exchange(at_once); };
  return way;
}

inline void add_engine(const Messages& messages, const Size& size, Ways& ways) {
  for (const bool blocking : {false, true})
    for (const char* const form : {"stream", "stacked"}) {
      const auto engine = std::make_shared<Engine>(messages, form, blocking ? "blocking" : "nonblocking");
      const std::string name = std::string("engine, ") + form + ", " + (blocking ? "Send" : "Isend");
      ways.push_back(engine_way(engine, name, blocking, 1, size.paper));
      if (form[3] == 'c' && !blocking)
        ways.push_back(engine_way(engine, name + ", 10 at once", blocking, 10, size.paper));
    }
}

}  // namespace halo
