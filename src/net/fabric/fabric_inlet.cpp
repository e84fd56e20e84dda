// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/fabric_inlet.h"

#include <utility>

#include <rdma/fi_tagged.h>

#include "net/fabric/check.h"

namespace mpix {

FabricInlet::FabricInlet(std::shared_ptr<Endpoint> endpoint, char* base, std::size_t places, std::size_t bytes)
    : endpoint_(std::move(endpoint)),
      base_(base),
      bytes_(bytes),
      first_tag_(endpoint_->take_tags(places)),
      opened_(places, 0) {}

bool FabricInlet::open(std::size_t place) {
  const iovec data{base_ + place * bytes_, bytes_};
  fi_msg_tagged message{};
  message.msg_iov = &data;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  message.tag = first_tag_ + place;
  message.context = reinterpret_cast<void*>(first_tag_ + place);
  const ssize_t result = fi_trecvmsg(endpoint_->get(), &message, 0);
  if (result == -FI_EAGAIN || result == -FI_ENOMEM) return false;
  MPIX_CHECK_FABRIC(result);
  opened_[place] = 1;
  return true;
}

bool FabricInlet::close() {
  bool all = true;
  for (std::size_t place = 0; place < opened_.size(); ++place) {
    if (!opened_[place]) continue;
    // What is not found there has been received, or is being received just now: nobody tells which.
    if (fi_cancel(&endpoint_->get()->fid, reinterpret_cast<void*>(first_tag_ + place)) != 0) all = false;
    opened_[place] = 0;
  }
  return all;
}

}  // namespace mpix
