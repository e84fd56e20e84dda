// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

#include "base/service.h"
#include "mpi_library.h"

namespace mpix {

/// While it is there: says, now and then, that others have not made the collective call that waits for them. It cannot
/// be released.
class WaitForRanks final : public Poller {
 public:
  /// `who`: waits; `as`: another call that is collective, or empty. `seconds`: 0: nothing is said.
  WaitForRanks(std::string who, const char* as, double seconds);
  ~WaitForRanks() override;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char*) noexcept override {}  // no memory for a text

 private:
  const std::string who_;
  const char* const as_;
  const Clock::duration patience_;
  const Clock::time_point since_ = Clock::now();
  Clock::time_point due_ = since_ + patience_;
  bool begun_ = false;
};

/// A barrier, asleep, for memory that ranks share and are about to free; `call`: says that it waits. False: something
/// is broken, and some have not come for `seconds` (0: for ever).
bool all_have_come(MPI_Comm comm, const char* call, double seconds, bool is_broken);

}  // namespace mpix
