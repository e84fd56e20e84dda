// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "wire/missing_ranks.h"

namespace mpix {

void MissingRanks::add(int rank, Missing missing, std::uint64_t epoch) {
  const char* what = "";
  switch (missing) {
    case Missing::post:
      what = " has not posted access epoch ";
      break;
    case Missing::completion:
      what = " has not completed exposure epoch ";
      break;
  }
  text_ += (text_.empty() ? "rank " : ", rank ") + std::to_string(rank) + what + std::to_string(epoch);
}

}  // namespace mpix
