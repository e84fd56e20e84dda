// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/service.h"
#include "base/settings.h"
#include "mpix_device/notify.h"

namespace mpix {

/// What a lane, or a flag, of a channel waits for, as text: "lane 3 (block 5) waits for reply 17: ...".
std::string waiting_text(std::uint64_t note, std::uint32_t index, std::uint32_t lanes);

/// Hang reports: which of those that leave notes have waited for longer than MPIX_TIMEOUT. With MPIX_ON_TIMEOUT=error
/// `fail` is called then.
class WaitReports final : public Poller {
 public:
  struct Waits {
    const std::uint64_t* notes;
    std::size_t count;
    const char* what;  ///< that wait, in the plural
    std::function<std::string(std::uint64_t note, std::size_t index)> text;
    std::function<void(Clock::time_point now)> watch = nullptr;  ///< called with each look
    /// Whether what such a one waits for comes nearer, though it has not come: then it does not wait for long.
    std::function<bool(std::uint64_t note)> moves = nullptr;
  };
  WaitReports(Waits waits, std::string name, const Settings& settings,
              std::function<void(const std::string& why)> fail);
  ~WaitReports() override;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  struct Seen {
    std::uint64_t note = 0;
    Clock::time_point since{};
    Clock::duration reported{};
  };

  const Waits waits_;
  const std::string name_;
  const double seconds_;
  const bool fails_;
  const std::function<void(const std::string& why)> fail_;
  std::vector<Seen> seen_;
};

}  // namespace mpix
