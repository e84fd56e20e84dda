// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Every wrong use of collectives on streams: its error class, what its text says, that it goes through the error
// handler of the communicator, and that nothing has been enqueued, on whichever ranks the call is wrong.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/wrong_collectives.h"

using namespace test;

namespace {

/// Before the library reads them.
const bool settings_differ = [] {
  if (!std::getenv("SETTINGS_DIFFER")) return false;
  const char* rank = std::getenv("PMI_RANK");
  if (!rank) rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank && setenv("MPIX_WAIT", *rank == '0' ? "auto" : "memory", 1) == 0;
}();

constexpr What reductions[] = {What::reduce, What::allreduce, What::reduce_scatter_block};

}  // namespace

TEST_CASE("wrong roots and counts") {
  std::vector<WrongCall> calls;
  for (What what : {What::bcast, What::reduce}) {
    for (int root : {-1, size(), size() + 1000, MPI_PROC_NULL, MPI_ANY_SOURCE}) {
      Call call = call_of(4);
      call.root = root;
      calls.push_back(wrong(what, "root " + std::to_string(root), MPI_ERR_ROOT, call));
    }
  }
  for (What what : all_kinds)
    if (what != What::barrier) calls.push_back(wrong(what, "a negative count", MPI_ERR_COUNT, call_of(-1)));
  calls.push_back({"a negative receive count", MPI_ERR_COUNT, "MPIX_Allgather_stream", [](Bench& b) {
                     return MPIX_Allgather_stream(b.send(), 1, MPI_INT, b.recv(), -1, MPI_INT, b.comm, b.stream);
                   }});
  calls.push_back({"a negative receive count in place", MPI_ERR_COUNT, "MPIX_Alltoall_stream", [](Bench& b) {
                     return MPIX_Alltoall_stream(MPI_IN_PLACE, 0, MPI_INT, b.recv(), -1, MPI_INT, b.comm, b.stream);
                   }});
  try_out_all(calls);
}

TEST_CASE("wrong buffers") {
  std::vector<WrongCall> calls;
  const int buffer = MPI_ERR_BUFFER;
  for (What what : all_kinds) {
    if (what == What::barrier) continue;
    const auto null_send = [](Bench&, const void*& send, void*&) { send = nullptr; };
    const auto null_recv = [](Bench&, const void*&, void*& recv) { recv = nullptr; };
    const auto same = [](Bench&, const void*& send, void*& recv) { send = recv; };
    const auto into_place = [](Bench&, const void*&, void*& recv) { recv = const_cast<void*>(MPI_IN_PLACE); };
    calls.push_back(wrong(what, "MPI_IN_PLACE for the result", buffer, call_of(4), into_place));
    if (what == What::reduce) continue;  // below: at the root
    calls.push_back(wrong(what, "no receive buffer", buffer, call_of(4), null_recv));
    if (what == What::bcast) continue;
    calls.push_back(wrong(what, "no send buffer", buffer, call_of(4), null_send));
    calls.push_back(wrong(what, "one buffer", buffer, call_of(4), same));
  }
  // of which the root is this rank, or is not
  for (bool at_root : {true, false}) {
    if (!at_root && size() == 1) continue;
    const auto reduce = [at_root](Bench& b, const void* send, void* recv) {
      const int root = at_root ? b.comm.rank() : (b.comm.rank() + 1) % b.comm.size();
      return MPIX_Reduce_stream(send, recv, 4, MPI_INT, MPI_SUM, root, b.comm, b.stream);
    };
    calls.push_back(
        {"no send buffer", buffer, "MPIX_Reduce_stream", [=](Bench& b) { return reduce(b, nullptr, b.recv()); }});
    if (at_root) {
      calls.push_back({"no receive buffer at the root", buffer, "MPIX_Reduce_stream",
                       [=](Bench& b) { return reduce(b, b.send(), nullptr); }});
      calls.push_back({"one buffer at the root", buffer, "MPIX_Reduce_stream",
                       [=](Bench& b) { return reduce(b, b.send(), b.send()); }});
    } else {
      calls.push_back({"MPI_IN_PLACE at another than the root", buffer, "MPIX_Reduce_stream",
                       [=](Bench& b) { return reduce(b, MPI_IN_PLACE, b.recv()); }});
    }
  }
  // MPI_IN_PLACE for the result of a reduction: nobody looks at it but the root
  calls.erase(std::remove_if(
                  calls.begin(), calls.end(),
                  [](const WrongCall& one) { return one.what == "MPIX_Reduce_stream, MPI_IN_PLACE for the result"; }),
              calls.end());
  try_out_all(calls);
}

