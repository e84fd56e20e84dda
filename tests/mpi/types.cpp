// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Datatypes, counts and displacement units of MPI_Put in stream epochs.
#include <complex>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

/// An access and an exposure epoch of the ring around what `put` puts, and its end.
template <class Put>
void ring_epoch(MPI_Win win, Put put) {
  const Group to(right_of(rank()));
  const Group from(left_of(rank()));
  Stream stream;
  MPI_OK(MPIX_Win_post_stream(from, win, stream));
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, win));
  put(right_of(rank()));
  MPI_OK(MPIX_Win_complete_stream(win, stream));
  MPI_OK(MPIX_Win_wait_stream(win, stream));
  stream.synchronize();
  barrier();
}

template <class T>
void put_three(MPI_Datatype type) {
  Window window(Memory::device, 8 * sizeof(T), sizeof(T));
  T values[3];
  ring_data(rank(), 1).write(values, sizeof values);
  Buffer source(sizeof values);
  source.write(values, sizeof values);
  ring_epoch(window, [&](int to) { MPI_OK(MPI_Put(source.data(), 3, type, to, 2, 3, type, window)); });
  const std::vector<char> got = contents<char>(window.base(), window.bytes());
  CHECK(ring_data(left_of(rank()), 1).agrees(got.data() + 2 * sizeof(T), 3 * sizeof(T)) == 3 * sizeof(T));
  const auto zeros = [&](std::size_t from, std::size_t to) {
    return std::all_of(got.data() + from, got.data() + to, [](char c) { return c == 0; });
  };
  CHECK(zeros(0, 2 * sizeof(T)));
  CHECK(zeros(5 * sizeof(T), 8 * sizeof(T)));
}

