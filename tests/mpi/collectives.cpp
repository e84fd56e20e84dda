// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collectives on streams: each call with each operation, type, count and root that MPI has, against a serial model, and
// against MPI itself. tests/options runs this once for each way that data can take (MPIX_COLL), scripts/run-gpu-tests
// also with calls in graphs (TEST_CAPTURED).
#include <iterator>
#include <memory>
#include <tuple>

#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

/// Enqueue all, and then look at all.
class Calls {
 public:
  void add(const Call& call) { batch_.add(std::make_unique<Trial>(call, rank(), size()), stream_); }
  /// They are done, and what they had is there until the next.
  const std::vector<std::unique_ptr<Trial>>& finish() {
    batch_.finish(stream_);
    return batch_.trials();
  }
  void clear() { batch_.clear(); }

 private:
  Stream stream_;
  Batch batch_{MPI_COMM_WORLD};
};

std::uint64_t next_salt() {
  static std::uint64_t salt = 0;
  return ++salt;
}

/// MPICH 4.0 compares unsigned integers as signed ones; Open MPI 4.1 has sums of small integers end at the largest.
bool is_wrong_in_mpi(const Call& call) {
  if (call.op == MPI_SUM && type_of(call.type).extent <= 2) return true;
  const std::string type = type_of(call.type).name;
  const bool is_unsigned = type.find("UNSIGNED") != std::string::npos || type.find("UINT") != std::string::npos;
  return is_unsigned && (call.op == MPI_MAX || call.op == MPI_MIN);
}

/// What a rank has is what MPI has computed, or, where results are rounded, near it.
void compare_with_mpi(const Trial& trial, MPI_Comm comm) {
  const Call& call = trial.call();
  const Type& type = type_of(call.type);
  const std::vector<char> input = input_of(call, rank(), size());
  Call out_of_place = call;
  out_of_place.in_place = false;
  std::vector<char> result(recv_count(out_of_place, size()) * type.extent);
  if (make_now(out_of_place, input.data(), result.data(), comm) != MPI_SUCCESS) return;  // MPI lacks this pair
  if (call.what == What::reduce && rank() != call.root) return;
  const std::vector<char> found = trial.recv().read();
  const auto rounding = is_rounded(op_of(call.op), type) ? std::make_unique<Rounding>(call, rank(), size()) : nullptr;
  for (std::size_t i = 0; i < call.count; ++i) {
    const char* const one = &found[i * type.extent];
    const char* const other = &result[i * type.extent];
    if (rounding)
      EXPECT(type.distance(one, other) <= rounding->of(i), describe(call)
                                                               << ": element " << i << " is far from what MPI has");
    else
      EXPECT(type.same(one, other), describe(call) << ": element " << i << " is not what MPI has");
  }
}

}  // namespace

TEST_CASE("each operation on each type") {
  const Comm comm(Comm::duplicate());  // for MPI's own, which may lack a pair
  MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  std::size_t pairs = 0;
  for (const Type& type : all_types()) {
    alive(type.name);
    Calls calls;
    for (const Op& op : all_ops()) {
      if (!is_valid(op, type)) continue;
      ++pairs;
      Call call;
      call.type = type.handle;
      call.op = op.handle;
      call.count = 1 + pairs % 11;
      call.skew = pairs % 2;
      for (What what : {What::allreduce, What::reduce_scatter_block, What::reduce}) {
        call.what = what;
        call.in_place = (pairs + static_cast<std::size_t>(what)) % 3 == 0;
        for (call.root = 0; call.root < (what == What::reduce ? size() : 1); ++call.root) {
          call.salt = next_salt();
          calls.add(call);
        }
      }
    }
    for (const auto& trial : calls.finish())
      if (!is_wrong_in_mpi(trial->call())) compare_with_mpi(*trial, comm);
  }
  CHECK(pairs > 150);
}

// 16 bytes and more of one element, and of those that do not divide 8.
TEST_CASE("many elements of each type") {
  Calls calls;
  for (const Type& type : all_types()) {
    for (const Op& op : all_ops()) {
      if (!is_valid(op, type) || (op.function != Function::sum && op.function != Function::maxloc &&
                                  op.function != Function::lxor && op.function != Function::bxor))
        continue;
      Call call;
      call.type = type.handle;
      call.op = op.handle;
      call.count = 1000 + type.extent;
      call.salt = next_salt();
      calls.add(call);
      call.what = What::reduce_scatter_block;
      calls.add(call);
    }
  }
  calls.finish();
}

