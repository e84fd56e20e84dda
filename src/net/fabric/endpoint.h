// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "net/fabric/handle.h"
#include "net/network.h"

namespace mpix {

class Endpoint;

/// Memory registered with an endpoint, which it keeps open.
class FabricRegistration final : public Registration {
 public:
  FabricRegistration(std::shared_ptr<Endpoint> endpoint, FabricHandle<fid_mr> region, RemoteMemory remote)
      : endpoint_(std::move(endpoint)), region_(std::move(region)), remote_(remote) {}
  RemoteMemory remote() const override { return remote_; }
  void* descriptor() const { return fi_mr_desc(region_.get()); }

 private:
  std::shared_ptr<Endpoint> endpoint_;
  FabricHandle<fid_mr> region_;
  RemoteMemory remote_;
};

/// This process on the fabric: fabric, domain, address vector, completion queue and endpoint, open and enabled.
class Endpoint : public std::enable_shared_from_this<Endpoint> {
 public:
  explicit Endpoint(FabricInfo info);

  std::string provider() const { return info_->fabric_attr->prov_name; }
  const fi_info& info() const { return *info_; }
  fid_domain* domain() const { return domain_.get(); }
  fid_ep* get() const { return endpoint_.get(); }

  NetworkAddress address() const;
  fi_addr_t insert(const NetworkAddress& peer);
  std::shared_ptr<FabricRegistration> register_memory(void* base, std::size_t bytes, std::uint64_t access);
  /// The most bytes of a write that a later operation of this endpoint to the same peer cannot overtake, where it
  /// lands.
  std::size_t ordered_bytes() const;
  /// Whether closing a counter takes the operations that it has not triggered yet out of the queue. (Of sockets known;
  /// where it is not known what is queued stays queued.)
  bool closing_cancels() const { return provider() == "sockets"; }
  /// Whether operations that wait for one value of a counter start in the order in which they were queued. libfabric
  /// does not promise it; it is known of sockets.
  bool starts_in_order() const { return provider() == "sockets"; }
  /// See Network. libfabric has no name for it.
  bool keeps_words_whole() const;
  bool sources_need_registration() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  /// So many tags for messages, of which no other receive has had one: the first.
  std::uint64_t take_tags(std::size_t count) { return next_tag_.fetch_add(count); }
  /// Null when the NIC has no more counters.
  FabricHandle<fid_cntr> open_counter();

  /// Add 0 to a word of the peer, at once; no trigger. 0, or libfabric's error.
  long touch(fi_addr_t peer, const RemoteMemory& memory, std::uint64_t offset, void* context);

  /// Look at a completion queue, which has nothing but errors and the end of touches: told(context of the operation,
  /// text), with an empty text for success. A provider in software works then: at what goes out (and sockets takes up
  /// one operation each time), or at what comes in.
  using Told = std::function<void(void*, const std::string&)>;
  void look_outward(const Told& told) { read_errors(*sent_, told); }
  void look_inward(const Told& told) { read_errors(*received_, told); }

 private:
  FabricHandle<fid_cq> open_queue();
  FabricHandle<fid_mr> open_region(void* base, std::size_t bytes, std::uint64_t access);
  static void read_errors(fid_cq& queue, const Told& told);

  FabricInfo info_;
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_av> addresses_;
  FabricHandle<fid_cq> sent_, received_;
  FabricHandle<fid_ep> endpoint_;
  std::atomic<std::uint64_t> next_tag_{1};
  std::mutex mutex_;  ///< guards what follows
  std::map<std::string, fi_addr_t> known_;
  std::uint64_t next_key_ = 1;
};

}  // namespace mpix
