// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "support/device.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "config.h"
#include "support/world.h"

namespace test {
namespace {

std::unique_ptr<Device> the_device;

std::string device_name() {
  const char* name = std::getenv("MPIX_DEVICE");
  return name ? name : "host";
}

}  // namespace

Device& device() { return *the_device; }

void prepare_device() {
  // What the tests run on is what the library must run on.
  setenv("MPIX_DEVICE", "host", 0);
  // Streams that share one of the hardware's queues wait for each other; the preset is 8.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // A kernel that is loaded when it is first launched may wait for all kernels that run, and those for a peer.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

void start_device(int rank) {
  const std::string name = device_name();
  if (name == "host") the_device = make_host_device();
  if (name == "cuda") the_device = make_cuda_device(rank);
  if (name == "hip") the_device = make_hip_device(rank);
  if (!the_device)
    throw std::runtime_error("MPIX_DEVICE=" + name + ": there is none, or the tests were built without it");
}

void stop_device() { the_device.reset(); }

#ifndef HAVE_CUDA
std::unique_ptr<Device> make_cuda_device(int) { return nullptr; }
#endif
#ifndef HAVE_HIP
std::unique_ptr<Device> make_hip_device(int) { return nullptr; }
#endif

char* Device::allocate(Kind kind, std::size_t bytes) {
  if (is_host()) return static_cast<char*>(platform_->allocate(kind, bytes));
  std::size_t size = 4096;
  while (size < bytes) size *= 2;
  std::lock_guard<std::mutex> hold(mutex_);
  const auto idle = idle_.find({kind, size});
  if (idle == idle_.end()) {
    char* const base = static_cast<char*>(platform_->allocate(kind, size));
    sizes_[base] = size;
    return base;
  }
  char* const base = idle->second;
  idle_.erase(idle);
  return base;
}

void Device::release(Kind kind, char* base) {
  if (is_host()) return platform_->release(kind, base);
  std::lock_guard<std::mutex> hold(mutex_);
  idle_.emplace(std::make_pair(kind, sizes_.at(base)), base);
}

void Device::read(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (is_host()) {
    std::memcpy(to, from, bytes);
    return;
  }
  platform_->copy(own_, to, from, bytes);
  platform_->synchronize(own_);
}

std::uint32_t Device::remember(const Place& place) {
  std::lock_guard<std::mutex> hold(mutex_);
  places_.push_back(place);
  return static_cast<std::uint32_t>(places_.size() - 1);
}

void Device::check(void* stream, const void* at, std::size_t bytes, Pattern pattern, const Place& place,
                   std::size_t position) {
  const bool runs = enqueue_check(stream, at, bytes, pattern, position, remember(place));
  ++(runs ? enqueued_ : captured_);
}

void Device::check_same(void* stream, const void* one, const void* other, std::size_t bytes, const Place& place) {
  const bool runs = enqueue_check_same(stream, one, other, bytes, remember(place));
  ++(runs ? enqueued_ : captured_);
}

std::vector<Place> Device::take_reports() {
  std::lock_guard<std::mutex> hold(mutex_);
  std::vector<Place> reports;
  for (const Failure& failure : take_failures()) {
    if (failure.check >= places_.size()) {
      reports.push_back({__FILE__, __LINE__, "more checks have failed than are noted, or one of an earlier test case"});
      continue;
    }
    const Place& place = places_[failure.check];
    std::ostringstream text;
    text << place.what << ": byte " << failure.position << " is " << int(failure.found) << " and not "
         << int(failure.expected);
    if (failure.number > 0) text << " in step " << failure.number;
    reports.push_back({place.file, place.line, text.str()});
  }
  return reports;
}

void Device::collect() {
  for (const Place& report : take_reports()) fail(report.file, report.line, report.what);
}

void Device::end_case() {
  collect();
  const std::uint64_t run = checks_run() - run_before_;
  const std::uint64_t enqueued = enqueued_.exchange(0);
  run_before_ += run;
  checked(static_cast<long>(run));
  // A test case that has failed may have left before its streams were done.
  if (run != enqueued && !failed())
    fail(__FILE__, __LINE__,
         std::to_string(enqueued) + " checks were enqueued, and " + std::to_string(run) + " have run");
  std::lock_guard<std::mutex> hold(mutex_);
  places_.clear();
}

}  // namespace test

void support::platform_failure(const std::string& what) {
  test::fail(__FILE__, __LINE__, what);  // at once: unwinding may get stuck
  throw std::runtime_error(what);
}
