// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "mpix/mpi_library.h"
#include "net/network.h"

// What both ends of a message agree on.
namespace mpix {

constexpr int packet_tag = 0, data_tag = 1;
/// What MPI libraries send at once, without asking the target whether there is room. MPICH over TCP asks from 8 KiB on:
/// an epoch of 16 KB takes 60 µs in packets of less, and 100 to 170 in one of more.
constexpr std::size_t packet_bytes = 8 * 1024 - 64;
/// Up to here a write goes in packets, and is copied on the way. About here that takes as long as asking.
constexpr std::size_t most_bytes_in_packets = 64 * 1024;

inline bool comes_apart(const NetworkWrite& write) { return write.bytes > most_bytes_in_packets; }

/// Large data, in pieces whose size is an int, as counts of MPI are. Ends early where `piece` returns false.
template <class Char, class Piece>
bool in_pieces(Char* data, std::size_t bytes, Piece piece) {
  constexpr std::size_t most = std::size_t{1} << 30;
  for (std::size_t at = 0; at < bytes; at += most)
    if (!piece(data + at, std::min(most, bytes - at))) return false;
  return true;
}

inline bool is_of_class(int code, int error_class) {
  int of_code = MPI_SUCCESS;
  return code != MPI_SUCCESS && PMPI_Error_class(code, &of_code) == MPI_SUCCESS && of_code == error_class;
}

inline std::string rank_text(int rank) { return "rank " + std::to_string(rank) + " of MPI_COMM_WORLD"; }

}  // namespace mpix
