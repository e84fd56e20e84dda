// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The same with a kernel of a GPU.
#include "mpi/kernel_page.cpp"
