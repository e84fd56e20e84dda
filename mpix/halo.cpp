// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The halo engine: include/mpix_halo.h has the contract.
#include "halo.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/awake_clock.h"
#include "base/job_environment.h"
#include "base/log.h"
#include "errors.h"
#include "halo_messages.h"
#include "halo_options.h"
#include "halo_segments.h"
#include "handles.h"
#include "mpix.h"
#include "notify/halo.h"
#include "own_comm.h"
#include "progress.h"
#include "runtime.h"
#include "team_state.h"
#include "wait_for_ranks.h"

/// What a handle stands for.
struct MPIX_Halo_s {
  MPI_Comm comm = MPI_COMM_NULL;  ///< its own
  bool is_shared = false;         ///< some rank's memory is others', too
  std::unique_ptr<mpix::Halo> halo;
};

namespace mpix {
namespace {

/// In MPI_Finalize.
constexpr auto most_for_sends = std::chrono::seconds(10);

Handles<MPIX_Halo>& handles() {
  static auto& all = *new Handles<MPIX_Halo>("halo");
  return all;
}

MPIX_Halo_s& of(MPIX_Halo halo) {
  handles().require(halo);
  return *halo;
}

/// Of a rank, as all tell each other.
struct HaloDevice {
  unsigned long long number = 0, takes_turns = 0;
};

/// Ranks whose kernels run where this one's do. Collective.
struct Sharing {
  std::uint32_t sharers = 1;
  std::string no_steps_why;  ///< not empty: kernels that stay would keep those of other processes from running
};
Sharing sharing_of(MPI_Comm comm, const HaloDevice& mine) {
  int ranks = 0, rank = 0;
  check(PMPI_Comm_size(comm, &ranks));
  check(PMPI_Comm_rank(comm, &rank));
  std::vector<HaloDevice> places(static_cast<std::size_t>(ranks));
  check(PMPI_Allgather(&mine, 2, MPI_UNSIGNED_LONG_LONG, places.data(), 2, MPI_UNSIGNED_LONG_LONG, comm));
  Sharing found;
  for (int r = 0; r < ranks; ++r) {
    if (r == rank || mine.number == 0 || places[static_cast<std::size_t>(r)].number != mine.number) continue;
    ++found.sharers;
    if (mine.takes_turns != 0 && found.no_steps_why.empty())
      found.no_steps_why =
          "rank " + std::to_string(r) +
          " uses the same GPU, in turns with this one: a kernel that stays would keep its kernels from running "
          "(start the MPS daemon, or use MPIX_Halo_exchange_stream)";
  }
  return found;
}

HaloPlace place_of(MPI_Comm comm, const Device& device, bool by_memory) {
  HaloPlace place{};
  const CommState& ranks = comm_state_of(comm);  // on all, as it is collective
  if (!by_memory) return place;
  int rank = 0;
  check(PMPI_Comm_rank(comm, &rank));
  place.node = static_cast<std::uint64_t>(ranks.nodes[static_cast<std::size_t>(rank)]) + 1;
  place.group = device.sharing_group();
  std::snprintf(place.device, sizeof place.device, "%s", device.name());
  return place;
}

void build(MPIX_Halo_s& made, MPI_Comm comm, int count, const MPIX_Halo_message* messages, MPI_Info info) {
  Runtime& runtime = ensure_runtime(launcher_local_ranks());
  std::vector<HaloContent> contents;
  HaloOptions options;
  Device* device = nullptr;
  HaloDevice here;
  agree(made.comm, error_of([&] {
          device = &usable_device(runtime);
          here = HaloDevice{device->processor(), device->wants_guards_where_shared() ? 1ull : 0ull};
          options = halo_options(info, comm, *device, runtime.settings);
          contents = halo_contents(count, messages, comm);
        }));
  const Sharing sharing = sharing_of(made.comm, here);
  options.engine.sharers = sharing.sharers;
  options.engine.no_steps_why = sharing.no_steps_why;
  agree(made.comm,
        error_of([&] { made.halo = std::make_unique<Halo>(options.engine, contents, *device, runtime.settings); }));
  const HaloTags tags = compare_ends(made.comm, contents, messages, made.halo->cargo(), options.engine.chunk,
                                     options.calls.gather, place_of(made.comm, *device, options.by_memory));
  HaloSegments segments = connect_segments(made.comm, messages, *made.halo, tags, *device);
  agree(made.comm, error_of([&] {
          made.halo->use_ends(std::move(segments.own), segments.ends);
          if (made.halo->serves_any()) require_threads("a thread of the library sends what does not go by memory");
        }));
  const int mine = made.halo->is_shared() ? 1 : 0;
  int any = 0;
  check(PMPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, made.comm));
  made.is_shared = any != 0;
  made.halo->serve_by(made.halo->serves_any() ? messages_of_mpi(made.comm, messages, *made.halo, tags, options.calls)
                                              : nullptr);
}

}  // namespace

void end_halos() noexcept {
  const auto left = handles().all();
  if (left.empty()) return;
  {
    // Others wait for what this rank has packed, though it forgets its halo.
    const auto until = AwakeClock::now() + most_for_sends;
    Progress progress(Progress::Call::of_mpi);
    const auto meanwhile = progress.meanwhile();
    for (const MPIX_Halo halo : left) halo->halo->wait_for_sends(meanwhile, until);
  }
  for (const MPIX_Halo halo : left) {
    log(LogLevel::warn, "MPI_Finalize: a halo was not freed");
    halo->halo->break_for("MPI_Finalize was called");
    halo->halo->end_service();
  }
}

