// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <cstddef>
#include <cstdint>
#include <string>

/// What is measured: a collective, of some size, on buffers that all libraries share.
namespace collectives {

enum class Kind { allreduce, allgather, bcast, reduce, alltoall, reduce_scatter_block, barrier };
enum class Type { float64, float32 };

/// Of the rooted ones.
constexpr int root = 0;

inline const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::allreduce:
      return "allreduce";
    case Kind::allgather:
      return "allgather";
    case Kind::bcast:
      return "bcast";
    case Kind::reduce:
      return "reduce";
    case Kind::alltoall:
      return "alltoall";
    case Kind::reduce_scatter_block:
      return "reduce_scatter_block";
    case Kind::barrier:
      return "barrier";
  }
  return "";
}

inline const char* name_of(Type type) { return type == Type::float64 ? "double" : "float"; }

/// A table for each.
struct Topic {
  Kind kind;
  Type type;
  std::string name() const {
    return name_of(kind) + (kind == Kind::barrier ? "" : std::string(" of ") + name_of(type));
  }
};
constexpr Topic topics[] = {{Kind::allreduce, Type::float64},
                            {Kind::allreduce, Type::float32},
                            {Kind::allgather, Type::float64},
                            {Kind::bcast, Type::float64},
                            {Kind::reduce, Type::float64},
                            {Kind::alltoall, Type::float64},
                            {Kind::reduce_scatter_block, Type::float64},
                            {Kind::barrier, Type::float64}};

struct Call {
  Kind kind;
  Type type;
  std::size_t count;  ///< elements of a block, as MPI's argument has it
  int rank, ranks;
  void *send, *receive;

  std::size_t size_of_element() const { return type == Type::float64 ? sizeof(double) : sizeof(float); }
  std::size_t all_blocks() const { return count * static_cast<std::size_t>(ranks); }
  std::size_t sent() const {  ///< elements of the send buffer
    if (kind == Kind::barrier) return 0;
    return kind == Kind::alltoall || kind == Kind::reduce_scatter_block ? all_blocks() : count;
  }
  std::size_t received() const {  ///< elements of the receive buffer, on the ranks that have one
    if (kind == Kind::barrier) return 0;
    return kind == Kind::alltoall || kind == Kind::allgather ? all_blocks() : count;
  }
  bool receives() const { return kind != Kind::reduce || rank == root; }
  std::size_t bytes_sent() const { return sent() * size_of_element(); }
  std::size_t bytes_received() const { return received() * size_of_element(); }
  /// A broadcast has one buffer.
  void* source() const { return kind == Kind::bcast ? receive : send; }
};

/// What a rank sends as element `at` of its `turn`: a whole number, of as many bits that a sum of 128 such is exact,
/// in whatever order. No two turns are alike.
template <class T>
MPIX_FN T value_of(int rank, std::uint64_t turn, std::size_t at) {
  std::uint64_t mixed = turn * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xd1b54a32d192ed03u + at;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  mixed ^= mixed >> 31;
  constexpr int bits = sizeof(T) == sizeof(double) ? 46 : 17;
  return static_cast<T>(mixed >> (64 - bits));
}

/// What a rank has to find as element `at` of its receive buffer.
template <class T>
MPIX_FN T expected(Kind kind, std::size_t count, int rank, int ranks, std::uint64_t turn, std::size_t at) {
  const int other = static_cast<int>(at / count);
  const std::size_t my_block = static_cast<std::size_t>(rank) * count;
  switch (kind) {
    case Kind::bcast:
      return value_of<T>(root, turn, at);
    case Kind::allgather:
      return value_of<T>(other, turn, at % count);
    case Kind::alltoall:
      return value_of<T>(other, turn, my_block + at % count);
    default:
      break;
  }
  T sum = 0;
  for (int from = 0; from < ranks; ++from)
    sum += value_of<T>(from, turn, kind == Kind::reduce_scatter_block ? my_block + at : at);
  return sum;
}

}  // namespace collectives
