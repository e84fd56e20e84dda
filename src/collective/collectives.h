// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/settings.h"
#include "collective/reports.h"
#include "collective/way_table.h"
#include "device/device.h"
#include "device/unmapping.h"
#include "team/bootstrap.h"
#include "team/team.h"
#include "wire/collective.h"
#include "wire/collective_tree.h"
#include "wire/way_choice.h"

namespace mpix {

class CallRoom;
class OperationBudget;
struct CollectiveLaunch;

/// The collectives of a team on streams: memory that its ranks on a node map of each other, rails to other nodes, and a
/// launch for each call, or several. Calls with a Bootstrap are collective, and throw on all ranks where one of them
/// cannot go along.
class Collectives final : public WaitsForPeers {
 public:
  /// How calls choose their way, the same on all ranks.
  struct Ways {
    CollectiveWay way = CollectiveWay::automatic;  ///< automatic: as the table says
    WaySelection selection = WaySelection::fixed;
    std::uint32_t blocks = 0;               ///< of a call on a GPU; 0: as the table says, or by size
    std::shared_ptr<const WayTable> table;  ///< null: none, all goes by size
  };

  /// `name`: of the communicator, for reports. `budget`: where there are several nodes; else null.
  Collectives(std::shared_ptr<const Team> team, Bootstrap& bootstrap, Device& device, OperationBudget* budget,
              const Settings& settings, Ways ways, const std::string& name);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  struct Call {
    CollectiveKind kind = CollectiveKind::barrier;
    Operation operation = Operation::none;
    Element element = Element::bytes;
    int root = 0;
    const void* send = nullptr;
    void* recv = nullptr;
    std::size_t bytes = 0;  ///< of a block: what one rank gives another
    bool in_place = false;
    void (*function)(void* context, const void* in, void* inout, std::uint64_t bytes) = nullptr;
    void* context = nullptr;
    std::uint32_t said_function = 0;  ///< see said_function.h
    bool commutes = true;
    std::shared_ptr<const void> keep;  ///< for as long as the call may run
  };
  /// Checks, and enqueues. Throws Error before anything is enqueued.
  void enqueue(const Call& call, Stream stream);

  /// Up to which sizes lines are the faster way, by a few calls of each kind (borders.cpp).
  void measure_borders(Bootstrap& bootstrap);

  void attach(Bootstrap& bootstrap, void* base, std::size_t bytes);
  void detach(Bootstrap& bootstrap, void* base);
  /// Something in this allocation.
  bool has_attached(const void* allocation);
  const std::string& name() const;

  struct Counts {
    std::uint64_t calls = 0, by_lines = 0, by_packs = 0, direct = 0, along_trees = 0, in_turns = 0, staged = 0,
                  copied = 0, between_nodes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t chosen = 0, chosen_direct = 0;  ///< where they ran: those enqueued, and of those that ran
  };
  Counts counts();
  std::uint64_t memory_bytes() const;
  bool is_broken() const;
  /// What stands for all calls so far, the same on all ranks; 0: some were captured, and graphs may order them anew.
  std::uint32_t fingerprint();
  /// The ranks have made different calls, and none has noticed.
  void tell_of_different_calls();
  /// Asleep, until all that was enqueued here, but for graphs, has run. False: the calls are broken.
  bool wait_for_all(const std::function<void()>& meanwhile = nullptr);
  /// Where calls are broken: others are told what this rank knows, as far as that takes no longer than a moment.
  void tell_others();
  std::unique_lock<std::mutex> held_if_idle(bool or_unseen) override;
  /// Nothing goes to other nodes from here on. `is_orderly`: nor comes anything.
  void close(bool is_orderly);

  int rank() const { return team_->rank(); }
  int size() const { return team_->size(); }
  std::uint32_t node_ranks() const { return prototype_.ranks(); }
  std::uint32_t sharers() const { return sharers_; }
  /// That a call may have; 0: it waits in memory operations.
  std::uint32_t blocks() const;
  Device& device() const { return device_; }

 private:
  struct Card;
  /// What must live as long as a call may run: graphs keep it, too.
  struct Memory;
  struct Attachment {
    void* own = nullptr;
    std::size_t bytes = 0;
    const void* allocation = nullptr;  ///< that it lies in
    std::vector<char*> mapped;         ///< by rank of the node; null: none, or not mapped by this one
    bool is_used = false;
  };

  static constexpr std::uint32_t most_blocks = most_parts;  ///< of a launch
  static constexpr std::uint64_t piece_unit = 4096;         ///< of what goes through memory of the library
  static std::uint64_t rounded_down(std::uint64_t n, std::uint64_t unit) { return n / unit * unit; }