bool any_halo_alive() { return handles().any(); }

}  // namespace mpix

using mpix::Caller;
using mpix::Error;
using mpix::Fault;
using mpix::guarded;

MPIX_INTERPOSED int MPIX_Halo_create(MPI_Comm comm, int messages, const MPIX_Halo_message message[], MPI_Info info,
                                     MPIX_Halo* halo) {
  return guarded(Caller::on_comm("MPIX_Halo_create", comm), [&] {
    mpix::require_intra(comm, "halos need");
    auto made = std::make_unique<MPIX_Halo_s>();
    const mpix::Runtime& runtime = mpix::ensure_runtime(mpix::launcher_local_ranks());
    const mpix::WaitForRanks wait("MPIX_Halo_create", "", runtime.settings.timeout_seconds);
    made->comm = mpix::own_comm_like(comm);
    try {
      std::optional<Error> own;
      if (!halo) own = Error(Fault::argument, "no place for the halo");
      mpix::agree(made->comm, own);
      *halo = MPIX_HALO_NULL;
      mpix::build(*made, comm, messages, message, info);
    } catch (...) {
      made->halo.reset();
      PMPI_Comm_free(&made->comm);
      throw;
    }
    mpix::handles().add(made.get());
    *halo = made.release();
  });
}

MPIX_INTERPOSED int MPIX_Halo_free(MPIX_Halo* halo) {
  return guarded(Caller::on_world("MPIX_Halo_free"), [&] {
    if (!halo) throw Error(Fault::argument, "no such halo");
    MPIX_Halo_s& gone = mpix::of(*halo);
    gone.halo->require_no_steps();
    mpix::Progress progress(mpix::Progress::Call::of_mpi);
    const bool over = gone.halo->wait_for_all(progress.meanwhile());
    const std::string cause = gone.halo->cause();
    // Memory is others', too, as long as they exchange. All ranks come, as all but those that share would go on.
    if (gone.is_shared && mpix::mpi_works()) {
      const double patience = mpix::ensure_runtime(mpix::launcher_local_ranks()).settings.timeout_seconds;
      if (mpix::leave_together(gone.comm, "MPIX_Halo_free of " + gone.halo->name(), patience, !over,
                               gone.halo->have_launches_left()) != mpix::Leaving::all_have_left)
        gone.halo->abandon();
    }
    mpix::handles().remove(&gone);
    if (gone.halo->leaves_work()) mpix::keep_runtime();
    // What others still send me for exchanges that this process has made is there: nobody is cut off.
    gone.halo.reset();
    // Of a broken halo it stays: what others send late is not for a later communicator that has its context.
    if (over && mpix::mpi_works()) PMPI_Comm_free(&gone.comm);
    delete &gone;
    *halo = MPIX_HALO_NULL;
    if (!over) throw Error(Fault::other, "the halo was broken: " + cause + "; it has been freed");
  });
}

MPIX_INTERPOSED int MPIX_Halo_exchange_stream(MPIX_Halo halo, void* stream) {
  return guarded(Caller::on_world("MPIX_Halo_exchange_stream"), [&] { mpix::of(halo).halo->exchange(stream); });
}

MPIX_INTERPOSED int MPIX_Halo_begin_stream(MPIX_Halo halo, long steps, void* stream) {
  return guarded(Caller::on_world("MPIX_Halo_begin_stream"), [&] {
    if (steps < 0) throw Error(Fault::argument, std::to_string(steps) + " steps");
    mpix::of(halo).halo->begin_steps(static_cast<std::uint64_t>(steps), stream);
  });
}

MPIX_INTERPOSED int MPIX_Halo_ready_stream(MPIX_Halo halo, void* stream) {
  return guarded(Caller::on_world("MPIX_Halo_ready_stream"), [&] { mpix::of(halo).halo->step_ready(stream); });
}

MPIX_INTERPOSED int MPIX_Halo_wait_stream(MPIX_Halo halo, void* stream) {
  return guarded(Caller::on_world("MPIX_Halo_wait_stream"), [&] { mpix::of(halo).halo->wait_for_steps(stream); });
}

MPIX_INTERPOSED int MPIX_Halo_end_stream(MPIX_Halo halo, void* stream) {
  return guarded(Caller::on_world("MPIX_Halo_end_stream"), [&] { mpix::of(halo).halo->end_steps(stream); });
}

MPIX_INTERPOSED int MPIX_Halo_get_device(MPIX_Halo halo, MPIX_Dev_halo* device) {
  return guarded(Caller::on_world("MPIX_Halo_get_device"),
                 [&] { mpix::required(device, "the halo for kernels") = mpix::of(halo).halo->param(); });
}

MPIX_INTERPOSED int MPIX_Halo_get_stats(MPIX_Halo halo, MPIX_Halo_stats* stats, size_t size) {
  return guarded(Caller::on_world("MPIX_Halo_get_stats"), [&] {
    MPIX_Halo_s& from = mpix::of(halo);
    (void)mpix::required(stats, "the counters");
    const mpix::Halo::Counts counts = from.halo->counts();
    MPIX_Halo_stats all{};
    all.exchanges = counts.exchanges;
    all.sent = counts.sent;
    all.received = counts.received;
    all.send_bytes = counts.send_bytes;
    all.recv_bytes = counts.recv_bytes;
    all.blocks = counts.blocks;
    all.by_memory = counts.by_memory;
    all.mpi_sends = counts.mpi_sends;
    mpix::give_counters(stats, size, all);
  });
}
