// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <functional>

#include "mpi_library.h"

namespace mpix {

/// MPI's messages and ordinary epochs go on where a rank waits in MPI, and a peer may need them to come to what this
/// rank waits for: a call of ours that waits for streams, and not in MPI, sees to it. What is tested here is never over
/// and concerns nobody: no message of the program is touched, and no error of a communicator raised.
class Progress {
 public:
  /// Which call waits: while one of MPI is being made, or one of ours that calls MPI, the program's other threads are
  /// not in MPI, or may be.
  enum class Call { of_mpi, other };
  explicit Progress(Call call) : call_(call) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What to call, now and then, by the same thread. Null: it may not call MPI now.
  std::function<void()> meanwhile();

 private:
  void make();

  const Call call_;
  MPI_Request never_ = MPI_REQUEST_NULL;
};

}  // namespace mpix
