// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The halo engine; every cell is compared with what it has to be.
//
//   mpiexec -n N halo cube [STEPS]    N ranks in a periodic grid, 26 messages each (several to one rank, and to itself,
//                                     where the grid is narrow), one or two fields of cells of 1 to 24 bytes
//   mpiexec -n N halo wrong           wrong calls: the same error on all ranks, and what it says
//   mpiexec -n 2 halo hang            a rank that does not come: a report that names the message, and an end
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/channel.h"
#include "support/random.h"

namespace {

int rank = 0, ranks = 1;
int failures = 0;

#define EXPECT(holds)                                                                 \
  do {                                                                                \
    if (!(holds)) {                                                                   \
      std::printf("rank %d, %s:%d: expected %s\n", rank, __FILE__, __LINE__, #holds); \
      if (++failures > 20) std::abort();                                              \
    }                                                                                 \
  } while (false)

/// A block of cells with a border of one all around, and what its fields hold.
struct Cube {
  int n[3];     ///< cells of a rank, without the border
  int grid[3];  ///< ranks
  int me[3];    ///< this rank's place
  std::size_t element;
  int fields;

  TEST_FN long cells(int d) const { return n[d] + 2; }
  TEST_FN long row(int d) const {
    return static_cast<long>(element) * (d == 0 ? 1 : d == 1 ? cells(0) : cells(0) * cells(1));
  }
  TEST_FN long field_bytes() const { return static_cast<long>(element) * cells(0) * cells(1) * cells(2); }
  TEST_FN std::size_t bytes() const { return static_cast<std::size_t>(field_bytes() * fields); }
};

/// What a byte of a cell is in a step: by its place in the whole, periodic grid.
TEST_FN unsigned char value_of(const Cube& cube, const int* rank_place, const long* cell, int field, std::uint64_t byte,
                               std::uint64_t step) {
  std::uint64_t key = step * 7919 + static_cast<std::uint64_t>(field);
  for (int d = 0; d < 3; ++d) {
    const long all = static_cast<long>(cube.grid[d]) * cube.n[d];
    const long at = ((rank_place[d] * static_cast<long>(cube.n[d]) + cell[d] - 1) % all + all) % all;
    key = test::mix(key * 1000003 + static_cast<std::uint64_t>(at));
  }
  return static_cast<unsigned char>(test::mix(key + byte));
}

TEST_FN void place_of(const Cube& cube, std::uint64_t i, long* cell, int* field, std::uint64_t* byte) {
  *byte = i % cube.element;
  std::uint64_t rest = i / cube.element;
  for (int d = 0; d < 3; ++d) {
    cell[d] = static_cast<long>(rest % static_cast<std::uint64_t>(cube.cells(d)));
    rest /= static_cast<std::uint64_t>(cube.cells(d));
  }
  *field = static_cast<int>(rest);
}

/// Cells inside get their values of the step, the border is spoiled.
struct Fill {
  Cube cube;
  unsigned char* data;
  std::uint64_t* step;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.block == 0 && team.thread == 0) ++*step;
    MPIX_Dev_sync(team);
    for (std::uint64_t i = team.thread; i < cube.bytes(); i += team.threads) {
      long cell[3];
      int field = 0;
      std::uint64_t byte = 0;
      place_of(cube, i, cell, &field, &byte);
      bool inside = true;
      for (int d = 0; d < 3; ++d) inside = inside && cell[d] >= 1 && cell[d] <= cube.n[d];
      data[i] = inside ? value_of(cube, cube.me, cell, field, byte, *step) : static_cast<unsigned char>(0xee);
    }
  }
};

struct Compare {
  Cube cube;
  const unsigned char* data;
  const std::uint64_t* step;
  std::uint64_t* wrong;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    for (std::uint64_t i = team.thread; i < cube.bytes(); i += team.threads) {
      long cell[3];
      int field = 0;
      std::uint64_t byte = 0;
      place_of(cube, i, cell, &field, &byte);
      if (data[i] != value_of(cube, cube.me, cell, field, byte, *step)) (void)mpix::fetch_add_on_device(wrong, 1);
    }
  }
};

