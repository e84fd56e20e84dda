// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What a program can ask of windows, and of memory: as without libmpix, and what libmpix adds.
#include <dirent.h>

#include <cstdlib>
#include <cstring>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

// What goes through the mailbox depends on it.
const bool settings_made = setenv("MPIX_EAGER_SIZE", "2k", 1) == 0;

struct Attributes {
  void* base;
  MPI_Aint size;
  int unit;
  int flavour;
  int model;
};

template <class T>
T attribute(MPI_Win win, int key) {
  T* value = nullptr;
  int found = 0;
  MPI_OK(MPI_Win_get_attr(win, key, &value, &found));
  REQUIRE(found);
  return *value;
}

Attributes attributes_of(MPI_Win win) {
  void* base = nullptr;  // the one attribute that is a pointer itself
  int found = 0;
  MPI_OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &found));
  REQUIRE(found);
  return {base, attribute<MPI_Aint>(win, MPI_WIN_SIZE), attribute<int>(win, MPI_WIN_DISP_UNIT),
          attribute<int>(win, MPI_WIN_CREATE_FLAVOR), attribute<int>(win, MPI_WIN_MODEL)};
}

/// MPICH 4.0.2 rounds MPI_WIN_BASE down to a multiple of 16.
bool is_base(void* attribute, void* base) {
#ifdef MPICH
  return reinterpret_cast<std::uintptr_t>(attribute) / 16 == reinterpret_cast<std::uintptr_t>(base) / 16;
#else
  return attribute == base;
#endif
}

void check_attributes(MPI_Win win, void* base, MPI_Aint size, int unit, int flavour) {
  const Attributes is = attributes_of(win);
  CHECK(is_base(is.base, base));
  CHECK(is.size == size);
  CHECK(is.unit == unit);
  CHECK(is.flavour == flavour);
  CHECK((is.model == MPI_WIN_UNIFIED || is.model == MPI_WIN_SEPARATE));
}

int open_files() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  REQUIRE(directory != nullptr);
  while (readdir(directory)) ++count;
  closedir(directory);
  return count;
}

}  // namespace

