// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "geometry.h"

namespace peers {

/// What is known before any library is asked.
struct Machine {
  int rank, ranks;
  int gpus;                ///< that this process sees
  bool gpus_are_shared;    ///< by several ranks
  cudaStream_t stream;     ///< all that is measured runs on it
  std::string mpi_memory;  ///< auto, device or staged: what the MPI rows hand to MPI
};

/// One way to make an exchange, and a row of the report.
struct Row {
  std::string key;   ///< as options and goals call it
  std::string name;  ///< as the report does
  std::function<void()> epoch;
  std::function<void()> captured_epoch;  ///< empty: it cannot be captured. An even number of them is in a graph
  bool loops = false;                    ///< captured, it can be the body of a WHILE node
  char* send = nullptr;
  std::function<const char*()> received;  ///< where the data of the latest epoch has arrived
  int warm_up = 20;                       ///< epochs in a stream before it is measured there
  std::function<void()> meet = {};        ///< not empty: epochs wait for nobody; before a check ranks have to meet
};

/// The exchange by one library: memory, windows, registrations.
class Exchanger {
 public:
  virtual ~Exchanger() = default;
  virtual std::vector<Row> rows() = 0;
};

/// A library that can make exchanges, or the reason why it cannot here.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string name() const = 0;
  virtual std::string about() const = 0;  ///< version; or why it is not measured
  virtual bool is_usable() const { return true; }
  /// Collective.
  virtual std::unique_ptr<Exchanger> connect(const Exchange& exchange) = 0;
};

/// Stands for a library that was not found when this was built, or that does not work on this machine.
class AbsentPeer final : public Peer {
 public:
  AbsentPeer(std::string name, std::string reason) : name_(std::move(name)), reason_(std::move(reason)) {}
  std::string name() const override { return name_; }
  std::string about() const override { return "not measured: " + reason_; }
  bool is_usable() const override { return false; }
  std::unique_ptr<Exchanger> connect(const Exchange&) override { return nullptr; }

 private:
  std::string name_, reason_;
};

// Each in a file of its own, which another one stands in for where the library is not found. Collective.
std::unique_ptr<Peer> find_mpix(const Machine& machine);
std::unique_ptr<Peer> find_nccl(const Machine& machine);
std::unique_ptr<Peer> find_nccl_rma(const Machine& machine);
std::unique_ptr<Peer> find_nvshmem(const Machine& machine);
std::unique_ptr<Peer> find_mpi(const Machine& machine);
/// Copies by the copy engine into a neighbour's memory, without any synchronization: what a link can carry.
std::unique_ptr<Peer> find_copy(const Machine& machine);

}  // namespace peers
