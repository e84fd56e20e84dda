// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpi.h>

#include <vector>

#include "exchange.h"
#include "mpi_check.h"

namespace faces {
namespace {

class PointToPoint final : public Exchange {
 public:
  explicit PointToPoint(Field& field)
      : geometry_(field.geometry()),
        device_(field.device()),
        send_(field.send()),
        received_(field.device(), geometry_.buffer_size),
        kernels_(field, received_.data()),
        receives_(geometry_.neighbours.size()),
        sends_(geometry_.neighbours.size()) {}

  void poison_buffers() override { kernels_.poison_buffers(); }

  void share(int times) override {
    const std::vector<Neighbour>& neighbours = geometry_.neighbours;
    const int count = static_cast<int>(neighbours.size());
    for (int step = 0; step < times; ++step) {
      for (std::size_t k = 0; k < neighbours.size(); ++k) {
        const Neighbour& from = neighbours[k];
        FACES_MPI(MPI_Irecv(received_.data() + from.slot, from.count, MPI_DOUBLE, from.rank, tag,
                            MPI_COMM_WORLD, &receives_[k]));
      }
      kernels_.pack();
      device_.synchronize();  // the CPU must know that the messages are packed
      for (std::size_t k = 0; k < neighbours.size(); ++k) {
        const Neighbour& to = neighbours[k];
        FACES_MPI(MPI_Isend(send_ + to.slot, to.count, MPI_DOUBLE, to.rank, tag, MPI_COMM_WORLD,
                            &sends_[k]));
      }
      kernels_.sum_inside(step);
      FACES_MPI(MPI_Waitall(count, receives_.data(), MPI_STATUSES_IGNORE));
      kernels_.sum_surface(step);
      FACES_MPI(MPI_Waitall(count, sends_.data(), MPI_STATUSES_IGNORE));
      device_.synchronize();  // the next receives must not overwrite messages that are being summed
    }
  }

 private:
  /// One for all messages: without periodic boundaries no two come from the same process.
  static constexpr int tag = 1;

  const Geometry& geometry_;
  Device& device_;
  double* const send_;
  DeviceBuffer received_;
  ShareKernels kernels_;
  std::vector<MPI_Request> receives_;
  std::vector<MPI_Request> sends_;
};

}  // namespace

std::unique_ptr<Exchange> make_point_to_point(Field& field) {
  return std::make_unique<PointToPoint>(field);
}

}  // namespace faces
