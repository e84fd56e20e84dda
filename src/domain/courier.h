// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/service.h"
#include "device/copier.h"
#include "device/device.h"
#include "domain/far_link.h"
#include "mpix_device/far.h"
#include "team/bootstrap.h"
#include "team/team.h"

namespace mpix {

/// What a courier has to know of its domain.
struct CourierDomain {
  int process = 0;                         ///< in the team
  std::vector<std::uint32_t> first_ranks;  ///< by process; one more: all
  std::uint32_t most_pending = 0;
  char* segment = nullptr;  ///< where other nodes' parts of windows stand, for kernels here
  std::uint64_t windows_at = 0, window_calls_at = 0;
  const std::uint64_t* released = nullptr;
  double patience = 0;
  bool fails_on_timeout = false;
  std::function<void(std::uint32_t rank_here)> wake_rank;
  std::function<void()> wake_process;
  std::function<void(const std::string& why)> fail;
};

/// Carries what ranks of a process put to other nodes, and what comes from there: the service's part of
/// include/mpix_device/far.h. Of each task and each message it does what this says, in order:
///
/// | task          | becomes                                        | at the target, when all before it is done |
/// |---------------|------------------------------------------------|--------------------------------------------|
/// | far_put       | a message with the data                        | they are copied into the window; then a notification, where it has one, goes into the rank's lane |
/// | far_get       | a message                                      | the window's bytes are copied into a reply; a notification likewise. The reply goes into the room for data, and `replies` says so. As soon as there is room for a reply: what is behind it goes on |
/// | far_flush     | a question to whom something was sent, until each has said that all is done | it answers |
/// | far_barrier   | a message to all                               | counts; `go` is what the last of all has come to |
/// | far_window    | known here; a message to all                   | their table has the part's size, and what the rank does |
///
/// A notification that finds no room in its rank's lane waits here, and those of the same rank behind it; as many as a
/// rank may set aside. One more keeps back what comes from its process, until the rank calls the library.
///
/// A get keeps back nothing: two processes whose rings are full in both directions, a get in front of each, would wait
/// for each other. There is one of a rank at most, which waits for it. While one waits for room nothing else is
/// appended to that ring, so that it has its turn.
class Courier final : public Poller {
 public:
  /// Collective: an exchange of a few bytes.
  Courier(CourierDomain domain, std::shared_ptr<const Team> team, Bootstrap& bootstrap, Device& device,
          OperationBudget& budget);
  ~Courier() override;
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// For kernels, in memory of the host.
  dev::FarWords* words() const { return words_; }
  dev::FarRank* ranks() const { return ranks_; }
  Task* tasks() const { return tasks_; }
  char* data() const { return data_; }

  /// A window of the host: the parts of the ranks here; present is 0 where there is none.
  void know_window(std::uint32_t window, const std::vector<dev::WindowEntry>& parts);
  /// There is a task.
  void wake() { wake_service(*this); }
  /// Asleep, until all that `tasks` tasks say is at its targets. False: it broke, or has taken too long.
  bool drain(std::uint64_t tasks, const std::function<void()>& meanwhile);
  /// Notifications that ranks here have not seen yet.
  std::uint64_t waiting() const;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  struct Told {
    std::uint64_t what, how;
  };
  /// Of each rank here, what lies in its lane, and what waits for room there.
  struct RankLane {
    std::uint64_t written = 0;
    std::deque<Told> waiting;
  };
  /// A message that has come, from when its copies are under way until it is done.
  struct Delivery {
    FarMessage message;
    std::uint64_t end;   ///< of the message
    std::uint64_t copy;  ///< number of its last copy; 0: none
    bool is_wrong;       ///< nothing comes of it
  };
  struct Get {
    FarMessage message;
    std::uint64_t number;  ///< of the messages that have come
    std::uint64_t copy;
    std::uint64_t reply;  ///< where it begins
    bool is_wrong;
  };
  struct Peer {
    std::unique_ptr<FarLink> link;
    std::deque<Delivery> deliveries;
    std::deque<Get> gets;                    ///< that wait for room for their replies
    std::deque<Get> reads;                   ///< that have it
    std::uint64_t come = 0, dealt_with = 0;  ///< messages
    std::uint64_t barriers = 0;
    bool has_ranks = false;
  };
  struct Flush {
    std::uint32_t rank_here;
    std::uint64_t number;
    std::vector<std::pair<const FarLink*, std::uint64_t>> until;
  };

  std::uint32_t first_rank() const;
  std::uint32_t ranks_here() const;
  Peer& peer_of(std::uint32_t rank);
  bool serve_all();
  bool take_tasks();
  bool take(const Task& task);
  bool take_put(const Task& task);
  bool take_get(const Task& task);
  bool take_flush(const Task& task);
  bool to_all(const Task& task);
  void free_data(std::uint64_t place, std::uint64_t bytes);
  static bool may_append(Peer& peer, std::uint64_t bytes);
  bool receive(Peer& peer);
  void begin(Peer& peer, const FarMessage& message, Delivery& delivery);
  bool begin_gets(Peer& peer);
  bool end_gets(Peer& peer, std::uint64_t copied);
  char* target_of(const Peer& peer, const FarMessage& message);
  bool deliver(Peer& peer);
  bool end(Peer& peer, const Delivery& delivery);
  bool tell(std::uint32_t rank, std::uint64_t what, std::uint64_t how);
  std::string who_is_slow() const;
  bool fill_lanes();
  void fill_lane(std::uint32_t rank_here);
  bool end_flushes();
  bool is_released() const;
  void look_for_trouble(Clock::time_point now);
  bool is_drained(std::uint64_t tasks);

  const CourierDomain domain_;
  const std::shared_ptr<const Team> team_;
  OperationBudget& budget_;
  const std::unique_ptr<Copier> copier_;
  std::shared_ptr<char> memory_;  ///< of what follows
  dev::FarWords* words_ = nullptr;
  dev::FarRank* ranks_ = nullptr;
  Task* tasks_ = nullptr;
  char* data_ = nullptr;
  std::shared_ptr<char> doorsteps_;
  std::shared_ptr<const Registration> exposed_;

  mutable std::mutex mutex_;  ///< guards what follows
  std::vector<Peer> peers_;   ///< of other nodes, by process
  std::vector<std::size_t> peer_of_process_;
  std::map<std::uint32_t, std::vector<dev::WindowEntry>> parts_;  ///< of ranks here, by window
  std::vector<RankLane> lanes_;
  std::vector<std::uint32_t> filling_;  ///< ranks for which something waits
  std::uint64_t taken_ = 0;
  std::size_t progress_ = 0;                      ///< of a task for all: peers that have it
  std::map<std::uint64_t, std::uint64_t> freed_;  ///< room for data, behind what is free: end by begin
  std::uint64_t data_freed_ = 0;
  std::deque<Flush> flushes_;
  std::uint64_t went_ = 0;
  BackOff back_off_;
  unsigned looks_ = 0;
  Clock::time_point reported_{};
  bool listed_ = false, has_failed_ = false;
};

}  // namespace mpix
