// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "halo_ends.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/awake_clock.h"
#include "errors.h"

namespace mpix {
namespace {

/// What a rank says of a message to the one that receives it.
struct Announcement {
  unsigned long long tag;         ///< the program's
  unsigned long long bytes;       ///< in all
  unsigned long long first_part;  ///< number of its first chunk, which is the tag of MPI's message
  unsigned long long chunk;       ///< bytes of a chunk
  unsigned long long gather;      ///< bytes of the longest message that may go with others; 0: none may
  HaloPlace place;
};
constexpr std::size_t words_each = sizeof(Announcement) / sizeof(unsigned long long);
using ByPeer = std::map<int, std::vector<Announcement>>;

/// A round of what several ranks do for each other; the thread of a rank that waits naps.
class Rounds {
 public:
  void again() {
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(2 * nap_, std::chrono::microseconds(1000));
  }
  void moved() { nap_ = std::chrono::microseconds(1); }

 private:
  std::chrono::microseconds nap_{1};
};

/// Announcements for this rank, by sender. Nobody knows who has some for it, so it takes all that come, until all
/// ranks' have been taken: a synchronous send is over when it has, and a barrier when all of them are. So a message
/// that one end alone knows holds up nobody.
ByPeer exchanged(MPI_Comm comm, const ByPeer& outgoing) {
  constexpr int tag = 0;
  ByPeer incoming;
  std::vector<MPI_Request> sends;
  for (const auto& [peer, all] : outgoing) {
    sends.emplace_back();
    check(PMPI_Issend(all.data(), static_cast<int>(all.size() * words_each), MPI_UNSIGNED_LONG_LONG, peer, tag, comm,
                      &sends.back()));
  }
  MPI_Request barrier = MPI_REQUEST_NULL;
  bool is_in_barrier = false;
  Rounds rounds;
  for (;;) {
    int is_there = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(PMPI_Improbe(MPI_ANY_SOURCE, tag, comm, &is_there, &message, &status));
    if (is_there) {
      int words = 0;
      check(PMPI_Get_count(&status, MPI_UNSIGNED_LONG_LONG, &words));
      if (words == MPI_UNDEFINED || static_cast<std::size_t>(words) % words_each != 0)
        throw Error(Fault::other, "rank " + std::to_string(status.MPI_SOURCE) + " has sent something else");
      std::vector<Announcement>& all = incoming[status.MPI_SOURCE];
      all.resize(static_cast<std::size_t>(words) / words_each);
      check(PMPI_Mrecv(all.data(), words, MPI_UNSIGNED_LONG_LONG, &message, MPI_STATUS_IGNORE));
      rounds.moved();
      continue;
    }
    int is_over = 0;
    if (is_in_barrier) {
      check(PMPI_Test(&barrier, &is_over, MPI_STATUS_IGNORE));
      if (is_over) return incoming;
    } else {
      check(PMPI_Testall(static_cast<int>(sends.size()), sends.data(), &is_over, MPI_STATUSES_IGNORE));
      if (is_over) {
        check(PMPI_Ibarrier(comm, &barrier));
        is_in_barrier = true;
        continue;
      }
    }
    rounds.again();
  }
}

bool is_same(const HaloPlace& a, const HaloPlace& b) {
  return a.node == b.node && a.group == b.group && std::memcmp(a.device, b.device, sizeof a.device) == 0;
}

std::string tags_of(const std::vector<Announcement>& all) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), most); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(all[i].tag);
  return text + (all.size() > most ? ", …" : "");
}

/// What this rank sees of it, which receives the message.
std::optional<Error> fault_of(const HaloContent& content, const MPIX_Halo_message& message, std::uint64_t bytes,
                              std::uint64_t chunk, const std::vector<Announcement>& from_peer,
                              const Announcement* announced) {
  const std::string there = content.name + ": that rank ";
  if (!announced && from_peer.empty()) return Error(Fault::tag, there + "has no message for this one");
  if (!announced)
    return Error(Fault::tag, there + "sends nothing with tag " + std::to_string(message.recv_tag) +
                                 " to this one (it does with " + tags_of(from_peer) + ")");
  if (announced->bytes != bytes)
    return Error(Fault::truncation, there + "sends " + std::to_string(announced->bytes) +
                                        " bytes, and this one receives " + std::to_string(bytes));
  if (announced->chunk != chunk)
    return Error(Fault::argument, content.name + ": mpix_chunk is " + std::to_string(announced->chunk) +
                                      " bytes there, and " + std::to_string(chunk) + " here");
  return std::nullopt;
}

}  // namespace

void require_of_mpi(int code, const char* call, const std::string& of) {
  if (code != MPI_SUCCESS)
    throw Error(Fault::other, call + (of.empty() ? "" : " of " + of) + " has failed: " + text_of(code));
}

