// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <mpix.h>

#include "kernels.h"
#include "memory.h"
#include "peer.h"
#include "support/abort.h"

namespace peers {
namespace {

/// A window, and the exchange through it.
class Halo {
 public:
  Halo(const Exchange& exchange, bool lazy_post, char* send, cudaStream_t stream)
      : exchange_(exchange), send_(send), stream_(stream) {
    MPI_Info info;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"));
    if (lazy_post) CHECK_MPI(MPI_Info_set(info, "mpix_lazy_post", "true"));
    CHECK_MPI(MPI_Win_allocate(static_cast<MPI_Aint>(exchange.bytes), 1, info, MPI_COMM_WORLD, &receive_, &window_));
    CHECK_MPI(MPI_Info_free(&info));
    MPI_Group world;
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    CHECK_MPI(MPI_Group_incl(world, static_cast<int>(exchange.neighbours.size()), exchange.neighbours.data(), &group_));
    CHECK_MPI(MPI_Group_free(&world));
  }
  ~Halo() {
    CHECK_MPI(MPI_Group_free(&group_));
    CHECK_MPI(MPI_Win_free(&window_));
  }
  Halo(const Halo&) = delete;
  Halo& operator=(const Halo&) = delete;

  const char* received() const { return receive_; }

  void post() { CHECK_MPI(MPIX_Win_post_stream(group_, window_, stream_)); }

  void put() {
    CHECK_MPI(MPI_Win_start(group_, MPIX_MODE_STREAM, window_));
    for (const Message& m : exchange_.messages)
      CHECK_MPI(MPI_Put(send_ + m.slot, static_cast<int>(m.bytes), MPI_BYTE, m.target, static_cast<MPI_Aint>(m.slot),
                        static_cast<int>(m.bytes), MPI_BYTE, window_));
  }

  void complete_wait_apart() {
    CHECK_MPI(MPIX_Win_complete_stream(window_, stream_));
    CHECK_MPI(MPIX_Win_wait_stream(window_, stream_));
  }

  void complete_wait() { CHECK_MPI(MPIX_Win_complete_wait_stream(window_, stream_)); }

  void three_calls() {
    post();
    put();
    complete_wait_apart();
  }

  void fused() {
    post();
    put();
    complete_wait();
  }

  void three_calls_between_kernels() {
    post();
    launch_user_kernel(stream_);
    put();
    complete_wait_apart();
    launch_user_kernel(stream_);
  }

 private:
  const Exchange exchange_;
  char* const send_;
  const cudaStream_t stream_;
  char* receive_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_ = MPI_GROUP_NULL;
};

class MpixExchanger final : public Exchanger {
 public:
  MpixExchanger(const Exchange& exchange, cudaStream_t stream)
      : send_(exchange.bytes), exchange_(exchange), stream_(stream) {}

  std::vector<Row> rows() override {
    return {row("mpix", "post, complete, wait", false, &Halo::three_calls),
            row("mpix-lazy", "the same, mpix_lazy_post", true, &Halo::three_calls),
            row("mpix-fused", "post, complete_wait", false, &Halo::fused),
            row("mpix-fused-lazy", "the same, mpix_lazy_post", true, &Halo::fused),
            row("mpix-user", "post, complete, wait; 2 user kernels", false, &Halo::three_calls_between_kernels),
            row("mpix-user-lazy", "the same, mpix_lazy_post", true, &Halo::three_calls_between_kernels)};
  }

 private:
  /// With windows of its own, as a window finds out how its epochs are best launched, in its first 1000 or so; one for
  /// epochs in a stream and one for those in graphs, as posts of a window that has been captured are all prompt.
  Row row(const char* key, const char* name, bool lazy_post, void (Halo::*exchange)()) {
    const auto new_halo = [&]() -> Halo* {
      halos_.push_back(std::make_unique<Halo>(exchange_, lazy_post, send_.get(), stream_));
      return halos_.back().get();
    };
    const auto latest = std::make_shared<const Halo*>(nullptr);
    const auto epoch_of = [latest, exchange](Halo* halo) {
      return [latest, exchange, halo] {
        *latest = halo;
        (halo->*exchange)();
      };
    };
    return {key,
            name,
            epoch_of(new_halo()),
            epoch_of(new_halo()),
            true,
            send_.get(),
            [latest] { return (*latest)->received(); },
            2000};
  }

  DeviceMemory send_;
  const Exchange exchange_;
  const cudaStream_t stream_;
  std::vector<std::unique_ptr<Halo>> halos_;
};

class Mpix final : public Peer {
 public:
  explicit Mpix(cudaStream_t stream) : stream_(stream) {}
  std::string name() const override { return "libmpix"; }

  std::string about() const override {
    int active = 0;
    CHECK_MPI(MPIX_Query_stream_rma(&active));
    Dl_info where{};
    const bool found = dladdr(reinterpret_cast<void*>(&MPIX_Win_post_stream), &where) != 0 && where.dli_fname;
    return std::to_string(MPIX_LIB_VERSION_MAJOR) + "." + std::to_string(MPIX_LIB_VERSION_MINOR) + "." +
           std::to_string(MPIX_LIB_VERSION_PATCH) + (active ? "" : " (NOT in front of MPI)") +
           (found ? std::string(", ") + where.dli_fname : "");
  }

  std::unique_ptr<Exchanger> connect(const Exchange& exchange) override {
    return std::make_unique<MpixExchanger>(exchange, stream_);
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Peer> find_mpix(const Machine& machine) { return std::make_unique<Mpix>(machine.stream); }

}  // namespace peers
