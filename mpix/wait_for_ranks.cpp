// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "wait_for_ranks.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/awake_clock.h"
#include "base/error.h"
#include "base/kept.h"
#include "base/log.h"
#include "errors.h"

namespace mpix {

WaitForRanks::WaitForRanks(std::string who, const char* as, double seconds)
    : who_(std::move(who)),
      as_(as),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {
  if (seconds <= 0) return;
  try {
    begin_service(*this, patience_);
    begun_ = true;
  } catch (const Error&) {  // no thread: then it is not told
  }
}

WaitForRanks::~WaitForRanks() {
  if (begun_) end_service(*this);
}

Poller::Clock::duration WaitForRanks::look(Clock::time_point now) {
  if (now < due_) return due_ - now;  // woken for another's sake
  due_ = now + patience_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - since_).count();
  const std::string same = as_;
  log(LogLevel::warn, who_ + " waits for other ranks, for " + std::to_string(seconds) + " s: it is collective" +
                          (same.empty() ? "" : ", as " + same + " is"));
  return patience_;
}

Leaving leave_together(MPI_Comm comm, const std::string& call, double seconds, bool is_broken, bool has_left) {
  const WaitForRanks wait(call, "", seconds);
  struct Words {
    int stays, any_stays;
  };
  const auto words = std::make_shared<Words>(Words{has_left ? 0 : 1, 1});
  MPI_Request all = MPI_REQUEST_NULL;
  check(PMPI_Iallreduce(&words->stays, &words->any_stays, 1, MPI_INT, MPI_MAX, comm, &all));
  const auto begin = AwakeClock::now();
  for (int looks = 0, come = 0;; ++looks) {
    check(PMPI_Test(&all, &come, MPI_STATUS_IGNORE));
    stand_in_for_service();
    if (come) return words->any_stays != 0 ? Leaving::some_stay : Leaving::all_have_left;
    if (looks < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::chrono::duration<double> waited = AwakeClock::now() - begin;
    if (!is_broken || seconds <= 0 || waited.count() <= seconds) continue;
    keep_for_ever(words);  // the others may come yet
    return Leaving::some_missing;
  }
}

}  // namespace mpix
