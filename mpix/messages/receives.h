// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mpix/messages/requests.h"
#include "mpix/messages/world.h"
#include "net/exposed_memory.h"
#include "net/packet.h"

namespace mpix {

/// What comes to this process, and where it goes. One thread at a time.
///
/// Receives for packets of anybody are posted ahead, a few, and more where more come at once: MPI looks at each of them
/// each time (of 32 that took a tenth of the time of small exchanges). They are looked at in the order in which they
/// were posted. That is also the order of each origin's packets, as messages of one pair are not to overtake. A packet
/// is applied record by record; at a signal it stops while large data in front of it are missing, and the origin's next
/// packets queue up behind it. Those of others go on. Receives for large data are posted as soon as their packet has
/// come, also where it queues: so data of several transfers are under way at once.
class MessageReceives {
 public:
  MessageReceives(const MessageWorld& world, MessageRequests& requests);
  ~MessageReceives() = default;
  MessageReceives(const MessageReceives&) = delete;
  MessageReceives& operator=(const MessageReceives&) = delete;

  /// Post the first receives, where that was not done before. Throws Error.
  void begin();

  std::uint64_t expose(void* base, std::size_t bytes) { return exposed_.add(base, bytes); }
  /// What comes for it from now on is dropped. True: MPI may still store large data there.
  bool hide(std::uint64_t key);

  /// Take what has come.
  void take(const MessageRequests::Result& tested);
  /// Something has come in part.
  bool is_busy() const { return !blocked_.empty(); }
  /// Packets of others that have come, ever.
  std::uint64_t packets() const { return packets_; }
  /// Not empty: nothing more is received, and why.
  const std::string& failure() const { return failure_; }
  void fail(const std::string& text);
  /// Take back the receives that nothing has come for.
  void cancel();

 private:
  using Buffer = std::unique_ptr<char[]>;
  /// A place for a packet, and what its packet is waiting for.
  struct Place {
    std::size_t number = 0;  ///< of its request
    Buffer packet;
    bool has_come = false;
    std::size_t bytes = 0;
    int source = -1;
    PacketReader reader;
    PacketRecord signal{};  ///< read, and not applied
    bool has_signal = false;
    std::vector<MPI_Request> large;      ///< in the order of the records
    std::vector<std::uint64_t> keys;     ///< of the memory where `large` go
    std::vector<std::size_t> large_end;  ///< by record: so many of `large` are its own, or in front of it
    std::size_t large_records = 0;       ///< applied
    std::size_t large_done = 0;          ///< so many of `large` have come
    std::vector<Buffer> nowhere;         ///< for large data that are dropped
    bool is_damaged = false;             ///< some of its large data have not come
  };
  using Places = std::list<Place>;

  // What MPI says of it.
  int add_place();
  int receive(Place& place);
  void post(Place& place);
  void note(const MessageRequests::Ended& ended);
  void accept();
  bool apply(Place& place);
  void apply_signal(const Place& place, const PacketRecord& record);
  void expect_large(Place& place);
  void receive_large(Place& place, const PacketRecord& record);
  static std::size_t large_in_front(const Place& place);
  bool large_have_come(Place& place);
  void continue_blocked();
  void drop(const Place& place, const PacketRecord& record);

  const MessageWorld& world_;
  MessageRequests& requests_;
  std::size_t most_;            ///< places; fewer where MPI has no more
  std::vector<Place*> places_;  ///< by number
  ExposedMemory exposed_;
  Places posted_;                  ///< the oldest first
  std::map<int, Places> blocked_;  ///< by origin: a packet that waits for large data, then those behind it
  std::vector<MPI_Status> statuses_;
  std::uint64_t packets_ = 0;
  bool has_warned_ = false;
  std::string failure_;
};

}  // namespace mpix
