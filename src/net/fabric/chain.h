// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "net/fabric/handle.h"

namespace mpix {

struct Chain;

/// One deferred operation, with all that libfabric may read of it until it is over. Lies still.
struct DeferredOp {
  fi_deferred_work work;  ///< first: an error names its context, which is its first member
  union {
    fi_op_rma write;
    fi_op_tagged message;
    fi_op_atomic atomic;
  };
  iovec source;
  fi_rma_iov target;
  fi_ioc operand;
  fi_rma_ioc word;
  std::uint64_t value;  ///< of a signal: what operand points to
  void* descriptor;
  void* own_descriptor;  ///< of this very operation, for signals
  Chain* chain;
};

/// Two counters, and the operations that hang on them:
///
///     doorbell ≥ its value + 1               → each write     → counts up `progress`
///     progress ≥ its value + number of writes → the signal     → counts up `progress` once more
///
/// Without writes, and where the provider keeps operations in order, the signal hangs on the doorbell, too: then it
/// follows the writes at once, and need not wait for word of their delivery to come back. A chain carries one transfer
/// at a time. So each counter has operations of one threshold only; the order in which a provider looks at thresholds,
/// and the value of a counter that others share, are no concern. Values are known without asking: nobody else counts
/// these counters.
struct Chain {
  FabricHandle<fid_cntr> doorbell;
  FabricHandle<fid_cntr> progress;
  volatile std::uint64_t* doorbell_word = nullptr;  ///< null: rung by a call
  std::uint64_t doorbell_value = 0;                 ///< before the transfer
  std::uint64_t progress_value = 0;
  std::uint64_t writes = 0;
  std::uint64_t signals = 0;
  bool chained = true;   ///< the signal hangs on the writes
  bool at_once = false;  ///< a provider in software has all of it to do when it has looked once at each operation
  std::atomic<bool> started{false};
  bool going_out =
      false;  ///< started, and needs more than that look; guarded by the queue, but for its transfer's start
  bool resetting = false;  ///< the counters have been told to be zero again
  std::vector<DeferredOp*> deferred;
  std::string failure;       ///< guarded by the queue
  std::uint64_t errors = 0;  ///< operations that failed; likewise

  void ring();
  /// Operations that hang on the doorbell.
  std::uint64_t rung() const { return writes + (chained ? 0 : signals); }
  /// Where the signal hangs on the writes, they are the first to be counted.
  bool delivered() const { return counted() >= progress_value + writes + (chained ? 0 : signals); }
  bool finished() const { return counted() >= progress_value + writes + signals; }
  /// Nothing of it is under way: it was not started, or every operation that the doorbell triggers has succeeded or
  /// failed. After a failure a signal that hangs on the writes is never triggered.
  bool is_still() const {
    return !started || counted() + errors >= progress_value + writes + (chained && errors > 0 ? 0 : signals);
  }
  /// An operation that found a queue full is tried again.
  void poke();
  /// Once it is finished: ready for the next transfer, or, where a counter has passed `limit`, soon.
  void rewind(std::uint64_t limit);
  bool is_ready();
  /// Of its two counters.
  std::uint64_t largest_count() const;

 private:
  std::uint64_t counted() const;
};

}  // namespace mpix