/// The 26 neighbours, and what goes to and comes from each.
struct Neighbours {
  std::vector<MPIX_Box> send, recv;
  std::vector<MPIX_Halo_message> messages;

  Neighbours(const Cube& cube, unsigned char* data) {
    send.reserve(26);
    recv.reserve(26);
    for (int code = 0; code < 27; ++code) {
      const int to[3] = {code % 3 - 1, code / 3 % 3 - 1, code / 9 - 1};
      if (to[0] == 0 && to[1] == 0 && to[2] == 0) continue;
      int peer = 0;
      for (int d = 2; d >= 0; --d) peer = peer * cube.grid[d] + (cube.me[d] + to[d] + cube.grid[d]) % cube.grid[d];
      MPIX_Box out{}, in{};
      for (MPIX_Box* const box : {&out, &in}) {
        const bool is_out = box == &out;
        box->element = cube.element;
        box->dims = 3;
        box->fields = cube.fields;
        box->field_stride = cube.field_bytes();
        long offset = 0;
        for (int d = 0; d < 3; ++d) {
          box->stride[d] = cube.row(d);
          box->count[d] = to[d] == 0 ? cube.n[d] : 1;
          const long first = to[d] == 0 ? 1 : is_out ? (to[d] > 0 ? cube.n[d] : 1) : (to[d] > 0 ? cube.n[d] + 1 : 0);
          offset += first * cube.row(d);
        }
        box->base = data + offset;
      }
      send.push_back(out);
      recv.push_back(in);
      // Sent in direction `code`, it is received from the opposite one.
      messages.push_back(MPIX_Halo_message{peer, code, 26 - code, 1, 1, &send.back(), &recv.back()});
    }
  }
};

void dims(int* grid) {
  grid[0] = grid[1] = grid[2] = 0;
  CHECK_MPI(MPI_Dims_create(ranks, 3, grid));
}

void cube_exchange(int steps, std::size_t element, int fields, const char* form, int x, int y, int z) {
  Cube cube{{x, y, z}, {0, 0, 0}, {0, 0, 0}, element, fields};
  dims(cube.grid);
  int rest = rank;
  for (int d = 0; d < 3; ++d) {
    cube.me[d] = rest % cube.grid[d];
    rest /= cube.grid[d];
  }
  auto* const data = static_cast<unsigned char*>(support::allocate_on_device(cube.bytes()));
  auto* const words = static_cast<std::uint64_t*>(support::allocate_on_device(16));
  const Neighbours neighbours(cube, data);
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "mpix_form", form));
  CHECK_MPI(MPI_Info_set(info, "mpix_sends", fields == 1 ? "nonblocking" : "blocking"));
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 26, neighbours.messages.data(), info, &halo));
  CHECK_MPI(MPI_Info_free(&info));
  for (int step = 0; step < steps; ++step) {
    support::launch_blocks(Fill{cube, data, words}, 1, 256);
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    support::launch_blocks(Compare{cube, data, words, words + 1}, 1, 256);
  }
  support::synchronize();
  std::uint64_t found[2];
  support::to_host(found, words, sizeof found);
  EXPECT(found[0] == static_cast<std::uint64_t>(steps));
  EXPECT(found[1] == 0);
  MPIX_Halo_stats stats;
  CHECK_MPI(MPIX_Halo_get_stats(halo, &stats, sizeof stats));
  CHECK_MPI(MPIX_Halo_free(&halo));
  EXPECT(halo == MPIX_HALO_NULL);
  EXPECT(stats.exchanges == static_cast<unsigned long long>(steps));
  EXPECT(stats.received == 26ull * static_cast<unsigned long long>(steps));
  if (rank == 0)
    std::printf("%d steps, %d x %d x %d cells of %zu bytes, %d fields, %s: %llu blocks\n", steps, x, y, z, element,
                fields, form, stats.blocks);
  support::release_on_device(data);
  support::release_on_device(words);
}

// ---- Wrong calls -------------------------------------------------------------------------------------

