// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The same with blocks of kernels.
#include "notify.cpp"
