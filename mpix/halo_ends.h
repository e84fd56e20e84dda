// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "mpi_library.h"
#include "mpix.h"
#include "notify/halo_plan.h"

namespace mpix {

/// On the thread of the service, whose halo breaks for it. `of`: what the call was about, or empty.
void require_of_mpi(int code, const char* call, const std::string& of = {});

void cancel_receive(MPI_Request& request) noexcept;
/// Waits a little. False: some are not over. MPIs do not cancel sends, and those of large messages to a rank that does
/// not receive them never end.
bool end_soon(const std::vector<MPI_Request*>& sends) noexcept;

/// Until all are over; the thread naps in between.
void finish_asleep(std::vector<MPI_Request>& requests);

/// All ranks go on, or none. A rank whose own part is well says what the first says whose part is not.
void agree(MPI_Comm comm, const std::optional<Error>& own);

/// The tags of MPI's messages, by cargo, in a communicator of the halo's own: a sender numbers its messages, and has
/// told the receiver.
struct HaloTags {
  std::vector<int> send, recv;
  std::vector<bool> by_memory;                   ///< both ends want that, and may share memory
  std::vector<bool> gathers_send, gathers_recv;  ///< where it goes by MPI, with others
};

/// Ranks for which all of it is the same may share memory.
struct HaloPlace {
  std::uint64_t node;  ///< 0: this rank wants to share with nobody
  std::uint64_t group;
  char device[8];
};

/// Both ends of each message know of it, have the same bytes, and cut them alike; else an error on all ranks. `gather`:
/// messages of so many bytes, which are not cut, may go with others, if the other end has them so, too.
HaloTags compare_ends(MPI_Comm comm, const std::vector<HaloContent>& contents, const MPIX_Halo_message* messages,
                      const std::vector<HaloCargo>& cargo, std::uint64_t chunk, std::uint64_t gather,
                      const HaloPlace& place);

}  // namespace mpix
