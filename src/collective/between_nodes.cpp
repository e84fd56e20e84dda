// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/between_nodes.h"

#include <algorithm>
#include <utility>

namespace mpix {
namespace {

/// Up to so much goes whole, in one exchange: of more, shards. Not measured on several machines.
constexpr std::uint64_t most_whole = 16 * 1024;
constexpr std::uint64_t unit = 64;  ///< holds whole elements

}  // namespace

BetweenNodes::BetweenNodes(const Memory& memory, const Collectives::Call& call, Stream stream)
    : memory_(memory),
      shape_(memory.shape),
      places_(memory.places),
      call_(call),
      stream_(std::move(stream)),
      send_(static_cast<const char*>(call.send)),
      recv_(static_cast<char*>(call.recv)),
      bytes_(call.bytes),
      slot_(places_.slot_bytes),
      block_(slot_ / shape_.most_locals() / unit * unit),
      whole_(places_.rounds > 0 ? std::min(most_whole, places_.node_bytes) : most_whole),
      locals_(shape_.locals()),
      root_node_(shape_.node_of(call.root)),
      root_local_(shape_.local_of(call.root)),
      in_order_of_ranks_(call.operation == Operation::by_function && !call.commutes) {}

void BetweenNodes::enqueue() {
  if (bytes_ == 0 || call_.kind == CollectiveKind::barrier) {
    on_node(CollectiveKind::barrier, nullptr, nullptr, 0);
    RailStep step = exchange_of(0);
    return stream_.step(step);
  }
  switch (call_.kind) {
    case CollectiveKind::bcast:
      return bcast();
    case CollectiveKind::reduce:
      return reduce();
    case CollectiveKind::allreduce:
      return allreduce();
    case CollectiveKind::reduce_scatter:
      return reduce_scatter();
    case CollectiveKind::allgather:
      return allgather();
    case CollectiveKind::alltoall:
      return alltoall();
    case CollectiveKind::barrier:
      return;
  }
}

// ---- parts -------------------------------------------------------------------------------------------

void BetweenNodes::on_node(CollectiveKind kind, const char* send, char* recv, std::uint64_t bytes, std::uint32_t root) {
  if (locals_ == 1) return;
  Collectives::Call call = call_;
  call.kind = kind;
  call.send = send;
  call.recv = recv;
  call.bytes = bytes;
  call.root = static_cast<int>(root);
  call.in_place = false;  // blocks come from elsewhere
  if (kind != CollectiveKind::reduce && kind != CollectiveKind::allreduce && kind != CollectiveKind::reduce_scatter) {
    call.operation = Operation::none;
    call.element = Element::bytes;
  }
  stream_.on_node(call);
}

/// In which this rank sends nothing, and waits for all.
RailStep BetweenNodes::exchange_of(std::uint64_t bytes) const {
  RailStep step{};
  step.phases = RailStep::meet | RailStep::leave;
  step.places = places_;
  step.bytes = bytes;
  step.route = RailRoute::direct;
  step.filling.to = rail_nobody;
  step.filling.blocks = 1;
  step.needs = rail_everybody;
  step.taking.only = rail_everybody;
  step.function = call_.function;
  step.context = call_.context;
  return step;
}

void BetweenNodes::combine(RailStep& step, RailStep::Take how, const char* own, std::uint64_t own_stride,
                           char* to) const {
  step.phases |= RailStep::take;
  step.taking.how = how;
  step.taking.own = own;
  step.taking.own_stride = own_stride;
  step.taking.to = to;
  step.taking.operation = call_.operation;
  step.taking.element = call_.element;
}

template <class Piece>
void BetweenNodes::each_piece(std::uint64_t most, Piece piece) {
  for (std::uint64_t at = 0; at < bytes_; at += most) piece(at, std::min(most, bytes_ - at));
}

/// Of so many, if they are worth it: not up to `whole` bytes; else 0.
std::uint64_t BetweenNodes::shard_of(std::uint64_t bytes, std::uint64_t shards, std::uint64_t whole) const {
  return shape_.is_even() && bytes > whole ? std::min(slot_, bytes / shards / unit * unit) : 0;
}

/// An exchange in which all get the same from this rank.
void BetweenNodes::to_all(const RailStep& exchange) const {
  RailStep step = exchange;
  if (places_.rounds > 0 && step.sent_bytes() <= places_.node_bytes) step.route = RailRoute::gathered;
  stream_.step(step);
}
/// One in which all get what the root has, or those of its number on their node.
void BetweenNodes::from_root(const RailStep& exchange) const {
  RailStep step = exchange;
  if (places_.rounds > 0) step.route = RailRoute::passed_on;
  stream_.step(step);
}

/// What this node's ranks have, each its piece, to whom this rank is the source for.
RailStep BetweenNodes::of_node(std::uint64_t at, std::uint64_t bytes, std::uint32_t to) {
  on_node(CollectiveKind::allgather, send_ + at, memory_.collected, bytes);
  RailStep step = exchange_of(bytes);
  step.phases |= RailStep::fill;
  step.taking.own = locals_ > 1 ? memory_.collected : send_ + at;
  step.taking.own_stride = bytes;
  step.filling = {to, RailStep::By::same, locals_, step.taking.own, 0, bytes};
  return step;
}

/// Blocks for all, by rank, become those for ranks of this node: for itself, and for whom each is the source for.
void BetweenNodes::pack(std::uint64_t at, std::uint64_t bytes) {
  RailStep step = exchange_of(bytes);
  step.phases = RailStep::pack;
  step.packing = {send_ + at, bytes_, memory_.packed};
  stream_.step(step);
}

/// Blocks of this node's ranks to whom this rank is the source for.
RailStep BetweenNodes::scattered(std::uint64_t at, std::uint64_t bytes) {
  RailStep step = exchange_of(bytes);
  step.phases |= RailStep::fill;
  if (locals_ == 1) {
    step.taking.own = send_ + at + shape_.ranks_of(shape_.node())[0] * bytes_;
    step.filling = {rail_everybody, RailStep::By::rank, 1, send_ + at, bytes_, 0};
    return step;
  }
  pack(at, bytes);
  on_node(CollectiveKind::alltoall, memory_.packed, memory_.collected, places_.columns * bytes);
  step.taking.own = memory_.collected + places_.column * bytes;
  step.taking.own_stride = places_.columns * bytes;
  step.filling = {rail_everybody, RailStep::By::column, locals_, memory_.collected, bytes, places_.columns * bytes};
  return step;
}

// ---- calls -------------------------------------------------------------------------------------------

/// A shard for each rank of a node; returns how far that goes.
std::uint64_t BetweenNodes::bcast_shards() {
  const bool gives = shape_.node() == root_node_;
  std::uint64_t end = 0;
  while (const std::uint64_t shard = shard_of(bytes_ - end, locals_, most_whole)) end += shard * locals_;
  if (gives && end > 0) on_node(CollectiveKind::bcast, recv_, recv_, end, root_local_);
  for (std::uint64_t at = 0; at < end;) {
    const std::uint64_t shard = shard_of(bytes_ - at, locals_, most_whole);
    RailStep step = exchange_of(shard);
    if (gives) {
      step.phases |= RailStep::fill;
      step.filling = {rail_everybody, RailStep::By::same, 1, recv_ + at + places_.me * shard, 0, 0};
      step.needs = rail_nobody;
    } else {
      step.phases |= RailStep::take;
      step.taking.how = RailStep::Take::nodes;
      step.taking.only = root_node_;
      step.taking.to = locals_ > 1 ? memory_.collected : recv_ + at;
      step.needs = shape_.sources()[root_node_];
    }
    from_root(step);
    if (!gives) on_node(CollectiveKind::allgather, memory_.collected, recv_ + at, shard);
    at += shard * locals_;
  }
  return end;
}

void BetweenNodes::bcast() {
  const std::uint64_t begin = bcast_shards();
  const std::uint32_t local = root_local_ % locals_;  // who tells the others of its node
  const bool leads = places_.me == local, is_root = leads && shape_.node() == root_node_;
  const std::uint32_t from = leads && !is_root ? shape_.partner_of(call_.root) : rail_nobody;
  for (std::uint64_t at = begin; at < bytes_; at += slot_) {
    RailStep step = exchange_of(std::min(slot_, bytes_ - at));
    step.needs = from;
    if (is_root) {
      step.phases |= RailStep::fill;
      step.filling = {rail_leaders, RailStep::By::same, 1, recv_ + at, 0, 0};
    } else if (leads) {
      step.phases |= RailStep::take;
      step.taking.how = RailStep::Take::partner;
      step.taking.only = from;
      step.taking.to = recv_ + at;
    }
    from_root(step);
  }
  if (begin < bytes_) on_node(CollectiveKind::bcast, recv_ + begin, recv_ + begin, bytes_ - begin, local);
}

void BetweenNodes::reduce() {
  const bool is_root = places_.me == root_local_ && shape_.node() == root_node_;
  const std::uint32_t root = shape_.node() == root_node_ ? rail_nobody : shape_.partner_of(call_.root);
  const std::uint32_t to = root != rail_nobody && shape_.partners()[root].gives != 0 ? root : rail_nobody;
  each_piece(in_order_of_ranks_ ? block_ : slot_, [&](std::uint64_t at, std::uint64_t bytes) {
    RailStep step{};
    if (in_order_of_ranks_) {
      step = of_node(at, bytes, to);
      if (is_root) combine(step, RailStep::Take::combine_ranks, step.taking.own, step.taking.own_stride, recv_ + at);
    } else {
      char* const sum = is_root ? recv_ + at : memory_.collected;
      const char* const own = locals_ > 1 ? sum : send_ + at;
      on_node(CollectiveKind::reduce, send_ + at, sum, bytes, root_local_ % locals_);
      step = exchange_of(bytes);
      step.filling = {to, RailStep::By::same, 1, own, 0, 0};
      if (to != rail_nobody) step.phases |= RailStep::fill;
      if (is_root) combine(step, RailStep::Take::combine_nodes, own, 0, recv_ + at);
    }
    if (!is_root) step.needs = rail_nobody;
    stream_.step(step);
  });
}

void BetweenNodes::allreduce_whole(std::uint64_t at, std::uint64_t bytes) {
  on_node(CollectiveKind::allreduce, send_ + at, recv_ + at, bytes);
  const char* const own = locals_ > 1 ? recv_ + at : send_ + at;
  RailStep step = exchange_of(bytes);
  step.phases |= RailStep::fill;
  step.filling = {rail_everybody, RailStep::By::same, 1, own, 0, 0};
  combine(step, RailStep::Take::combine_nodes, own, 0, recv_ + at);
  to_all(step);
}

/// Of this rank's shard of the node's sum one part belongs to each node.
void BetweenNodes::allreduce_shards(std::uint64_t at, std::uint64_t part) {
  const std::uint64_t shard = part * places_.nodes, own_part = part * places_.node;
  on_node(CollectiveKind::reduce_scatter, send_ + at, memory_.collected, shard);
  const char* const from = locals_ > 1 ? memory_.collected : send_ + at;
  char* const to = locals_ > 1 ? memory_.collected : recv_ + at;
  RailStep scatter = exchange_of(part);
  scatter.phases |= RailStep::fill;
  scatter.filling = {rail_everybody, RailStep::By::node, 1, from, part, 0};
  combine(scatter, RailStep::Take::combine_nodes, from + own_part, 0, to + own_part);
  stream_.step(scatter);
  RailStep gather = exchange_of(part);
  gather.phases |= RailStep::fill | RailStep::take;
  gather.filling = {rail_everybody, RailStep::By::same, 1, to + own_part, 0, 0};
  gather.taking.how = RailStep::Take::nodes;
  gather.taking.to = to;
  gather.taking.stride = part;
  to_all(gather);
  on_node(CollectiveKind::allgather, memory_.collected, recv_ + at, shard);
}

void BetweenNodes::allreduce() {
  if (in_order_of_ranks_)
    return each_piece(block_, [&](std::uint64_t at, std::uint64_t bytes) {
      RailStep step = of_node(at, bytes, rail_everybody);
      combine(step, RailStep::Take::combine_ranks, step.taking.own, step.taking.own_stride, recv_ + at);
      to_all(step);
    });
  for (std::uint64_t at = 0; at < bytes_;) {
    if (const std::uint64_t part = shard_of(bytes_ - at, std::uint64_t{locals_} * places_.nodes, whole_)) {
      allreduce_shards(at, part);
      at += part * locals_ * places_.nodes;
    } else {
      const std::uint64_t bytes = std::min(places_.rounds > 0 ? places_.node_bytes : slot_, bytes_ - at);
      allreduce_whole(at, bytes);
      at += bytes;
    }
  }
}

void BetweenNodes::reduce_scatter() {
  each_piece(block_, [&](std::uint64_t at, std::uint64_t bytes) {
    if (in_order_of_ranks_ || locals_ == 1) {
      RailStep step = scattered(at, bytes);
      combine(step, in_order_of_ranks_ ? RailStep::Take::combine_ranks : RailStep::Take::combine_nodes, step.taking.own,
              step.taking.own_stride, recv_ + at);
      return stream_.step(step);
    }
    pack(at, bytes);
    on_node(CollectiveKind::reduce_scatter, memory_.packed, memory_.collected, places_.columns * bytes);
    RailStep step = exchange_of(bytes);
    step.phases |= RailStep::fill;
    step.filling = {rail_everybody, RailStep::By::column, 1, memory_.collected, bytes, 0};
    combine(step, RailStep::Take::combine_nodes, memory_.collected + places_.column * bytes, 0, recv_ + at);
    stream_.step(step);
  });
}

void BetweenNodes::allgather() {
  each_piece(block_, [&](std::uint64_t at, std::uint64_t bytes) {
    RailStep step = of_node(at, bytes, rail_everybody);
    step.phases |= RailStep::take;
    step.taking.how = RailStep::Take::ranks;
    step.taking.to = recv_ + at;
    step.taking.stride = bytes_;
    to_all(step);
  });
}

void BetweenNodes::alltoall() {
  each_piece(block_, [&](std::uint64_t at, std::uint64_t bytes) {
    RailStep step = scattered(at, bytes);
    step.phases |= RailStep::take;
    step.taking.how = RailStep::Take::ranks;
    step.taking.to = recv_ + at;
    step.taking.stride = bytes_;
    stream_.step(step);
  });
}

}  // namespace mpix
