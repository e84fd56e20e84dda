// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/messages/requests.h"

#include <algorithm>

#include "mpix/messages/buffers.h"

namespace mpix {

const MessageRequests::Result& MessageRequests::test() {
  result_.receives.clear();
  result_.sends.clear();
  // After a failure it is not known which requests there are still.
  if (result_.failure != MPI_SUCCESS) return result_;
  indices_.resize(all_.size());
  statuses_.resize(all_.size());
  int count = 0;
  const int code = PMPI_Testsome(static_cast<int>(all_.size()), all_.data(), &count, indices_.data(), statuses_.data());
  const bool in_status = is_of_class(code, MPI_ERR_IN_STATUS);
  if (code != MPI_SUCCESS && !in_status) {
    result_.failure = code;
    return result_;
  }
  if (count == MPI_UNDEFINED) return result_;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto index = static_cast<std::size_t>(indices_[i]);
    const int error = in_status ? statuses_[i].MPI_ERROR : MPI_SUCCESS;
    if (index < receives_)
      result_.receives.push_back({index, statuses_[i], error});
    else
      result_.sends.push_back({index - receives_, statuses_[i], error});
  }
  // Those that ended have no request any more.
  if (!result_.sends.empty())
    all_.erase(std::remove(all_.begin() + static_cast<std::ptrdiff_t>(receives_), all_.end(), MPI_REQUEST_NULL),
               all_.end());
  return result_;
}

}  // namespace mpix
