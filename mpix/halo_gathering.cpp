// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "halo_gathering.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "errors.h"

namespace mpix {
namespace {

/// By rank, what goes there or comes from there and may be gathered; of several, or it goes by itself.
using ByPeer = std::map<int, std::vector<std::uint32_t>>;

void drop_single(ByPeer& all) {
  for (auto one = all.begin(); one != all.end();) one = one->second.size() < 2 ? all.erase(one) : std::next(one);
}

}  // namespace

HaloGathering::HaloGathering(MPI_Comm comm, const MPIX_Halo_message* messages, const Halo& halo, const HaloTags& tags)
    : comm_(comm),
      cargo_(halo.cargo()),
      buffers_(halo.buffers()),
      send_to_(cargo_.size(), none),
      receive_from_(cargo_.size(), none),
      is_packed_(cargo_.size()),
      receiving_(cargo_.size()) {
  ByPeer sent, received;
  for (std::uint32_t k = 0; k < cargo_.size(); ++k) {
    const int peer = messages[cargo_[k].given].peer;
    if (halo.sends_by_mpi(k) && tags.gathers_send[k]) sent[peer].push_back(k);
    if (halo.receives_by_mpi(k) && tags.gathers_recv[k]) received[peer].push_back(k);
  }
  drop_single(sent);
  drop_single(received);
  // The tag is that of the first of them there, which no other message has.
  for (const auto& [peer, all] : sent) {
    for (const std::uint32_t k : all) send_to_[k] = destinations_.size();
    Destination to;
    to.peer = peer;
    to.tag = tags.send[all.front()];
    to.cargo = all.size();
    destinations_.push_back(std::move(to));
  }
  for (const auto& [peer, all] : received) {
    Source from;
    from.peer = peer;
    std::size_t bytes = head_bytes(all.size());
    for (const std::uint32_t k : all) {
      receive_from_[k] = sources_.size();
      from.cargo.emplace_back(static_cast<std::uint32_t>(tags.recv[k]), k);
      bytes += rounded(cargo_[k].recv_bytes);
    }
    std::sort(from.cargo.begin(), from.cargo.end());
    from.tag = static_cast<int>(from.cargo.front().first);
    from.text.resize(bytes);
    sources_.push_back(std::move(from));
  }
  for (Source& from : sources_) {
    check(PMPI_Recv_init(from.text.data(), static_cast<int>(from.text.size()), MPI_BYTE, from.peer, from.tag, comm,
                         &from.request));
    start(from);
  }
}

HaloGathering::~HaloGathering() {
  for (Source& from : sources_)
    if (from.request != MPI_REQUEST_NULL) PMPI_Request_free(&from.request);
}

void HaloGathering::start_send(std::uint32_t cargo, std::uint32_t half) {
  Destination& to = destinations_[send_to_[cargo]];
  if (is_packed_[cargo]) send(to);
  is_packed_[cargo] = true;
  to.packed.push_back(Over{cargo, half, true});
}

void HaloGathering::start_receive(std::uint32_t cargo, std::uint32_t half) {
  Receiving& of = receiving_[cargo];
  of.wanted.push_back(half);
  if (of.kept.empty()) return;
  const std::vector<char> content = std::move(of.kept.front());
  of.kept.pop_front();
  receive(cargo, content.data());
}

void HaloGathering::look(bool only_sends, std::vector<Over>* over) {
  for (Destination& to : destinations_) {
    const bool grows = to.packed.size() > to.seen_packed && to.packed.size() < to.cargo;
    if (!to.packed.empty() && !grows) send(to);
    to.seen_packed = to.packed.size();
    while (!to.under_way.empty()) {
      Sending& first = to.under_way.front();
      int is_over = 0;
      require_of_mpi(PMPI_Test(&first.request, &is_over, MPI_STATUS_IGNORE), "MPI_Test");
      if (!is_over) break;
      over->insert(over->end(), first.contents.begin(), first.contents.end());
      to.spare.push_back(std::move(first.text));
      to.under_way.pop_front();
    }
  }
  // Always: a send may be over when it is received, and a second message from there is when the first has been taken.
  for (Source& from : sources_)
    for (;;) {
      int is_over = 0, bytes = 0;
      MPI_Status status;
      require_of_mpi(PMPI_Test(&from.request, &is_over, &status), "MPI_Test");
      if (!is_over) break;
      from.is_receiving = false;
      require_of_mpi(PMPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      take(from, static_cast<std::size_t>(bytes));
      start(from);
    }
  if (only_sends) return;
  over->insert(over->end(), received_.begin(), received_.end());
  received_.clear();
}

void HaloGathering::send(Destination& to) {
  Sending one;
  if (!to.spare.empty()) {
    one.text = std::move(to.spare.back());
    to.spare.pop_back();
  }
  one.contents = std::exchange(to.packed, {});
  to.seen_packed = 0;
  const std::size_t count = one.contents.size();
  std::size_t bytes = head_bytes(count);
  for (const Over& of : one.contents) bytes += rounded(cargo_[of.message].send_bytes);
  one.text.resize(bytes);
  auto* const head = reinterpret_cast<std::uint32_t*>(one.text.data());
  head[0] = static_cast<std::uint32_t>(count);
  char* content = one.text.data() + head_bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Over& of = one.contents[i];
    head[1 + i] = of.message;
    is_packed_[of.message] = false;
    std::memcpy(content, buffers_[of.message].send[of.half], cargo_[of.message].send_bytes);
    content += rounded(cargo_[of.message].send_bytes);
  }
  to.under_way.push_back(std::move(one));
  Sending& last = to.under_way.back();
  require_of_mpi(PMPI_Isend(last.text.data(), static_cast<int>(bytes), MPI_BYTE, to.peer, to.tag, comm_, &last.request),
                 "MPI_Isend");
  ++sends_;
}

void HaloGathering::start(Source& from) {
  require_of_mpi(PMPI_Start(&from.request), "MPI_Start");
  from.is_receiving = true;
}

void HaloGathering::take(Source& from, std::size_t bytes) {
  const auto* const head = reinterpret_cast<const std::uint32_t*>(from.text.data());
  const std::size_t count = bytes < sizeof *head ? SIZE_MAX : head[0];
  std::size_t at = count <= from.cargo.size() ? head_bytes(count) : SIZE_MAX;
  for (std::size_t i = 0; i < count && at <= bytes; ++i) {
    const auto known = std::lower_bound(from.cargo.begin(), from.cargo.end(), std::pair(head[1 + i], 0u));
    const bool is_known = known != from.cargo.end() && known->first == head[1 + i];
    const std::size_t end = is_known ? at + rounded(cargo_[known->second].recv_bytes) : SIZE_MAX;
    if (end <= bytes) receive(known->second, from.text.data() + at);
    at = end;
  }
  if (at != bytes)
    throw Error(Fault::truncation, "a message of rank " + std::to_string(from.peer) + " with several of the halo in " +
                                       std::to_string(bytes) + " bytes is not what that rank announced");
}

void HaloGathering::receive(std::uint32_t cargo, const char* content) {
  Receiving& of = receiving_[cargo];
  const std::size_t bytes = cargo_[cargo].recv_bytes;
  if (of.wanted.empty()) {
    of.kept.emplace_back(content, content + bytes);
    return;
  }
  const std::uint32_t half = of.wanted.front();
  of.wanted.pop_front();
  std::memcpy(buffers_[cargo].recv[half], content, bytes);
  received_.push_back(Over{cargo, half, false});
}

void HaloGathering::cancel(std::vector<MPI_Request*>* sends) noexcept {
  for (Destination& to : destinations_)
    for (Sending& one : to.under_way) sends->push_back(&one.request);
  for (Source& from : sources_) {
    if (from.is_receiving) cancel_receive(from.request);
    from.is_receiving = false;
  }
}

}  // namespace mpix
