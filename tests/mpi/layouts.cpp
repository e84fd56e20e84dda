// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Derived datatypes of MPI_Put in stream epochs: those whose bytes lie in the order of memory, without gaps, are taken
// however they were made, and the others are refused. What is which is found out by MPI_Pack.
#include <numeric>

#include "support/catch.h"
#include "support/epochs.h"
#include "support/random.h"

using namespace test;

namespace {

#ifdef OPEN_MPI
constexpr bool is_open_mpi = true;
#else
constexpr bool is_open_mpi = false;
#endif

constexpr int room = 4096, middle = 1024;  ///< buffers begin in the middle: displacements may be negative

/// Where each byte comes from, in the order of the type map: MPI_Pack of buffers that hold the halves of their
/// addresses.
std::vector<int> places_of(MPI_Datatype type, int count) {
  int bytes = 0;
  MPI_OK(MPI_Pack_size(count, type, MPI_COMM_WORLD, &bytes));
  std::vector<unsigned char> packed[2];
  int length = 0;
  for (int half = 0; half < 2; ++half) {
    std::vector<unsigned char> buffer(room + middle);
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<unsigned char>(half ? i >> 8 : i);
    packed[half].resize(static_cast<std::size_t>(bytes) + 1);
    length = 0;
    MPI_OK(MPI_Pack(buffer.data() + middle, count, type, packed[half].data(), bytes, &length, MPI_COMM_WORLD));
  }
  std::vector<int> places;
  for (int i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    places.push_back((packed[1][at] << 8 | packed[0][at]) - middle);
  }
  return places;
}

bool is_run(const std::vector<int>& places) {
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i] != places[0] + static_cast<int>(i)) return false;
  return places.empty() || places[0] >= 0;
}

int extent_of(MPI_Datatype type) {
  MPI_Aint lower = 0, extent = 0;
  MPI_OK(MPI_Type_get_extent(type, &lower, &extent));
  return static_cast<int>(extent);
}

int size_of(MPI_Datatype type) {
  int bytes = 0;
  MPI_OK(MPI_Type_size(type, &bytes));
  return bytes;
}

