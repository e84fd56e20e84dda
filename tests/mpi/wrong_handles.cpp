// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What MPI says to window handles that are none: a line for each call, with how often an error handler was called, and
// with which error class. The program knows nothing of libmpix: tests/mpi/preload.sh compares the lines with those of a
// run under LD_PRELOAD=libmpix.so.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

namespace {

int calls = 0;
int class_seen = MPI_SUCCESS;

int class_of(int code) {
  int found = MPI_SUCCESS;
  MPI_Error_class(code, &found);
  return found;
}

extern "C" void note_of_comm(MPI_Comm*, int* code, ...) {
  ++calls;
  class_seen = class_of(*code);
}
extern "C" void note_of_win(MPI_Win*, int* code, ...) {
  ++calls;
  class_seen = class_of(*code);
}

struct Call {
  const char* name;
  std::function<int(MPI_Win)> make;
};

int value = 0, result = 0, flag = 0, length = 0;
void* attribute = nullptr;
char name[MPI_MAX_OBJECT_NAME] = "name";
MPI_Request request = MPI_REQUEST_NULL;

const std::vector<Call> all_calls = {
    {"MPI_Win_start", [](MPI_Win win) { return MPI_Win_start(MPI_GROUP_EMPTY, 0, win); }},
    {"MPI_Win_complete", [](MPI_Win win) { return MPI_Win_complete(win); }},
    {"MPI_Win_post", [](MPI_Win win) { return MPI_Win_post(MPI_GROUP_EMPTY, 0, win); }},
    {"MPI_Win_wait", [](MPI_Win win) { return MPI_Win_wait(win); }},
    {"MPI_Win_test", [](MPI_Win win) { return MPI_Win_test(win, &flag); }},
    {"MPI_Win_fence", [](MPI_Win win) { return MPI_Win_fence(0, win); }},
    {"MPI_Win_lock", [](MPI_Win win) { return MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win); }},
    {"MPI_Win_unlock", [](MPI_Win win) { return MPI_Win_unlock(0, win); }},
    {"MPI_Win_lock_all", [](MPI_Win win) { return MPI_Win_lock_all(0, win); }},
    {"MPI_Win_unlock_all", [](MPI_Win win) { return MPI_Win_unlock_all(win); }},
    {"MPI_Win_flush", [](MPI_Win win) { return MPI_Win_flush(0, win); }},
    {"MPI_Win_flush_all", [](MPI_Win win) { return MPI_Win_flush_all(win); }},
    {"MPI_Win_flush_local", [](MPI_Win win) { return MPI_Win_flush_local(0, win); }},
    {"MPI_Win_flush_local_all", [](MPI_Win win) { return MPI_Win_flush_local_all(win); }},
    {"MPI_Win_set_name", [](MPI_Win win) { return MPI_Win_set_name(win, name); }},
    {"MPI_Win_get_name", [](MPI_Win win) { return MPI_Win_get_name(win, name, &length); }},
    {"MPI_Win_get_attr size", [](MPI_Win win) { return MPI_Win_get_attr(win, MPI_WIN_SIZE, &attribute, &flag); }},
    {"MPI_Win_get_attr flavour",
     [](MPI_Win win) { return MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &attribute, &flag); }},
    {"MPI_Put", [](MPI_Win win) { return MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win); }},
    {"MPI_Get", [](MPI_Win win) { return MPI_Get(&result, 1, MPI_INT, 0, 0, 1, MPI_INT, win); }},
    {"MPI_Accumulate", [](MPI_Win win) { return MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win); }},
    {"MPI_Get_accumulate",
     [](MPI_Win win) {
       return MPI_Get_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
     }},
    {"MPI_Fetch_and_op", [](MPI_Win win) { return MPI_Fetch_and_op(&value, &result, MPI_INT, 0, 0, MPI_SUM, win); }},
    {"MPI_Compare_and_swap",
     [](MPI_Win win) { return MPI_Compare_and_swap(&value, &value, &result, MPI_INT, 0, 0, win); }},
    {"MPI_Rput", [](MPI_Win win) { return MPI_Rput(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request); }},
    {"MPI_Rget", [](MPI_Win win) { return MPI_Rget(&result, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request); }},
    {"MPI_Raccumulate",
     [](MPI_Win win) { return MPI_Raccumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win, &request); }},
    {"MPI_Rget_accumulate",
     [](MPI_Win win) {
       return MPI_Rget_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win, &request);
     }},
    {"MPI_Win_free", [](MPI_Win win) { return MPI_Win_free(&win); }},
};

/// As no MPI ever made it (Open MPI, whose handles are pointers, looks at what it points to: not there); and null. What
/// was freed may end a program in either MPI.
std::vector<MPI_Win> wrong_handles() {
#ifdef OPEN_MPI
  return {nullptr, MPI_WIN_NULL};
#else
  MPI_Win strange;
  std::memcpy(&strange, "abcdefgh", sizeof strange);
  return {strange, MPI_WIN_NULL};
#endif
}

}  // namespace

int main(int argc, char* argv[]) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Errhandler of_comm, of_win;
  MPI_Comm_create_errhandler(note_of_comm, &of_comm);
  MPI_Win_create_errhandler(note_of_win, &of_win);
  int memory = 0;
  MPI_Win alive;
  MPI_Win_create(&memory, sizeof memory, sizeof memory, MPI_INFO_NULL, MPI_COMM_WORLD, &alive);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, of_comm);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, of_comm);
  MPI_Win_set_errhandler(alive, of_win);

  const std::vector<MPI_Win> wrong = wrong_handles();
  for (std::size_t kind = 0; kind < wrong.size(); ++kind)
    for (const Call& call : all_calls) {
      calls = 0;
      class_seen = MPI_SUCCESS;
      const int code = call.make(wrong[kind]);
      if (rank == 0)
        std::printf("handle %d, %s: handler called %d times, class %d, returned %d\n", static_cast<int>(kind),
                    call.name, calls, class_seen, class_of(code));
    }
  // The other window is what it was.
  MPI_Win_fence(0, alive);
  MPI_Win_free(&alive);
  MPI_Errhandler_free(&of_comm);
  MPI_Errhandler_free(&of_win);
  MPI_Finalize();
  return 0;
}