// Where there is nothing to be read or written, any address is right.
TEST_CASE("null buffers of no bytes") {
  Bench bench;
  Call call = call_of(0);
  for (What what : all_kinds) {
    call.what = what;
    MPI_OK(enqueue(call, nullptr, nullptr, bench.comm, bench.stream));
  }
  Sequence right(bench.comm, 78, 200);
  right.enqueue(bench.stream);
  bench.stream.synchronize();
  right.check();
}

TEST_CASE("operations that a type does not have") {
  std::vector<WrongCall> calls;
  for (What what : reductions) {
    const std::vector<std::pair<MPI_Op, MPI_Datatype>> pairs = {
        {MPI_BAND, MPI_DOUBLE},
        {MPI_LAND, MPI_FLOAT},
        {MPI_MAX, MPI_C_DOUBLE_COMPLEX},
        {MPI_SUM, MPI_BYTE},
        {MPI_SUM, MPI_C_BOOL},
        {MPI_MINLOC, MPI_INT},
        {MPI_MAXLOC, MPI_DOUBLE},
        {MPI_SUM, MPI_2INT},
        {MPI_SUM, MPI_DOUBLE_INT},
        {MPI_SUM, MPI_CHAR},
        {MPI_SUM, MPI_WCHAR},
        {MPI_LXOR, MPI_BYTE},
        {MPI_BOR, MPI_C_FLOAT_COMPLEX},
        {MPI_REPLACE, MPI_INT},
        {MPI_NO_OP, MPI_INT},
        {MPI_OP_NULL, MPI_INT},
    };
    std::size_t number = 0;
    for (const auto& [op, type] : pairs)
      calls.push_back(wrong(what, "pair " + std::to_string(number++), MPI_ERR_OP, call_of(4, type, op)));
  }
  try_out_all(calls);
}

TEST_CASE("operations and types are named") {
  Bench bench;
  const auto text_of = [&bench](MPI_Datatype type, MPI_Op op) {
    return error_text(MPIX_Allreduce_stream(bench.send(), bench.recv(), 1, type, op, bench.comm, bench.stream));
  };
  CHECK(contains(text_of(MPI_DOUBLE, MPI_BAND), "MPI has no MPI_BAND of MPI_DOUBLE"));
  MPI_Datatype derived;
  MPI_OK(MPI_Type_contiguous(4, MPI_INT, &derived));
  MPI_OK(MPI_Type_commit(&derived));
  CHECK(contains(text_of(derived, MPI_SUM), "MPI_SUM of a derived datatype: a predefined datatype is needed"));
  CHECK(contains(text_of(MPI_CHAR, MPI_SUM), "MPI_SUM of MPI_CHAR: a predefined datatype is needed, of those that"));
  MPI_OK(MPI_Type_free(&derived));
}

TEST_CASE("derived types") {
  MPI_Datatype contiguous, strided, permuted;
  MPI_OK(MPI_Type_contiguous(4, MPI_INT, &contiguous));
  MPI_OK(MPI_Type_vector(3, 1, 2, MPI_INT, &strided));
  const int lengths[] = {1, 1}, places[] = {1, 0};
  MPI_OK(MPI_Type_indexed(2, lengths, places, MPI_INT, &permuted));
  for (MPI_Datatype* type : {&contiguous, &strided, &permuted}) MPI_OK(MPI_Type_commit(type));
  std::vector<WrongCall> calls;
  for (What what : reductions) calls.push_back(wrong(what, "a derived type", MPI_ERR_OP, call_of(1, contiguous)));
  const int unsupported = MPI_ERR_UNSUPPORTED_OPERATION;
  for (MPI_Datatype type : {strided, permuted})
    for (What what : {What::bcast, What::allgather, What::alltoall})
      calls.push_back(wrong(what, "a type that is not contiguous", unsupported, call_of(1, type)));
  calls.push_back({"a receive type that is not contiguous", unsupported, "MPIX_Allgather_stream", [=](Bench& b) {
                     return MPIX_Allgather_stream(b.send(), 3, MPI_INT, b.recv(), 1, strided, b.comm, b.stream);
                   }});
  try_out_all(calls);
  for (MPI_Datatype* type : {&contiguous, &strided, &permuted}) MPI_OK(MPI_Type_free(type));
}

