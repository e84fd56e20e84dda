// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/awake_clock.h"
#include "base/service.h"
#include "base/settings.h"
#include "device/device.h"
#include "device/host/bell.h"
#include "mpix_device/notify.h"
#include "notify/channel_memory.h"
#include "notify/reports.h"

namespace mpix {

/// Who takes the tasks of a channel.
enum class TaskService {
  own,      ///< a thread of the channel
  library,  ///< the one thread of the library
  caller,   ///< the program, when it calls
};

struct ChannelOptions {
  std::uint32_t lanes = 0, flags = 0;
  std::uint32_t depth = 64;
  bool is_queue = false;
  bool is_dense = true;
  bool all_fence = false;
  bool flags_on_device = false;  ///< those that kernels wait for
  TaskService service = TaskService::caller;
  std::string name;
  int local_ranks = 1;                                                             ///< that share the cores
  std::uint64_t first_number = 1;                                                  ///< for tests: of the tasks
  std::function<std::string(std::uint32_t flag, std::uint64_t number)> flag_text;  ///< what a kernel that waits misses
};

/// The host's side of a channel: include/mpix_device/notify.h has the words.
///
/// | state   | begins with | its thread                                      |
/// |---------|-------------|-------------------------------------------------|
/// | idle    | birth, disarm | naps up to a few milliseconds; on hosts sleeps until a kernel rings |
/// | armed   | arm         | looks all the time; on hosts it sleeps soon, until a kernel rings |
/// | broken  | a handler failed, a task that nobody handles, a hole, a time-out | takes nothing any more |
///
/// Calls may come from several threads. One at a time takes tasks (serving_); replies and flags need no lock. Between
/// two tasks that are there its thread executes no locked instruction, which would wait for the stores before it, on
/// their way to lines that a GPU polls: it keeps the lock until there is nothing, or somebody waits for it.
class Channel {
 public:
  /// The text for what a handler returned.
  using Explain = std::string (*)(int failure);

