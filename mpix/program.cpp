// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "program.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

namespace mpix {
namespace {

std::atomic<bool> has_made_stream_calls{false};

/// What a program or library that is linked with this one has to name: its file, without what follows ".so".
struct Sought {
  ElfW(Addr) base;  ///< of this library
  std::string name;
  bool found = false;
};

const char* dynamic_strings(const dl_phdr_info& info, const ElfW(Dyn) * entries) {
  for (; entries->d_tag != DT_NULL; ++entries)
    if (entries->d_tag == DT_STRTAB) {
      const ElfW(Addr) at = entries->d_un.d_ptr;  // most loaders have added the base, some have not
      return reinterpret_cast<const char*>(at < info.dlpi_addr ? at + info.dlpi_addr : at);
    }
  return nullptr;
}

int look_at(dl_phdr_info* info, std::size_t, void* to) {
  auto* const sought = static_cast<Sought*>(to);
  if (info->dlpi_addr == sought->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* const entries = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const char* const strings = dynamic_strings(*info, entries);
    for (const auto* entry = entries; strings && entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == DT_NEEDED &&
          std::strncmp(strings + entry->d_un.d_val, sought->name.c_str(), sought->name.size()) == 0)
        sought->found = true;
  }
  return sought->found ? 1 : 0;
}

bool is_linked() {
  Dl_info own{};
  if (!dladdr(reinterpret_cast<const void*>(&program_uses_libmpix), &own) || !own.dli_fname) return false;
  const std::string path = own.dli_fname, file = path.substr(path.rfind('/') + 1);
  const std::size_t ending = file.find(".so");
  if (ending == std::string::npos) return true;  // it is the program, linked with the archive
  Sought sought{reinterpret_cast<ElfW(Addr)>(own.dli_fbase), file.substr(0, ending + 3)};
  dl_iterate_phdr(look_at, &sought);
  return sought.found;
}

/// How many libraries have been loaded, ever.
std::uint64_t libraries_loaded() {
  std::uint64_t count = 0;
  const auto take = [](dl_phdr_info* info, std::size_t, void* to) {
    *static_cast<std::uint64_t*>(to) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(take, &count);
  return count;
}

/// In any of the libraries, also where a plug-in loaded it for itself.
bool find_fortran() {
  constexpr const char* names[] = {"mpi_group_free_", "mpi_group_free", "mpi_group_free__", "MPI_GROUP_FREE",
                                   "mpi_group_free_f08_"};
  std::vector<std::string> libraries;
  const auto add = [](dl_phdr_info* info, std::size_t, void* to) {
    static_cast<std::vector<std::string>*>(to)->push_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(add, &libraries);
  return std::any_of(libraries.begin(), libraries.end(), [&](const std::string& library) {
    void* const handle = dlopen(library.empty() ? nullptr : library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return false;
    const bool found = std::any_of(std::begin(names), std::end(names),
                                   [&](const char* name) { return dlsym(handle, name) != nullptr; });
    dlclose(handle);
    return found;
  });
}

}  // namespace

void note_stream_call() {
  if (!has_made_stream_calls.load(std::memory_order_relaxed)) has_made_stream_calls = true;
}

bool program_uses_libmpix() {
  static const bool linked = is_linked();
  return linked || has_made_stream_calls.load(std::memory_order_relaxed);
}

bool fortran_is_loaded() {
  static std::mutex mutex;
  static std::atomic<std::uint64_t> looked_at{0};
  static std::atomic<bool> found{false};
  const std::uint64_t loaded = libraries_loaded();
  if (looked_at.load(std::memory_order_acquire) != loaded) {
    std::lock_guard<std::mutex> hold(mutex);
    if (!found) found = find_fortran();
    looked_at.store(loaded, std::memory_order_release);
  }
  return found;
}

}  // namespace mpix
