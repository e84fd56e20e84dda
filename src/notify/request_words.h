// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "mpix_device/requests.h"

namespace mpix {

/// The words of device requests: a place for each, in blocks that are never given back before the end, so that a kernel
/// that still has a request which was freed neither faults nor waits. include/mpix_device/requests.h says what they
/// are.
///
/// A place is used again with numbers that go on.
class RequestWords {
 public:
  static constexpr std::size_t block_places = 1024;

  RequestWords(Device& device, const dev::ChannelHooks* hooks);
  /// No kernel uses them any more.
  ~RequestWords();
  RequestWords(const RequestWords&) = delete;
  RequestWords& operator=(const RequestWords&) = delete;

  std::size_t places() const { return blocks_.size() * block_places; }
  /// One block more.
  void grow();

  /// What kernels get.
  MPIX_Drequest give_out(std::size_t place, std::uint32_t partitions, bool sends);
  void take_back(std::size_t place);
  /// `request` is what was given out last for its place, and not taken back.
  bool is_current(const MPIX_Drequest& request) const;

  std::uint64_t* up(std::size_t place) const { return words_of(place) + place % block_places; }
  std::uint64_t* note(std::size_t place) const { return words_of(place) + block_places + place % block_places; }
  std::uint64_t* down(std::size_t place) const {
    return words_of(place) + 2 * block_places + place % block_places * dev::words_apart;
  }
  std::uint64_t* partition(std::size_t place, std::size_t which) const {
    const Partitions& own = partitions_[place];
    return reinterpret_cast<std::uint64_t*>(own.words.get()) + which * own.apart;
  }
  dev::ChannelHost* host() const { return reinterpret_cast<dev::ChannelHost*>(host_.get()); }

 private:
  struct Block {
    std::shared_ptr<char> words;
    dev::RequestState* state;
  };
  struct Partitions {
    std::shared_ptr<char> words;
    std::size_t room = 0;  ///< words
    std::uint32_t apart = 1;
  };

  std::uint64_t* words_of(std::size_t place) const {
    return reinterpret_cast<std::uint64_t*>(blocks_[place / block_places].words.get());
  }
  dev::RequestState* state_of(std::size_t place) const {
    return blocks_[place / block_places].state + place % block_places;
  }

  Device& device_;
  const dev::ChannelHooks* const hooks_;
  const std::shared_ptr<char> host_;
  std::vector<Block> blocks_;
  std::vector<Partitions> partitions_;      ///< by place
  std::vector<std::uint64_t> generations_;  ///< by place; 0: not given out
  std::uint64_t last_generation_ = 0;
};

}  // namespace mpix
