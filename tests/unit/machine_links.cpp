// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What NVML tells of a machine's GPUs, as a machine of the test's own tells it.
#include "device/cuda/machine_links.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/catch.h"

using mpix::MachineLinks;
using mpix::sees_whole_machine;
using Calls = MachineLinks::Calls;

namespace {

/// 0 and 1 by NVLink, 1 and 2 by PCIe, 0 and 2 not at all; 3 cannot be opened, 4 is no whole GPU.
constexpr const char* uuids[] = {"GPU-b3c7dc7c-f037-3afd-5e31-e4e02ba19b55", "GPU-E35BF68C-dd8b-d2ba-f8db-fc13606d5380",
                                 "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002",
                                 "MIG-00000000-0000-0000-0000-000000000003"};

int number_of(Calls::Gpu gpu) { return static_cast<int>(static_cast<const char* const*>(gpu) - uuids); }

int count(unsigned* gpus) { return *gpus = 5, 0; }
int no_count(unsigned*) { return 3; }
int gpu(unsigned number, Calls::Gpu* found) {
  *found = const_cast<const char**>(&uuids[number]);
  return number == 3 ? 4 : 0;
}
int uuid(Calls::Gpu of, char* text, unsigned bytes) {
  std::snprintf(text, bytes, "%s", uuids[number_of(of)]);
  return 0;
}
int access(Calls::Gpu one, Calls::Gpu other, int kind, int* status) {
  const int both = number_of(one) + number_of(other);
  *status = both == 1 || (both == 3 && kind != Calls::atomics) ? Calls::is_possible : 5;
  return 0;
}

MachineLinks::Uuid uuid_of(int number) {
  MachineLinks::Uuid bytes{};
  std::string digits;
  for (const char* c = uuids[number] + 4; *c; ++c)
    if (*c != '-') digits += *c;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return bytes;
}
std::uint64_t processor(int number) { return MachineLinks::processor_of(uuid_of(number)); }

}  // namespace

TEST_CASE("links of GPUs that are not seen: what NVML tells") {
  const MachineLinks links(Calls{count, gpu, uuid, access});
  CHECK(links.gpus() == 3);
  CHECK(links.has_atomics(processor(0), processor(1)));
  CHECK(links.has_atomics(processor(1), processor(0)));
  CHECK_FALSE(links.has_atomics(processor(1), processor(2)));
  CHECK_FALSE(links.has_atomics(processor(0), processor(2)));
  CHECK_FALSE(links.has_atomics(processor(0), processor(3)));
  CHECK_FALSE(links.has_atomics(0, processor(0)));
  CHECK(links.has_atomics_for_peers(processor(0)));  // 2 it cannot map
  CHECK_FALSE(links.has_atomics_for_peers(processor(1)));
  CHECK_FALSE(links.has_atomics_for_peers(processor(2)));
  CHECK(links.has_atomics_for_peers(processor(4)));
  CHECK(links.has_atomics_for_some(processor(0)));
  CHECK(links.has_atomics_for_some(processor(1)));
  CHECK_FALSE(links.has_atomics_for_some(processor(2)));
  CHECK_FALSE(links.has_atomics_for_some(processor(4)));
}

TEST_CASE("links of GPUs that are not seen: NVML that tells nothing") {
  const MachineLinks links(Calls{no_count, gpu, uuid, access});
  CHECK(links.gpus() == 0);
  CHECK_FALSE(links.has_atomics(processor(0), processor(1)));
}

TEST_CASE("links of GPUs that are not seen: whether there are some") {
  char folder[] = "/tmp/mpix-gpus-XXXXXX";
  REQUIRE(mkdtemp(folder));
  const std::string gpus[] = {folder + std::string("/0000:04:00.0"), folder + std::string("/0000:05:00.0")};
  for (const std::string& gpu : gpus) REQUIRE(mkdir(gpu.c_str(), 0700) == 0);
  CHECK_FALSE(sees_whole_machine(1, folder));
  CHECK(sees_whole_machine(2, folder));
  for (const std::string& gpu : gpus) CHECK(rmdir(gpu.c_str()) == 0);
  CHECK(sees_whole_machine(1000, folder));
  CHECK(rmdir(folder) == 0);
}