/// A datatype of our own, committed.
class Type {
 public:
  template <class Make>
  explicit Type(Make make) {
    MPI_OK(make(&type_));
    MPI_OK(MPI_Type_commit(&type_));
  }
  ~Type() { MPI_Type_free(&type_); }
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;
  operator MPI_Datatype() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace

TEST_CASE("predefined datatypes") {
  put_three<char>(MPI_CHAR);
  put_three<unsigned char>(MPI_BYTE);
  put_three<short>(MPI_SHORT);
  put_three<int>(MPI_INT);
  put_three<long>(MPI_LONG);
  put_three<float>(MPI_FLOAT);
  put_three<double>(MPI_DOUBLE);
  put_three<long double>(MPI_LONG_DOUBLE);
  put_three<std::int64_t>(MPI_INT64_T);
  put_three<std::complex<double>>(MPI_CXX_DOUBLE_COMPLEX);
  put_three<MPI_Aint>(MPI_AINT);
  struct Pair {
    int value, index;
  };
  put_three<Pair>(MPI_2INT);
}

TEST_CASE("contiguous derived datatypes") {
  const Type five([](MPI_Datatype* t) { return MPI_Type_contiguous(5, MPI_INT, t); });
  const Type again([&](MPI_Datatype* t) { return MPI_Type_contiguous(2, five, t); });
  const Type same([&](MPI_Datatype* t) { return MPI_Type_dup(again, t); });
  const Type dense([](MPI_Datatype* t) { return MPI_Type_vector(5, 2, 2, MPI_INT, t); });
  for (const MPI_Datatype type : {MPI_Datatype(again), MPI_Datatype(same), MPI_Datatype(dense)}) {
    Window window(Memory::device, 100 * sizeof(int), sizeof(int));
    const Values<int> source(std::vector<int>(20, 7 + rank()));
    ring_epoch(window, [&](int to) { MPI_OK(MPI_Put(source.data(), 2, type, to, 10, 2, type, window)); });
    const std::vector<int> got = contents<int>(window.base(), 100);
    CHECK(std::count(got.begin(), got.end(), 7 + left_of(rank())) == 20);
    CHECK(got[9] == 0);
    CHECK(got[10] == 7 + left_of(rank()));
  }
}

// Other types at the two sides: what counts is the bytes.
TEST_CASE("origin and target datatypes may differ") {
  const Type four([](MPI_Datatype* t) { return MPI_Type_contiguous(4, MPI_INT, t); });
  Window window(Memory::unmapped, 64);
  const Values<int> source{1 + rank(), 2, 3, 4};
  ring_epoch(window, [&](int to) { MPI_OK(MPI_Put(source.data(), 4, MPI_INT, to, 0, 1, four, window)); });
  const std::vector<int> got = contents<int>(window.base(), 4);
  CHECK(got[0] == 1 + left_of(rank()));
  CHECK(got[3] == 4);
}

TEST_CASE("a datatype may be freed before the epoch ends") {
  Window window(Memory::device, 64);
  const Values<double> source{1.5, 2.5 + rank()};
  ring_epoch(window, [&](int to) {
    const Type two([](MPI_Datatype* t) { return MPI_Type_contiguous(2, MPI_DOUBLE, t); });
    MPI_OK(MPI_Put(source.data(), 1, two, to, 0, 1, two, window));
  });
  CHECK(contents<double>(window.base(), 2)[1] == 2.5 + left_of(rank()));
}

TEST_CASE("MPI_PROC_NULL and nothing") {
  Window window(Memory::device, 64, sizeof(int));
  const Values<int> values{9 + rank()};
  const int* value = values.as<int>();
  const Type empty([](MPI_Datatype* t) { return MPI_Type_contiguous(0, MPI_INT, t); });
  ring_epoch(window, [&](int to) {
    MPI_OK(MPI_Put(value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, window));
    MPI_OK(MPI_Put(value, 1, MPI_INT, MPI_PROC_NULL, 99999, 1, MPI_INT, window));
    MPI_OK(MPI_Put(nullptr, 0, MPI_INT, to, 0, 0, MPI_INT, window));
    MPI_OK(MPI_Put(value, 0, MPI_INT, to, 16, 0, MPI_INT, window));
    MPI_OK(MPI_Put(value, 7, empty, to, 0, 3, empty, window));
    MPI_OK(MPI_Put(value, 1, MPI_INT, to, 3, 1, MPI_INT, window));
  });
  const std::vector<int> got = contents<int>(window.base(), 16);
  CHECK(got[3] == 9 + left_of(rank()));
  CHECK(std::count(got.begin(), got.end(), 0) == 15);
  MPIX_Win_stats stats;
  MPI_OK(MPIX_Win_get_stats(window, &stats, sizeof stats));
  CHECK(stats.puts == 4);  // all but those to MPI_PROC_NULL
  CHECK(stats.bytes_mailbox + stats.bytes_direct + stats.bytes_network_eager + stats.bytes_network_direct ==
        sizeof(int));
}

TEST_CASE("operations to MPI_PROC_NULL are nothing") {
  Window window(Memory::device, 64);
  int value = 3, result = 4;
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  ring_epoch(window, [&](int) {
    const int null = MPI_PROC_NULL;
    MPI_OK(MPI_Get(&result, 1, MPI_INT, null, 0, 1, MPI_INT, window));
    MPI_OK(MPI_Accumulate(&value, 1, MPI_INT, null, 0, 1, MPI_INT, MPI_SUM, window));
    MPI_OK(MPI_Get_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, null, 0, 1, MPI_INT, MPI_SUM, window));
    MPI_OK(MPI_Fetch_and_op(&value, &result, MPI_INT, null, 0, MPI_SUM, window));
    MPI_OK(MPI_Compare_and_swap(&value, &value, &result, MPI_INT, null, 0, window));
    MPI_Request requests[4];
    MPI_OK(MPI_Rput(&value, 1, MPI_INT, null, 0, 1, MPI_INT, window, &requests[0]));
    MPI_OK(MPI_Rget(&result, 1, MPI_INT, null, 0, 1, MPI_INT, window, &requests[1]));
    MPI_OK(MPI_Raccumulate(&value, 1, MPI_INT, null, 0, 1, MPI_INT, MPI_SUM, window, &requests[2]));
    MPI_OK(MPI_Rget_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, null, 0, 1, MPI_INT, MPI_SUM, window,
                               &requests[3]));
    MPI_OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
  });
  CHECK(result == 4);
  CHECK(contents<char>(window.base(), 64) == std::vector<char>(64, '\0'));
}

