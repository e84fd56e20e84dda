// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "device/host/host_device.h"
#include "mpix_device/flags.h"
#include "mpix_device/notify.h"
#include "notify/channel.h"
#include "support/slowdown.h"

/// Channels of the host device without MPI: threads are the blocks.

/// What channel_calls.h makes of it, which needs MPI's header.
namespace kernel {
using mpix::dev::Post;
inline Post post(const MPIX_Dev_channel& c, unsigned lane, unsigned kind, const std::uint64_t* words, unsigned count,
                 std::uint64_t* ticket = nullptr) {
  return mpix::dev::post_task(c, lane, kind, words, count, true, ticket);
}
inline Post post_event(const MPIX_Dev_channel& c, unsigned lane, unsigned kind, const std::uint64_t* words,
                       unsigned count, std::uint64_t* ticket = nullptr) {
  return mpix::dev::post_task(c, lane, kind, words, count, false, ticket);
}
inline Post reply_wait(const MPIX_Dev_channel& c, std::uint64_t ticket, std::uint64_t* value) {
  return mpix::dev::wait_for_reply(c, ticket, value);
}
inline Post flag_set(const MPIX_Dev_channel& c, unsigned flag, std::uint64_t value) {
  return mpix::dev::set_flag(c, flag, value, true);
}
inline Post flag_wait(const MPIX_Dev_channel& c, unsigned flag, std::uint64_t value) {
  return mpix::dev::wait_for_flag(c, flag, value);
}
}  // namespace kernel

inline mpix::Settings channel_settings(double timeout = 60, bool fails = false) {
  mpix::Settings settings = mpix::Settings::from_environment();
  settings.timeout_seconds = timeout;
  settings.fail_on_timeout = fails;
  settings.channel_core = -1;
  return settings;
}

/// A channel whose handlers are functions of C++.
class TestChannel {
 public:
  using Handler = std::function<int(const MPIX_Task&)>;

  explicit TestChannel(mpix::ChannelOptions options, const mpix::Settings& settings = channel_settings(),
                       mpix::Device* device = nullptr)
      : own_(device ? nullptr : mpix::make_host_device(settings, 2)) {
    if (options.name.empty()) options.name = "channel";
    channel_ = std::make_unique<mpix::Channel>(
        options, nullptr, [](int failure) { return "code " + std::to_string(failure); }, device ? *device : *own_,
        settings);
  }
  ~TestChannel() {
    channel_ = nullptr;
    mpix::ChannelMemory::forget_all();
  }
  TestChannel(const TestChannel&) = delete;
  TestChannel& operator=(const TestChannel&) = delete;

  mpix::Channel* operator->() const { return channel_.get(); }
  const MPIX_Dev_channel& device() const { return channel_->param(); }
  void end() { channel_ = nullptr; }
  void handle(std::uint32_t kind, Handler handler) {
    handlers_.push_back(std::make_unique<Handler>(std::move(handler)));
    channel_->set_handler(
        kind, [](MPIX_Channel, const MPIX_Task* task, void* arg) { return (*static_cast<Handler*>(arg))(*task); },
        handlers_.back().get());
  }
  /// Blocks that are threads, all at once.
  void run(unsigned blocks, const std::function<void(unsigned block)>& body) const {
    std::vector<std::thread> threads;
    for (unsigned block = 0; block < blocks; ++block) threads.emplace_back(body, block);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::unique_ptr<mpix::Device> own_;
  std::vector<std::unique_ptr<Handler>> handlers_;
  std::unique_ptr<mpix::Channel> channel_;
};

inline mpix::ChannelOptions channel_options(std::uint32_t lanes, std::uint32_t depth, bool is_queue,
                                            mpix::TaskService service = mpix::TaskService::own) {
  mpix::ChannelOptions options;
  options.lanes = lanes;
  options.depth = depth;
  options.is_queue = is_queue;
  options.service = service;
  return options;
}

/// What the call throws; empty: nothing.
template <class Call>
std::string text_of_error(Call call) {
  try {
    call();
  } catch (const mpix::Error& error) {
    return error.what();
  }
  return "";
}

/// What is logged while it lives.
class LoggedLines {
 public:
  LoggedLines() : file_(std::tmpfile()), before_(dup(2)) {
    std::fflush(stderr);
    dup2(fileno(file_), 2);
  }
  ~LoggedLines() { stop(); }
  LoggedLines(const LoggedLines&) = delete;
  LoggedLines& operator=(const LoggedLines&) = delete;
  /// And ends it.
  std::string text() {
    stop();
    std::string all;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) all += static_cast<char>(c);
    return all;
  }

 private:
  void stop() {
    if (before_ < 0) return;
    std::fflush(stderr);
    dup2(before_, 2);
    close(before_);
    before_ = -1;
  }
  std::FILE* file_;
  int before_;
};

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
