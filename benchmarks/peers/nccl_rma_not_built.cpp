// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "peer.h"

namespace peers {

std::unique_ptr<Peer> find_nccl_rma(const Machine&) {
  return std::make_unique<AbsentPeer>("NCCL one-sided", "built with an NCCL that has no ncclPutSignal (2.29 has it)");
}

}  // namespace peers