TEST_CASE("each count") {
  struct Pair {
    MPI_Datatype type;
    MPI_Op op;
    std::size_t most;
  };
  const Pair pairs[] = {
      {MPI_DOUBLE, MPI_SUM, 65537},          {MPI_SIGNED_CHAR, MPI_MIN, 65537}, {MPI_INT, MPI_BXOR, 4096},
      {MPI_C_DOUBLE_COMPLEX, MPI_SUM, 4096}, {MPI_SHORT, MPI_MAX, 255},         {MPI_FLOAT, MPI_PROD, 4096},
  };
  Calls calls;
  for (const std::size_t count : {0, 1, 2, 3, 7, 8, 255, 4096, 65537}) {
    alive(std::to_string(count) + " elements");
    for (const Pair& pair : pairs) {
      if (count > pair.most) continue;
      for (What what : all_kinds) {
        for (bool in_place : {false, true}) {
          if (in_place && (what == What::bcast || what == What::barrier)) continue;
          Call call;
          call.what = what;
          call.count = count;
          call.type = pair.type;
          call.op = pair.op;
          call.in_place = in_place;
          call.salt = next_salt();
          call.skew = call.salt % 2;
          call.root = static_cast<int>(call.salt % static_cast<std::size_t>(size()));
          calls.add(call);
        }
      }
      if (count > 4096) {
        calls.finish();
        calls.clear();
      }
    }
    calls.finish();
    calls.clear();
  }
}

TEST_CASE("each root") {
  Calls calls;
  for (const std::size_t count : {1, 100, 10000}) {
    for (What what : {What::bcast, What::reduce}) {
      Call call;
      call.what = what;
      call.count = count;
      call.type = MPI_DOUBLE;
      for (call.root = 0; call.root < size(); ++call.root) {
        for (call.in_place = false;; call.in_place = true) {
          call.salt = next_salt();
          calls.add(call);
          if (call.in_place || what == What::bcast) break;
        }
      }
    }
  }
  calls.finish();
}

TEST_CASE("more than a million elements") {
  NEEDS(size() <= 4, "takes much memory on many ranks");
  // Each call with one of them, and each of them with a call that sums up: to check all takes most of this test's time.
  const std::pair<MPI_Datatype, MPI_Op> pairs[] = {{MPI_DOUBLE, MPI_SUM}, {MPI_SHORT, MPI_MAX}, {MPI_INT, MPI_SUM}};
  std::size_t next = 0;
  for (What what :
       {What::allreduce, What::reduce, What::reduce_scatter_block, What::bcast, What::allgather, What::alltoall}) {
    alive(name(what));
    Call call;
    call.what = what;
    call.count = (1 << 20) + 3;
    std::tie(call.type, call.op) = pairs[next++ % std::size(pairs)];
    call.salt = next_salt();
    call.root = size() - 1;
    Calls calls;
    calls.add(call);
    calls.finish();
  }
}

TEST_CASE("a buffer that one call has filled is what the next sends") {
  const std::size_t n = static_cast<std::size_t>(size());
  const int count = 1000;
  const std::size_t bytes = count * sizeof(std::uint64_t);
  const Buffer parts(n * bytes), sums(bytes), all(n * bytes);
  std::vector<std::uint64_t> mine(n * count);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = mix(i * n + static_cast<std::size_t>(rank()));
  device().write(parts.data(), mine.data(), n * bytes);
  std::vector<std::uint64_t> wanted(n * count, 0);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    for (std::size_t r = 0; r < n; ++r) wanted[i] += mix(i * n + r);
  Stream stream;
  MPI_OK(MPIX_Reduce_scatter_block_stream(parts.data(), sums.data(), count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD,
                                          stream));
  MPI_OK(
      MPIX_Allgather_stream(sums.data(), count, MPI_UINT64_T, all.data(), count, MPI_UINT64_T, MPI_COMM_WORLD, stream));
  MPI_OK(MPIX_Allreduce_stream(parts.data(), sums.data(), count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, stream));
  MPI_OK(MPIX_Allreduce_stream(MPI_IN_PLACE, parts.data(), static_cast<int>(n) * count, MPI_UINT64_T, MPI_SUM,
                               MPI_COMM_WORLD, stream));
  stream.synchronize();
  CHECK(contents<std::uint64_t>(all.data(), n * count) == wanted);
  CHECK(contents<std::uint64_t>(parts.data(), n * count) == wanted);
  wanted.resize(count);
  CHECK(contents<std::uint64_t>(sums.data(), count) == wanted);
}
