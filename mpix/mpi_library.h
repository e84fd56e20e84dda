// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "config.h"

// The C++ bindings of old MPI libraries define inline functions that call what we interpose.
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

/// Marks the definition of a function that a program finds instead of MPI's, or beside them.
/// Whether mpi.h itself gives its declarations default visibility depends on the MPI library.
#define MPIX_INTERPOSED extern "C" __attribute__((visibility("default")))
