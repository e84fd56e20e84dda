// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "memory.h"

#include <cuda_runtime.h>
#include "peer.h"
#include "support/abort.h"

namespace peers {
namespace {

/// cudaMemcpyPeerAsync as it is between processes: a copy into memory of another GPU that was mapped by IPC.
class CopyExchanger final : public Exchanger {
 public:
  CopyExchanger(const Exchange& exchange, int rank, cudaStream_t stream)
      : message_(exchange.messages.front()), stream_(stream), send_(exchange.bytes), receive_(exchange.bytes) {
    cudaIpcMemHandle_t mine, other;
    CHECK_CUDA(cudaIpcGetMemHandle(&mine, receive_.get()));
    CHECK_MPI(MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, message_.origin, 0, &other, sizeof other, MPI_BYTE,
                           message_.target, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (message_.target == rank)
      mapped_ = receive_.get();
    else
      CHECK_CUDA(cudaIpcOpenMemHandle(&mapped_, other, cudaIpcMemLazyEnablePeerAccess));
  }
  ~CopyExchanger() override {
    if (mapped_ != receive_.get()) CHECK_CUDA(cudaIpcCloseMemHandle(mapped_));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));  // nobody frees what is still mapped
  }

  std::vector<Row> rows() override {
    Row row;
    row.key = "copy";
    row.name = "copy engine, no synchronization";
    row.epoch = [this] {
      CHECK_CUDA(cudaMemcpyAsync(static_cast<char*>(mapped_) + message_.slot, send_.get() + message_.slot,
                                 message_.bytes, cudaMemcpyDeviceToDevice, stream_));
    };
    row.send = send_.get();
    row.received = [this]() -> const char* { return receive_.get(); };
    row.meet = [this] {
      CHECK_CUDA(cudaStreamSynchronize(stream_));
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    };
    return {row};
  }

 private:
  const Message message_;
  const cudaStream_t stream_;
  DeviceMemory send_, receive_;
  void* mapped_ = nullptr;
};

class Copy final : public Peer {
 public:
  Copy(int rank, cudaStream_t stream) : rank_(rank), stream_(stream) {}
  std::string name() const override { return "copy engine"; }
  std::string about() const override { return "cudaMemcpyAsync into IPC-mapped memory"; }
  std::unique_ptr<Exchanger> connect(const Exchange& exchange) override {
    return std::make_unique<CopyExchanger>(exchange, rank_, stream_);
  }

 private:
  const int rank_;
  const cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Peer> find_copy(const Machine& machine) { return std::make_unique<Copy>(machine.rank, machine.stream); }

}  // namespace peers
