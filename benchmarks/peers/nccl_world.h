// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <nccl.h>
#include "support/abort.h"

#define CHECK_NCCL(call) CHECK_OR_ABORT(call, ncclSuccess, ncclGetErrorString)

namespace peers {

struct Machine;

/// The communicator that all NCCL rows share. Collective at the first call.
ncclComm_t nccl_world(const Machine& machine);

}  // namespace peers
