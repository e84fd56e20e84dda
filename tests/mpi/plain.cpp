// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// An ordinary program with one-sided communication, which knows nothing of libmpix and is not
// linked with it. Prints a line for each part, with a checksum over all ranks: tests/mpi/preload.sh
// compares the lines with those of a run under LD_PRELOAD=libmpix.so.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

int rank = 0;
int size = 1;

int right() { return (rank + 1) % size; }
int left() { return (rank + size - 1) % size; }

void require(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::fprintf(stderr, "rank %d: %s: %s\n", rank, call, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MPI(call) require((call), #call)

/// Sums up what a rank has seen.
class Checksum {
 public:
  template <class T>
  void add(const T& value) {
    add(&value, sizeof value);
  }
  void add(const void* data, std::size_t bytes) {
    const auto* byte = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) sum_ = (sum_ ^ byte[i]) * 1099511628211u;
  }
  void add_text(const std::string& text) { add(text.data(), text.size()); }

  void print(const char* part) const {
    const std::uint64_t mine = sum_ * (2 * static_cast<std::uint64_t>(rank) + 1);
    std::uint64_t all = 0;
    MPI(MPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD));
    if (rank == 0) std::printf("%-12s %016llx\n", part, static_cast<unsigned long long>(all));
  }

 private:
  std::uint64_t sum_ = 14695981039346656037u;
};

constexpr int words = 1000;

struct Window {
  explicit Window(int kind) {
    const MPI_Aint bytes = words * sizeof(int);
    if (kind == 0) {
      heap.resize(words);
      base = heap.data();
      MPI(MPI_Win_create(base, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    } else if (kind == 1) {
      MPI(MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    } else {
      MPI(MPI_Win_allocate_shared(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    }
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
    for (int i = 0; i < words; ++i) base[i] = 1000 * rank + i;
    MPI(MPI_Win_unlock(rank, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  ~Window() { MPI(MPI_Win_free(&win)); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  std::vector<int> heap;
  int* base = nullptr;
  MPI_Win win = MPI_WIN_NULL;
};

std::vector<int> numbers(int first) {
  std::vector<int> all(words);
  for (int i = 0; i < words; ++i) all[static_cast<std::size_t>(i)] = first + 7 * i;
  return all;
}

void fence(Window& window, Checksum& sum) {
  std::vector<int> out = numbers(rank);
  std::vector<int> in(words);
  MPI_Datatype strided;
  MPI(MPI_Type_vector(20, 1, 3, MPI_INT, &strided));
  MPI(MPI_Type_commit(&strided));
  MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window.win));
  MPI(MPI_Put(out.data(), 100, MPI_INT, right(), 0, 100, MPI_INT, window.win));
  MPI(MPI_Put(out.data(), 1, strided, right(), 100, 1, strided, window.win));
  MPI(MPI_Get(in.data(), 100, MPI_INT, left(), 500, 100, MPI_INT, window.win));
  MPI(MPI_Win_fence(0, window.win));
  MPI(MPI_Accumulate(out.data(), 50, MPI_INT, 0, 600, 50, MPI_INT, MPI_SUM, window.win));
  MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window.win));
  MPI(MPI_Type_free(&strided));
  sum.add(in.data(), 100 * sizeof(int));
  sum.add(window.base, words * sizeof(int));
}

void post_start_complete_wait(Window& window, Checksum& sum) {
  std::vector<int> out = numbers(3 * rank);
  MPI_Group world, to, from;
  const int right_rank = right();
  const int left_rank = left();
  MPI(MPI_Win_get_group(window.win, &world));
  MPI(MPI_Group_incl(world, 1, &right_rank, &to));
  MPI(MPI_Group_incl(world, 1, &left_rank, &from));
  for (int k = 0; k < 5; ++k) {
    MPI(MPI_Win_post(from, 0, window.win));
    MPI(MPI_Win_start(to, 0, window.win));
    MPI(MPI_Put(out.data() + k, 200, MPI_INT, right(), 10 * k, 200, MPI_INT, window.win));
    MPI(MPI_Put(out.data(), 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, window.win));
    MPI(MPI_Win_complete(window.win));
    if (k % 2 == 0) {
      MPI(MPI_Win_wait(window.win));
    } else {
      int done = 0;
      while (!done) MPI(MPI_Win_test(window.win, &done));
    }
    sum.add(window.base, words * sizeof(int));
  }
  MPI(MPI_Group_free(&to));
  MPI(MPI_Group_free(&from));
  MPI(MPI_Group_free(&world));
}

void passive(Window& window, Checksum& sum) {
  std::vector<int> out = numbers(5 * rank);
  std::vector<int> in(words);
  std::vector<int> before(words);
  MPI(MPI_Barrier(MPI_COMM_WORLD));
  MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, window.win));
  MPI(MPI_Put(out.data(), 30, MPI_INT, right(), 0, 30, MPI_INT, window.win));
  MPI(MPI_Win_flush(right(), window.win));
  MPI(MPI_Get(in.data(), 30, MPI_INT, right(), 0, 30, MPI_INT, window.win));
  MPI(MPI_Win_flush_local(right(), window.win));
  MPI(MPI_Win_unlock(right(), window.win));
  sum.add(in.data(), 30 * sizeof(int));

  MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window.win));
  MPI_Request requests[4];
  MPI(MPI_Rput(out.data(), 40, MPI_INT, right(), 100, 40, MPI_INT, window.win, &requests[0]));
  MPI(MPI_Rget(in.data() + 100, 40, MPI_INT, right(), 200, 40, MPI_INT, window.win, &requests[1]));
  MPI(MPI_Raccumulate(out.data(), 40, MPI_INT, right(), 300, 40, MPI_INT, MPI_SUM, window.win, &requests[2]));
  MPI(MPI_Rget_accumulate(out.data(), 40, MPI_INT, before.data(), 40, MPI_INT, right(), 400, 40, MPI_INT, MPI_SUM,
                          window.win, &requests[3]));
  MPI(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
  MPI(MPI_Get_accumulate(out.data(), 40, MPI_INT, before.data() + 40, 40, MPI_INT, right(), 500, 40, MPI_INT,
                         MPI_REPLACE, window.win));
  int one = 1;
  int expected = 1000 * right() + 700;
  int mine = 4242 + rank;
  int swapped = 0;
  MPI(MPI_Compare_and_swap(&mine, &expected, &swapped, MPI_INT, right(), 700, window.win));
  for (int i = 0; i < 10; ++i) {
    int ignored = 0;
    MPI(MPI_Fetch_and_op(&one, &ignored, MPI_INT, 0, 800, MPI_SUM, window.win));
    MPI(MPI_Win_flush_local_all(window.win));
  }
  MPI(MPI_Win_flush_all(window.win));
  MPI(MPI_Win_sync(window.win));
  MPI(MPI_Win_unlock_all(window.win));
  MPI(MPI_Barrier(MPI_COMM_WORLD));
  sum.add(in.data() + 100, 40 * sizeof(int));
  sum.add(before.data(), 80 * sizeof(int));
  sum.add(swapped);
  MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.win));
  sum.add(window.base, words * sizeof(int));
  MPI(MPI_Win_unlock(rank, window.win));
}

template <class T>
T attribute(MPI_Win win, int key) {
  T* value = nullptr;
  int found = 0;
  MPI(MPI_Win_get_attr(win, key, &value, &found));
  return found ? *value : T(-1);
}

int copied_attributes = 0;
int delete_attribute(MPI_Win, int, void*, void*) {
  ++copied_attributes;
  return MPI_SUCCESS;
}

void queries(Window& window, Checksum& sum) {
  sum.add(attribute<MPI_Aint>(window.win, MPI_WIN_SIZE));
  sum.add(attribute<int>(window.win, MPI_WIN_DISP_UNIT));
  sum.add(attribute<int>(window.win, MPI_WIN_CREATE_FLAVOR));
  sum.add(attribute<int>(window.win, MPI_WIN_MODEL));
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  MPI(MPI_Win_get_name(window.win, name, &length));
  sum.add_text(name);
  MPI(MPI_Win_set_name(window.win, "a window"));
  MPI(MPI_Win_get_name(window.win, name, &length));
  sum.add_text(name);
  int key = MPI_KEYVAL_INVALID;
  MPI(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_attribute, &key, nullptr));
  MPI(MPI_Win_set_attr(window.win, key, name));
  MPI(MPI_Win_delete_attr(window.win, key));
  MPI(MPI_Win_free_keyval(&key));
  sum.add(copied_attributes);
}