void expect_error(int line, int code, int error_class, const std::string& part) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0, found = MPI_SUCCESS;
  CHECK_MPI(MPI_Error_string(code, text, &length));
  CHECK_MPI(MPI_Error_class(code, &found));
  if (found == error_class && std::string(text).find(part) != std::string::npos) return;
  std::printf("rank %d, line %d: class %d (expected %d): %s (expected: %s)\n", rank, line, found, error_class, text,
              part.c_str());
  ++failures;
}
#define EXPECT_ERROR(call, error_class, part) expect_error(__LINE__, call, error_class, part)

void wrong() {
  auto* const data = static_cast<char*>(support::allocate_on_device(4096));
  const MPIX_Box box{data, 8, 1, {4, 0, 0}, {8, 0, 0}, 1, 0};
  const int next = (rank + 1) % ranks;
  MPIX_Halo halo = MPIX_HALO_NULL;
  const auto make = [&](MPIX_Halo_message message, int count = 1) {
    return MPIX_Halo_create(MPI_COMM_WORLD, count, &message, MPI_INFO_NULL, &halo);
  };
  const MPIX_Halo_message self{rank, 1, 1, 1, 1, &box, &box};
  // On one rank alone: the others hear of it.
  const std::string other = rank == 0 ? "" : "another rank";
  const auto on_first = [&](MPIX_Halo_message wrong_one, int error_class, const std::string& text) {
    EXPECT_ERROR(make(rank == 0 ? wrong_one : self), error_class, rank == 0 ? text : other);
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
  on_first(one, MPI_ERR_ARG, "no boxes");
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
  EXPECT_ERROR(make(self, -1), MPI_ERR_ARG, "-1 messages");
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
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "mpix_form", "heap"));
  EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 1, &self, info, &halo), MPI_ERR_INFO_VALUE, "mpix_form=heap");
  CHECK_MPI(MPI_Info_free(&info));
  EXPECT_ERROR(MPIX_Halo_exchange_stream(MPIX_HALO_NULL, nullptr), MPI_ERR_ARG, "no such halo");
  EXPECT_ERROR(MPIX_Halo_free(nullptr), MPI_ERR_ARG, "no such halo");
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
  support::release_on_device(data);
}

/// With MPIX_TIMEOUT=1 MPIX_ON_TIMEOUT=error.
void hang() {
  auto* const data = static_cast<char*>(support::allocate_on_device(4096));
  const MPIX_Box box{data, 8, 1, {4, 0, 0}, {8, 0, 0}, 1, 0};
  const MPIX_Halo_message message{1 - rank, 5, 5, 1, 1, &box, &box};
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, MPI_INFO_NULL, &halo));
  if (rank == 0) CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
  support::synchronize();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const int freed = MPIX_Halo_free(&halo);
  if (rank == 0) EXPECT_ERROR(freed, MPI_ERR_OTHER, "message 0 (rank 1, send tag 5, receive tag 5) of exchange 1");
  if (rank == 1) EXPECT(freed == MPI_SUCCESS);
  support::release_on_device(data);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  support::choose_gpu(rank);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "cube") {
    const int steps = argc > 2 ? std::atoi(argv[2]) : 30;
    cube_exchange(steps, 8, 1, "stacked", 5, 4, 3);
    cube_exchange(steps, 24, 2, "stream", 4, 4, 4);
    cube_exchange(steps, 1, 3, "stacked", 7, 3, 2);
    cube_exchange(steps, 4, 1, "auto", 2, 2, 2);
    cube_exchange(steps, 16, 1, "stacked", 1, 1, 1);
    cube_exchange(std::max(1, steps / 10), 8, 3, "stacked", 60, 60, 60);
  } else if (what == "wrong") {
    wrong();
  } else if (what == "hang") {
    hang();
  } else {
    std::fprintf(stderr, "halo cube|wrong|hang\n");
    ++failures;
  }
  CHECK_MPI(MPI_Finalize());
  if (failures == 0 && rank == 0) std::printf("halo %s: all as expected\n", what.c_str());
  return failures == 0 ? 0 : 1;
}
