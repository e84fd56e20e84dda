// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "support/channel.h"
#include "support/frame.h"

/// What tests of device requests share.

/// Waits for the kernel, and looks at what its blocks have found wrong: by block: line, what.
class Faults {
 public:
  explicit Faults(int blocks)
      : blocks_(static_cast<std::size_t>(blocks)),
        there_(static_cast<std::uint64_t*>(support::allocate_on_device(blocks_ * 16))) {}
  ~Faults() { support::release_on_device(there_); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
  std::uint64_t* there() const { return there_; }
  void expect_none() const {
    support::synchronize();
    std::vector<std::uint64_t> found(blocks_ * 2);
    support::to_host(found.data(), there_, found.size() * 8);
    for (std::size_t b = 0; b < blocks_; ++b)
      if (found[b * 2] != 0) {
        std::printf("rank %d, block %zu: line %llu: %llu\n", rank, b, static_cast<unsigned long long>(found[b * 2]),
                    static_cast<unsigned long long>(found[b * 2 + 1]));
        ++failures;
      }
  }

 private:
  const std::size_t blocks_;
  std::uint64_t* const there_;
};

struct FaultOf {
  std::uint64_t* faults;
  MPIX_DEV_METHOD bool operator()(const MPIX_Dev_team& team, bool is_wrong, int line, std::uint64_t what) const {
    std::uint64_t* const mine = faults + team.block * 2;
    if (is_wrong && mine[0] == 0) {
      mine[0] = static_cast<std::uint64_t>(line);
      mine[1] = what;
    }
    return is_wrong;
  }
};
#define WRONG(is_wrong, what) fault(team, is_wrong, __LINE__, static_cast<std::uint64_t>(what))

MPIX_DEV_METHOD inline void delay(std::uint64_t random) {
  if (random % 4 != 0) return;
  const unsigned long long until = MPIX_Dev_clock() + (random >> 8) % 30000;
  while (MPIX_Dev_clock() < until) {
  }
}

/// Persistent requests with their device requests, and pinned buffers.
class Requests {
 public:
  ~Requests() {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      CHECK_MPI(MPIX_Free_drequest(&given_[i]));
      CHECK_MPI(MPI_Request_free(&made_[i]));
    }
    if (there_) support::release_on_device(there_);
  }
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  void add(MPI_Request request) {
    MPIX_Drequest given;
    CHECK_MPI(MPIX_Get_drequest(request, &given));
    made_.push_back(request);
    given_.push_back(given);
  }
  /// In memory of the device.
  MPIX_Drequest* list() {
    const std::size_t bytes = given_.size() * sizeof given_[0];
    if (!there_) there_ = static_cast<MPIX_Drequest*>(support::allocate_on_device(bytes));
    support::from_host(there_, given_.data(), bytes);
    return there_;
  }
  MPIX_Drequest operator[](std::size_t i) const { return given_[i]; }
  std::size_t size() const { return given_.size(); }

 private:
  std::vector<MPI_Request> made_;
  std::vector<MPIX_Drequest> given_;
  MPIX_Drequest* there_ = nullptr;
};

inline std::uint64_t* words(std::size_t count) {
  return static_cast<std::uint64_t*>(support::allocate_pinned(count * sizeof(std::uint64_t)));
}

/// A kernel tells the process, by a pinned word, that it has got somewhere.
MPIX_DEV_METHOD inline void tell(std::uint64_t* word) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  *static_cast<volatile std::uint64_t*>(word) = 1;
#else
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
#endif
}
inline void wait_until_told(const std::uint64_t* word) {
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
