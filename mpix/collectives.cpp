// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collectives on streams: include/mpix_collectives.h has the contract.
#include "collectives.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/awake_clock.h"
#include "base/job_environment.h"
#include "base/kept.h"
#include "base/log.h"
#include "base/service.h"
#include "collective/collectives.h"
#include "datatype.h"
#include "errors.h"
#include "info_keys.h"
#include "mpi_bootstrap.h"
#include "mpix_collectives.h"
#include "operation.h"
#include "own_comm.h"
#include "progress.h"
#include "runtime.h"
#include "team_state.h"
#include "wait_for_ranks.h"

namespace mpix {
namespace {

std::mutex alive_mutex;
auto& alive = *new std::set<CommState*>;  // to the end of the process

constexpr const char way_key[] = "mpix_coll", selection_key[] = "mpix_coll_select", blocks_key[] = "mpix_coll_blocks";

/// One without a name is told from others by the number in which its collectives on streams were made, 0: not yet.
std::string name_of(MPI_Comm comm, int number = 0) {
  char name[MPI_MAX_OBJECT_NAME + 1] = "";
  int length = 0;
  if (PMPI_Comm_get_name(comm, name, &length) == MPI_SUCCESS && length > 0) return name;
  const CommState* const state = number == 0 ? find_comm_state(comm) : nullptr;
  if (state && state->collectives) return state->collectives->name();
  return number == 0 ? "unnamed" : "unnamed #" + std::to_string(number);
}

/// As the environment says, and `info` for this communicator. The table is for what neither forces.
Collectives::Ways ways_of(const Runtime& runtime, MPI_Info info) {
  Collectives::Ways ways;
  ways.way = choice_in<CollectiveWay>(info, way_key, runtime.settings.collective_way, collective_way_names);
  ways.selection = choice_in<WaySelection>(
      info, selection_key, runtime.settings.collective_selection,
      {{"static", WaySelection::fixed}, {"model", WaySelection::model}, {"dynamic", WaySelection::dynamic}});
  ways.blocks = static_cast<std::uint32_t>(number_in(info, blocks_key, 0, 0, WayTable::most_blocks));
  ways.table = runtime.ways;
  return ways;
}

/// Throws, on all ranks, where it cannot be.
void build(MPI_Comm comm, MPI_Info info) {
  const Runtime* const here = runtime_if_mpi_works();
  if (!here)
    throw Error(Fault::unsupported,
                "libmpix does not stand in front of MPI here (mpicc app.c -lmpix, and no -lmpi before it)");
  static std::atomic<int> made{0};
  const std::string name = name_of(comm, ++made);
  const WaitForRanks first("collectives of '" + name + "': the first call on the communicator",
                           "MPIX_Comm_prepare_stream", here->settings.timeout_seconds);
  CommState& ranks = comm_state_of(comm);
  MpiBootstrap bootstrap(comm, ranks, 0, 1);
  const auto failure = failure_of(bootstrap, Fault::unsupported, [&] {
    Runtime& runtime = ensure_runtime(launcher_local_ranks());
    const Collectives::Ways ways = ways_of(runtime, info);
    OperationBudget* const budget = make_team_if_none(ranks, bootstrap, runtime);
    ranks.collectives =
        std::make_shared<Collectives>(ranks.team, bootstrap, *runtime.device, budget, runtime.settings, ways, name);
    if (ways.selection == WaySelection::model && ways.way == CollectiveWay::automatic)
      ranks.collectives->measure_borders(bootstrap);
  });
  if (!failure) {
    ranks.own = own_comm_like(comm);
    const std::lock_guard<std::mutex> hold(alive_mutex);
    alive.insert(&ranks);
    return;
  }
  if (ranks.collectives) {  // made, and not measured: calls may be under way
    ranks.collectives->close(false);
    keep_runtime();
    keep_for_ever(std::move(ranks.collectives));
    ranks.collectives = nullptr;
  }
  if (bootstrap.flags_of_all() & MpiBootstrap::lacks_team) forget_comm_state(comm);
  throw *failure;
}

void check_comm(MPI_Comm comm) { require_intra(comm, "collectives on streams need"); }

Collectives& collectives_of(MPI_Comm comm, MPI_Info info = MPI_INFO_NULL) {
  CommState* state = find_comm_state(comm);
  if (!state || !state->collectives) {
    build(comm, info);
    state = find_comm_state(comm);
  }
  return *state->collectives;
}

double patience() { return ensure_runtime(launcher_local_ranks()).settings.timeout_seconds; }

/// A collective call on a communicator that is prepared: body(collectives, bootstrap).
template <class Body>
int call_together(const char* name, MPI_Comm comm, Body body) {
  return guarded(Caller::on_comm(name, comm), [&] {
    check_comm(comm);
    Collectives& collectives = collectives_of(comm);
    const WaitForRanks wait("collectives of '" + name_of(comm) + "': " + name, "", patience());
    together(comm, *find_comm_state(comm), [&](Bootstrap& all) {
      check_same_call(name, all, Fault::attach);
      body(collectives, all);
    });
  });
}

/// The body of a call: fill(call, collectives) sets what is to be done.
template <class Fill>
int enqueue(const char* name, MPI_Comm comm, void* stream, Fill fill) {
  return guarded(Caller::on_comm(name, comm), [&] {
    check_comm(comm);
    Collectives& collectives = collectives_of(comm);
    Collectives::Call call;
    fill(call, collectives);
    collectives.enqueue(call, stream);
  });
}

void check_root(int root, const Collectives& collectives) {
  if (root < 0 || root >= collectives.size()) throw Error(Fault::root, "root " + std::to_string(root) + " is no rank");
}

void set_reduction(Collectives::Call& call, const Collectives& collectives, int count, MPI_Datatype type, MPI_Op op) {
  if (count < 0) throw Error(Fault::count, "a negative count");
  const Reduction reduction = reduction_of(op, type, collectives.device().is_host());
  call.operation = reduction.operation;
  call.element = reduction.element;
  call.bytes = static_cast<std::size_t>(count) * reduction.element_bytes;
  call.function = reduction.function;
  call.said_function = reduction.said_function;
  call.context = reduction.context.get();
  call.commutes = reduction.commutes;
  call.keep = reduction.context;
}

/// `send`: what is given as sendbuf; in place it is where the result goes.
void set_buffers(Collectives::Call& call, const void* send, void* recv) {
  if (recv == MPI_IN_PLACE) throw Error(Fault::buffer, "MPI_IN_PLACE is no place for the result");
  call.in_place = send == MPI_IN_PLACE;
  if (!call.in_place && call.bytes > 0 && send == recv)
    throw Error(Fault::buffer, "the send buffer is the receive buffer: MPI_IN_PLACE says so");
  call.send = call.in_place ? recv : send;
  call.recv = recv;
}

void* moved(const void* buffer, std::size_t bytes) {
  return buffer ? reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(buffer) + bytes) : const_cast<void*>(buffer);
}

/// What a call on `comm` moves; of several blocks, the first.
ByteRun data_of(MPI_Comm comm, int count, MPI_Datatype type, const char* side, int blocks = 1) {
  if (type != MPI_DATATYPE_NULL && !is_committed(type, find_comm_state(comm)->own))
    throw Error(Fault::datatype, std::string("the ") + side + " datatype is not committed");
  return run_of_bytes(count, type, side, blocks);
}

/// Of calls that move a block to or from each rank.
void set_blocks(Collectives::Call& call, MPI_Comm comm, int ranks, const void* send, int send_count,
                MPI_Datatype send_type, void* recv, int recv_count, MPI_Datatype recv_type) {
  const ByteRun to = data_of(comm, recv_count, recv_type, "receive", ranks);
  call.bytes = to.bytes;
  if (send != MPI_IN_PLACE) {
    const bool sends_blocks = call.kind == CollectiveKind::alltoall;
    const ByteRun from = data_of(comm, send_count, send_type, "send", sends_blocks ? ranks : 1);
    if (from.bytes != to.bytes)
      throw Error(Fault::truncation,
                  "each rank sends " + std::to_string(from.bytes) + " bytes, and receives " + std::to_string(to.bytes));
    set_buffers(call, send, recv);
    call.send = moved(send, from.first);
  } else {
    set_buffers(call, send, recv);
    call.send = moved(recv, to.first);
  }
  call.recv = moved(recv, to.first);
}

enum class Verdict { all_well, some_broken, some_missing };
struct End {
  Verdict verdict;
  bool calls_differ;
};

/// Ranks tell each other at the end whether their calls are broken, and what they were.
class EndOfCalls {
 public:
  EndOfCalls(MPI_Comm comm, bool broken, std::uint32_t fingerprint) : broken_(broken) {
    const long long print = fingerprint;
    words_ = std::make_shared<Words>(Words{{broken, print == 0, print, -print}, {}});
    if (PMPI_Iallreduce(words_->mine, words_->most, 4, MPI_LONG_LONG, MPI_MAX, comm, &all_) != MPI_SUCCESS) give_up();
  }

