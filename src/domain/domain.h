// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "device/unmapping.h"
#include "domain/courier.h"
#include "domain/reports.h"
#include "mpix_device/layout.h"
#include "mpix_device/param.h"
#include "team/bootstrap.h"
#include "team/team.h"

namespace mpix {

/// What a program may choose; nothing: what suits the number of ranks.
struct DomainOptions {
  std::optional<std::uint32_t> lane_lines, most_pending, inline_bytes;
};

/// The ranks that kernels of a team's processes have, and the memory that they share: control memory, attachments, the
/// windows that the host makes. Calls with a Bootstrap are collective; none may be made while a kernel of the domain
/// runs. They throw on all processes where one of them cannot go along, if each process that fails tells the bootstrap.
class Domain final : public WaitsForPeers {
 public:
  /// `budget`: of the network to processes of other nodes, where there are any; null: none.
  Domain(std::uint32_t ranks_here, const DomainOptions& options, std::shared_ptr<const Team> team, Bootstrap& bootstrap,
         Device& device, const Settings& settings, OperationBudget* budget = nullptr);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  /// Without hooks: the launcher of host ranks adds them.
  const MPIX_Dev_param& param() const { return param_; }
  /// For a launch of the program's own.
  const MPIX_Dev_param& watched_param() {
    reports_->begin();
    launches_unseen_ = true;
    return param_;
  }
  std::uint32_t ranks_here() const { return param_.ranks_here; }
  /// Processes of the domain that run their kernels where this one does, with itself.
  std::uint32_t sharers() const { return sharers_; }
  std::uint64_t control_bytes() const { return segment_.bytes; }

  void attach(Bootstrap& bootstrap, void* base, std::size_t bytes);
  void detach(Bootstrap& bootstrap, void* base);
  int create_window(Bootstrap& bootstrap, void* const base[], const std::size_t bytes[]);
  void free_window(Bootstrap& bootstrap, int window);

  /// A kernel is about to be enqueued: what it gets.
  MPIX_Dev_param begin_launch();
  /// The last begin_launch() came to nothing.
  void cancel_launch();
  std::uint64_t launches() const { return launches_; }
  /// Asleep, until every rank has finished every launch. False: the domain is broken, or has waited for too long.
  bool wait_for_launches(const std::function<void()>& meanwhile = nullptr);
  /// When they have been released: whether all ranks have left, within a second.
  bool have_ranks_left() const;
  const std::shared_ptr<std::atomic<int>>& host_launches() { return host_launches_; }
  std::unique_lock<std::mutex> held_if_idle(bool or_unseen) override;
  /// Asleep, until what ranks here have put to other nodes is there. False: the domain is broken, or it took too long.
  bool wait_for_puts(const std::function<void()>& meanwhile = nullptr);
  bool is_broken() const { return reports_->is_released(); }
  /// Null: all processes are on one node.
  Courier* courier() const { return courier_.get(); }

  /// The first error that a rank here met in a kernel; its class as a dev::Result.
  struct Failure {
    dev::Result result = dev::Result::ok;
    std::string text;
  };
  Failure failure() const;
  void forget_failures();

  struct Counts {
    std::uint64_t taken = 0, pending = 0;
  };
  Counts counts() const;

 private:
  struct Card;
  /// An allocation of a process, as mapped here.
  struct Mapping {
    char* base = nullptr;
    bool imported = false;
  };
  struct Attachment {
    bool is_window = false;
    char* own = nullptr;
    std::vector<Mapping> mappings;
  };
  struct Memory;

  std::vector<Card> introduce(Bootstrap& bootstrap, std::uint32_t ranks_here, const DomainOptions& options);
  void choose_sizes(const std::vector<Card>& cards, const DomainOptions& options);
  void make_segment(Bootstrap& bootstrap);
  void fill_segment(const std::vector<Card>& cards);
  void release_mappings(std::vector<Mapping>& mappings) noexcept;
  Mapping map(int process, const ExportedMemory& exported, char* own);
  void wake_rank(std::uint32_t here) const;
  void wake_process() const;
  void make_courier(Bootstrap& bootstrap, OperationBudget& budget);
  int own_process() const { return team_->rank(); }
  std::uint32_t ranks_of(int process) const {
    return first_ranks_[static_cast<std::size_t>(process) + 1] - first_ranks_[static_cast<std::size_t>(process)];
  }
  dev::Inbox* inbox(std::uint32_t rank_here) const;
  /// Notifications that nobody has asked for; while no kernel runs.
  std::vector<dev::Notification> set_aside(std::uint32_t rank_here) const;
  /// Those that have come since the rank looked; likewise.
  std::uint64_t in_lanes(std::uint32_t rank_here) const;

  const std::shared_ptr<const Team> team_;
  Device& device_;
  const UnmapsLater unmaps_later_;  ///< outlives what is mapped
  const Settings& settings_;
  std::uint32_t sharers_ = 1;
  std::vector<std::uint32_t> first_ranks_;  ///< by process of the team; one more: all
  MPIX_Dev_param param_{};
  dev::Places places_{};
  Allocation segment_{};
  std::vector<Mapping> segments_;  ///< by process of the node
  std::shared_ptr<const void> segment_table_, inbox_table_, process_table_;
  std::shared_ptr<char> notes_;  ///< with the word `released` in front
  std::array<Attachment, dev::most_attachments> attachments_;
  std::array<Attachment, dev::windows_each> windows_;
  std::mutex launching_;  ///< launches_ goes up under it
  std::uint64_t launches_ = 0;
  /// Enqueued, or under way. Theirs as well: the domain may be gone when the last thread of a launch ends.
  const std::shared_ptr<std::atomic<int>> host_launches_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> launches_unseen_{false};  ///< the program's own
  std::unique_ptr<DomainReports> reports_;
  std::unique_ptr<Courier> courier_;  ///< ends before what it tells of
  std::optional<AskedBeforeUnmapping> asked_;
};

}  // namespace mpix
