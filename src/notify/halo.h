// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/service.h"
#include "base/settings.h"
#include "device/device.h"
#include "notify/channel.h"
#include "wire/halo.h"

namespace mpix {

/// Who carries the messages of a halo. One thread at a time; calls throw Error when it cannot go on.
class HaloTransport {
 public:
  virtual ~HaloTransport() = default;
  virtual void start_send(std::uint32_t message) = 0;
  virtual void start_receive(std::uint32_t message) = 0;
  /// Appends the messages whose send, or receive, is over since the last look.
  virtual void look(std::vector<std::uint32_t>* sent, std::vector<std::uint32_t>* received) = 0;
  /// Nothing is under way any more.
  virtual void cancel() noexcept = 0;
};

/// What a message is made of; at its end in this process.
struct HaloContent {
  std::vector<HaloBox> send, recv;  ///< without `at`
  std::string name;                 ///< for reports: "message 3 (to rank 2, from rank 1)"
  bool is_null = false;             ///< MPI_PROC_NULL: nothing goes, or comes
};

/// The buffers of a message.
struct HaloBuffers {
  char *send, *recv;
  std::uint64_t send_bytes, recv_bytes;
};

/// The halo engine: one launch an exchange (wire/halo.h), and a service that sends what is packed and receives what is
/// to be unpacked, while the launch runs.
///
/// | of message m, by the service | when |
/// |------------------------------|------|
/// | send s is started            | packed is s, and send s - 1 is over; then, when it is over, `sent` becomes s |
/// | receive s is started         | unpacked is s - 1; the first one at once. When it is over, `received` becomes s |
class Halo final : public Poller {
 public:
  struct Options {
    bool is_stacked = true;
    std::string name;
    int local_ranks = 1;
  };
  Halo(const Options& options, const std::vector<HaloContent>& messages, Device& device, const Settings& settings);
  ~Halo() override;

  const std::vector<HaloBuffers>& buffers() const { return buffers_; }
  /// Before the first exchange.
  void serve_by(std::unique_ptr<HaloTransport> transport);
  void enqueue(Stream stream);
  /// Asleep, until all that was enqueued here, but for graphs, has run. False: it is broken.
  bool wait_for_all();
  /// Nobody serves it any more.
  void end_service();
  void break_for(const std::string& why) { channel_.break_for(why); }
  std::string cause() const { return channel_.cause(); }
  bool is_broken() const { return channel_.is_broken(); }

  struct Counts {
    std::uint64_t exchanges = 0, sent = 0, received = 0, send_bytes = 0, recv_bytes = 0, blocks = 0;
  };
  Counts counts();

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override { channel_.break_for(why); }

 private:
  struct Progress {
    std::uint64_t sending = 0, sent = 0;        ///< exchanges: the last send that was started, that is over
    std::uint64_t receiving = 0, received = 0;  ///< likewise
  };
  static ChannelOptions channel_options(const Options& options, const std::vector<HaloContent>& messages);
  void make_buffers(const std::vector<HaloContent>& messages, Device& device);
  bool serve();

  Device& device_;
  Channel channel_;
  std::vector<HaloBuffers> buffers_;
  std::vector<bool> moves_;  ///< by message: anything
  struct Memory;
  std::shared_ptr<Memory> memory_;
  HaloRun run_{};
  std::shared_ptr<WaitingRoom> room_;
  std::unique_ptr<HaloTransport> transport_;

  std::mutex mutex_;  ///< guards what follows, and the transport
  std::vector<Progress> progress_;
  std::vector<std::uint32_t> over_sends_, over_receives_;
  Counts counts_;
  BackOff back_off_;
  std::atomic<std::uint64_t> enqueued_{0}, run_so_far_{0};
  std::atomic<bool> in_graphs_{false};
  bool is_served_ = false, is_moving_ = false;
};

}  // namespace mpix
