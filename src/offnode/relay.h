// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/service.h"
#include "base/stats.h"
#include "device/device.h"
#include "net/shipment.h"
#include "offnode/relay_peers.h"

namespace mpix {

/// Carries one window's epochs to ranks of other nodes, for a device that cannot do so itself: what its kernels write
/// for them into pinned memory goes out, and posts that come in are passed on. The words are in relay_peers.h.
///
/// Of each peer it knows what it has taken so far, and takes the next when it is there:
///
/// | to go      | when                                           | as |
/// |------------|------------------------------------------------|----|
/// | posts      | there.posted is more than was taken            | a signal that adds the difference; the first ones with a write of what they tell |
/// | epoch e    | its task is there, e - 1 is taken, the peer has posted e - 1; or e, where data go direct, or apart and there is landing memory | a write of entries and data; or one of the entries, and one of the first chunk; and one of each put that goes direct; `arrival` as the signal |
/// | a chunk    | it is packed, and the one before is taken      | a write, and its flag at the target as the signal |
/// | an ask     | the same, but there is not, and none is asked for | a write of who asks, and a signal that adds what is missing |
/// | an answer  | words.asked is more than was given, and the answer before is over | a write of the place, and its size as the signal; or `refused` alone, and the window is broken |
///
/// Each takes its part of the budget when it is ready to go. Where there is none it asks again in the next round, and
/// keeps its turn meanwhile.
class Relay final : public Poller {
 public:
  Relay(std::shared_ptr<RelayPeers> peers, const void* window, StallHandler& stall,
        std::shared_ptr<const HostWords> words);
  ~Relay() override { stop(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Before an epoch with these ranks, relayed or not; the first one with a relayed rank begins.
  void name(const std::vector<int>& ranks, Neighbourhood& neighbours);
  void begin();
  /// Before an epoch that these ranks, relayed or not, are origins of: landing memory for what most epochs put, where
  /// the service cannot well give it when it is asked for, as a call of the device waits for a launch that is being
  /// made: the kernels that this waits for may wait for this very memory.
  void make_room_for(const std::vector<int>& origins);
  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;
  /// Something has been enqueued.
  void wake() { wake_service(*this); }
  /// No look is under way any more, and none comes.
  void stop();

  /// Whether all that kernels have written so far has arrived, and all posts for it have come. False as well when the
  /// window breaks meanwhile. Calls the device.
  bool has_run();
  /// Which posts have not come.
  std::string unposted() const;
  /// Adds to the window's counters.
  void add_to(Stats& stats) const;
  RelayPeers& peers() { return *peers_; }
  std::shared_ptr<const void> memory() const { return peers_; }

 private:
  struct Pair {
    Pair(RelayPeer& its_peer, std::shared_ptr<Recipient> recipient) : peer(&its_peer), to(std::move(recipient)) {}
    RelayPeer* peer;
    std::shared_ptr<Recipient> to;
    std::uint64_t landed = 0;    ///< posts that have come
    std::uint64_t posts = 0;     ///< taken
    std::uint64_t sends = 0;     ///< taken, whole
    std::uint64_t finished = 0;  ///< epochs that are over, and all before them
    std::uint64_t asked = 0;     ///< bytes of landing memory at the peer
    std::uint64_t given = 0;     ///< and here
    bool room = false;           ///< was made for it; the calls' alone
    Clock::time_point asked_since{};
    std::shared_ptr<Shipment> answer;            ///< the last one
    const Outgoing::Message* message = nullptr;  ///< of the epoch sends + 1, once its task is there
    Clock::time_point message_since{};
    double reported = 0;      ///< that it waits for its post: after so many seconds
    std::uint32_t chunk = 0;  ///< its next one
    OperationBudget::Turn posts_turn, sends_turn, answers_turn;
    std::uint64_t seen = 0;                                ///< of what the peer does, and
    Clock::time_point seen_since{};                        ///< since when that is all
    std::list<std::shared_ptr<Shipment>> posts_under_way;  ///< the oldest first; and answers
    struct Send {
      std::shared_ptr<Shipment> shipment;
      bool is_last;  ///< of its epoch
    };
    std::list<Send> sends_under_way;

    bool awaits_answer() const { return asked > load_acquire(&peer->words->landing.bytes); }
    /// Of the epoch sends + 1, for its message: see wire/relayed.h.
    std::uint64_t post_needed() const {
      const bool needs_own = message->planned.chunk_shift != 0 || !message->planned.direct.empty();
      return needs_own || sends == 0 ? sends + 1 : sends + 2 - inboxes;
    }
    bool awaits_post() const { return message && landed < post_needed(); }
    std::uint64_t last_task() const { return mpix::last_task(peer->words->out.lane()); }
  };
  void count_posts(Pair& pair) const;

  bool serve_all();
  bool serve(Pair& pair);
  bool take_post(Pair& pair);
  bool take_send(Pair& pair);
  bool has_landing(Pair& pair);
  bool take_ask(Pair& pair);
  bool end_shipments(Pair& pair);
  bool take_task(Pair& pair) const;
  Shipment::Content content_of_message(const Pair& pair) const;
  Shipment::Content content_of_chunk(const Pair& pair) const;
  std::shared_ptr<Shipment> dispatch(Shipment::Content content, OperationBudget::Turn& turn);
  void leave_lines();
  bool is_released() const;
  void look_for_trouble();
  std::string look_for_dead();
  void look_for_posts();

  const std::shared_ptr<RelayPeers> peers_;
  const void* const window_;
  StallHandler& stall_;
  const std::shared_ptr<const HostWords> words_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::list<Pair> pairs_;
  bool listed_ = false;
  unsigned looks_ = 0;
  BackOff back_off_;
  std::optional<Clock::time_point> full_since_;  ///< the network has had no room for what the budget allows
  Clock::time_point reported_{};
  Stats effect_;
};

}  // namespace mpix
