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

enum class Leaving {
  all_have_left,
  some_stay,     ///< kernels or threads of some ranks may still reach into the memory of all
  some_missing,  ///< something is broken, and some have not come
};

/// A barrier, asleep, for memory that ranks share and are about to free; `call`: what waits. Where something is
/// broken, for no longer than `seconds` (0: for ever).
Leaving leave_together(MPI_Comm comm, const std::string& call, double seconds, bool is_broken, bool has_left);

}  // namespace mpix
