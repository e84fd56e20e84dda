// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpix.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "support/device.h"
#include "support/epochs.h"
#include "support/world.h"

namespace test {
namespace {

MPIX_Host_stream host(void* stream) { return static_cast<MPIX_Host_stream>(stream); }

void run(void* argument) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(argument));
  (*work)();
}

void launch(void* stream, std::function<void()> work) {
  auto function = std::make_unique<std::function<void()>>(std::move(work));
  MPI_OK(MPIX_Host_stream_launch(host(stream), run, function.get()));
  function.release();
}

class HostGate final : public Gate {
 public:
  explicit HostGate(void* stream) {
    launch(stream, [open = open_] {
      while (!*open) usleep(100);
    });
  }
  void open() override { *open_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

/// Host streams, and callbacks on them.
class HostDevice final : public Device {
 public:
  HostDevice() : Device(support::make_host_platform()) {}

  void fill(void* stream, void* to, std::size_t bytes, Pattern pattern, std::size_t position) override {
    launch(stream, [=] { pattern.write(to, bytes, position); });
  }
  void set(void* stream, void* to, std::size_t bytes, char value) override {
    launch(stream, [=] { std::memset(to, value, bytes); });
  }
  void count(void* stream, std::uint64_t* number) override {
    launch(stream, [=] { ++*number; });
  }
  void delay(void* stream, int microseconds) override {
    launch(stream, [=] { usleep(static_cast<useconds_t>(microseconds)); });
  }
  std::unique_ptr<Gate> hold(void* stream) override { return std::make_unique<HostGate>(stream); }

 private:
  bool enqueue_check(void* stream, const void* at, std::size_t bytes, Pattern pattern, std::size_t position,
                     std::uint32_t check) override {
    launch(stream, [=] {
      const std::size_t i = pattern.agrees(at, bytes, position);
      if (i < bytes)
        note({check, i, pattern.number(), static_cast<const unsigned char*>(at)[i], pattern.now().byte(position + i)});
      ++run_;
    });
    return true;
  }
  bool enqueue_check_same(void* stream, const void* one, const void* other, std::size_t bytes,
                          std::uint32_t check) override {
    launch(stream, [=] {
      const auto* a = static_cast<const unsigned char*>(one);
      const auto* b = static_cast<const unsigned char*>(other);
      if (bytes > 0 && std::memcmp(a, b, bytes) != 0) {
        const auto i = static_cast<std::size_t>(std::mismatch(a, a + bytes, b).first - a);
        note({check, i, 0, a[i], b[i]});
      }
      ++run_;
    });
    return true;
  }

  void note(const Failure& failure) {
    std::lock_guard<std::mutex> hold(mutex_);
    failures_.push_back(failure);
  }
  std::vector<Failure> take_failures() override {
    std::lock_guard<std::mutex> hold(mutex_);
    return std::exchange(failures_, {});
  }
  std::uint64_t checks_run() override { return run_; }

  std::mutex mutex_;
  std::vector<Failure> failures_;
  std::atomic<std::uint64_t> run_{0};
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

void launch_on_host(void* stream, std::function<void()> work) { launch(stream, std::move(work)); }

}  // namespace test
