// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The same tests with blocks of kernels.
#include "mpi/halo_steps.cpp"
