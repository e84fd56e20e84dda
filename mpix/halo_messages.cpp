// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "halo_messages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "errors.h"
#include "halo_gathering.h"
#include "requests_in_turns.h"

namespace mpix {
namespace {

class MessagesOfMpi final : public HaloTransport {
 public:
  MessagesOfMpi(MPI_Comm comm, const MPIX_Halo_message* messages, const Halo& halo, const HaloTags& tags,
                const HaloCalls& calls)
      : comm_(comm),
        calls_(calls),
        cargo_(halo.cargo()),
        buffers_(halo.buffers()),
        tags_(tags),
        gathering_(comm, messages, halo, tags) {
    const std::size_t count = cargo_.size();
    requests_.assign(4 * count, MPI_REQUEST_NULL);
    started_.resize(4 * count);
    for (std::size_t m = 0; m < count; ++m) {
      peers_.push_back(messages[cargo_[m].given].peer);
      for (std::uint32_t half = 0; half < halo.halves(); ++half) {
        if (halo.sends_by_mpi(m) && !gathering_.has_send(m))
          check(PMPI_Send_init(buffers_[m].send[half], static_cast<int>(cargo_[m].send_bytes), MPI_BYTE, peers_[m],
                               tags_.send[m], comm, &requests_[index_of(Over{index(m), half, true})]));
        if (halo.receives_by_mpi(m) && !gathering_.has_receive(m))
          check(PMPI_Recv_init(buffers_[m].recv[half], static_cast<int>(cargo_[m].recv_bytes), MPI_BYTE, peers_[m],
                               tags_.recv[m], comm, &requests_[index_of(Over{index(m), half, false})]));
      }
    }
  }
  ~MessagesOfMpi() override {
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL) PMPI_Request_free(&request);
  }

  void start_send(std::uint32_t message, std::uint32_t half) override {
    if (gathering_.has_send(message)) return gathering_.start_send(message, half);
    ++sends_;
    if (!calls_.send_blocks) return start(Over{message, half, true});
    const HaloCargo& cargo = cargo_[message];
    require_of_mpi(PMPI_Send(buffers_[message].send[half], static_cast<int>(cargo.send_bytes), MPI_BYTE,
                             peers_[message], tags_.send[message], comm_),
                   "MPI_Send", cargo.name);
    blocking_over_.push_back(Over{message, half, true});
  }
  void start_receive(std::uint32_t message, std::uint32_t half) override {
    if (gathering_.has_receive(message)) return gathering_.start_receive(message, half);
    start(Over{message, half, false});
  }

  bool sends_block() const noexcept override { return calls_.send_blocks; }
  std::uint64_t sends() const noexcept override { return sends_ + gathering_.sends(); }

  void look(bool only_sends, std::vector<Over>* over) override {
    over->insert(over->end(), blocking_over_.begin(), blocking_over_.end());
    blocking_over_.clear();
    in_turns_.look([this] { return under_way_.size(); },
                   [&](std::size_t first) { return test(first, only_sends, over); });
    gathering_.look(only_sends, over);
  }

  bool cancel() noexcept override {
    std::vector<MPI_Request*> sends;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (!started_[i]) continue;
      if (at(i).is_send)
        sends.push_back(&requests_[i]);
      else
        cancel_receive(requests_[i]);
      started_[i] = false;
    }
    under_way_.clear();
    gathering_.cancel(&sends);
    return end_soon(sends);
  }

 private:
  static std::uint32_t index(std::size_t m) { return static_cast<std::uint32_t>(m); }
  /// Sends come first.
  std::size_t index_of(const Over& of) const {
    return (of.is_send ? 0 : 2 * cargo_.size()) + 2 * std::size_t{of.message} + of.half;
  }
  Over at(std::size_t i) const {
    const bool is_send = i < 2 * cargo_.size();
    const std::size_t rest = is_send ? i : i - 2 * cargo_.size();
    return Over{index(rest / 2), static_cast<std::uint32_t>(rest % 2), is_send};
  }

