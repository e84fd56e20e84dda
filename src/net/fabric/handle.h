// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <rdma/fabric.h>

#include <memory>

#include "net/fabric/fabric_library.h"

namespace mpix {

/// Owner of any libfabric object.
struct CloseFabricObject {
  template <class Object>
  void operator()(Object* object) const noexcept {
    fi_close(&object->fid);  // what is left in use is the provider's to keep
  }
};
template <class Object>
using FabricHandle = std::unique_ptr<Object, CloseFabricObject>;

struct FreeFabricInfo {
  void operator()(fi_info* info) const noexcept { fabric_library().freeinfo(info); }
};
using FabricInfo = std::unique_ptr<fi_info, FreeFabricInfo>;

}  // namespace mpix
