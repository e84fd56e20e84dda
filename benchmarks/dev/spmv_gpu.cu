// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The same with blocks as ranks.
#include "spmv.cpp"
