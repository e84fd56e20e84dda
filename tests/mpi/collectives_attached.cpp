// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collectives on streams, in memory that the communicator has attached: on all ranks, on some, on one side.
#include <functional>
#include <memory>

#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

class ErrorsReturn : public Comm {
 public:
  ErrorsReturn() : Comm(Comm::duplicate()) { MPI_OK(MPI_Comm_set_errhandler(*this, MPI_ERRORS_RETURN)); }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_error(int code, int wanted, const char* call) {
  INFO(error_text(code));
  CHECK(error_class(code) == wanted);
  CHECK(contains(error_text(code), call));
}

/// The calls that a test case makes: all kinds, small and large.
std::vector<Call> all_calls(std::uint64_t salt) {
  std::vector<Call> calls;
  for (const std::size_t count : {1, 100, 3000, 40000}) {
    for (What what : all_kinds) {
      for (bool in_place : {false, true}) {
        if (in_place && (what == What::bcast || what == What::barrier)) continue;
        Call call;
        call.what = what;
        call.count = count;
        call.type = calls.size() % 2 ? MPI_FLOAT : MPI_INT64_T;
        call.in_place = in_place;
        call.salt = salt * 1000 + calls.size();
        call.root = static_cast<int>(call.salt % static_cast<std::size_t>(size()));
        call.skew = call.salt / 7 % 2;
        calls.push_back(call);
      }
    }
  }
  return calls;
}

struct Sides {
  bool send, recv;
};

/// Every call, where each rank says which sides lie in attached memory.
void run_all(std::uint64_t salt, const std::function<Sides(std::size_t call)>& attached) {
  const Comm comm(Comm::duplicate());
  const std::size_t most = 40000 * 8 * static_cast<std::size_t>(size()) + 4096;
  const Buffer sent(most, Kind::mapped), received(most, Kind::mapped);
  MPI_OK(MPIX_Comm_attach(comm, sent.data(), static_cast<MPI_Aint>(most)));
  MPI_OK(MPIX_Comm_attach(comm, received.data(), static_cast<MPI_Aint>(most)));
  Stream stream;
  std::size_t number = 0;
  for (const Call& call : all_calls(salt)) {
    alive(describe(call));
    const Sides sides = attached(number++);
    Trial trial(call, rank(), size(), Kind::unmapped, sides.send ? sent.data() : nullptr,
                sides.recv ? received.data() : nullptr);
    MPI_OK(trial.make(comm, stream));
    stream.synchronize();
    trial.check(std::string(sides.send ? "send attached, " : "") + (sides.recv ? "recv attached" : ""));
  }
  MPI_OK(MPIX_Comm_detach(comm, received.data()));
  MPI_OK(MPIX_Comm_detach(comm, sent.data()));
}

}  // namespace

TEST_CASE("attached on all ranks") {
  run_all(1, [](std::size_t) { return Sides{true, true}; });
}

TEST_CASE("attached on some ranks") {
  run_all(2, [](std::size_t call) {
    const bool here = (call + static_cast<std::size_t>(rank())) % 2 == 0;
    return Sides{here, here};
  });
}

TEST_CASE("attached on one side") {
  run_all(3, [](std::size_t) { return Sides{true, false}; });
  run_all(4, [](std::size_t) { return Sides{false, true}; });
  run_all(5, [](std::size_t call) { return Sides{(call + static_cast<std::size_t>(rank())) % 3 == 0, rank() == 0}; });
}

TEST_CASE("ranks that attach nothing") {
  const Comm comm(Comm::duplicate());
  const std::size_t bytes = rank() == 0 ? 0 : 100000 * static_cast<std::size_t>(rank());
  const Buffer memory(100000 * static_cast<std::size_t>(size()), Kind::mapped);
  void* const base = bytes ? memory.data() : nullptr;
  MPI_OK(MPIX_Comm_attach(comm, base, static_cast<MPI_Aint>(bytes)));
  Sequence sequence(comm, 5, 3000);
  Stream stream;
  for (int i = 0; i < 30; ++i) sequence.enqueue(stream);
  Call call;
  call.count = 8000;
  call.what = What::allgather;
  Trial trial(call, rank(), size(), Kind::unmapped, bytes > 40000 ? memory.data() : nullptr);
  MPI_OK(trial.make(comm, stream));
  stream.synchronize();
  sequence.check();
  trial.check();
  MPI_OK(MPIX_Comm_detach(comm, base));
}

