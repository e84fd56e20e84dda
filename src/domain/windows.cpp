// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Of Domain: memory that is attached, and windows of the host.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "domain/domain.h"

namespace mpix {

/// What a process puts into a window, or attaches.
struct Domain::Memory {
  ExportedMemory exported;
  std::uint64_t own_base;
  std::uint32_t present, unused;
};

void Domain::attach(Bootstrap& bootstrap, void* base, std::size_t bytes) {
  const auto free = std::find_if(attachments_.begin(), attachments_.end(),
                                 [](const Attachment& one) { return one.mappings.empty(); });
  if (free == attachments_.end())
    throw Error(Fault::attach, std::to_string(attachments_.size()) + " attachments are there already");
  Memory mine{};
  struct Extent {
    std::uint64_t offset, bytes;  ///< in the allocation
  } own{0, bytes};
  if (bytes > 0) {
    device_.use_memory_of(base, bytes);
    const std::optional<Allocation> around = device_.shareable(base);
    char* const begin = static_cast<char*>(base);
    if (!around)
      throw Error(Fault::attach, "other processes cannot map the memory: MPIX_Dev_alloc allocates some that they can");
    const auto behind = static_cast<std::size_t>(around->base + around->bytes - begin);
    if (bytes > behind)
      throw Error(Fault::attach, std::to_string(bytes) + " bytes, where the memory of the allocation ends after " +
                                     std::to_string(behind));
    mine.exported = device_.export_memory(around->base);
    mine.present = 1;
    own.offset = static_cast<std::uint64_t>(begin - around->base);
    mine.own_base = reinterpret_cast<std::uintptr_t>(around->base);
  }
  const std::vector<Memory> all = bootstrap.allgather(mine);
  const std::vector<Extent> extents = bootstrap.allgather(own);
  Attachment made;
  made.own = static_cast<char*>(base);
  std::vector<dev::WindowEntry> entries(param_.processes);
  try {
    for (std::uint32_t local = 0; local < param_.processes; ++local) {
      const auto process = static_cast<std::size_t>(team_->locals()[local]);
      const Memory& memory = all[process];
      Mapping mapping;
      if (memory.present != 0)
        mapping = map(static_cast<int>(process), memory.exported,
                      reinterpret_cast<char*>(static_cast<std::uintptr_t>(memory.own_base)));
      made.mappings.push_back(mapping);
      if (memory.present != 0) entries[local] = {mapping.base + extents[process].offset, extents[process].bytes + 1};
    }
    const auto index = static_cast<std::size_t>(free - attachments_.begin());
    device_.write(segment_.base + places_.attached + index * param_.processes * sizeof(dev::WindowEntry),
                  entries.data(), entries.size() * sizeof entries[0]);
    (void)bootstrap.allgather(std::uint64_t{0});
  } catch (...) {
    release_mappings(made.mappings);
    throw;
  }
  *free = std::move(made);
}

void Domain::detach(Bootstrap& bootstrap, void* base) {
  // A bit each: a process may have several of one base, as of none at all.
  std::uint64_t mine = 0;
  static_assert(dev::most_attachments == 64, "bits of a word");
  for (std::size_t i = 0; i < attachments_.size(); ++i)
    if (!attachments_[i].mappings.empty() && attachments_[i].own == base) mine |= std::uint64_t{1} << i;
  std::uint64_t common = mine;
  for (const std::uint64_t other : bootstrap.allgather(mine)) common &= other;
  if (mine == 0) throw Error(Fault::attach, "this memory is not attached");
  if (common == 0) throw Error(Fault::attach, "the processes name different attachments");
  std::uint64_t index = 0;
  while ((common >> index & 1) == 0) ++index;
  Attachment& found = attachments_[index];
  const std::vector<dev::WindowEntry> nothing(param_.processes);
  device_.write(segment_.base + places_.attached + index * param_.processes * sizeof(dev::WindowEntry), nothing.data(),
                nothing.size() * sizeof nothing[0]);
  (void)bootstrap.allgather(std::uint64_t{0});
  release_mappings(found.mappings);
}

int Domain::create_window(Bootstrap& bootstrap, void* const base[], const std::size_t bytes[]) {
  const auto free =
      std::find_if(windows_.begin(), windows_.end(), [](const Attachment& one) { return !one.is_window; });
  if (free == windows_.end())
    throw Error(Fault::memory, std::to_string(windows_.size()) + " windows are there already");
  // What this process has: allocations, and where in them each rank's part lies.
  struct Part {
    std::uint64_t allocation, offset, bytes;
  };
  std::vector<Part> parts;
  std::vector<Memory> allocations;
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) {
    Part part{0, 0, bytes[i]};
    if (bytes[i] >= dev::most_window_bytes)
      throw Error(Fault::argument,
                  "rank " + std::to_string(param_.first_rank + i) + ": its part of the window is too large");
    if (bytes[i] > 0) {
      if (!base[i]) throw Error(Fault::argument, "rank " + std::to_string(param_.first_rank + i) + " has no base");
      device_.use_memory_of(base[i], bytes[i]);
      const std::optional<Allocation> around = device_.shareable(base[i]);
      char* const begin = static_cast<char*>(base[i]);
      if (!around || begin + bytes[i] > around->base + around->bytes)
        throw Error(Fault::attach,
                    "rank " + std::to_string(param_.first_rank + i) +
                        ": other processes cannot map all of its memory: MPIX_Dev_alloc allocates some that they "
                        "can, of as many bytes as it is asked for");
      const auto own = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(around->base));
      const auto known = std::find_if(allocations.begin(), allocations.end(),
                                      [own](const Memory& one) { return one.own_base == own; });
      part.allocation = static_cast<std::uint64_t>(known - allocations.begin());
      part.offset = static_cast<std::uint64_t>(begin - around->base);
      if (known == allocations.end()) allocations.push_back(Memory{device_.export_memory(around->base), own, 1, 0});
    }
    parts.push_back(part);
  }
  const auto processes = static_cast<std::size_t>(team_->size());
  std::uint64_t most_here = 0;
  for (int process = 0; process < team_->size(); ++process)
    most_here = std::max<std::uint64_t>(most_here, ranks_of(process));
  const std::vector<std::uint64_t> counts = bootstrap.allgather(std::uint64_t{allocations.size()});
  const std::uint64_t most_allocations = std::max<std::uint64_t>(1, *std::max_element(counts.begin(), counts.end()));
  allocations.resize(most_allocations);
  parts.resize(std::max<std::uint64_t>(1, most_here));
  std::vector<Memory> all(most_allocations * processes);
  bootstrap.allgather(allocations.data(), most_allocations * sizeof(Memory), all.data());
  std::vector<Part> all_parts(parts.size() * processes);
  bootstrap.allgather(parts.data(), parts.size() * sizeof(Part), all_parts.data());

  const auto index = static_cast<std::uint32_t>(free - windows_.begin());
  Attachment made;
  made.is_window = true;
  std::vector<dev::WindowEntry> entries, own;
  try {
    for (std::size_t process = 0; process < processes; ++process) {
      // What lies on other nodes has no address here.
      const bool is_near = team_->same_node(static_cast<int>(process));
      const std::size_t first = made.mappings.size();
      for (std::uint64_t i = 0; is_near && i < counts[process]; ++i) {
        const Memory& one = all[process * most_allocations + i];
        made.mappings.push_back(map(static_cast<int>(process), one.exported,
                                    reinterpret_cast<char*>(static_cast<std::uintptr_t>(one.own_base))));
      }
      for (std::uint32_t i = 0; i < ranks_of(static_cast<int>(process)); ++i) {
        const Part& part = all_parts[process * parts.size() + i];
        char* const at =
            is_near && part.bytes > 0 ? made.mappings[first + part.allocation].base + part.offset : nullptr;
        entries.push_back({at, part.bytes + 1});
        if (static_cast<int>(process) == own_process()) own.push_back(entries.back());
      }
    }
    if (courier_) courier_->know_window(index, own);
    device_.write(segment_.base + places_.windows + std::uint64_t{index} * param_.ranks * sizeof(dev::WindowEntry),
                  entries.data(), entries.size() * sizeof entries[0]);
    (void)bootstrap.allgather(std::uint64_t{0});
  } catch (...) {
    release_mappings(made.mappings);
    throw;
  }
  *free = std::move(made);
  return static_cast<int>(index);
}

void Domain::free_window(Bootstrap& bootstrap, int window) {
  const std::vector<std::int64_t> all = bootstrap.allgather(std::int64_t{window});
  if (std::any_of(all.begin(), all.end(), [window](std::int64_t other) { return other != window; }))
    throw Error(Fault::window, "the processes name different windows");
  if (window < 0 || window >= static_cast<int>(windows_.size()) ||
      !windows_[static_cast<std::size_t>(window)].is_window)
    throw Error(Fault::window, "no such window");
  const std::vector<dev::WindowEntry> nothing(param_.ranks);
  device_.write(
      segment_.base + places_.windows + static_cast<std::uint64_t>(window) * param_.ranks * sizeof(dev::WindowEntry),
      nothing.data(), nothing.size() * sizeof nothing[0]);
  (void)bootstrap.allgather(std::uint64_t{0});
  if (courier_) courier_->know_window(static_cast<std::uint32_t>(window), {});
  Attachment& gone = windows_[static_cast<std::size_t>(window)];
  release_mappings(gone.mappings);
  gone = Attachment{};
}

}  // namespace mpix
