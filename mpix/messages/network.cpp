// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/messages/network.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "mpix/errors.h"
#include "mpix/messages/buffers.h"

namespace mpix {
namespace {

struct MessageAddress {
  std::uint64_t world;
  std::int32_t rank;
};

std::shared_ptr<MessageWorld> usable(std::shared_ptr<MessageWorld> world) {
  if (!world)
    throw Error(Fault::unsupported,
                "messages of MPI can carry epochs only where libmpix stood in front of MPI in MPI_Init, "
                "with the ranks on several nodes and MPIX_NIC=auto or mpi");
  if (world->thread_level() < MPI_THREAD_MULTIPLE)
    throw Error(Fault::unsupported,
                "messages of MPI can carry epochs only with MPI_THREAD_MULTIPLE: ask for it on all ranks in "
                "MPI_Init_thread, or set MPIX_NIC=mpi on all ranks, which does (this MPI may not have it)");
  return world;
}

}  // namespace

MessageNetwork::MessageNetwork(std::shared_ptr<MessageWorld> world, const Settings& settings, bool reaches_devices)
    : world_(usable(std::move(world))), engine_(std::make_shared<MessageEngine>(world_)) {
  // Messages are bounded by memory alone; a budget may be asked for nevertheless.
  if (settings.triggered_operations > 0) capacity_ = {settings.triggered_operations, settings.triggered_operations};
  if (reaches_devices) least_device_write_ = most_bytes_in_packets + 1;
}

void MessageNetwork::begin() {
  engine_->receive();
  std::lock_guard<std::mutex> hold(mutex_);
  if (!agent_) agent_.emplace(engine_);
}

NetworkAddress MessageNetwork::address() const {
  const MessageAddress own{world_->id(), world_->rank()};
  NetworkAddress address;
  static_assert(sizeof own <= sizeof address.bytes, "it has to travel");
  address.length = sizeof own;
  std::memcpy(address.bytes, &own, sizeof own);
  return address;
}

Connection MessageNetwork::connect(const NetworkAddress& peer) {
  MessageAddress its{};
  if (peer.length == sizeof its) std::memcpy(&its, peer.bytes, sizeof its);
  if (its.world != world_->id())
    throw Error(Fault::unsupported, "messages of MPI carry epochs only between processes that were started together");
  return static_cast<Connection>(its.rank);
}

void MessageNetwork::close() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    agent_.reset();
  }
  engine_->close();
}

void end_messages(MessageWorld& world, MessageNetwork* network) {
  using Clock = std::chrono::steady_clock;
  // A post that nobody waited for may be on its way still, and MPI wants all messages received.
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(world.size()));
  if (network) sent = network->engine().stop_sending();
  std::uint64_t coming = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  bool counted =
      PMPI_Ireduce_scatter_block(sent.data(), &coming, 1, MPI_UINT64_T, MPI_SUM, world.comm(), &request) == MPI_SUCCESS;
  constexpr auto patience = std::chrono::seconds(10);
  auto until = Clock::time_point::max();
  for (int done = 0; counted;) {
    if (network) network->progress();
    if (!done) {
      counted = PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS;
      if (done) until = Clock::now() + patience;
      if (done && network && coming > 0) network->engine().receive();  // no epoch of this process did so
    }
    if (done && (!network || network->engine().has_drained(coming))) break;
    if (Clock::now() > until) {
      log(LogLevel::warn, "MPI_Finalize: some messages between nodes have not come, or not gone");
      break;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (network) network->close();
  world.free();
}

}  // namespace mpix
