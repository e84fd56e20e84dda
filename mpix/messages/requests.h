// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <vector>

#include "mpix/mpi_library.h"

namespace mpix {

/// The requests of the messages under way: of receives, at places of their own, then of sends. They are tested by one
/// call for all, as each call lets MPI look at all of its sockets: a thread that waits looks again sooner, and takes
/// less from the others of its core. (Receives and sends by themselves were four looks at the sockets for each of
/// ours.)
class MessageRequests {
 public:
  /// For the call of MPI that makes it.
  MPI_Request& receive(std::size_t place) { return all_[place]; }
  /// One more; its place is the number of those before.
  void add_receive() { all_.insert(all_.begin() + static_cast<std::ptrdiff_t>(receives_++), MPI_REQUEST_NULL); }
  void drop_last_receive() { all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(--receives_)); }
  /// The same; good until the next one.
  MPI_Request& add_send() { return all_.emplace_back(MPI_REQUEST_NULL); }
  void drop_last_send() { all_.pop_back(); }

  struct Ended {
    std::size_t place;  ///< of a receive; of a send its number among those that were under way
    MPI_Status status;
    int error;
  };
  struct Result {
    int failure = MPI_SUCCESS;  ///< of all of them, as far as MPI says; they are not tested again then
    std::vector<Ended> receives, sends;
  };
  /// Which of them are over. Good until the next call.
  const Result& test();

 private:
  std::vector<MPI_Request> all_;
  std::size_t receives_ = 0;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  Result result_;
};

}  // namespace mpix
