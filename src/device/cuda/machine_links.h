// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mpix {

/// The GPUs of this machine and what connects them, as NVIDIA's management library (NVML) tells: those, too, that the
/// process does not see (CUDA_VISIBLE_DEVICES). It maps their memory all the same, and CUDA tells nothing of them.
class MachineLinks {
 public:
  /// Of NVML, whose header need not be there.
  struct Calls {
    using Gpu = void*;
    static constexpr int reads = 0, writes = 1, atomics = 3;  ///< kinds of access to another GPU's memory
    static constexpr int is_possible = 0;
    static constexpr unsigned uuid_bytes = 96;

    int (*count)(unsigned* gpus);
    int (*gpu)(unsigned number, Gpu* gpu);
    int (*uuid)(Gpu gpu, char* text, unsigned bytes);
    int (*access)(Gpu one, Gpu other, int kind, int* status);
  };
  explicit MachineLinks(const Calls& calls);

  /// Null: there is no such library, or it has nothing to tell. Asked once.
  static const MachineLinks* of_this_machine();

  /// A GPU's number that no other has on any node; not 0.
  using Uuid = std::array<unsigned char, 16>;
  static std::uint64_t processor_of(const Uuid& uuid);

  std::size_t gpus() const { return processors_.size(); }
  /// Between two GPUs, by their processors: the atomic operations of each reach the other's memory.
  bool has_atomics(std::uint64_t one, std::uint64_t other) const;
  /// With all GPUs whose memory it can map.
  bool has_atomics_for_peers(std::uint64_t processor) const;
  /// With any.
  bool has_atomics_for_some(std::uint64_t processor) const;

 private:
  struct Link {
    bool maps = false, atomics = false;
  };
  std::size_t number_of(std::uint64_t processor) const;
  const Link& link(std::size_t one, std::size_t other) const { return links_[one * gpus() + other]; }

  std::vector<std::uint64_t> processors_;
  std::vector<Link> links_;
};

/// The machine has no GPU beside the `visible` ones. Where the driver does not list them in `directory`: as NVML says,
/// and, where there is none, what this process sees is all that it can know of.
bool sees_whole_machine(std::size_t visible, const std::string& directory = "/proc/driver/nvidia/gpus");

}  // namespace mpix
