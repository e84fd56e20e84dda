// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/chain.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>

#include "net/fabric/check.h"

namespace mpix {

void Chain::ring() {
  started = true;
  // What the writes read was stored by this thread, or is ordered before it: the NIC must see it first.
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (doorbell_word) {
    *doorbell_word = 1;  // adds
    return;
  }
  MPIX_CHECK_FABRIC(fi_cntr_add(doorbell.get(), 1));
}

std::uint64_t Chain::counted() const { return fi_cntr_read(progress.get()); }

std::uint64_t Chain::largest_count() const { return std::max(fi_cntr_read(doorbell.get()), counted()); }

void Chain::poke() {
  if (doorbell_word) return;  // hardware needs none
  fi_cntr_add(doorbell.get(), 0);
  fi_cntr_add(progress.get(), 0);
}

void Chain::rewind(std::uint64_t limit) {
  doorbell_value += started ? 1 : 0;
  progress_value += writes + signals;
  writes = signals = errors = 0;
  started = false;
  // Software counters are signed, of 32 bits: a threshold beyond would be passed at once.
  if (doorbell_value < limit && progress_value < limit) return;
  MPIX_CHECK_FABRIC(fi_cntr_set(doorbell.get(), 0));
  MPIX_CHECK_FABRIC(fi_cntr_set(progress.get(), 0));
  doorbell_value = progress_value = 0;
  resetting = true;
}

bool Chain::is_ready() {
  if (!resetting) return true;
  // A NIC takes its time for it.
  resetting = fi_cntr_read(doorbell.get()) != 0 || fi_cntr_read(progress.get()) != 0;
  return !resetting;
}

}  // namespace mpix
