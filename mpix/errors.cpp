// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "errors.h"

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/log.h"
#include "error_codes.h"
#include "runtime.h"
#include "window_state.h"

namespace mpix {
namespace {

int class_of(Fault fault) {
  switch (fault) {
    case Fault::argument:
      return MPI_ERR_ARG;
    case Fault::attach:
      return MPI_ERR_RMA_ATTACH;
    case Fault::buffer:
      return MPI_ERR_BUFFER;
    case Fault::communicator:
      return MPI_ERR_COMM;
    case Fault::communication_group:
      return MPI_ERR_GROUP;
    case Fault::count:
      return MPI_ERR_COUNT;
    case Fault::datatype:
      return MPI_ERR_TYPE;
    case Fault::displacement:
      return MPI_ERR_DISP;
    case Fault::info_value:
      return MPI_ERR_INFO_VALUE;
    case Fault::memory:
      return MPI_ERR_NO_MEM;
    case Fault::operation:
      return MPI_ERR_OP;
    case Fault::other:
      return MPI_ERR_OTHER;
    case Fault::range:
      return MPI_ERR_RMA_RANGE;
    case Fault::rank:
      return MPI_ERR_RANK;
    case Fault::request:
      return MPI_ERR_REQUEST;
    case Fault::root:
      return MPI_ERR_ROOT;
    case Fault::size:
      return MPI_ERR_SIZE;
    case Fault::synchronization:
      return MPI_ERR_RMA_SYNC;
    case Fault::tag:
      return MPI_ERR_TAG;
    case Fault::truncation:
      return MPI_ERR_TRUNCATE;
    case Fault::unsupported:
      return MPI_ERR_UNSUPPORTED_OPERATION;
    case Fault::window:
      return MPI_ERR_WIN;
  }
  return MPI_ERR_OTHER;
}

/// What a program returns may be none of MPI's, and MPICH looks it up in its tables all the same.
bool may_be_a_code(int code) {
  if (code < 0) return false;
  if (!mpi_is_up()) return true;  // in a session: there is nothing to ask
  int error_class = 0, *last = nullptr, is_there = 0;
  return PMPI_Error_class(code, &error_class) == MPI_SUCCESS &&
         PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, static_cast<void*>(&last), &is_there) == MPI_SUCCESS &&
         is_there && error_class <= *last;
}

}  // namespace

bool mpi_is_up() {
  int initialized = 0;
  int finalized = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  return initialized && !finalized;
}

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  const auto is_text = [](unsigned char c) { return c >= ' ' || c == '\n' || c == '\t'; };
  if (!may_be_a_code(code) || PMPI_Error_string(code, text, &length) != MPI_SUCCESS || length == 0 ||
      !std::all_of(text, text + length, is_text))
    return "error " + std::to_string(code);
  return text;
}

Failure current_failure() {
  try {
    throw;
  } catch (const Refused& refused) {
    return {MPI_ERR_OTHER, "", refused.code};
  } catch (const Error& error) {
    return {class_of(error.fault()), error.what(), MPI_SUCCESS};
  } catch (const std::bad_alloc&) {
    return {MPI_ERR_NO_MEM, "out of memory", MPI_SUCCESS};
  } catch (const std::system_error& error) {
    return {MPI_ERR_INTERN, error.what(), MPI_SUCCESS};
  } catch (const std::length_error& error) {
    return {MPI_ERR_INTERN, error.what(), MPI_SUCCESS};
  } catch (const std::out_of_range& error) {
    return {MPI_ERR_INTERN, error.what(), MPI_SUCCESS};
  }
  // Others are the program's, of an error handler that MPI called: they go on to the program.
}

std::string name_of(MPI_Win win) {
  const WinState* state = find_state(win);
  if (!state) return "unnamed";
  char name[MPI_MAX_OBJECT_NAME + 1] = "";
  int length = 0;
  if (PMPI_Win_get_name(win, name, &length) == MPI_SUCCESS && length > 0) return name;
  return state->number_name;
}

int raise(const Caller& caller, const Failure& failure) {
  if (failure.refused != MPI_SUCCESS) return failure.refused;
  if (is_child_of_fork()) {  // a thread of its parent may have been in MPI, with its lock
    log(LogLevel::warn, std::string(caller.call) + ": " + failure.text);
    return failure.error_class;
  }
  if (caller.has_window && caller.win == MPI_WIN_NULL)
    return raise(Caller::on_world(caller.call), {MPI_ERR_WIN, "the window is MPI_WIN_NULL", MPI_SUCCESS});
  // Whether MPI knows it cannot be asked without an error of MPI's own. As a rule it was freed, or is no handle at all;
  // or libmpix stands behind MPI, and sees no window.
  if (caller.has_window && sees_windows() && !find_state(caller.win))
    return raise(Caller::on_world(caller.call), failure);

  std::string text = caller.call;
  if (caller.has_window) text += " on window '" + name_of(caller.win) + "'";
  text += ": " + failure.text;

  if (!caller.has_window && (!mpi_works() || (caller.comm == MPI_COMM_WORLD && !mpi_is_up()))) {
    // Neither error codes nor error handlers exist: the text has no other way out.
    log(LogLevel::warn, text);
    return failure.error_class;
  }
  ErrorCodes& codes = ErrorCodes::instance();
  const int code = codes.code_for(failure.error_class, text);
  log(codes.exhausted() ? LogLevel::warn : LogLevel::info, text);
  if (caller.has_window) {
    PMPI_Win_call_errhandler(caller.win, code);
  } else {
    PMPI_Comm_call_errhandler(caller.comm, code);
  }
  return code;
}

}  // namespace mpix
