// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/messages/receives.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "mpix/errors.h"
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
    throw Error(Fault::other, "MPI_Irecv: " + text_of(code));
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
  if (code != MPI_SUCCESS) fail("MPI_Irecv: " + text_of(code));
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
  if (tested.failure != MPI_SUCCESS) fail(text_of(tested.failure));
  const std::size_t posted = posted_.size();
  for (const MessageRequests::Ended& ended : tested.receives) note(ended);
  while (!posted_.empty() && posted_.front().has_come && failure_.empty()) accept();
  continue_blocked();
  if (places_.empty()) return;  // nobody has asked for any yet: a window without stream epochs looks, too, at its end
  // What finds no receive is copied once more by MPI; and packets that wait for large data keep their places.
  const bool are_few = 2 * tested.receives.size() > posted || posted_.size() < least_places;
  for (std::size_t more = are_few ? least_places : 0; more > 0 && places_.size() < most_ && failure_.empty(); --more)
    if (add_place() != MPI_SUCCESS) most_ = places_.size();
}

void MessageReceives::note(const MessageRequests::Ended& ended) {
  if (ended.error != MPI_SUCCESS)
    return fail("a message of " + rank_text(ended.status.MPI_SOURCE) + ": " + text_of(ended.error));
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
  expect_large(*place);
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
        ++place.large_records;
        break;
      case PacketRecord::Kind::add:
      case PacketRecord::Kind::set:
        if (!large_have_come(place)) {
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
  if (!large_have_come(place)) return false;
  place.large.clear();
  place.keys.clear();
  place.large_end.clear();
  place.nowhere.clear();
  place.large_records = place.large_done = 0;
  place.is_damaged = false;
  return true;
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
  log(warns ? LogLevel::warn : LogLevel::debug, (is_signal ? "a signal" : std::to_string(record.amount) + " bytes") +
                                                    " of " + rank_text(place.source) +
                                                    " came for a window that is not there any more: dropped");
}

// ---- large data --------------------------------------------------------------------------------------

void MessageReceives::expect_large(Place& place) {
  PacketReader reader = place.reader;
  PacketRecord record;
  while (reader.next(record)) {
    if (record.kind != PacketRecord::Kind::write_apart) continue;
    receive_large(place, record);
    place.large_end.push_back(place.large.size());
  }
}

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
      fail("MPI_Irecv of data of " + rank_text(place.source) + ": " + text_of(code));
      place.is_damaged = true;
      return false;
    }
    place.large.push_back(request);
    place.keys.push_back(record.key);
    return true;
  });
}

/// Of the records that were applied.
std::size_t MessageReceives::large_in_front(const Place& place) {
  return place.large_records == 0 ? 0 : place.large_end[place.large_records - 1];
}

/// Those of the records that were applied.
bool MessageReceives::large_have_come(Place& place) {
  const std::size_t missing = large_in_front(place) - place.large_done;
  if (missing == 0) return true;
  MPI_Request* const first = place.large.data() + place.large_done;
  int done = 0;
  statuses_.resize(missing);
  const int code = PMPI_Testall(static_cast<int>(missing), first, &done, statuses_.data());
  if (code != MPI_SUCCESS) {
    const auto failed = std::find_if(statuses_.begin(), statuses_.end(), [](const MPI_Status& status) {
      return status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING;
    });
    const bool is_told = is_of_class(code, MPI_ERR_IN_STATUS) && failed != statuses_.end();
    log(LogLevel::error,
        "data of " + rank_text(place.source) + " have not come: " + text_of(is_told ? failed->MPI_ERROR : code));
    place.is_damaged = true;
    // With an error MPI says of each request whether it is over.
    done = std::all_of(first, first + missing, [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  }
  if (done) place.large_done += missing;
  return done;
}

void MessageReceives::continue_blocked() {
  for (auto at = blocked_.begin(); at != blocked_.end();) {
    Places& places = at->second;
    while (!places.empty()) {
      Place& first = places.front();
      if (!large_have_come(first) || !apply(first)) break;
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
      if (std::find(place.keys.begin() + static_cast<std::ptrdiff_t>(place.large_done), place.keys.end(), key) !=
          place.keys.end())
        return true;
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
