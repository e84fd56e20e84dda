// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Windows of a domain, with threads as ranks or, compiled as CUDA or HIP, blocks:
//
//   mpiexec -n N domain_windows order
//     ranks that open and close windows in different orders
//   mpiexec -n N domain_windows memory
//     windows over memory that the program has from elsewhere, and over such as cannot be
//   mpiexec -n N domain_windows overlap
//     a put between ranks whose parts overlap moves nothing
#include <mpi.h>

#if !defined(__CUDACC__) && !defined(__HIPCC__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/domain_program.h"

namespace {

using test::set;

constexpr std::size_t part = 4096;

/// What the ranks of a group do with windows, of which some do something else: nobody does any of it, and all are told.
struct Order {
  int comm;
  char* base;
  test::Findings* findings;

  MPIX_DEV_METHOD char* mine(const MPIX_Dev_ctx& c) const { return base + (c.rank - c.p.first_rank) * part; }

  /// All have the window, under one number: each puts to the next, in the group.
  MPIX_DEV_METHOD void use(MPIX_Dev_ctx& c, MPIX_Dev_win window, int tag) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    const int n = MPIX_Dev_size(&c, comm), i = MPIX_Dev_rank(&c, comm), first = static_cast<int>(c.rank) - i;
    char* const from = mine(c) + part / 2;
    set(c, from, 8, static_cast<char>(i + tag));
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, first + (i + 1) % n, 8, 8, from, tag) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, first + (i + n - 1) % n, tag, 1) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, test::is(mine(c) + 8, 8, static_cast<char>((i + n - 1) % n + tag)));
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, comm) == MPI_SUCCESS);
  }
  MPIX_DEV_METHOD int open(MPIX_Dev_ctx& c, MPIX_Dev_win* window) const {
    return MPIX_Dev_win_open(&c, comm, mine(c), part / 2, window);
  }

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    const bool other = MPIX_Dev_rank(&c, comm) == 1;
    MPIX_Dev_win windows[] = {-1, -1}, third = -5;
    for (MPIX_Dev_win& window : windows) DOMAIN_EXPECT(c, f, open(c, &window) == MPI_SUCCESS);
    const MPIX_Dev_win before[] = {windows[0], windows[1]};
    for (int round = 0; round < 3; ++round) {
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &windows[other]) == MPI_ERR_WIN);
      DOMAIN_EXPECT(c, f, (other ? open(c, &third) : MPIX_Dev_win_close(&c, &windows[0])) == MPI_ERR_WIN);
      DOMAIN_EXPECT(c, f, (other ? MPIX_Dev_win_close(&c, &windows[1]) : open(c, &third)) == MPI_ERR_WIN);
      if (other)
        DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, comm) == MPI_SUCCESS);
      else
        DOMAIN_EXPECT(c, f, open(c, &third) == MPI_ERR_WIN);
      DOMAIN_EXPECT(c, f, third == -5 && windows[0] == before[0] && windows[1] == before[1]);
      for (const MPIX_Dev_win window : windows) use(c, window, 10 + round);
    }
    DOMAIN_EXPECT(c, f, open(c, &third) == MPI_SUCCESS && third != windows[0] && third != windows[1]);
    use(c, third, 20);
    // One that all have closed, and one that some have closed already.
    MPIX_Dev_win gone = windows[0];
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &windows[0]) == MPI_SUCCESS && windows[0] == -1);
    MPIX_Dev_win again = gone;
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, other ? &again : &third) == MPI_ERR_WIN && again == gone);
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &again) == MPI_ERR_WIN && again == gone);
    use(c, third, 30);
    DOMAIN_EXPECT(c, f, open(c, &windows[0]) == MPI_SUCCESS && windows[0] == gone);
    for (MPIX_Dev_win* const window : {&third, &windows[1], &windows[0]}) {
      use(c, *window, 40);
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, window) == MPI_SUCCESS);
    }
    test::count(c, f);
  }
};

void order() {
  const int here = 3;
  test::Ranks ranks(here);
  char* const base = ranks.domain.allocate(part * here);
  CHECK_MPI(MPIX_Dev_attach(ranks.domain, base, part * here));
  for (const int comm : {MPIX_DEV_WORLD, MPIX_DEV_NODE, MPIX_DEV_DEVICE}) {
    ranks.run(Order{comm, base, ranks.found()}, 1);
    int error_class = MPI_SUCCESS;
    const std::string text = ranks.error(&error_class);
    EXPECT(error_class == MPI_ERR_WIN && std::strstr(text.c_str(), "MPIX_Dev_win_close: not what other ranks do: "));
  }
  CHECK_MPI(MPIX_Dev_detach(ranks.domain, base));
}

// ---- memory of the program ---------------------------------------------------------------------------

