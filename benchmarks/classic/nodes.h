// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "support/abort.h"
#include "support/domain.h"

/// Clusters: the ranks dealt out to nodes and to their GPUs, and the way between nodes.
namespace classic {

/// Of a machine, whose GPUs are dealt out likewise: a node has a block of consecutive ranks, which take its GPUs in
/// turn. Where there are more nodes than GPUs, some have the same.
struct Place {
  /// `gpus_wanted`: of a node, where they are pretended. The ranks can be dealt out evenly.
  Place(int rank, int ranks, int number_of_nodes, int gpus_wanted)
      : nodes(number_of_nodes), ranks_of_node(ranks / nodes), node(rank / ranks_of_node), local(rank % ranks_of_node) {
#if defined(__CUDACC__) || defined(__HIPCC__)
    (void)gpus_wanted;
    const int gpus_of_node = std::max(support::gpus() / nodes, 1);
#else
    const int gpus_of_node = std::max(gpus_wanted, 1);
#endif
    gpus = std::min(gpus_of_node, ranks_of_node);
    gpu = node * gpus_of_node + local % gpus;
  }

  int nodes, ranks_of_node, node, local;
  int gpus = 1;  ///< of a node
  int gpu = 0;   ///< the rank's
};

/// The ranks of each node and of each GPU, and the first of these.
struct Places : Place {
  explicit Places(const Place& place) : Place(place) {
    split(MPI_COMM_WORLD, node, &of_node);
    split(of_node, local % gpus, &of_gpu);
    split(of_node, local < gpus ? 0 : MPI_UNDEFINED, &of_gpu_leaders);
    split(MPI_COMM_WORLD, local == 0 ? 0 : MPI_UNDEFINED, &of_node_leaders);
  }
  ~Places() {
    for (MPI_Comm* const comm : {&of_node, &of_gpu, &of_gpu_leaders, &of_node_leaders})
      if (*comm != MPI_COMM_NULL) CHECK_MPI(MPI_Comm_free(comm));
  }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  MPI_Comm of_node = MPI_COMM_NULL, of_gpu = MPI_COMM_NULL;
  MPI_Comm of_gpu_leaders = MPI_COMM_NULL;   ///< of the node; null at the other ranks
  MPI_Comm of_node_leaders = MPI_COMM_NULL;  ///< likewise

 private:
  static void split(MPI_Comm comm, int color, MPI_Comm* part) { CHECK_MPI(MPI_Comm_split(comm, color, 0, part)); }
};

/// Between the leaders of nodes: by way of pinned memory, and MPI. With one node, and at other ranks, it does nothing.
/// A leader's processor waits here, for its stream and for MPI; the other ranks of its node wait for its words.
class Network {
 public:
  Network(MPI_Comm leaders, launcher::Stream& stream, std::size_t most) : stream_(stream), leaders_(leaders) {
    if (leaders_ == MPI_COMM_NULL) return;
    CHECK_MPI(MPI_Comm_rank(leaders_, &node_));
    CHECK_MPI(MPI_Comm_size(leaders_, &nodes_));
    if (is_there()) pinned_ = launcher::allocate_pinned(most * sizeof(float) / sizeof(double) + 1);
  }
  bool is_there() const { return nodes_ > 1; }

  /// `result` of each node, added up, enqueued to come to `all`.
  void allreduce(const float* result, float* all, std::size_t count) {
    copy(here(), result, count);
    stream_.synchronize();
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, here(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, leaders_));
    copy(all, here(), count);
  }
  /// Blocks of nodes, in their order. The node's own is read by `read(TO)`, and is not written.
  template <class Read>
  void allgather(const Read& read, float* all, std::size_t count) {
    const std::size_t before = static_cast<std::size_t>(node_) * count, behind = before + count;
    read(here() + before);
    stream_.synchronize();
    CHECK_MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, here(), static_cast<int>(count), MPI_FLOAT, leaders_));
    copy(all, here(), before);
    copy(all + behind, here() + behind, static_cast<std::size_t>(nodes_) * count - behind);
  }

 private:
  float* here() const { return reinterpret_cast<float*>(pinned_.get()); }
  void copy(float* to, const float* from, std::size_t count) {
    if (count > 0) place::copy(stream_, to, from, count * sizeof(float));
  }

  launcher::Stream& stream_;
  const MPI_Comm leaders_;
  launcher::Pinned pinned_;
  int node_ = 0, nodes_ = 1;
};

}  // namespace classic
