// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "device/gpu/arguments.h"
#include "wire/program.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// What a thread has of a usual put in packs: two words of each of its group's packs. Those of a warp follow each
/// other, and the next of a group is as many further as a warp has groups: few instructions tell where. A kernel pays
/// for each one that it fetches.
class FewPacks {
 public:
  /// `each`: packs for a group; no put has more in all.
  __device__ FewPacks(Workers workers, std::uint32_t each)
      : each_(each),
        lane_(workers.index % Pack::lanes),
        first_(workers.index / threads * apart * each + workers.index / Pack::lanes % apart) {}
  __device__ bool has_number() const { return lane_ == Pack::lanes - 1; }

  /// Words of a put of so many.
  __device__ void load(const unsigned long long* source, std::uint32_t words, std::uint64_t* own) const {
    const unsigned long long* const from = source + first_word();
    const int left = words_left(words), left_of_second = has_number() ? 0 : left - 1;
    MPIX_UNROLL
    for (int k = 0; k < static_cast<int>(most_each); ++k) {
      if (k >= static_cast<int>(each_)) break;
      own[2 * k] = own[2 * k + 1] = 0;
      if (left > stride * k) own[2 * k] = load_once(from + stride * k);
      if (left_of_second > stride * k) own[2 * k + 1] = load_once(from + stride * k + 1);
    }
  }
  /// The number comes here, as the loads shall not wait for what it is.
  __device__ void send(Pack* packs, std::uint32_t count, std::uint64_t number, std::uint64_t* own) const {
    std::uint64_t* const to = packs[first_].word + 2 * lane_;
    const int here = packs_left(count);
    gpu_converge_warp();
    MPIX_UNROLL
    for (int k = 0; k < static_cast<int>(most_each); ++k) {
      if (k >= static_cast<int>(each_)) break;
      if (has_number()) own[2 * k + 1] = number;
      if (apart * k < here) gpu_store_two(to + 16 * apart * k, own + 2 * k);
    }
  }

  /// `most`: packs that there may be.
  __device__ void look(const Pack* packs, std::uint32_t most, std::uint64_t* own) const {
    const std::uint64_t* const from = packs[first_].word + 2 * lane_;
    const int here = packs_left(most);
    MPIX_UNROLL
    for (int k = 0; k < static_cast<int>(most_each); ++k) {
      if (k >= static_cast<int>(each_)) break;
      if (apart * k < here) gpu_load_two(from + 16 * apart * k, own + 2 * k);
    }
  }
  /// Whether all of a warp have theirs.
  __device__ bool are_there(const std::uint64_t* own, std::uint32_t count, std::uint64_t number) const {
    const int here = has_number() ? packs_left(count) : 0;
    std::uint64_t differ = 0;
    MPIX_UNROLL
    for (int k = 0; k < static_cast<int>(most_each); ++k) {
      if (k >= static_cast<int>(each_)) break;
      if (apart * k < here) differ |= own[2 * k + 1] ^ number;
    }
    return gpu_all_of_warp(differ == 0);
  }
  __device__ void store(std::uint64_t* window, std::uint32_t words, const std::uint64_t* own) const {
    std::uint64_t* const to = window + first_word();
    const int left = words_left(words), left_of_second = has_number() ? 0 : left - 1;
    MPIX_UNROLL
    for (int k = 0; k < static_cast<int>(most_each); ++k) {
      if (k >= static_cast<int>(each_)) break;
      if (left > stride * k) to[stride * k] = own[2 * k];
      if (left_of_second > stride * k) to[stride * k + 1] = own[2 * k + 1];
    }
  }

 private:
  static constexpr int threads = 32, apart = threads / Pack::lanes, stride = apart * Pack::words;
  __device__ std::uint32_t first_word() const { return first_ * Pack::words + 2 * lane_; }
  /// From its first one on.
  __device__ int words_left(std::uint32_t words) const {
    return static_cast<int>(words) - static_cast<int>(first_word());
  }
  __device__ int packs_left(std::uint32_t packs) const { return static_cast<int>(packs) - static_cast<int>(first_); }

  const std::uint32_t each_, lane_, first_;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
