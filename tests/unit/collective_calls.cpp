// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// When the calls of a communicator have run: ranks as threads, and host streams.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "collective/collectives.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

/// Of host streams, whose calls can be counted as long as nobody says that they were captured.
class HostPoint final : public StreamPoint {
 public:
  void set(Stream stream) override {
    *passed_ = false;
    host_stream_launch(
        stream,
        [](void* p) {
          const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> passed(
              static_cast<std::shared_ptr<std::atomic<bool>>*>(p));
          **passed = true;
        },
        new std::shared_ptr<std::atomic<bool>>(passed_));
  }
  bool passed() noexcept override { return *passed_; }

 private:
  const std::shared_ptr<std::atomic<bool>> passed_ = std::make_shared<std::atomic<bool>>(true);
};

/// Says of streams that they are captured; what is enqueued there runs nevertheless, as what a graph has.
class Capturing final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::uint64_t check_stream(Stream stream) const override {
    const std::uint64_t capture = ForwardingDevice::check_stream(stream);
    return captures ? 1 : capture;
  }
  std::shared_ptr<StreamPoint> new_point() override { return std::make_shared<HostPoint>(); }
  std::atomic<bool> captures{false};
};

std::unique_ptr<Collectives> calls_of(Bootstrap& bootstrap, Device& device, const Settings& settings) {
  return std::make_unique<Collectives>(std::make_shared<const Team>(bootstrap, device, settings, nullptr), bootstrap,
                                       device, nullptr, settings, Collectives::Ways{}, "calls");
}

}  // namespace

TEST_CASE("calls are waited for, however many graphs have run", "[collective]") {
  const Settings settings = Settings::from_environment();
  auto host = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Capturing device(*host);
    const auto calls = calls_of(bootstrap, device, settings);
    ScopedStream stream;
    device.captures = true;
    for (int i = 0; i < 5; ++i) calls->enqueue({}, stream);
    device.captures = false;
    EXPECT(stream->synchronize());
    std::atomic<bool> waited{false};
    if (bootstrap.rank() == 0) {
      for (int i = 0; i < 2; ++i) calls->enqueue({}, stream);
      std::thread waits([&] {
        EXPECT(calls->wait_for_all());
        waited = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT(!waited);
      bootstrap.allgather(0);
      waits.join();
    } else {
      bootstrap.allgather(0);
      for (int i = 0; i < 2; ++i) calls->enqueue({}, stream);
      EXPECT(calls->wait_for_all());
    }
    bootstrap.allgather(0);
    EXPECT(stream->synchronize());
    calls->close(true);
    bootstrap.allgather(0);
  });
}

namespace {

/// As in another container, whose memory nobody here can map.
class Elsewhere final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::uint64_t sharing_domain() const override { return ForwardingDevice::sharing_domain() + 1; }
};

}  // namespace

TEST_CASE("ranks of a node that cannot map each other's memory have no collectives, and all are told", "[collective]") {
  const Settings settings = Settings::from_environment();
  auto host = make_host_device(settings, 3);
  Elsewhere elsewhere(*host);
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    Device& device = bootstrap.rank() == 1 ? static_cast<Device&>(elsewhere) : *host;
    std::string said;
    try {
      calls_of(bootstrap, device, settings);
    } catch (const Error& error) {
      EXPECT(error.fault() == Fault::unsupported);
      said = error.what();
    }
    EXPECT(said.find("the ranks cannot reach each other's memory") != std::string::npos);
  });
}
