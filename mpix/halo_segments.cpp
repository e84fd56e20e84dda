// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "halo_segments.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "errors.h"

namespace mpix {
namespace {

/// What a rank tells another of its segment; and of each cargo that goes there or comes from there.
struct Card {
  ExportedMemory exported;
  std::uint64_t is_there, entries;
};
struct Entry {
  std::uint64_t sent_as;                   ///< cargo of the other rank; nothing: it only goes there
  std::uint64_t taken_as;                  ///< cargo of this one
  std::uint64_t at[2];                     ///< in this rank's segment
  std::uint32_t takes_lines, sends_lines;  ///< the cargo of this one may
};

constexpr std::uint64_t nothing = UINT64_MAX;

/// With one rank.
struct Pair {
  Card mine{}, theirs{};
  std::vector<std::size_t> cargo;
  std::vector<Entry> gives, gets;
  char* segment = nullptr;  ///< theirs, mapped here
  int i_can = 0, they_can = 0;
};

class Requests {
 public:
  explicit Requests(MPI_Comm comm) : comm_(comm) {}
  void swap(int peer, const void* gives, std::size_t given, void* gets, std::size_t got) {
    constexpr int tag = 1;
    all_.resize(all_.size() + 2);
    check(PMPI_Irecv(gets, static_cast<int>(got), MPI_BYTE, peer, tag, comm_, &all_[all_.size() - 2]));
    check(PMPI_Isend(gives, static_cast<int>(given), MPI_BYTE, peer, tag, comm_, &all_[all_.size() - 1]));
  }
  void finish() {
    finish_asleep(all_);
    all_.clear();
  }

 private:
  const MPI_Comm comm_;
  std::vector<MPI_Request> all_;
};

}  // namespace

HaloSegments connect_segments(MPI_Comm comm, const MPIX_Halo_message* messages, const Halo& halo, const HaloTags& tags,
                              Device& device) {
  const std::vector<HaloCargo>& cargo = halo.cargo();
  HaloSegments made;
  made.ends.resize(cargo.size());
  int me = 0;
  check(PMPI_Comm_rank(comm, &me));
  std::map<int, Pair> pairs;
  for (std::size_t k = 0; k < cargo.size(); ++k)
    if (tags.by_memory[k]) pairs[messages[cargo[k].given].peer].cargo.push_back(k);
  if (pairs.empty()) return made;

  std::vector<bool> may_take_lines;
  for (std::size_t k = 0; k < cargo.size(); ++k) may_take_lines.push_back(halo.may_take_lines(k));
  Card card{};
  try {
    made.own = std::make_unique<HaloSegment>(device, cargo, tags.by_memory, may_take_lines);
    card.exported = made.own->exported();
    card.is_there = 1;
  } catch (const std::exception& error) {
    log(LogLevel::info, std::string("halo: all messages go by MPI: ") + error.what());
    made.own.reset();
  }
  Requests requests(comm);
  for (auto& [peer, pair] : pairs) {
    pair.mine = card;
    pair.mine.entries = pair.cargo.size();
    for (const std::size_t k : pair.cargo) {
      const std::array<std::uint64_t, 2> at = made.own ? made.own->buffers_of(k) : std::array<std::uint64_t, 2>{};
      pair.gives.push_back(Entry{cargo[k].receives ? static_cast<std::uint64_t>(tags.recv[k]) : nothing,
                                 k,
                                 {at[0], at[1]},
                                 may_take_lines[k] ? 1u : 0u,
                                 halo.may_send_lines(k) ? 1u : 0u});
    }
    requests.swap(peer, &pair.mine, sizeof(Card), &pair.theirs, sizeof(Card));
  }
  requests.finish();
  for (auto& [peer, pair] : pairs) {
    pair.gets.resize(pair.theirs.entries);
    requests.swap(peer, pair.gives.data(), pair.gives.size() * sizeof(Entry), pair.gets.data(),
                  pair.gets.size() * sizeof(Entry));
  }
  requests.finish();
  for (auto& [peer, pair] : pairs) {
    if (made.own && pair.theirs.is_there != 0) try {
        pair.segment = peer == me ? made.own->base() : made.own->map(pair.theirs.exported);
        pair.i_can = 1;
      } catch (const Error& error) {
        log(LogLevel::info, "halo: messages of rank " + std::to_string(peer) + " go by MPI: " + error.what());
      }
    requests.swap(peer, &pair.i_can, sizeof pair.i_can, &pair.they_can, sizeof pair.they_can);
  }
  requests.finish();
  for (const auto& of_peer : pairs) {
    const Pair& pair = of_peer.second;
    if (pair.i_can == 0 || pair.they_can == 0) continue;
    for (const std::size_t k : pair.cargo) {
      const auto sender = static_cast<std::uint64_t>(tags.recv[k]);
      const auto find = [&pair](std::uint64_t Entry::*which, std::uint64_t number) -> const Entry& {
        const auto found =
            std::find_if(pair.gets.begin(), pair.gets.end(), [=](const Entry& one) { return one.*which == number; });
        if (found == pair.gets.end()) throw Error(Fault::other, "a message that the other end does not know");
        return *found;
      };
      HaloEnd& end = made.ends[k];
      end.segment = pair.segment;
      if (cargo[k].sends) {
        const Entry& there = find(&Entry::sent_as, k);
        end.takes = there.taken_as;
        end.at = {there.at[0], there.at[1]};
        end.sends_lines = halo.may_send_lines(k) && there.takes_lines != 0;
      }
      if (cargo[k].receives) {
        end.sends = sender;
        end.takes_lines = may_take_lines[k] && find(&Entry::taken_as, sender).sends_lines != 0;
      }
    }
  }
  return made;
}

}  // namespace mpix
