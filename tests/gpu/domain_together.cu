// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The same tests with blocks as ranks.
#include "mpi/domain_together.cpp"
