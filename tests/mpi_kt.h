// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

/// The name by which programs for HPE Cray MPICH include what kernels call: here it is libmpix's.
#include <mpix_device.h>
