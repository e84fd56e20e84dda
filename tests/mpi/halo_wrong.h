// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <climits>
#include <cstddef>
#include <string>

#include "support/channel.h"
#include "support/child.h"
#include "support/frame.h"
#include "support/halo_cube.h"

/// Wrong calls: of tests/mpi/halo.cpp.
namespace {

int heard[2] = {0, 0};  ///< errors, by the handler of MPI_COMM_WORLD, and of another communicator
void hear_of_world(MPI_Comm* comm, int* code, ...) {
  if (*comm == MPI_COMM_WORLD && class_of(*code) == MPI_ERR_TRUNCATE) ++heard[0];
}
void hear_of_other(MPI_Comm* comm, int* code, ...) {
  if (*comm != MPI_COMM_WORLD && class_of(*code) == MPI_ERR_TRUNCATE) ++heard[1];
}

/// The error handler that is called is the communicator's own, which has the error to hand.
void hear_of_truncation(const MPIX_Halo_message& message) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Errhandler world = MPI_ERRHANDLER_NULL, other = MPI_ERRHANDLER_NULL;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  CHECK_MPI(MPI_Comm_create_errhandler(hear_of_world, &world));
  CHECK_MPI(MPI_Comm_create_errhandler(hear_of_other, &other));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, world));
  CHECK_MPI(MPI_Comm_set_errhandler(comm, other));
  MPIX_Halo halo = MPIX_HALO_NULL;
  const int code = MPIX_Halo_create(comm, 1, &message, MPI_INFO_NULL, &halo);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  EXPECT_ERROR(code, MPI_ERR_TRUNCATE,
               "message 0 (rank " + std::to_string(message.peer) + ", send tag 3, receive tag 3)");
  EXPECT(halo == MPIX_HALO_NULL);
  EXPECT(heard[0] == 0);
  EXPECT(heard[1] == 1);
  CHECK_MPI(MPI_Errhandler_free(&world));
  CHECK_MPI(MPI_Errhandler_free(&other));
  CHECK_MPI(MPI_Comm_free(&comm));
}

/// Whose halos it may not use.
void wrong_in_a_child(const MPIX_Halo_message& message) {
#if !defined(__CUDACC__) && !defined(__HIPCC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  for (const char* const route : {"auto", "mpi"}) {
    MPIX_Halo halo = MPIX_HALO_NULL;
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, Info(Keys{{"mpix_route", route}}), &halo));
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    const auto is_refused = [](int code) { return code == MPI_ERR_UNSUPPORTED_OPERATION; };  // without MPI
    EXPECT(status_of_child([&] {
             alarm(30);
             if (!is_refused(MPIX_Halo_exchange_stream(halo, nullptr))) return 2;
             return is_refused(MPIX_Halo_free(&halo)) && halo != MPIX_HALO_NULL ? 0 : 3;
           }) == 0);
    CHECK_MPI(MPIX_Halo_free(&halo));
  }
#else
  (void)message;
#endif
}