/// Datatypes at random, of which many are contiguous.
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  MPI_Datatype make(int depth) {
    if (depth == 0) return basic();
    const MPI_Datatype child = make(depth - 1);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    switch (random_.below(12)) {
      case 0:
        MPI_OK(MPI_Type_contiguous(number(0, 3), child, &type));
        break;
      case 1:
        vector(child, &type);
        break;
      case 2:
        hvector(child, &type);
        break;
      case 3:
        indexed(child, &type);
        break;
      case 4:
        hindexed(child, &type);
        break;
      case 5:
        indexed_block(child, &type);
        break;
      case 6:
        hindexed_block(child, &type);
        break;
      case 7:
        structure(child, &type);
        break;
      case 8:
        subarray(child, &type);
        break;
      case 9:
        darray(child, &type);
        break;
      case 10:
        MPI_OK(MPI_Type_dup(child, &type));
        break;
      default:
        MPI_OK(
            MPI_Type_create_resized(child, random_.pick({0, 0, -4}), size_of(child) + random_.pick({0, 0, 4}), &type));
    }
    if (depth > 1) MPI_OK(MPI_Type_free(const_cast<MPI_Datatype*>(&child)));
    return type;
  }

 private:
  int number(int least, int most) {
    return least + static_cast<int>(random_.below(static_cast<std::size_t>(most - least + 1)));
  }
  bool straight() { return random_.chance(0.7); }
  MPI_Datatype basic() {
    return random_.pick({MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_DOUBLE_INT, MPI_SHORT_INT});
  }

  void vector(MPI_Datatype child, MPI_Datatype* type) {
    const int length = number(0, 3);
    MPI_OK(MPI_Type_vector(number(0, 3), length, straight() ? length : length + number(-4, 2), child, type));
  }
  void hvector(MPI_Datatype child, MPI_Datatype* type) {
    const int length = number(0, 3);
    MPI_OK(MPI_Type_create_hvector(number(0, 3), length, length * size_of(child) + (straight() ? 0 : number(-16, 8)),
                                   child, type));
  }

  /// Lengths, and places one behind the other, in units: as a rule straight on.
  void blocks(int unit, bool one_length, std::vector<int>* lengths, std::vector<int>* places) {
    int at = number(0, 2);
    const int length = number(0, 2);
    for (int i = number(0, 4); i > 0; --i) {
      lengths->push_back(one_length ? length : number(0, 2));
      places->push_back(at + (random_.chance(0.1) ? number(-2, 2) : 0));
      at += lengths->back() * unit;
    }
    if (random_.chance(0.1)) random_.shuffle(*places);
  }
  void indexed(MPI_Datatype child, MPI_Datatype* type) {
    std::vector<int> lengths, places;
    blocks(1, false, &lengths, &places);
    MPI_OK(MPI_Type_indexed(static_cast<int>(places.size()), lengths.data(), places.data(), child, type));
  }
  void indexed_block(MPI_Datatype child, MPI_Datatype* type) {
    std::vector<int> lengths, places;
    blocks(1, true, &lengths, &places);
    MPI_OK(MPI_Type_create_indexed_block(static_cast<int>(places.size()), lengths.empty() ? 1 : lengths[0],
                                         places.data(), child, type));
  }
  void hindexed(MPI_Datatype child, MPI_Datatype* type) {
    std::vector<int> lengths, places;
    blocks(size_of(child), false, &lengths, &places);
    const std::vector<MPI_Aint> far(places.begin(), places.end());
    MPI_OK(MPI_Type_create_hindexed(static_cast<int>(far.size()), lengths.data(), far.data(), child, type));
  }
  void hindexed_block(MPI_Datatype child, MPI_Datatype* type) {
    std::vector<int> lengths, places;
    blocks(size_of(child), true, &lengths, &places);
    const std::vector<MPI_Aint> far(places.begin(), places.end());
    MPI_OK(MPI_Type_create_hindexed_block(static_cast<int>(far.size()), lengths.empty() ? 1 : lengths[0], far.data(),
                                          child, type));
  }
  void structure(MPI_Datatype child, MPI_Datatype* type) {
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    std::vector<MPI_Datatype> parts;
    MPI_Aint at = number(0, 4);
    for (int i = number(0, 4); i > 0; --i) {
      parts.push_back(random_.chance(0.5) ? child : basic());
      lengths.push_back(number(0, 2));
      places.push_back(at + (random_.chance(0.1) ? number(-4, 4) : 0));
      at += lengths.back() * size_of(parts.back());
    }
    MPI_OK(MPI_Type_create_struct(static_cast<int>(parts.size()), lengths.data(), places.data(), parts.data(), type));
  }
  void subarray(MPI_Datatype child, MPI_Datatype* type) {
    const int dimensions = number(1, 3);
    std::vector<int> sizes, parts, starts;
    for (int i = 0; i < dimensions; ++i) {
      sizes.push_back(number(1, 3));
      parts.push_back(random_.chance(0.5) ? sizes.back() : number(1, sizes.back()));
      starts.push_back(number(0, sizes.back() - parts.back()));
    }
    MPI_OK(MPI_Type_create_subarray(dimensions, sizes.data(), parts.data(), starts.data(),
                                    random_.pick({MPI_ORDER_C, MPI_ORDER_FORTRAN}), child, type));
  }
  void darray(MPI_Datatype child, MPI_Datatype* type) {
    const int sizes[] = {number(1, 4), number(1, 4)};
    const int grid[] = {number(1, 2), number(1, 2)};
    const int ways[] = {random_.pick({MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}),
                        random_.pick({MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC})};
    const int arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    const int processes = grid[0] * grid[1];
    // Open MPI 4.1.4 refuses some of them.
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    const int made = MPI_Type_create_darray(processes, number(0, processes - 1), 2, sizes, ways, arguments, grid,
                                            random_.pick({MPI_ORDER_C, MPI_ORDER_FORTRAN}), child, type);
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    if (made != MPI_SUCCESS) MPI_OK(MPI_Type_dup(child, type));
  }

  Random random_;
};

/// Everything that the type map names lies within the buffers.
bool fits(MPI_Datatype type, int count) {
  MPI_Aint first = 0, bytes = 0;
  MPI_OK(MPI_Type_get_true_extent(type, &first, &bytes));
  const MPI_Aint steps = MPI_Aint(count - 1) * extent_of(type);
  const MPI_Aint begin = first + std::min<MPI_Aint>(steps, 0), end = first + bytes + std::max<MPI_Aint>(steps, 0);
  return begin > -middle && end < room;
}

struct Found {
  int taken = 0, refused = 0, mistaken = 0;
};

/// A put of `count` elements to the right, from a buffer of patterns.
void try_type(Window& window, const Buffer& source, MPI_Datatype type, int count, Stream& stream, Found* found) {
  const std::vector<int> places = places_of(type, count);
  const bool expected = is_run(places);
  Buffer::set_now(window.base(), room, '\0');
  const Group to(right_of(rank())), from(left_of(rank()));
  barrier();
  MPI_OK(MPIX_Win_post_stream(from, window, stream));
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
  const int code = MPI_Put(source.data() + middle, count, type, right_of(rank()), 8, count, type, window);
  MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
  stream.synchronize();
  INFO(error_text(code));
  // Open MPI 4.1.4 takes some (1 of 600) for contiguous that are not: it packs a vector with a stride of -1 as if that
  // were the length of its blocks, and elements of an extent of 0 one behind the other. These are refused.
  if (is_open_mpi && expected && code != MPI_SUCCESS) {
    CHECK(error_class(code) == MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(++found->mistaken < 10);
    barrier();
    return;
  }
  CHECK((expected ? code : error_class(code)) == (expected ? MPI_SUCCESS : MPI_ERR_UNSUPPORTED_OPERATION));
  ++(expected ? found->taken : found->refused);
  const std::vector<char> got = contents<char>(window.base(), room);
  const std::vector<char> sent = contents<char>(source.data(), room + middle);
  std::vector<char> right(room, '\0');
  if (expected)
    for (int place : places)
      right[static_cast<std::size_t>(8 + place)] = sent[static_cast<std::size_t>(middle + place)];
  CHECK((got == right));
  barrier();
}

}  // namespace

