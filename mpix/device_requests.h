// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "device/host/bell.h"
#include "mpi_library.h"
#include "notify/reports.h"
#include "notify/request_words.h"
#include "persistent.h"
#include "requests_in_turns.h"

namespace mpix {

/// The persistent requests that kernels start and complete, of the whole process, and the thread that calls MPI for
/// them. It lives while there are any.
///
/// | a request is | begins with                        | its thread                                        |
/// |--------------|------------------------------------|---------------------------------------------------|
/// | inactive     | give_out; its completion           | looks whether a kernel has started it             |
/// | active       | PMPI_Start, when `up` has grown    | PMPI_Testsome, in turns; partitions               |
/// | free         | take_back                          | nothing                                           |
///
/// How often it looks: on a GPU nobody rings, so the thread looks all the time, and naps for a thousandth of the time
/// that nothing has happened for when that is long enough for a nap: a start after a second of rest is late by less
/// than a millisecond, one after ten milliseconds by nothing. On hosts it sleeps until a kernel rings; while requests
/// are active it looks, and naps when they take long, as whoever waits for a network does.
///
/// MPI may call the program's error handler out of this thread; calls of give_out and take_back are refused there.
class DeviceRequests {
 public:
  DeviceRequests(Device& device, const Settings& settings, int local_ranks);
  ~DeviceRequests();
  DeviceRequests(const DeviceRequests&) = delete;
  DeviceRequests& operator=(const DeviceRequests&) = delete;

  MPIX_Drequest give_out(MPI_Request request, const Persistent& made);
  void take_back(const MPIX_Drequest& drequest);
  std::size_t given_out() const;

  /// Nobody waits any more, and MPI is called no more.
  void end_for(const std::string& cause);

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    MPI_Request request = MPI_REQUEST_NULL;
    Persistent made;
    std::uint64_t number = 0;     ///< of the last start that is complete
    std::vector<int> partitions;  ///< of an active one: not ready yet, or not arrived
    bool is_given_out = false, is_active = false;
  };
  /// The thread lets those in that wait for its mutex.
  class Turn {
   public:
    explicit Turn(const DeviceRequests& all);

   private:
    std::unique_lock<std::mutex> hold_;
  };

  void require_caller() const;
  void require_whole() const;
  std::size_t free_place();
  void start_thread_if_none();
  void stop_thread();
  void break_for(const std::string& cause);
  std::string name_of(std::size_t place) const;
  std::string waiting_text(std::uint64_t note, std::size_t place);

  void work() noexcept;
  bool look_once() noexcept;
  bool round();
  void start(std::size_t place);
  bool test_active();
  std::size_t test_active_from(std::size_t first);
  void complete(std::size_t place);
  bool serve_partitions(std::size_t place);
  void nap(Clock::time_point quiet_since) const;
  void failed(const std::string& call, std::size_t place, int code);

  const bool is_on_host_;  ///< kernels are threads, and ring
  const bool spins_;       ///< without giving the core away
  const Polling polling_;
  const Settings& settings_;
  RequestWords words_;

  std::mutex calls_;  ///< one give_out, take_back or end_for at a time; in front of mutex_
  std::thread thread_;
  std::vector<std::unique_ptr<WaitReports>> reports_;  ///< by block of words

  mutable std::atomic<int> callers_{0};
  mutable std::mutex mutex_;  ///< of what follows; held while MPI is called
  std::vector<Place> places_;
  std::vector<std::size_t> given_out_;
  std::vector<std::size_t> active_;
  std::vector<MPI_Request> requests_;  ///< of the active ones, in the same order
  RequestsInTurns in_turns_;
  std::string cause_;  ///< empty: not broken

  std::atomic<std::thread::id> serving_{};
  std::atomic<bool> stop_{false};
};

/// Before MPI_Finalize: kernels wait no more, and MPI is called no more for those that are there.
void end_device_requests() noexcept;
/// Some were not freed.
bool any_device_request_alive();

}  // namespace mpix
