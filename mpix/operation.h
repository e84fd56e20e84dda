// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mpi_library.h"
#include "wire/reduction.h"

namespace mpix {

/// What a reduction does, and to what.
struct Reduction {
  Operation operation = Operation::none;
  Element element = Element::bytes;
  std::size_t element_bytes = 0;
  /// For Operation::by_function.
  void (*function)(void* context, const void* in, void* inout, std::uint64_t bytes) = nullptr;
  std::shared_ptr<void> context;
  std::uint32_t said_function = 0;  ///< see collective/said_function.h
  bool commutes = true;
};

/// Throws Error(Fault::operation) where MPI does not have the operation for the type, and Error(Fault::unsupported)
/// where only MPI itself could do it, and may not be called by the thread of a stream, or cannot as that is a GPU's.
Reduction reduction_of(MPI_Op op, MPI_Datatype type, bool on_host);

}  // namespace mpix
