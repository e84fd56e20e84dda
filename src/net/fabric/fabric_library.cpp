// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/fabric_library.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "config.h"

namespace mpix {
namespace {

constexpr const char* names[] = {
#ifdef LIBFABRIC_DIR
    LIBFABRIC_DIR "/lib/libfabric.so.1", LIBFABRIC_DIR "/lib64/libfabric.so.1",
#endif
    "libfabric.so.1"};

[[noreturn]] void cannot_load() {
  const char* const why = dlerror();
  throw Error(Fault::unsupported, std::string("libfabric cannot be loaded: ") + (why ? why : "?"));
}

/// The preset version of the symbol, as all others, and as what they allocate: later versions of its structures have
/// more at their ends.
template <class Function>
void look_up(void* library, const char* name, Function*& function) {
  void* const found = dlsym(library, name);
  if (!found) cannot_load();
  function = reinterpret_cast<Function*>(found);
}

FabricLibrary load() {
  void* library = nullptr;
  for (const char* name : names)
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // for good: it has threads, and handlers at exit
  if (!library) cannot_load();
  FabricLibrary table{};
  look_up(library, "fi_getinfo", table.getinfo);
  look_up(library, "fi_freeinfo", table.freeinfo);
  look_up(library, "fi_dupinfo", table.dupinfo);
  look_up(library, "fi_fabric", table.fabric);
  look_up(library, "fi_strerror", table.strerror);
  return table;
}

}  // namespace

const FabricLibrary& fabric_library() {
  static const FabricLibrary table = load();
  return table;
}

}  // namespace mpix