  /// All ranks come, but where this one is broken it does not wait for longer than MPIX_TIMEOUT: the others may be
  /// dead.
  End agreed() {
    const double limit = patience();
    const auto begin = AwakeClock::now();
    for (int looks = 0; words_; ++looks) {
      int come = 0;
      if (PMPI_Test(&all_, &come, MPI_STATUS_IGNORE) != MPI_SUCCESS) give_up();
      if (come) return result();
      stand_in_for_service();
      const std::chrono::duration<double> seconds = AwakeClock::now() - begin;
      if (broken_ && limit > 0 && seconds.count() > limit) give_up();
      if (looks < 100)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return End{Verdict::some_missing, false};
  }

 private:
  /// The most: whether any is broken, and whether any has no fingerprint; of them, and, negated, the least.
  struct Words {
    long long mine[4], most[4];
  };
  End result() const {
    const long long* const most = words_->most;
    const bool calls_differ = !most[1] && most[2] != -most[3];
    return {most[0] || calls_differ ? Verdict::some_broken : Verdict::all_well, calls_differ};
  }
  /// MPI has the words for good: the others may come yet.
  void give_up() { keep_for_ever(std::move(words_)); }

  const bool broken_;
  std::shared_ptr<Words> words_;  ///< null: given up
  MPI_Request all_ = MPI_REQUEST_NULL;
};

/// A broken one does not wait for longer than it takes to report that; and that of MPI_COMM_WORLD ends in MPI_Finalize,
/// where ranks may well wait for long.
End agree_on_end_of(MPI_Comm comm, CommState& state, bool broken) noexcept {
  std::optional<WaitForRanks> wait;
  try {
    if (!broken && comm != MPI_COMM_WORLD)
      wait.emplace("collectives of '" + name_of(comm) + "': MPI_Comm_free", "", patience());
  } catch (const std::exception&) {  // no memory for a text
  }
  return EndOfCalls(state.own, broken, state.collectives->fingerprint()).agreed();
}

/// As the root of a broadcast hears from nobody, several that each take themselves for it do not notice.
void tell_of_different_calls(CommState& state) noexcept {
  try {
    state.collectives->tell_of_different_calls();
  } catch (const std::exception&) {  // no memory for a text
  }
}

}  // namespace

void end_collectives(MPI_Comm comm, CommState& state) noexcept {
  if (!state.collectives) return;
  {
    const std::lock_guard<std::mutex> hold(alive_mutex);
    alive.erase(&state);
  }
  // MPI calls this: nothing may be thrown.
  bool broken = true;
  try {
    Progress progress(Progress::Call::of_mpi);
    broken = !state.collectives->wait_for_all(progress.meanwhile());
  } catch (const std::exception& error) {
    log(LogLevel::error, std::string("the collectives of a communicator do not end: ") + error.what());
  }
  if (broken) let_service_look();  // which tells of it
  const auto [verdict, calls_differ] = agree_on_end_of(comm, state, broken);
  if (calls_differ) tell_of_different_calls(state);
  // A rank that lives may still reach into the memory of a broken one: that stays.
  state.collectives->close(verdict == Verdict::all_well);
  if (verdict == Verdict::all_well) {
    state.collectives.reset();
  } else {
    keep_runtime();
    keep_for_ever(std::move(state.collectives));
  }
  if (verdict != Verdict::some_missing) PMPI_Comm_free(&state.own);
}

void wait_for_collectives() noexcept {
  try {
    std::vector<CommState*> all;
    {
      const std::lock_guard<std::mutex> hold(alive_mutex);
      all.assign(alive.begin(), alive.end());
    }
    // All at once, as each rank has them in an order of its own. Those of MPI_COMM_WORLD and MPI_COMM_SELF end later.
    std::vector<std::pair<CommState*, EndOfCalls>> ends;
    for (CommState* const one : all) {
      Progress progress(Progress::Call::of_mpi);
      const bool broken = !one->collectives->wait_for_all(progress.meanwhile());
      if (broken) one->collectives->tell_others();
      if (one != find_comm_state(MPI_COMM_WORLD) && one != find_comm_state(MPI_COMM_SELF))
        ends.emplace_back(one, EndOfCalls(one->own, broken, one->collectives->fingerprint()));
    }
    for (auto& [one, end] : ends)
      if (end.agreed().calls_differ) tell_of_different_calls(*one);
  } catch (const std::exception& error) {
    log(LogLevel::error, std::string("MPI_Finalize: the collectives of a communicator do not end: ") + error.what());
  }
}

std::string whose_attachment(const void* base) {
  const std::lock_guard<std::mutex> hold(alive_mutex);
  for (const CommState* const one : alive)
    if (one->collectives->has_attached(base)) return one->collectives->name();
  return "";
}

bool any_collectives_alive() {
  const std::lock_guard<std::mutex> hold(alive_mutex);
  return !alive.empty();
}

}  // namespace mpix

