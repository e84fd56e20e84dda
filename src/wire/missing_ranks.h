// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>

#include "wire/farewell.h"
#include "wire/wait_note.h"

namespace mpix {

/// "completed exposure epoch 17": what a rank has not done. Where it is the first, as of a rank whose calls are
/// ordinary ones: "completed exposure epoch 1 (was MPI_Win_start called there without MPIX_MODE_STREAM?)".
std::string missing_text(Missing missing, std::uint64_t epoch, Farewell farewell = Farewell::none);

/// Where the report knows better.
std::string without_questions(std::string text);

/// "rank 1 has not completed exposure epoch 17 (it has called MPI_Win_free), rank 2 …"
class MissingRanks {
 public:
  void add(int rank, Missing missing, std::uint64_t epoch, Farewell farewell = Farewell::none);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace mpix
