// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <string>

#include "base/service.h"
#include "device/device.h"
#include "net/shipment.h"

namespace mpix {

/// What a process has for each process of another node: what that tells it, by its NIC alone.
struct alignas(64) FarDoorstep {
  RemoteMemory ring;    ///< where messages for that process may be written
  std::uint64_t told;   ///< 1: `ring` is there
  std::uint64_t asked;  ///< 1: that process has messages, and wants to know where
  std::uint64_t freed;  ///< of what this process has sent: bytes that are dealt with
};

/// A message, in front of its data. Messages begin at multiples of 64 bytes.
struct alignas(64) FarMessage {
  std::uint64_t number;  ///< position / 64 + 1; 0: it is not there. Written last
  std::uint32_t kind;
  std::uint32_t bytes;  ///< of data
  std::uint64_t word[6];
};
static_assert(sizeof(FarMessage) == 64 && sizeof(FarDoorstep) == 64, "they are written from another node");

/// The rings of a link. What is under way keeps them, too.
struct FarRings {
  std::shared_ptr<char> out, in;
  std::shared_ptr<RemoteMemory> told;  ///< in front of `in`, as memory that the network can read
  std::shared_ptr<const Registration> out_source, in_exposed, in_source;
};

/// A process of another node: a stream of messages to it, and one from it. Each lies in a ring, which has the same
/// place at both ends for the same position of the stream. Rings are made when there is something to send.
/// tests/model/far.pml has it.
///
/// | word          | written by                                   | read by       | order |
/// |---------------|----------------------------------------------|---------------|-------|
/// | ring, told    | the receiver's NIC, when it was asked        | the sender    | a write, and the signal |
/// | a message     | the sender's NIC: several in one transfer, the number of the first as its signal | the receiver, at the position that is next | who sees the signal sees the transfer; transfers may overtake each other, positions tell |
/// | freed         | the receiver's NIC                           | the sender    | its messages up to there have been dealt with, and their numbers are 0 again |
///
/// One thread at a time, and that with the courier's lock.
class FarLink {
 public:
  static constexpr std::uint64_t ring_bytes = 1u << 20;
  /// One of its messages, at either end.
  struct Piece {
    char* at;
    std::uint64_t bytes;
  };
  /// A range of a ring, which may lie at both of its ends.
  struct Range {
    Piece piece[2];
  };

  FarLink(int process, std::shared_ptr<Recipient> to, std::shared_ptr<FarRings> rings, Device& device,
          OperationBudget& budget, const void* owner, FarDoorstep& own, RemoteMemory doorsteps, std::uint64_t offset);
  FarLink(const FarLink&) = delete;
  FarLink& operator=(const FarLink&) = delete;

  int process() const { return process_; }

  // ---- To send.
  /// Whether a message with so much data may be appended now; asks for a ring where there is none.
  bool has_room(std::uint64_t bytes);
  /// Returns where its data belong.
  std::uint64_t append(FarMessage message);
  Range out(std::uint64_t position, std::uint64_t bytes) const { return range(rings_->out.get(), position, bytes); }
  void copy_in(std::uint64_t position, const char* from, std::uint64_t bytes) const;
  /// The last message's data are not there yet: it is not sent, nor what follows, before it is let go.
  void hold(std::uint64_t position) { held_.insert(position); }
  void let_go(std::uint64_t position) { held_.erase(position); }
  std::uint64_t sent_so_far() const { return appended_; }
  /// What was appended before this position has been dealt with. The other side tells in time to go on, and when asked.
  std::uint64_t dealt_with() const;
  /// The last message asks.
  void note_question() { asked_until_ = appended_; }
  bool is_asking() const { return dealt_with() < asked_until_; }

  // ---- To receive.
  /// The next message, if it has come.
  const FarMessage* next() const;
  /// Its data; then the next one is next.
  std::uint64_t begin_next();
  Range in(std::uint64_t position, std::uint64_t bytes) const { return range(rings_->in.get(), position, bytes); }
  /// Everything before this position, which is the end of a message, has been dealt with.
  void free_until(std::uint64_t position);
  void answer_soon() { answers_ = true; }

  // ---- By turns.
  /// Sends what there is, and ends what is over. False: nothing of it moved.
  bool serve();
  void leave_lines();
  /// Empty, or why something will not arrive.
  std::string failure() const;
  /// Since when something has been under way; nothing: nothing is.
  bool oldest(Poller::Clock::time_point* since) const;
  bool is_quiet() const { return sending_.empty() && signals_.empty() && freed_ == told_freed_; }

 private:
  struct Sending {
    std::shared_ptr<Shipment> shipment;
    std::uint64_t end;
  };
  static Range range(char* ring, std::uint64_t position, std::uint64_t bytes);
  std::shared_ptr<Shipment> dispatch(Shipment::Content content, OperationBudget::Turn& turn);
  bool end_shipments();
  bool ask();
  bool tell();
  bool send();
  bool tell_freed();
  NetworkSignal signal(std::size_t member, std::uint64_t value) const {
    return {NetworkSignal::Kind::set, value, doorsteps_, offset_ + member};
  }

  const int process_;
  const std::shared_ptr<Recipient> to_;
  const std::shared_ptr<FarRings> rings_;
  Device& device_;
  OperationBudget& budget_;
  const void* const owner_;
  FarDoorstep& own_;
  const RemoteMemory doorsteps_;
  const std::uint64_t offset_;  ///< of this process's, there

  bool wants_ring_ = false, has_asked_ = false;
  std::uint64_t appended_ = 0, sent_ = 0, left_ = 0;  ///< left: the network needs nothing before that
  std::deque<std::uint64_t> ends_;                    ///< of messages that were appended, and not sent
  std::set<std::uint64_t> held_;                      ///< beginnings
  std::uint64_t asked_until_ = 0;
  std::list<Sending> sending_;

  bool has_told_ = false, answers_ = false;
  std::uint64_t read_ = 0, freed_ = 0, told_freed_ = 0;
  std::list<std::shared_ptr<Shipment>> signals_;
  OperationBudget::Turn send_turn_, signal_turn_;
};

}  // namespace mpix
