// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix_device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "benchmarks/dev/stream.h"
#include "benchmarks/dev/team.h"
#include "call.h"
#include "loops.h"
#include "memory.h"
#include "support/abort.h"

/// Data that change from call to call, and are compared where they lie: all in stream order, so that a graph does it
/// too. The turn, which says what the data are, is counted in device memory.
namespace collectives {

using loops::blocks_for;
using loops::for_all;

struct NextTurn {
  std::uint64_t* turn;
  MPIX_DEV_METHOD void operator()(int) const {
    if (team::here().index == 0) ++*turn;
  }
};

template <class T>
struct Fill {
  T* data;
  std::size_t count;
  int rank;
  const std::uint64_t* turn;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    const std::uint64_t now = *turn;
    for_all(count, block, blocks, [&](std::size_t i) { data[i] = value_of<T>(rank, now, i); });
  }
};

template <class T>
struct Compare {
  Call call;
  const std::uint64_t* turn;
  std::uint64_t* wrong;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    const std::uint64_t now = *turn;
    const T* const data = static_cast<const T*>(call.receive);
    std::uint64_t mine = 0;
    for_all(received, block, blocks, [&](std::size_t i) {
      if (!(data[i] == expected<T>(call.kind, call.count, call.rank, call.ranks, now, i))) ++mine;
    });
    if (mine > 0) (void)mpix::fetch_add_on_device(wrong, mine);
  }
  const std::size_t received = call.received();
};

/// A barrier is checked by words that all ranks share, each on its own line: a rank tells there that it has come, one
/// of them late, and behind the barrier all have to be there.
constexpr std::size_t words_each = 16;
struct Come {
  std::uint64_t* words;
  int rank, ranks;
  const std::uint64_t* turn;
  MPIX_DEV_METHOD void operator()(int) const {
    if (team::here().index != 0) return;
    if (*turn % static_cast<std::uint64_t>(ranks) == static_cast<std::uint64_t>(rank)) be_late();
    mpix::store_release(words + static_cast<std::size_t>(rank) * words_each, *turn);
  }
  MPIX_DEV_METHOD void be_late() const {
#if MPIX_ON_DEVICE
    for (const long long begin = clock64(); clock64() - begin < 200000;) {
    }
#else
    for (volatile int i = 0; i < 100000;) i = i + 1;
#endif
  }
};
struct AllHaveCome {
  const std::uint64_t* words;
  int ranks;
  const std::uint64_t* turn;
  std::uint64_t* wrong;
  MPIX_DEV_METHOD void operator()(int) const {
    if (team::here().index != 0) return;
    for (int rank = 0; rank < ranks; ++rank)
      if (mpix::load_acquire(words + static_cast<std::size_t>(rank) * words_each) < *turn) ++*wrong;
  }
};

/// Words that the ranks of a node share, and their GPUs reach.
class SharedWords {
 public:
  SharedWords() {
    CHECK_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_));
    CHECK_MPI(MPI_Comm_rank(node_, &rank_));
    CHECK_MPI(MPI_Comm_size(node_, &ranks_));
    // all of it belongs to the first: a GPU is told of whole pages
    const MPI_Aint bytes = rank_ == 0 ? static_cast<MPI_Aint>(this->bytes()) : 0;
    CHECK_MPI(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, node_, &words_, &window_));
    MPI_Aint size = 0;
    int unit = 0;
    CHECK_MPI(MPI_Win_shared_query(window_, 0, &size, &unit, &words_));
    if (rank_ == 0) std::fill_n(words_, this->bytes() / sizeof *words_, std::uint64_t{0});
    CHECK_MPI(MPI_Barrier(node_));
    place::pin(words_, this->bytes());
  }
  ~SharedWords() {
    place::unpin(words_);
    CHECK_MPI(MPI_Win_free(&window_));
    CHECK_MPI(MPI_Comm_free(&node_));
  }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  std::uint64_t* get() const { return words_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(ranks_) * words_each * sizeof(std::uint64_t); }

  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  int rank_ = 0, ranks_ = 1;
  std::uint64_t* words_ = nullptr;
};

/// Fills the buffers of calls, and compares what they receive.
class Data {
 public:
  explicit Data(launcher::Stream& stream) : stream_(stream), words_(2 * sizeof(std::uint64_t)) {}

  /// Enqueue: the data of the next turn.
  void fill(const Call& call) {
    stream_.run(NextTurn{turn()}, 1);
    if (call.kind == Kind::barrier)
      stream_.run(Come{shared().get(), shared().rank(), shared().ranks(), turn()}, 1);
    else if (call.type == Type::float64)
      fill_as<double>(call);
    else
      fill_as<float>(call);
  }
  /// Enqueue: compare with what this turn has to bring.
  void compare(const Call& call) {
    if (call.kind == Kind::barrier)
      stream_.run(AllHaveCome{shared().get(), shared().ranks(), turn(), wrong()}, 1);
    else if (!call.receives())
      return;
    else if (call.type == Type::float64)
      compare_as<double>(call);
    else
      compare_as<float>(call);
  }
  /// Its kernels have run: CUDA loads them then, and with MPIX_COLL=copies that must not be behind a call.
  void load(const Call& call) {
    fill(call);
    compare(call);
    (void)wrong_since();
  }
  /// Words that were wrong on any rank since it was asked last. Collective; waits.
  std::uint64_t wrong_since() {
    std::uint64_t mine = place::fetch(stream_, wrong()), all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    return all - std::exchange(wrong_before_, all);
  }

 private:
  template <class T>
  void fill_as(const Call& call) {
    const std::size_t count = call.kind == Kind::bcast ? call.received() : call.sent();
    const int blocks = blocks_for(count);
    stream_.run(Fill<T>{static_cast<T*>(call.source()), count, call.rank, turn(), blocks}, blocks);
  }
  template <class T>
  void compare_as(const Call& call) {
    const int blocks = blocks_for(call.received());
    stream_.run(Compare<T>{call, turn(), wrong(), blocks}, blocks);
  }
  /// Collective the first time, outside a capture.
  const SharedWords& shared() {
    if (!shared_) shared_ = std::make_unique<SharedWords>();
    return *shared_;
  }
  std::uint64_t* turn() const { return words_.as<std::uint64_t>(); }
  std::uint64_t* wrong() const { return turn() + 1; }

  launcher::Stream& stream_;
  const place::Memory words_;
  std::unique_ptr<SharedWords> shared_;
  std::uint64_t wrong_before_ = 0;
};

}  // namespace collectives
