// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "messages.h"
#include "support/streams.h"
#include "way.h"

/// What programs do without channels.
namespace halo {

inline std::vector<MPI_Request> requests_for(const Messages& messages) {
  return std::vector<MPI_Request>(static_cast<std::size_t>(messages.count()), MPI_REQUEST_NULL);
}
inline MPI_Request* request_of(std::vector<MPI_Request>& all, int m) { return &all[static_cast<std::size_t>(m)]; }

/// One that is over, or -1.
inline int any_over(std::vector<MPI_Request>& requests) {
  int index = 0, over = 0;
  CHECK_MPI(MPI_Testany(static_cast<int>(requests.size()), requests.data(), &index, &over, MPI_STATUS_IGNORE));
  return over && index != MPI_UNDEFINED ? index : -1;
}
inline void wait_for_all(std::vector<MPI_Request>& requests) {
  CHECK_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

/// Packs all, or unpacks it.
inline void launch_copies(const Messages& messages, Buffers buffers, bool packs, bool traced, void* stream) {
  const int blocks = packs ? messages.blocks_to_pack() : messages.blocks_to_unpack(buffers);
  std::uint64_t* const stamps = traced ? messages.stamps() + (packs ? 0 : 2 * messages.parts()) : nullptr;
  support::launch_blocks(Copy{packs ? messages.pack(buffers) : messages.unpack(buffers),
                              static_cast<std::uint32_t>(messages.parts()), stamps},
                         blocks, 256, stream);
}

/// That of Vanecek's program, without its clean-up: launch, receive, synchronize, send, wait, launch, synchronize.
template <class Launch>
void exchange_by_two_kernels(const Messages& messages, Buffers buffers, bool blocking, bool testany, Trace* trace,
                             const Launch& launch) {
  const Spanned whole(trace, "exchange");
  std::vector<MPI_Request> receives = requests_for(messages), sends = receives;
  const int count = messages.count();
  {
    const Spanned span(trace, "launch");
    launch(true);
  }
  {
    const Spanned span(trace, "receives");
    for (int m = 0; m < count; ++m) messages.receive(m, buffers, request_of(receives, m));
  }
  {
    const Spanned span(trace, "synchronize");
    support::synchronize();
  }
  for (int m = 0; m < count; ++m) {
    const Spanned span(trace, "send", m);
    messages.send(m, buffers, blocking, request_of(sends, m));
  }
  {
    const Spanned span(trace, "wait");
    if (testany)
      for (int left = count; left > 0;) left -= any_over(receives) >= 0;
    else
      wait_for_all(receives);
  }
  {
    const Spanned span(trace, "launch");
    launch(false);
  }
  {
    const Spanned span(trace, "wait for sends");
    wait_for_all(sends);
  }
  const Spanned span(trace, "synchronize");
  support::synchronize();
}

/// `Buffers::device`: MPI takes memory of the device; no baseline of the papers, whose programs had pinned memory.
inline void add_baselines(const Messages& messages, Buffers buffers, Ways& ways) {
  const bool pinned = buffers == Buffers::pinned;
  for (const bool blocking : {false, true})
    for (const bool testany : {false, true}) {
      Way way;
      way.name = std::string(pinned ? "" : "GPU-aware MPI, ") + (blocking ? "Send" : "Isend") + ", " +
                 (testany ? "Testany" : "Waitall");
      way.kind = pinned ? Way::Kind::baseline : Way::Kind::other;
      way.traced = Way::Blocks::of_parts;
      way.blocks = blocking;
      way.launches = 2;
      way.exchange = [&messages, buffers, blocking, testany](Trace* trace) {
        exchange_by_two_kernels(messages, buffers, blocking, testany, trace, [&](bool packs) {
          launch_copies(messages, buffers, packs, trace != nullptr, nullptr);
        });
      };
      ways.push_back(way);
    }
}

/// The same two kernels, each a graph.
inline void add_graphs(const Messages& messages, Ways& ways) {
  if (!support::Captured::is_possible) return;
  struct Graphs {
    support::Stream stream;
    support::Captured pack, unpack;
    explicit Graphs(const Messages& of)
        : pack(stream, [&] { launch_copies(of, Buffers::pinned, true, false, stream.handle()); }),
          unpack(stream, [&] { launch_copies(of, Buffers::pinned, false, false, stream.handle()); }) {}
  };
  const auto graphs = std::make_shared<Graphs>(messages);
  for (const bool blocking : {false, true}) {
    Way way;
    way.name = std::string("graphs, ") + (blocking ? "Send" : "Isend") + ", Waitall";
    way.blocks = blocking;
    way.launches = 2;
    way.exchange = [&messages, graphs, blocking](Trace* trace) {
      exchange_by_two_kernels(messages, Buffers::pinned, blocking, false, trace,
                              [&](bool packs) { (packs ? graphs->pack : graphs->unpack).launch(); });
    };
    ways.push_back(way);
  }
}

/// A launch for each message, in a stream of its own, and an event behind it: no block has to tell anything.
class KernelPerMessage {
 public:
  KernelPerMessage(const Messages& messages, int threads)
      : messages_(messages), threads_(threads), lanes_(static_cast<std::size_t>(messages.count())) {}

  void exchange(bool blocking, Events& events) {
    const int count = messages_.count();
    std::vector<MPI_Request> receives = requests_for(messages_), sends = receives;
    std::vector<bool> was_sent(lanes_.size(), false);
    for (int m = 0; m < count; ++m) {
      launch(messages_.whole_pack(), m);
      lane(m).packed.record(lane(m).stream);
    }
    for (int m = 0; m < count; ++m) messages_.receive(m, Buffers::pinned, request_of(receives, m));
    const auto send_next = [&] {
      for (int m = 0; m < count; ++m) {
        if (was_sent[static_cast<std::size_t>(m)] || !lane(m).packed.is_over()) continue;
        was_sent[static_cast<std::size_t>(m)] = true;
        messages_.send(m, Buffers::pinned, blocking, request_of(sends, m));
        return true;
      }
      return false;
    };
    events.missed();
    for (int to_send = count, to_come = count; to_send + to_come > 0;) {
      if (to_send > 0 && send_next()) {
        --to_send;
        events.found();
      } else if (const int m = to_come > 0 ? any_over(receives) : -1; m >= 0) {
        --to_come;
        events.found();
        launch(messages_.whole_unpack(), m);
      } else {
        events.missed();
        support::let_others_run();
      }
    }
    wait_for_all(sends);
    for (Lane& each : lanes_) each.stream.synchronize();
  }

 private:
  struct Lane {
    support::Stream stream;
    support::Event packed;
  };
  Lane& lane(int m) { return lanes_[static_cast<std::size_t>(m)]; }
  void launch(const Part* parts, int m) {
    support::launch_blocks(Copy{parts + m, 1, nullptr}, 1, threads_, lane(m).stream.handle());
  }

  const Messages& messages_;
  const int threads_;
  std::vector<Lane> lanes_;
};

inline void add_kernels_per_message(const Messages& messages, int threads, Ways& ways) {
  const auto kernels = std::make_shared<KernelPerMessage>(messages, threads);
  for (const bool blocking : {false, true}) {
    Way way;
    way.name = std::string("kernel a message, ") + (blocking ? "Send" : "Isend");
    way.blocks = blocking;
    way.launches = 2 * messages.count();
    way.events = std::make_shared<Events>();
    way.exchange = [kernels, blocking, events = way.events](Trace*) { kernels->exchange(blocking, *events); };
    ways.push_back(way);
  }
}

}  // namespace halo
