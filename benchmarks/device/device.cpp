// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device.h"

#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

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

std::unique_ptr<support::Platform> make_platform(const std::string& wanted) {
  const int local_rank = rank_on_node();
  std::unique_ptr<support::Platform> platform;
  // in the order in which libmpix tries them
  if (wanted == "cuda" || wanted == "auto") platform = support::make_cuda_platform(local_rank);
  if (platform == nullptr && (wanted == "hip" || wanted == "auto")) platform = support::make_hip_platform(local_rank);
  if (platform == nullptr && (wanted == "host" || wanted == "auto")) platform = support::make_host_platform();
  return platform;
}

}  // namespace

Device::Device(std::unique_ptr<support::Platform> platform, Kernels kernels)
    : platform_(std::move(platform)), stream_(kernels == Kernels::on_stream ? platform_->create_stream() : nullptr) {}

Device::~Device() {
  if (beside_ != nullptr) platform_->destroy_stream(beside_);
  if (stream_ != nullptr) platform_->destroy_stream(stream_);
}

std::string Device::describe() const {
  return stream_ != nullptr ? platform_->describe() : "called on the main thread";
}

void Device::copy(void* to, const void* from, std::size_t bytes) {
  if (stream_ != nullptr)
    platform_->copy(stream_, to, from, bytes);
  else if (bytes > 0)
    std::memcpy(to, from, bytes);
}

void Device::launch(const support::Launchable& kernel) {
  if (stream_ != nullptr)
    platform_->launch(current_, kernel);
  else
    kernel.run_on_host();
}

void Device::synchronize() {
  if (stream_ != nullptr) platform_->synchronize(stream_);
}

void Device::beside(const std::function<void()>& enqueue) {
  if (beside_ == nullptr) beside_ = platform_->create_stream();
  platform_->order(stream_, beside_);
  current_ = beside_;
  enqueue();
  current_ = stream_;
}

void Device::join() { platform_->order(beside_, stream_); }

std::unique_ptr<Device> make_inline_host_device() {
  return std::make_unique<Device>(support::make_host_platform(), Device::Kernels::on_this_thread);
}

std::unique_ptr<Device> make_device(const std::string& name) {
  const std::string setting = device_of_libmpix();
  if (name != "auto" && setting != "auto" && name != setting)
    throw std::runtime_error("device " + name + " is asked for, and MPIX_DEVICE=" + setting);
  const std::string wanted = name != "auto" ? name : setting;
  std::unique_ptr<support::Platform> platform = make_platform(wanted);
  if (platform == nullptr)
    throw std::runtime_error("device " + wanted + ": there is none here, or this program was built without it");
  return std::make_unique<Device>(std::move(platform), Device::Kernels::on_stream);
}

void tell_libmpix(const std::string& name) {
  if (name != "auto") setenv("MPIX_DEVICE", name.c_str(), 0);
}

}  // namespace bench

void support::platform_failure(const std::string& what) { throw std::runtime_error(what); }
