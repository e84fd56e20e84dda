// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <memory>
#include <string>
#include <utility>

#include "benchmarks/collectives/loaded_nccl.h"
#include "messages.h"
#include "support/streams.h"
#include "way.h"

/// What needs no packing, as the messages are contiguous, and no CPU on the way: epochs on a stream, and NCCL.
namespace halo {

class Epochs {
 public:
  explicit Epochs(const Messages& messages) : messages_(messages) {
    CHECK_MPI(MPI_Win_create(messages.recv_all(), static_cast<MPI_Aint>(messages.recv_bytes()), 1, MPI_INFO_NULL,
                             MPI_COMM_WORLD, &win_));
    MPI_Group all = MPI_GROUP_NULL;
    const int peer = messages.peer();
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &all));
    CHECK_MPI(MPI_Group_incl(all, 1, &peer, &peer_));
    CHECK_MPI(MPI_Group_free(&all));
  }
  ~Epochs() {
    CHECK_MPI(MPI_Group_free(&peer_));
    CHECK_MPI(MPI_Win_free(&win_));
  }
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;

  /// `changed`: its data become others before; or null.
  void enqueue(bool fused, Messages* changed = nullptr) {
    if (changed) changed->change(stream_.handle());
    CHECK_MPI(MPIX_Win_post_stream(peer_, win_, stream_.handle()));
    CHECK_MPI(MPI_Win_start(peer_, MPIX_MODE_STREAM, win_));
    for (int m = 0; m < messages_.count(); ++m)
      CHECK_MPI(MPI_Put(messages_.send_data(m), messages_.bytes(m), MPI_BYTE, messages_.peer(),
                        messages_.recv_data(m) - messages_.recv_all(), messages_.bytes(m), MPI_BYTE, win_));
    if (fused) {
      CHECK_MPI(MPIX_Win_complete_wait_stream(win_, stream_.handle()));
    } else {
      CHECK_MPI(MPIX_Win_complete_stream(win_, stream_.handle()));
      CHECK_MPI(MPIX_Win_wait_stream(win_, stream_.handle()));
    }
  }
  support::Stream& stream() { return stream_; }

 private:
  const Messages& messages_;
  support::Stream stream_;
  MPI_Win win_ = MPI_WIN_NULL;
  MPI_Group peer_ = MPI_GROUP_NULL;
};

inline void add_epochs(Messages& messages, Ways& ways) {
  const auto epochs = std::make_shared<Epochs>(messages);
  for (const int at_once : {1, 10}) {
    Way way;
    way.at_once = at_once;
    const std::string behind = at_once > 1 ? ", 10 at once" : "";
    for (const bool fused : {false, true}) {
      way.name = std::string(fused ? "epochs, fused" : "epochs") + behind;
      way.launches = fused ? 2 : 3;
      way.exchange = [epochs, fused, at_once](Trace*) {
        for (int i = 0; i < at_once; ++i) epochs->enqueue(fused);
        epochs->stream().synchronize();
      };
      way.exchange_changed = [epochs, fused, at_once, &messages] {
        for (int i = 0; i < at_once; ++i) epochs->enqueue(fused, &messages);
        epochs->stream().synchronize();
      };
      ways.push_back(way);
    }
    if (!support::Captured::is_possible) continue;
    // A window of its own: posts of one that was captured are not free any more.
    const auto captured = std::make_shared<Epochs>(messages);
    const auto graph = std::make_shared<support::Captured>(captured->stream(), [&] {
      for (int i = 0; i < at_once; ++i) captured->enqueue(true);
    });
    way.name = "epochs, captured" + behind;
    way.launches = 1.0 / at_once;
    way.exchange = [captured, graph](Trace*) {
      graph->launch();
      captured->stream().synchronize();
    };
    way.exchange_changed = [at_once, &messages] {
      Epochs changing(messages);
      support::Captured others(changing.stream(), [&] {
        for (int i = 0; i < at_once; ++i) changing.enqueue(true, &messages);
      });
      others.launch();
      changing.stream().synchronize();
    };
    ways.push_back(way);
  }
}

class Nccl {
 public:
  Nccl(const Messages& messages, std::shared_ptr<nccl::World> world) : messages_(messages), world_(std::move(world)) {}
  /// `changed`: its data become others before; or null.
  void enqueue(Messages* changed = nullptr) {
    if (changed) changed->change(stream_.handle());
    world_->check(world_->calls.GroupStart(), "ncclGroupStart");
    for (int m = 0; m < messages_.count(); ++m) {
      const auto bytes = static_cast<std::size_t>(messages_.bytes(m));
      NCCL_CALL(*world_, Send, messages_.send_data(m), bytes, nccl::int8, messages_.peer(), world_->comm(),
                stream_.handle());
      NCCL_CALL(*world_, Recv, messages_.recv_data(m), bytes, nccl::int8, messages_.peer(), world_->comm(),
                stream_.handle());
    }
    world_->check(world_->calls.GroupEnd(), "ncclGroupEnd");
  }
  support::Stream& stream() { return stream_; }

 private:
  const Messages& messages_;
  const std::shared_ptr<nccl::World> world_;
  support::Stream stream_;
};

inline void add_nccl(Messages& messages, const std::shared_ptr<nccl::World>& world, Ways& ways) {
  if (!world) return;
  const auto nccl = std::make_shared<Nccl>(messages, world);
  for (const int at_once : {1, 10, 100}) {  // as epochs, and as the engine
    Way way;
    way.at_once = at_once;
    way.launches = 1;
    const std::string behind = at_once > 1 ? ", " + std::to_string(at_once) + " at once" : "";
    way.name = "NCCL" + behind;
    way.exchange = [nccl, at_once](Trace*) {
      for (int i = 0; i < at_once; ++i) nccl->enqueue();
      nccl->stream().synchronize();
    };
    way.exchange_changed = [nccl, at_once, &messages] {
      for (int i = 0; i < at_once; ++i) nccl->enqueue(&messages);
      nccl->stream().synchronize();
    };
    ways.push_back(way);
    const auto graph = std::make_shared<support::Captured>(nccl->stream(), [&] {
      for (int i = 0; i < at_once; ++i) nccl->enqueue();
    });
    way.name = "NCCL, captured" + behind;
    way.launches = 1.0 / at_once;
    way.exchange = [nccl, graph](Trace*) {
      graph->launch();
      nccl->stream().synchronize();
    };
    way.exchange_changed = [nccl, at_once, &messages] {
      support::Captured changing(nccl->stream(), [&] {
        for (int i = 0; i < at_once; ++i) nccl->enqueue(&messages);
      });
      changing.launch();
      nccl->stream().synchronize();
    };
    ways.push_back(way);
  }
}

}  // namespace halo
