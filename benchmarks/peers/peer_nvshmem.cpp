// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// NVSHMEM's calls on streams live in its host library alone. So nothing here is device code, and nothing needs a
// device link: initialized by nvshmemx_hostlib_init_attr, linked with libnvshmem_host.
#include <cuda_runtime.h>
#include <nvshmem_host.h>

#include <cstdint>
#include <cstdio>

#include "kernels.h"
#include "peer.h"
#include "support/abort.h"

namespace peers {
namespace {

/// Of the symmetric heap, zeroed. Collective.
class SymmetricMemory {
 public:
  explicit SymmetricMemory(std::size_t bytes) : base_(nvshmem_malloc(bytes)) {
    if (!base_) {
      std::fprintf(stderr, "nvshmem_malloc(%zu) failed (NVSHMEM_SYMMETRIC_SIZE)\n", bytes);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    CHECK_CUDA(cudaMemset(base_, 0, bytes));
    CHECK_CUDA(cudaDeviceSynchronize());
    nvshmem_barrier_all();
  }
  ~SymmetricMemory() { nvshmem_free(base_); }
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;
  char* get() const { return static_cast<char*>(base_); }

 private:
  void* base_;
};

/// A put with a signal for each message, then a wait for each, or one for all: that is a kernel, while those for one
/// may be operations of the stream. Which is faster depends on how many there are.
///
/// Nothing tells an origin that its last data has been used. So epochs write into two halves in turn: an origin
/// reaches a half again only after its targets' signals of the epoch between, which they sent after they had
/// used that half. That holds as all pairs of ranks exchange both ways.
///
/// In a stream signals count epochs. A graph repeats its constants: there signals of two sets in turn become 1,
/// and the target sets them back to 0, all at once, before it lets the origin reach that set again, for the same
/// reason.
class NvshmemExchanger final : public Exchanger {
 public:
  NvshmemExchanger(const Exchange& exchange, cudaStream_t stream)
      : exchange_(exchange),
        stream_(stream),
        send_(exchange.bytes),
        receive_(2 * exchange.bytes),
        counting_(exchange.messages.size() * sizeof(std::uint64_t)),
        toggling_(2 * exchange.messages.size() * sizeof(std::uint64_t)),
        left_out_(exchange.messages.size() * sizeof(int)) {}

  std::vector<Row> rows() override {
    const auto row = [this](const char* key, const char* name, Wait wait) {
      return Row{key,
                 name,
                 [this, wait] { epoch(wait); },
                 [this, wait] { captured_epoch(wait); },
                 false,
                 send_.get(),
                 [this]() -> const char* { return receive_.get() + half_; }};
    };
    return {row("nvshmem", "NVSHMEM put-signal, wait for each", Wait::for_each),
            row("nvshmem-all", "NVSHMEM put-signal, wait for all", Wait::for_all)};
  }

 private:
  enum class Wait { for_each, for_all };

  void epoch(Wait wait) {
    ++epoch_;
    exchange(signals(counting_, 0), epoch_ % 2, epoch_, NVSHMEM_CMP_GE, wait);
  }

  void captured_epoch(Wait wait) {
    ++captured_;
    const std::uint64_t turn = captured_ % 2;
    std::uint64_t* set = signals(toggling_, turn);
    exchange(set, turn, 1, NVSHMEM_CMP_EQ, wait);
    CHECK_CUDA(cudaMemsetAsync(set, 0, exchange_.messages.size() * sizeof *set, stream_));
  }

  std::uint64_t* signals(const SymmetricMemory& memory, std::uint64_t turn) const {
    return reinterpret_cast<std::uint64_t*>(memory.get()) + turn * exchange_.messages.size();
  }

  void exchange(std::uint64_t* signals, std::uint64_t turn, std::uint64_t value, int comparison, Wait wait) {
    half_ = turn * exchange_.bytes;
    for (std::size_t i = 0; i < exchange_.messages.size(); ++i) {
      const Message& m = exchange_.messages[i];
      nvshmemx_putmem_signal_on_stream(receive_.get() + half_ + m.slot, send_.get() + m.slot, m.bytes, signals + i,
                                       value, NVSHMEM_SIGNAL_SET, m.target, stream_);
    }
    if (wait == Wait::for_all)
      return nvshmemx_uint64_wait_until_all_on_stream(signals, exchange_.messages.size(),
                                                      reinterpret_cast<const int*>(left_out_.get()), comparison, value,
                                                      stream_);
    for (std::size_t i = 0; i < exchange_.messages.size(); ++i)
      nvshmemx_signal_wait_until_on_stream(signals + i, comparison, value, stream_);
  }

  const Exchange exchange_;
  const cudaStream_t stream_;
  SymmetricMemory send_, receive_, counting_, toggling_;
  SymmetricMemory left_out_;  ///< of a wait for all: none, all are 0
  std::uint64_t epoch_ = 0, captured_ = 0;
  std::size_t half_ = 0;
};

class Nvshmem final : public Peer {
 public:
  explicit Nvshmem(cudaStream_t stream) : stream_(stream) {}
  ~Nvshmem() override { nvshmemx_hostlib_finalize(); }
  std::string name() const override { return "NVSHMEM"; }
  std::string about() const override {
    int major = 0, minor = 0, patch = 0;
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  }
  std::unique_ptr<Exchanger> connect(const Exchange& exchange) override {
    return std::make_unique<NvshmemExchanger>(exchange, stream_);
  }

 private:
  const cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Peer> find_nvshmem(const Machine& machine) {
  if (machine.gpus_are_shared) return std::make_unique<AbsentPeer>("NVSHMEM", "it needs a GPU for each rank");
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  int failed = machine.rank == 0 ? nvshmemx_get_uniqueid(&id) : 0;
  CHECK_MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD));
  if (!failed) {
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    nvshmemx_set_attr_uniqueid_args(machine.rank, machine.ranks, &id, &attributes);
    failed = nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes);
  }
  int any = 0;
  CHECK_MPI(MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
  if (any) return std::make_unique<AbsentPeer>("NVSHMEM", "it does not start here");
  return std::make_unique<Nvshmem>(machine.stream);
}

}  // namespace peers
