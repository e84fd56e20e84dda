// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Device-side RMA: what the host calls. include/mpix_device.h has the contract.
#include "domain.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/job_environment.h"
#include "base/log.h"
#include "device/host/stream.h"
#include "device_memory.h"
#include "domain/domain.h"
#include "domain/host_ranks.h"
#include "errors.h"
#include "handles.h"
#include "info_keys.h"
#include "mpi_bootstrap.h"
#include "mpix_device.h"
#include "own_comm.h"
#include "progress.h"
#include "runtime.h"
#include "team_state.h"
#include "wait_for_ranks.h"

/// What a handle stands for.
struct MPIX_Dev_s {
  mpix::CommState ranks;  ///< its communicator is the domain's own
  std::unique_ptr<mpix::Domain> domain;
  std::mutex mutex;
  std::set<void*> memory;  ///< of MPIX_Dev_alloc
};

namespace mpix {
namespace {

Handles<MPIX_Dev>& handles() {
  static auto& all = *new Handles<MPIX_Dev>("domain");
  return all;
}

MPIX_Dev_s& of(MPIX_Dev dev) {
  handles().require(dev);
  return *dev;
}

std::optional<std::uint32_t> number_in(MPI_Info info, const char* key) {
  const std::string text = info_value(info, key);
  if (text.empty() && !has_key(info, key)) return std::nullopt;
  if (text.empty() || text.size() > 9 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    throw Error(Fault::argument, std::string("info ") + key + "=" + text + " is not a number");
  return static_cast<std::uint32_t>(std::stoul(text));
}

Device& device() { return usable_device(ensure_runtime(launcher_local_ranks())); }

double patience() { return ensure_runtime(launcher_local_ranks()).settings.timeout_seconds; }

/// A collective call of the domain's processes.
template <class Body>
void call_together(const char* call, const MPIX_Dev_s& dev, Body body) {
  const WaitForRanks wait(call, "", patience());
  together(dev.ranks.node, dev.ranks, [&](Bootstrap& all) {
    check_same_call(call, all, Fault::other);
    body(all);
  });
}

/// As for a window (adopt.cpp): the team, if there is none, and then the domain.
void build(MPIX_Dev_s& made, MPI_Comm comm, int ranks_here, MPI_Info info, const MPIX_Dev* place) {
  CommState& ranks = comm_state_of(comm);
  MpiBootstrap bootstrap(comm, ranks, 0, 1);
  const auto failure = failure_of(bootstrap, Fault::other, [&] {
    (void)required(place, "the domain");
    if (ranks_here < 0) throw Error(Fault::argument, "a negative number of ranks");
    constexpr const char *lines = "mpix_dev_lane_lines", *pending = "mpix_dev_pending", *inlined = "mpix_dev_inline";
    warn_of_unknown_keys("MPIX_Dev_create", info, {lines, pending, inlined});
    DomainOptions options;
    options.lane_lines = number_in(info, lines);
    options.most_pending = number_in(info, pending);
    options.inline_bytes = number_in(info, inlined);
    Runtime& runtime = ensure_runtime(launcher_local_ranks());
    OperationBudget* const budget = make_team_if_none(ranks, bootstrap, runtime);
    made.domain = std::make_unique<Domain>(static_cast<std::uint32_t>(ranks_here), options, ranks.team, bootstrap,
                                           *runtime.device, runtime.settings, budget);
    made.ranks.team = ranks.team;
  });
  made.ranks.nodes = ranks.nodes;
  if (bootstrap.flags_of_all() & MpiBootstrap::lacks_team) forget_comm_state(comm);
  if (failure) throw *failure;
}

}  // namespace

void end_domains() noexcept {
  for ([[maybe_unused]] const MPIX_Dev domain : handles().all())
    log(LogLevel::warn, "MPI_Finalize: a domain was not freed");
}

bool any_domain_alive() { return handles().any(); }

}  // namespace mpix

using mpix::Caller;
using mpix::Error;
using mpix::Fault;
using mpix::guarded;

MPIX_INTERPOSED int MPIX_Dev_create(MPI_Comm comm, int ranks_here, MPI_Info info, MPIX_Dev* dev) {
  return guarded(Caller::on_comm("MPIX_Dev_create", comm), [&] {
    if (dev) *dev = MPIX_DEV_NULL;
    mpix::require_intra(comm, "a domain needs");
    const mpix::WaitForRanks wait("MPIX_Dev_create", "", mpix::patience());
    auto made = std::make_unique<MPIX_Dev_s>();
    mpix::build(*made, comm, ranks_here, info, dev);
    made->ranks.node = mpix::own_comm_like(comm);  // the program's may be freed
    made->ranks.owns_node = true;
    mpix::handles().add(made.get());
    *dev = made.release();
  });
}

MPIX_INTERPOSED int MPIX_Dev_free(MPIX_Dev* dev) {
  return guarded(Caller::on_world("MPIX_Dev_free"), [&] {
    MPIX_Dev_s& gone = mpix::of(mpix::required(dev, "the domain"));
    const auto leave_behind = [&] {
      mpix::keep_runtime();  // its courier goes on
      mpix::handles().remove(&gone);
      *dev = MPIX_DEV_NULL;
    };
    if (!mpix::mpi_works()) {
      leave_behind();
      throw Error(Fault::other,
                  "MPI has been finalized, so nobody waits for other processes; the memory of the domain stays");
    }
    mpix::Progress progress(mpix::Progress::Call::of_mpi);
    const auto meanwhile = progress.meanwhile();
    const bool over = gone.domain->wait_for_launches(meanwhile) && gone.domain->wait_for_puts(meanwhile);
    const bool broken = !over || gone.domain->is_broken();
    const bool have_left = over || gone.domain->have_ranks_left();
    const auto leaving = mpix::leave_together(gone.ranks.node, "MPIX_Dev_free", mpix::patience(), broken, have_left);
    if (leaving != mpix::Leaving::all_have_left) {  // some may still reach into its memory
      leave_behind();
      const char* const why = leaving == mpix::Leaving::some_missing ? "other processes have not called it"
                              : have_left                            ? "ranks of other processes have not returned"
                                                                     : "ranks of this process have not returned";
      throw Error(Fault::synchronization, std::string(why) + "; the memory of the domain stays");
    }
    if (over) {
      const mpix::Domain::Counts counts = gone.domain->counts();
      if (counts.pending > 0)
        log(mpix::LogLevel::warn, "MPIX_Dev_free: " + std::to_string(counts.pending) +
                                      " notifications for ranks of this process were never asked for");
    }
    mpix::handles().remove(&gone);
    mpix::Device& device = mpix::device();
    for (void* base : gone.memory) device.release(base);
    delete &gone;
    *dev = MPIX_DEV_NULL;
    if (broken) throw Error(Fault::synchronization, "the domain was broken; it has been freed");
  });
}

MPIX_INTERPOSED int MPIX_Dev_alloc(MPIX_Dev dev, size_t bytes, void** base) {
  return guarded(Caller::on_world("MPIX_Dev_alloc"), [&] {
    mpix::required(base, "the memory") = nullptr;
    MPIX_Dev_s& domain = mpix::of(dev);
    void* const memory = mpix::device().allocate(bytes).base;
    std::lock_guard<std::mutex> hold(domain.mutex);
    domain.memory.insert(memory);
    *base = memory;
  });
}

MPIX_INTERPOSED int MPIX_Dev_dealloc(MPIX_Dev dev, void* base) {
  return guarded(Caller::on_world("MPIX_Dev_dealloc"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    {
      std::lock_guard<std::mutex> hold(domain.mutex);
      if (domain.memory.erase(base) == 0) throw Error(Fault::argument, "not memory of MPIX_Dev_alloc of this domain");
    }
    mpix::device().release(base);
  });
}

MPIX_INTERPOSED int MPIX_Dev_attach(MPIX_Dev dev, void* base, size_t bytes) {
  return guarded(Caller::on_world("MPIX_Dev_attach"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    mpix::call_together("MPIX_Dev_attach", domain,
                        [&](mpix::Bootstrap& all) { domain.domain->attach(all, base, bytes); });
  });
}

MPIX_INTERPOSED int MPIX_Dev_detach(MPIX_Dev dev, void* base) {
  return guarded(Caller::on_world("MPIX_Dev_detach"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    mpix::call_together("MPIX_Dev_detach", domain, [&](mpix::Bootstrap& all) {
      mpix::Progress progress(mpix::Progress::Call::of_mpi);
      (void)domain.domain->wait_for_puts(progress.meanwhile());
      domain.domain->detach(all, base);
    });
  });
}

MPIX_INTERPOSED int MPIX_Dev_win_create(MPIX_Dev dev, void* const base[], const size_t bytes[], MPIX_Dev_win* win) {
  return guarded(Caller::on_world("MPIX_Dev_win_create"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    mpix::call_together("MPIX_Dev_win_create", domain, [&](mpix::Bootstrap& all) {
      if (domain.domain->ranks_here() > 0 && (!base || !bytes))
        throw Error(Fault::argument, "no bases, or no sizes, of the ranks of a process");
      (void)mpix::required(win, "the window");
      *win = domain.domain->create_window(all, base, bytes);
    });
  });
}

MPIX_INTERPOSED int MPIX_Dev_win_free(MPIX_Dev dev, MPIX_Dev_win* win) {
  return guarded(Caller::on_world("MPIX_Dev_win_free"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    mpix::call_together("MPIX_Dev_win_free", domain, [&](mpix::Bootstrap& all) {
      // Of all processes: what is under way to other nodes is not for a later window of this number.
      (void)mpix::required(win, "the window");
      mpix::Progress progress(mpix::Progress::Call::of_mpi);
      (void)domain.domain->wait_for_puts(progress.meanwhile());
      domain.domain->free_window(all, *win);
    });
    *win = -1;
  });
}

MPIX_INTERPOSED int MPIX_Dev_get_param(MPIX_Dev dev, MPIX_Dev_param* param) {
  return guarded(Caller::on_world("MPIX_Dev_get_param"),
                 [&] { mpix::required(param, "the parameter") = mpix::of(dev).domain->watched_param(); });
}

MPIX_INTERPOSED int MPIX_Dev_launch_host(MPIX_Dev dev, void (*fn)(MPIX_Dev_param, void*), void* arg,
                                         void* host_stream) {
  return guarded(Caller::on_world("MPIX_Dev_launch_host"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    if (!fn) throw Error(Fault::argument, "no function to call");
    if (!mpix::device().is_host())
      throw Error(Fault::unsupported,
                  std::string("the ranks of this domain are blocks of kernels: the device in use is ") +
                      mpix::device().name() + " (MPIX_DEVICE=host has threads)");
    mpix::launch_host_ranks(*domain.domain, fn, arg, host_stream);
  });
}

MPIX_INTERPOSED int MPIX_Dev_begin_launch(MPIX_Dev dev, void* stream, int abi, MPIX_Dev_param* param) {
  return guarded(Caller::on_world("MPIX_Dev_launch"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    mpix::Device& device = mpix::device();
    if (device.is_host()) throw Error(Fault::unsupported, "the ranks of this domain are threads: MPIX_Dev_launch_host");
    if (abi != MPIX_DEV_ABI)
      throw Error(Fault::other, "the program was compiled with the headers of another libmpix: its kernels know form " +
                                    std::to_string(abi) + " of what they share with the library, and this is form " +
                                    std::to_string(MPIX_DEV_ABI));
    if (device.check_stream(stream) != 0)
      throw Error(Fault::unsupported, "a kernel of a domain cannot become part of a graph: each launch has its number");
    mpix::required(param, "the parameter") = domain.domain->begin_launch();
  });
}

MPIX_INTERPOSED int MPIX_Dev_end_launch(MPIX_Dev dev, const char* failure) {
  return guarded(Caller::on_world("MPIX_Dev_launch"), [&] {
    MPIX_Dev_s& domain = mpix::of(dev);
    if (!failure) return;
    domain.domain->cancel_launch();
    throw Error(Fault::argument, std::string("the kernel could not be launched with a block for each of ") +
                                     std::to_string(domain.domain->ranks_here()) +
                                     " ranks (ranks_here) at once: " + failure + " (see MPIX_Dev_max_ranks)");
  });
}

MPIX_INTERPOSED int MPIX_Dev_sharers(MPIX_Dev dev, int* sharers) {
  return guarded(Caller::on_world("MPIX_Dev_max_ranks"),
                 [&] { mpix::required(sharers, "the number") = static_cast<int>(mpix::of(dev).domain->sharers()); });
}

MPIX_INTERPOSED int MPIX_Dev_error(MPIX_Dev dev, int clear, int* error_class, char* text, size_t size) {
  return guarded(Caller::on_world("MPIX_Dev_error"), [&] {
    mpix::Domain& domain = *mpix::of(dev).domain;
    const mpix::Domain::Failure failure = domain.failure();
    mpix::required(error_class, "the class") = mpix::dev::class_of(failure.result);
    if (text && size > 0) {
      const std::size_t length = std::min(size - 1, failure.text.size());
      std::memcpy(text, failure.text.data(), length);
      text[length] = '\0';
    }
    if (clear) domain.forget_failures();
  });
}

MPIX_INTERPOSED int MPIX_Dev_get_stats(MPIX_Dev dev, MPIX_Dev_stats* stats, size_t size) {
  return guarded(Caller::on_world("MPIX_Dev_get_stats"), [&] {
    mpix::Domain& domain = *mpix::of(dev).domain;
    (void)mpix::required(stats, "the counters");
    const mpix::Domain::Counts counts = domain.counts();
    MPIX_Dev_stats all{};
    all.launches = domain.launches();
    all.notifications = counts.taken;
    all.pending = counts.pending;
    all.lane_bytes = domain.control_bytes();
    mpix::give_counters(stats, size, all);
  });
}
