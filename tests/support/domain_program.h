// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/domain.h"
#include "support/domain_kernels.h"

/// What programs with a domain have in common: one source for CUDA, HIP and threads of the host.
namespace test {

inline int process = 0, processes = 1;
inline int failures = 0;

#define EXPECT(holds)                                                                             \
  do {                                                                                            \
    if (!(holds)) {                                                                               \
      std::printf("process %d, %s:%d: expected %s\n", test::process, __FILE__, __LINE__, #holds); \
      ++test::failures;                                                                           \
    }                                                                                             \
  } while (false)

inline int class_of(int code) {
  int found = MPI_SUCCESS;
  MPI_Error_class(code, &found);
  return found;
}

/// A domain, and what its ranks here find out.
class Ranks {
 public:
  explicit Ranks(int here, MPI_Info info = MPI_INFO_NULL) : domain(MPI_COMM_WORLD, here, info), here_(here) {
    found_ = reinterpret_cast<Findings*>(domain.allocate(sizeof(Findings) * static_cast<std::size_t>(here)));
  }
  Findings* found() const { return found_; }

  /// A launch of kernel(ctx), in which each rank counts so many operations.
  template <class Kernel>
  void run(const Kernel& kernel, std::uint64_t operations, int threads = 64) {
    CHECK_MPI(support::launch(domain, kernel, threads));
    support::synchronize();
    check(operations);
  }
  /// What a launch has found out that is over.
  void check(std::uint64_t operations) {
    expected_ += operations;
    std::vector<Findings> all(static_cast<std::size_t>(here_));
    support::to_host(all.data(), found_, all.size() * sizeof all[0]);
    for (const Findings& one : all) {
      EXPECT(one.operations == expected_);
      if (one.faults == 0) continue;
      std::printf("rank %llu: %llu faults; the first at line %llu: %llu %llu\n", number(one.first[5]),
                  number(one.faults), number(one.first[0]), number(one.first[1]), number(one.first[2]));
      ++failures;
    }
  }
  /// The first error that a rank here met is forgotten.
  std::string error(int* error_class) const {
    char text[512] = "";
    CHECK_MPI(MPIX_Dev_error(domain, 1, error_class, text, sizeof text));
    return text;
  }

  support::Domain domain;

 private:
  static unsigned long long number(std::uint64_t value) { return value; }

  Findings* found_ = nullptr;
  const int here_;
  std::uint64_t expected_ = 0;
};

/// One of the team.
MPIX_DEV_FN void count(const Ctx& c, Findings& findings) {
  if (mpix::dev::is_first(c)) ++findings.operations;
}

MPIX_DEV_FN void set(const Ctx& c, char* to, std::size_t bytes, char value) {
  mpix::dev::sync_team(c);
  const mpix::Workers team = mpix::dev::team_of(c);
  for (std::size_t i = team.index; i < bytes; i += team.size) to[i] = value;
  mpix::dev::sync_team(c);
}
MPIX_DEV_FN bool is(const char* data, std::size_t bytes, char value) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (data[i] != value) return false;
  return true;
}

/// body(what, program): `what` is the first argument.
template <class Body>
int main_of(int argc, char** argv, Body body) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  support::choose_gpu(process);
  body(std::string(argc > 1 ? argv[1] : ""));
  int all = 0;
  CHECK_MPI(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Finalize());
  return all == 0 ? 0 : 1;
}

}  // namespace test
