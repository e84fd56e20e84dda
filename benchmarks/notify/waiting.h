// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bare.h"
#include "channel.h"
#include "support/streams.h"
#include "table.h"

/// What blocks that wait for flags cost others: a kernel that moves memory beside them, and messages of MPI.
namespace notify {

constexpr int waiting_blocks = 27;

/// For flags of a channel; all for the same one; for words by hand; or with a look at the word each millisecond, which
/// shows what it costs that the blocks are there.
enum class Waits { for_flags, for_one_flag, by_hand, seldom_looking };

struct WaitsForWord {
  MPIX_Dev_channel channel;
  const std::uint64_t* words;  ///< by hand: by block, 16 apart
  std::uint64_t value;
  Waits how;
  int* failed;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    if (how == Waits::for_flags || how == Waits::for_one_flag) {
      const unsigned flag = how == Waits::for_flags ? team.block : 0;
      if (const int result = MPIX_Dev_flag_wait(channel, flag, value)) *failed = result;
      return;
    }
    while (bare::volatile_word(words + std::size_t{team.block} * 16) < value) {
      support::let_other_blocks_run();
      if (how == Waits::seldom_looking)
        for (const std::uint64_t begin = MPIX_Dev_clock(); MPIX_Dev_clock() - begin < 1000000;) {
        }
    }
  }
};

/// Reads and writes memory of the GPU, as fast as that goes. A few blocks for each multiprocessor, so that all have
/// room beside one that waits.
struct Moves {
  struct alignas(16) Pair {
    std::uint64_t a, b;
  };
  const Pair* from;
  Pair* to;
  std::uint64_t pairs;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    constexpr std::uint64_t at_once = 4;
    const std::uint64_t all = std::uint64_t{team.blocks} * team.threads;
    for (std::uint64_t i = std::uint64_t{team.block} * team.threads + team.thread; i < pairs; i += at_once * all) {
      Pair some[at_once];
      for (std::uint64_t k = 0; k < at_once; ++k) some[k] = from[i + k * all < pairs ? i + k * all : i];
      for (std::uint64_t k = 0; k < at_once; ++k)
        if (i + k * all < pairs) to[i + k * all] = some[k];
    }
  }
};

class WaitingBlocks {
 public:
  WaitingBlocks() = default;
  ~WaitingBlocks() { support::release_pinned(words_); }
  WaitingBlocks(const WaitingBlocks&) = delete;
  WaitingBlocks& operator=(const WaitingBlocks&) = delete;

  /// They wait until the end of this.
  class Now {
   public:
    explicit Now(WaitingBlocks& blocks, Waits how = Waits::for_flags) : blocks_(blocks) {
      ++blocks_.value_;
      support::launch_blocks(WaitsForWord{blocks_.channel_.device(), blocks_.words_, blocks_.value_, how, failed_word},
                             waiting_blocks, 32, blocks_.stream_.handle());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ~Now() {
      for (int flag = 0; flag < waiting_blocks; ++flag) {
        CHECK_MPI(MPIX_Channel_flag_set(blocks_.channel_, flag, blocks_.value_));
        mpix::store_release(blocks_.words_ + std::size_t{16} * static_cast<std::size_t>(flag), blocks_.value_);
      }
      blocks_.stream_.synchronize();
    }
    Now(const Now&) = delete;
    Now& operator=(const Now&) = delete;

   private:
    WaitingBlocks& blocks_;
  };

 private:
  Channel channel_{0, waiting_blocks, {}};
  support::Stream stream_;
  std::uint64_t* const words_ =
      static_cast<std::uint64_t*>(support::allocate_pinned(std::size_t{16} * 8 * waiting_blocks));
  std::uint64_t value_ = 0;
};

inline void beside_kernels() {
  constexpr std::size_t bytes = std::size_t{1} << 29;
  auto* const from = static_cast<Moves::Pair*>(support::allocate_on_device(bytes));
  auto* const to = static_cast<Moves::Pair*>(support::allocate_on_device(bytes));
  {
    WaitingBlocks blocks;
    support::Stream stream;
    support::load_blocks<Moves>();
    const auto moved = [&] {
      const auto begin = Clock::now();
      for (int i = 0; i < 20; ++i)
        support::launch_blocks(Moves{from, to, bytes / sizeof(Moves::Pair)}, 4 * support::multiprocessors(), 256,
                               stream.handle());
      stream.synchronize();
      return since(begin) / 20;
    };
    const auto beside = [&](Waits how) {
      return [&, how] {
        const WaitingBlocks::Now now(blocks, how);
        return moved();
      };
    };
    const std::vector<double> all = in_turns({moved, beside(Waits::for_flags), beside(Waits::by_hand),
                                              beside(Waits::seldom_looking), beside(Waits::for_one_flag)});
    check_failed();
    row("a kernel that moves 1 GiB, beside 27 blocks that wait; alone", all[1], "us", all[0]);
    row("beside 27 that wait for one flag; alone", all[4], "us", all[0]);
    row("beside 27 that wait by hand; alone", all[2], "us", all[0]);
    row("beside 27 that look at a word each millisecond; alone", all[3], "us", all[0]);
  }
  support::release_on_device(to);
  support::release_on_device(from);
}

/// A process that has no more to do sleeps, lest MPI take a core from the first one.
inline void leave_together() {
  MPI_Request all_are_here = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Ibarrier(MPI_COMM_WORLD, &all_are_here));
  for (int done = 0;;) {
    CHECK_MPI(MPI_Test(&all_are_here, &done, MPI_STATUS_IGNORE));
    if (done) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// With the other process; microseconds a round trip.
inline double round_trip(std::vector<char>& data, int rank) {
  const int times = data.size() < 1024 ? 2000 : 50, count = static_cast<int>(data.size());
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) {
    if (rank == 0) CHECK_MPI(MPI_Send(data.data(), count, MPI_BYTE, 1, 0, MPI_COMM_WORLD));
    CHECK_MPI(MPI_Recv(data.data(), count, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (rank == 1) CHECK_MPI(MPI_Send(data.data(), count, MPI_BYTE, 0, 0, MPI_COMM_WORLD));
  }
  return since(begin) / times;
}

/// Both processes; the blocks are of the first.
inline void beside_messages(int rank) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    std::vector<char> data(bytes);
    if (rank == 1) {
      (void)in_turns({[&] { return round_trip(data, rank); }, [&] { return round_trip(data, rank); }});
      continue;
    }
    WaitingBlocks blocks;
    const std::vector<double> all = in_turns({[&] { return round_trip(data, rank); },
                                              [&] {
                                                const WaitingBlocks::Now now(blocks);
                                                return round_trip(data, rank);
                                              }});
    check_failed();
    row("a round trip of MPI, " + std::to_string(bytes) + " bytes, beside 27 blocks that wait; alone", all[1], "us",
        all[0]);
  }
}

}  // namespace notify