void cancel_receive(MPI_Request& request) noexcept {
  PMPI_Cancel(&request);
  PMPI_Wait(&request, MPI_STATUS_IGNORE);
}

bool end_soon(const std::vector<MPI_Request*>& sends) noexcept {
  const auto until = AwakeClock::now() + std::chrono::seconds(1);
  for (MPI_Request* const send : sends)
    for (int is_over = 0; !is_over;) {
      if (PMPI_Test(send, &is_over, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      if (is_over) break;
      if (AwakeClock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  return true;
}

void finish_asleep(std::vector<MPI_Request>& requests) {
  Rounds rounds;
  for (int is_over = 0;; rounds.again()) {
    check(PMPI_Testall(static_cast<int>(requests.size()), requests.data(), &is_over, MPI_STATUSES_IGNORE));
    if (is_over) return;
  }
}

void agree(MPI_Comm comm, const std::optional<Error>& own) {
  int rank = 0, size = 0, first = 0;
  check(PMPI_Comm_rank(comm, &rank));
  check(PMPI_Comm_size(comm, &size));
  const int mine = own ? rank : size;
  check(PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm));
  if (first == size) return;
  // With the preset error handler the first of them that comes to it ends the job, and what it says has to be enough.
  struct Said {
    Fault fault;
    char text[500];
  } said{};
  if (first == rank) {
    said.fault = own->fault();
    const std::string text = own->what();
    text.copy(said.text, sizeof said.text - 1);
  }
  check(PMPI_Bcast(&said, sizeof said, MPI_BYTE, first, comm));
  if (own) throw Error(*own);
  throw Error(said.fault, "rank " + std::to_string(first) + ": " + said.text);
}

HaloTags compare_ends(MPI_Comm comm, const std::vector<HaloContent>& contents, const MPIX_Halo_message* messages,
                      const std::vector<HaloCargo>& cargo, std::uint64_t chunk, std::uint64_t gather,
                      const HaloPlace& place) {
  const std::size_t count = contents.size();
  std::vector<std::uint64_t> received(count);
  std::vector<Announcement> mine(count);
  for (std::size_t k = cargo.size(); k-- > 0;) {
    const std::size_t m = cargo[k].given;
    received[m] += cargo[k].recv_bytes;
    mine[m].bytes += cargo[k].send_bytes;
    mine[m].first_part = k;
  }
  ByPeer outgoing;
  for (std::size_t m = 0; m < count; ++m) {
    if (contents[m].is_null) continue;
    mine[m].tag = static_cast<unsigned long long>(messages[m].send_tag);
    mine[m].chunk = chunk;
    mine[m].gather = gather;
    mine[m].place = place;
    outgoing[messages[m].peer].push_back(mine[m]);
  }
  ByPeer incoming = exchanged(comm, outgoing);

  std::optional<Error> own;
  std::vector<unsigned long long> first_part(count);
  std::vector<unsigned long long> gathered(count);
  std::vector<bool> by_memory(count);
  for (std::size_t m = 0; m < count && !own; ++m) {
    if (contents[m].is_null) continue;
    std::vector<Announcement>& from_peer = incoming[messages[m].peer];
    const auto announced = std::find_if(from_peer.begin(), from_peer.end(), [&](const Announcement& one) {
      return one.tag == static_cast<unsigned long long>(messages[m].recv_tag);
    });
    const bool is_there = announced != from_peer.end();
    own = fault_of(contents[m], messages[m], received[m], chunk, from_peer, is_there ? &*announced : nullptr);
    if (own) break;
    first_part[m] = announced->first_part;
    gathered[m] = std::min<unsigned long long>(gather, announced->gather);
    by_memory[m] = place.node != 0 && is_same(place, announced->place);
    from_peer.erase(announced);
  }
  for (const auto& [peer, left] : incoming)
    if (!own && !left.empty())
      own = Error(Fault::tag, "rank " + std::to_string(peer) +
                                  " has messages for this one that this one does not receive, "
                                  "with tag " +
                                  tags_of(left));
  agree(comm, own);
  HaloTags tags;
  for (std::size_t k = 0; k < cargo.size(); ++k) {
    const std::size_t m = cargo[k].given;
    tags.send.push_back(static_cast<int>(k));
    tags.by_memory.push_back(by_memory[m]);
    const auto gathers = [&](std::uint64_t bytes, std::uint64_t all) {
      return gathered[m] > 0 && bytes == all && bytes <= gathered[m];
    };
    tags.gathers_send.push_back(gathers(cargo[k].send_bytes, mine[m].bytes));
    tags.gathers_recv.push_back(gathers(cargo[k].recv_bytes, received[m]));
    tags.recv.push_back(static_cast<int>(first_part[m] + (k - mine[m].first_part)));
  }
  return tags;
}

}  // namespace mpix
