// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "runtime.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/job_environment.h"
#include "base/log.h"
#include "device/unmapping.h"
#include "device_memory.h"
#include "epoch/live_windows.h"
#include "errors.h"
#include "net/fabric/triggered_network.h"
#include "notify/channel_memory.h"
#include "progress.h"

namespace mpix {
namespace {

std::atomic<Runtime*> the_runtime{nullptr};
std::mutex birth;
std::atomic<bool> stays{false};
std::atomic<int> sessions{0}, sessions_level{MPI_THREAD_MULTIPLE};

int world_rank() {
  int initialized = 0;
  int rank = -1;
  if (PMPI_Initialized(&initialized) == MPI_SUCCESS && initialized) PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Which ranks are on one machine: its number is that of its least rank.
std::vector<int> machines_of(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  check(PMPI_Comm_rank(comm, &rank));
  check(PMPI_Comm_size(comm, &size));
  MPI_Comm node = MPI_COMM_NULL;
  check(PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node));
  int leader = rank;
  const int told = PMPI_Bcast(&leader, 1, MPI_INT, 0, node);
  PMPI_Comm_free(&node);
  check(told);
  std::vector<int> nodes(static_cast<std::size_t>(size));
  check(PMPI_Allgather(&leader, 1, MPI_INT, nodes.data(), 1, MPI_INT, comm));
  return nodes;
}

/// Which back end its device has. A process without one says why when it is asked for something.
constexpr int kinds_of_devices = 3;
int kind_of_device(const Runtime& runtime) {
  if (!runtime.device || runtime.device->is_host()) return 0;
  return runtime.device->name() == std::string("cuda") ? 1 : 2;
}

/// Ranks of a machine that work with different devices cannot map each other's memory. They are to each other as ranks
/// of other nodes. Returns the numbers of nodes by those of machines.
std::vector<int> apart_by_device(std::vector<int> machines, const std::vector<int>& devices) {
  for (std::size_t rank = 0; rank < machines.size(); ++rank)
    machines[rank] = machines[rank] * kinds_of_devices + devices[rank];
  return machines;
}

/// Collective.
std::vector<int> devices_of(MPI_Comm comm, const Runtime& runtime, std::size_t ranks) {
  const int own = kind_of_device(runtime);
  std::vector<int> all(ranks);
  check(PMPI_Allgather(&own, 1, MPI_INT, all.data(), 1, MPI_INT, comm));
  return all;
}

/// The ranks in MPI_COMM_WORLD; empty when some are elsewhere (spawned processes), on every rank
/// alike.
std::vector<int> world_ranks_of(MPI_Comm comm) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  int size = 0;
  check(PMPI_Comm_group(MPI_COMM_WORLD, &world));
  check(PMPI_Comm_group(comm, &group));
  check(PMPI_Group_size(group, &size));
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::vector<int> in_world(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const int translated = PMPI_Group_translate_ranks(group, size, ranks.data(), world, in_world.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  check(translated);
  if (std::count(in_world.begin(), in_world.end(), MPI_UNDEFINED) > 0) in_world.clear();
  return in_world;
}

}  // namespace

Runtime* find_runtime() { return the_runtime.load(std::memory_order_acquire); }

bool is_child_of_fork() {
  const Runtime* const runtime = find_runtime();
  return runtime && runtime->process != getpid();
}

Runtime& ensure_runtime(int local_ranks) {
  if (Runtime* runtime = find_runtime()) return *runtime;
  std::lock_guard<std::mutex> hold(birth);
  if (Runtime* runtime = find_runtime()) return *runtime;
  auto runtime = std::make_unique<Runtime>();
  try {
    runtime->local_ranks = local_ranks;
    runtime->settings = Settings::from_environment();
    set_log(runtime->settings.log, world_rank());
    const std::string& table = runtime->settings.collective_table;
    if (!table.empty()) runtime->ways = std::make_shared<const WayTable>(WayTable::from_file(table));
    runtime->device = make_device(runtime->settings, local_ranks);
    runtime->device->set_unmapper([](Device& device) { return unmap_for_import(device); });
  } catch (const Error& error) {
    runtime->failure = error.what();
  }
  the_runtime.store(runtime.get(), std::memory_order_release);
  return *runtime.release();
}

void note_session(int threads) {
  for (int level = sessions_level; level > threads && !sessions_level.compare_exchange_weak(level, threads);) {
  }
  ++sessions;
}
/// One that Fortran has begun was never noted.
void forget_session() {
  for (int some = sessions; some > 0 && !sessions.compare_exchange_weak(some, some - 1);) {
  }
}

bool mpi_works() { return mpi_is_up() || sessions > 0; }

int threads_of_mpi() {
  if (!mpi_is_up()) return sessions_level;
  int level = MPI_THREAD_SINGLE;
  check(PMPI_Query_thread(&level));
  return level;
}

void require_mpi() {
  if (!mpi_works()) throw Error(Fault::other, "MPI is not initialized, or has been finalized");
}

void require_threads(const std::string& why) {
  if (threads_of_mpi() != MPI_THREAD_MULTIPLE)
    throw Error(Fault::unsupported, why +
                                        ", and MPI gives one thread at a time only (MPI_Init_thread with "
                                        "MPI_THREAD_MULTIPLE, or MPIX_CHANNEL_THREAD=on)");
}

Runtime* runtime_if_mpi_works() { return sessions > 0 ? &ensure_runtime(launcher_local_ranks()) : find_runtime(); }

namespace {

/// Who is on whose node must be the same to all. Who has wrong settings says nothing about it. Empty: they agree.
std::string disagreement_on_nodes(const Runtime& runtime) {
  const int size = runtime.settings.node_size;
  constexpr int none = INT_MIN;
  int most_and_least[] = {none, none};
  if (runtime.device) most_and_least[0] = size, most_and_least[1] = -size;
  check(PMPI_Allreduce(MPI_IN_PLACE, most_and_least, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
  if (!runtime.device || most_and_least[0] == none) return "";  // what is wrong with its settings has been said
  const int most = most_and_least[0], least = -most_and_least[1];
  if (most == least) return "";
  return "MPIX_NODE_SIZE differs between the ranks: " + std::to_string(size) + " here, from " + std::to_string(least) +
         " to " + std::to_string(most) + " on all (0: not set)";
}

}  // namespace

Runtime& start_runtime_over_world() {
  // First what is collective: a process with a wrong setting must not leave the others alone.
  std::vector<int> machines = machines_of(MPI_COMM_WORLD);
  const int rank = world_rank();
  const auto local_ranks = std::count(machines.begin(), machines.end(), machines[static_cast<std::size_t>(rank)]);
  Runtime& runtime = ensure_runtime(static_cast<int>(local_ranks));
  runtime.world_devices = devices_of(MPI_COMM_WORLD, runtime, machines.size());
  runtime.world_nodes = apart_by_device(std::move(machines), runtime.world_devices);
  runtime.message_world = MessageWorld::make_if_needed(runtime.world_nodes);
  if (std::string differs = disagreement_on_nodes(runtime); !differs.empty()) {
    runtime.failure = std::move(differs);
    runtime.device = nullptr;
  }
  if (rank != 0) return runtime;
  for (const std::string& complaint : unknown_settings()) log(LogLevel::warn, complaint);
  if (!runtime.device) {
    log(LogLevel::error, runtime.failure);
  } else {
    log(LogLevel::info, std::string("libmpix ") + PACKAGE_VERSION + ": device " + runtime.device->name() + ", " +
                            std::to_string(runtime.world_nodes.size()) + " ranks, " + std::to_string(local_ranks) +
                            " on this node" +
                            (runtime.settings.node_size > 0
                                 ? ", nodes of " + std::to_string(runtime.settings.node_size) + " by MPIX_NODE_SIZE"
                                 : std::string()));
    const std::string advice = runtime.device->advice();
    if (!advice.empty()) log(LogLevel::warn, advice);
  }
  return runtime;
}

void release_mpi() {
  Runtime* const runtime = find_runtime();
  if (!runtime || !runtime->message_world) return;
  try {
    Progress progress(Progress::Call::of_mpi);
    drain_windows_between_nodes(progress.meanwhile());
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
  std::lock_guard<std::mutex> hold(birth);
  end_messages(*runtime->message_world, runtime->messages);
}

void keep_runtime() noexcept { stays = true; }

void end_runtime() {
  std::lock_guard<std::mutex> hold(birth);
  if (stays) return;
  ChannelMemory::forget_all();
  delete the_runtime.exchange(nullptr);
}

Device& usable_device(Runtime& runtime) {
  if (!runtime.device) throw Error(Fault::other, "libmpix could not start: " + runtime.failure);
  return *runtime.device;
}

namespace {

std::unique_ptr<Network> open_messages(Runtime& runtime) {
  const Settings& settings = runtime.settings;
  const bool reaches_device = runtime.device->is_host() || settings.mpi_gpu_aware.value_or(mpi_says_gpu_aware());
  auto network =
      std::make_unique<MessageNetwork>(runtime.message_world, settings, settings.nic_gpu_direct && reaches_device);
  const std::vector<int>& devices = runtime.world_devices;
  const auto first_alike = std::find(devices.begin(), devices.end(), kind_of_device(runtime));
  const bool tells = first_alike - devices.begin() == runtime.message_world->rank();
  if (settings.nic_gpu_direct && !reaches_device && tells)
    log(LogLevel::warn,
        "MPIX_NIC_GPU_DIRECT=on: MPI does not say that it takes memory of GPUs (MPIX_MPI_GPU_AWARE=on, "
        "where it does), so large puts go through pinned memory");
  runtime.messages = network.get();
  return network;
}

std::unique_ptr<Network> open_network(Runtime& runtime, std::string* remark) {
  const Settings& settings = runtime.settings;
  if (settings.nic == "none") throw Error(Fault::unsupported, "MPIX_NIC=none");
  if (settings.nic == "mpi") return open_messages(runtime);
  if (settings.nic != "auto") return make_triggered_network(settings, runtime.local_ranks);
  // A NIC that does the work; else MPI, which knows the best of the networks that are there; triggered operations in
  // software, over TCP, where MPI cannot be called by a thread of ours.
  std::string why_not;
  const auto note = [&why_not](const Error& error) {
    why_not += (why_not.empty() ? "" : "; and ") + std::string(error.what());
  };
  Settings only = settings;
  try {
    only.nic = "cxi";
    if (!triggered_nic_present())
      throw Error(Fault::unsupported, "this node has no NIC with triggered operations (cxi)");
    return make_triggered_network(only, runtime.local_ranks);
  } catch (const Error& error) {
    note(error);
  }
  try {
    std::unique_ptr<Network> network = open_messages(runtime);
    log(LogLevel::info, "messages of MPI carry epochs between nodes, as no NIC can: " + why_not);
    return network;
  } catch (const Error& error) {
    note(error);
  }
  try {
    only.nic = "sockets";
    std::unique_ptr<Network> network = make_triggered_network(only, runtime.local_ranks);
    if (runtime.message_world && runtime.message_world->rank() == 0)
      *remark =
          "epochs between nodes go over sockets, in software, where messages of MPI are faster, as a rule: " + why_not +
          " (MPIX_NIC=sockets: it is meant to be so)";
    return network;
  } catch (const Error& error) {
    note(error);
    throw Error(error.fault(), why_not);
  }
}

}  // namespace

OperationBudget* open_budget(Runtime& runtime) {
  std::lock_guard<std::mutex> hold(birth);
  if (runtime.budget) return runtime.budget.get();
  if (!runtime.no_budget.empty()) return nullptr;
  try {
    (void)usable_device(runtime);
    std::string remark;
    std::unique_ptr<Network> network = open_network(runtime, &remark);
    runtime.budget = std::make_unique<OperationBudget>(std::move(network), runtime.settings,
                                                       has_cores_to_spare(runtime.local_ranks), std::move(remark));
    log(LogLevel::info, runtime.budget->describe());
  } catch (const Error& error) {
    runtime.no_budget = error.what();
  }
  return runtime.budget.get();
}

namespace {

/// The runtime, which may be there already and not have known so many: the network is shared by all of them.
Runtime& with_local_ranks(int local_ranks) {
  Runtime& runtime = ensure_runtime(local_ranks);
  std::lock_guard<std::mutex> hold(birth);
  runtime.local_ranks = std::max(runtime.local_ranks, local_ranks);
  return runtime;
}

}  // namespace

std::vector<int> nodes_of(MPI_Comm comm) {
  // Whether the world's table exists is the same on all ranks; whether the runtime does may not be.
  const Runtime* runtime = find_runtime();
  std::vector<int> nodes, devices;
  std::vector<int> identity;  // what pretended nodes are cut from
  if (runtime && !runtime->world_nodes.empty()) identity = world_ranks_of(comm);
  if (identity.empty()) {
    nodes = machines_of(comm);
    identity.resize(nodes.size());
    std::iota(identity.begin(), identity.end(), 0);
    int rank = 0;
    check(PMPI_Comm_rank(comm, &rank));
    const auto local_ranks = std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(rank)]);
    runtime = &with_local_ranks(std::max(static_cast<int>(local_ranks), launcher_local_ranks()));
    devices = devices_of(comm, *runtime, nodes.size());
    nodes = apart_by_device(std::move(nodes), devices);
  } else {
    for (const int rank : identity) {
      nodes.push_back(runtime->world_nodes[static_cast<std::size_t>(rank)]);
      devices.push_back(runtime->world_devices[static_cast<std::size_t>(rank)]);
    }
  }
  const int pretended = runtime->settings.node_size;
  if (pretended <= 0) return nodes;
  std::transform(identity.begin(), identity.end(), nodes.begin(), [=](int rank) { return rank / pretended; });
  return apart_by_device(std::move(nodes), devices);
}

}  // namespace mpix
