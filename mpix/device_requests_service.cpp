// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The thread of device requests: what kernels have started, and what MPI has completed.
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>

#include "base/cores.h"
#include "base/log.h"
#include "device_requests.h"
#include "errors.h"
#include "notify/bells.h"

namespace mpix {
namespace {

constexpr auto shortest_nap = std::chrono::microseconds(50), longest_nap = std::chrono::microseconds(500);
/// A nap takes less than such a part of the time that nothing has happened for.
constexpr int naps_of_quiet = 1000;
/// Of a receive, each time: a call of MPI each.
constexpr std::size_t most_partitions_asked_for = 16;

}  // namespace

void DeviceRequests::work() noexcept {
  serving_ = std::this_thread::get_id();
  prctl(PR_SET_TIMERSLACK, 1000);
  if (settings_.channel_core >= 0 && !run_on_core(settings_.channel_core))
    log(LogLevel::warn, "the thread of device requests cannot run on core " + std::to_string(settings_.channel_core) +
                            " (MPIX_CHANNEL_CORE): it runs on any");
  Patience idle(service_bell(words_.host()), polling_), busy(service_bell(words_.host()), polling_, true);
  Clock::time_point quiet_since = Clock::now();
  for (std::uint32_t looks = 1; !stop_; ++looks) {
    if (callers_ > 0) sched_yield();
    if (look_once()) {
      idle.refresh();
      busy.refresh();
      quiet_since = {};
      continue;
    }
    if (is_on_host_) {
      const bool waits_for_mpi = !active_.empty();  // only this thread changes it
      (waits_for_mpi ? idle : busy).refresh();
      (waits_for_mpi ? busy : idle).pause();
      continue;
    }
    if (spins_ && looks % 64 != 0) {
      relax();
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (quiet_since == Clock::time_point{}) quiet_since = now;
    const Clock::duration nap = std::min<Clock::duration>((now - quiet_since) / naps_of_quiet, longest_nap);
    if (nap < shortest_nap)
      sched_yield();
    else
      std::this_thread::sleep_for(nap);
  }
  serving_ = std::thread::id{};
}

/// True: something has moved.
bool DeviceRequests::look_once() noexcept {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (!cause_.empty()) return false;
  try {
    return round();
  } catch (const std::exception& error) {
    break_for(error.what());
  } catch (...) {  // MPI has called an error handler of the program
    break_for("an error handler has thrown what is no std::exception");
  }
  return false;
}

bool DeviceRequests::round() {
  bool moved = false;
  for (const std::size_t place : given_out_) {
    const Place& mine = places_[place];
    if (mine.is_active) continue;
    const std::uint64_t up = load_acquire(words_.up(place));
    if (up == mine.number) continue;
    if (up != mine.number + 1) {
      break_for(name_of(place) + ": something has written over its words");
      return false;
    }
    start(place);
    if (!cause_.empty()) return false;
    moved = true;
  }
  for (const std::size_t place : active_) {
    if (places_[place].partitions.empty()) continue;
    moved = serve_partitions(place) || moved;
    if (!cause_.empty()) return false;
  }
  return (!active_.empty() && test_active()) || moved;
}

void DeviceRequests::failed(const std::string& call, std::size_t place, int code) {
  break_for(call + " of " + name_of(place) + " has failed: " + text_of(code));
}

void DeviceRequests::start(std::size_t place) {
  Place& mine = places_[place];
  mine.partitions.resize(static_cast<std::size_t>(mine.made.partitions));
  std::iota(mine.partitions.begin(), mine.partitions.end(), 0);
  active_.reserve(active_.size() + 1);
  requests_.reserve(active_.size() + 1);
  if (mine.made.peer == MPI_PROC_NULL) {  // nothing moves; and MPICH's MPI_Testsome does not tell of such a request
    complete(place);
    if (is_on_host_) ring(kernels_bell(words_.host()));
    return;
  }
  const MPI_Request before = mine.request;
  const int started = PMPI_Start(&mine.request);
  if (started != MPI_SUCCESS) return failed("MPI_Start", place, started);
  if (mine.request != before) return break_for(name_of(place) + ": MPI_Start has given it another handle");
  mine.is_active = true;
  active_.push_back(place);
  requests_.push_back(mine.request);
}

bool DeviceRequests::test_active() {
  const std::size_t before = active_.size();
  in_turns_.look([this] { return active_.size(); }, [this](std::size_t first) { return test_active_from(first); });
  return active_.size() < before;
}

std::size_t DeviceRequests::test_active_from(std::size_t first) {
  const std::size_t end = std::min(active_.size(), first + RequestsInTurns::most_in_a_call);
  if (first == end || !cause_.empty()) return end;
  std::array<int, RequestsInTurns::most_in_a_call> indices;
  std::array<MPI_Status, RequestsInTurns::most_in_a_call> statuses;
  // Looked at after a success too, which writes this or leaves it as it was.
  for (MPI_Status& status : statuses) status.MPI_ERROR = MPI_SUCCESS;
  int ended = 0;
  const int tested =
      PMPI_Testsome(static_cast<int>(end - first), &requests_[first], &ended, indices.data(), statuses.data());
  if (ended == MPI_UNDEFINED) ended = 0;
  const auto place_of = [&](std::size_t i) { return active_[first + static_cast<std::size_t>(indices[i])]; };
  const bool by_request = tested == MPI_SUCCESS || tested == MPI_ERR_IN_STATUS;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ended); ++i)
    if (const int error = statuses[i].MPI_ERROR; by_request && error != MPI_SUCCESS)
      failed("MPI_Testsome", place_of(i), error);
  if (cause_.empty() && tested != MPI_SUCCESS) break_for("MPI_Testsome has failed: " + text_of(tested));
  if (!cause_.empty() || ended == 0) return end;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ended); ++i) complete(place_of(i));
  std::size_t left = 0;
  for (const std::size_t place : active_) {
    if (!places_[place].is_active) continue;
    active_[left] = place;
    requests_[left++] = places_[place].request;
  }
  active_.resize(left);
  requests_.resize(left);
  if (is_on_host_) ring(kernels_bell(words_.host()));
  return end - static_cast<std::size_t>(ended);
}