// What is enqueued uses what was attached when it was enqueued; the same memory may be attached again.
TEST_CASE("attached and detached again and again") {
  const Comm comm(Comm::duplicate());
  const std::size_t bytes = 100000;
  const Buffer memory(2 * bytes, Kind::mapped);
  Stream stream;
  for (int turn = 0; turn < scaled(100); ++turn) {
    alive("turn " + std::to_string(turn));
    char* const base = memory.data() + (turn % 3 == 0 ? bytes / 2 : 0);
    MPI_OK(MPIX_Comm_attach(comm, base, static_cast<MPI_Aint>(bytes)));
    Call call;
    call.what = all_kinds[1 + turn % 6];
    call.count = turn % 2 ? 10 : 9000 / static_cast<std::size_t>(size());
    call.salt = static_cast<std::uint64_t>(turn);
    Trial attached(call, rank(), size(), Kind::unmapped, base, base + bytes / 2), other(call, rank(), size());
    MPI_OK(attached.make(comm, stream));
    MPI_OK(other.make(comm, stream));
    MPI_OK(MPIX_Comm_detach(comm, base));  // waits for both
    attached.check("attached, turn " + std::to_string(turn));
    MPI_OK(attached.make(comm, stream));  // not attached any more
    stream.synchronize();
    other.check();
    attached.check("detached, turn " + std::to_string(turn));
  }
}

TEST_CASE("a detach waits for what is enqueued") {
  const Comm comm(Comm::duplicate());
  const std::size_t bytes = 400000 * static_cast<std::size_t>(size());
  const Buffer memory(2 * bytes, Kind::mapped);
  MPI_OK(MPIX_Comm_attach(comm, memory.data(), static_cast<MPI_Aint>(2 * bytes)));
  Call call;
  call.what = What::alltoall;
  call.count = 90000;
  Trial trial(call, rank(), size(), Kind::unmapped, memory.data(), memory.data() + bytes);
  Stream stream;
  if (rank() == 0) stream.delay(100000);
  MPI_OK(trial.make(comm, stream));
  MPI_OK(MPIX_Comm_detach(comm, memory.data()));
  trial.check("after the detach");
  stream.synchronize();
}

TEST_CASE("a communicator that is freed with memory attached") {
  const Buffer memory(100000, Kind::mapped);
  for (int turn = 0; turn < 5; ++turn) {
    MPI_Comm comm = Comm::duplicate();
    MPI_OK(MPIX_Comm_attach(comm, memory.data(), 100000));
    Call call;
    call.count = 10000;
    call.salt = static_cast<std::uint64_t>(turn);
    Trial trial(call, rank(), size(), Kind::unmapped, memory.data(), memory.data() + 50000);
    Stream stream;
    MPI_OK(trial.make(comm, stream));
    MPI_OK(MPI_Comm_free(&comm));
    stream.synchronize();
    trial.check();
  }
}

