// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "mpi_library.h"

namespace mpix {

/// Thrown where a PMPI call failed: MPI has called the error handler, and chosen the code to
/// return.
struct Refused {
  int code;
};

inline void check(int code) {
  if (code != MPI_SUCCESS) throw Refused{code};
}

/// Initialized, and not finalized.
bool mpi_is_up();

/// What a call gives the program has to have a place.
template <class T>
T& required(T* place, const char* what) {
  if (!place) throw Error(Fault::argument, std::string("no place for ") + what);
  return *place;
}

/// What a program asked for, whose mpix.h may be older than this library, or newer: it knows `size` bytes of them.
template <class Counters>
void give_counters(Counters* place, std::size_t size, const Counters& all) {
  std::memset(place, 0, size);
  std::memcpy(place, &all, std::min(size, sizeof all));
}

/// What MPI says of a code.
std::string text_of(int code);

/// Which call reports errors, and through whose error handler: the window's, or, where there is
/// none, the communicator's. MPI handles are plain ints in some MPI libraries, hence the two named
/// constructors.
struct Caller {
  static Caller on_window(const char* call, MPI_Win win) { return {call, true, win, MPI_COMM_NULL}; }
  /// Where there is no communicator, that of calls which concern none.
  static Caller on_comm(const char* call, MPI_Comm comm) {
    return {call, false, MPI_WIN_NULL, comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm};
  }
  /// Calls that concern neither.
  static Caller on_world(const char* call) { return on_comm(call, MPI_COMM_WORLD); }

  const char* call;
  bool has_window;
  MPI_Win win;
  MPI_Comm comm;
};

/// What a call ends with.
struct Failure {
  int error_class = MPI_SUCCESS;
  std::string text;
  int refused = MPI_SUCCESS;  ///< not MPI_SUCCESS: already raised, with this code
};

/// To be called in a catch block: the exception in MPI's terms.
Failure current_failure();

/// Raise: name the call and the window in front of the text, log it, give it an error code, call
/// the error handler. Returns the code.
int raise(const Caller& caller, const Failure& failure);

/// The C boundary: run body(), and turn what it throws into an error code. The error handler runs
/// outside of the catch block, as it may leave by an exception or a jump of its own.
template <class Body>
int guarded(const Caller& caller, Body body) {
  std::optional<Failure> failure;  // nothing is made in a call that goes well
  try {
    body();
    return MPI_SUCCESS;
  } catch (...) {
    failure = current_failure();
  }
  return raise(caller, *failure);
}

/// What body() fails with, where others have to be told before a call returns; none: it has not failed.
template <class Body>
std::optional<Error> error_of(Body body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(Fault::memory, "out of memory");
  } catch (const std::length_error&) {
    return Error(Fault::memory, "out of memory");
  }
}

/// What messages call a window.
std::string name_of(MPI_Win win);

}  // namespace mpix
