// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/messages/receives.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "mpix/messages/buffers.h"

namespace mpix {

namespace {
constexpr std::size_t least_places = 4, most_places = 32;
}

MessageReceives::MessageReceives(const MessageWorld& world, MessageRequests& requests)
    : world_(world), requests_(requests), most_(most_places) {
  places_.reserve(most_places);
}

void MessageReceives::begin() {
  while (places_.size() < least_places) {
    const int code = add_place();
    if (code == MPI_SUCCESS) continue;
    throw Error(Fault::other, "MPI_Irecv: " + error_text(code));
  }
}

int MessageReceives::add_place() {
  Places added(1);
  Place& place = added.front();
  place.number = places_.size();
  place.packet.reset(new char[packet_bytes]);
  requests_.add_receive();
  const int code = receive(place);
  if (code != MPI_SUCCESS) {
    requests_.drop_last_receive();
    return code;
  }
  places_.push_back(&place);
  posted_.splice(posted_.end(), added);
  return code;
}

int MessageReceives::receive(Place& place) {
  place.has_come = false;
  MPI_Request& request = requests_.receive(place.number);
  const int code = PMPI_Irecv(place.packet.get(), static_cast<int>(packet_bytes), MPI_BYTE, MPI_ANY_SOURCE, packet_tag,
                              world_.comm(), &request);
  if (code != MPI_SUCCESS) request = MPI_REQUEST_NULL;
  return code;
}

void MessageReceives::post(Place& place) {
  const int code = receive(place);
  if (code != MPI_SUCCESS) fail("MPI_Irecv: " + error_text(code));
}

void MessageReceives::fail(const std::string& text) {
  if (!failure_.empty()) return;
  try {
    failure_ = "messages of other nodes are received no more: " + text;
    log(LogLevel::error, failure_);
  } catch (const std::bad_alloc&) {
    failure_ = "out of memory";  // as short as needs none
  }
}

// ---- packets -----------------------------------------------------------------------------------------

void MessageReceives::take(const MessageRequests::Result& tested) {
  if (tested.failure != MPI_SUCCESS) fail(error_text(tested.failure));
  const std::size_t posted = posted_.size();
  for (const MessageRequests::Ended& ended : tested.receives) note(ended);
  while (!posted_.empty() && posted_.front().has_come && failure_.empty()) accept();
  continue_blocked();
  // What finds no receive is copied once more by MPI; and packets that wait for large data keep their places.
  const bool are_few = 2 * tested.receives.size() > posted || posted_.size() < least_places;
  for (std::size_t more = are_few ? least_places : 0; more > 0 && places_.size() < most_ && failure_.empty(); --more)
    if (add_place() != MPI_SUCCESS) most_ = places_.size();
}

void MessageReceives::note(const MessageRequests::Ended& ended) {
  if (ended.error != MPI_SUCCESS)
    return fail("a message of " + rank_text(ended.status.MPI_SOURCE) + ": " + error_text(ended.error));
  Place& place = *places_[ended.place];
  int bytes = 0;
  PMPI_Get_count(&ended.status, MPI_BYTE, &bytes);
  place.has_come = true;
  place.bytes = static_cast<std::size_t>(bytes);
  place.source = ended.status.MPI_SOURCE;
}

/// The oldest place has a packet.
void MessageReceives::accept() {
  const auto place = posted_.begin();
  ++packets_;
  place->reader = PacketReader(place->packet.get(), place->bytes);
  const auto blocked = blocked_.empty() ? blocked_.end() : blocked_.find(place->source);
  if (blocked != blocked_.end()) {
    blocked->second.splice(blocked->second.end(), posted_, place);
  } else if (apply(*place)) {
    post(*place);
    posted_.splice(posted_.end(), posted_, place);
  } else {
    Places& behind = blocked_[place->source];
    behind.splice(behind.end(), posted_, place);
  }
}

/// False: it waits for large data.
bool MessageReceives::apply(Place& place) {
  if (place.has_signal) {
    apply_signal(place, place.signal);
    place.has_signal = false;
  }
  PacketRecord record;
  while (place.reader.next(record)) {
    switch (record.kind) {
      case PacketRecord::Kind::write:
        if (!exposed_.write(record, place.reader.data())) drop(place, record);
        break;
      case PacketRecord::Kind::write_apart:
        receive_large(place, record);
        break;
      case PacketRecord::Kind::add:
      case PacketRecord::Kind::set:
        if (!place.large.empty()) {
          place.signal = record;
          place.has_signal = true;
          return false;
        }
        apply_signal(place, record);
        break;
    }
  }
  if (!place.reader.at_end())
    log(LogLevel::warn, "a message of " + rank_text(place.source) + " makes no sense from some point on");
  return place.large.empty();
}

void MessageReceives::apply_signal(const Place& place, const PacketRecord& record) {
  // Who polls it must not believe that the data are there.
  if (!place.is_damaged && !exposed_.signal(record)) drop(place, record);
}

/// For memory that is not exposed, or no more. Nobody waits for the last posts of a window, so signals may come late;
/// data may not.
void MessageReceives::drop(const Place& place, const PacketRecord& record) {
  const bool is_signal = record.kind == PacketRecord::Kind::add || record.kind == PacketRecord::Kind::set;
  const bool warns = !is_signal && !has_warned_;
  if (warns) has_warned_ = true;  // once: there may be many
  log(warns ? LogLevel::warn : LogLevel::debug,
      rank_text(place.source) +
          (is_signal ? " signals to" : " writes " + std::to_string(record.amount) + " bytes into") +
          " memory that is not a window's, or no more: dropped");
}

// ---- large data --------------------------------------------------------------------------------------

void MessageReceives::receive_large(Place& place, const PacketRecord& record) {
  char* to = exposed_.find(record.key, record.offset, record.amount);
  if (!to) {
    drop(place, record);
    place.nowhere.emplace_back(new char[record.amount]);
    to = place.nowhere.back().get();
  }
  in_pieces(to, record.amount, [&](char* piece, std::size_t bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        PMPI_Irecv(piece, static_cast<int>(bytes), MPI_BYTE, place.source, data_tag, world_.comm(), &request);
    if (code != MPI_SUCCESS) {
      fail("MPI_Irecv of data of " + rank_text(place.source) + ": " + error_text(code));
      place.is_damaged = true;
      return false;
    }
    place.large.push_back(request);
    place.keys.push_back(record.key);
    return true;
  });
}

bool MessageReceives::large_have_come(Place& place) {
  int done = 0;
  statuses_.resize(place.large.size());
  const int code = PMPI_Testall(static_cast<int>(place.large.size()), place.large.data(), &done, statuses_.data());
  if (code != MPI_SUCCESS) {
    log(LogLevel::error, "data of " + rank_text(place.source) + " have not come: " + error_text(code));
    place.is_damaged = true;
    // With an error MPI says of each request whether it is over.
    const auto pending = [&](std::size_t i) { return place.large[i] != MPI_REQUEST_NULL; };
    std::size_t kept = 0;
    for (std::size_t i = 0; i < place.large.size(); ++i) {
      if (!pending(i)) continue;
      place.large[kept] = place.large[i];
      place.keys[kept++] = place.keys[i];
    }
    place.large.resize(kept);
    place.keys.resize(kept);
    done = kept == 0;
  }
  if (!done) return false;
  place.large.clear();
  place.keys.clear();
  place.nowhere.clear();
  return true;
}

void MessageReceives::continue_blocked() {
  for (auto at = blocked_.begin(); at != blocked_.end();) {
    Places& places = at->second;
    while (!places.empty()) {
      Place& first = places.front();
      if (!first.large.empty() && !large_have_come(first)) break;
      if (!apply(first)) break;
      first.is_damaged = false;
      post(first);
      posted_.splice(posted_.end(), places, places.begin());
    }
    at = places.empty() ? blocked_.erase(at) : std::next(at);
  }
}

// ---- ends --------------------------------------------------------------------------------------------

bool MessageReceives::hide(std::uint64_t key) {
  exposed_.remove(key);
  for (const auto& origin : blocked_)
    for (const Place& place : origin.second)
      if (std::find(place.keys.begin(), place.keys.end(), key) != place.keys.end()) return true;
  return false;
}

void MessageReceives::cancel() {
  for (Place& place : posted_) {
    MPI_Request& request = requests_.receive(place.number);
    if (request == MPI_REQUEST_NULL) continue;
    PMPI_Cancel(&request);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  posted_.clear();
}

}  // namespace mpix
