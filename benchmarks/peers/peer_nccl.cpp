// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "kernels.h"

#include <cuda_runtime.h>
#include "memory.h"
#include "nccl_world.h"
#include "peer.h"

namespace peers {
namespace {

/// A send and a receive for each message, in one group: as NCCL's users exchange halos.
class NcclExchanger final : public Exchanger {
 public:
  NcclExchanger(const Exchange& exchange, ncclComm_t world, cudaStream_t stream)
      : exchange_(exchange), world_(world), stream_(stream), send_(exchange.bytes), receive_(exchange.bytes) {}

  std::vector<Row> rows() override {
    const auto received = [this]() -> const char* { return receive_.get(); };
    const auto plain = [this] { exchange(); };
    const auto between = [this] {
      launch_user_kernel(stream_);
      exchange();
      launch_user_kernel(stream_);
    };
    return {{"nccl", "NCCL send/recv group", plain, plain, false, send_.get(), received},
            {"nccl-user", "NCCL between 2 user kernels", between, between, false, send_.get(), received}};
  }

 private:
  void exchange() {
    CHECK_NCCL(ncclGroupStart());
    for (const Message& m : exchange_.messages) {
      CHECK_NCCL(ncclSend(send_.get() + m.slot, m.bytes, ncclChar, m.target, world_, stream_));
      CHECK_NCCL(ncclRecv(receive_.get() + m.slot, m.bytes, ncclChar, m.origin, world_, stream_));
    }
    CHECK_NCCL(ncclGroupEnd());
  }

  const Exchange exchange_;
  const ncclComm_t world_;
  const cudaStream_t stream_;
  DeviceMemory send_, receive_;
};

class Nccl final : public Peer {
 public:
  Nccl(ncclComm_t world, cudaStream_t stream) : world_(world), stream_(stream) {}
  ~Nccl() override { CHECK_NCCL(ncclCommDestroy(world_)); }
  std::string name() const override { return "NCCL"; }
  std::string about() const override {
    int version = 0;
    CHECK_NCCL(ncclGetVersion(&version));
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
  }
  std::unique_ptr<Exchanger> connect(const Exchange& exchange) override {
    return std::make_unique<NcclExchanger>(exchange, world_, stream_);
  }

 private:
  const ncclComm_t world_;
  const cudaStream_t stream_;
};

}  // namespace

ncclComm_t nccl_world(const Machine& machine) {
  static ncclComm_t world = nullptr;
  if (world) return world;
  ncclUniqueId id;
  if (machine.rank == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  CHECK_MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  CHECK_NCCL(ncclCommInitRank(&world, machine.ranks, id, machine.rank));
  return world;
}

std::unique_ptr<Peer> find_nccl(const Machine& machine) {
  if (machine.gpus_are_shared) return std::make_unique<AbsentPeer>("NCCL", "it needs a GPU for each rank");
  return std::make_unique<Nccl>(nccl_world(machine), machine.stream);
}

}  // namespace peers
