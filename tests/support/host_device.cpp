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
  HostDevice() { MPI_OK(MPIX_Host_stream_create(&own_)); }
  ~HostDevice() override { MPIX_Host_stream_destroy(&own_); }

  const char* name() const override { return "host"; }
  bool is_host() const override { return true; }

  void* create_stream() override {
    MPIX_Host_stream stream = nullptr;
    MPI_OK(MPIX_Host_stream_create(&stream));
    return stream;
  }
  void destroy_stream(void* stream) override {
    MPIX_Host_stream handle = host(stream);
    MPIX_Host_stream_destroy(&handle);
  }
  void wait_for(void* stream) override { MPI_OK(MPIX_Host_stream_synchronize(host(stream))); }
  void* own_stream() override { return own_; }

  char* allocate(Kind kind, std::size_t bytes) override {
    void* base = nullptr;
    if (kind == Kind::mapped) {
      MPI_OK(MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), DeviceInfo(), &base));
    } else if (!(base = std::malloc(std::max<std::size_t>(bytes, 1)))) {
      device_failure("no memory");
    }
    return static_cast<char*>(base);
  }
  void release(Kind kind, char* base) override {
    if (kind == Kind::mapped) {
      MPI_Free_mem(base);
    } else {
      std::free(base);
    }
  }

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

  void write(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }

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

  MPIX_Host_stream own_ = nullptr;
  std::mutex mutex_;
  std::vector<Failure> failures_;
  std::atomic<std::uint64_t> run_{0};
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

void launch_on_host(void* stream, std::function<void()> work) { launch(stream, std::move(work)); }

}  // namespace test