  /// `handle`: what handlers get first.
  Channel(const ChannelOptions& options, MPIX_Channel handle, Explain explain, Device& device,
          const Settings& settings);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const MPIX_Dev_channel& param() const { return param_; }
  void set_handler(std::uint32_t kind, MPIX_Task_function* handler, void* arg);
  void arm();
  /// Returns when all that kernels have posted before is handled. Throws, and breaks the channel, where one of them
  /// ended in the middle of a post.
  void disarm();
  bool is_armed() const { return armed_; }
  /// The calling thread is in a handler of this channel.
  bool is_in_handler() const { return serving_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  /// By the program, with TaskService::caller. False: there is no task.
  bool poll(MPIX_Task* task);
  bool serve();

  void reply(const MPIX_Task& task, std::uint64_t value);
  void set_flag(std::uint32_t flag, std::uint64_t value);
  std::uint64_t flag(std::uint32_t flag) const;
  void wait_for_flag(std::uint32_t flag, std::uint64_t value);
  /// By threads of the program, for flags.
  bool is_awaited() const { return flag_waits_ > 0; }

  bool is_broken() const { return load_acquire(&param_.host->released) != 0; }
  void require_whole() const;
  std::string cause() const;
  /// Nobody waits any more. The first cause counts.
  void break_for(const std::string& cause);

  /// The last call, while the program may still use it in handlers: what was posted is handled, if handlers are what
  /// takes tasks, and then nobody serves it any more.
  void finish();
  /// In a child of fork() it cannot be destroyed: its thread, which the child has not, waits in it.
  bool is_of_parent() const;
  /// Breaks it, and nobody serves it any more.
  void end_service_for(const std::string& cause);

  struct Counts {
    std::uint64_t tasks = 0, replies = 0, full_waits = 0, chained = 0, longest_chain = 0, naps = 0, late_ns = 0,
                  refused = 0;
  };
  Counts counts();

 private:
  using Clock = AwakeClock;
  using Lock = std::unique_lock<std::mutex>;
  struct HandlerOf {
    MPIX_Task_function* call = nullptr;
    void* arg = nullptr;
  };
  class LibraryService;
  class Visit {
   public:
    explicit Visit(const Channel& channel);

   private:
    Lock hold_;
  };

  void stop_service();
  void check_flag(std::uint32_t flag) const;
  bool take(std::uint32_t ring, MPIX_Task* task);
  void clear_words(std::uint32_t ring, std::uint64_t number);
  void publish_taken(std::uint32_t ring);
  void handle(const MPIX_Task& task);
  // Of their own: what a task costs shows in millions of them.
  void break_for_garbage(std::uint32_t ring, std::uint64_t number);
  void break_for_kind(const MPIX_Task& task);
  void break_for_failure(const MPIX_Task& task, int failure);
  void break_for_exception(const MPIX_Task& task);
  std::string ring_name(std::uint32_t ring) const;
  void watch_host(Clock::time_point now);
  bool round(bool spins);
  bool serve_rounds(std::uint32_t looks);
  bool serve_round();
  std::uint64_t replies() const;
  std::vector<dev::ChannelLane> lanes_now();
  bool serves_by_handlers();
  std::vector<std::uint64_t> posted_so_far();
  std::string hole_in(const std::vector<std::uint64_t>& posted) const;
  void handle_what_is_posted();
  void note_look(Clock::time_point begin, bool found);
  void note_spinning(bool found);
  void work() noexcept;
  void wake();

  Device& device_;
  const ChannelOptions options_;
  const MPIX_Channel handle_;
  const Explain explain_;
  const bool is_on_host_;  ///< kernels are threads, and ring
  const bool spins_;       ///< armed, without giving the core away
  const Polling polling_;
  const double patience_;
  const bool fails_on_timeout_;
  const int core_;  ///< for its thread; negative: any
  const pid_t born_in_;
  std::unique_ptr<ChannelMemory> memory_;
  MPIX_Dev_channel param_;
  std::mutex flags_;                                 ///< guards writes of flags_writer_, in the order of the values
  std::unique_ptr<OwnStream> flags_writer_;          ///< null: the CPU writes to where kernels look
  std::vector<std::atomic<std::uint64_t>> replied_;  ///< by lane and place: the last number

  mutable std::atomic<int> visitors_{0};  ///< that wait for serving_
  mutable std::mutex serving_;            ///< guards what follows
  std::atomic<std::thread::id> serving_thread_{};
  std::vector<HandlerOf> handlers_;    ///< by kind
  std::vector<std::uint64_t> taken_;   ///< by ring: the last number
  std::vector<std::uint64_t> wanted_;  ///< by lane: replies, so far
  std::uint32_t next_polled_ = 0;
  std::uint64_t chain_ = 0;
  bool tasks_have_words_ = false;  ///< as the last one did: worth a fetch ahead
  Counts counts_;
  Clock::time_point looked_{};  ///< last, while armed
  std::uint32_t looks_in_vain_ = 0;

  std::atomic<std::uint64_t> naps_{0};
  std::atomic<std::uint64_t> handled_{0};  ///< calls of handlers, begun and ended: under serving_; and the last one:
  std::atomic<std::uint64_t> handled_number_{0};
  std::atomic<std::uint32_t> handled_lane_{0};
  std::atomic<int> flag_waits_{0};  ///< of the program
  std::uint64_t watched_ = 0;       ///< handled_, as it was
  Clock::time_point watched_since_{};
  double watched_reported_ = 0;
  bool handlers_move_ = false;  ///< since the last look
  std::atomic<bool> armed_{false}, stop_{false};
  mutable std::mutex cause_mutex_;
  std::string cause_;
  std::mutex nap_mutex_;
  std::condition_variable woken_;
  std::unique_ptr<LibraryService> library_;
  std::thread thread_;
  std::unique_ptr<WaitReports> reports_;  ///< last: it asks for the others
};

}  // namespace mpix
