// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collectives on streams with types and operations of the program.
#include <cmath>

#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

class Contiguous {
 public:
  Contiguous(int count, MPI_Datatype of) {
    MPI_OK(MPI_Type_contiguous(count, of, &type_));
    MPI_OK(MPI_Type_commit(&type_));
  }
  ~Contiguous() { MPI_Type_free(&type_); }
  Contiguous(const Contiguous&) = delete;
  Contiguous& operator=(const Contiguous&) = delete;
  operator MPI_Datatype() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

constexpr int words = 12;

std::vector<int> words_of(int from, int to) {
  std::vector<int> all(words);
  for (int i = 0; i < words; ++i) all[static_cast<std::size_t>(i)] = 10000 * from + 100 * to + i;
  return all;
}
/// The words of all ranks, for `to`; to = -1: for each rank those for it, from `from`.
std::vector<int> all_words(int from, int to) {
  std::vector<int> all;
  for (int r = 0; r < size(); ++r) {
    const std::vector<int> some = to < 0 ? words_of(from, r) : words_of(r, to);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace

TEST_CASE("derived types that are contiguous") {
  const Contiguous three(3, MPI_INT), twelve(2, Contiguous(2, three)), bytes(4, MPI_BYTE);
  const struct {
    MPI_Datatype type;
    int count;
  } ways[] = {{MPI_INT, 12}, {three, 4}, {twelve, 1}, {bytes, 12}, {MPI_BYTE, 48}};
  Stream stream;
  for (const auto& sent : ways) {
    for (const auto& received : ways) {
      const Values<int> one(words_of(rank(), 0)), each(all_words(rank(), -1));
      const Buffer gathered(each.size()), turned(each.size());
      const Values<int> told(words_of(rank(), 7));
      MPI_OK(MPIX_Allgather_stream(one.data(), sent.count, sent.type, gathered.data(), received.count, received.type,
                                   MPI_COMM_WORLD, stream));
      MPI_OK(MPIX_Alltoall_stream(each.data(), sent.count, sent.type, turned.data(), received.count, received.type,
                                  MPI_COMM_WORLD, stream));
      MPI_OK(MPIX_Bcast_stream(told.data(), sent.count, sent.type, size() - 1, MPI_COMM_WORLD, stream));
      stream.synchronize();
      CHECK(contents<int>(gathered.data(), gathered.size() / sizeof(int)) == all_words(0, 0));
      CHECK(contents<int>(turned.data(), turned.size() / sizeof(int)) == all_words(0, rank()));
      CHECK(contents<int>(told.data(), words) == words_of(size() - 1, 7));
    }
  }
}

// MPI demands that the types have one signature, not that they are one.
TEST_CASE("ranks that describe the same data by different types") {
  NEEDS_RANKS(2);
  const Contiguous three(3, MPI_INT);
  const bool odd = rank() % 2 == 1;
  const MPI_Datatype type = odd ? static_cast<MPI_Datatype>(three) : MPI_INT;
  const int count = odd ? words / 3 : words;
  const Values<int> told(words_of(rank(), 7)), each(all_words(rank(), -1));
  const Buffer turned(each.size());
  Stream stream;
  MPI_OK(MPIX_Bcast_stream(told.data(), count, type, 1, MPI_COMM_WORLD, stream));
  MPI_OK(MPIX_Alltoall_stream(each.data(), count, type, turned.data(), count, type, MPI_COMM_WORLD, stream));
  stream.synchronize();
  CHECK(contents<int>(told.data(), words) == words_of(1, 7));
  CHECK(contents<int>(turned.data(), turned.size() / sizeof(int)) == all_words(0, rank()));
}

// ---- operations of the program ----------------------------------------------------------------------

namespace {

int wrong_types = 0;

/// Neither commutative nor associative: it shows the order of all operands.
extern "C" void append(void* in, void* inout, int* count, MPI_Datatype* type) {
  if (*type != MPI_UINT64_T) ++wrong_types;
  const auto* left = static_cast<const std::uint64_t*>(in);
  auto* right = static_cast<std::uint64_t*>(inout);
  for (int i = 0; i < *count; ++i) right[i] = left[i] * 31 + right[i];
}

extern "C" void larger(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* left = static_cast<const double*>(in);
  auto* right = static_cast<double*>(inout);
  for (int i = 0; i < *count; ++i) right[i] = std::fmax(left[i], right[i]);
}

}  // namespace

TEST_CASE("operations of MPI_Op_create") {
  NEEDS(device().is_host(), "run on host streams");
  const auto n = static_cast<std::size_t>(size());
  MPI_Op in_order, any_order;
  MPI_OK(MPI_Op_create(append, 0, &in_order));
  MPI_OK(MPI_Op_create(larger, 1, &any_order));
  Stream stream;
  for (const std::size_t count : {1, 5, 300, 20000}) {
    const auto input = [&](std::size_t r, std::size_t i) { return mix(r * 1000003 + i); };
    std::vector<std::uint64_t> mine(count * n), appended(count * n);
    std::vector<double> real(count), largest(count);
    for (std::size_t i = 0; i < count * n; ++i) {
      mine[i] = input(static_cast<std::size_t>(rank()), i);
      appended[i] = input(0, i);
      for (std::size_t r = 1; r < n; ++r) appended[i] = appended[i] * 31 + input(r, i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      real[i] = static_cast<double>(mine[i]);
      for (std::size_t r = 0; r < n; ++r) largest[i] = std::fmax(largest[i], static_cast<double>(input(r, i)));
    }
    const Values<std::uint64_t> send(mine), in_place(mine);
    const Values<double> reals(real);
    const Buffer all(8 * count), part(8 * count), at_root(8 * count), most(8 * count);
    const int number = static_cast<int>(count), root = size() - 1;
    MPI_OK(MPIX_Allreduce_stream(send.data(), all.data(), number, MPI_UINT64_T, in_order, MPI_COMM_WORLD, stream));
    MPI_OK(MPIX_Allreduce_stream(reals.data(), most.data(), number, MPI_DOUBLE, any_order, MPI_COMM_WORLD, stream));
    MPI_OK(MPIX_Reduce_stream(send.data(), rank() == root ? at_root.data() : nullptr, number, MPI_UINT64_T, in_order,
                              root, MPI_COMM_WORLD, stream));
    MPI_OK(MPIX_Reduce_scatter_block_stream(send.data(), part.data(), number, MPI_UINT64_T, in_order, MPI_COMM_WORLD,
                                            stream));
    MPI_OK(MPIX_Allreduce_stream(MPI_IN_PLACE, in_place.data(), number * size(), MPI_UINT64_T, in_order, MPI_COMM_WORLD,
                                 stream));
    stream.synchronize();
    CHECK(contents<double>(most.data(), count) == largest);
    CHECK(contents<std::uint64_t>(in_place.data(), count * n) == appended);
    CHECK(contents<std::uint64_t>(send.data(), count * n) == mine);
    const auto* first = appended.data() + static_cast<std::size_t>(rank()) * count;
    CHECK(contents<std::uint64_t>(part.data(), count) == std::vector<std::uint64_t>(first, first + count));
    appended.resize(count);
    CHECK(contents<std::uint64_t>(all.data(), count) == appended);
    if (rank() == root) CHECK(contents<std::uint64_t>(at_root.data(), count) == appended);
  }
  CHECK(wrong_types == 0);
  MPI_OK(MPI_Op_free(&in_order));
  MPI_OK(MPI_Op_free(&any_order));
}