TEST_CASE("epochs without a put, and of nobody") {
  Window window(Memory::device, 64);
  for (int k = 0; k < 3; ++k) ring_epoch(window, [](int) {});
  Stream stream;
  for (int k = 0; k < 3; ++k) {
    MPI_OK(MPIX_Win_post_stream(MPI_GROUP_EMPTY, window, stream));
    MPI_OK(MPI_Win_start(MPI_GROUP_EMPTY, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(nullptr, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, window));
    MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
  }
  stream.synchronize();
  CHECK(contents<char>(window.base(), 64) == std::vector<char>(64, '\0'));
}

TEST_CASE("displacement units differ from rank to rank") {
  const auto unit_of = [](int r) { return 1 + 3 * (r % 4); };  // 1, 4, 7, 10
  Window window(Memory::part, 500, unit_of(rank()));
  const Values<int> value{1234 + rank()};
  ring_epoch(window, [&](int to) { MPI_OK(MPI_Put(value.data(), 1, MPI_INT, to, 13, 1, MPI_INT, window)); });
  CHECK(contents<int>(window.base() + 13 * unit_of(rank()), 1)[0] == 1234 + left_of(rank()));
}

TEST_CASE("the whole of a window, and its last byte") {
  const auto bytes_of = [](int r) { return std::size_t(33 + 1000 * r); };
  Window window(Memory::device, bytes_of(rank()));
  const auto target_bytes = int(bytes_of(right_of(rank())));
  Buffer source(static_cast<std::size_t>(target_bytes));
  Buffer::set_now(source.data(), source.size(), 'a');
  ring_epoch(window, [&](int to) {
    MPI_OK(MPI_Put(source.data(), target_bytes, MPI_BYTE, to, 0, target_bytes, MPI_BYTE, window));
  });
  CHECK(contents<char>(window.base(), window.bytes()) == std::vector<char>(window.bytes(), 'a'));
  Buffer::set_now(source.data(), 1, 'b');
  ring_epoch(window,
             [&](int to) { MPI_OK(MPI_Put(source.data(), 1, MPI_BYTE, to, target_bytes - 1, 1, MPI_BYTE, window)); });
  CHECK(contents<char>(window.base() + window.bytes() - 1, 1)[0] == 'b');
}

TEST_CASE("very many puts in one epoch") {
  const int puts = spans_nodes() && goes_by_relay() ? 1000 : 5000;  // doc/limits.md
  Window window(Memory::device, std::size_t(puts) * sizeof(short), sizeof(short));
  const std::size_t count = std::size_t(puts);
  std::vector<short> numbers(count);
  for (int i = 0; i < puts; ++i) numbers[std::size_t(i)] = short(i + rank());
  const Values<short> source(numbers);
  for (int again = 0; again < 2; ++again)
    ring_epoch(window, [&](int to) {
      for (int i = puts - 1; i >= 0; --i)
        MPI_OK(MPI_Put(source.as<short>() + i, 1, MPI_SHORT, to, i, 1, MPI_SHORT, window));
    });
  const std::vector<short> got = contents<short>(window.base(), count);
  int right = 0;
  for (int i = 0; i < puts; ++i)
    if (got[std::size_t(i)] == short(i + left_of(rank()))) ++right;
  CHECK(right == puts);
}

#if MPI_VERSION >= 4
TEST_CASE("large-count forms") {
  MPI_Win win;
  char* base = nullptr;
  MPI_OK(MPI_Win_allocate_c(100000, 4, DeviceInfo(), MPI_COMM_WORLD, &base, &win));
  Buffer::set_now(base, 100000, '\0');
  barrier();
  MPI_OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
  const Values<int> source(std::vector<int>(25000, 3 + rank()));
  ring_epoch(win, [&](int to) {
    MPI_OK(MPI_Put_c(source.data(), MPI_Count{20000}, MPI_INT, to, 5000, MPI_Count{20000}, MPI_INT, win));
    const MPI_Count huge = MPI_Count{1} << 40;
    const int code = MPI_Put_c(source.data(), huge, MPI_INT, to, 0, huge, MPI_INT, win);
    INFO(error_text(code));
    CHECK(error_class(code) == MPI_ERR_RMA_RANGE);
    CHECK(error_text(code).find("MPI_Put_c") != std::string::npos);
  });
  std::vector<int> got = contents<int>(base, 25000);
  CHECK(std::count(got.begin(), got.begin() + 5000, 0) == 5000);
  CHECK(std::count(got.begin() + 5000, got.end(), 3 + left_of(rank())) == 20000);
  MPI_OK(MPI_Win_free(&win));

  const Buffer memory(16 * sizeof(int));
  MPI_OK(MPI_Win_create_c(memory.data(), 64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  barrier();
  ring_epoch(win, [&](int to) { MPI_OK(MPI_Put_c(source.data(), 2, MPI_INT, to, 1, 2, MPI_INT, win)); });
  got = contents<int>(memory.data(), 4);
  CHECK(got[1] == 3 + left_of(rank()));
  CHECK(got[2] == 3 + left_of(rank()));
  CHECK(got[3] == 0);
  MPI_OK(MPI_Win_free(&win));
}
#endif
