// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// MPIX_COLL_SELECT=model: a few calls of each kind are measured when a communicator is prepared.
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collective/collectives_memory.h"
#include "wire/collective_direct.h"

namespace mpix {
namespace {

constexpr CollectiveKind measured_kinds[] = {CollectiveKind::bcast,     CollectiveKind::reduce,
                                             CollectiveKind::allreduce, CollectiveKind::reduce_scatter,
                                             CollectiveKind::allgather, CollectiveKind::alltoall};
constexpr std::size_t sizes = 4;
constexpr int rounds = 4, calls_of_a_round = 8;
using Times = std::array<float, sizes>;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// From an eighth of the border that is taken else to eight times it, in steps of four.
std::uint64_t size_of(std::size_t index, std::uint64_t usual) {
  return std::max<std::uint64_t>(8, (usual << 2 * index) / 8 / 8 * 8);
}

/// Between the last size at which lines are faster, and the first from which on direct calls are: in the middle, as
/// sizes grow by factors.
std::uint64_t border_between(const Times& lines, const Times& direct, std::uint64_t usual) {
  std::size_t first = sizes;
  while (first > 0 && direct[first - 1] < lines[first - 1]) --first;
  if (first == 0) return size_of(0, usual) / 2;
  return first == sizes ? size_of(sizes - 1, usual) * 2 : size_of(first, usual) / 2;
}

std::size_t index_of(CollectiveKind kind) { return static_cast<std::size_t>(kind); }

struct Buffer {
  Buffer(Device& to, std::size_t size) : device(to), bytes(size), base(to.allocate(size).base) {}
  ~Buffer() { device.release(base); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Device& device;
  const std::size_t bytes;
  char* const base;
};

Collectives::Call sample_call(CollectiveKind kind, std::uint64_t bytes, const char* send, char* recv) {
  Collectives::Call call;
  call.kind = kind;
  call.bytes = bytes;
  call.send = send;
  call.recv = recv;
  if (kind == CollectiveKind::reduce || kind == CollectiveKind::allreduce || kind == CollectiveKind::reduce_scatter) {
    call.operation = Operation::sum;
    call.element = Element::f64;
  }
  return call;
}

}  // namespace

float Collectives::seconds_of(const Call& call, CollectiveWay way, OwnStream& stream) {
  InStream in{stream.handle(), 0, 0, memory_};
  in.word =
      CallWord{call.kind, call.operation, call.element, static_cast<std::uint32_t>(call.root), call.bytes}.packed();
  double least = std::numeric_limits<float>::max();
  for (int round = 0; round <= rounds; ++round) {
    const double begin = seconds();
    for (int i = 0; i < calls_of_a_round; ++i) (void)enqueue_on_node(call, in, way);
    stream.synchronize();
    if (round > 0) least = std::min(least, seconds() - begin);  // the first one warms up
  }
  return static_cast<float>(least);
}

void Collectives::measure_borders(Bootstrap& bootstrap) {
  if (has_guards()) return;  // all go by lines
  struct All {
    Times lines[collective_kinds], direct[collective_kinds];
  } mine{};
  const std::uint64_t usual = device_.preferred_line_bytes(node_ranks());
  // With one rank on the node, or very many, there is nothing to choose; nodes may differ in that.
  const bool chooses = node_ranks() > 1 && node_ranks() <= PlaceTable::most;
  std::optional<const Buffer> send_buffer, recv_buffer;
  std::unique_ptr<OwnStream> stream;
  if (chooses) {
    const std::uint64_t bytes = size_of(sizes - 1, usual) * node_ranks();
    send_buffer.emplace(device_, bytes);
    recv_buffer.emplace(device_, bytes);
    stream = device_.new_stream();
  }
  // Calls wait for all: a rank that has no memory for them ends here, and the others with it.
  (void)bootstrap.allgather(char{});
  if (chooses) {
    const std::lock_guard<std::mutex> hold(mutex_);
    memory_->reports->begin();
    for (const CollectiveKind kind : measured_kinds)
      for (std::size_t i = 0; i < sizes; ++i) {
        const Call call = sample_call(kind, size_of(i, usual), send_buffer->base, recv_buffer->base);
        mine.lines[index_of(kind)][i] = seconds_of(call, CollectiveWay::lines, *stream);
        mine.direct[index_of(kind)][i] = seconds_of(call, CollectiveWay::direct, *stream);
      }
  }
  // The slowest rank's, so that all take the same.
  const std::vector<All> all = bootstrap.allgather(mine);
  if (!chooses) return;
  for (const CollectiveKind kind : measured_kinds) {
    Times lines{}, direct{};
    for (const All& one : all)
      for (std::size_t i = 0; i < sizes; ++i) {
        lines[i] = std::max(lines[i], one.lines[index_of(kind)][i]);
        direct[i] = std::max(direct[i], one.direct[index_of(kind)][i]);
      }
    borders_[index_of(kind)] = border_between(lines, direct, usual);
  }
}

}  // namespace mpix