TEST_CASE("attributes of created windows") {
  const MPI_Aint size = 100 + 10 * rank();
  const int unit = 1 + rank();
  std::vector<char> heap(300);
  Buffer pool(300), mapped(300, Kind::mapped), pinned(300, Kind::pinned);
  DeviceMemory device(300);
  for (char* base : {heap.data() + 50, pool.data() + 50, mapped.data() + 50, pinned.data() + 50, device.base() + 50,
                     device.base()}) {
    MPI_Win win;
    MPI_OK(MPI_Win_create(base, size, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    check_attributes(win, base, size, unit, MPI_WIN_FLAVOR_CREATE);
    MPI_OK(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL);
  }
}

TEST_CASE("attributes of allocated windows") {
  const MPI_Aint size = 1000 + 10 * rank();
  const int unit = 1 + rank();
  for (const bool device : {false, true}) {
    const DeviceInfo info;
    MPI_Win win;
    void* base = nullptr;
    MPI_OK(MPI_Win_allocate(size, unit, device ? info : MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    INFO((device ? "of the device" : "of MPI"));
    check_attributes(win, base, size, unit, MPI_WIN_FLAVOR_ALLOCATE);
    if (device) {
      Buffer::set_now(base, static_cast<std::size_t>(size), 1);
    } else {
      std::memset(base, 1, static_cast<std::size_t>(size));
    }
    MPI_OK(MPI_Win_free(&win));
  }
}

TEST_CASE("windows of no size") {
  for (const bool device : {false, true}) {
    const DeviceInfo info;
    const MPI_Aint size = rank() == 0 ? 64 : 0;
    MPI_Win win;
    void* base = nullptr;
    MPI_OK(MPI_Win_allocate(size, 1, device ? info : MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    CHECK(attributes_of(win).size == size);
    CHECK(attributes_of(win).flavour == MPI_WIN_FLAVOR_ALLOCATE);
    MPI_OK(MPI_Win_free(&win));
  }
  MPI_Win win;
  MPI_OK(MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  check_attributes(win, nullptr, 0, 1, MPI_WIN_FLAVOR_CREATE);
  MPI_OK(MPI_Win_free(&win));
}

TEST_CASE("shared windows") {
  MPI_Win win;
  int* base = nullptr;
  const MPI_Aint size = 64 * sizeof(int);
  MPI_OK(MPI_Win_allocate_shared(size, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
  check_attributes(win, base, size, sizeof(int), MPI_WIN_FLAVOR_SHARED);
  MPI_Aint left_size = 0;
  int left_unit = 0;
  int* left = nullptr;
  MPI_OK(MPI_Win_shared_query(win, left_of(rank()), &left_size, &left_unit, &left));
  CHECK(left_size == size);
  CHECK(left_unit == int(sizeof(int)));
  barrier();
  if (!device().is_host()) {
    MPI_OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    const int code = MPIX_Win_post_stream(MPI_GROUP_EMPTY, win, device().own_stream());
    INFO(error_text(code));
    CHECK(error_class(code) == MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(error_text(code).find("not memory of the GPU") != std::string::npos);
    MPI_OK(MPI_Win_free(&win));
    return;
  }
  // Stream epochs work on it, too.
  Ring ring(win, reinterpret_cast<char*>(base), 200);
  Stream stream;
  for (int k = 0; k < 3; ++k) ring.epoch(stream);
  stream.synchronize();
  MPI_OK(MPI_Win_free(&win));
}

TEST_CASE("dynamic windows") {
  MPI_Win win;
  MPI_OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  const Attributes is = attributes_of(win);
  CHECK(is.base == MPI_BOTTOM);
  CHECK(is.size == 0);
  CHECK(is.flavour == MPI_WIN_FLAVOR_DYNAMIC);
  MPI_OK(MPI_Win_free(&win));
}

TEST_CASE("names, groups and info of windows") {
  for (Memory memory : all_memories) {
    Window window(memory, 64);
    MPI_OK(MPI_Win_set_name(window, "pressure"));
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    MPI_OK(MPI_Win_get_name(window, name, &length));
    CHECK(std::string(name) == "pressure");

    MPI_Group group, world;
    int same = MPI_UNEQUAL;
    MPI_OK(MPI_Win_get_group(window, &group));
    MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MPI_OK(MPI_Group_compare(group, world, &same));
    CHECK(same == MPI_IDENT);
    MPI_OK(MPI_Group_free(&group));
    MPI_OK(MPI_Group_free(&world));

    MPI_Info info = MPI_INFO_NULL;
    MPI_OK(MPI_Win_get_info(window, &info));
    CHECK(info != MPI_INFO_NULL);
    MPI_OK(MPI_Info_free(&info));
  }
}

TEST_CASE("a program's own attributes and error handlers") {
  int key = MPI_KEYVAL_INVALID;
  static int deleted = 0;
  const auto note = [](MPI_Win, int, void*, void*) -> int {
    ++deleted;
    return MPI_SUCCESS;
  };
  MPI_OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, note, &key, nullptr));
  {
    Window window(Memory::device, 64);
    int value = 3;
    MPI_OK(MPI_Win_set_attr(window, key, &value));
    CHECK(attribute<int>(window, key) == 3);
    MPI_Errhandler handler;
    MPI_OK(MPI_Win_get_errhandler(window, &handler));
    CHECK(handler == MPI_ERRORS_RETURN);
    MPI_OK(MPI_Errhandler_free(&handler));
    CHECK(deleted == 0);
  }
  CHECK(deleted == 1);
  MPI_OK(MPI_Win_free_keyval(&key));
}

// Past libmpix: it learns of that by the window's attributes, within MPI's call, while streams still need MPI.
TEST_CASE("another layer frees a window with work under way") {
  constexpr std::size_t bytes = 300000;
  const Group to(right_of(rank())), from(left_of(rank()));
  for (int i = 0; i < 2 * size(); ++i) {
    Window window(Memory::device, bytes);
    Buffer source(bytes);
    Stream stream;
    if (rank() == i % size()) stream.delay(20000);
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(source.data(), static_cast<int>(bytes), MPI_BYTE, right_of(rank()), 0, static_cast<int>(bytes),
                   MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    MPI_OK(PMPI_Win_free(window.handle()));
    CHECK(window == MPI_WIN_NULL);
    stream.synchronize();
  }
}

TEST_CASE("memory with and without a kind") {
  const DeviceInfo info;
  const auto use = [](MPI_Aint size, MPI_Info kind, bool of_device) {
    char* memory = nullptr;
    MPI_OK(MPI_Alloc_mem(size, kind, &memory));
    if (size > 0) REQUIRE(memory != nullptr);
    if (of_device) {
      Buffer::set_now(memory, static_cast<std::size_t>(size), 'm');
    } else {
      std::fill_n(memory, size, 'm');
    }
    MPI_OK(MPI_Free_mem(memory));
  };
  for (MPI_Aint size : {1, 100, 1 << 20}) {
    use(size, MPI_INFO_NULL, false);
    use(size, info, true);
  }
  const int files = open_files();
  for (int i = 0; i < 100; ++i) use(5000, info, true);
  CHECK(open_files() == files);

  MPI_Info list;
  MPI_OK(MPI_Info_create(&list));
  MPI_OK(MPI_Info_set(list, "mpi_memory_alloc_kinds", "system,mpix:device"));
  use(100, list, true);
  MPI_OK(MPI_Info_set(list, "mpi_memory_alloc_kinds", "no-such-kind"));
  use(100, list, false);
  MPI_OK(MPI_Info_free(&list));
}

TEST_CASE("the shim is active") {
  int active = -1;
  MPI_OK(MPIX_Query_stream_rma(&active));
  CHECK(active == 1);
}

namespace {

MPIX_Win_stats stats_of(MPI_Win win) {
  MPIX_Win_stats stats;
  MPI_OK(MPIX_Win_get_stats(win, &stats, sizeof stats));
  return stats;
}

/// Two puts each in `epochs` ring epochs; how they go depends on the window's memory.
void two_puts(MPI_Win win, int epochs) {
  const Group to(right_of(rank()));
  const Group from(left_of(rank()));
  Buffer source(100000);
  Stream stream;
  for (int k = 0; k < epochs; ++k) {
    MPI_OK(MPIX_Win_post_stream(from, win, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, win));
    MPI_OK(MPI_Put(source.data(), 1000, MPI_BYTE, right_of(rank()), 0, 1000, MPI_BYTE, win));
    MPI_OK(MPI_Put(source.data(), 90000, MPI_BYTE, right_of(rank()), 2000, 90000, MPI_BYTE, win));
    MPI_OK(MPIX_Win_complete_stream(win, stream));
    MPI_OK(MPIX_Win_wait_stream(win, stream));
  }
  stream.synchronize();
}

}  // namespace

TEST_CASE("statistics count what happened") {
  REQUIRE(settings_made);
  for (Memory memory : {Memory::device, Memory::unmapped}) {
    Window window(memory, 100000);
    CHECK(stats_of(window).puts == 0);
    CHECK(stats_of(window).plans_built == 0);
    two_puts(window, 5);
    const MPIX_Win_stats stats = stats_of(window);
    CHECK(stats.exposure_epochs == 5);
    CHECK(stats.access_epochs == 5);
    CHECK(stats.puts == 10);
    // Here all puts to a target go the way that the largest must. Whether it is on another node is MPIX_NODE_SIZE's to
    // say; there the small put goes by itself, but for a relay, and all memory is reached alike.
    const bool elsewhere = stats.bytes_network_direct > 0;
    const unsigned long long here = elsewhere ? 0 : 5u * 91000;
    CHECK(stats.bytes_mailbox == 0);
    CHECK(stats.bytes_direct == (memory == Memory::device ? here : 0));
    CHECK(stats.bytes_staged == (memory == Memory::unmapped ? here : 0));
    const unsigned small = goes_by_relay() ? 0 : 1000;
    CHECK(stats.bytes_network_eager == (elsewhere ? 5u * small : 0));
    CHECK(stats.bytes_network_direct == (elsewhere ? 5u * (91000 - small) : 0));
    const bool has_budget = stats.network_budget > 0;
    CHECK((!has_budget || stats.network_peak <= stats.network_budget));
    CHECK(stats.plans_built == 1);
    CHECK(stats.plans_reused == 4);
    CHECK(stats.posts_raised <= 5);
    // Ordinary epochs are not counted. Memory of a GPU many an MPI cannot reach.
    MPI_OK(MPI_Win_fence(0, window));
    if (device().is_host()) MPI_OK(MPI_Put(window.base(), 0, MPI_BYTE, right_of(rank()), 0, 0, MPI_BYTE, window));
    MPI_OK(MPI_Win_fence(0, window));
    CHECK(stats_of(window).puts == 10);
  }
}

TEST_CASE("statistics of small puts") {
  for (Memory memory : all_memories) {
    Window window(memory, 1000);
    Ring ring(window, window.base(), 1000);
    Stream stream;
    for (int k = 0; k < 5; ++k) ring.epoch(stream);
    stream.synchronize();
    const MPIX_Win_stats stats = stats_of(window);
    const unsigned long long other = stats.bytes_direct + stats.bytes_staged + stats.bytes_network_eager;
    INFO(name(memory));
    CHECK(stats.bytes_mailbox + other == 5 * 1000);
    // Ranks that share a GPU in turns have no use for mailboxes, and other nodes have their own.
    if (device().is_host() && stats.bytes_network_eager == 0) CHECK(other == 0);
  }
}

TEST_CASE("statistics for programs that are older or newer than the library") {
  Window window(Memory::device, 100000);
  two_puts(window, 2);

  struct Older {
    unsigned long long exposure_epochs, access_epochs, guard;
  } older{0, 0, 77};
  MPI_OK(MPIX_Win_get_stats(window, reinterpret_cast<MPIX_Win_stats*>(&older), 16));
  CHECK(older.exposure_epochs == 2);
  CHECK(older.access_epochs == 2);
  CHECK(older.guard == 77);

  struct Newer {
    MPIX_Win_stats known;
    unsigned long long unknown[4];
    unsigned long long guard;
  } newer;
  std::memset(&newer, 0xff, sizeof newer);
  MPI_OK(MPIX_Win_get_stats(window, &newer.known, sizeof newer - sizeof newer.guard));
  CHECK(newer.known.puts == 4);
  CHECK(newer.known.plans_reused == 1);
  for (unsigned long long unknown : newer.unknown) CHECK(unknown == 0);
  CHECK(newer.guard == ~0ull);
}

TEST_CASE("MPI_Win_get_info tells what libmpix was told, and what MPI has to tell") {
  for (const char* const lazy : {"true", "false", ""}) {
    MPI_Info given, got;
    MPI_OK(MPI_Info_create(&given));
    if (*lazy != 0) MPI_OK(MPI_Info_set(given, "mpix_lazy_post", lazy));
    MPI_OK(MPI_Info_set(given, "no_locks", "true"));
    void* base = nullptr;
    MPI_Win win;
    MPI_OK(MPI_Win_allocate(64, 1, given, MPI_COMM_WORLD, &base, &win));
    MPI_OK(MPI_Info_free(&given));
    MPI_OK(MPI_Win_get_info(win, &got));
    char value[8] = "";
    int found = 0;
    MPI_OK(MPI_Info_get(got, "mpix_lazy_post", 7, value, &found));
    // Open MPI keeps what it does not know, and tells "false", too.
    CHECK((found && std::strcmp(value, "true") == 0) == (std::strcmp(lazy, "true") == 0));
    MPI_OK(MPI_Info_get(got, "no_locks", 7, value, &found));
    if (found) CHECK(std::strcmp(value, "true") == 0);
    MPI_OK(MPI_Info_free(&got));
    MPI_OK(MPI_Win_free(&win));
  }
}