  void start(const Over& of) {
    const std::size_t i = index_of(of);
    require_of_mpi(PMPI_Start(&requests_[i]), "MPI_Start", cargo_[of.message].name);
    started_[i] = true;
    under_way_.push_back(i);
  }

  void note_over(std::size_t i, const MPI_Status& status, std::vector<Over>* over) {
    started_[i] = false;
    const Over of = at(i);
    over->push_back(of);
    if (of.is_send) return;
    const HaloCargo& cargo = cargo_[of.message];
    int bytes = 0;
    PMPI_Get_count(&status, MPI_BYTE, &bytes);
    if (static_cast<std::uint64_t>(bytes) != cargo.recv_bytes)
      throw Error(Fault::truncation, cargo.name + " has come with " + std::to_string(bytes) + " bytes of " +
                                         std::to_string(cargo.recv_bytes));
  }

  /// Those from a place on that one call may be for; returns where the next ones are.
  std::size_t test(std::size_t first, bool only_sends, std::vector<Over>* over) {
    std::array<MPI_Request, RequestsInTurns::most_in_a_call> requests;
    std::array<std::size_t, RequestsInTurns::most_in_a_call> places;
    int count = 0;
    std::size_t end = first;
    for (; end < under_way_.size() && count < static_cast<int>(RequestsInTurns::most_in_a_call); ++end) {
      const std::size_t i = under_way_[end];
      if (only_sends && !at(i).is_send) continue;
      requests[static_cast<std::size_t>(count)] = requests_[i];
      places[static_cast<std::size_t>(count++)] = end;
    }
    std::array<int, RequestsInTurns::most_in_a_call> which;
    std::array<MPI_Status, RequestsInTurns::most_in_a_call> statuses;
    const int some = count == 0 ? 0 : test_requests(count, requests.data(), which.data(), statuses.data());
    for (int k = 0; k < some; ++k) {
      std::size_t& i = under_way_[places[static_cast<std::size_t>(which[static_cast<std::size_t>(k)])]];
      const std::size_t request = std::exchange(i, is_over);
      note_over(request, statuses[static_cast<std::size_t>(k)], over);
    }
    if (some > 0) under_way_.erase(std::remove(under_way_.begin(), under_way_.end(), is_over), under_way_.end());
    return end - static_cast<std::size_t>(some);
  }

  /// How many of them are over.
  int test_requests(int count, MPI_Request* requests, int* which, MPI_Status* statuses) const {
    int some = 0;
    if (!calls_.tests_any) {
      require_of_mpi(PMPI_Testsome(count, requests, &some, which, statuses), "MPI_Testsome");
      return some == MPI_UNDEFINED ? 0 : some;
    }
    for (int found = 0; some < count; ++some) {
      require_of_mpi(PMPI_Testany(count, requests, &which[some], &found, &statuses[some]), "MPI_Testany");
      if (found == 0 || which[some] == MPI_UNDEFINED) break;
    }
    return some;
  }

  const MPI_Comm comm_;
  const HaloCalls calls_;
  const std::vector<HaloCargo> cargo_;
  const std::vector<HaloBufferPair> buffers_;
  const HaloTags tags_;
  HaloGathering gathering_;
  std::uint64_t sends_ = 0;  ///< that are not gathered
  std::vector<int> peers_;
  std::vector<Over> blocking_over_;
  std::vector<MPI_Request> requests_;
  std::vector<bool> started_;
  static constexpr std::size_t is_over = SIZE_MAX;
  std::vector<std::size_t> under_way_;  ///< requests, by index, in the order in which they have begun
  RequestsInTurns in_turns_;
};

}  // namespace

std::unique_ptr<HaloTransport> messages_of_mpi(MPI_Comm comm, const MPIX_Halo_message* messages, const Halo& halo,
                                               const HaloTags& tags, const HaloCalls& calls) {
  return std::make_unique<MessagesOfMpi>(comm, messages, halo, tags, calls);
}

}  // namespace mpix
