// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "base/settings.h"
#include "mpix/messages/engine.h"
#include "mpix/messages/world.h"
#include "net/network.h"
#include "net/progress_agent.h"

namespace mpix {

/// The way to other nodes where there are no triggered operations: messages of MPI, and a thread that stands for the
/// NIC while nobody waits.
class MessageNetwork final : public Network {
 public:
  /// Throws Error where MPI does not let several threads call it, or where there is no world. `reaches_devices`: MPI
  /// may read and write memory of the device.
  MessageNetwork(std::shared_ptr<MessageWorld> world, const Settings& settings, bool reaches_devices);

  std::string name() const override { return "mpi"; }
  void begin() override;
  NetworkAddress address() const override;
  Connection connect(const NetworkAddress& peer) override;
  std::shared_ptr<const Registration> expose(void* base, std::size_t bytes) override {
    return engine_->expose(base, bytes);
  }
  std::shared_ptr<const Registration> register_source(const void*, std::size_t) override { return nullptr; }
  Capacity capacity() const override { return capacity_; }
  std::size_t least_device_write() const override { return least_device_write_; }
  std::unique_ptr<Transfer> queue(Connection peer, const NetworkWrite* writes, std::size_t count,
                                  const NetworkSignal* signal) override {
    return engine_->queue(static_cast<int>(peer), writes, count, signal);
  }
  void progress() override { engine_->progress_for_waiter(); }
  bool is_moving() const override { return engine_->is_busy(); }
  std::string failure() override { return engine_->failure(); }

  MessageEngine& engine() { return *engine_; }
  /// What is still there of windows makes no call of MPI from here on.
  void close();

 private:
  const std::shared_ptr<MessageWorld> world_;
  const std::shared_ptr<MessageEngine> engine_;
  Capacity capacity_;
  std::size_t least_device_write_ = SIZE_MAX;
  std::mutex mutex_;
  std::optional<ProgressAgent> agent_;  ///< guarded by mutex_
};

/// Collective over the world, before MPI_Finalize: receive what others have sent, and end. `network` is null where this
/// process has none.
void end_messages(MessageWorld& world, MessageNetwork* network);

}  // namespace mpix
