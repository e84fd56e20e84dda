// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpix.h>

#include "exchange.h"
#include "mpi_check.h"
#include "window.h"

namespace faces {
namespace {

class StreamTriggered final : public Exchange {
 public:
  StreamTriggered(Field& field, WindowMemory memory, bool fused)
      : geometry_(field.geometry()),
        device_(field.device()),
        send_(field.send()),
        fused_(fused),
        neighbours_(geometry_.neighbour_ranks()),
        window_(field.device(), geometry_.buffer_size, memory, "mpix:device"),
        kernels_(field, window_.data()) {}

  void poison_buffers() override { kernels_.poison_buffers(); }

  void share(int times) override {
    const MPI_Win win = window_.handle();
    void* const stream = device_.stream();
    for (int step = 0; step < times; ++step) {
      // In stream order after the sums of the step before: no put overwrites what they read.
      FACES_MPI(MPIX_Win_post_stream(neighbours_.handle(), win, stream));
      kernels_.pack();
      FACES_MPI(MPI_Win_start(neighbours_.handle(), MPIX_MODE_STREAM, win));
      for (const Neighbour& to : geometry_.neighbours)
        FACES_MPI(MPI_Put(send_ + to.slot, to.count, MPI_DOUBLE, to.rank, to.remote_slot, to.count,
                          MPI_DOUBLE, win));
      if (fused_) {
        FACES_MPI(MPIX_Win_complete_wait_stream(win, stream));
        kernels_.sum_inside(step);
      } else {
        FACES_MPI(MPIX_Win_complete_stream(win, stream));
        kernels_.sum_inside(step);
        FACES_MPI(MPIX_Win_wait_stream(win, stream));
      }
      kernels_.sum_surface(step);
    }
    device_.synchronize();  // once, for all steps
  }

 private:
  const Geometry& geometry_;
  Device& device_;
  double* const send_;
  const bool fused_;
  Group neighbours_;
  Window window_;
  ShareKernels kernels_;
};

}  // namespace

std::unique_ptr<Exchange> make_stream_triggered(Field& field, WindowMemory memory, bool fused) {
  return std::make_unique<StreamTriggered>(field, memory, fused);
}

}  // namespace faces
