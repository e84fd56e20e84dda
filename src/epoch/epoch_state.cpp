// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/epoch_state.h"

#include "base/error.h"

namespace mpix {
namespace {

void require(bool condition, const char* otherwise) {
  if (!condition) throw Error(Fault::synchronization, otherwise);
}

constexpr const char* stream_access_open = "a stream access epoch is open; MPIX_Win_complete_stream closes it";
constexpr const char* stream_exposure_open = "a stream exposure epoch is open; MPIX_Win_wait_stream closes it";

}  // namespace

void EpochState::check_start_stream() const {
  require(access_ != Side::stream, stream_access_open);
  require(access_ != Side::ordinary, "an ordinary access epoch is open; MPI_Win_complete closes it");
  require(locks_ == 0, "a passive-target epoch is open; MPI_Win_unlock or MPI_Win_unlock_all closes it");
}

void EpochState::check_complete_stream() const {
  require(access_ != Side::ordinary,
          "the open access epoch is an ordinary one, without MPIX_MODE_STREAM; MPI_Win_complete closes it");
  require(access_ == Side::stream, "no stream access epoch is open; MPI_Win_start with MPIX_MODE_STREAM opens one");
}

void EpochState::check_post_stream() const {
  require(exposure_ != Side::stream, stream_exposure_open);
  require(exposure_ != Side::ordinary, "an ordinary exposure epoch is open; MPI_Win_wait closes it");
}

void EpochState::check_wait_stream() const {
  require(exposure_ != Side::ordinary, "the open exposure epoch is an ordinary one; MPI_Win_wait closes it");
  require(exposure_ == Side::stream, "no stream exposure epoch is open; MPIX_Win_post_stream opens one");
}

void EpochState::check_start() const { require(access_ != Side::stream, stream_access_open); }
void EpochState::check_complete() const { require(access_ != Side::stream, stream_access_open); }
void EpochState::check_post() const { require(exposure_ != Side::stream, stream_exposure_open); }
void EpochState::check_wait() const { require(exposure_ != Side::stream, stream_exposure_open); }
void EpochState::check_lock() const { require(access_ != Side::stream, stream_access_open); }

void EpochState::check_passive_operation() const {
  require(access_ != Side::stream,
          "this call belongs to passive-target epochs, and a stream access epoch is open; "
          "MPIX_Win_complete_stream closes it");
}

void EpochState::check_fence() const {
  require(access_ != Side::stream, stream_access_open);
  require(exposure_ != Side::stream, stream_exposure_open);
}

void EpochState::check_free() const { check_fence(); }

}  // namespace mpix
