// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "support/abort.h"
#include "support/domain.h"

/// NCCL, loaded at run time: machines with GPUs have it where this is not built, and without its header.
namespace nccl {

using Comm = struct OpaqueComm*;
using Window = struct OpaqueWindow*;
struct UniqueId {
  char bytes[128];
};
// The numbers are those of nccl.h, which are part of its binary interface.
enum Type { int8 = 0, float32 = 7, float64 = 8 };
enum Op { sum = 0 };
constexpr int success = 0;
constexpr int collective_symmetric = 1;  // a flag of a window

/// Its calls; a stream is a void* here.
struct Calls {
  int (*GetVersion)(int*);
  const char* (*GetErrorString)(int);
  int (*GetUniqueId)(UniqueId*);
  int (*CommInitRank)(Comm*, int ranks, UniqueId, int rank);
  int (*CommDestroy)(Comm);
  int (*AllReduce)(const void*, void*, std::size_t count, Type, Op, Comm, void* stream);
  int (*Broadcast)(const void*, void*, std::size_t count, Type, int root, Comm, void* stream);
  int (*Reduce)(const void*, void*, std::size_t count, Type, Op, int root, Comm, void* stream);
  int (*AllGather)(const void*, void*, std::size_t send_count, Type, Comm, void* stream);
  int (*ReduceScatter)(const void*, void*, std::size_t receive_count, Type, Op, Comm, void* stream);
  int (*Send)(const void*, std::size_t count, Type, int peer, Comm, void* stream);
  int (*Recv)(void*, std::size_t count, Type, int peer, Comm, void* stream);
  int (*GroupStart)();
  int (*GroupEnd)();
  // Since 2.27; all null where one is missing.
  int (*MemAlloc)(void**, std::size_t bytes);
  int (*MemFree)(void*);
  int (*CommWindowRegister)(Comm, void*, std::size_t bytes, Window*, int flags);
  int (*CommWindowDeregister)(Comm, Window);
};

/// A communicator of all processes.
class World {
 public:
  /// Collective. Null: `missing` says why.
  static std::unique_ptr<World> make(const std::string& library, std::string& missing) {
    auto world = std::unique_ptr<World>(new World);
    missing = world->why_not(library);
    // one is enough for all to go without
    const int mine = missing.empty() ? 0 : 1;
    int any = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    if (any && missing.empty()) missing = "not on all ranks";
    if (any) return nullptr;
    world->connect();
    return world;
  }
  ~World() {
    if (comm_) check(calls.CommDestroy(comm_), "ncclCommDestroy");
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Comm comm() const { return comm_; }
  /// Whether it has memory that is registered on all ranks.
  bool has_windows() const { return calls.MemAlloc != nullptr; }
  std::string version() const {
    int number = 0;
    check(calls.GetVersion(&number), "ncclGetVersion");
    return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
           std::to_string(number % 100);
  }
  /// Its version, and what its environment says.
  std::string about() const {
    std::string text = version();
    for (char** variable = environ; *variable; ++variable)
      if (std::string(*variable).rfind("NCCL_", 0) == 0 && std::string(*variable).rfind("NCCL_VERSION=", 0) != 0)
        text += std::string(", ") + *variable;
    return text;
  }
  void check(int result, const char* call) const {
    if (result == success) return;
    std::fprintf(stderr, "%s: %s\n", call, calls.GetErrorString(result));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  Calls calls{};

 private:
  World() = default;

  std::string why_not(const std::string& library) {
    if (!support::ranks_are_blocks) return "it needs GPUs";
    if (support::processes_of_the_gpu() > 1) return "it needs a GPU for each rank";
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return dlerror();
    std::string missing;
    const auto find = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(handle, name));
      if (!call) missing += std::string(missing.empty() ? "it lacks " : ", ") + name;
    };
    find(calls.GetVersion, "ncclGetVersion");
    find(calls.GetErrorString, "ncclGetErrorString");
    find(calls.GetUniqueId, "ncclGetUniqueId");
    find(calls.CommInitRank, "ncclCommInitRank");
    find(calls.CommDestroy, "ncclCommDestroy");
    find(calls.AllReduce, "ncclAllReduce");
    find(calls.Broadcast, "ncclBroadcast");
    find(calls.Reduce, "ncclReduce");
    find(calls.AllGather, "ncclAllGather");
    find(calls.ReduceScatter, "ncclReduceScatter");
    find(calls.Send, "ncclSend");
    find(calls.Recv, "ncclRecv");
    find(calls.GroupStart, "ncclGroupStart");
    find(calls.GroupEnd, "ncclGroupEnd");
    const std::string needed = std::exchange(missing, "");
    find(calls.MemAlloc, "ncclMemAlloc");
    find(calls.MemFree, "ncclMemFree");
    find(calls.CommWindowRegister, "ncclCommWindowRegister");
    find(calls.CommWindowDeregister, "ncclCommWindowDeregister");
    if (!missing.empty()) forget_windows();
    return needed;
  }
  void forget_windows() {
    calls.MemAlloc = nullptr;
    calls.MemFree = nullptr;
    calls.CommWindowRegister = nullptr;
    calls.CommWindowDeregister = nullptr;
  }
  void connect() {
    int rank = 0, ranks = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    UniqueId id{};
    if (rank == 0) check(calls.GetUniqueId(&id), "ncclGetUniqueId");
    CHECK_MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
    check(calls.CommInitRank(&comm_, ranks, id, rank), "ncclCommInitRank");
    // as for the library: one without is enough
    const int mine = has_windows() ? 1 : 0;
    int all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    if (!all) forget_windows();
  }

  Comm comm_ = nullptr;
};

/// With the name of the call in front of what went wrong.
#define NCCL_CALL(world, name, ...) (world).check((world).calls.name(__VA_ARGS__), "nccl" #name)

/// NCCL's memory, registered as a window of all ranks, which its kernels for symmetric memory take. Collective; for
/// worlds with windows.
class Registered {
 public:
  Registered(const World& world, std::size_t bytes) : world_(world) {
    NCCL_CALL(world_, MemAlloc, &base_, bytes);
    NCCL_CALL(world_, CommWindowRegister, world_.comm(), base_, bytes, &window_, collective_symmetric);
    const int mine = window_ ? 1 : 0;
    int all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    is_symmetric_ = all != 0;
  }
  ~Registered() {
    if (window_) NCCL_CALL(world_, CommWindowDeregister, world_.comm(), window_);
    NCCL_CALL(world_, MemFree, base_);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  void* get() const { return base_; }
  /// False: NCCL took the memory, but has no window of it, on some rank.
  bool is_symmetric() const { return is_symmetric_; }

 private:
  const World& world_;
  void* base_ = nullptr;
  Window window_ = nullptr;
  bool is_symmetric_ = false;
};

}  // namespace nccl
