// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Channels that wait for too long, and what they cost when nothing happens.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "channel_kit.h"
#include "device/host/grid.h"
#include "device/host/stream.h"
#include "forwarding_device.h"
#include "notify/channel.h"
#include "notify/reports.h"
#include "support/awake.h"
#include "support/catch.h"

using namespace mpix;
using dev::Post;
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

/// How often threads of the process have gone to sleep, and its CPU time.
struct Used {
  double sleeps, seconds;
};
Used used() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {static_cast<double>(usage.ru_nvcsw), seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

/// Like a GPU: its kernels ring no bell.
class SilentDevice final : public ForwardingDevice {
 public:
  explicit SilentDevice(Device& device) : ForwardingDevice(device) {}
  const char* name() const noexcept override { return "silent"; }
};

/// What fails in the end, and how long it took.
struct Wait {
  const char* text;
  std::function<void(TestChannel&)> body;
};

void post_and_wait(TestChannel& channel) {
  std::uint64_t ticket = 0;
  (void)kernel::post(channel.device(), 0, 0, nullptr, 0, &ticket);
  (void)kernel::reply_wait(channel.device(), ticket, nullptr);
}
void post_too_many(TestChannel& channel) {
  for (int i = 0; i < 3; ++i) (void)kernel::post(channel.device(), 1, 0, nullptr, 0);
}
/// Three blocks: the first ends at once, and the others wait for different numbers.
void wait_as_blocks(TestChannel& channel) {
  HostStream* const stream = create_host_stream();
  const auto body = [](const MPIX_Dev_team* team, void* of) {
    if (team->block > 0) (void)kernel::flag_wait(*static_cast<const MPIX_Dev_channel*>(of), 0, 9 - team->block);
  };
  MPIX_Dev_channel device = channel.device();
  launch_grid(stream, 3, body, &device);
  CHECK(destroy_host_stream(stream));
}

}  // namespace

TEST_CASE("texts of waits", "[channel]") {
  const auto note = [](dev::ChannelWait what, std::uint64_t number, std::uint32_t block = dev::BlockNote::no_block) {
    return dev::channel_note(what, dev::BlockNote{number, block}.packed());
  };
  CHECK(waiting_text(note(dev::ChannelWait::reply, 17), 3, 8) ==
        "lane 3 waits for reply 17: its task was posted, and nobody has replied");
  CHECK(waiting_text(note(dev::ChannelWait::room, 9), 0, 8) ==
        "lane 0 waits for room for task 9 of its ring: nobody takes the tasks before");
  CHECK(waiting_text(note(dev::ChannelWait::flag, 5), 10, 8) == "flag 2 is awaited to become 5, by a kernel");
  CHECK(waiting_text(note(dev::ChannelWait::reply, 17, 5), 3, 8) ==
        "lane 3 (block 5) waits for reply 17: its task was posted, and nobody has replied");
  CHECK(waiting_text(note(dev::ChannelWait::room, 9, 0), 0, 8) ==
        "lane 0 (block 0) waits for room for task 9 of its ring: nobody takes the tasks before");
  const std::uint64_t large = (std::uint64_t{1} << 40) - 1;
  const std::uint32_t far = (1u << 21) - 1;
  CHECK(waiting_text(note(dev::ChannelWait::flag, large, far), 10, 8) ==
        "flag 2 is awaited to become 1099511627775, by block 2097151 of a kernel");
  // One of them is too large: the number alone.
  CHECK(waiting_text(note(dev::ChannelWait::flag, large + 1, 7), 10, 8) ==
        "flag 2 is awaited to become 1099511627776, by a kernel");
  CHECK(waiting_text(note(dev::ChannelWait::flag, 5, far + 1), 10, 8) == "flag 2 is awaited to become 5, by a kernel");
  // The least is what is awaited first.
  CHECK(note(dev::ChannelWait::flag, 5, 7) < note(dev::ChannelWait::flag, 6, 0));
  CHECK(note(dev::ChannelWait::flag, 5, 6) < note(dev::ChannelWait::flag, 5, 7));
}

