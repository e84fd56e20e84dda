// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "device/device.h"
#include "device/shared_file.h"

namespace mpix {

/// "Device memory" of the host back end, which peers map: parts of one file of this process, whose descriptor is open
/// for as long as there are any, as peers may join at any time.
class SharedMemory {
 public:
  Allocation allocate(std::size_t bytes);
  void release(void* base) noexcept;
  std::optional<Allocation> find(const void* p) const;

  ExportedMemory export_memory(const void* base) const;
  /// Memory of this very process comes back as it is.
  char* import_memory(const ExportedMemory& memory);
  void close_import(char* base) noexcept;

  /// What a peer can map, without mapping it.
  struct Exported {
    SharedFile::Ticket file;
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  static Exported exported(const ExportedMemory& memory);
  /// The file of a peer, or of this process. Throws Error.
  std::shared_ptr<SharedFile> join(const SharedFile::Ticket& ticket);
  /// A new file, which ranks of this process find by its ticket.
  std::shared_ptr<SharedFile> create_file();

 private:
  struct Own {
    std::size_t bytes;  ///< as asked for
    std::size_t mapped;
    std::uint64_t offset;
    std::shared_ptr<SharedFile> file;
  };
  struct Import {
    std::shared_ptr<SharedFile> file;
    int users;
  };
  std::uint64_t take(std::size_t bytes);
  void forget_closed_files();

  mutable std::shared_mutex mutex_;
  std::shared_ptr<SharedFile> heap_;  ///< null: nothing is allocated
  std::uint64_t heap_end_ = 0;
  std::map<char*, Own> own_;
  std::map<char*, Import> imports_;
  std::mutex files_mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<SharedFile>> files_;  ///< by their tickets' id
};

}  // namespace mpix
