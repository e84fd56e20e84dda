// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "support/channel.h"
#include "support/frame.h"
#include "support/random.h"

/// What the tests of the halo engine share: cubes of cells in a periodic grid of ranks. One program, one source file.
namespace {

/// After an exchange of a halo that is broken: host streams say so.
inline void synchronize_broken(void* stream) {
#if defined(__CUDACC__) || defined(__HIPCC__)
  (void)stream;
  support::synchronize();
#else
  EXPECT(MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(stream)) != MPI_SUCCESS);
#endif
}

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
  TEST_FN std::uint64_t all_cells() const {
    return static_cast<std::uint64_t>(cells(0) * cells(1) * cells(2) * fields);
  }
  TEST_FN std::size_t bytes() const { return static_cast<std::size_t>(field_bytes() * fields); }
};

/// What a cell of a field is in a step: by its place in the whole, periodic grid.
TEST_FN std::uint64_t key_of(const Cube& cube, const int* rank_place, const long* cell, int field, std::uint64_t step) {
  std::uint64_t key = step * 7919 + static_cast<std::uint64_t>(field);
  for (int d = 0; d < 3; ++d) {
    const long all = static_cast<long>(cube.grid[d]) * cube.n[d];
    const long at = ((rank_place[d] * static_cast<long>(cube.n[d]) + cell[d] - 1) % all + all) % all;
    key = test::mix(key * 1000003 + static_cast<std::uint64_t>(at));
  }
  return key;
}
TEST_FN unsigned char value_of(std::uint64_t key, std::size_t byte) {
  return static_cast<unsigned char>(test::mix(key + byte));
}

/// Cell `i` of all fields.
TEST_FN void place_of(const Cube& cube, std::uint64_t i, long* cell, int* field) {
  for (int d = 0; d < 3; ++d) {
    cell[d] = static_cast<long>(i % static_cast<std::uint64_t>(cube.cells(d)));
    i /= static_cast<std::uint64_t>(cube.cells(d));
  }
  *field = static_cast<int>(i);
}

/// Cells inside get their values of the next step, the border is spoiled. Launched with one block.
struct Fill {
  Cube cube;
  unsigned char* data;
  std::uint64_t* step;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    fill(team, *step + 1);
    MPIX_Dev_sync(team);
    if (team.block == 0 && team.thread == 0) ++*step;
  }
  /// By all blocks of a grid.
  MPIX_DEV_METHOD void fill(const MPIX_Dev_team& team, std::uint64_t now) const {
    for (std::uint64_t i = std::uint64_t{team.block} * team.threads + team.thread; i < cube.all_cells();
         i += std::uint64_t{team.blocks} * team.threads) {
      long cell[3];
      int field = 0;
      place_of(cube, i, cell, &field);
      bool inside = true;
      for (int d = 0; d < 3; ++d) inside = inside && cell[d] >= 1 && cell[d] <= cube.n[d];
      const std::uint64_t key = key_of(cube, cube.me, cell, field, now);
      for (std::size_t byte = 0; byte < cube.element; ++byte)
        data[i * cube.element + byte] = inside ? value_of(key, byte) : static_cast<unsigned char>(0xee);
    }
  }
};

