// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Windows of a domain, with threads as ranks or, compiled as CUDA or HIP, blocks:
//
//   mpiexec -n N domain_windows order
//     ranks that open and close windows in different orders
#include <mpi.h>

#include <cstddef>
#include <cstring>
#include <string>

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

}  // namespace

int main(int argc, char** argv) {
  return test::main_of(argc, argv, [](const std::string& what) {
    if (what == "order")
      order();
    else
      EXPECT(!"a known argument");
  });
}