#if defined(__CUDACC__) || defined(__HIPCC__)
class OwnMemory {
 public:
  explicit OwnMemory(std::size_t bytes) {
    void* base = nullptr;
    DOMAIN_CHECK_GPU(DOMAIN_GPU(Malloc)(&base, bytes));
    base_ = static_cast<char*>(base);
  }
  ~OwnMemory() { DOMAIN_CHECK_GPU(DOMAIN_GPU(Free)(base_)); }
  char* base() const { return base_; }

 private:
  char* base_ = nullptr;
};
class PinnedMemory {
 public:
  PinnedMemory() { DOMAIN_CHECK_GPU(DOMAIN_GPU(HostAlloc)(&base_, part, 0)); }
  ~PinnedMemory() {
#if defined(__HIPCC__)
    DOMAIN_CHECK_GPU(hipHostFree(base_));
#else
    DOMAIN_CHECK_GPU(cudaFreeHost(base_));
#endif
  }
  void* base() const { return base_; }

 private:
  void* base_ = nullptr;
};
#else
class OwnMemory {
 public:
  explicit OwnMemory(std::size_t bytes) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"));
    CHECK_MPI(MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, info, MPI_COMM_WORLD, &base_, &window_));
    CHECK_MPI(MPI_Info_free(&info));
  }
  ~OwnMemory() { CHECK_MPI(MPI_Win_free(&window_)); }
  char* base() const { return base_; }

 private:
  char* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};
#endif

/// Each rank puts to all others, into the window of the host and into one that it opens, in lines and straight.
struct Everywhere {
  static constexpr std::size_t own = 24576, slot = 8192;
  char *memory, *scratch;
  MPIX_Dev_win host_window;
  test::Findings* findings;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t here = c.rank - c.p.first_rank;
    test::Findings& f = findings[here];
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    char *const mine = memory + here * own, *const from = scratch + here * slot;
    MPIX_Dev_win opened = -1;
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, mine + slot, 2 * slot, &opened) == MPI_SUCCESS);
    for (int distance = 0; distance < n; ++distance)
      for (const std::size_t bytes : {std::size_t{24}, std::size_t{48}, slot - 8}) {
        const int to = (me + distance) % n, of = (me + n - distance) % n;
        set(c, mine, own, 77);
        set(c, from, bytes, static_cast<char>(me));
        DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
        DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, host_window, to, 8, bytes, from, 1) == MPI_SUCCESS);
        DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, opened, to, slot, bytes, from, 2) == MPI_SUCCESS);
        DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, host_window, of, 1, 1) == MPI_SUCCESS);
        DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, opened, of, 2, 1) == MPI_SUCCESS);
        const auto value = static_cast<char>(of);
        DOMAIN_EXPECT(c, f, test::is(mine, 8, 77) && test::is(mine + 8, bytes, value));
        DOMAIN_EXPECT(c, f, test::is(mine + 8 + bytes, 2 * slot - bytes - 8, 77));
        DOMAIN_EXPECT(c, f, test::is(mine + 2 * slot, bytes, value));
        DOMAIN_EXPECT(c, f, test::is(mine + 2 * slot + bytes, slot - bytes, 77));
        DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
      }
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &opened) == MPI_SUCCESS);
    test::count(c, f);
  }
};

/// What only this process can use is in no window, and attached to nothing; of one process, or of all.
void memory_of_nobody_else(test::Ranks& ranks, void* base, int wanted) {
  char* const good = ranks.domain.allocate(part);
  for (const int who : {0, -1}) {
    void* const mine = who < 0 || who == test::process ? base : good;
    void* const bases[] = {good, mine};
    const std::size_t sizes[] = {64, 64};
    MPIX_Dev_win window = -1;
    EXPECT(test::class_of(MPIX_Dev_attach(ranks.domain, mine, 64)) == wanted);
    EXPECT(test::class_of(MPIX_Dev_win_create(ranks.domain, bases, sizes, &window)) == wanted && window == -1);
  }
}

void memory() {
  const int here = 2;
  test::Ranks ranks(here);
  std::vector<char> pageable(part);
  memory_of_nobody_else(ranks, pageable.data(),
                        support::ranks_are_blocks ? MPI_ERR_UNSUPPORTED_OPERATION : MPI_ERR_RMA_ATTACH);
#if defined(__CUDACC__) || defined(__HIPCC__)
  const PinnedMemory pinned;
  memory_of_nobody_else(ranks, pinned.base(), MPI_ERR_RMA_ATTACH);
#endif
  {
    // A part of an allocation, which begins in its middle.
    const std::size_t before = 3 * part + 8, bytes = Everywhere::own * here;
    const OwnMemory own(before + bytes + part);
    char* const base = own.base() + before;
    char* const scratch = ranks.domain.allocate(Everywhere::slot * here);
    CHECK_MPI(MPIX_Dev_attach(ranks.domain, base, bytes));
    MPIX_Dev_win window = ranks.domain.window_over(base, Everywhere::own);
    ranks.run(Everywhere{base, scratch, window, ranks.found()}, 1);
    ranks.domain.check();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPIX_Dev_win_free(ranks.domain, &window));
    CHECK_MPI(MPIX_Dev_detach(ranks.domain, base));
  }
}

