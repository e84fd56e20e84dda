// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "wire/missing_ranks.h"

namespace mpix {

namespace {

const char* remark(Farewell farewell) {
  switch (farewell) {
    case Farewell::none:
      break;
    case Farewell::win_free:
      return " (it has called MPI_Win_free)";
    case Farewell::finalize:
      return " (it has called MPI_Finalize)";
  }
  return "";
}

}  // namespace

void MissingRanks::add(int rank, Missing missing, std::uint64_t epoch, Farewell farewell) {
  const char* what = "";
  switch (missing) {
    case Missing::post:
      what = " has not posted access epoch ";
      break;
    case Missing::completion:
      what = " has not completed exposure epoch ";
      break;
  }
  text_ +=
      (text_.empty() ? "rank " : ", rank ") + std::to_string(rank) + what + std::to_string(epoch) + remark(farewell);
}

}  // namespace mpix
