// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/error.h"

namespace mpix {
namespace {

/// What travels in ExportedMemory. Device and inode prove that /proc/<pid>/fd/<file> is the file that was
/// exported, and not what another process, in another PID namespace, happens to have there.
struct Ticket {
  pid_t process;
  int file;
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t mapped;
  std::uint64_t base;
};
static_assert(sizeof(Ticket) <= sizeof(ExportedMemory), "the ticket travels in ExportedMemory");

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(Fault::memory, what + ": " + std::strerror(error));
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  int keep() {
    const int kept = descriptor_;
    descriptor_ = -1;
    return kept;
  }

 private:
  int descriptor_;
};

char* map_file(int file, std::size_t bytes, const std::string& what) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) fail(what, errno);
  return static_cast<char*>(base);
}

}  // namespace

SharedMemory::~SharedMemory() {
  for (const auto& import : imports_) munmap(import.first, import.second.mapped);
  for (const auto& own : own_) {
    munmap(own.first, own.second.mapped);
    close(own.second.file);
  }
}

Allocation SharedMemory::allocate(std::size_t bytes) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX / 4) throw Error(Fault::memory, "cannot allocate " + std::to_string(bytes) + " bytes");
  const std::size_t mapped = ((bytes ? bytes : 1) + page - 1) / page * page;
  File file(memfd_create("mpix", MFD_CLOEXEC));
  if (file.get() < 0) fail("memfd_create", errno);
  if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) fail("fchmod", errno);
  const std::string what = "allocating " + std::to_string(bytes) + " bytes of shareable memory";
  if (ftruncate(file.get(), static_cast<off_t>(mapped)) != 0) fail(what, errno);
  char* base = map_file(file.get(), mapped, what);
  std::unique_lock<std::shared_mutex> hold(mutex_);
  own_[base] = Own{bytes, mapped, file.keep()};
  return Allocation{base, bytes};
}

void SharedMemory::release(void* base) noexcept {
  std::unique_lock<std::shared_mutex> hold(mutex_);
  const auto found = own_.find(static_cast<char*>(base));
  if (found == own_.end()) return;
  munmap(found->first, found->second.mapped);
  close(found->second.file);
  own_.erase(found);
}

std::optional<Allocation> SharedMemory::find(const void* p) const {
  const char* at = static_cast<const char*>(p);
  std::shared_lock<std::shared_mutex> hold(mutex_);
  auto next = own_.upper_bound(const_cast<char*>(at));
  if (next == own_.begin()) return std::nullopt;
  --next;
  if (at >= next->first + next->second.mapped) return std::nullopt;
  return Allocation{next->first, next->second.bytes};
}

ExportedMemory SharedMemory::export_memory(const void* base) const {
  std::shared_lock<std::shared_mutex> hold(mutex_);
  const auto found = own_.find(const_cast<char*>(static_cast<const char*>(base)));
  if (found == own_.end()) throw Error(Fault::memory, "exporting memory that is not shareable");
  struct stat status;
  if (fstat(found->second.file, &status) != 0) fail("fstat", errno);
  const Ticket ticket{getpid(),
                      found->second.file,
                      static_cast<std::uint64_t>(status.st_dev),
                      static_cast<std::uint64_t>(status.st_ino),
                      found->second.mapped,
                      reinterpret_cast<std::uintptr_t>(base)};
  ExportedMemory memory{};
  std::memcpy(memory.bytes, &ticket, sizeof ticket);
  return memory;
}

char* SharedMemory::import_memory(const ExportedMemory& memory) {
  Ticket ticket;
  std::memcpy(&ticket, memory.bytes, sizeof ticket);
  std::unique_lock<std::shared_mutex> hold(mutex_);
  if (ticket.process == getpid()) {
    const auto own = own_.find(reinterpret_cast<char*>(static_cast<std::uintptr_t>(ticket.base)));
    struct stat status;
    if (own != own_.end() && fstat(own->second.file, &status) == 0 && status.st_ino == ticket.inode)
      return own->first;
  }
  for (auto& import : imports_) {
    if (import.second.inode != ticket.inode) continue;
    ++import.second.users;
    return import.first;
  }
  const std::string path = "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.file);
  File file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) fail("opening the memory of process " + std::to_string(ticket.process), errno);
  struct stat status;
  if (fstat(file.get(), &status) != 0) fail("fstat", errno);
  if (static_cast<std::uint64_t>(status.st_dev) != ticket.device ||
      static_cast<std::uint64_t>(status.st_ino) != ticket.inode)
    throw Error(Fault::memory, "the memory of process " + std::to_string(ticket.process) +
                                   " cannot be reached from here (another PID namespace?)");
  char* base = map_file(file.get(), ticket.mapped, "mapping a peer's memory");
  imports_[base] = Import{ticket.mapped, status.st_ino, 1};
  return base;
}

void SharedMemory::close_import(char* base) noexcept {
  std::unique_lock<std::shared_mutex> hold(mutex_);
  const auto found = imports_.find(base);
  if (found == imports_.end() || --found->second.users > 0) return;
  munmap(found->first, found->second.mapped);
  imports_.erase(found);
}

}  // namespace mpix