TEST_CASE("derived datatypes at random are taken where they are contiguous") {
  Window window(Memory::device, room);
  Buffer source(room + middle);
  std::vector<char> pattern(source.size());
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<char>(1 + mix(i) % 255);
  source.write(pattern.data(), pattern.size());
  Stream stream;
  Found found;
  const std::uint64_t seed = static_cast<std::uint64_t>(parameter("SOAK_SEED", 1));
  for (int k = 0; k < scaled(static_cast<int>(parameter("SOAK_EPOCHS", 600))); ++k) {
    Maker maker(key({seed, static_cast<std::uint64_t>(k)}));
    Random random(key({seed, static_cast<std::uint64_t>(k), 1}));
    MPI_Datatype type = maker.make(1 + static_cast<int>(random.below(3)));
    MPI_OK(MPI_Type_commit(&type));
    const int count = random.pick({0, 1, 1, 1, 2, 3});
    INFO("type " << k << " of seed " << seed << ", " << count << " of " << size_of(type) << " bytes");
    if (fits(type, count)) try_type(window, source, type, count, stream, &found);
    MPI_OK(MPI_Type_free(&type));
  }
  INFO(found.taken << " taken, " << found.refused << " refused");
  CHECK(found.taken > 50);
  CHECK(found.refused > 50);
}

TEST_CASE("absolute addresses") {
  Window window(Memory::device, 64);
  const Values<int> source{rank(), 7};
  MPI_Aint address = 0;
  MPI_OK(MPI_Get_address(source.data(), &address));
  MPI_Datatype type;
  MPI_OK(MPI_Type_create_hindexed_block(1, 2, &address, MPI_INT, &type));
  MPI_OK(MPI_Type_commit(&type));
  const Group to(right_of(rank())), from(left_of(rank()));
  Stream stream;
  MPI_OK(MPIX_Win_post_stream(from, window, stream));
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
  MPI_OK(MPI_Put(MPI_BOTTOM, 1, type, right_of(rank()), 0, 2, MPI_INT, window));
  MPI_OK(MPI_Type_free(&type));
  MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
  stream.synchronize();
  const std::vector<int> got = contents<int>(window.base(), 2);
  CHECK(got[0] == left_of(rank()));
  CHECK(got[1] == 7);
}

TEST_CASE("the end of the window counts from where the bytes lie") {
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const int whole = 8, part = 4, begin = 4;
  MPI_Datatype half;
  MPI_OK(MPI_Type_create_subarray(1, &whole, &part, &begin, MPI_ORDER_C, MPI_BYTE, &half));
  MPI_OK(MPI_Type_commit(&half));
  const Values<int> source{5 + rank()};
  const Group to(right_of(rank())), from(left_of(rank()));
  Stream stream;
  MPI_OK(MPIX_Win_post_stream(from, window, stream));
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
  const auto put = [&](MPI_Aint at) {
    return MPI_Put(source.data(), 1, MPI_INT, right_of(rank()), at, 1, half, window);
  };
  for (const MPI_Aint at : {MPI_Aint(57), MPI_Aint(64), MPI_Aint(1) << 62})
    CHECK(error_class(put(at)) == MPI_ERR_RMA_RANGE);
  MPI_OK(put(56));
  MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
  stream.synchronize();
  CHECK(contents<int>(window.base() + 60, 1)[0] == 5 + left_of(rank()));
  // All of them behind a window that is shorter than what the datatype leaves out.
  Window shorter(Memory::device, begin - 2);
  MPI_OK(MPI_Win_set_errhandler(shorter, MPI_ERRORS_RETURN));
  MPI_OK(MPIX_Win_post_stream(from, shorter, stream));
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, shorter));
  CHECK(error_class(MPI_Put(source.data(), 1, MPI_INT, right_of(rank()), 0, 1, half, shorter)) == MPI_ERR_RMA_RANGE);
  MPI_OK(MPIX_Win_complete_wait_stream(shorter, stream));
  stream.synchronize();
  MPI_OK(MPI_Type_free(&half));
}
