// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <functional>

#include "collective/collectives.h"
#include "collective/rail_shape.h"

namespace mpix {

/// A call on a communicator of several nodes: calls of the ranks of each node, and exchanges between nodes
/// (wire/rail.h), one behind the other in the stream. All ranks make the same exchanges.
///
/// | call           | ranks of a node                     | between nodes, each rank               | ranks of a node       |
/// |----------------|-------------------------------------|----------------------------------------|-----------------------|
/// | barrier        | barrier                             | nothing, with all partners             |                       |
/// | bcast, small   |                                     | all of it, to one rank of each node    | bcast                 |
/// | bcast          | bcast, on the root's node           | a shard, from there                    | allgather, elsewhere  |
/// | reduce         | reduce, to the root's source        | all of it, to the root, who combines   |                       |
/// | allreduce, small | allreduce                         | all of it; each combines               |                       |
/// | allreduce      | reduce_scatter                      | of a shard a part to each, who combines; then those to all | allgather |
/// | reduce_scatter | reduce_scatter, of blocks by source | the blocks of partners; each combines  |                       |
/// | allgather      | allgather                           | all of it                              |                       |
/// | alltoall       | alltoall, of blocks by source       | the blocks for partners                |                       |
///
/// Where exchanges go in rounds (wire/rail.h), what a rank has for all is gathered as these go, if it is small, and
/// what the root has is passed on. Shards need nodes that have as many ranks. What a slot does not take goes in pieces.
/// So operands are combined in the order of the ranks of a node, and then of the nodes. Those of an operation that does
/// not commute all go to the rank that combines them, in the order of the ranks.
class BetweenNodes {
 public:
  struct Stream {
    std::function<void(const Collectives::Call&)> on_node;  ///< its root is a number on the node
    std::function<void(RailStep&)> step;
  };
  struct Memory {
    const RailShape& shape;
    const RailPlaces& places;
    /// Of the device, of places.columns * places.slot_bytes each.
    char *packed, *collected;
  };
  BetweenNodes(const Memory& memory, const Collectives::Call& call, Stream stream);
  void enqueue();

 private:
  void bcast();
  std::uint64_t bcast_shards();
  void reduce();
  void allreduce();
  void reduce_scatter();
  void allgather();
  void alltoall();

  void on_node(CollectiveKind kind, const char* send, char* recv, std::uint64_t bytes, std::uint32_t root = 0);
  RailStep exchange_of(std::uint64_t bytes) const;
  void combine(RailStep& step, RailStep::Take how, const char* own, std::uint64_t own_stride, char* to) const;
  void allreduce_whole(std::uint64_t at, std::uint64_t bytes);
  void allreduce_shards(std::uint64_t at, std::uint64_t part);
  RailStep of_node(std::uint64_t at, std::uint64_t bytes, std::uint32_t to);
  RailStep scattered(std::uint64_t at, std::uint64_t bytes);
  void pack(std::uint64_t at, std::uint64_t bytes);
  template <class Piece>
  void each_piece(std::uint64_t most, Piece piece);
  std::uint64_t shard_of(std::uint64_t bytes, std::uint64_t shards, std::uint64_t whole) const;
  void to_all(const RailStep& exchange) const;
  void from_root(const RailStep& exchange) const;

  const Memory memory_;
  const RailShape& shape_;
  const RailPlaces& places_;
  const Collectives::Call& call_;
  const Stream stream_;
  const char* const send_;
  char* const recv_;
  const std::uint64_t bytes_, slot_, block_;  ///< block: of which a slot takes one for each rank of a node
  const std::uint64_t whole_;                 ///< of an all-reduce: up to so much goes whole
  const std::uint32_t locals_;
  const std::uint32_t root_node_, root_local_;
  const bool in_order_of_ranks_;
};

}  // namespace mpix
