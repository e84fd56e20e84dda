// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mpix/mpi_library.h"

namespace mpix {

/// The communicator of these messages: the processes that were started together, where the program's receives match
/// nothing.
///
/// Making one is collective over MPI_COMM_WORLD, and so is its end. A window may be created by some of the ranks
/// only, in any order with other calls, so that is too late: it is made in MPI_Init, where ranks are on several nodes
/// and the settings of any of them may choose messages of MPI. Nothing else of them exists before it is needed.
class MessageWorld {
 public:
  /// Collective. The node of each rank is known. Null where it will not be needed.
  static std::shared_ptr<MessageWorld> make_if_needed(const std::vector<int>& nodes);
  ~MessageWorld() = default;
  MessageWorld(const MessageWorld&) = delete;
  MessageWorld& operator=(const MessageWorld&) = delete;

  /// Collective, before MPI_Finalize; all requests are over.
  void free() { PMPI_Comm_free(&comm_); }

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The same in all of its processes, and in no others.
  std::uint64_t id() const { return id_; }
  /// The level of threads that all of its processes have: they have to choose the same network.
  int thread_level() const { return thread_level_; }

 private:
  MessageWorld();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 0;
  std::uint64_t id_ = 0;
  int thread_level_ = MPI_THREAD_SINGLE;
};

/// What level of threads a program gets that asks for `required`: more, where messages of MPI may be needed, as its
/// settings and its launcher say.
int thread_level(int required);

}  // namespace mpix
