// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpi.h>

#include <optional>
#include <vector>

#include "exchange.h"
#include "messages.h"
#include "mpi_check.h"

namespace faces {
namespace {

class PointToPoint final : public Exchange {
 public:
  PointToPoint(Field& field, bool staged)
      : geometry_(field.geometry()),
        device_(field.device()),
        received_(field.device(), geometry_.buffer_size),
        kernels_(field, received_.data()),
        receives_(geometry_.neighbours.size()),
        sends_(geometry_.neighbours.size()) {
    if (staged) {
      received_on_host_.emplace(device_, geometry_.buffer_size);
      staging_.emplace(field, received_.data(), received_on_host_->data());
    }
    send_ = staged ? staging_->send() : field.send();
    receive_ = staged ? received_on_host_->data() : received_.data();
  }

  void poison_buffers() override {
    kernels_.poison_buffers();
    if (staging_) staging_->poison();
  }

  void share(int times) override {
    const std::vector<Neighbour>& neighbours = geometry_.neighbours;
    const int count = static_cast<int>(neighbours.size());
    for (int step = 0; step < times; ++step) {
      kernels_.pack();
      if (staging_) staging_->copy_out();
      // The CPU must know that messages are packed, and that those of the step before have been summed.
      device_.synchronize();
      for (std::size_t k = 0; k < neighbours.size(); ++k) {
        const Neighbour& from = neighbours[k];
        FACES_MPI(
            MPI_Irecv(receive_ + from.slot, from.count, MPI_DOUBLE, from.rank, tag, MPI_COMM_WORLD, &receives_[k]));
      }
      for (std::size_t k = 0; k < neighbours.size(); ++k) {
        const Neighbour& to = neighbours[k];
        FACES_MPI(MPI_Isend(send_ + to.slot, to.count, MPI_DOUBLE, to.rank, tag, MPI_COMM_WORLD, &sends_[k]));
      }
      kernels_.sum_inside(step);
      FACES_MPI(MPI_Waitall(count, receives_.data(), MPI_STATUSES_IGNORE));
      if (staging_) staging_->copy_in();
      kernels_.sum_surface(step);
      FACES_MPI(MPI_Waitall(count, sends_.data(), MPI_STATUSES_IGNORE));
    }
    device_.synchronize();
  }

 private:
  /// One for all messages: without periodic boundaries no two come from the same process.
  static constexpr int tag = 1;

  const Geometry& geometry_;
  Device& device_;
  DeviceBuffer received_;
  ShareKernels kernels_;
  std::optional<HostBuffer> received_on_host_;
  std::optional<Staging> staging_;
  const double* send_ = nullptr;  ///< what MPI sends
  double* receive_ = nullptr;     ///< where MPI receives
  std::vector<MPI_Request> receives_;
  std::vector<MPI_Request> sends_;
};

}  // namespace

std::unique_ptr<Exchange> make_point_to_point(Field& field, bool staged) {
  return std::make_unique<PointToPoint>(field, staged);
}

}  // namespace faces
