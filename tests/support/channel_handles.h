// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "support/channel.h"
#include "support/frame.h"

/// What tests of MPIX_Channel share.

using Keys = std::initializer_list<std::pair<const char*, std::string>>;

class Channel {
 public:
  Channel(int lanes, int flags, Keys keys = {}) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    for (const auto& key : keys) CHECK_MPI(MPI_Info_set(info, key.first, key.second.c_str()));
    CHECK_MPI(MPIX_Channel_create(lanes, flags, info, &channel_));
    CHECK_MPI(MPI_Info_free(&info));
    CHECK_MPI(MPIX_Channel_get_device(channel_, &device_));
  }
  ~Channel() {
    if (channel_) CHECK_MPI(MPIX_Channel_free(&channel_));
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  operator MPIX_Channel() const { return channel_; }
  MPIX_Channel* handle() { return &channel_; }
  const MPIX_Dev_channel& device() const { return device_; }
  void handle(unsigned kind, MPIX_Task_function* function, void* arg) const {
    CHECK_MPI(MPIX_Channel_set_handler(channel_, kind, function, arg));
  }
  MPIX_Channel_stats stats() const {
    MPIX_Channel_stats stats;
    CHECK_MPI(MPIX_Channel_get_stats(channel_, &stats, sizeof stats));
    return stats;
  }

 private:
  MPIX_Channel channel_ = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device_;
};
