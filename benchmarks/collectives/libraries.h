// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix_collectives.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "benchmarks/dev/stream.h"
#include "call.h"
#include "loaded_nccl.h"
#include "memory.h"
#include "support/abort.h"

/// The same call by each library. MPI's returns when it is done; the others enqueue.
namespace collectives {

inline MPI_Datatype mpi_type(Type type) { return type == Type::float64 ? MPI_DOUBLE : MPI_FLOAT; }

/// A communicator of libmpix's calls, with or without memory attached.
class Mpix {
 public:
  /// `way`: as MPIX_COLL has it; null: as it says.
  explicit Mpix(launcher::Stream& stream, const char* way = nullptr) : stream_(stream) {
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    CHECK_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));  // CHECK_MPI says why
    MPI_Info info = MPI_INFO_NULL;
    if (way) {
      CHECK_MPI(MPI_Info_create(&info));
      CHECK_MPI(MPI_Info_set(info, "mpix_coll", way));
    }
    CHECK_MPI(MPIX_Comm_prepare_stream(comm_, info));
    if (way) CHECK_MPI(MPI_Info_free(&info));
  }
  ~Mpix() { CHECK_MPI(MPI_Comm_free(&comm_)); }
  Mpix(const Mpix&) = delete;
  Mpix& operator=(const Mpix&) = delete;

  void attach(const place::Memory& memory) {
    CHECK_MPI(MPIX_Comm_attach(comm_, memory.get(), static_cast<MPI_Aint>(memory.bytes())));
  }
  void detach(const place::Memory& memory) { CHECK_MPI(MPIX_Comm_detach(comm_, memory.get())); }

  void enqueue(const Call& c) const { CHECK_MPI(try_to_enqueue(c)); }

  MPIX_Comm_stats stats() const {
    MPIX_Comm_stats stats{};
    CHECK_MPI(MPIX_Comm_get_stats(comm_, &stats, sizeof stats));
    return stats;
  }

 private:
  int try_to_enqueue(const Call& c) const {
    const int count = static_cast<int>(c.count);
    const MPI_Datatype type = mpi_type(c.type);
    void* const stream = stream_.handle();
    switch (c.kind) {
      case Kind::allreduce:
        return MPIX_Allreduce_stream(c.send, c.receive, count, type, MPI_SUM, comm_, stream);
      case Kind::allgather:
        return MPIX_Allgather_stream(c.send, count, type, c.receive, count, type, comm_, stream);
      case Kind::bcast:
        return MPIX_Bcast_stream(c.receive, count, type, root, comm_, stream);
      case Kind::reduce:
        return MPIX_Reduce_stream(c.send, c.receive, count, type, MPI_SUM, root, comm_, stream);
      case Kind::alltoall:
        return MPIX_Alltoall_stream(c.send, count, type, c.receive, count, type, comm_, stream);
      case Kind::reduce_scatter_block:
        return MPIX_Reduce_scatter_block_stream(c.send, c.receive, count, type, MPI_SUM, comm_, stream);
      case Kind::barrier:
        return MPIX_Barrier_stream(comm_, stream);
    }
    return MPI_ERR_INTERN;
  }

  launcher::Stream& stream_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// On a GPU behind a synchronization of the stream, and by way of pinned memory, unless MPI takes the GPU's.
