// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Kernel-triggered MPI: include/mpix_requests.h has the contract, and mpix_device/requests.h the words.
#include "device_requests.h"

#include <algorithm>
#include <utility>

#include "base/cores.h"
#include "base/log.h"
#include "base/thread.h"
#include "errors.h"
#include "handles.h"
#include "notify/bells.h"

namespace mpix {

DeviceRequests::Turn::Turn(const DeviceRequests& all) {
  ++all.callers_;
  hold_ = std::unique_lock<std::mutex>(all.mutex_);
  --all.callers_;
}

DeviceRequests::DeviceRequests(Device& device, const Settings& settings, int local_ranks)
    : is_on_host_(device.is_host()),
      spins_(has_cores_to_spare(local_ranks)),
      polling_(polling_for(settings, local_ranks)),
      settings_(settings),
      words_(device, is_on_host_ ? hooks_for_threads(polling_) : nullptr) {}

DeviceRequests::~DeviceRequests() {
  reports_.clear();
  stop_thread();
}

// ---- The program's calls -----------------------------------------------------------------------------

void DeviceRequests::require_caller() const {
  refuse_in_child("device request");
  if (serving_ == std::this_thread::get_id())
    throw Error(Fault::other, "this is an error handler that was called for a device request");
}

void DeviceRequests::require_whole() const {
  if (!cause_.empty()) throw Error(Fault::other, "device requests are broken: " + cause_);
}

std::size_t DeviceRequests::given_out() const {
  const Turn turn(*this);
  return given_out_.size();
}

std::size_t DeviceRequests::free_place() {
  for (std::size_t place = 0; place < places_.size(); ++place)
    if (!places_[place].is_given_out) return place;
  const std::size_t first = places_.size();
  words_.grow();
  places_.resize(words_.places());
  return first;
}

MPIX_Drequest DeviceRequests::give_out(MPI_Request request, const Persistent& made) {
  require_caller();
  const std::lock_guard<std::mutex> one(calls_);
  MPIX_Drequest given{};
  {
    const Turn turn(*this);
    require_whole();
    given_out_.reserve(given_out_.size() + 1);
    const std::size_t place = free_place();
    given = words_.give_out(place, static_cast<std::uint32_t>(made.partitions), made.sends);
    if (!bind_persistent(request, static_cast<int>(place))) {
      words_.take_back(place);
      throw Error(Fault::request, "the request has a device request already");
    }
    Place& mine = places_[place];
    mine.request = request;
    mine.made = made;
    mine.number = load_acquire(words_.up(place));
    mine.is_given_out = true;
    mine.is_active = false;
    given_out_.push_back(place);
  }
  try {
    while (reports_.size() * RequestWords::block_places < words_.places()) {
      const std::size_t first = reports_.size() * RequestWords::block_places;
      reports_.push_back(std::make_unique<WaitReports>(
          WaitReports::Waits{
              words_.note(first), RequestWords::block_places, "device requests",
              [this, first](std::uint64_t note, std::size_t index) { return waiting_text(note, first + index); }},
          "kernel-triggered MPI", settings_, [this](const std::string& why) {
            const Turn turn(*this);
            break_for(why);
          }));
    }
    start_thread_if_none();
  } catch (...) {
    const Turn turn(*this);
    unbind_persistent(request);
    words_.take_back(given.number);
    places_[given.number].is_given_out = false;
    given_out_.pop_back();
    throw;
  }
  ring(service_bell(words_.host()));
  return given;
}

void DeviceRequests::take_back(const MPIX_Drequest& drequest) {
  require_caller();
  const std::lock_guard<std::mutex> one(calls_);
  bool is_last = false;
  {
    const Turn turn(*this);
    if (!words_.is_current(drequest)) throw Error(Fault::request, "no such device request, or it was freed");
    const std::size_t number = drequest.number;
    Place& mine = places_[number];
    if (cause_.empty() && (mine.is_active || load_acquire(words_.up(number)) != mine.number))
      throw Error(Fault::other, name_of(number) + " is active: a kernel has started it, and MPI has not completed it");
    words_.take_back(number);
    unbind_persistent(mine.request);
    mine = Place{};
    given_out_.erase(std::find(given_out_.begin(), given_out_.end(), number));
    is_last = given_out_.empty();
  }
  if (!is_last) return;
  stop_thread();
  const Turn turn(*this);
  active_.clear();
  requests_.clear();
  if (std::exchange(cause_, "").empty()) return;
  store_release(&words_.host()->released, 0);
}

void DeviceRequests::end_for(const std::string& cause) {
  const std::lock_guard<std::mutex> one(calls_);
  {
    const Turn turn(*this);
    break_for(cause);
  }
  reports_.clear();
  stop_thread();
}

/// Under mutex_. The first cause counts.
void DeviceRequests::break_for(const std::string& cause) {
  if (!cause_.empty()) return;
  cause_ = cause;
  log(LogLevel::error, "device requests are broken: " + cause + "; kernels wait for them no more");
  store_release(&words_.host()->released, 1);
  if (is_on_host_) ring(kernels_bell(words_.host()));
}

std::string DeviceRequests::name_of(std::size_t place) const {
  return "device request " + std::to_string(place) + " (" + places_[place].made.text() + ")";
}

std::string DeviceRequests::waiting_text(std::uint64_t note, std::size_t place) {
  const auto [number, block] = dev::BlockNote::unpacked(note);
  const Turn turn(*this);
  const Place& waits = places_[place];
  if (!waits.is_given_out) return "device request " + std::to_string(place) + " is awaited by a kernel, and was freed";
  const std::string who = block == dev::BlockNote::no_block ? "" : "block " + std::to_string(block) + " waits: ";
  return who + name_of(place) +
         (waits.number >= number ? " is complete, and a kernel has not seen it"
          : waits.is_active      ? " was started by a kernel, and MPI has not completed it"
                                 : " was started by a kernel, and no thread has seen it");
}

// ---- The thread --------------------------------------------------------------------------------------

void DeviceRequests::start_thread_if_none() {
  if (thread_.joinable()) return;
  stop_ = false;
  thread_ = start_thread("device requests", [this] { work(); });
}

void DeviceRequests::stop_thread() {
  stop_ = true;
  ring(service_bell(words_.host()));
  if (thread_.joinable()) thread_.join();
}

}  // namespace mpix
