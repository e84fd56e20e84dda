// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// How HIP's runtime is loaded when it is needed. tests/mpi/hip.sh runs these, each in a process of its own, in which it
// has not been loaded yet.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "device/hip/hip_device.h"
#include "support/catch.h"

// What static constructors of hipcc's objects call.
extern "C" {
void** __hipRegisterFatBinary(const void* wrapper);
int __hipRegisterFunction(void** binary, const void* stub, char* symbol, const char* name, unsigned threads,
                          void* thread, void* block, void* block_size, void* grid_size, int* warp_size);
}

using namespace mpix;

namespace {

Settings settings_for(const char* device) {
  Settings settings = Settings::from_environment();
  settings.device = device;
  return settings;
}

/// What tests/support/fake_hip.c has taken down.
std::vector<std::string> taken_down() {
  void* const fake = dlopen(std::getenv("FAKE_HIP"), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(fake);
  const auto lines = reinterpret_cast<const char* (*)()>(dlsym(fake, "fake_hip_lines"));
  REQUIRE(lines);
  std::istringstream text(lines());
  std::vector<std::string> all;
  for (std::string line; std::getline(text, line);) all.push_back(line);
  return all;
}

/// The names of the kernels in the lines that begin so, sorted.
std::vector<std::string> kernels_in(const std::vector<std::string>& lines, const std::string& beginning) {
  std::vector<std::string> names;
  for (const std::string& line : lines)
    if (line.compare(0, beginning.size(), beginning) == 0)
      names.push_back(line.substr(beginning.size(), line.find(' ', beginning.size()) - beginning.size()));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("the runtime gets the kernels that were registered before it was there, and launches them", "[.fake_hip]") {
  const auto address = [](int n) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(n)); };
  char first[] = "first", second[] = "second";
  void** const one = __hipRegisterFatBinary(address(0x100));
  __hipRegisterFunction(one, address(0x10), first, "one", ~0u, address(1), address(2), address(3), address(4), nullptr);
  void** const other = __hipRegisterFatBinary(address(0x200));
  __hipRegisterFunction(other, address(0x20), first, "two", 7, nullptr, nullptr, nullptr, nullptr, nullptr);
  __hipRegisterFunction(one, address(0x30), second, "three", 8, nullptr, nullptr, nullptr, nullptr, nullptr);

  const auto device = make_hip_device(settings_for("hip"), 1);
  REQUIRE(device);
  const std::vector<std::string> registered = taken_down();
  const std::size_t binaries = static_cast<std::size_t>(std::count_if(
      registered.begin(), registered.end(), [](const std::string& line) { return line.find("binary ") == 0; }));
  REQUIRE(binaries > 2);  // the library's before these two
  const std::string first_number = std::to_string(binaries - 2), second_number = std::to_string(binaries - 1);
  const std::vector<std::string> expected = {
      "binary " + first_number + " at 0x100",
      "kernel one of " + first_number + ": 0x10 first -1 0x1 0x2 0x3 0x4 (nil)",
      "kernel three of " + first_number + ": 0x30 second 8 (nil) (nil) (nil) (nil) (nil)",
      "binary " + second_number + " at 0x200",
      "kernel two of " + second_number + ": 0x20 first 7 (nil) (nil) (nil) (nil) (nil)",
  };
  REQUIRE(registered.size() > expected.size() + 10);
  CHECK(std::vector<std::string>(registered.end() - static_cast<std::ptrdiff_t>(expected.size()), registered.end()) ==
        expected);
  CHECK(registered.front().compare(0, 9, "binary 0 ") == 0);

  // Its own: all that it loads, and no others.
  device->prepare_collectives();
  device->prepare_halos();
  device->launch(nullptr, Launch{});
  const std::vector<std::string> all = taken_down();
  std::vector<std::string> own = kernels_in(registered, "kernel ");
  for (const char* name : {"one", "two", "three"}) own.erase(std::find(own.begin(), own.end(), name));
  CHECK(kernels_in(all, "load ") == own);
  const std::vector<std::string> launched = kernels_in(all, "launch ");
  REQUIRE(launched.size() == 1);
  CHECK(launched[0].find("run_posts") != std::string::npos);
  CHECK(all.size() == registered.size() + own.size() + 1);
  CHECK(make_hip_device(settings_for("hip"), 1));
  CHECK(taken_down().size() == all.size());  // once is enough
}

TEST_CASE("the true runtime takes the kernels, and says that there is no device", "[.true_hip]") {
  CHECK_FALSE(make_hip_device(settings_for("hip"), 1));
  CHECK_FALSE(make_hip_device(settings_for("hip"), 1));
}
