// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpi.h>

#include "exchange.h"
#include "mpi_check.h"
#include "window.h"

namespace faces {
namespace {

class ActiveRma final : public Exchange {
 public:
  ActiveRma(Field& field, WindowMemory memory)
      : geometry_(field.geometry()),
        device_(field.device()),
        send_(field.send()),
        neighbours_(geometry_.neighbour_ranks()),
        window_(field.device(), geometry_.buffer_size, memory, nullptr),
        kernels_(field, window_.data()) {}

  void poison_buffers() override { kernels_.poison_buffers(); }

  void share(int times) override {
    const MPI_Win win = window_.handle();
    for (int step = 0; step < times; ++step) {
      FACES_MPI(MPI_Win_post(neighbours_.handle(), 0, win));
      kernels_.pack();
      device_.synchronize();  // the CPU must know that the messages are packed
      FACES_MPI(MPI_Win_start(neighbours_.handle(), 0, win));
      for (const Neighbour& to : geometry_.neighbours)
        FACES_MPI(MPI_Put(send_ + to.slot, to.count, MPI_DOUBLE, to.rank, to.remote_slot, to.count,
                          MPI_DOUBLE, win));
      FACES_MPI(MPI_Win_complete(win));
      kernels_.sum_inside(step);
      FACES_MPI(MPI_Win_wait(win));
      kernels_.sum_surface(step);
      device_.synchronize();  // the next post must not expose messages that are being summed
    }
  }

 private:
  const Geometry& geometry_;
  Device& device_;
  double* const send_;
  Group neighbours_;
  Window window_;
  ShareKernels kernels_;
};

}  // namespace

std::unique_ptr<Exchange> make_active_rma(Field& field, WindowMemory memory) {
  return std::make_unique<ActiveRma>(field, memory);
}

}  // namespace faces
