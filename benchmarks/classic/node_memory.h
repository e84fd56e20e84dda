// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "support/abort.h"

/// What the processes of a node share: words and memory of the host, memory of a GPU, and marks in each other's
/// streams.
namespace classic {

/// Memory of the host that all have mapped, and their GPUs reach.
class HostMemory {
 public:
  HostMemory(MPI_Comm comm, std::size_t bytes) {
    int rank = 0;
    CHECK_MPI(MPI_Comm_rank(comm, &rank));
    CHECK_MPI(MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL, comm, &base_,
                                      &window_));
    MPI_Aint size = 0;
    int unit = 0;
    CHECK_MPI(MPI_Win_shared_query(window_, 0, &size, &unit, &base_));
    if (rank == 0) std::fill_n(static_cast<char*>(base_), bytes, '\0');
    CHECK_MPI(MPI_Barrier(comm));
    place::pin(base_, bytes);
  }
  ~HostMemory() {
    place::unpin(base_);
    CHECK_MPI(MPI_Win_free(&window_));
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* get() const { return base_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  void* base_ = nullptr;
};

/// The directory: words of each rank, a line for each, polled by processors.
class Directory {
 public:
  Directory(MPI_Comm comm, int ranks, int words_each)
      : words_each_(words_each), memory_(comm, static_cast<std::size_t>(ranks * words_each) * line) {}

  std::uint64_t load(int rank, int word) const { return __atomic_load_n(at(rank, word), __ATOMIC_ACQUIRE); }
  void store(int rank, int word, std::uint64_t value) const {
    __atomic_store_n(at(rank, word), value, __ATOMIC_RELEASE);
  }
  /// Of two that would replace a value, one does.
  bool replace(int rank, int word, std::uint64_t value, std::uint64_t by) const {
    return __atomic_compare_exchange_n(at(rank, word), &value, by, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  /// Processors may be few.
  void await(int rank, int word, std::uint64_t value) const {
    while (load(rank, word) < value) sched_yield();
  }
  std::uint64_t* at(int rank, int word) const {
    return reinterpret_cast<std::uint64_t*>(static_cast<char*>(memory_.get()) +
                                            static_cast<std::size_t>(rank * words_each_ + word) * line);
  }

 private:
  static constexpr std::size_t line = 64;
  const int words_each_;
  const HostMemory memory_;
};

#if defined(__CUDACC__) || defined(__HIPCC__)
/// Memory of the GPU of one rank, which the others have mapped.
class DeviceMemory {
 public:
  DeviceMemory(MPI_Comm comm, int owner, std::size_t bytes) {
    int rank = 0;
    CHECK_MPI(MPI_Comm_rank(comm, &rank));
    is_mine_ = rank == owner;
    DOMAIN_GPU(IpcMemHandle_t) handle{};
    if (is_mine_) {
      // Blocks of its own: two allocations in one cannot be opened both.
      constexpr std::size_t block = std::size_t{2} << 20;
      DOMAIN_CHECK_GPU(DOMAIN_GPU(Malloc)(&base_, (bytes + block - 1) / block * block));
      DOMAIN_CHECK_GPU(DOMAIN_GPU(IpcGetMemHandle)(&handle, base_));
    }
    CHECK_MPI(MPI_Bcast(&handle, sizeof handle, MPI_BYTE, owner, comm));
    if (!is_mine_)
      DOMAIN_CHECK_GPU(DOMAIN_GPU(IpcOpenMemHandle)(&base_, handle, DOMAIN_GPU(IpcMemLazyEnablePeerAccess)));
    CHECK_MPI(MPI_Comm_dup(comm, &comm_));
  }
  ~DeviceMemory() {
    if (!is_mine_) DOMAIN_CHECK_GPU(DOMAIN_GPU(IpcCloseMemHandle)(base_));
    CHECK_MPI(MPI_Barrier(comm_));
    if (is_mine_) DOMAIN_CHECK_GPU(DOMAIN_GPU(Free)(base_));
    CHECK_MPI(MPI_Comm_free(&comm_));
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  float* get() const { return static_cast<float*>(base_); }

 private:
  bool is_mine_ = false;
  void* base_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// An event of each rank, which others' streams can wait for. Whoever waits has been told, by a word of the directory,
/// that it was recorded.
class Marks {
 public:
  explicit Marks(MPI_Comm comm) {
    int ranks = 0;
    CHECK_MPI(MPI_Comm_rank(comm, &rank_));
    CHECK_MPI(MPI_Comm_size(comm, &ranks));
    events_.resize(static_cast<std::size_t>(ranks));
    std::vector<DOMAIN_GPU(IpcEventHandle_t)> handles(events_.size());
    DOMAIN_CHECK_GPU(
        DOMAIN_GPU(EventCreateWithFlags)(&mine(), DOMAIN_GPU(EventDisableTiming) | DOMAIN_GPU(EventInterprocess)));
    DOMAIN_GPU(IpcEventHandle_t) handle;
    DOMAIN_CHECK_GPU(DOMAIN_GPU(IpcGetEventHandle)(&handle, mine()));
    CHECK_MPI(MPI_Allgather(&handle, sizeof handle, MPI_BYTE, handles.data(), sizeof handle, MPI_BYTE, comm));
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != rank_)
        DOMAIN_CHECK_GPU(DOMAIN_GPU(IpcOpenEventHandle)(&of(rank), handles[static_cast<std::size_t>(rank)]));
    CHECK_MPI(MPI_Comm_dup(comm, &comm_));
  }
  ~Marks() {
    CHECK_MPI(MPI_Barrier(comm_));
    for (auto event : events_) DOMAIN_CHECK_GPU(DOMAIN_GPU(EventDestroy)(event));
    CHECK_MPI(MPI_Comm_free(&comm_));
  }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  void record(launcher::Stream& stream) { DOMAIN_CHECK_GPU(DOMAIN_GPU(EventRecord)(mine(), stream.handle())); }
  void wait(launcher::Stream& stream, int rank) {
    DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamWaitEvent)(stream.handle(), of(rank), 0));
  }
  bool is_reached(int rank) {
    const auto found = DOMAIN_GPU(EventQuery)(of(rank));
    if (found == DOMAIN_GPU(ErrorNotReady)) return false;
    DOMAIN_CHECK_GPU(found);
    return true;
  }

 private:
  DOMAIN_GPU(Event_t) & of(int rank) { return events_[static_cast<std::size_t>(rank)]; }
  DOMAIN_GPU(Event_t) & mine() { return of(rank_); }

  int rank_ = 0;
  std::vector<DOMAIN_GPU(Event_t)> events_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};
#else
/// On the host all memory is the host's.
class DeviceMemory {
 public:
  DeviceMemory(MPI_Comm comm, int owner, std::size_t bytes) {
    int rank = 0;
    CHECK_MPI(MPI_Comm_rank(comm, &rank));
    CHECK_MPI(MPI_Win_allocate_shared(rank == owner ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL, comm, &base_,
                                      &window_));
    MPI_Aint size = 0;
    int unit = 0;
    CHECK_MPI(MPI_Win_shared_query(window_, owner, &size, &unit, &base_));
  }
  ~DeviceMemory() { CHECK_MPI(MPI_Win_free(&window_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  float* get() const { return static_cast<float*>(base_); }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  void* base_ = nullptr;
};

/// An event is two counters: how often it was recorded, and how often streams have come there.
class Marks {
 public:
  explicit Marks(MPI_Comm comm) : directory_(comm, size_of(comm), 2) { CHECK_MPI(MPI_Comm_rank(comm, &rank_)); }

  void record(launcher::Stream& stream) {
    const std::uint64_t count = ++recorded_;
    enqueue(stream, [word = directory_.at(rank_, come), count] { __atomic_store_n(word, count, __ATOMIC_RELEASE); });
    directory_.store(rank_, recorded, count);
  }
  void wait(launcher::Stream& stream, int rank) {
    enqueue(stream, [this, rank, count = directory_.load(rank, recorded)] { directory_.await(rank, come, count); });
  }
  bool is_reached(int rank) { return directory_.load(rank, come) >= directory_.load(rank, recorded); }

 private:
  enum Word { recorded, come };
  static int size_of(MPI_Comm comm) {
    int ranks = 0;
    CHECK_MPI(MPI_Comm_size(comm, &ranks));
    return ranks;
  }
  static void enqueue(launcher::Stream& stream, std::function<void()> job) {
    const auto run_and_delete = [](void* argument) {
      const std::unique_ptr<std::function<void()> > mine(static_cast<std::function<void()>*>(argument));
      (*mine)();
    };
    CHECK_MPI(MPIX_Host_stream_launch(stream.handle(), run_and_delete, new std::function<void()>(std::move(job))));
  }

  const Directory directory_;
  int rank_ = 0;
  std::uint64_t recorded_ = 0;
};
#endif

/// Enqueued: what follows comes late.
inline void be_late(launcher::Stream& stream) {
  const auto sleep = [](void*) { (void)usleep(2000); };
#if defined(__CUDACC__) || defined(__HIPCC__)
  DOMAIN_CHECK_GPU(DOMAIN_GPU(LaunchHostFunc)(stream.handle(), sleep, nullptr));
#else
  CHECK_MPI(MPIX_Host_stream_launch(stream.handle(), sleep, nullptr));
#endif
}

}  // namespace classic
