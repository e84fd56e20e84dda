// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The halo exchange of GPUs on a node: libmpix beside the libraries that compete with it, in one run, with the
// same sizes and the same check of the data.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <stdexcept>

#include "data.h"
#include "goals.h"
#include "measure.h"
#include "options.h"
#include "report.h"
#include "support/abort.h"

extern char** environ;

namespace peers {
namespace {

using Peers = std::vector<std::unique_ptr<Peer>>;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Container images have it: a version, perhaps of another NCCL. No setting.
bool is_packaging(const char* variable) { return std::strncmp(variable, "NCCL_VERSION=", 13) == 0; }

/// Print the setting first: what the figures depend on.
void print_setting(const Options& options, const Machine& machine, const Peers& peers, const char* margin) {
  int driver = 0, runtime = 0, device = 0, mps = 0;
  CHECK_CUDA(cudaDriverGetVersion(&driver));
  CHECK_CUDA(cudaRuntimeGetVersion(&runtime));
  CHECK_CUDA(cudaGetDevice(&device));
  (void)cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, device);
  cudaDeviceProp properties;
  CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
  std::printf("%speers: %d ranks, %d x %s%s, CUDA driver %s, runtime %s\n", margin, machine.ranks, machine.gpus,
              properties.name, mps ? " under MPS" : "", version_text(driver).c_str(), version_text(runtime).c_str());
  for (const auto& peer : peers) std::printf("%s  %s: %s\n", margin, peer->name().c_str(), peer->about().c_str());
  for (char** variable = environ; *variable; ++variable)
    for (const char* prefix : {"MPIX_", "NCCL_", "NVSHMEM_", "CUDA_DEVICE_MAX_CONNECTIONS"})
      if (std::strncmp(*variable, prefix, std::strlen(prefix)) == 0 && !is_packaging(*variable))
        std::printf("%s  %s\n", margin, *variable);
  std::printf(
      "%s  %d measurements of %d epochs (fewer where they take longer than %g ms), all rows in turn; graphs of "
      "%d epochs, WHILE bodies of 1 (loop) and %d (unrolled)\n%s  us an epoch of the slowest rank: median, least, "
      "most; every word of 12 epochs a row "
      "checked\n",
      margin, options.repeats, options.epochs, options.limit_ms, options.epochs_in_graph, options.epochs_in_body,
      margin);
  std::fflush(stdout);
}

/// A row that has to be staged here is another row, as goals are about the other; it is chosen alike.
bool is_chosen(const std::string& key, const std::vector<std::string>& keys) {
  return keys.empty() || std::any_of(keys.begin(), keys.end(),
                                     [&](const std::string& name) { return key == name || key == name + "-staged"; });
}

Section measure_section(const Exchange& exchange, const Peers& peers, const std::vector<std::string>& keys,
                        const Options& options, const Machine& machine) {
  Data data(exchange, machine.rank, machine.stream);
  std::vector<std::unique_ptr<Exchanger>> exchangers;
  std::vector<Row> rows;
  for (const auto& peer : peers) {
    if (!peer->is_usable()) continue;
    exchangers.push_back(peer->connect(exchange));
    for (const Row& row : exchangers.back()->rows())
      if (is_chosen(row.key, keys)) rows.push_back(row);
  }
  return {exchange.name, exchange.about, exchange.face, measure_all(rows, data, options, machine.stream)};
}

Peers find_peers(const Machine& machine, const std::vector<std::string>& keys) {
  const auto wanted = [&](std::initializer_list<const char*> some) {
    if (keys.empty()) return true;
    for (const char* key : some)
      if (contains(keys, key)) return true;
    return false;
  };
  Peers peers;
  if (wanted({"nccl", "nccl-user"})) peers.push_back(find_nccl(machine));
  if (wanted({"nccl-rma"})) peers.push_back(find_nccl_rma(machine));
  if (wanted({"nvshmem", "nvshmem-all"})) peers.push_back(find_nvshmem(machine));
  peers.push_back(find_mpix(machine));
  if (wanted({"mpi-p2p", "mpi-rma"})) peers.push_back(find_mpi(machine));
  return peers;
}

/// True: all data was right.
bool run(const Options& options, const Machine& machine) {
  const bool prints = machine.rank == 0;
  const Peers peers = find_peers(machine, options.rows);
  if (prints) print_setting(options, machine, peers, options.csv ? "# " : "");
  if (prints && options.csv) print_csv_header();
  std::vector<Section> sections;
  const auto measure = [&](const std::string& name, std::size_t face, const Peers& by,
                           const std::vector<std::string>& keys, const std::vector<std::string>& modes) {
    Exchange exchange;
    try {
      exchange = make_exchange(name, face, machine.rank, machine.ranks);
    } catch (const std::runtime_error& error) {  // on all ranks alike
      if (prints) std::printf("%snot measured: %s\n", options.csv ? "# " : "", error.what());
      return;
    }
    Options in_modes = options;
    in_modes.modes = modes;
    sections.push_back(measure_section(exchange, by, keys, in_modes, machine));
    if (prints) print_section(sections.back(), options.csv);
  };
  for (const std::string& exchange : options.exchanges)
    for (std::size_t face : options.faces) measure(exchange, face, peers, options.rows, options.modes);
  if (!options.large.empty()) {
    const std::vector<std::string> link_modes = {"stream", "graph"};  // how epochs are launched matters little here
    Peers both;
    both.push_back(find_copy(machine));
    both.push_back(find_mpix(machine));
    for (std::size_t bytes : options.large) measure("pair", bytes, both, {"copy", "mpix", "mpix-fused"}, link_modes);
  }
  if (prints && !sections.empty()) {
    print_tables(sections, options.csv);
    print_goals(sections, machine, options.csv);
  }
  return all_right(sections);
}

constexpr int skipped = 77;  ///< what make check takes for it

int count_gpus() {
  int gpus = 0;
  return cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0;
}

Machine look_around(const Options& options, int gpus) {
  Machine machine{};
  machine.gpus = gpus;
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &machine.rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &machine.ranks));
  if (options.gpus > 0) machine.gpus = std::min(machine.gpus, options.gpus);
  machine.gpus = std::min(machine.gpus, machine.ranks);
  machine.gpus_are_shared = machine.ranks > machine.gpus;
  machine.mpi_memory = options.mpi_memory;
  CHECK_CUDA(cudaSetDevice(machine.rank % machine.gpus));
  CHECK_CUDA(cudaStreamCreateWithFlags(&machine.stream, cudaStreamNonBlocking));
  return machine;
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) {
  bool help = false;
  MPI_Init(&argc, &argv);
  int rank = 0, status = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    const peers::Options options = peers::read_options(argc, argv, &help);
    const int gpus = peers::count_gpus();
    if (help) {
      if (rank == 0) peers::print_help();
    } else if (gpus == 0) {
      if (rank == 0) std::printf("peers: skipped: there is no GPU\n");
      status = peers::skipped;
    } else {
      const peers::Machine machine = peers::look_around(options, gpus);
      status = peers::run(options, machine) ? 0 : 1;
      if (rank == 0 && status != 0) std::fprintf(stderr, "peers: data was wrong\n");
      CHECK_CUDA(cudaStreamDestroy(machine.stream));
    }
  } catch (const std::exception& error) {
    if (rank == 0) std::fprintf(stderr, "peers: %s\n", error.what());
    status = 2;
  }
  MPI_Finalize();
  return status;
}
