// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/service.h"
#include "base/settings.h"
#include "mpix_device/notify.h"

namespace mpix {

/// What a lane, or a flag, of a channel waits for, as text: "lane 3 waits for a reply to its task 17".
std::string waiting_text(std::uint64_t note, std::uint32_t index, std::uint32_t lanes);

/// The hang reports of a channel: which lanes and flags have waited for longer than MPIX_TIMEOUT. With
/// MPIX_ON_TIMEOUT=error the channel is broken then. What the program does is watched at the same times (`watch_host`).
class ChannelReports final : public Poller {
 public:
  using FlagText = std::function<std::string(std::uint32_t flag, std::uint64_t number)>;
  /// `flag_text`: what a kernel misses that waits for a flag; null: the flag.
  ChannelReports(const MPIX_Dev_channel& channel, std::string name, FlagText flag_text, const Settings& settings,
                 std::function<void(const std::string& why)> fail,
                 std::function<void(Clock::time_point now)> watch_host);
  ~ChannelReports() override;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  struct Seen {
    std::uint64_t note = 0;
    Clock::time_point since{};
    Clock::duration reported{};
  };

  const std::uint64_t* const notes_;
  const std::uint32_t lanes_;
  const std::string name_;
  const FlagText flag_text_;
  const double seconds_;
  const bool fails_;
  const std::function<void(const std::string& why)> fail_;
  const std::function<void(Clock::time_point now)> watch_host_;
  std::vector<Seen> seen_;
};

}  // namespace mpix
