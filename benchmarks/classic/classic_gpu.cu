// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The same on streams of a GPU.
#include "classic.cpp"
