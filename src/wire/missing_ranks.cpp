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

/// What the rank may have called in place of its first stream call.
const char* question(Missing missing) {
  switch (missing) {
    case Missing::post:
    case Missing::departure:
      return " (was MPI_Win_post called there in place of MPIX_Win_post_stream?)";
    case Missing::completion:
      return " (was MPI_Win_start called there without MPIX_MODE_STREAM?)";
  }
  return "";
}

const char* step(Missing missing) {
  switch (missing) {
    case Missing::post:
    case Missing::departure:
      return "posted access epoch ";
    case Missing::completion:
      return "completed exposure epoch ";
  }
  return "";
}

}  // namespace

std::string missing_text(Missing missing, std::uint64_t epoch, Farewell farewell) {
  const bool asks = epoch == 1 && farewell == Farewell::none;
  return step(missing) + std::to_string(epoch) + (asks ? question(missing) : remark(farewell)) +
         (missing == Missing::departure ? ", or what is put there has not left" : "");
}

std::string without_questions(std::string text) {
  for (const Missing missing : {Missing::post, Missing::completion}) {
    const std::string asked = question(missing);
    for (std::size_t at; (at = text.find(asked)) != std::string::npos;) text.erase(at, asked.size());
  }
  return text;
}

void MissingRanks::add(int rank, Missing missing, std::uint64_t epoch, Farewell farewell) {
  text_ += (text_.empty() ? "rank " : ", rank ") + std::to_string(rank) + " has not " +
           missing_text(missing, epoch, farewell);
}

}  // namespace mpix
