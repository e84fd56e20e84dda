// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "geometry.h"

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace peers {
namespace {

/// Of a message across a face, an edge or a corner: words of 8 bytes, as many as lie on that side of a cube.
std::size_t bytes_across(std::size_t face, int distance) {
  if (distance <= 1) return face;
  const auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(face) / 8));
  return distance == 2 ? std::max<std::size_t>(1, side) * 8 : 8;
}

void add(Exchange& exchange, std::size_t bytes, int target, int origin) {
  constexpr std::size_t alignment = 256;
  exchange.messages.push_back({bytes, exchange.bytes, target, origin});
  exchange.bytes += (bytes + alignment - 1) / alignment * alignment;
}

void add_near(Exchange& exchange, int rank, int ranks) {
  if (ranks != 2 && ranks != 4 && ranks != 8) throw std::runtime_error("the exchange near is of 2, 4 or 8 ranks");
  for (int step = 1; step < ranks; ++step)
    add(exchange, bytes_across(exchange.face, __builtin_popcount(static_cast<unsigned>(step))), rank ^ step,
        rank ^ step);
  exchange.about = "grid of 2 ranks a side: " + std::to_string(ranks - 1) + " neighbours";
}

void add_full(Exchange& exchange, int rank, int ranks) {
  int grid[3] = {0, 0, 0};
  MPI_Dims_create(ranks, 3, grid);
  const int at[3] = {rank % grid[0], rank / grid[0] % grid[1], rank / (grid[0] * grid[1])};
  const auto rank_at = [&](int x, int y, int z) {
    const auto wrap = [](int i, int size) { return (i + size) % size; };
    return wrap(x, grid[0]) + grid[0] * (wrap(y, grid[1]) + grid[1] * wrap(z, grid[2]));
  };
  for (int z = -1; z <= 1; ++z)
    for (int y = -1; y <= 1; ++y)
      for (int x = -1; x <= 1; ++x) {
        const int distance = std::abs(x) + std::abs(y) + std::abs(z);
        if (distance == 0) continue;
        add(exchange, bytes_across(exchange.face, distance), rank_at(at[0] + x, at[1] + y, at[2] + z),
            rank_at(at[0] - x, at[1] - y, at[2] - z));
      }
  exchange.about = "26 messages in a periodic grid of " + std::to_string(grid[0]) + " x " + std::to_string(grid[1]) +
                   " x " + std::to_string(grid[2]) + " ranks";
}

void add_ring(Exchange& exchange, int rank, int ranks) {
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  add(exchange, exchange.face, right, left);
  add(exchange, exchange.face, left, right);
  exchange.about = "ring: 2 neighbours";
}

void add_pair(Exchange& exchange, int rank, int ranks) {
  if (ranks % 2 != 0) throw std::runtime_error("the exchange pair is of an even number of ranks");
  add(exchange, exchange.face, rank ^ 1, rank ^ 1);
  exchange.about = "pairs of ranks: 1 neighbour, both ways at once";
}

}  // namespace

Exchange make_exchange(const std::string& name, std::size_t face, int rank, int ranks) {
  Exchange exchange{name, "", face, {}, 0, {}};
  if (name == "near")
    add_near(exchange, rank, ranks);
  else if (name == "full")
    add_full(exchange, rank, ranks);
  else if (name == "ring")
    add_ring(exchange, rank, ranks);
  else if (name == "pair")
    add_pair(exchange, rank, ranks);
  else
    throw std::runtime_error("there is no exchange '" + name + "'");
  for (const Message& message : exchange.messages) exchange.neighbours.push_back(message.target);
  std::sort(exchange.neighbours.begin(), exchange.neighbours.end());
  exchange.neighbours.erase(std::unique(exchange.neighbours.begin(), exchange.neighbours.end()),
                            exchange.neighbours.end());
  return exchange;
}

}  // namespace peers
