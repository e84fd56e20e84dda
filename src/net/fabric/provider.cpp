// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/provider.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "net/fabric/check.h"

namespace mpix {
namespace {

constexpr const char* providers_by_preference[] = {"cxi", "sockets"};

FabricInfo ask_for(const char* provider, long* error) {
  FabricInfo hints(fabric_library().allocinfo());
  if (!hints) throw Error(Fault::memory, "libfabric: fi_allocinfo has no memory");
  hints->caps = FI_RMA | FI_ATOMIC | FI_TRIGGER | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  // The progress thread of sockets polls, without a pause, for as long as any operation is under way, and takes the
  // core from who would answer: with more ranks than half the cores a signal then takes milliseconds. A waiting
  // thread makes the network progress instead (ProgressAgent does where nobody waits). Others choose: cxi refuses to be
  // asked.
  if (std::strcmp(provider, "sockets") == 0) {
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->caps |= FI_TAGGED | FI_SEND | FI_RECV;  // FabricInlet
  }
  // Offered; what the provider keeps of it is obeyed (Endpoint::register_memory).
  hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_LOCAL;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->fabric_attr->prov_name = strdup(provider);
  fi_info* found = nullptr;
  *error = fabric_library().getinfo(FI_VERSION(1, 15), nullptr, nullptr, 0, hints.get(), &found);
  return FabricInfo(*error == 0 ? found : nullptr);
}

std::string advice(const std::string& wanted) {
  const char* filter = std::getenv("FI_PROVIDER");
  if (!filter)
    return "fi_info -p " + (wanted == "auto" ? "sockets" : wanted) + " shows whether this libfabric has the provider";
  return std::string("FI_PROVIDER=") + filter +
         " is in the environment, and hides the other providers from all users of libfabric; unset it, or add the "
         "provider to it";
}

}  // namespace

FabricInfo find_provider(const std::string& wanted) {
  long error = 0;
  for (const char* provider : providers_by_preference) {
    if (wanted != "auto" && wanted != provider) continue;
    if (FabricInfo info = ask_for(provider, &error)) return info;
  }
  throw Error(Fault::unsupported, "libfabric has no " +
                                      (wanted == "auto" ? "provider with triggered operations (cxi or sockets)"
                                                        : "provider " + wanted + " with triggered operations") +
                                      " (" + fabric_library().strerror(static_cast<int>(-error)) +
                                      "): " + advice(wanted));
}

std::size_t most_operations(const fi_info& info) {
  // More than some 2,500 that one doorbell fires stall for ever: a queue that is full is not tried again.
  if (std::strcmp(info.fabric_attr->prov_name, "sockets") == 0) return 1000;
  return SIZE_MAX;
}

}  // namespace mpix
