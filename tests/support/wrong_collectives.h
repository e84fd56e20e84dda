// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/collective_calls.h"

/// Wrong calls of collectives on streams, each between right ones.
namespace test {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Seen {
  int calls = 0;
  MPI_Comm comm = MPI_COMM_NULL;
  int code = MPI_SUCCESS;
};
inline Seen seen;

extern "C" inline void note_collective_error(MPI_Comm* comm, int* code, ...) {
  ++seen.calls;
  seen.comm = *comm;
  seen.code = *code;
}

/// What the wrong calls need: a communicator that notes errors, and buffers.
struct Bench {
  Bench() : comm(Comm::duplicate()), a(4096), b(4096) {
    MPI_OK(MPI_Comm_create_errhandler(note_collective_error, &handler));
    MPI_OK(MPI_Comm_set_errhandler(comm, handler));
  }
  ~Bench() { MPI_Errhandler_free(&handler); }

  const Comm comm;
  const Buffer a, b;
  Stream stream;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  int flag = 0;
  void* send() const { return a.data(); }
  void* recv() const { return b.data(); }
};

struct WrongCall {
  std::string what;
  int error_class;
  const char* call;  ///< named in the text
  std::function<int(Bench&)> make;
};

inline void check_error(int code, const WrongCall& wrong) {
  const std::string text = error_text(code), call = wrong.call;
  INFO(wrong.what << ": " << text);
  CHECK(error_class(code) == wrong.error_class);
  CHECK(contains(text, call));
  CHECK_FALSE(contains(text, call + ": " + call));
  CHECK(text.size() > call.size() + 10);  // and says why
}

inline void try_out(Bench& bench, const WrongCall& wrong) {
  seen = Seen{};
  const int code = wrong.make(bench);
  check_error(code, wrong);
  INFO(wrong.what);
  CHECK(seen.calls == 1);
  CHECK(seen.comm == bench.comm);
  CHECK(seen.code == code);
}

/// Right calls go on between the wrong ones: of all ranks, and then of one alone.
inline void try_out_all(const std::vector<WrongCall>& wrong_calls) {
  Bench bench;
  MPI_OK(MPIX_Comm_prepare_stream(bench.comm, MPI_INFO_NULL));
  Sequence right(bench.comm, 77, 200);
  right.enqueue(bench.stream);
  for (const WrongCall& wrong : wrong_calls) {
    alive(wrong.what);
    try_out(bench, wrong);
    right.enqueue(bench.stream);
  }
  int turn = 0;
  for (const WrongCall& wrong : wrong_calls) {
    if (turn++ % size() == rank()) try_out(bench, wrong);
    right.enqueue(bench.stream);
  }
  bench.stream.synchronize();
  right.check();
  MPIX_Comm_stats stats{};
  MPI_OK(MPIX_Comm_get_stats(bench.comm, &stats, sizeof stats));
  CHECK(stats.calls == 1 + 2 * wrong_calls.size());
}

/// A call of each kind, with what differs.
inline WrongCall wrong(What what, const std::string& how, int error_class, Call call,
                       std::function<void(Bench&, const void*&, void*&)> change = {}) {
  call.what = what;
  return {std::string(name(what)) + ", " + how, error_class, name(what), [=](Bench& bench) {
            const void* send = bench.send();
            void* recv = bench.recv();
            if (change) change(bench, send, recv);
            return enqueue(call, send, recv, bench.comm, bench.stream);
          }};
}

inline Call call_of(int count, MPI_Datatype type = MPI_INT, MPI_Op op = MPI_SUM) {
  Call call;
  call.count = static_cast<std::size_t>(count);
  call.type = type;
  call.op = op;
  return call;
}

}  // namespace test
