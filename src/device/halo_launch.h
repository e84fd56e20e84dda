// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "mpix_device/halo.h"

namespace mpix {

/// Exchanges of a halo on their way into a stream.
struct HaloLaunch {
  HaloRun run;
  bool captured = false;
  bool leaves_room = false;          ///< for its blocks twice, beside those of others that wait
  std::shared_ptr<const void> keep;  ///< what it points to, alive for as long as it may run
};

/// What a stream of the program has to do with steps, behind what is in it.
struct HaloGate {
  enum class What {
    ready,  ///< says so: `value` of them
    stop,   ///< of launch `value` none follows
    done,   ///< holds the stream until `value` of them are done
    over,   ///< holds it until launch `value` is over, which runs steps
    after,  ///< likewise, of any launch: which may not be over where the halo is broken, and then the stream goes on
  };
  MPIX_Dev_halo halo;
  What what;
  std::uint64_t value;
  // Of one that holds: where the stream tells that it has come through, and what; null: nowhere.
  std::uint64_t* passed = nullptr;
  std::uint64_t number = 0;

  MPIX_FN std::uint64_t* word() const {
    switch (what) {
      case What::ready:
        return &halo.words->ready;
      case What::stop:
        return &halo.words->stopped;
      case What::done:
        return &halo.words->done;
      default:
        return &halo.words->over;
    }
  }
  MPIX_FN bool holds() const { return what == What::done || what == What::over || what == What::after; }
};

}  // namespace mpix
