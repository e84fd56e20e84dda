// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/cuda/machine_links.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace mpix {
namespace {

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

/// "GPU-b3c7dc7c-f037-3afd-5e31-e4e02ba19b55"
std::optional<MachineLinks::Uuid> read_uuid(const std::string& text) {
  MachineLinks::Uuid uuid{};
  std::size_t digits = 0;
  if (text.compare(0, 4, "GPU-") != 0) return std::nullopt;
  for (const char c : text.substr(4)) {
    if (c == '-') continue;
    const int value = value_of(c);
    if (value < 0 || digits == 2 * uuid.size()) return std::nullopt;
    unsigned char& byte = uuid[digits++ / 2];
    byte = static_cast<unsigned char>(byte << 4 | value);
  }
  if (digits != 2 * uuid.size()) return std::nullopt;
  return uuid;
}

std::unique_ptr<const MachineLinks> ask_nvml() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // for good: the program may use it, too
  if (!library) return nullptr;
  const auto look_up = [library](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  MachineLinks::Calls calls{};
  if (!look_up("nvmlInit_v2", init) || !look_up("nvmlShutdown", shutdown) ||
      !look_up("nvmlDeviceGetCount_v2", calls.count) || !look_up("nvmlDeviceGetHandleByIndex_v2", calls.gpu) ||
      !look_up("nvmlDeviceGetUUID", calls.uuid) || !look_up("nvmlDeviceGetP2PStatus", calls.access) || init() != 0)
    return nullptr;
  auto links = std::make_unique<const MachineLinks>(calls);
  shutdown();
  return links->gpus() > 0 ? std::move(links) : nullptr;
}

}  // namespace

MachineLinks::MachineLinks(const Calls& calls) {
  unsigned count = 0;
  if (calls.count(&count) != 0) return;
  std::vector<Calls::Gpu> all;
  for (unsigned number = 0; number < count; ++number) {
    Calls::Gpu gpu = nullptr;
    char text[Calls::uuid_bytes] = "";
    // What this process may not open it cannot map either.
    if (calls.gpu(number, &gpu) != 0 || calls.uuid(gpu, text, sizeof text) != 0) continue;
    const std::optional<Uuid> uuid = read_uuid(text);
    if (!uuid) continue;
    all.push_back(gpu);
    processors_.push_back(processor_of(*uuid));
  }
  const auto can = [&](Calls::Gpu one, Calls::Gpu other, int kind) {
    int status = -1;
    return calls.access(one, other, kind, &status) == 0 && status == Calls::is_possible;
  };
  links_.resize(gpus() * gpus());
  for (std::size_t one = 0; one < gpus(); ++one)
    for (std::size_t other = 0; other < one; ++other) {
      const Link link{can(all[one], all[other], Calls::reads) || can(all[one], all[other], Calls::writes),
                      can(all[one], all[other], Calls::atomics)};
      links_[one * gpus() + other] = links_[other * gpus() + one] = link;
    }
}

const MachineLinks* MachineLinks::of_this_machine() {
  static const MachineLinks* const links = ask_nvml().release();
  return links;
}

std::uint64_t MachineLinks::processor_of(const Uuid& uuid) {
  std::uint64_t number = 14695981039346656037u;  // FNV-1a
  for (const unsigned char byte : uuid) number = (number ^ byte) * 1099511628211u;
  return number | 1;
}

std::size_t MachineLinks::number_of(std::uint64_t processor) const {
  return static_cast<std::size_t>(std::find(processors_.begin(), processors_.end(), processor) - processors_.begin());
}

bool MachineLinks::has_atomics(std::uint64_t one, std::uint64_t other) const {
  const std::size_t a = number_of(one), b = number_of(other);
  return a < gpus() && b < gpus() && link(a, b).atomics;
}

bool MachineLinks::has_atomics_for_peers(std::uint64_t processor) const {
  const std::size_t own = number_of(processor);
  for (std::size_t other = 0; own < gpus() && other < gpus(); ++other)
    if (other != own && link(own, other).maps && !link(own, other).atomics) return false;
  return true;  // a part of a GPU, which is none of these, maps nobody's
}

bool MachineLinks::has_atomics_for_some(std::uint64_t processor) const {
  return std::any_of(processors_.begin(), processors_.end(),
                     [&](std::uint64_t other) { return has_atomics(processor, other); });
}

bool sees_whole_machine(std::size_t visible, const std::string& directory) {
  std::size_t all = 0;
  if (DIR* const open = opendir(directory.c_str())) {
    while (const dirent* const entry = readdir(open)) all += entry->d_name[0] != '.';
    closedir(open);
  }
  if (all > 0) return all <= visible;
  const MachineLinks* const links = MachineLinks::of_this_machine();
  return !links || links->gpus() <= visible;
}

}  // namespace mpix
