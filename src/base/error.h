// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <stdexcept>
#include <string>

namespace mpix {

/// What went wrong, in MPI's categories; the MPI face turns it into an error class.
enum class Fault {
  argument,
  attach,
  buffer,
  communicator,
  communication_group,
  count,
  datatype,
  displacement,
  info_value,
  memory,
  operation,
  other,
  range,
  rank,
  request,
  root,
  size,
  synchronization,
  tag,
  truncation,
  unsupported,
  window,
};

/// Caught at the C boundary, and returned through the window's error handler with its text.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& what) : std::runtime_error(what), fault_(fault) {}
  Fault fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

}  // namespace mpix
