// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/hip/hip_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <list>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "config.h"

#define MPIX_TEXT_OF(word) #word
#define MPIX_TEXT(macro) MPIX_TEXT_OF(macro)

namespace mpix {
inline namespace hip {

#define MPIX_HIP_POINTER(call) decltype(&::call) call = nullptr;
MPIX_HIP_CALLS(MPIX_HIP_POINTER)
hipError_t (*hipHostMalloc)(void**, std::size_t, unsigned) = nullptr;
hipError_t (*hipMalloc)(void**, std::size_t) = nullptr;
hipError_t (*hipOccupancyMaxActiveBlocksPerMultiprocessor)(int*, const void*, int, std::size_t) = nullptr;

// ---- what the compiler calls -------------------------------------------------------------------------
//
// An object of hipcc has a static constructor that registers its kernels with HIP's runtime. These take the calls, for
// this library's objects alone (hidden), and keep them until there is a runtime to hand them to.

namespace {

using Kernel = std::tuple<const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*>;

/// The kernels of one object of the compiler.
struct Binary {
  const void* wrapper;
  std::vector<Kernel> kernels;
  void** handle;  ///< the runtime's; null before it is there
};

std::list<Binary>& binaries() {  // first used by static constructors
  static std::list<Binary> all;
  return all;
}

}  // namespace

#define MPIX_HIP_HOOK(symbol) __asm__(#symbol) __attribute__((visibility("hidden")))

void** keep_binary(const void* wrapper) MPIX_HIP_HOOK(__hipRegisterFatBinary);
int keep_kernel(void** binary, const void* stub, char* symbol, const char* name, unsigned threads, void* thread,
                void* block, void* block_size, void* grid_size, int* warp_size) MPIX_HIP_HOOK(__hipRegisterFunction);
void drop_binary(void** binary) MPIX_HIP_HOOK(__hipUnregisterFatBinary);
hipError_t pop_configuration(dim3* grid, dim3* block, std::size_t* shared_bytes, hipStream_t* stream)
    MPIX_HIP_HOOK(__hipPopCallConfiguration);
hipError_t launch_kernel(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                         hipStream_t stream) MPIX_HIP_HOOK(hipLaunchKernel);

void** keep_binary(const void* wrapper) {
  binaries().push_back({wrapper, {}, nullptr});
  return reinterpret_cast<void**>(&binaries().back());
}

int keep_kernel(void** binary, const void* stub, char* symbol, const char* name, unsigned threads, void* thread,
                void* block, void* block_size, void* grid_size, int* warp_size) {
  reinterpret_cast<Binary*>(binary)->kernels.emplace_back(stub, symbol, name, threads, thread, block, block_size,
                                                          grid_size, warp_size);
  return 0;
}

void drop_binary(void**) {}  // take_back() has been there: this comes from a handler that is older, and runs later

hipError_t pop_configuration(dim3* grid, dim3* block, std::size_t* shared_bytes, hipStream_t* stream) {
  return __hipPopCallConfiguration(grid, block, shared_bytes, stream);
}

hipError_t launch_kernel(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                         hipStream_t stream) {
  return hipLaunchKernel(stub, grid, block, arguments, shared_bytes, stream);
}

// ---- the runtime -------------------------------------------------------------------------------------

namespace {

/// As it was compiled for. By its name first: a program that has HIP by itself shall have one runtime.
#define MPIX_HIP_LIBRARY "libamdhip64.so." MPIX_TEXT(HIP_VERSION_MAJOR)
constexpr const char* names[] = {
    MPIX_HIP_LIBRARY,
#ifdef HIP_DIR
    HIP_DIR "/lib/" MPIX_HIP_LIBRARY,
#endif
};

[[noreturn]] void cannot_load() {
  const char* const why = dlerror();
  throw Error(Fault::unsupported, std::string("HIP cannot be loaded: ") + (why ? why : "?"));
}

template <class Function>
void look_up(void* library, const char* name, Function*& function) {
  void* const found = dlsym(library, name);
  if (!found) cannot_load();
  function = reinterpret_cast<Function*>(found);
}

decltype(&drop_binary) unregister_binary = nullptr;

void take_back() {
  for (Binary& binary : binaries()) unregister_binary(binary.handle);
}

bool load() {
  void* library = nullptr;
  for (const char* name : names)
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // for good: it has threads, and handlers at exit
  if (!library) cannot_load();
#define MPIX_HIP_LOOK_UP(call) look_up(library, MPIX_TEXT(call), call);
  MPIX_HIP_CALLS(MPIX_HIP_LOOK_UP)
  MPIX_HIP_LOOK_UP(hipHostMalloc)
  MPIX_HIP_LOOK_UP(hipMalloc)
  MPIX_HIP_LOOK_UP(hipOccupancyMaxActiveBlocksPerMultiprocessor)
  decltype(&keep_binary) register_binary = nullptr;
  decltype(&keep_kernel) register_kernel = nullptr;
  look_up(library, "__hipRegisterFatBinary", register_binary);
  look_up(library, "__hipRegisterFunction", register_kernel);
  look_up(library, "__hipUnregisterFatBinary", unregister_binary);
  for (Binary& binary : binaries()) {
    binary.handle = register_binary(binary.wrapper);
    for (const Kernel& kernel : binary.kernels)
      std::apply([&](auto... arguments) { register_kernel(binary.handle, arguments...); }, kernel);
  }
  // At exit before what the runtime does there, as it has been loaded before; and where this library is unloaded.
  std::atexit(take_back);
  return true;
}

}  // namespace
}  // namespace hip

void load_hip_library() {
  static const bool loaded = load();
  (void)loaded;
}

}  // namespace mpix
