// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "gpu/device.h"

namespace mpix {

/// "Device memory" of the host back end: anonymous files that peers map through /proc/<pid>/fd.
///
/// There is no name in any file system, so nothing can be left behind, however a process ends; only
/// processes that the kernel would let inspect this one (same user, same PID namespace) can map it.
class SharedMemory {
 public:
  ~SharedMemory();

  Allocation allocate(std::size_t bytes);
  void release(void* base) noexcept;
  std::optional<Allocation> find(const void* p) const;

  ExportedMemory export_memory(const void* base) const;
  char* import_memory(const ExportedMemory& memory);
  void close_import(char* base) noexcept;

 private:
  struct Own {
    std::size_t bytes;  ///< as asked for
    std::size_t mapped;
    int file;
  };
  struct Import {
    std::size_t mapped;
    ino_t inode;
    int users;
  };

  mutable std::shared_mutex mutex_;
  std::map<char*, Own> own_;
  std::map<char*, Import> imports_;
};

}  // namespace mpix
