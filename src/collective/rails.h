// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/service.h"
#include "collective/node_notes.h"
#include "collective/rail_meeting.h"
#include "collective/rail_shape.h"
#include "collective/rail_waits.h"
#include "collective/reports.h"
#include "device/device.h"
#include "device/rail_launch.h"
#include "net/shipment.h"
#include "team/bootstrap.h"
#include "team/team.h"

namespace mpix {

/// The exchanges of a communicator's collectives with other nodes: the service's part of wire/rail.h.
///
/// | an exchange | when                                         | then                                             |
/// |-------------|----------------------------------------------|--------------------------------------------------|
/// | taken       | its task is there                            | headers are written                              |
/// | sent        | as RailMeeting says                          | a transfer is under way                          |
/// | arrived     | what this rank needs has come, and the exchange before has left its places | the stream goes on    |
/// | over        | all transfers are over, and nothing more will come | it is forgotten                            |
class Rails final : public Poller, public RailService {
 public:
  struct Size {
    std::size_t scratch;         ///< what its memory may take, roughly
    std::uint32_t rounds_above;  ///< so many nodes
  };
  /// Collective: an exchange of a few bytes.
  Rails(std::shared_ptr<const Team> team, Bootstrap& bootstrap, Device& device, OperationBudget& budget,
        const Size& size, CollectiveWords* host, CollectiveReports& reports, NodeNotes& notes);
  ~Rails() override;

  const RailShape& shape() const { return shape_; }
  const RailPlaces& places() const { return places_; }
  /// Memory of the device: for blocks of all that a slot takes to each rank that this one is the source for.
  char* packed() const { return packed_; }
  char* collected() const { return collected_; }
  std::uint64_t memory_bytes() const { return memory_bytes_; }

  /// Nothing is under way of so many exchanges, and no partner will send anything of them.
  bool is_quiet(std::uint64_t exchanges);
  /// Somebody waits until it is quiet: what it waits for is reported.
  void set_awaited(bool is_awaited) { is_awaited_ = is_awaited; }
  /// Partners are being told that calls differ.
  bool is_telling();
  /// No exchange takes place any more. `is_orderly`: there is none that does.
  void close(bool is_orderly);

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;
  bool serve() override;
  void leave() override;

 private:
  void allocate(std::size_t slot_bytes, std::size_t node_bytes);
  bool serve_all();
  void take_tasks(bool* moved);
  bool has_arrived(const RailExchange& exchange) const;
  bool announce();
  bool forget();
  std::uint64_t out_bytes() const {
    return (places_.slots_bytes() + sizeof(CallDifference) + sizeof(RailHeader) - 1) / sizeof(RailHeader) *
           sizeof(RailHeader);
  }
  std::uint64_t in_bytes() const;
  std::uint64_t slots_and_notes_bytes() const;
  std::uint64_t told_bytes() const;
  bool is_released() const { return load_acquire(&host_->released) != 0; }
  void look_for_trouble(Clock::time_point now);
  void note_missing(Clock::time_point now);

  const std::shared_ptr<const Team> team_;
  Device& device_;
  OperationBudget& budget_;
  CollectiveWords* const host_;
  CollectiveReports& reports_;
  NodeNotes& notes_;
  const RailShape shape_;
  const bool streams_serve_;  ///< they do while they wait
  RailPlaces places_{};
  std::shared_ptr<char> memory_;  ///< words, out and what is told there, in
  std::shared_ptr<const void> tables_[4];
  char *device_memory_ = nullptr, *packed_ = nullptr, *collected_ = nullptr;
  std::uint64_t memory_bytes_ = 0;
  std::shared_ptr<const Registration> exposed_;
  const double patience_;
  std::atomic<bool> is_awaited_{false};

  std::mutex mutex_;  ///< guards what follows
  RailSender sender_;
  std::unique_ptr<RailMeeting> meeting_;
  std::unique_ptr<RailWaits> waits_;
  RailExchanges exchanges_;
  std::uint64_t taken_ = 0, arrived_ = 0;
  std::pair<std::uint64_t, int> told_{0, -1};  ///< to partners: before which exchange it waits, and for which rank
  BackOff back_off_;
  bool is_served_ = false;  ///< by a stream, which waits
  std::uint32_t beat_ = 0;
  Clock::time_point looked_{}, probed_{};
  bool listed_ = false, closed_ = false;
};

}  // namespace mpix
