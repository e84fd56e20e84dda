// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "error_codes.h"

#include "mpi_library.h"

namespace mpix {

ErrorCodes& ErrorCodes::instance() {
  static ErrorCodes& codes = *new ErrorCodes;
  return codes;
}

bool ErrorCodes::carries(int code, int error_class, const std::string& text) {
  int found = 0;
  int length = 0;
  char found_text[MPI_MAX_ERROR_STRING + 1] = "";
  return PMPI_Error_class(code, &found) == MPI_SUCCESS && found == error_class &&
         PMPI_Error_string(code, found_text, &length) == MPI_SUCCESS && text == found_text;
}

/// MPI lets a code be added to a standard class; Open MPI does so. MPICH (4.0 at least) accepts it,
/// then answers with unrelated texts. There the codes belong to a class of ours, so that MPI itself
/// knows their texts (its fatal error handler prints them), and MPI_Error_class below gives them
/// their standard class.
int ErrorCodes::add(int error_class, const std::string& text) {
  int code = 0;
  if (standard_classes_work_) {
    if (PMPI_Add_error_code(error_class, &code) != MPI_SUCCESS) return error_class;
    if (PMPI_Add_error_string(code, text.c_str()) == MPI_SUCCESS && carries(code, error_class, text)) return code;
    standard_classes_work_ = false;
  }
  int own = own_class_;
  if (own < 0) {
    if (PMPI_Add_error_class(&own) != MPI_SUCCESS) return error_class;
    PMPI_Add_error_string(own, "libmpix: stream-triggered communication");
    own_class_ = own;
  }
  if (PMPI_Add_error_code(own, &code) != MPI_SUCCESS) return error_class;
  PMPI_Add_error_string(code, text.c_str());
  return code;
}

int ErrorCodes::code_for(int error_class, const std::string& full_text) {
  std::string text = full_text.substr(0, MPI_MAX_ERROR_STRING - 1);
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    auto found = codes_.find({error_class, text});
    if (found == codes_.end() && codes_.size() >= most_texts) {
      text = "libmpix: an error with a text of its own; it was printed";
      found = codes_.find({error_class, text});
    }
    if (found != codes_.end()) return found->second;
  }
  const int code = add(error_class, text);
  const std::lock_guard<std::mutex> hold(mutex_);
  // Another thread may have been first.
  const auto [place, is_new] = codes_.try_emplace({error_class, text}, code);
  if (is_new && code != error_class) classes_[code] = error_class;
  return place->second;
}

bool ErrorCodes::class_of(int code, int* error_class) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = classes_.find(code);
  if (found == classes_.end()) return false;
  *error_class = found->second;
  return true;
}

bool ErrorCodes::exhausted() {
  std::lock_guard<std::mutex> hold(mutex_);
  return codes_.size() >= most_texts;
}

}  // namespace mpix

MPIX_INTERPOSED int MPI_Error_class(int errorcode, int* errorclass) {
  if (errorclass && mpix::ErrorCodes::instance().class_of(errorcode, errorclass)) return MPI_SUCCESS;
  return PMPI_Error_class(errorcode, errorclass);
}