using mpix::CollectiveKind;
using mpix::Collectives;
using mpix::Error;
using mpix::Fault;

MPIX_INTERPOSED int MPIX_Barrier_stream(MPI_Comm comm, void* stream) {
  return mpix::enqueue("MPIX_Barrier_stream", comm, stream,
                       [](Collectives::Call& call, Collectives&) { call.kind = CollectiveKind::barrier; });
}

MPIX_INTERPOSED int MPIX_Bcast_stream(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm,
                                      void* stream) {
  return mpix::enqueue("MPIX_Bcast_stream", comm, stream, [&](Collectives::Call& call, Collectives& all) {
    mpix::check_root(root, all);
    if (buffer == MPI_IN_PLACE) throw Error(Fault::buffer, "MPI_IN_PLACE is no buffer of a broadcast");
    const mpix::ByteRun run = mpix::data_of(comm, count, type, "broadcast");
    call.kind = CollectiveKind::bcast;
    call.root = root;
    call.bytes = run.bytes;
    call.recv = mpix::moved(buffer, run.first);
    call.send = call.recv;
  });
}

MPIX_INTERPOSED int MPIX_Reduce_stream(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                                       int root, MPI_Comm comm, void* stream) {
  return mpix::enqueue("MPIX_Reduce_stream", comm, stream, [&](Collectives::Call& call, Collectives& all) {
    mpix::check_root(root, all);
    call.kind = CollectiveKind::reduce;
    call.root = root;
    mpix::set_reduction(call, all, count, type, op);
    if (all.rank() == root) return mpix::set_buffers(call, sendbuf, recvbuf);
    if (sendbuf == MPI_IN_PLACE) throw Error(Fault::buffer, "MPI_IN_PLACE is for the root");
    call.send = sendbuf;
  });
}