  /// A call in a stream, which all of its launches know.
  struct InStream {
    Stream stream;
    std::uint64_t capture;  ///< 0: none
    std::uint64_t word;
    std::shared_ptr<const void> keep;

    bool is_captured() const { return capture != 0; }
  };

  void check(const Call& call) const;
  enum class Went { by_lines, by_packs, direct, along_tree, in_turns, staged, copied, as_chosen };
  /// `way`: of this call alone; automatic: as others.
  Went enqueue_on_node(const Call& call, const InStream& in, CollectiveWay way = CollectiveWay::automatic);
  float seconds_of(const Call& call, CollectiveWay way, OwnStream& stream);
  std::uint64_t border_of(CollectiveKind kind) const { return borders_[static_cast<std::size_t>(kind)]; }
  bool has_guards() const;
  CallRoom* room() const;
  bool stages() const;
  void share_staged_memory(Bootstrap& bootstrap);
  template <class Enqueue>
  void or_fail(Enqueue enqueue_it);
  void enqueue_guarded(const CollectiveLaunch& launch, const InStream& in);
  void enqueue_staged(const Collective& call, const InStream& in);
  void enqueue_copied(const Collective& call, bool in_place, const InStream& in);
  void enqueue_between_nodes(const Call& call, const InStream& in);
  CollectivePlaces choose_places(Bootstrap& bootstrap, const Settings& settings);
  std::uint32_t choose_pack_places(Bootstrap& bootstrap, const std::vector<std::uint64_t>& devices,
                                   std::uint32_t ranks);
  bool take_room(const std::vector<Card>& cards, Waits waits);
  void plant_trees(const std::vector<std::uint64_t>& devices);
  std::uint64_t place_of(const void* buffer, std::size_t bytes) const;
  // In choose_way.cpp:
  bool is_staged(const Collective& c, CollectiveWay forced) const;
  static bool is_copied(const Collective& c);
  static bool can_be_direct(const Collective& c);
  bool has_tree(const Collective& c) const;
  CollectiveWay if_possible(CollectiveWay forced, const Collective& c) const;
  void choose_way(CollectiveLaunch& launch, const Call& call, CollectiveWay forced) const;
  bool choose_tree(CollectiveLaunch& launch, const Call& call) const;
  void choose_lines(Collective& c, std::uint32_t blocks) const;
  bool has_shares(const Collective& c) const;
  bool choose_packs(Collective& c, std::uint32_t blocks) const;
  std::uint64_t piece_of(const Collective& c) const;
  void place_buffers(Collective& c, const Call& call, bool along_tree) const;
  std::uint32_t most_parts_of_lines(std::uint64_t words) const;
  std::uint32_t guarded_parts(const Collective& c) const;
  std::uint32_t direct_parts(const Collective& c, std::uint32_t blocks) const;
  WayCandidates candidates(const Collective& c) const;

  void unmap(Attachment& attachment) noexcept;
  /// What is to have run.
  struct Enqueued {
    std::uint64_t calls, exchanges;
    std::shared_ptr<StreamPoint> point;
  };
  bool have_run(const Enqueued& all);

  const std::shared_ptr<const Team> team_;
  Device& device_;
  const UnmapsLater unmaps_later_;  ///< outlives memory_
  const Ways ways_;
  std::uint64_t scratch_ = 0;
  std::uint32_t sharers_ = 1;       ///< ranks of this communicator on a processor
  std::uint32_t most_sharers_ = 1;  ///< with those of other communicators and windows that ranks know of
  std::uint32_t blocks_ = 1;        ///< of a call where kernels wait: all of its ranks' find room (Device's CallRoom)
  bool lacks_room_ = false;         ///< on some rank: calls wait in memory operations, unless kernels are asked for
  bool share_in_turns_ = false;     ///< some ranks a GPU, without MPS
  bool stages_in_turns_ = false;    ///< likewise, and the services have cores
  Device::PackForm pack_form_;
  std::shared_ptr<Memory> memory_;
  Collective prototype_{};
  std::vector<TreePlace> trees_;  ///< this rank's place, by root; empty: no way along trees is forced
  std::array<std::uint64_t, collective_kinds> borders_;  ///< up to which size calls of a kind go by lines
  std::mutex mutex_;                                     ///< what follows; and calls are enqueued in one order
  Counts counts_;
  std::uint64_t enqueued_ = 0, exchanges_ = 0;   ///< on the node, and between nodes; not into graphs
  std::uint64_t last_word_ = 0, all_words_ = 0;  ///< of calls, not of graphs
  bool was_captured_ = false;
  /// Behind the last call that was enqueued, where graphs may run calls, too, which counters do not tell apart.
  std::shared_ptr<StreamPoint> last_point_;
  std::array<Attachment, most_attached> attachments_;
  std::optional<AskedBeforeUnmapping> asked_;
};

}  // namespace mpix
