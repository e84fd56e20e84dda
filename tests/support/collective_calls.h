// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_collectives.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/collective_types.h"
#include "support/epochs.h"

/// Collectives on streams, with data that every rank can compute for all: so each has its own serial model.
namespace test {

enum class What { barrier, bcast, reduce, allreduce, reduce_scatter_block, allgather, alltoall };
constexpr What all_kinds[] = {What::barrier,   What::bcast,   What::reduce, What::allreduce, What::reduce_scatter_block,
                              What::allgather, What::alltoall};
const char* name(What what);
inline bool is_rooted(What what) { return what == What::bcast || what == What::reduce; }
inline bool is_reduction(What what) {
  return what == What::reduce || what == What::allreduce || what == What::reduce_scatter_block;
}

struct Call {
  What what = What::allreduce;
  std::size_t count = 1;  ///< as MPI has it: for each rank, where each has a part
  MPI_Datatype type = MPI_INT;
  MPI_Op op = MPI_SUM;
  int root = 0;
  bool in_place = false;  ///< where MPI takes it
  std::uint64_t salt = 0;
  std::size_t skew = 0;  ///< elements that the buffers are off their alignment
};
std::string describe(const Call& call);

/// Elements in a rank's sendbuf and recvbuf.
std::size_t send_count(const Call& call, int size);
std::size_t recv_count(const Call& call, int size);
/// What rank `me` contributes, and what it has in its recvbuf afterwards (of a reduction in place: at its begin).
std::vector<char> input_of(const Call& call, int me, int size);
/// `nodes`: by rank; empty: all are on one. A node's ranks are combined first, then the nodes.
std::vector<char> result_of(const Call& call, int me, int size, const std::vector<int>& nodes = {});
/// How far elements of a result that is rounded may be from those of another order of the operands.
class Rounding {
 public:
  Rounding(const Call& call, int me, int size);
  double of(std::size_t element) const;

 private:
  const Call call_;
  std::vector<std::vector<char>> inputs_;  ///< by rank
};
/// Of the ranks of a communicator; empty: all are on one.
std::vector<int> nodes_of(MPI_Comm comm);

/// The call, as MPIX_…_stream.
int enqueue(const Call& call, const void* sendbuf, void* recvbuf, MPI_Comm comm, void* stream);
/// The same, as MPI has it, and now.
int make_now(const Call& call, const void* sendbuf, void* recvbuf, MPI_Comm comm);

/// Memory for one side of a call: the data, and what must not change before and behind them. Of its own, or at `where`.
class Side {
 public:
  Side(std::size_t bytes, std::size_t skew, Kind kind, char* where = nullptr);
  char* data() const { return begin_ + before_; }
  char* begin() const { return begin_; }
  std::size_t bytes() const { return image_.size(); }
  /// Of what a test wants there: at data() + at.
  void place(const std::vector<char>& content, std::size_t at = 0);
  /// To the device: what was placed, and around it what must not change.
  void write();
  /// From the device.
  std::vector<char> read() const { return contents<char>(data(), bytes_); }
  /// The first byte before or behind the data that has changed: its distance from them. 0: none.
  std::ptrdiff_t touched() const;
  bool unchanged() const;

 private:
  static constexpr std::size_t margin_ = 64;
  const std::size_t bytes_, before_;
  std::vector<char> image_;
  std::unique_ptr<Buffer> buffer_;
  char* begin_;
};

/// One call with buffers of its own, of rank `me` of `size` in a communicator.
class Trial {
 public:
  Trial(const Call& call, int me, int size, Kind kind = Kind::unmapped, char* send_at = nullptr,
        char* recv_at = nullptr);
  /// At most, of a side, if it is given memory.
  static std::size_t room(const Call& call, int size);

  int make(MPI_Comm comm, void* stream);
  /// What it had before the call, for another one.
  void renew();
  /// When the stream is done.
  void check(const std::string& context = "") const;

  const Call& call() const { return call_; }
  const Side& send() const { return send_; }
  const Side& recv() const { return recv_; }
  /// What the call takes.
  const void* sendbuf() const;
  void* recvbuf() const;

 private:
  bool sends_in_place() const;

  const Call call_;
  const int me_, size_;
  std::vector<int> nodes_;
  Side send_, recv_;
};

/// Trials on a communicator that are enqueued, and then looked at together. With TEST_CAPTURED they are captured in
/// graphs of one call and of several, a few are not between these, and all is launched three times, each time with what
/// it had at first. (On hosts: enqueued three times.)
class Batch {
 public:
  explicit Batch(MPI_Comm comm);
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Until finish() all in one stream.
  void add(std::unique_ptr<Trial> trial, void* stream);
  void finish(void* stream, const std::string& context = "");
  /// What is there until clear().
  const std::vector<std::unique_ptr<Trial>>& trials() const { return trials_; }
  void clear();

 private:
  struct Group;
  void enqueue_group(void* stream);
  void check(const std::string& context) const;

  const MPI_Comm comm_;
  const bool captured_;
  const bool copies_;  ///< CUDA instantiates no graph while streams wait for copies (doc/collectives.md)
  std::vector<std::unique_ptr<Trial>> trials_;
  std::vector<Group> groups_;  ///< which of the trials have been enqueued, in this order
};

/// A trial in the whole world, all of it.
void try_call(const Call& call, Stream& stream, const std::string& context = "", MPI_Comm comm = MPI_COMM_WORLD);

/// A communicator of the test's own.
class Comm {
 public:
  explicit Comm(MPI_Comm handle) : handle_(handle) {
    MPI_OK(MPI_Comm_rank(handle_, &rank_));
    MPI_OK(MPI_Comm_size(handle_, &size_));
  }
  ~Comm() {
    if (handle_ != MPI_COMM_NULL) MPI_Comm_free(&handle_);
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  operator MPI_Comm() const { return handle_; }
  MPI_Comm* handle() { return &handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  static MPI_Comm duplicate(MPI_Comm of = MPI_COMM_WORLD) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_OK(MPI_Comm_dup(of, &comm));
    return comm;
  }
  static MPI_Comm split(int color, int key) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm));
    return comm;
  }

 private:
  MPI_Comm handle_;
  int rank_ = 0, size_ = 0;
};

/// A call of any kind, the same on all ranks that have seen the same numbers; of at most `most` elements.
Call random_call(Random& random, int size, std::size_t most);

/// Random calls on a communicator, of which many are enqueued before one is looked at.
class Sequence {
 public:
  Sequence(const Comm& comm, std::uint64_t seed, std::size_t most) : comm_(comm), random_(seed), most_(most) {}

  /// Allocates for so many calls. For threads on GPUs: an allocation may wait for kernels that run, and these for other
  /// ranks, where another thread waits likewise.
  void prepare(int calls) {
    for (; calls > 0; --calls)
      trials_.push_back(std::make_unique<Trial>(random_call(random_, comm_.size(), most_), comm_.rank(), comm_.size()));
  }
  void enqueue(void* stream) {
    if (enqueued_ == trials_.size()) prepare(1);
    MPI_OK(trials_[enqueued_++]->make(comm_, stream));
  }
  /// When the streams are done.
  void check() {
    for (const auto& trial : trials_) trial->check("call " + std::to_string(checked_++));
    trials_.clear();
    enqueued_ = 0;
  }

 private:
  const Comm& comm_;
  Random random_;
  const std::size_t most_;
  std::vector<std::unique_ptr<Trial>> trials_;
  std::size_t enqueued_ = 0;
  int checked_ = 0;
};

}  // namespace test