// One element is contiguous; a block for each rank is not.
TEST_CASE("types that have a gap behind each element") {
  NEEDS_RANKS(2);
  MPI_Datatype resized;
  MPI_OK(MPI_Type_create_resized(MPI_INT, 0, 8, &resized));
  MPI_OK(MPI_Type_commit(&resized));
  const int unsupported = MPI_ERR_UNSUPPORTED_OPERATION;
  std::vector<WrongCall> calls;
  for (MPI_Datatype type : {resized, MPI_DOUBLE_INT})
    for (What what : {What::allgather, What::alltoall})
      calls.push_back(wrong(what, "a type with a gap behind it", unsupported, call_of(1, type)));
  calls.push_back({"a receive type with a gap behind it", unsupported, "MPIX_Allgather_stream", [=](Bench& b) {
                     return MPIX_Allgather_stream(b.send(), 1, MPI_INT, b.recv(), 1, resized, b.comm, b.stream);
                   }});
  try_out_all(calls);
  // What is sent to all is one block.
  Bench bench;
  MPI_OK(MPIX_Allgather_stream(bench.send(), 1, resized, bench.recv(), 1, MPI_INT, bench.comm, bench.stream));
  MPI_OK(MPIX_Bcast_stream(bench.recv(), 1, resized, 0, bench.comm, bench.stream));
  bench.stream.synchronize();
  MPI_OK(MPI_Type_free(&resized));
}

TEST_CASE("types that are not committed") {
  MPI_Datatype type, strided;
  MPI_OK(MPI_Type_contiguous(4, MPI_INT, &type));
  MPI_OK(MPI_Type_vector(3, 1, 2, MPI_INT, &strided));
  std::vector<WrongCall> calls;
  for (MPI_Datatype one : {type, strided})
    for (What what : {What::bcast, What::allgather, What::alltoall})
      calls.push_back(wrong(what, "a type that is not committed", MPI_ERR_TYPE, call_of(1, one)));
  calls.push_back({"a receive type that is not committed", MPI_ERR_TYPE, "MPIX_Allgather_stream", [=](Bench& b) {
                     return MPIX_Allgather_stream(b.send(), 4, MPI_INT, b.recv(), 1, type, b.comm, b.stream);
                   }});
  try_out_all(calls);
  MPI_OK(MPI_Type_commit(&type));
  Bench bench;
  MPI_OK(MPIX_Allgather_stream(bench.send(), 1, type, bench.recv(), 4, MPI_INT, bench.comm, bench.stream));
  bench.stream.synchronize();
  for (MPI_Datatype* one : {&type, &strided}) MPI_OK(MPI_Type_free(one));
}

TEST_CASE("no datatype") {
  std::vector<WrongCall> calls;
  for (What what : all_kinds)
    if (what != What::barrier)
      calls.push_back(wrong(what, "MPI_DATATYPE_NULL", MPI_ERR_TYPE, call_of(1, MPI_DATATYPE_NULL)));
  try_out_all(calls);
}

TEST_CASE("sides of different size") {
  std::vector<WrongCall> calls;
  for (int more : {0, 1}) {
    calls.push_back({"allgather", MPI_ERR_TRUNCATE, "MPIX_Allgather_stream", [=](Bench& b) {
                       return MPIX_Allgather_stream(b.send(), 4 + more, MPI_INT, b.recv(), 5 - more, MPI_INT, b.comm,
                                                    b.stream);
                     }});
    calls.push_back({"alltoall", MPI_ERR_TRUNCATE, "MPIX_Alltoall_stream", [=](Bench& b) {
                       return MPIX_Alltoall_stream(b.send(), 4, more ? MPI_DOUBLE : MPI_INT, b.recv(), 4,
                                                   more ? MPI_INT : MPI_DOUBLE, b.comm, b.stream);
                     }});
  }
  try_out_all(calls);
}

