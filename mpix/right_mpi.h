// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

namespace mpix {

/// What the MPI library of this process calls itself, in one line. May be asked before MPI_Init.
std::string mpi_version();

/// Before anything else is asked of MPI. Handles of MPICH and its descendants are numbers, those of Open MPI and its
/// are pointers: with a libmpix for one of them in a program of the other the first handle that is passed ends in a
/// segmentation fault. So the program ends here, with exit code 1 and a text that names both.
void require_right_mpi();

}  // namespace mpix