MPIX_INTERPOSED int MPIX_Allreduce_stream(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                                          MPI_Comm comm, void* stream) {
  return mpix::enqueue("MPIX_Allreduce_stream", comm, stream, [&](Collectives::Call& call, Collectives& all) {
    call.kind = CollectiveKind::allreduce;
    mpix::set_reduction(call, all, count, type, op);
    mpix::set_buffers(call, sendbuf, recvbuf);
  });
}

MPIX_INTERPOSED int MPIX_Reduce_scatter_block_stream(const void* sendbuf, void* recvbuf, int recvcount,
                                                     MPI_Datatype type, MPI_Op op, MPI_Comm comm, void* stream) {
  return mpix::enqueue("MPIX_Reduce_scatter_block_stream", comm, stream,
                       [&](Collectives::Call& call, Collectives& all) {
                         call.kind = CollectiveKind::reduce_scatter;
                         mpix::set_reduction(call, all, recvcount, type, op);
                         mpix::set_buffers(call, sendbuf, recvbuf);
                       });
}

MPIX_INTERPOSED int MPIX_Allgather_stream(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                                          int recvcount, MPI_Datatype recvtype, MPI_Comm comm, void* stream) {
  return mpix::enqueue("MPIX_Allgather_stream", comm, stream, [&](Collectives::Call& call, Collectives& all) {
    call.kind = CollectiveKind::allgather;
    mpix::set_blocks(call, comm, all.size(), sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
    if (call.in_place) call.send = mpix::moved(call.recv, static_cast<std::size_t>(all.rank()) * call.bytes);
  });
}

MPIX_INTERPOSED int MPIX_Alltoall_stream(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                                         int recvcount, MPI_Datatype recvtype, MPI_Comm comm, void* stream) {
  return mpix::enqueue("MPIX_Alltoall_stream", comm, stream, [&](Collectives::Call& call, Collectives& all) {
    call.kind = CollectiveKind::alltoall;
    mpix::set_blocks(call, comm, all.size(), sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
  });
}

MPIX_INTERPOSED int MPIX_Comm_prepare_stream(MPI_Comm comm, MPI_Info info) {
  constexpr const char call[] = "MPIX_Comm_prepare_stream";
  return mpix::guarded(mpix::Caller::on_comm(call, comm), [&] {
    mpix::check_comm(comm);
    mpix::warn_of_unknown_keys(call, info, {mpix::way_key, mpix::selection_key, mpix::blocks_key});
    (void)mpix::collectives_of(comm, info);
  });
}

MPIX_INTERPOSED int MPIX_Comm_attach(MPI_Comm comm, void* base, MPI_Aint bytes) {
  return mpix::call_together("MPIX_Comm_attach", comm, [&](Collectives& collectives, mpix::Bootstrap& all) {
    if (bytes < 0) throw Error(Fault::argument, "bytes is negative");
    if (bytes > 0 && !base) throw Error(Fault::argument, "base is a null pointer");
    collectives.attach(all, base, static_cast<std::size_t>(bytes));
  });
}

MPIX_INTERPOSED int MPIX_Comm_detach(MPI_Comm comm, void* base) {
  return mpix::call_together("MPIX_Comm_detach", comm, [&](Collectives& collectives, mpix::Bootstrap& all) {
    mpix::Progress progress(mpix::Progress::Call::of_mpi);
    (void)collectives.wait_for_all(progress.meanwhile());
    collectives.detach(all, base);
  });
}

MPIX_INTERPOSED int MPIX_Comm_get_stats(MPI_Comm comm, MPIX_Comm_stats* stats, size_t size) {
  return mpix::guarded(mpix::Caller::on_comm("MPIX_Comm_get_stats", comm), [&] {
    mpix::check_comm(comm);
    (void)mpix::required(stats, "the counters");
    MPIX_Comm_stats known{};
    const mpix::CommState* const state = mpix::find_comm_state(comm);
    if (state && state->collectives) {
      const Collectives::Counts counts = state->collectives->counts();
      known.calls = counts.calls;
      known.calls_lines = counts.by_lines;
      known.calls_direct = counts.direct;
      known.calls_nodes = counts.between_nodes;
      known.calls_packs = counts.by_packs;
      known.calls_trees = counts.along_trees;
      known.calls_turns = counts.in_turns;
      known.calls_staged = counts.staged;
      known.calls_copies = counts.copied;
      known.calls_chosen = counts.chosen;
      known.chosen_direct = counts.chosen_direct;
      known.bytes = counts.bytes;
      known.memory_bytes = state->collectives->memory_bytes();
      known.blocks = state->collectives->blocks();
      known.node_ranks = state->collectives->node_ranks();
      known.sharers = state->collectives->sharers();
    }
    mpix::give_counters(stats, size, known);
  });
}