TEST_CASE("memory that is freed while it is attached") {
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const Comm comm(Comm::duplicate());
  MPI_OK(MPI_Comm_set_name(comm, "halves"));
  MPI_Info info;
  MPI_OK(MPI_Info_create(&info));
  MPI_OK(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"));
  char* memory = nullptr;
  MPI_OK(MPI_Alloc_mem(100000, info, &memory));
  MPI_OK(MPI_Info_free(&info));
  MPI_OK(MPIX_Comm_attach(comm, memory + 50000, 50000));
  const int code = MPI_Free_mem(memory);
  check_error(code, MPI_ERR_RMA_ATTACH, "MPI_Free_mem");
  CHECK(contains(error_text(code), "attached to the communicator 'halves'"));
  MPI_OK(MPIX_Comm_detach(comm, memory + 50000));
  MPI_OK(MPI_Free_mem(memory));
}

TEST_CASE("the same memory, attached to two communicators") {
  const Comm one(Comm::duplicate()), other(Comm::split(0, -rank()));
  const Buffer memory(200000, Kind::mapped);
  for (MPI_Comm comm : {MPI_Comm(one), MPI_Comm(other)}) MPI_OK(MPIX_Comm_attach(comm, memory.data(), 200000));
  Stream stream;
  Call call;
  call.count = 20000;
  Trial first(call, one.rank(), size(), Kind::unmapped, memory.data()),
      second(call, other.rank(), size(), Kind::unmapped, memory.data() + 100000);
  MPI_OK(first.make(one, stream));
  MPI_OK(second.make(other, stream));
  MPI_OK(MPIX_Comm_detach(one, memory.data()));
  MPI_OK(second.make(other, stream));
  stream.synchronize();
  first.check();
  second.check();
  MPI_OK(MPIX_Comm_detach(other, memory.data()));
}

// ---- errors: the same on all ranks ------------------------------------------------------------------

TEST_CASE("what cannot be attached or detached") {
  const ErrorsReturn comm;
  const Buffer memory(100000, Kind::mapped), other(100000, Kind::mapped);
  const int attach_error = MPI_ERR_RMA_ATTACH;
  check_error(MPIX_Comm_detach(comm, memory.data()), attach_error, "MPIX_Comm_detach");
  MPI_OK(MPIX_Comm_attach(comm, memory.data(), 50000));
  check_error(MPIX_Comm_attach(comm, memory.data(), 50000), attach_error, "MPIX_Comm_attach");
  check_error(MPIX_Comm_attach(comm, memory.data() + 40000, 50000), attach_error, "MPIX_Comm_attach");
  check_error(MPIX_Comm_detach(comm, memory.data() + 40000), attach_error, "MPIX_Comm_detach");
  check_error(MPIX_Comm_detach(comm, other.data()), attach_error, "MPIX_Comm_detach");
  MPI_OK(MPIX_Comm_attach(comm, memory.data() + 50000, 50000));  // side by side
  MPI_OK(MPIX_Comm_detach(comm, memory.data()));
  MPI_OK(MPIX_Comm_attach(comm, other.data(), 100000));
  MPI_OK(MPIX_Comm_detach(comm, memory.data() + 50000));
  MPI_OK(MPIX_Comm_detach(comm, other.data()));
  Stream stream;
  try_call(Call{}, stream, "after the errors", comm);
}

TEST_CASE("ranks that name different attachments, or make different calls") {
  NEEDS_RANKS(2);
  const ErrorsReturn comm;
  constexpr MPI_Aint bytes = 100000;
  const Buffer first(bytes, Kind::mapped), second(bytes, Kind::mapped), third(bytes, Kind::mapped);
  MPI_OK(MPIX_Comm_attach(comm, first.data(), bytes));
  MPI_OK(MPIX_Comm_attach(comm, second.data(), bytes));
  const auto check = [&](int code, const std::string& call, const std::string& why) {
    check_error(code, MPI_ERR_RMA_ATTACH, call.c_str());
    INFO(error_text(code));
    CHECK(error_text(code).find(why) != std::string::npos);
  };
  const bool odd = rank() == size() - 1;
  const std::string detach = "MPIX_Comm_detach", on_odd = " on rank " + std::to_string(size() - 1);
  const std::string others = size() == 2 ? "rank 0" : size() == 3 ? "ranks 0 and 1" : "ranks 0, 1 and 2";
  const std::string differ = "the ranks name different attachments: attachment 1 on " + others;
  check(MPIX_Comm_detach(comm, (odd ? second : first).data()), detach, differ + ", attachment 2" + on_odd);
  check(MPIX_Comm_detach(comm, (odd ? third : first).data()), detach, differ + ", none" + on_odd);
  check(odd ? MPIX_Comm_attach(comm, third.data(), bytes) : MPIX_Comm_detach(comm, first.data()),
        odd ? "MPIX_Comm_attach" : detach,
        "the ranks have made different calls: MPIX_Comm_detach on " + others + ", MPIX_Comm_attach" + on_odd);
  // All is as it was.
  Call call;
  call.count = 20000;
  Stream stream;
  for (const bool attached : {true, false}) {
    Trial trial(call, rank(), size(), Kind::unmapped, attached ? first.data() : nullptr,
                attached ? second.data() : nullptr);
    MPI_OK(trial.make(comm, stream));
    stream.synchronize();
    trial.check();
    if (!attached) break;
    MPI_OK(MPIX_Comm_detach(comm, second.data()));
    MPI_OK(MPIX_Comm_detach(comm, first.data()));
  }
}

TEST_CASE("memory that cannot be mapped is not attached") {
  const ErrorsReturn comm;
  const Buffer memory(100000, Kind::unmapped);
  check_error(MPIX_Comm_attach(comm, memory.data(), 100000), MPI_ERR_RMA_ATTACH, "MPIX_Comm_attach");
  Stream stream;
  Call call;
  call.count = 10000;
  Trial trial(call, rank(), size(), Kind::unmapped, memory.data());
  MPI_OK(trial.make(comm, stream));
  stream.synchronize();
  trial.check();
}

// Only one rank is wrong: the others must not wait for it for ever, nor believe that all is well.
TEST_CASE("memory of one rank that cannot be mapped") {
  NEEDS_RANKS(2);
  const ErrorsReturn comm;
  const Buffer memory(100000, rank() == 1 ? Kind::unmapped : Kind::mapped);
  check_error(MPIX_Comm_attach(comm, memory.data(), 100000), MPI_ERR_RMA_ATTACH, "MPIX_Comm_attach");
  Stream stream;
  Sequence sequence(comm, 3, 3000);
  for (int i = 0; i < 10; ++i) sequence.enqueue(stream);
  stream.synchronize();
  sequence.check();
}

TEST_CASE("more than can be attached") {
  const ErrorsReturn comm;
  constexpr int most = 16;
  std::vector<std::unique_ptr<Buffer>> memory;
  for (int i = 0; i <= most; ++i) {
    memory.push_back(std::make_unique<Buffer>(20000, Kind::mapped));
    const int code = MPIX_Comm_attach(comm, memory.back()->data(), 20000);
    if (i < most) {
      MPI_OK(code);
    } else {
      check_error(code, MPI_ERR_NO_MEM, "MPIX_Comm_attach");
    }
  }
  Stream stream;
  std::vector<std::unique_ptr<Trial>> trials;
  for (int i = 0; i <= most; ++i) {
    Call call;
    call.count = 4000;
    call.salt = static_cast<std::uint64_t>(i);
    trials.push_back(
        std::make_unique<Trial>(call, rank(), size(), Kind::unmapped, memory[static_cast<std::size_t>(i)]->data()));
    MPI_OK(trials.back()->make(comm, stream));
  }
  stream.synchronize();
  for (const auto& trial : trials) trial->check();
  for (int i = 0; i < most; ++i) MPI_OK(MPIX_Comm_detach(comm, memory[static_cast<std::size_t>(i)]->data()));
}

TEST_CASE("wrong arguments of attach and detach") {
  const ErrorsReturn comm;
  const Buffer memory(4096, Kind::mapped);
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  check_error(MPIX_Comm_attach(MPI_COMM_NULL, memory.data(), 4096), MPI_ERR_COMM, "MPIX_Comm_attach");
  check_error(MPIX_Comm_detach(MPI_COMM_NULL, memory.data()), MPI_ERR_COMM, "MPIX_Comm_detach");
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  CHECK(MPIX_Comm_attach(comm, memory.data(), -1) != MPI_SUCCESS);
  CHECK(MPIX_Comm_attach(comm, nullptr, 4096) != MPI_SUCCESS);
  Stream stream;
  try_call(Call{}, stream, "after the errors", comm);
}
