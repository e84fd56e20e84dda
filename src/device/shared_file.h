// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace mpix {

/// An anonymous file that processes of a node share. It is sparse: what nobody has touched takes no memory.
///
/// Each process that uses it has mapped one page of it, its anchor. The rest is mapped when it is needed, and without a
/// descriptor, which may be closed as soon as all have their anchors: mremap() with an old size of 0 makes a second
/// mapping of what the first one maps, and that may be larger.
///
/// There is no name in any file system, so nothing can be left behind, however a process ends; only processes that the
/// kernel would let inspect the one that made it (same user, same PID namespace) can join.
class SharedFile {
 public:
  /// What another process needs to join. Device and inode prove that /proc/<pid>/fd/<file> is the file that was meant,
  /// and not what another process, in another PID namespace, happens to have there.
  struct Ticket {
    std::int32_t process;
    std::int32_t file;
    std::uint64_t device;
    std::uint64_t inode;

    std::pair<std::uint64_t, std::uint64_t> id() const { return {device, inode}; }
  };

  /// All throw Error.
  static std::shared_ptr<SharedFile> create();
  static std::shared_ptr<SharedFile> join(const Ticket& ticket);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  const Ticket& ticket() const { return ticket_; }
  /// Nobody joins any more. Kept all the same where the system cannot map a mapping again.
  void close_descriptor() noexcept;

  static std::size_t page();
  static std::size_t in_pages(std::size_t bytes) { return (bytes + page() - 1) / page() * page(); }
  /// The file ends here: what lies beyond cannot be mapped.
  std::uint64_t size() const { return size_; }
  char* anchor() const { return anchor_; }

  /// Map a range of the file, at a multiple of a page. The same range comes back at the same address, until it has been
  /// unmapped as often as mapped.
  char* map(std::uint64_t offset, std::size_t bytes);
  void unmap(const char* base) noexcept;
  /// Give back the memory of a range: it reads as zeroes, in all processes.
  void discard(std::uint64_t offset, std::uint64_t bytes) noexcept;

 private:
  SharedFile(int descriptor, std::uint64_t size, const Ticket& ticket);
  void* map_anew(std::uint64_t offset, std::size_t bytes) const;
  void* walk(std::uint64_t offset, std::size_t bytes) const;

  using Range = std::pair<std::uint64_t, std::size_t>;  ///< offset and bytes
  struct View {
    char* base;
    int users;
  };

  int descriptor_;
  const std::uint64_t size_;
  const Ticket ticket_;
  char* anchor_ = nullptr;
  std::mutex mutex_;
  std::map<Range, View> views_;
  std::map<const char*, Range> ranges_;  ///< by the address of their view
};

}  // namespace mpix
