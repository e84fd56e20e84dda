// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Random collectives on streams: SOAK_CALLS of them, with SOAK_SEED; on communicators of their own order of ranks, on
// streams that change, in memory that is attached or not, and in graphs (TEST_CAPTURED); between them ordinary
// collectives on the same communicators, and stream epochs in the same streams. Each is compared with a serial model.
#include <memory>

#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

/// A communicator, and the calls on it that are under way.
class Caller {
 public:
  Caller(MPI_Comm handle, std::size_t window_bytes)
      : comm_(handle),
        stream_(std::make_unique<Stream>()),
        window_(Memory::part, window_bytes),
        ring_(window_, window_.base(), window_bytes) {}
  ~Caller() {
    if (memory_) MPIX_Comm_detach(comm_, memory_->data());
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  /// Buffers lie in what is attached, where this rank wants that, and there is room.
  void make(const Call& call, bool send_attached, bool recv_attached) {
    char* const send_at = send_attached ? take(call) : nullptr;
    char* const recv_at = recv_attached ? take(call) : nullptr;
    batch_.add(std::make_unique<Trial>(call, comm_.rank(), comm_.size(), Kind::unmapped, send_at, recv_at), *stream_);
  }
  /// Around all ranks, in order of the world.
  void epoch(bool fused) {
    if (fused)
      ring_.fused_epoch(*stream_);
    else
      ring_.epoch(*stream_);
  }
  /// Of MPI's own, at once.
  void ordinary_call(Random& random) {
    const int root = static_cast<int>(random.below(static_cast<std::size_t>(size())));
    const int value = static_cast<int>(random.below(1000)), ranks = size() * (size() - 1) / 2;
    int mine = value + comm_.rank(), sum = -1;
    switch (random.below(3)) {
      case 0:
        MPI_OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm_));
        EXPECT(sum == size() * value + ranks, "MPI_Allreduce between");
        break;
      case 1:
        MPI_OK(MPI_Bcast(&mine, 1, MPI_INT, root, comm_));
        EXPECT(mine == value + root, "MPI_Bcast between");
        break;
      default:
        MPI_OK(MPI_Barrier(comm_));
    }
  }
  void delay(int microseconds) { stream_->delay(microseconds); }
  void finish(const std::string& context) {
    batch_.finish(*stream_, context);
    batch_.clear();
    taken_ = 0;
  }
  void change_stream() { stream_ = std::make_unique<Stream>(); }

  void attach(std::size_t bytes) {
    memory_ = std::make_unique<Buffer>(bytes, Kind::mapped);
    MPI_OK(MPIX_Comm_attach(comm_, memory_->data(), static_cast<MPI_Aint>(bytes)));
  }
  void detach() {
    if (memory_) MPI_OK(MPIX_Comm_detach(comm_, memory_->data()));
    memory_.reset();
  }
  bool is_attached() const { return memory_ != nullptr; }
  int size() const { return comm_.size(); }

 private:
  char* take(const Call& call) {
    const std::size_t bytes = (Trial::room(call, size()) + 63) / 64 * 64;
    if (!memory_ || taken_ + bytes > memory_->size()) return nullptr;
    taken_ += bytes;
    return memory_->data() + taken_ - bytes;
  }

  const Comm comm_;
  std::unique_ptr<Stream> stream_;
  Window window_;
  Ring ring_;
  std::unique_ptr<Buffer> memory_;
  std::size_t taken_ = 0;
  Batch batch_{comm_};
};

}  // namespace

TEST_CASE("random calls") {
  const long calls = parameter("SOAK_CALLS", 10000);
  const auto soak_seed = static_cast<std::uint64_t>(parameter("SOAK_SEED", 1));
  Random random(soak_seed);                                                 // the same on all ranks
  Random own(key({soak_seed, static_cast<std::uint64_t>(rank()), 12345}));  // each its own
  Random between(soak_seed + 1);                                            // the same on all ranks
  std::vector<std::unique_ptr<Caller>> callers;
  std::size_t window_bytes = 100;  // of the others more: not by mailbox
  for (int key : {rank(), -rank(), (rank() + 1) % size()}) {
    callers.push_back(std::make_unique<Caller>(Comm::split(0, key), window_bytes));
    window_bytes *= 30;
  }
  // Each window and each communicator is sure of one operation, where there are so many; else an epoch may keep what
  // the call in front of it needs.
  const bool has_budget = parameter("MPIX_TRIGGERED_OPS", 100) >= 10;
  std::size_t at = 0;
  long in_flight = 0;
  for (long i = 0; i < calls; ++i) {
    if (random.chance(0.1)) at = random.below(callers.size());
    Caller& caller = *callers[at];
    const std::size_t most = random.chance(0.02) ? 20000 : 400;
    Call call = random_call(random, caller.size(), most);
    call.skew = own.below(4);
    if (own.chance(0.02)) caller.delay(static_cast<int>(own.below(300)));
    caller.make(call, own.chance(0.4), own.chance(0.4));
    if (between.chance(0.04) && has_budget) caller.epoch(between.chance(0.5));
    if (between.chance(0.01)) caller.ordinary_call(between);
    ++in_flight;
    if (in_flight < 200 && !random.chance(0.01)) continue;
    const std::string context = "up to call " + std::to_string(i) + " of seed " + std::to_string(soak_seed);
    alive(context);
    for (const auto& each : callers) each->finish(context);
    in_flight = 0;
    if (failed()) return;
    if (random.chance(0.2)) caller.change_stream();
    if (!random.chance(0.3)) continue;
    if (caller.is_attached()) {
      caller.detach();
    } else {
      caller.attach(1 << 18);
    }
  }
  for (const auto& each : callers) each->finish("the last calls");
}