TEST_CASE("what is no stream") {
  MPIX_Host_stream foreign = nullptr;
  MPI_OK(MPIX_Host_stream_create(&foreign));
  std::vector<WrongCall> calls;
  for (What what : all_kinds) {
    Call call = call_of(4);
    call.what = what;
    calls.push_back({std::string(name(what)) + " in what is no stream", MPI_ERR_ARG, name(what), [=](Bench& b) {
                       void* stream = foreign;
                       if (device().is_host()) stream = &b.flag;
                       return enqueue(call, b.send(), b.recv(), b.comm, stream);
                     }});
  }
  try_out_all(calls);
  MPI_OK(MPIX_Host_stream_destroy(&foreign));
}

TEST_CASE("a host stream that is gone") {
  NEEDS(device().is_host(), "what became of a stream is known of host streams only");
  try_out_all({{"a barrier in a stream that is gone", MPI_ERR_ARG, "MPIX_Barrier_stream", [](Bench& b) {
                  MPIX_Host_stream stream;
                  MPI_OK(MPIX_Host_stream_create(&stream));
                  void* const gone = stream;
                  MPI_OK(MPIX_Host_stream_destroy(&stream));
                  return MPIX_Barrier_stream(b.comm, gone);
                }}});
}

TEST_CASE("types and operations that a GPU lacks") {
  NEEDS(!device().is_host(), "host streams have them");
  const int unsupported = MPI_ERR_UNSUPPORTED_OPERATION;
  MPI_Op own;
  MPI_OK(MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &own));
  std::vector<WrongCall> calls;
  for (What what : reductions) {
    calls.push_back(wrong(what, "long double", unsupported, call_of(2, MPI_LONG_DOUBLE)));
    calls.push_back(wrong(what, "complex long double", unsupported, call_of(2, MPI_C_LONG_DOUBLE_COMPLEX)));
    calls.push_back(wrong(what, "an operation of the program", unsupported, call_of(2, MPI_INT, own)));
  }
  try_out_all(calls);
  MPI_OK(MPI_Op_free(&own));
}

// Where there is no communicator, errors go to the handler of MPI_COMM_WORLD.
TEST_CASE("no communicator, and inter-communicators") {
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const Buffer a(4096), b(4096);
  Stream stream;
  MPIX_Comm_stats stats{};
  for (What what : all_kinds) {
    Call call = call_of(4);
    call.what = what;
    check_error(enqueue(call, a.data(), b.data(), MPI_COMM_NULL, stream),
                {"MPI_COMM_NULL", MPI_ERR_COMM, name(what), {}});
  }
  check_error(MPIX_Comm_prepare_stream(MPI_COMM_NULL, MPI_INFO_NULL),
              {"MPI_COMM_NULL", MPI_ERR_COMM, "MPIX_Comm_prepare_stream", {}});
  check_error(MPIX_Comm_attach(MPI_COMM_NULL, a.data(), 4096), {"MPI_COMM_NULL", MPI_ERR_COMM, "MPIX_Comm_attach", {}});
  check_error(MPIX_Comm_detach(MPI_COMM_NULL, a.data()), {"MPI_COMM_NULL", MPI_ERR_COMM, "MPIX_Comm_detach", {}});
  check_error(MPIX_Comm_get_stats(MPI_COMM_NULL, &stats, sizeof stats),
              {"MPI_COMM_NULL", MPI_ERR_COMM, "MPIX_Comm_get_stats", {}});
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  const Comm world(Comm::duplicate());
  MPI_OK(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN));
  check_error(MPIX_Comm_get_stats(world, nullptr, sizeof stats), {"no place", MPI_ERR_ARG, "MPIX_Comm_get_stats", {}});
  if (size() < 2) return;
  const Comm halves(Comm::split(rank() == 0, rank()));
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_OK(MPI_Intercomm_create(halves, 0, world, rank() == 0 ? 1 : 0, 7, &inter));
  MPI_OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
  for (What what : all_kinds) {
    Call call = call_of(4);
    call.what = what;
    check_error(enqueue(call, a.data(), b.data(), inter, stream),
                {"an inter-communicator", MPI_ERR_COMM, name(what), {}});
  }
  const std::pair<const char*, int> others[] = {
      {"MPIX_Comm_prepare_stream", MPIX_Comm_prepare_stream(inter, MPI_INFO_NULL)},
      {"MPIX_Comm_attach", MPIX_Comm_attach(inter, a.data(), 4096)},
      {"MPIX_Comm_detach", MPIX_Comm_detach(inter, a.data())},
      {"MPIX_Comm_get_stats", MPIX_Comm_get_stats(inter, &stats, sizeof stats)},
  };
  for (const auto& [call, code] : others) check_error(code, {"an inter-communicator", MPI_ERR_COMM, call, {}});
  MPI_OK(MPI_Comm_free(&inter));
}

