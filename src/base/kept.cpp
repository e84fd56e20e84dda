// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/kept.h"

#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <utility>

namespace mpix {

void keep_for_ever(std::shared_ptr<const void> what) noexcept {
  struct Kept {
    std::mutex mutex;
    std::list<std::shared_ptr<const void>> all;
  };
  try {
    static Kept& kept = *new Kept;
    std::lock_guard<std::mutex> hold(kept.mutex);
    kept.all.push_back(what);
  } catch (const std::exception&) {
    // Without memory for a list: one reference that nobody ever drops.
    alignas(std::shared_ptr<const void>) unsigned char place[sizeof(std::shared_ptr<const void>)];
    new (place) std::shared_ptr<const void>(std::move(what));
  }
}

}  // namespace mpix
