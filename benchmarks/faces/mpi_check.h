// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace faces {

/// Does nothing for MPI_SUCCESS; otherwise says what failed, and where, and aborts the job.
void check_mpi(int code, const char* call, const char* file, int line);

}  // namespace faces

/// For every MPI and MPIX call of this program: all error handlers are MPI_ERRORS_RETURN.
#define FACES_MPI(call) ::faces::check_mpi((call), #call, __FILE__, __LINE__)