TEST_CASE("ranks of nodes that no network connects") {
  const char* const network = std::getenv("MPIX_NIC");
  NEEDS(spans_nodes() && network && std::string(network) == "none", "all ranks reach each other");
  Bench bench;
  for (int turn = 0; turn < 2; ++turn) {
    for (What what : all_kinds) {
      Call call = call_of(4);
      call.what = what;
      try_out(bench, {std::string(name(what)) + " between nodes", MPI_ERR_UNSUPPORTED_OPERATION, name(what),
                      [=](Bench& b) { return enqueue(call, b.send(), b.recv(), b.comm, b.stream); }});
    }
    try_out(bench, {"between nodes", MPI_ERR_UNSUPPORTED_OPERATION, "MPIX_Comm_prepare_stream",
                    [](Bench& b) { return MPIX_Comm_prepare_stream(b.comm, MPI_INFO_NULL); }});
    try_out(bench, {"between nodes", MPI_ERR_UNSUPPORTED_OPERATION, "MPIX_Comm_attach",
                    [](Bench& b) { return MPIX_Comm_attach(b.comm, b.send(), 4096); }});
  }
  const std::string text = error_text(MPIX_Barrier_stream(bench.comm, bench.stream));
  INFO(text);
  CHECK(contains(text, "node"));
  CHECK(contains(text, "MPIX_NIC=none"));
  // those within a node have them
  Stream stream;
  try_call(call_of(100), stream, "alone", MPI_COMM_SELF);
}

TEST_CASE("ranks with different settings", "[differ]") {
  NEEDS_RANKS(2);
  NEEDS(settings_differ, "all ranks have the same settings");
  Bench bench;
  for (int turn = 0; turn < 2; ++turn) {
    Call call = call_of(4);
    for (What what : all_kinds) {
      call.what = what;
      try_out(bench, {std::string(name(what)) + " with other settings", MPI_ERR_UNSUPPORTED_OPERATION, name(what),
                      [=](Bench& b) { return enqueue(call, b.send(), b.recv(), b.comm, b.stream); }});
    }
    const std::string text = error_text(MPIX_Comm_prepare_stream(bench.comm, MPI_INFO_NULL));
    INFO(text);
    CHECK(contains(text, "MPIX_WAIT differs between the ranks: auto on rank 0, memory on rank 1"));
  }
  Stream stream;
  try_call(call_of(100), stream, "alone", MPI_COMM_SELF);
}

TEST_CASE("error codes do not pile up") {
  const Comm comm(Comm::duplicate());
  MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  const Buffer buffer(64);
  Stream stream;
  const auto make = [&] { return MPIX_Bcast_stream(buffer.data(), -1, MPI_INT, 0, comm, stream); };
  const int first = make();
  int last = first;
  for (int i = 0; i < 3000; ++i) last = make();
  CHECK(error_class(last) == MPI_ERR_COUNT);
  CHECK(error_text(last) == error_text(first));
}
