// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/service.h"
#include "watch/stall.h"

namespace mpix {

/// Which side of an ordinary epoch waits.
enum class Ordinary { access, exposure };

/// An ordinary call that may wait inside MPI for ever, while it lasts: MPI_Win_start, MPI_Win_complete or MPI_Win_free
/// of a rank that has had stream epochs on the window; MPI_Win_wait of one whose access epochs were stream epochs. A
/// legal program may mix the two; as a rule it is a port that forgot a call, and whose peers have made theirs in
/// streams. It cannot be released, but reported. The mixture is rare, so it may cost the start of the service.
class BlockedCall final : public Poller {
 public:
  /// `call` and `why`, for whom it may wait, are literals.
  BlockedCall(StallReporter& reporter, const char* call, const char* why);
  ~BlockedCall() override { end_service(*this); }
  BlockedCall(const BlockedCall&) = delete;
  BlockedCall& operator=(const BlockedCall&) = delete;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char*) noexcept override {}  // no memory for a text

 private:
  Clock::duration interval() const;

  StallReporter& reporter_;
  const char* const call_;
  const char* const why_;
  const Clock::duration patience_;
  const Clock::time_point since_ = Clock::now();
  Clock::duration reported_{};
};

/// Those of a window, one for each thread. An error handler of the program may leave MPI by a jump, and then nobody
/// says that the call is over: the thread's next one does, or the end of the window.
class BlockedCalls {
 public:
  /// Of the calling thread, both. Throws std::exception.
  void begin(StallReporter& reporter, const char* call, const char* why);
  void end() noexcept;

 private:
  std::mutex mutex_;
  std::map<std::thread::id, std::unique_ptr<BlockedCall>> calls_;
  std::atomic<bool> has_any_{false};
};

}  // namespace mpix