/// What MPI says to wrong calls.
void errors(Window& window, Checksum& sum) {
  MPI(MPI_Win_set_errhandler(window.win, MPI_ERRORS_RETURN));
  const auto note = [&](int code) {
    int of_code = 0;
    MPI_Error_class(code, &of_code);
    sum.add(of_code);
  };
  int value = 0;
  MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.win));
  note(MPI_Put(&value, 1, MPI_INT, size + 3, 0, 1, MPI_INT, window.win));
  note(MPI_Put(&value, -1, MPI_INT, 0, 0, 1, MPI_INT, window.win));
  note(MPI_Get(&value, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT, window.win));
  MPI(MPI_Win_unlock(0, window.win));
  note(MPI_Win_complete(window.win));
  note(MPI_Win_wait(window.win));
  note(MPI_Win_lock(MPI_LOCK_SHARED, -5, 0, window.win));
}

void dynamic(Checksum& sum) {
  MPI_Win win;
  std::vector<int> memory = numbers(rank);
  MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  MPI(MPI_Win_attach(win, memory.data(), words * sizeof(int)));
  MPI_Aint mine, theirs;
  MPI(MPI_Get_address(memory.data(), &mine));
  MPI(MPI_Sendrecv(&mine, 1, MPI_AINT, left(), 0, &theirs, 1, MPI_AINT, right(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  std::vector<int> out = numbers(9 * rank);
  MPI(MPI_Win_fence(0, win));
  MPI(MPI_Put(out.data(), 100, MPI_INT, right(), theirs, 100, MPI_INT, win));
  MPI(MPI_Win_fence(0, win));
  sum.add(memory.data(), words * sizeof(int));
  MPI(MPI_Win_detach(win, memory.data()));
  MPI(MPI_Win_free(&win));
}

void memory(Checksum& sum) {
  for (int i = 0; i < 10; ++i) {
    char* base = nullptr;
    MPI(MPI_Alloc_mem(1000 * (i + 1), MPI_INFO_NULL, &base));
    for (int k = 0; k < 1000; ++k) base[k] = static_cast<char>(k + i);
    sum.add(base, 1000);
    MPI(MPI_Free_mem(base));
  }
}

template <class Part>
void run(const char* name, int kind, Part part) {
  Checksum sum;
  {
    Window window(kind);
    part(window, sum);
  }
  sum.print((std::string(name) + "/" + std::to_string(kind)).c_str());
}

}  // namespace

int main(int argc, char* argv[]) {
  MPI(MPI_Init(&argc, &argv));
  MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  for (int kind = 0; kind < 3; ++kind) {
    run("fence", kind, fence);
    run("pscw", kind, post_start_complete_wait);
    run("passive", kind, passive);
    run("queries", kind, queries);
    run("errors", kind, errors);
  }
  Checksum of_dynamic, of_memory;
  dynamic(of_dynamic);
  of_dynamic.print("dynamic");
  memory(of_memory);
  of_memory.print("memory");
  MPI(MPI_Finalize());
  return 0;
}