struct Compare {
  Cube cube;
  const unsigned char* data;
  const std::uint64_t* step;
  std::uint64_t* wrong;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const { compare(team, *step); }
  MPIX_DEV_METHOD void compare(const MPIX_Dev_team& team, std::uint64_t now) const {
    for (std::uint64_t i = std::uint64_t{team.block} * team.threads + team.thread; i < cube.all_cells();
         i += std::uint64_t{team.blocks} * team.threads) {
      long cell[3];
      int field = 0;
      place_of(cube, i, cell, &field);
      const std::uint64_t key = key_of(cube, cube.me, cell, field, now);
      for (std::size_t byte = 0; byte < cube.element; ++byte)
        if (data[i * cube.element + byte] != value_of(key, byte)) (void)mpix::fetch_add_on_device(wrong, 1);
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

inline Cube cube_of(std::size_t element, int fields, int x, int y, int z) {
  Cube cube{{x, y, z}, {0, 0, 0}, {0, 0, 0}, element, fields};
  CHECK_MPI(MPI_Dims_create(ranks, 3, cube.grid));
  int rest = rank;
  for (int d = 0; d < 3; ++d) {
    cube.me[d] = rest % cube.grid[d];
    rest /= cube.grid[d];
  }
  return cube;
}

using Keys = std::vector<std::pair<std::string, std::string>>;

/// For halos whose keys do not say: the third argument of the program.
std::string preset_route = "auto";

inline std::string route_in(const Keys& keys) {
  for (const auto& key : keys)
    if (key.first == "mpix_route") return key.second;
  return preset_route;
}

class Info {
 public:
  explicit Info(const Keys& keys) {
    CHECK_MPI(MPI_Info_create(&info_));
    for (const auto& key : keys) CHECK_MPI(MPI_Info_set(info_, key.first.c_str(), key.second.c_str()));
    CHECK_MPI(MPI_Info_set(info_, "mpix_route", route_in(keys).c_str()));
  }
  ~Info() { CHECK_MPI(MPI_Info_free(&info_)); }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
  operator MPI_Info() const { return info_; }

 private:
  MPI_Info info_ = MPI_INFO_NULL;
};

/// A cube in memory of the device, with its halo, and how many bytes were wrong so far.
class CubeHalo {
 public:
  CubeHalo(const Cube& cube, const Keys& keys)
      : cube_(cube),
        data_(static_cast<unsigned char*>(support::allocate_on_device(cube.bytes()))),
        words_(static_cast<std::uint64_t*>(support::allocate_on_device(16))) {
    support::load_blocks<Fill>();
    support::load_blocks<Compare>();
    const Neighbours neighbours(cube, data_);
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 26, neighbours.messages.data(), Info(keys), &halo_));
  }
  ~CubeHalo() {
    if (halo_ != MPIX_HALO_NULL) CHECK_MPI(MPIX_Halo_free(&halo_));
    support::release_on_device(data_);
    support::release_on_device(words_);
  }
  CubeHalo(const CubeHalo&) = delete;
  CubeHalo& operator=(const CubeHalo&) = delete;

  MPIX_Halo halo() const { return halo_; }
  MPIX_Halo* handle() { return &halo_; }
  Fill fill() const { return Fill{cube_, data_, words_}; }
  Compare compare() const { return Compare{cube_, data_, words_, words_ + 1}; }
  void fill(void* stream) const { support::launch_blocks(fill(), 1, 256, stream); }
  void compare(void* stream) const { support::launch_blocks(compare(), 1, 256, stream); }
  /// When all has run.
  void expect(std::uint64_t steps) const {
    std::uint64_t found[2];
    support::to_host(found, words_, sizeof found);
    EXPECT(found[0] == steps);
    EXPECT(found[1] == 0);
  }
  MPIX_Halo_stats stats() const {
    MPIX_Halo_stats stats;
    CHECK_MPI(MPIX_Halo_get_stats(halo_, &stats, sizeof stats));
    return stats;
  }

 private:
  const Cube cube_;
  unsigned char* const data_;
  std::uint64_t* const words_;  ///< fills so far; bytes that were wrong
  MPIX_Halo halo_ = MPIX_HALO_NULL;
};

/// Runs the case that the first argument names; the second is a number for it.
inline int run_case(int argc, char** argv, std::initializer_list<std::pair<const char*, void (*)(int)>> cases,
                    int thread_level = MPI_THREAD_MULTIPLE) {
  int provided = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, thread_level, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  support::choose_gpu(rank);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const std::string wanted = argc > 1 ? argv[1] : "";
  if (argc > 3) preset_route = argv[3];
  bool found = false;
  for (const auto& one : cases)
    if (wanted == one.first) {
      found = true;
      one.second(argc > 2 ? std::atoi(argv[2]) : 0);
    }
  if (!found) {
    std::fprintf(stderr, "there is no case '%s'\n", wanted.c_str());
    ++failures;
  }
  CHECK_MPI(MPI_Finalize());
  if (failures == 0 && rank == 0) std::printf("%s: all as expected\n", wanted.c_str());
  return failures == 0 ? 0 : 1;
}

}  // namespace