void wrong(int) {
  auto* const data = static_cast<char*>(support::allocate_on_device(4096));
  const MPIX_Box box{data, 8, 1, {4, 0, 0}, {8, 0, 0}, 1, 0};
  const int next = (rank + 1) % ranks;
  MPIX_Halo halo = MPIX_HALO_NULL;
  const auto make = [&](MPIX_Halo_message message, int count = 1) {
    return MPIX_Halo_create(MPI_COMM_WORLD, count, &message, MPI_INFO_NULL, &halo);
  };
  const MPIX_Halo_message self{rank, 1, 1, 1, 1, &box, &box};
  // On one rank alone: the others hear the same, and whose it is.
  const std::string of_first = rank == 0 ? "" : "rank 0: ";
  const auto on_first = [&](MPIX_Halo_message wrong_one, int error_class, const std::string& text) {
    const int code = make(rank == 0 ? wrong_one : self);
    EXPECT_ERROR(code, error_class, text);
    EXPECT_ERROR(code, error_class, of_first);
    EXPECT(halo == MPIX_HALO_NULL);
  };
  MPIX_Halo_message one = self;
  one.peer = ranks;
  on_first(one, MPI_ERR_RANK, "ranks are 0 to");
  one = self;
  one.send_tag = -1;
  on_first(one, MPI_ERR_TAG, "send tag -1");
  one = self;
  one.send_boxes = -1;
  on_first(one, MPI_ERR_ARG, "-1 boxes");
  one = self;
  one.recv = nullptr;
  on_first(one, MPI_ERR_ARG, "no boxes");
  MPIX_Box bad = box;
  one = self;
  one.send = &bad;
  bad.dims = 4;
  on_first(one, MPI_ERR_ARG, "4 dimensions");
  bad = box;
  bad.element = 0;
  on_first(one, MPI_ERR_ARG, "no bytes");
  bad = box;
  bad.count[0] = -3;
  on_first(one, MPI_ERR_ARG, "a count of -3");
  bad = box;
  bad.base = nullptr;
  on_first(one, MPI_ERR_ARG, "no memory");
  bad = box;
  bad.element = (std::size_t{1} << 61) + 1;  // eight of them are eight bytes, as far as a word counts
  bad.count[0] = 8;
  one = self;
  one.send = &bad;
  on_first(one, MPI_ERR_ARG, "2 GiB or more");
  bad = box;
  bad.stride[0] = 0;
  one = self;
  one.recv = &bad;
  on_first(one, MPI_ERR_ARG, "on top of each other");
  bad.stride[0] = -static_cast<long>(bad.element) + 1;
  on_first(one, MPI_ERR_ARG, "on top of each other");
  for (const long far : {LONG_MAX / 2, LONG_MAX, LONG_MIN, -LONG_MAX / 3, LONG_MAX - 100}) {
    bad.stride[0] = far;
    on_first(one, MPI_ERR_ARG, "out of the address space");
  }
  EXPECT_ERROR(make(self, -1), MPI_ERR_ARG, "-1 messages");
  wrong_in_a_child(self);
  EXPECT_ERROR(make(self, 4097), MPI_ERR_ARG, "4097 messages");
  const MPIX_Halo_message twice[2] = {self, self};
  EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 2, twice, MPI_INFO_NULL, &halo), MPI_ERR_TAG, "the same tag");
  EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 1, nullptr, MPI_INFO_NULL, &halo), MPI_ERR_ARG, "no messages");
  EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 1, &self, MPI_INFO_NULL, nullptr), MPI_ERR_ARG, "no place");
  // The two ends differ.
  MPIX_Box longer = box;
  longer.count[0] = 5;
  MPIX_Halo_message ring{next, 3, 3, 1, 1, &longer, &box};
  ring.peer = ranks == 2 ? next : rank;
  EXPECT_ERROR(make(ring), MPI_ERR_TRUNCATE, "sends 40 bytes, and this one receives 32");
  MPIX_Box shorter = box;
  shorter.count[0] = 3;
  ring.send = &shorter;
  EXPECT_ERROR(make(ring), MPI_ERR_TRUNCATE, "sends 24 bytes, and this one receives 32");
  hear_of_truncation(ring);
  // One end alone knows of a message.
  ring = MPIX_Halo_message{rank, 3, 4, 1, 1, &box, &box};
  EXPECT_ERROR(make(ring), MPI_ERR_TAG, "that rank sends nothing with tag 4 to this one (it does with 3)");
  if (ranks > 1) {
    ring = MPIX_Halo_message{next, 3, 3, 1, 1, &box, &box};
    EXPECT_ERROR(make(ring, rank == 0 ? 1 : 0), MPI_ERR_TAG,
                 rank == 0   ? "that rank has no message for this one"
                 : rank == 1 ? "rank 0 has messages for this one that this one does not receive, with tag 3"
                             : "rank 0: message 0 (rank 1, send tag 3, receive tag 3): that rank has no message");
  }
  for (const auto& pair : Keys{{"mpix_form", "heap"},
                               {"mpix_buffers", "paper"},
                               {"mpix_sends", "never"},
                               {"mpix_receives", "all"},
                               {"mpix_order", "alphabetical"},
                               {"mpix_pack_order", "smallest"},
                               {"mpix_chunk", "-1"},
                               {"mpix_chunk", "much"},
                               {"mpix_packers", "1025"},
                               {"mpix_halves", "3"},
#ifdef MPICH  // others take no empty values
                               {"mpix_form", ""},
                               {"mpix_packers", ""},
#endif
                               {"mpix_route", "scenic"}})
    EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 1, &self, Info({pair}), &halo), MPI_ERR_INFO_VALUE,
                 pair.first + "=" + pair.second);
  EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 1, &self, Info(Keys{{"mpix_coherence", "noncoherent"}}), &halo),
               MPI_ERR_UNSUPPORTED_OPERATION, "noncoherent");
  if (ranks > 1) {
    ring.peer = next;
    ring.send_tag = ring.recv_tag = 3;
    MPIX_Halo_message both[2] = {ring, ring};  // to the next, and to the one before
    both[0].send = both[1].send = &box;
    both[1].peer = (rank + ranks - 1) % ranks;
    both[0].recv_tag = both[1].send_tag = 4;
    EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 2, both, Info(Keys{{"mpix_chunk", rank == 0 ? "32" : "16"}}), &halo),
                 MPI_ERR_ARG, "mpix_chunk");
  }
  EXPECT_ERROR(MPIX_Halo_exchange_stream(MPIX_HALO_NULL, nullptr), MPI_ERR_ARG, "no such halo");
  EXPECT_ERROR(MPIX_Halo_free(nullptr), MPI_ERR_ARG, "no such halo");
  if (ranks > 1) {
    // Ends with other tags: all hear of it, and nobody waits.
    MPIX_Halo_message only{1, 7, 7, 1, 1, &box, &box};
    only.peer = rank < 2 ? 1 - rank : MPI_PROC_NULL;
    if (rank == 1) only.send_tag = 8;
    EXPECT_ERROR(make(only), MPI_ERR_TAG, "sends nothing with tag 7 to this one (it does with 8)");
    MPI_Comm half = MPI_COMM_NULL, inter = MPI_COMM_NULL;
    CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank > 0, rank, &half));
    CHECK_MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 0, &inter));
    CHECK_MPI(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    EXPECT_ERROR(MPIX_Halo_create(inter, 0, nullptr, MPI_INFO_NULL, &halo), MPI_ERR_COMM, "intra-communicator");
    CHECK_MPI(MPI_Comm_free(&inter));
    CHECK_MPI(MPI_Comm_free(&half));
  }
  // None at all, and one to nobody, are legal.
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 0, nullptr, MPI_INFO_NULL, &halo));
  CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
  support::synchronize();
  CHECK_MPI(MPIX_Halo_free(&halo));
  const MPIX_Halo_message nobody[2] = {{MPI_PROC_NULL, 0, 0, 1, 1, &box, &box}, self};
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 2, nobody, MPI_INFO_NULL, &halo));
  for (int i = 0; i < 10; ++i) CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
  support::synchronize();
  CHECK_MPI(MPIX_Halo_free(&halo));
  // So is one that is empty at both ends, with buffers in turns.
  MPIX_Box empty = box;
  empty.count[0] = 0;
  const MPIX_Halo_message around[2] = {{next, 6, 6, 1, 0, &empty, nullptr},
                                       {(rank + ranks - 1) % ranks, 6, 6, 0, 1, nullptr, &empty}};
  for (const char* const halves : {"1", "2"}) {
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, ranks > 2 ? 2 : 1, around, Info(Keys{{"mpix_halves", halves}}), &halo));
    for (int i = 0; i < 10; ++i) CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    support::synchronize();
    CHECK_MPI(MPIX_Halo_free(&halo));
  }
  support::release_on_device(data);
}

}  // namespace
