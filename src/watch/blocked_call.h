// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "base/service.h"
#include "watch/stall.h"

namespace mpix {

/// An ordinary call that may wait inside MPI for ever, while it lasts: MPI_Win_start or MPI_Win_complete of an ordinary
/// access epoch, at a rank that exposes the window in a stream epoch. A legal program may mix the two; as a rule it is
/// a port that forgot MPIX_MODE_STREAM, and whose targets have posted in streams. It cannot be released, but reported.
/// The mixture is rare, so it may cost the start of the service.
class BlockedCall final : public Poller {
 public:
  /// `call` is a literal.
  BlockedCall(StallReporter& reporter, const char* call);
  ~BlockedCall() override { end_service(*this); }
  BlockedCall(const BlockedCall&) = delete;
  BlockedCall& operator=(const BlockedCall&) = delete;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char*) noexcept override {}  // no memory for a text

 private:
  Clock::duration interval() const;

  StallReporter& reporter_;
  const char* const call_;
  const Clock::duration patience_;
  const Clock::time_point since_ = Clock::now();
  Clock::duration reported_{};
};

}  // namespace mpix
