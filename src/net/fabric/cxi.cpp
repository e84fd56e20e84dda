// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/cxi.h"

#include <glob.h>
#include <sys/types.h>

#include <ctime>

#include <rdma/fi_endpoint.h>

#include "net/fabric/triggered_network.h"

namespace mpix {
namespace {

// The provider's own header is installed with few libfabrics. These are the parts of it that we call: names of
// tables, and tables whose first entries never change (later versions append).
constexpr const char* counter_operations = "cxi_counter_ops";
constexpr const char* const domain_operations[] = {"dom_ops_v6", "dom_ops_v5", "dom_ops_v4"};

struct CounterOperations {
  int (*set_writeback_buffer)(fid* counter, void* buffer, std::size_t bytes);
  int (*get_mmio_address)(fid* counter, void** address, std::size_t* bytes);
};

struct DomainOperations {
  int (*read_counter)(fid* domain, unsigned int counter, std::uint64_t* value, timespec* time);
  int (*topology)(fid* domain, unsigned int* group, unsigned int* group_switch, unsigned int* port);
  int (*enable_hybrid_descriptors)(fid* domain, bool enable);
  std::size_t (*unexpected_messages)(fid_ep*, fi_cq_tagged_entry*, std::size_t, fi_addr_t*, std::size_t*);
  int (*get_deferred_depth)(fid* domain, std::size_t* depth);
};

template <class Table>
Table* open_table(fid* object, const char* name) {
  void* table = nullptr;
  return fi_open_ops(object, name, 0, &table, nullptr) == 0 ? static_cast<Table*>(table) : nullptr;
}

}  // namespace

std::optional<std::size_t> triggered_depth(fid_domain* domain) {
  for (const char* version : domain_operations) {
    auto* table = open_table<DomainOperations>(&domain->fid, version);
    std::size_t depth = 0;
    if (table && table->get_deferred_depth && table->get_deferred_depth(&domain->fid, &depth) == 0) return depth;
  }
  return std::nullopt;
}

volatile std::uint64_t* doorbell_word(fid_cntr* counter) {
  auto* table = open_table<CounterOperations>(&counter->fid, counter_operations);
  void* address = nullptr;
  std::size_t bytes = 0;
  if (!table || table->get_mmio_address(&counter->fid, &address, &bytes) != 0) return nullptr;
  return static_cast<volatile std::uint64_t*>(address);
}

bool triggered_nic_present() {
  for (const char* devices : {"/sys/class/cxi/*", "/dev/cxi*"}) {
    glob_t found{};
    const bool some = glob(devices, GLOB_NOSORT, nullptr, &found) == 0;
    globfree(&found);
    if (some) return true;
  }
  return false;
}

}  // namespace mpix