// ---- overlap -----------------------------------------------------------------------------------------

/// The second half of a rank's part is the first half of the next one's. What a rank puts from there lies where it
/// belongs: it may change it at once, and the next finds what it was changed to.
struct Poisoned {
  static constexpr std::size_t half = 8192;
  MPIX_Dev_win window;
  char* base;
  std::uint64_t* poisoned;  ///< by rank here: puts to it whose source has been changed
  test::Findings* findings;

  MPIX_DEV_METHOD int put(MPIX_Dev_ctx& c, std::uint32_t way, std::size_t bytes, char* from) const {
    const int next = static_cast<int>(c.rank + 1);
    if (way == 1) return MPIX_Dev_put_notify_2d(&c, window, next, 0, bytes / 2, from, bytes / 2, bytes / 4, 2, 1);
    if (way == 2) {
      const int done = MPIX_Dev_put(&c, window, next, 0, bytes, from);
      return done != MPI_SUCCESS ? done : MPIX_Dev_notify(&c, window, next, 1);
    }
    return MPIX_Dev_put_notify(&c, window, next, 0, bytes, from, 1);
  }
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t here = c.rank - c.p.first_rank;
    test::Findings& f = findings[here];
    char* const mine = base + here * half;
    const bool is_last = here + 1 == c.p.ranks_here;
    std::uint64_t count = 0;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{64}, std::size_t{1024}, half})
      for (std::uint32_t way = 0; way < 3; ++way) {
        ++count;
        if (here % 2 == 0 && !is_last) {
          set(c, mine + half, half, 1);
          DOMAIN_EXPECT(c, f, put(c, way, bytes, mine + half) == MPI_SUCCESS);
          set(c, mine + half, half, 99);
          if (mpix::dev::is_first(c)) mpix::store_release(poisoned + here + 1, count);
        } else if (here % 2 != 0) {
          // It calls nothing before, which would take what is on the way.
          while (mpix::load_acquire(poisoned + here) < count) {
#if !MPIX_ON_DEVICE
            std::this_thread::yield();
#endif
          }
          DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, static_cast<int>(c.rank) - 1, 1, 1) == MPI_SUCCESS);
          DOMAIN_EXPECT(c, f, test::is(mine, half, 99));
        }
        DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_DEVICE) == MPI_SUCCESS);
      }
    test::count(c, f);
  }
};

/// The same where nobody may write.
struct Protected {
  Poisoned with;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t here = c.rank - c.p.first_rank;
    test::Findings& f = with.findings[here];
    char* const source = with.base + (here + 1) * Poisoned::half;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{64}, std::size_t{1024}, Poisoned::half})
      for (std::uint32_t way = 0; way < 3; ++way) {
        if (here == 0) {
          DOMAIN_EXPECT(c, f, with.put(c, way, bytes, source) == MPI_SUCCESS);
          DOMAIN_EXPECT(c, f, MPIX_Dev_get(&c, with.window, static_cast<int>(c.rank + 1), 0, bytes, source) == 0);
        } else if (here == 1) {
          DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, with.window, static_cast<int>(c.rank) - 1, 1, 1) == MPI_SUCCESS);
        }
      }
    test::count(c, f);
  }
};

void overlap() {
  const int here = 4;
  test::Ranks ranks(here);
  char* const memory = ranks.domain.allocate(Poisoned::half * (here + 2));
  // At the beginning of a page, for what protects it.
  char* const base =
      memory + (Poisoned::half - reinterpret_cast<std::uintptr_t>(memory) % Poisoned::half) % Poisoned::half;
  auto* const poisoned = reinterpret_cast<std::uint64_t*>(ranks.domain.allocate(sizeof(std::uint64_t) * here));
  void* bases[here];
  std::size_t sizes[here];
  for (int i = 0; i < here; ++i)
    bases[i] = base + static_cast<std::size_t>(i) * Poisoned::half, sizes[i] = 2 * Poisoned::half;
  MPIX_Dev_win window = -1;
  CHECK_MPI(MPIX_Dev_win_create(ranks.domain, bases, sizes, &window));
  const Poisoned kernel{window, base, poisoned, ranks.found()};
  ranks.run(kernel, 1);
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  EXPECT(mprotect(base + Poisoned::half, Poisoned::half, PROT_READ) == 0);
  ranks.run(Protected{kernel}, 1);
  EXPECT(mprotect(base + Poisoned::half, Poisoned::half, PROT_READ | PROT_WRITE) == 0);
#endif
  ranks.domain.check();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

}  // namespace

int main(int argc, char** argv) {
  return test::main_of(argc, argv, [](const std::string& what) {
    if (what == "order")
      order();
    else if (what == "memory")
      memory();
    else if (what == "overlap")
      overlap();
    else
      EXPECT(!"a known argument");
  });
}
