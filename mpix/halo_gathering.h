// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "halo_ends.h"
#include "mpi_library.h"
#include "mpix.h"
#include "notify/halo.h"

namespace mpix {

/// Short messages to one rank, in one of MPI's: those that are packed by the time of a look, as soon as a look finds no
/// more of them, or all are. None waits for one that is not packed, so the program may send and receive them in any
/// order; and those of one cargo stay in order, as MPI keeps messages of one tag.
///
/// | in a message of MPI | |
/// |---------------------|-|
/// | count               | of those in it |
/// | numbers             | of the cargo there, each once |
/// | contents            | each from a multiple of `unit` on |
///
/// What has come before the receive of its cargo has begun is kept, as MPI would. One thread at a time.
class HaloGathering {
 public:
  using Over = HaloTransport::Over;
  HaloGathering(MPI_Comm comm, const MPIX_Halo_message* messages, const Halo& halo, const HaloTags& tags);
  ~HaloGathering();
  HaloGathering(const HaloGathering&) = delete;
  HaloGathering& operator=(const HaloGathering&) = delete;

  bool has_send(std::size_t cargo) const { return send_to_[cargo] != none; }
  bool has_receive(std::size_t cargo) const { return receive_from_[cargo] != none; }
  void start_send(std::uint32_t cargo, std::uint32_t half);
  void start_receive(std::uint32_t cargo, std::uint32_t half);
  /// Appends what is over since the last look.
  void look(bool only_sends, std::vector<Over>* over);
  /// Nothing is received any more. Appends what is still being sent.
  void cancel(std::vector<MPI_Request*>* sends) noexcept;
  /// Of MPI, so far.
  std::uint64_t sends() const noexcept { return sends_; }

 private:
  static constexpr std::size_t none = SIZE_MAX;
  /// Messages of MPI begin and receive at such addresses, and each content in one.
  static constexpr std::size_t unit = 16;

  struct Sending {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<char> text;
    std::vector<Over> contents;
  };
  struct Destination {
    int peer, tag;
    std::size_t cargo = 0;        ///< that goes there
    std::vector<Over> packed;     ///< and is in no message yet
    std::size_t seen_packed = 0;  ///< at the last look
    std::deque<Sending> under_way;
    std::vector<std::vector<char>> spare;  ///< buffers
  };
  struct Source {
    int peer, tag;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> cargo;  ///< that comes from there: its number there, and here
    std::vector<char> text;
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_receiving = false;
  };
  struct Receiving {
    std::deque<std::uint32_t> wanted;    ///< halves
    std::deque<std::vector<char>> kept;  ///< empty, or nothing is wanted
  };

  static std::size_t rounded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }
  static std::size_t head_bytes(std::size_t count) { return rounded((1 + count) * sizeof(std::uint32_t)); }
  void send(Destination& to);
  void start(Source& from);
  void take(Source& from, std::size_t bytes);
  void receive(std::uint32_t cargo, const char* content);

  const MPI_Comm comm_;
  const std::vector<HaloCargo> cargo_;
  const std::vector<HaloBufferPair> buffers_;
  std::vector<Destination> destinations_;
  std::vector<Source> sources_;
  std::vector<std::size_t> send_to_, receive_from_;  ///< by cargo: which of these, or none
  std::vector<bool> is_packed_;                      ///< by cargo: in a destination's `packed`
  std::vector<Receiving> receiving_;                 ///< by cargo
  std::vector<Over> received_;
  std::uint64_t sends_ = 0;
};

}  // namespace mpix