class Mpi {
 public:
  Mpi(launcher::Stream& stream, bool staged, std::size_t bytes_of_a_buffer) : stream_(stream), staged_(staged) {
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    const std::size_t count = staged_ ? (bytes_of_a_buffer + sizeof(double) - 1) / sizeof(double) : 0;
    send_ = launcher::allocate_pinned(count + 1);
    receive_ = launcher::allocate_pinned(count + 1);
  }
  ~Mpi() { CHECK_MPI(MPI_Comm_free(&comm_)); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  void call(const Call& c) const {
    if (!staged_) {
      if (support::ranks_are_blocks) stream_.synchronize();
      CHECK_MPI(try_to_call(c));
      return;
    }
    Call here = c;
    here.send = send_.get();
    here.receive = receive_.get();
    const bool sends = c.kind != Kind::bcast || c.rank == root;
    const bool receives = c.kind == Kind::bcast ? c.rank != root : c.receives();
    if (sends && c.kind != Kind::barrier)
      place::copy(stream_, here.source(), c.source(), c.kind == Kind::bcast ? c.bytes_received() : c.bytes_sent());
    stream_.synchronize();
    CHECK_MPI(try_to_call(here));
    if (receives && c.kind != Kind::barrier) place::copy(stream_, c.receive, here.receive, c.bytes_received());
  }

 private:
  int try_to_call(const Call& c) const {
    const int count = static_cast<int>(c.count);
    const MPI_Datatype type = mpi_type(c.type);
    switch (c.kind) {
      case Kind::allreduce:
        return MPI_Allreduce(c.send, c.receive, count, type, MPI_SUM, comm_);
      case Kind::allgather:
        return MPI_Allgather(c.send, count, type, c.receive, count, type, comm_);
      case Kind::bcast:
        return MPI_Bcast(c.receive, count, type, root, comm_);
      case Kind::reduce:
        return MPI_Reduce(c.send, c.receive, count, type, MPI_SUM, root, comm_);
      case Kind::alltoall:
        return MPI_Alltoall(c.send, count, type, c.receive, count, type, comm_);
      case Kind::reduce_scatter_block:
        return MPI_Reduce_scatter_block(c.send, c.receive, count, type, MPI_SUM, comm_);
      case Kind::barrier:
        return MPI_Barrier(comm_);
    }
    return MPI_ERR_INTERN;
  }

  launcher::Stream& stream_;
  const bool staged_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  launcher::Pinned send_, receive_;
};

/// It has no barrier: an all-reduce of one float has its place. Its alltoall is a group of sends and receives.
class Nccl {
 public:
  Nccl(launcher::Stream& stream, std::unique_ptr<nccl::World> world)
      : stream_(stream), world_(std::move(world)), word_(2 * sizeof(float)) {}

  /// Collective. Empty: there are registered buffers of so many bytes. Else why there are none.
  std::string register_buffers(std::size_t bytes) {
    if (!world_->has_windows()) return "this NCCL has no windows (2.27 has)";
    send_ = std::make_unique<nccl::Registered>(*world_, bytes);
    receive_ = std::make_unique<nccl::Registered>(*world_, bytes);
    if (send_->is_symmetric() && receive_->is_symmetric()) return "";
    receive_.reset();
    send_.reset();
    return "NCCL makes no window of symmetric memory here";
  }
  void* registered_send() const { return send_->get(); }
  void* registered_receive() const { return receive_->get(); }

  void enqueue(const Call& c) const {
    const nccl::World& world = *world_;
    const nccl::Comm comm = world.comm();
    const nccl::Type type = c.type == Type::float64 ? nccl::float64 : nccl::float32;
    void* const stream = stream_.handle();
    switch (c.kind) {
      case Kind::allreduce:
        return NCCL_CALL(world, AllReduce, c.send, c.receive, c.count, type, nccl::sum, comm, stream);
      case Kind::allgather:
        return NCCL_CALL(world, AllGather, c.send, c.receive, c.count, type, comm, stream);
      case Kind::bcast:
        return NCCL_CALL(world, Broadcast, c.receive, c.receive, c.count, type, root, comm, stream);
      case Kind::reduce:
        return NCCL_CALL(world, Reduce, c.send, c.receive, c.count, type, nccl::sum, root, comm, stream);
      case Kind::alltoall:
        return alltoall(c, type);
      case Kind::reduce_scatter_block:
        return NCCL_CALL(world, ReduceScatter, c.send, c.receive, c.count, type, nccl::sum, comm, stream);
      case Kind::barrier:
        return NCCL_CALL(world, AllReduce, word_.as<float>(), word_.as<float>() + 1, 1, nccl::float32, nccl::sum, comm,
                         stream);
    }
  }

 private:
  void alltoall(const Call& c, nccl::Type type) const {
    const nccl::World& world = *world_;
    const std::size_t block = c.count * c.size_of_element();
    NCCL_CALL(world, GroupStart, );
    for (int other = 0; other < c.ranks; ++other) {
      const std::size_t at = static_cast<std::size_t>(other) * block;
      NCCL_CALL(world, Send, static_cast<char*>(c.send) + at, c.count, type, other, world.comm(), stream_.handle());
      NCCL_CALL(world, Recv, static_cast<char*>(c.receive) + at, c.count, type, other, world.comm(), stream_.handle());
    }
    NCCL_CALL(world, GroupEnd, );
  }

  launcher::Stream& stream_;
  const std::unique_ptr<nccl::World> world_;
  const place::Memory word_;
  std::unique_ptr<nccl::Registered> send_, receive_;
};

}  // namespace collectives