void DeviceRequests::complete(std::size_t place) {
  Place& mine = places_[place];
  ++mine.number;
  mine.is_active = false;
  if (!mine.made.sends)
    for (const int p : mine.partitions)
      store_release(words_.partition(place, static_cast<std::size_t>(p)), mine.number);
  mine.partitions.clear();
  store_release(words_.down(place), mine.number);
}

/// Tells MPI which are ready, or kernels which have arrived. True: some.
bool DeviceRequests::serve_partitions(std::size_t place) {
#ifdef HAVE_MPI_PSEND_INIT
  Place& mine = places_[place];
  const std::uint64_t number = mine.number + 1;
  const std::size_t before = mine.partitions.size();
  int result = MPI_SUCCESS;
  std::size_t asked = 0;
  const auto is_over = [&](int p) {
    if (result != MPI_SUCCESS) return false;
    if (mine.made.sends) {
      if (load_acquire(words_.partition(place, static_cast<std::size_t>(p))) != number) return false;
      result = PMPI_Pready(p, mine.request);
      return result == MPI_SUCCESS;
    }
    int arrived = 0;
    if (asked++ >= most_partitions_asked_for) return false;
    result = PMPI_Parrived(mine.request, p, &arrived);
    if (result == MPI_SUCCESS && arrived) store_release(words_.partition(place, static_cast<std::size_t>(p)), number);
    return result == MPI_SUCCESS && arrived != 0;
  };
  mine.partitions.erase(std::remove_if(mine.partitions.begin(), mine.partitions.end(), is_over), mine.partitions.end());
  if (result != MPI_SUCCESS) failed(mine.made.sends ? "MPI_Pready" : "MPI_Parrived", place, result);
  const bool moved = mine.partitions.size() != before;
  if (moved && !mine.made.sends && is_on_host_) ring(kernels_bell(words_.host()));
  if (!mine.made.sends && !mine.partitions.empty())  // others, the next time
    std::rotate(mine.partitions.begin(),
                mine.partitions.begin() +
                    static_cast<std::ptrdiff_t>(std::min(most_partitions_asked_for, mine.partitions.size() - 1)),
                mine.partitions.end());
  return moved;
#else
  (void)place;
  return false;
#endif
}

}  // namespace mpix
