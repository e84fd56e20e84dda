// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpi.h>

#include <cstdlib>
#include <stdexcept>

#include "device.h"

namespace bench {
namespace {

std::string device_of_libmpix() {
  const char* const setting = std::getenv("MPIX_DEVICE");
  return setting != nullptr && *setting != '\0' ? setting : "auto";
}

int rank_on_node() {
  MPI_Comm node = MPI_COMM_NULL;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS)
    throw std::runtime_error("MPI_Comm_split_type failed");
  int rank = 0;
  MPI_Comm_rank(node, &rank);
  MPI_Comm_free(&node);
  return rank;
}

}  // namespace

std::unique_ptr<Device> make_device(const std::string& name) {
  const int local_rank = rank_on_node();
  const std::string setting = device_of_libmpix();
  if (name != "auto" && setting != "auto" && name != setting)
    throw std::runtime_error("device " + name + " is asked for, and MPIX_DEVICE=" + setting);
  const std::string wanted = name != "auto" ? name : setting;
  std::unique_ptr<Device> device;
  // in the order in which libmpix tries them
  if (wanted == "cuda" || wanted == "auto") device = make_cuda_device(local_rank);
  if (device == nullptr && (wanted == "hip" || wanted == "auto")) device = make_hip_device(local_rank);
  if (device == nullptr && (wanted == "host" || wanted == "auto")) device = make_host_stream_device();
  if (device == nullptr)
    throw std::runtime_error("device " + wanted + ": there is none here, or this program was built without it");
  return device;
}

void tell_libmpix(const std::string& name) {
  if (name != "auto") setenv("MPIX_DEVICE", name.c_str(), 0);
}

}  // namespace bench
