// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The GPU back ends through the Device interface, as far as one process can see them. Where there is no GPU
// these pass by; what peers see is for the tests with several ranks.
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"
#include "device/hip/hip_device.h"
#include "device/host/stream.h"
#include "support/catch.h"

using namespace mpix;

namespace {

std::unique_ptr<Device> gpu() {
  const Settings settings = Settings::from_environment();
  auto device = make_cuda_device(settings, 1);
  if (!device) device = make_hip_device(settings, 1);
  if (!device) WARN("skipped: no GPU here, or its back end is not built");
  return device;
}

std::vector<char> bytes_at(Device& device, const void* from, std::size_t count) {
  std::vector<char> bytes(count);
  device.read(bytes.data(), from, count);
  return bytes;
}

}  // namespace

TEST_CASE("a GPU's memory is zeroed, also when it is used again", "[gpu]") {
  const auto device = gpu();
  if (!device) return;
  for (int turn = 0; turn < 3; ++turn) {
    const Allocation memory = device->allocate(5000);
    CHECK(memory.bytes == 5000);
    CHECK(device->hidden_from_host(memory.base));
    CHECK(bytes_at(*device, memory.base, 5000) == std::vector<char>(5000, '\0'));
    const std::vector<char> junk(5000, 'x');
    const auto copy = device->upload(junk.data(), junk.size());
    CHECK(bytes_at(*device, copy.get(), 5000) == junk);
    device->release(memory.base);
  }
  CHECK_THROWS_AS(device->allocate(std::size_t{1} << 60), Error);
  const Allocation again = device->allocate(1000);  // an error before does not stick
  CHECK(bytes_at(*device, again.base, 1000) == std::vector<char>(1000, '\0'));
  device->release(again.base);
}

TEST_CASE("what peers can map of a GPU's memory, and from where", "[gpu]") {
  const auto device = gpu();
  if (!device) return;
  const Allocation memory = device->allocate(10000);
  for (const std::size_t inside : {0, 1, 9999}) {
    const auto around = device->shareable(memory.base + inside);
    REQUIRE(around);
    CHECK(around->base <= memory.base);
    CHECK(around->base + around->bytes >= memory.base + 10000);
  }
  int local = 0;
  CHECK_FALSE(device->shareable(&local));
  CHECK_FALSE(device->hidden_from_host(&local));
  const ExportedMemory ticket = device->export_memory(memory.base);
  CHECK(device->import_memory(ticket) == memory.base);  // of this very process
  device->close_import(memory.base);
  CHECK_THROWS_AS(device->export_memory(&local), Error);
  device->release(memory.base);
}

TEST_CASE("which memory a GPU's window may have", "[gpu]") {
  const auto device = gpu();
  if (!device) return;
  const Allocation memory = device->allocate(1000);
  std::vector<char> heap(1000);
  CHECK_NOTHROW(device->use_memory_of(memory.base + 10, 900));
  CHECK_NOTHROW(device->use_memory_of(nullptr, 0));
  CHECK_THROWS_AS(device->use_memory_of(heap.data(), heap.size()), Error);
  CHECK_NOTHROW(device->use_memory_of(memory.base, 1000));
  device->release(memory.base);
}

TEST_CASE("streams of a GPU are told from host streams", "[gpu]") {
  const auto device = gpu();
  if (!device) return;
  HostStream* stream = create_host_stream();
  CHECK_THROWS_AS(device->check_stream(stream), Error);
  destroy_host_stream(stream);
  CHECK(device->check_stream(nullptr) == 0);
}
