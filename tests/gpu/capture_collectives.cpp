// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collectives on streams in the body of a graph's WHILE node: an iteration with all of them, captured once, that the
// GPU repeats by itself, each time with data of its own.
#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/cuda.h"
#include "gpu/rank_data.h"
#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

/// All seven collectives on words of 8 bytes, of which no iteration has those of another.
class Exchange {
 public:
  Exchange(const Comm& comm, std::size_t words)
      : comm_(comm),
        words_(words),
        ranks_(static_cast<std::size_t>(comm.size())),
        all_((4 + 3 * ranks_) * words * 8, Kind::mapped) {}

  void* memory() const { return all_.data(); }
  std::size_t bytes() const { return all_.size(); }

  void enqueue(void* stream, const std::uint64_t* number) {
    std::uint64_t* const source = part(0);
    std::uint64_t* const gathered = part(ranks_);
    std::uint64_t* const turned = part(2 * ranks_);
    std::uint64_t* const told = part(3 * ranks_);
    std::uint64_t* const sum = part(3 * ranks_ + 1);
    std::uint64_t* const reduced = part(3 * ranks_ + 2);
    std::uint64_t* const scattered = part(3 * ranks_ + 3);
    const auto me = static_cast<std::uint64_t>(comm_.rank());
    const int count = static_cast<int>(words_), root = comm_.size() - 1;
    const auto give = [&](std::uint64_t* at, std::uint64_t to) {
      fill(cuda(stream), at, words_, {number, me, me + 1, to});
    };
    const auto look = [&](const std::uint64_t* at, std::uint64_t first, std::uint64_t end, std::uint64_t to) {
      check(cuda(stream), at, words_, {number, first, end, to}, tally_.as<Tally>());
      ++checks_;
    };
    for (std::uint64_t to = 0; to < ranks_; ++to) give(source + to * words_, to);
    if (comm_.rank() == root) give(told, to_all);
    MPI_OK(MPIX_Bcast_stream(told, count, MPI_UINT64_T, root, comm_, stream));
    MPI_OK(MPIX_Reduce_stream(source, reduced, count, MPI_UINT64_T, MPI_SUM, root, comm_, stream));
    MPI_OK(MPIX_Allreduce_stream(source, sum, count, MPI_UINT64_T, MPI_SUM, comm_, stream));
    MPI_OK(MPIX_Reduce_scatter_block_stream(source, scattered, count, MPI_UINT64_T, MPI_SUM, comm_, stream));
    MPI_OK(MPIX_Allgather_stream(source, count, MPI_UINT64_T, gathered, count, MPI_UINT64_T, comm_, stream));
    MPI_OK(MPIX_Alltoall_stream(source, count, MPI_UINT64_T, turned, count, MPI_UINT64_T, comm_, stream));
    MPI_OK(MPIX_Barrier_stream(comm_, stream));
    look(told, ranks_ - 1, ranks_, to_all);
    if (comm_.rank() == root) look(reduced, 0, ranks_, 0);
    look(sum, 0, ranks_, 0);
    look(scattered, 0, ranks_, me);
    for (std::uint64_t from = 0; from < ranks_; ++from) {
      look(gathered + from * words_, from, from + 1, 0);
      look(turned + from * words_, from, from + 1, me);
    }
  }

  Tally tally() const { return contents<Tally>(tally_.data(), 1)[0]; }
  /// By all that has been captured, once each.
  std::uint64_t looks() const { return checks_ * words_; }

 private:
  static constexpr std::uint64_t to_all = 1000;
  std::uint64_t* part(std::size_t number) const { return all_.as<std::uint64_t>() + number * words_; }

  const Comm& comm_;
  const std::size_t words_, ranks_;
  const Buffer all_;
  const Buffer tally_{sizeof(Tally)};
  std::uint64_t checks_ = 0;
};

struct Size {
  const char* way;  ///< as mpix_coll has it
  std::size_t words;
  bool attached;
};

}  // namespace

TEST_CASE("all collectives in the body of a WHILE node") {
  NEEDS_CUDA();
  NEEDS(parameter("TEST_GPU_IN_TURNS", 0) == 0,
        "where ranks share a GPU in turns, calls have memory operations, which CUDA refuses in such a body");
  const auto end = static_cast<std::uint64_t>(scaled(300));
  const Size sizes[] = {{"auto", 5, false},    {"lines", 700, false},     {"packs", 30000, false},
                        {"auto", 30000, true}, {"direct", 100000, false}, {"direct", 100000, true}};
  for (const Size& size : sizes) {
    const std::string what =
        std::string(size.way) + ", " + std::to_string(size.words) + " words" + (size.attached ? ", attached" : "");
    INFO(what);
    alive(what);
    Info info;
    info.set("mpix_coll", size.way);
    const Comm comm(Comm::duplicate());
    MPI_OK(MPIX_Comm_prepare_stream(comm, info));
    Exchange exchange(comm, size.words);
    if (size.attached) MPI_OK(MPIX_Comm_attach(comm, exchange.memory(), static_cast<MPI_Aint>(exchange.bytes())));
    Stream stream;
    Iteration iteration;
    Sequence between(comm, 31, 2000);
    between.prepare(41);
    between.enqueue(stream);  // may be under way when the capture begins
    {
      Loop loop(stream, iteration.number(), end, [&] {
        iteration.next(stream);
        exchange.enqueue(stream, iteration.number());
      });
      loop.launch(stream, end);
      loop.launch(stream, 1);  // the number is what ends it
      stream.synchronize();
      CHECK(iteration.reached() == end + 1);
      CHECK(exchange.tally().wrong == 0);
      CHECK(exchange.tally().seen == (end + 1) * exchange.looks());
      // what is not captured goes on from there, and the loop from that
      for (int i = 0; i < 20; ++i) between.enqueue(stream);
      loop.launch(stream, 1);
      for (int i = 0; i < 20; ++i) between.enqueue(stream);
      stream.synchronize();
      between.check();
      CHECK(exchange.tally().wrong == 0);
      CHECK(exchange.tally().seen == (end + 2) * exchange.looks());
    }
    if (comm.size() > 1 && !spans_nodes() && std::string(size.way) == "direct") {
      MPIX_Comm_stats stats{};
      MPI_OK(MPIX_Comm_get_stats(comm, &stats, sizeof stats));
      CHECK(stats.calls_direct >= 6);
    }
    if (size.attached) MPI_OK(MPIX_Comm_detach(comm, exchange.memory()));
  }
}
