// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "kernels.h"

#include <cuda_runtime.h>
#include "nccl_world.h"
#include "peer.h"

namespace peers {
namespace {

/// Memory that peers write into: it must come from NCCL, and is registered by all ranks together.
class NcclWindow {
 public:
  NcclWindow(std::size_t bytes, ncclComm_t world) : world_(world) {
    CHECK_NCCL(ncclMemAlloc(&base_, bytes));
    CHECK_CUDA(cudaMemset(base_, 0, bytes));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_NCCL(ncclCommWindowRegister(world_, base_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC));
  }
  ~NcclWindow() {
    CHECK_NCCL(ncclCommWindowDeregister(world_, window_));
    CHECK_NCCL(ncclMemFree(base_));
  }
  NcclWindow(const NcclWindow&) = delete;
  NcclWindow& operator=(const NcclWindow&) = delete;
  char* get() const { return static_cast<char*>(base_); }
  ncclWindow_t handle() const { return window_; }

 private:
  const ncclComm_t world_;
  void* base_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

/// A put with a signal for each message, then a wait for all signals of an epoch.
///
/// Nothing tells an origin that its last data has been used. So epochs write into two halves in turn: an origin
/// reaches a half again only after its targets' signals of the epoch between, which they sent after they had
/// used that half. That holds as all pairs of ranks exchange both ways.
class NcclRmaExchanger final : public Exchanger {
 public:
  NcclRmaExchanger(const Exchange& exchange, ncclComm_t world, cudaStream_t stream)
      : exchange_(exchange),
        world_(world),
        stream_(stream),
        send_(exchange.bytes, world),
        receive_(2 * exchange.bytes, world) {
    for (int neighbour : exchange.neighbours) {
      int signals = 0;
      for (const Message& m : exchange.messages) signals += m.origin == neighbour;
      ncclWaitSignalDesc_t wait{};
      wait.opCnt = signals;
      wait.peer = neighbour;
      waits_.push_back(wait);
    }
  }

  std::vector<Row> rows() override {
    const auto epoch = [this] { exchange(); };
    return {{"nccl-rma", "NCCL put-signal, wait-signal", epoch, epoch, false, send_.get(),
             [this]() -> const char* { return receive_.get() + half(); }}};
  }

 private:
  std::size_t half() const { return epoch_ % 2 * exchange_.bytes; }

  void exchange() {
    ++epoch_;
    CHECK_NCCL(ncclGroupStart());
    for (const Message& m : exchange_.messages)
      CHECK_NCCL(ncclPutSignal(send_.get() + m.slot, m.bytes, ncclChar, m.target, receive_.handle(), half() + m.slot, 0,
                               0, 0, world_, stream_));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(ncclWaitSignal(static_cast<int>(waits_.size()), waits_.data(), world_, stream_));
  }

  const Exchange exchange_;
  const ncclComm_t world_;
  const cudaStream_t stream_;
  NcclWindow send_, receive_;
  std::vector<ncclWaitSignalDesc_t> waits_;
  unsigned long epoch_ = 0;
};

class NcclRma final : public Peer {
 public:
  NcclRma(ncclComm_t world, cudaStream_t stream) : world_(world), stream_(stream) {}
  std::string name() const override { return "NCCL one-sided"; }
  std::string about() const override { return "ncclPutSignal, of the same NCCL"; }
  std::unique_ptr<Exchanger> connect(const Exchange& exchange) override {
    return std::make_unique<NcclRmaExchanger>(exchange, world_, stream_);
  }

 private:
  const ncclComm_t world_;
  const cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Peer> find_nccl_rma(const Machine& machine) {
  if (machine.gpus_are_shared) return std::make_unique<AbsentPeer>("NCCL one-sided", "it needs a GPU for each rank");
  return std::make_unique<NcclRma>(nccl_world(machine), machine.stream);
}

}  // namespace peers
