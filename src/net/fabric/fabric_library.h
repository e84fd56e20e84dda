// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <rdma/fabric.h>

namespace mpix {

/// libfabric's entry points that are symbols; the rest of its interface are inline functions over objects that these
/// give. It is loaded when they are first asked for, and not linked: some builds of it bring libraries along that set
/// handlers for the program's signals, and take a fifth of a second before main().
struct FabricLibrary {
  decltype(&::fi_getinfo) getinfo;
  decltype(&::fi_freeinfo) freeinfo;
  decltype(&::fi_dupinfo) dupinfo;
  decltype(&::fi_fabric) fabric;
  decltype(&::fi_strerror) strerror;

  fi_info* allocinfo() const { return dupinfo(nullptr); }  // as fi_allocinfo(), which is inline
};

/// Throws Error where it cannot be loaded, each time. Loading it, and its first fi_getinfo(), belong into a
/// ProcessKept.
const FabricLibrary& fabric_library();

}  // namespace mpix
