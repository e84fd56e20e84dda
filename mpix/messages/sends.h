// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mpix/messages/requests.h"
#include "mpix/messages/world.h"
#include "net/network.h"

namespace mpix {

/// A transfer over messages of MPI. Goes back to its pool when its handle is gone and none of its messages is under
/// way.
struct MessageBuffer {
  int peer = 0;
  std::vector<NetworkWrite> writes;
  NetworkSignal signal{};
  bool has_signal = false;
  std::atomic<int> references{0};
  // How many messages are under way, and one more until it has been started; and those of them that read the sources.
  std::atomic<int> messages{0}, reads{0};
  std::string failure;  ///< guarded as MessageSends is
};

class MessageBufferPool {
 public:
  /// For one holder.
  MessageBuffer* take();
  void let_go(MessageBuffer* outgoing);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<MessageBuffer>> all_;
  std::vector<MessageBuffer*> free_;
};

/// The messages of this process that are on their way. One thread at a time.
///
/// A transfer that is a signal only, as a post, is held for a moment, for the next transfer to the same peer to carry
/// it: as a rule that is an epoch's data, and a neighbour takes one message an epoch, as it does with point-to-point.
/// The order of transfers stays. Nobody may have to wait for a held one: it goes when a thread that waits looks for the
/// second time since, or when it has been held too long, which the agent finds. Where nothing came to carry it, the
/// next few for this peer are not held.
class MessageSends {
 public:
  MessageSends(const MessageWorld& world, MessageRequests& requests, MessageBufferPool& pool)
      : world_(world),
        requests_(requests),
        pool_(pool),
        holds_to_skip_(static_cast<std::size_t>(world.size())),
        packets_to_(static_cast<std::size_t>(world.size())) {}

  /// Everything of a transfer, in packets and large data, in the order in which the peer shall apply it. What goes
  /// wrong is its failure.
  void start(MessageBuffer& outgoing);
  enum class Who { waits, agent };
  /// Send what has been held too long for its caller.
  void send_late(Who who);
  void send_all_held();
  /// What has gone.
  void note(const MessageRequests::Result& tested);
  /// Nothing is under way, or held.
  bool empty() const { return sendings_.empty() && held_.empty(); }
  /// How many packets have been sent to each rank, ever.
  const std::vector<std::uint64_t>& packets_to() const { return packets_to_; }

 private:
  using Buffer = std::unique_ptr<char[]>;
  struct Sending {
    MessageBuffer* of;  ///< null: it is over
    Buffer packet;      ///< null: large data
  };

  struct Held {
    MessageBuffer* outgoing;
    bool looked_at;
    std::chrono::steady_clock::time_point since;
  };

  bool may_hold(const MessageBuffer& outgoing);
  MessageBuffer* take_held(int peer);
  void send_held(const Held& held);
  void send(MessageBuffer& outgoing, const NetworkSignal* in_front);
  void handed_over(MessageBuffer& outgoing);
  Buffer take_packet();
  bool send_message(MessageBuffer& outgoing, const char* from, std::size_t bytes, int tag, Buffer packet);
  bool send_large(MessageBuffer& outgoing, const NetworkWrite& write);
  void fail_all(int code);
  void end(Sending& sending);

  const MessageWorld& world_;
  MessageRequests& requests_;
  MessageBufferPool& pool_;
  std::vector<Held> held_;                    ///< few; one for a peer
  std::vector<std::uint32_t> holds_to_skip_;  ///< by rank
  std::vector<Buffer> free_packets_;
  std::vector<Sending> sendings_;  ///< in the order of their requests
  std::vector<std::uint64_t> packets_to_;
};

}  // namespace mpix