TEST_CASE("waits that last are reported, and ended where that is wanted", "[channel]") {
  const double spin = GENERATE(-1.0, 0.0);
  const Wait waits[] = {
      {"lane 0 waits for reply 1: its task was posted, and nobody has replied", post_and_wait},
      {"lane 1 waits for room for task 3 of its ring: nobody takes the tasks before", post_too_many},
      {"flag 0 is awaited to become 3, by a kernel",
       [](TestChannel& channel) { (void)kernel::flag_wait(channel.device(), 0, 3); }},
      {"flag 0 is awaited to become 7, by block 2 of a kernel", wait_as_blocks},
      {"the program waits for flag 1 to become 4, and kernels have set it to 2",
       [](TestChannel& channel) {
         (void)kernel::flag_set(channel.device(), 1, 2);
         (void)text_of_error([&] { channel->wait_for_flag(1, 4); });
       }},
  };
  for (const Wait& wait : waits) {
    double seconds = 0;
    for (int attempt = 0; attempt < 5; ++attempt) {  // on a busy machine the one that looks may be late itself
      Settings settings = channel_settings(1, true);
      settings.spin_seconds = spin;
      ChannelOptions options = channel_options(2, 2, false, TaskService::caller);
      options.flags = 2;
      options.name = "channel 'late'";
      TestChannel channel(options, settings);
      LoggedLines log;
      const auto begin = Clock::now();
      const test::AwakeClock clock;
      wait.body(channel);
      seconds = clock.seconds();
      const std::string logged = log.text();
      CAPTURE(wait.text, logged);
      CHECK(seconds_since(begin) >= 0.95);
      CHECK(logged.find(std::string("channel 'late': ") + wait.text + ", for ") != std::string::npos);
      CHECK(channel->cause() == std::string(wait.text) + "; MPIX_ON_TIMEOUT=error");
      if (seconds <= 1.1) break;
    }
    CAPTURE(wait.text);
    CHECK(seconds <= 1.1 + 0.4 * (test::slowdown() - 1));
  }
}

TEST_CASE("a handler that does not return is reported", "[channel]") {
  TestChannel channel(channel_options(2, 2, false), channel_settings(0.5, true));
  std::atomic<bool> let_go{false};
  channel.handle(0, [&](const MPIX_Task&) {
    while (!let_go) std::this_thread::sleep_for(milliseconds(1));
    return 0;
  });
  LoggedLines log;
  REQUIRE(kernel::post(channel.device(), 1, 0, nullptr, 0) == Post::ok);
  const auto begin = Clock::now();
  while (!channel->is_broken() && seconds_since(begin) < 30) std::this_thread::sleep_for(milliseconds(1));
  let_go = true;
  const std::string logged = log.text();
  CHECK(logged.find("channel: the handler of task 1 of lane 1 has not returned, for 0 s") != std::string::npos);
  CHECK(channel->cause() == "the handler of task 1 of lane 1 has not returned; MPIX_ON_TIMEOUT=error");
}

TEST_CASE("without MPIX_ON_TIMEOUT=error waits go on after their report", "[channel]") {
  ChannelOptions options = channel_options(1, 2, false, TaskService::caller);
  options.flags = 1;
  TestChannel channel(options, channel_settings(0.2));
  LoggedLines log;
  std::atomic<Post> result{Post::full};
  const auto begin = Clock::now();
  std::thread kernel([&] { result = kernel::flag_wait(channel.device(), 0, 1); });
  std::this_thread::sleep_for(milliseconds(900));
  channel->set_flag(0, 1);
  kernel.join();
  const double lasted = seconds_since(begin);
  const std::string logged = log.text();
  CHECK(result == Post::ok);
  std::size_t times = 0;
  for (std::size_t at = 0; (at = logged.find("is awaited", at)) != std::string::npos; ++at) ++times;
  CHECK(times >= 2);
  CHECK(static_cast<double>(times) <= lasted / 0.2 + 1);
}

TEST_CASE("a channel at rest costs next to nothing", "[channel]") {
  if (test::slowdown() > 1) return;  // it would measure that
  const TaskService service = GENERATE(TaskService::own, TaskService::library);
  const bool is_silent = GENERATE(false, true), is_armed = GENERATE(false, true);
  if (is_silent && is_armed) return;  // it looks all the time
  const Settings settings = channel_settings();
  const auto host = make_host_device(settings, 2);
  SilentDevice silent(*host);
  TestChannel channel(channel_options(8, 64, false, service), settings, is_silent ? &silent : host.get());
  if (is_armed) channel->arm();
  std::this_thread::sleep_for(milliseconds(1500));  // naps grow
  const Used before = used();
  std::this_thread::sleep_for(milliseconds(3000));
  const Used after = used();
  CAPTURE(static_cast<int>(service), is_silent, is_armed);
  // Naps are counted: what one costs is the machine's affair, and more where it has much to do.
  CHECK((after.sleeps - before.sleeps) / 3 <= (is_silent ? 1000 : 100));
  CHECK((after.seconds - before.seconds) / 3 <= 0.2);
  if (is_armed) channel->disarm();
}
