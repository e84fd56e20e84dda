// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device_memory.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/job_environment.h"
#include "collectives.h"
#include "errors.h"
#include "runtime.h"

namespace mpix {
namespace {

struct Allocations {
  std::mutex mutex;
  std::set<void*> bases;
  std::atomic<std::size_t> count{0};  ///< lets MPI_Free_mem pass by without the lock
};

Allocations& allocations() {
  static Allocations& all = *new Allocations;
  return all;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else if (c != ' ' && c != '\t') {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

std::string info_value(MPI_Info info, const char* key) {
  int length = 0;
  int found = 0;
  if (info == MPI_INFO_NULL || PMPI_Info_get_valuelen(info, key, &length, &found) != MPI_SUCCESS || !found) return "";
  std::vector<char> value(static_cast<std::size_t>(length) + 1);
  if (PMPI_Info_get(info, key, length, value.data(), &found) != MPI_SUCCESS || !found) return "";
  return value.data();
}

bool has_key(MPI_Info info, const char* key) {
  int length = 0, found = 0;
  return info != MPI_INFO_NULL && PMPI_Info_get_valuelen(info, key, &length, &found) == MPI_SUCCESS && found != 0;
}

bool wants_device_memory(MPI_Info info) {
  for (const std::string& kind : split(info_value(info, "mpi_memory_alloc_kinds"), ',')) {
    const std::vector<std::string> words = split(kind, ':');
    if (words.front() != "mpix") continue;
    for (std::size_t i = 1; i < words.size(); ++i)
      if (words[i] == "device") return true;
  }
  return false;
}

std::string name_in(MPI_Info info) { return info_value(info, name_key).substr(0, MPI_MAX_OBJECT_NAME - 1); }

void* allocate_device_memory(std::size_t bytes) {
  Runtime& runtime = ensure_runtime(launcher_local_ranks());
  void* base = usable_device(runtime).allocate(bytes).base;
  Allocations& all = allocations();
  std::lock_guard<std::mutex> hold(all.mutex);
  all.bases.insert(base);
  ++all.count;
  return base;
}

bool is_device_memory(void* base) {
  Allocations& all = allocations();
  if (all.count.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard<std::mutex> hold(all.mutex);
  return all.bases.count(base) != 0;
}

bool release_device_memory(void* base) {
  Allocations& all = allocations();
  if (all.count.load(std::memory_order_relaxed) == 0) return false;
  {
    std::lock_guard<std::mutex> hold(all.mutex);
    if (all.bases.erase(base) == 0) return false;
    --all.count;
  }
  if (Runtime* runtime = find_runtime()) runtime->device->release(base);
  return true;
}

bool device_memory_in_use() { return allocations().count != 0; }

bool mpi_says_gpu_aware() {
  for (const char* query : {"MPIX_Query_cuda_support", "MPIX_Query_rocm_support", "MPIX_Query_hip_support"})
    if (void* found = dlsym(RTLD_DEFAULT, query))
      if (reinterpret_cast<int (*)()>(found)() == 1) return true;
  return false;
}

}  // namespace mpix

MPIX_INTERPOSED int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void* baseptr) {
  if (size < 0 || !baseptr || !mpix::wants_device_memory(info)) return PMPI_Alloc_mem(size, info, baseptr);
  return mpix::guarded(mpix::Caller::on_world("MPI_Alloc_mem"), [&] {
    *static_cast<void**>(baseptr) = mpix::allocate_device_memory(static_cast<std::size_t>(size));
  });
}

MPIX_INTERPOSED int MPI_Free_mem(void* base) {
  if (!mpix::is_device_memory(base)) return PMPI_Free_mem(base);
  return mpix::guarded(mpix::Caller::on_world("MPI_Free_mem"), [&] {
    // Other ranks would go on with it, and so would this one where it gets the same addresses again.
    const std::string name = mpix::whose_attachment(base);
    if (!name.empty())
      throw mpix::Error(mpix::Fault::attach,
                        "the memory is attached to the communicator '" + name + "': MPIX_Comm_detach it before");
    (void)mpix::release_device_memory(base);
  });
}
