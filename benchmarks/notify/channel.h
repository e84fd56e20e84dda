// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "support/abort.h"
#include "support/channel.h"

namespace notify {

class Channel {
 public:
  Channel(int lanes, int flags, std::initializer_list<std::pair<const char*, const char*>> keys) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    for (const auto& key : keys) CHECK_MPI(MPI_Info_set(info, key.first, key.second));
    CHECK_MPI(MPIX_Channel_create(lanes, flags, info, &channel_));
    CHECK_MPI(MPI_Info_free(&info));
    CHECK_MPI(MPIX_Channel_get_device(channel_, &device_));
  }
  ~Channel() { CHECK_MPI(MPIX_Channel_free(&channel_)); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  operator MPIX_Channel() const { return channel_; }
  const MPIX_Dev_channel& device() const { return device_; }

 private:
  MPIX_Channel channel_ = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device_;
};

/// Kinds of tasks, and their handlers.
constexpr unsigned event = 0, question = 1;

inline std::uint64_t handled = 0;  ///< by one thread at a time
inline int nothing(MPIX_Channel, const MPIX_Task*, void*) {
  ++handled;
  return MPI_SUCCESS;
}
inline int answer(MPIX_Channel channel, const MPIX_Task* task, void*) {
  ++handled;
  return MPIX_Channel_reply(channel, task, task->number);
}

}  // namespace notify
