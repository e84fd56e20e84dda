// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The same with kernels of a GPU.
#include "persistent_halo.cpp"
