// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "mpix/messages/receives.h"
#include "mpix/messages/requests.h"
#include "mpix/messages/sends.h"
#include "mpix/messages/world.h"
#include "net/network.h"
#include "net/progress_agent.h"

namespace mpix {

/// Transfers as messages of MPI. The origin packs writes and signals into packets (net/packet.h); each is one message,
/// and what is too large for a few packets follows in messages of its own, from the memory of the program into that of
/// the target. The target has receives posted ahead, and applies what comes; a thread that waits for the network does
/// so, or the agent.
///
/// The order, from the origin's data to the thread that polls the signal at the target:
///
/// | step                        | by                                | why it comes after the one before |
/// |-----------------------------|-----------------------------------|-----------------------------------|
/// | data read                   | start()                           | the thread that calls start() has written them, or seen them written |
/// | packet, then its large data | start(), under mutex_             | messages of a pair with one tag are received in the order of their sends; packets and data have a tag each |
/// | packet found received       | the holder of mutex_: oldest first      | receives are posted, and looked at, in one order, so packets of one origin come in theirs |
/// | records applied             | the same; one packet of an origin at a time | a signal waits until the large data in front of it are here, and the origin's next packets behind it |
/// | signal stored (release)     | the same                          | the data were stored by this thread, or by MPI before it said that they are there |
/// | signal seen (acquire)       | a stream                          | |
///
/// So transfers to one peer take effect in the order of their starts, and `finished` needs no answer of the peer: MPI
/// has taken all of it, and what is started later comes behind. A packet that is late, to memory that is not exposed
/// any more, is dropped: the last posts of a window may be, as nobody waits for them.
class MessageEngine final : public Progressing, public std::enable_shared_from_this<MessageEngine> {
 public:
  explicit MessageEngine(std::shared_ptr<MessageWorld> world);

  /// Post the receives. Until then MPI keeps what comes: as a rule posts, and never more than a few small packets of a
  /// peer, as what comes next needs this process's posts. Again it does nothing. Throws Error.
  void receive();

  std::shared_ptr<const Registration> expose(void* base, std::size_t bytes);
  std::unique_ptr<Transfer> queue(int peer, const NetworkWrite* writes, std::size_t count, const NetworkSignal* signal);

  /// By the agent.
  void progress() override { look(MessageSends::Who::agent); }
  /// By a thread that waits.
  void progress_for_waiter() { look(MessageSends::Who::waits); }
  std::uint64_t looks() const override { return looks_.load(std::memory_order_relaxed); }
  bool is_busy() const override;
  /// Not empty: nothing is received any more, and why.
  std::string failure() const;

  // For MPI_Finalize:
  /// Start nothing more. How many packets have gone to each rank.
  std::vector<std::uint64_t> stop_sending();
  /// Whether so many packets have come, and nothing is under way any more.
  bool has_drained(std::uint64_t packets) const;
  /// No call of MPI from here on.
  void close();

 private:
  class MessageTransfer;
  class ExposedRegistration;
  using Hold = std::lock_guard<std::mutex>;

  void look(MessageSends::Who who);
  void test();
  void start(MessageBuffer& outgoing);
  std::string failure_of(const MessageBuffer& outgoing) const;
  void hide(std::uint64_t key) noexcept;

  const std::shared_ptr<MessageWorld> world_;
  std::atomic<std::uint64_t> looks_{0};
  MessageBufferPool pool_;
  mutable std::mutex mutex_;  ///< guards what follows
  MessageRequests requests_;
  MessageSends sends_;
  MessageReceives receives_;
  bool stopped_ = false, closed_ = false;
};

}  // namespace mpix
