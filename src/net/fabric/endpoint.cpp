// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/endpoint.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>

#include <cstring>
#include <utility>

#include "net/fabric/check.h"

namespace mpix {

Endpoint::Endpoint(FabricInfo info) : info_(std::move(info)) {
  fid_fabric* fabric = nullptr;
  MPIX_CHECK_FABRIC(fabric_library().fabric(info_->fabric_attr, &fabric, nullptr));
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  MPIX_CHECK_FABRIC(fi_domain(fabric, info_.get(), &domain, nullptr));
  domain_.reset(domain);

  fi_av_attr av_attributes{};
  av_attributes.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  MPIX_CHECK_FABRIC(fi_av_open(domain, &av_attributes, &addresses, nullptr));
  addresses_.reset(addresses);

  sent_ = open_queue();
  received_ = open_queue();

  fid_ep* endpoint = nullptr;
  MPIX_CHECK_FABRIC(fi_endpoint(domain, info_.get(), &endpoint, nullptr));
  endpoint_.reset(endpoint);
  MPIX_CHECK_FABRIC(fi_ep_bind(endpoint, &addresses->fid, 0));
  // Selective: what succeeds is counted, and comes not to the queue.
  MPIX_CHECK_FABRIC(fi_ep_bind(endpoint, &sent_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
  MPIX_CHECK_FABRIC(fi_ep_bind(endpoint, &received_->fid, FI_RECV | FI_SELECTIVE_COMPLETION));
  MPIX_CHECK_FABRIC(fi_enable(endpoint));
}

FabricHandle<fid_cq> Endpoint::open_queue() {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_CONTEXT;
  attributes.size = 4096;
  attributes.wait_obj = FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  MPIX_CHECK_FABRIC(fi_cq_open(domain_.get(), &attributes, &queue, nullptr));
  return FabricHandle<fid_cq>(queue);
}

NetworkAddress Endpoint::address() const {
  NetworkAddress address;
  std::size_t length = sizeof address.bytes;
  MPIX_CHECK_FABRIC(fi_getname(&endpoint_->fid, address.bytes, &length));
  address.length = static_cast<std::uint32_t>(length);
  return address;
}

fi_addr_t Endpoint::insert(const NetworkAddress& peer) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::string name(reinterpret_cast<const char*>(peer.bytes), peer.length);
  const auto found = known_.find(name);
  if (found != known_.end()) return found->second;
  fi_addr_t address = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(addresses_.get(), name.data(), 1, &address, 0, nullptr);
  if (inserted != 1) fail_fabric("fi_av_insert", __FILE__, __LINE__, inserted < 0 ? inserted : -FI_EADDRNOTAVAIL);
  known_.emplace(name, address);
  return address;
}

std::size_t Endpoint::ordered_bytes() const {
  // Of writes, and of atomic operations after writes: the general flag has both.
  const bool ordered = (info_->tx_attr->msg_order & FI_ORDER_WAW) && (info_->rx_attr->msg_order & FI_ORDER_WAW);
  return ordered && starts_in_order() ? info_->ep_attr->max_order_waw_size : 0;
}

bool Endpoint::keeps_words_whole() const {
#if defined(__x86_64__) || defined(__aarch64__)
  // A stream of bytes, which is copied into place by who reads the queue for what is received, and by nobody else, as
  // progress is manual. While nobody does, a message is there up to some byte, and not beyond. Within a copy there is
  // no such order: the copying may write overlapping pieces, and the last first.
  return provider() == "sockets" && info_->domain_attr->data_progress == FI_PROGRESS_MANUAL;
#else
  return false;
#endif
}

std::shared_ptr<FabricRegistration> Endpoint::register_memory(void* base, std::size_t bytes, std::uint64_t access) {
  const int mode = info_->domain_attr->mr_mode;
  FabricHandle<fid_mr> handle = open_region(base, bytes, access);
  fid_mr* const region = handle.get();
  if (mode & FI_MR_ENDPOINT) {
    MPIX_CHECK_FABRIC(fi_mr_bind(region, &endpoint_->fid, 0));
    MPIX_CHECK_FABRIC(fi_mr_enable(region));
  }
  const std::uint64_t start = mode & FI_MR_VIRT_ADDR ? reinterpret_cast<std::uintptr_t>(base) : 0;
  return std::make_shared<FabricRegistration>(shared_from_this(), std::move(handle),
                                              RemoteMemory{fi_mr_key(region), start});
}

/// With a key that is not in use: the next one, as what is late for memory that is gone must not find other memory.
/// Where the provider has no larger ones they begin again.
FabricHandle<fid_mr> Endpoint::open_region(void* base, std::size_t bytes, std::uint64_t access) {
  constexpr std::uint64_t most_tries = 1 << 16;
  const bool choose = !(info_->domain_attr->mr_mode & FI_MR_PROV_KEY);
  std::lock_guard<std::mutex> hold(mutex_);
  fid_mr* region = nullptr;
  const auto ask = [&] {
    return fi_mr_reg(domain_.get(), base, bytes, access, 0, choose ? next_key_++ : 0, 0, &region, nullptr);
  };
  int result = ask();
  for (std::uint64_t tries = 1; choose && tries < most_tries && (result == -FI_ENOKEY || result == -FI_EKEYREJECTED);
       ++tries) {
    if (result == -FI_EKEYREJECTED) next_key_ = 1;
    result = ask();
  }
  MPIX_CHECK_FABRIC(result);
  return FabricHandle<fid_mr>(region);
}

FabricHandle<fid_cntr> Endpoint::open_counter() {
  fi_cntr_attr attributes{};
  attributes.events = FI_CNTR_EVENTS_COMP;
  attributes.wait_obj = FI_WAIT_NONE;  // they are polled: fi_cntr_wait means other things in other versions
  fid_cntr* counter = nullptr;
  if (fi_cntr_open(domain_.get(), &attributes, &counter, nullptr) != 0) return nullptr;
  return FabricHandle<fid_cntr>(counter);
}

long Endpoint::touch(fi_addr_t peer, const RemoteMemory& memory, std::uint64_t offset, void* context) {
  static std::uint64_t nothing = 0;
  fi_ioc operand{&nothing, 1};
  fi_rma_ioc word{memory.base + offset, 1, memory.key};
  fi_msg_atomic message{};
  message.msg_iov = &operand;
  message.iov_count = 1;
  message.addr = peer;
  message.rma_iov = &word;
  message.rma_iov_count = 1;
  message.datatype = FI_UINT64;
  message.op = FI_SUM;
  message.context = context;
  return fi_atomicmsg(endpoint_.get(), &message, FI_INJECT | FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

void Endpoint::read_errors(fid_cq& queue, const Told& told) {
  for (;;) {
    fi_cq_entry entry;
    const ssize_t got = fi_cq_read(&queue, &entry, 1);
    if (got > 0) {
      told(entry.op_context, "");
      continue;
    }
    if (got != -FI_EAVAIL) return;
    fi_cq_err_entry error{};
    if (fi_cq_readerr(&queue, &error, 0) < 1) return;
    told(error.op_context, fabric_library().strerror(error.err));
  }
}

}  // namespace mpix
