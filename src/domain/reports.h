// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/service.h"
#include "base/settings.h"
#include "mpix_device/layout.h"

namespace mpix {

/// What ranks of a domain wait for, as text: "rank 17 (process 0) waits for 2 of 4 notifications: window 3, any source,
/// tag 7".
std::string waiting_text(const dev::RankNote& note, std::uint32_t rank, std::uint32_t process);

/// Of a barrier of `comm` that a process's ranks wait in: who of them does not; empty: all do.
std::string missing_text(const dev::RankNote* notes, std::uint32_t count, std::uint32_t first_rank, dev::Comm comm);

/// What ranks have logged, from the line after `*last` on: as text, a line each. Advances `*last`.
std::vector<std::string> new_log_lines(const dev::LogLine* log, std::uint64_t* last);

/// The hang report of a domain, and what its ranks have logged: looks at the notes of its ranks, and tells of those
/// that wait for longer than MPIX_TIMEOUT. With MPIX_ON_TIMEOUT=error the domain is broken then: nobody waits any more.
class DomainReports final : public Poller {
 public:
  DomainReports(dev::RankNote* notes, std::uint32_t count, std::uint32_t first_rank, std::uint32_t process,
                std::uint64_t* released, const dev::LogLine* log, const Settings& settings, std::function<void()> wake);
  ~DomainReports() override;

  /// Kernels may wait from now on.
  void begin();
  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

  bool is_released() const;
  double patience() const { return seconds_; }
  bool releases() const { return fail_; }
  void release();
  void write_log();

 private:
  struct Seen {
    std::uint64_t wait = 0;
    Clock::time_point since{};
    Clock::duration reported{};
  };

  dev::RankNote* const notes_;
  const std::uint32_t count_, first_rank_, process_;
  std::uint64_t* const released_;
  const std::function<void()> wake_;  ///< ranks that sleep
  const dev::LogLine* const log_;
  std::mutex log_mutex_;
  std::uint64_t last_line_ = 0;
  const double seconds_;
  const bool fail_;
  bool begun_ = false;
  std::vector<Seen> seen_;
};

}  // namespace mpix
