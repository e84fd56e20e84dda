// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The vendor's names come first: the sources of device/gpu are written in them.
#include "device/cuda/names.h"

#include "device/gpu/collective_packs.h"
