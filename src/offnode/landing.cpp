// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/landing.h"

#include <utility>

namespace mpix {

void Landing::grow(std::size_t bytes, Device& device, Network& network) {
  if (bytes <= bytes_) return;
  std::shared_ptr<char> memory = device.allocate_pinned(bytes);
  exposed_ = network.expose(memory.get(), bytes);  // and the old one no more, before its memory goes
  memory_ = std::move(memory);
  bytes_ = bytes;
}

LandingPlace Landing::place() const {
  const RemoteMemory remote = exposed_->remote();
  return {remote.key, remote.base, reinterpret_cast<std::uintptr_t>(memory_.get()), bytes_};
}

}  // namespace mpix
