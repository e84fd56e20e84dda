// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mpix {
namespace {

/// As much as a process has addresses for: offsets are given out from the least on, and never come near.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 46;

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(Fault::memory, what + ": " + std::strerror(error));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  void let_go() { number_ = -1; }

 private:
  int number_;
};

SharedFile::Ticket ticket_of(int file) {
  struct stat status;
  if (fstat(file, &status) != 0) fail("fstat", errno);
  return {getpid(), file, static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino)};
}

/// Another mapping of what lies at `at`, or MAP_FAILED. Not by the function of the C library, which communication
/// libraries intercept, to look after the mapping that a call without an old size does not end.
void* map_again(void* at, std::size_t bytes) {
  return reinterpret_cast<void*>(syscall(SYS_mremap, at, std::size_t{0}, bytes, MREMAP_MAYMOVE, nullptr));
}

bool maps_again(void* anchor) {
  void* const again = map_again(anchor, SharedFile::page());
  if (again == MAP_FAILED) return false;
  munmap(again, SharedFile::page());
  return true;
}

/// A file that is too long for the limit would be a signal, SIGXFSZ.
std::uint64_t longest_file() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most_bytes;
  return std::min<std::uint64_t>(most_bytes, limit.rlim_cur) / SharedFile::page() * SharedFile::page();
}

}  // namespace

std::size_t SharedFile::page() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

SharedFile::SharedFile(int descriptor, std::uint64_t size, const Ticket& ticket)
    : descriptor_(descriptor), size_(size), ticket_(ticket) {}

std::shared_ptr<SharedFile> SharedFile::create() {
  const std::uint64_t size = longest_file();
  if (size < page())
    throw Error(Fault::memory, "no shared memory: the limit of file sizes (ulimit -f) is less than a page");
  Descriptor file(memfd_create("mpix", MFD_CLOEXEC));
  if (file.get() < 0) fail("memfd_create", errno);
  if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) fail("fchmod", errno);
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) fail("making shared memory", errno);
  std::shared_ptr<SharedFile> all(new SharedFile(file.get(), size, ticket_of(file.get())));
  file.let_go();
  all->anchor_ = static_cast<char*>(all->map_anew(0, page()));
  return all;
}

std::shared_ptr<SharedFile> SharedFile::join(const Ticket& ticket) {
  const std::string whose = "the memory of process " + std::to_string(ticket.process);
  const std::string path = "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.file);
  Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) fail("opening " + whose, errno);
  struct stat status;
  if (fstat(file.get(), &status) != 0) fail("fstat", errno);
  if (ticket_of(file.get()).id() != ticket.id())
    throw Error(Fault::memory, whose + " cannot be reached from here (another PID namespace?)");
  std::shared_ptr<SharedFile> all(new SharedFile(file.get(), static_cast<std::uint64_t>(status.st_size), ticket));
  file.let_go();
  all->anchor_ = static_cast<char*>(all->map_anew(0, page()));
  all->close_descriptor();
  return all;
}

SharedFile::~SharedFile() {
  for (const auto& [range, view] : views_) munmap(view.base, range.second);
  if (anchor_) munmap(anchor_, page());
  if (descriptor_ >= 0) close(descriptor_);
}

void SharedFile::close_descriptor() noexcept {
  std::lock_guard<std::mutex> hold(mutex_);
  if (descriptor_ < 0 || !maps_again(anchor_)) return;
  close(descriptor_);
  descriptor_ = -1;
}

void* SharedFile::map_anew(std::uint64_t offset, std::size_t bytes) const {
  void* const base = descriptor_ < 0 ? walk(offset, bytes)
                                     : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_,
                                            static_cast<off_t>(offset));
  if (base == MAP_FAILED) fail("mapping " + std::to_string(bytes) + " bytes of shared memory", errno);
  return base;
}

/// A mapping that is made of the anchor begins at the anchor. So map all up to the range that is wanted, and unmap what
/// lies in front of it; where there are not enough addresses for that (ulimit -v), go there in steps. MAP_FAILED: errno
/// says why not.
void* SharedFile::walk(std::uint64_t offset, std::size_t bytes) const {
  munlock(anchor_, page());  // after mlockall() the whole way would be filled with memory
  char* at = anchor_;
  std::uint64_t distance = offset;
  std::uint64_t step = offset;
  void* found = MAP_FAILED;
  for (;;) {
    const bool last = step >= distance;
    if (last) step = distance;
    found = map_again(at, step + (last ? bytes : page()));
    if (found == MAP_FAILED) {
      if (errno != ENOMEM || step <= 64 * page()) break;
      step = step / 2 / page() * page();
      continue;
    }
    if (at != anchor_) munmap(at, page());
    if (step > 0) munmap(found, step);
    at = static_cast<char*>(found) + step;
    distance -= step;
    if (last) return at;
  }
  const int error = errno;
  if (at != anchor_) munmap(at, page());
  errno = error;
  return MAP_FAILED;
}

char* SharedFile::map(std::uint64_t offset, std::size_t bytes) {
  const std::size_t mapped = in_pages(bytes);
  if (offset > size_ || mapped > size_ - offset)
    throw Error(Fault::memory, "no room for " + std::to_string(bytes) + " bytes of shared memory (its file may have " +
                                   std::to_string(size_) + "; ulimit -f)");
  std::lock_guard<std::mutex> hold(mutex_);
  const Range range{offset, mapped};
  if (const auto known = views_.find(range); known != views_.end()) {
    ++known->second.users;
    return known->second.base;
  }
  char* const base = static_cast<char*>(map_anew(offset, mapped));
  views_[range] = View{base, 1};
  ranges_[base] = range;
  return base;
}

void SharedFile::unmap(const char* base) noexcept {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto range = ranges_.find(base);
  if (range == ranges_.end()) return;
  const auto view = views_.find(range->second);
  if (--view->second.users > 0) return;
  munmap(view->second.base, view->first.second);
  views_.erase(view);
  ranges_.erase(range);
}

void SharedFile::discard(std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::lock_guard<std::mutex> hold(mutex_);
  if (descriptor_ >= 0) {
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
    return;
  }
  std::uint64_t step = bytes;
  while (bytes > 0) {
    step = std::min(step, bytes);
    void* const base = walk(offset, step);
    if (base == MAP_FAILED) {
      if (step <= page()) return;  // the memory comes back with the end of the file
      step = in_pages(step / 2);
      continue;
    }
    madvise(base, step, MADV_REMOVE);
    munmap(base, step);
    offset += step;
    bytes -= step;
  }
}

}  // namespace mpix
