// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <functional>
#include <sstream>
#include <string>

#include "support/slowdown.h"

/// What every test program of tests/mpi shares: the ranks, failures that any thread may report, and
/// the watchdog. Defined in mpi_main.cpp. Nothing here needs Catch2, so host-stream callbacks and
/// threads may use all of it.
namespace test {

int rank();
int size();

/// Collective. Sleeps between looks, where MPI_Barrier spins: there may be more ranks than cores.
void barrier(MPI_Comm comm = MPI_COMM_WORLD);
/// Likewise for any request.
void wait(MPI_Request& request);
/// Collective: does it hold on every rank of MPI_COMM_WORLD?
bool on_all_ranks(bool holds);

/// A number from the environment: what a soak makes larger (SOAK_EPOCHS, SOAK_SEED).
long parameter(const char* name, long preset);

/// The test case has got so far, and may run for another TEST_TIMEOUT seconds. A watchdog aborts
/// the process, and so the job, once a test case has said nothing for so long.
void alive(const std::string& where);

/// The rank fails. From any thread.
void fail(const char* file, int line, const std::string& what);
/// Something was checked. A test case that checks nothing fails.
void checked(long count = 1);
/// Something has failed in the running test case, on this rank.
bool failed();

/// The test case does not run here: says why.
void skip(const std::string& reason);
/// As many as a run of many should be: TEST_SCALE says how many per cent of it, where ranks that share a GPU are
/// slow. At least 3.
int scaled(int count);

/// Throws, with MPI's text, where an MPI call failed: a failure with its place and reason in any
/// thread.
void require_success(int code, const char* call, const char* file, int line);
std::string error_text(int code);
int error_class(int code);

/// Runs body(0) … body(count - 1) in threads of their own; what they throw is a failure of this
/// rank.
void in_threads(int count, const std::function<void(int)>& body);

}  // namespace test

/// An MPI call that has to succeed, in any thread.
#define MPI_OK(call) test::require_success((call), #call, __FILE__, __LINE__)

/// Like CHECK, in any thread: EXPECT(value == 3, "epoch " << epoch).
#define EXPECT(condition, context)                 \
  do {                                             \
    test::checked();                               \
    if (!(condition)) {                            \
      std::ostringstream text_;                    \
      text_ << #condition << ": " << context;      \
      test::fail(__FILE__, __LINE__, text_.str()); \
    }                                              \
  } while (false)

/// The test case ends here, skipped, unless …
#define NEEDS(condition, reason) \
  do {                           \
    if (!(condition)) {          \
      test::skip(reason);        \
      return;                    \
    }                            \
  } while (false)
#define NEEDS_RANKS(needed) NEEDS(test::size() >= (needed), "needs " #needed " ranks")
