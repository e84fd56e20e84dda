// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"

namespace mpix {
namespace {

/// Of one file; then another is begun. Small enough to be walked through in no time (SharedFile).
constexpr std::uint64_t most_in_a_file = std::uint64_t{1} << 40;

}  // namespace

std::shared_ptr<SharedFile> SharedMemory::create_file() {
  std::shared_ptr<SharedFile> file = SharedFile::create();
  std::lock_guard<std::mutex> hold(files_mutex_);
  forget_closed_files();
  files_[file->ticket().id()] = file;
  return file;
}

/// Under files_mutex_.
void SharedMemory::forget_closed_files() {
  for (auto at = files_.begin(); at != files_.end();) at = at->second.expired() ? files_.erase(at) : std::next(at);
}

std::shared_ptr<SharedFile> SharedMemory::join(const SharedFile::Ticket& ticket) {
  std::lock_guard<std::mutex> hold(files_mutex_);
  forget_closed_files();
  if (const auto known = files_.find(ticket.id()); known != files_.end())
    if (auto file = known->second.lock()) return file;
  std::shared_ptr<SharedFile> file = SharedFile::join(ticket);
  files_[ticket.id()] = file;
  return file;
}

/// An offset in the heap, under the lock. None is given out twice: of a window that broke a peer may write into memory
/// that was released.
std::uint64_t SharedMemory::take(std::size_t bytes) {
  const std::uint64_t most = heap_ ? std::min<std::uint64_t>(most_in_a_file, heap_->size()) : 0;
  const bool has_room = heap_ && heap_end_ <= most && bytes <= most - heap_end_;
  if (!has_room && (!heap_ || heap_end_ > SharedFile::page())) {
    heap_ = create_file();
    heap_end_ = SharedFile::page();  // after the anchor
  }
  const std::uint64_t offset = heap_end_;
  heap_end_ += bytes;
  return offset;
}

Allocation SharedMemory::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 4) throw Error(Fault::memory, "cannot allocate " + std::to_string(bytes) + " bytes");
  const std::size_t mapped = SharedFile::in_pages(bytes ? bytes : 1);
  std::unique_lock<std::shared_mutex> hold(mutex_);
  const std::shared_ptr<SharedFile> heap_before = heap_;
  const std::uint64_t end_before = heap_end_;
  const std::uint64_t offset = take(mapped);
  try {
    char* const base = heap_->map(offset, mapped);
    own_[base] = Own{bytes, mapped, offset, heap_};
    return Allocation{base, bytes};
  } catch (...) {
    heap_ = own_.empty() ? nullptr : heap_before;
    heap_end_ = end_before;
    throw;
  }
}

void SharedMemory::release(void* base) noexcept {
  std::unique_lock<std::shared_mutex> hold(mutex_);
  const auto found = own_.find(static_cast<char*>(base));
  if (found == own_.end()) return;
  const Own own = std::move(found->second);
  own_.erase(found);
  own.file->unmap(static_cast<char*>(base));
  own.file->discard(own.offset, own.mapped);
  if (own_.empty()) heap_ = nullptr;
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
  static_assert(sizeof(Exported) <= sizeof(ExportedMemory), "what peers need travels in ExportedMemory");
  std::shared_lock<std::shared_mutex> hold(mutex_);
  const auto found = own_.find(const_cast<char*>(static_cast<const char*>(base)));
  if (found == own_.end()) throw Error(Fault::memory, "exporting memory that is not shareable");
  const Own& own = found->second;
  const Exported all{own.file->ticket(), own.offset, own.mapped};
  ExportedMemory memory{};
  std::memcpy(memory.bytes, &all, sizeof all);
  return memory;
}

SharedMemory::Exported SharedMemory::exported(const ExportedMemory& memory) {
  Exported all;
  std::memcpy(&all, memory.bytes, sizeof all);
  return all;
}

char* SharedMemory::import_memory(const ExportedMemory& memory) {
  const Exported all = exported(memory);
  std::shared_ptr<SharedFile> file = join(all.file);
  char* const base = file->map(all.offset, all.bytes);
  std::unique_lock<std::shared_mutex> hold(mutex_);
  Import& import = imports_[base];
  import.file = std::move(file);
  ++import.users;
  return base;
}

void SharedMemory::close_import(char* base) noexcept {
  std::unique_lock<std::shared_mutex> hold(mutex_);
  const auto found = imports_.find(base);
  if (found == imports_.end()) return;
  found->second.file->unmap(base);
  if (--found->second.users == 0) imports_.erase(found);
}

}  // namespace mpix
