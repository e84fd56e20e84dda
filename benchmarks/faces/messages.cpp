// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "messages.h"

#include <algorithm>
#include <limits>

namespace faces {

HostBuffer::HostBuffer(Device& device, long count)
    : device_(device),
      data_(static_cast<double*>(device.allocate_on_host(static_cast<std::size_t>(count) * sizeof(double)))) {}

HostBuffer::~HostBuffer() { device_.release_on_host(data_); }

Staging::Staging(Field& field, double* received, double* received_by_mpi)
    : device_(field.device()),
      size_(static_cast<std::size_t>(field.geometry().buffer_size)),
      pieces_(pieces_of(field.geometry())),
      packed_(field.send()),
      received_(received),
      received_by_mpi_(received_by_mpi),
      send_(field.device(), field.geometry().buffer_size) {}

std::vector<Staging::Piece> Staging::pieces_of(const Geometry& geometry) {
  std::vector<Neighbour> in_order = geometry.neighbours;
  std::sort(in_order.begin(), in_order.end(), [](const Neighbour& a, const Neighbour& b) { return a.slot < b.slot; });
  std::vector<Piece> pieces;
  long end = -small_gap - 1;
  for (const Neighbour& neighbour : in_order) {
    if (neighbour.slot - end > small_gap) pieces.push_back(Piece{static_cast<std::size_t>(neighbour.slot), 0});
    end = neighbour.slot + neighbour.count;
    pieces.back().count = static_cast<std::size_t>(end) - pieces.back().first;
  }
  return pieces;
}

void Staging::copy_out() {
  for (const Piece& piece : pieces_)
    device_.copy(send_.data() + piece.first, packed_ + piece.first, piece.count * sizeof(double));
}

void Staging::copy_in() {
  for (const Piece& piece : pieces_)
    device_.copy(received_ + piece.first, received_by_mpi_ + piece.first, piece.count * sizeof(double));
}

void Staging::poison() {
  std::fill_n(send_.data(), size_, std::numeric_limits<double>::quiet_NaN());
  std::fill_n(received_by_mpi_, size_, std::numeric_limits<double>::quiet_NaN());
}

}  // namespace faces
