// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpi.h>

#include <optional>

#include "exchange.h"
#include "messages.h"
#include "mpi_check.h"
#include "window.h"

namespace faces {
namespace {

class ActiveRma final : public Exchange {
 public:
  ActiveRma(Field& field, WindowMemory memory, bool staged)
      : geometry_(field.geometry()),
        device_(field.device()),
        neighbours_(geometry_.neighbour_ranks()),
        window_(device_, geometry_.buffer_size, memory_for(device_, memory, staged), MPI_INFO_NULL) {
    if (staged) {
      window_.pin(device_, geometry_.buffer_size);
      received_.emplace(device_, geometry_.buffer_size);
      staging_.emplace(field, received_->data(), window_.data());
    }
    send_ = staged ? staging_->send() : field.send();
    kernels_.emplace(field, staged ? received_->data() : window_.data());
  }

  void poison_buffers() override {
    kernels_->poison_buffers();
    if (staging_) staging_->poison();
  }

  void share(int times) override {
    const MPI_Win win = window_.handle();
    for (int step = 0; step < times; ++step) {
      kernels_->pack();
      if (staging_) staging_->copy_out();
      // The CPU must know that messages are packed, and that those of the step before have been summed.
      device_.synchronize();
      FACES_MPI(MPI_Win_post(neighbours_.handle(), 0, win));
      FACES_MPI(MPI_Win_start(neighbours_.handle(), 0, win));
      for (const Neighbour& to : geometry_.neighbours)
        FACES_MPI(MPI_Put(send_ + to.slot, to.count, MPI_DOUBLE, to.rank, to.remote_slot, to.count, MPI_DOUBLE, win));
      FACES_MPI(MPI_Win_complete(win));
      kernels_->sum_inside(step);
      FACES_MPI(MPI_Win_wait(win));
      if (staging_) staging_->copy_in();
      kernels_->sum_surface(step);
    }
    device_.synchronize();
  }

 private:
  /// A staged window is memory of the CPU. MPI allocates it, and so can share it among the ranks of a node; it
  /// does not allocate memory of a GPU.
  static WindowMemory memory_for(const Device& device, WindowMemory wanted, bool staged) {
    if (staged) return WindowMemory::allocate;
    return device.is_gpu() ? WindowMemory::create : wanted;
  }

  const Geometry& geometry_;
  Device& device_;
  Group neighbours_;
  Window window_;
  std::optional<DeviceBuffer> received_;
  std::optional<Staging> staging_;
  std::optional<ShareKernels> kernels_;
  const double* send_ = nullptr;  ///< what MPI puts
};

}  // namespace

std::unique_ptr<Exchange> make_active_rma(Field& field, WindowMemory memory, bool staged) {
  return std::make_unique<ActiveRma>(field, memory, staged);
}

}  // namespace faces
