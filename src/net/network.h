// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mpix {

/// Where a process can be reached: bytes that travel.
struct NetworkAddress {
  std::uint32_t length = 0;
  unsigned char bytes[60] = {};
};

/// Memory of another process that may be written to, as that process described it: bytes that travel.
struct RemoteMemory {
  std::uint64_t key = 0;
  std::uint64_t base = 0;
};

/// Memory known to the network for as long as this lives.
class Registration {
 public:
  virtual ~Registration() = default;
  virtual RemoteMemory remote() const = 0;
};

/// Places of equal size in memory of this process that peers send messages to: one each time that a place was opened.
/// It says nothing of other transfers, nor they of it, and nobody is told that it came: it tells by itself.
class Inlet {
 public:
  virtual ~Inlet() = default;
  /// What peers call place 0; place i is i more. Never 0, and never the name of another.
  virtual std::uint64_t name() const = 0;
  /// One message may be sent there. False: not now, for there is no room; ask again.
  virtual bool open(std::size_t place) = 0;
  /// No message arrives any more. False: one may be half-way in: the memory has to stay for good.
  virtual bool close() = 0;
};

/// A peer, as Network::connect() calls it.
using Connection = std::uint64_t;

struct NetworkWrite {
  const void* source;
  const Registration* registered;  ///< of the source; null where the network needs none
  std::size_t bytes;
  RemoteMemory memory;
  std::uint64_t offset;
  std::uint64_t place = 0;  ///< where not 0: it is sent there (Inlet), and not written to `memory`
};

/// Changes one aligned word of 8 bytes at the peer, as one store that its CPU can poll for.
struct NetworkSignal {
  enum class Kind { add, set };
  Kind kind;
  std::uint64_t value;
  RemoteMemory memory;
  std::uint64_t offset;
};

/// Writes to one peer and then a signal, queued ahead of time. Nothing moves before start(); what follows needs
/// no further call. The peer makes no call at all: it polls the word.
///
/// The order: who sees the signal (acquire) sees the data of all writes, and of all transfers to that peer that were
/// finished when this one was started. Between transfers that are under way at the same time there is none.
/// One thread at a time calls a transfer; different transfers may be called at the same time.
class Transfer {
 public:
  /// At any time. What was started goes on; the sources must stay until it is delivered.
  virtual ~Transfer() = default;
  /// Once. Everything the caller did before is visible to what reads the sources.
  virtual void start() = 0;
  /// The sources of the writes may change.
  virtual bool delivered() = 0;
  /// Nothing of the transfer is queued here any more. (That it is at the peer only the peer's answer tells. For what is
  /// sent to places nobody waits for one.)
  virtual bool finished() = 0;
  /// Empty, or what went wrong: then it is never finished.
  virtual std::string failure() = 0;
  /// For one that is given up: have what is not under way yet forgotten. True: nothing of it is queued any more.
  virtual bool cancel() { return false; }
};

/// How much a network can have queued.
struct Capacity {
  static constexpr std::size_t any = SIZE_MAX;
  std::size_t operations = any;  ///< each write and each signal is one
  std::size_t transfers = any;
};

/// A way to ranks of other nodes: the engine's only view of it. Implemented over libfabric's triggered
/// operations (net/fabric) and over messages of MPI (mpix/messages). One for each process; all calls from any thread.
/// Functions throw Error.
class Network {
 public:
  virtual ~Network() = default;
  virtual std::string name() const = 0;

  /// The process comes to its first epoch with a peer: until then it queues nothing, and what peers send may wait. What
  /// costs something all the time, as a thread, starts here. Again it does nothing; where it throws, again.
  virtual void begin() {}

  virtual NetworkAddress address() const = 0;
  /// The peer of this address; asking again gives the same.
  virtual Connection connect(const NetworkAddress& peer) = 0;

  /// Memory that peers write into.
  virtual std::shared_ptr<const Registration> expose(void* base, std::size_t bytes) = 0;
  /// Memory that writes read from; null where the network needs no registration of it.
  virtual std::shared_ptr<const Registration> register_source(const void* base, std::size_t bytes) = 0;

  /// From how many bytes on a write may read, and land in, memory that only a device reaches: no CPU copies it on its
  /// way. SIZE_MAX: none may.
  virtual std::size_t least_device_write() const { return SIZE_MAX; }

  /// For networks with messages that cost less than writes; else null. The memory stays until it is closed.
  virtual std::unique_ptr<Inlet> open_inlet(char* /*base*/, std::size_t /*places*/, std::size_t /*bytes of each*/) {
    return nullptr;
  }

  /// Whether read_still() finds an aligned word of 8 bytes that a write changes with its last byte as written only when
  /// the whole word is, for any order among words, and none is written twice: then a message needs no signal.
  /// Little-endian machines only.
  virtual bool keeps_words_whole() const { return false; }
  /// Run `read` while no write is half-way. False, and it did not run: another thread lets some arrive just now.
  virtual bool read_still(const std::function<void()>& read) {
    read();
    return true;
  }

  /// What may be queued at a time: the caller keeps to it.
  virtual Capacity capacity() const = 0;
  /// Queue writes, and the signal where there is one. Copies its arguments, not the data.
  virtual std::unique_ptr<Transfer> queue(Connection peer, const NetworkWrite* writes, std::size_t count,
                                          const NetworkSignal* signal) = 0;

  /// Called now and then by threads that wait for anything of this network, and at the end of windows. It does not
  /// throw: what goes wrong is a failure of transfers, or of the network.
  virtual void progress() = 0;

  /// Whether something is half-way in or out that each progress() takes a little further.
  virtual bool is_moving() const { return false; }

  /// Empty, or why nothing comes from anybody any more.
  virtual std::string failure() { return ""; }

  /// Ask the peer for a sign of life, where that is possible: what takes no part of the capacity, and leaves this word
  /// of 8 bytes as it is. Empty, or why it cannot be reached, as far as this question, or one before, has told so far.
  virtual std::string probe(Connection, const RemoteMemory&, std::uint64_t /*offset*/) { return ""; }
};

}  // namespace mpix
