// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/service.h"
#include "base/settings.h"
#include "wire/collective.h"

namespace mpix {

class NodeNotes;

/// A call as text: "MPIX_Allreduce_stream (MPI_SUM, 8-byte floating, 64 bytes)".
std::string text_of(const CallWord& call);

/// The hang reports of a communicator's collectives: whom calls wait for, for longer than MPIX_TIMEOUT, and what ranks
/// have called that have not called the same. With MPIX_ON_TIMEOUT=error nobody waits any more after the first. Notes
/// are of ranks by their number on this node, or, behind those, by that in the communicator.
///
/// A rank that knows that calls differ stops, and tells all that it can: in a note for its node, where a rank looks
/// that waits for it, and its partners on other nodes. Each that hears of it does the same. So all that wait are told:
/// a rank waits for one of its node, or for a partner, and that one has stopped, or waits itself.
class CollectiveReports final : public Poller {
 public:
  /// `locals`: the ranks of this node. The words have a note for each of them, and one for each rank.
  /// `hang_advice`: what else may be the matter; or empty.
  CollectiveReports(CollectiveWords* words, const std::vector<int>& locals, int rank, int ranks,
                    const std::string& name, const Settings& settings, const std::string& hang_advice);
  ~CollectiveReports() override;

  /// Where ranks of this node tell each other; null: nowhere, or no more. A look that is under way ends first.
  void set_notes(NodeNotes* notes);
  /// Calls may wait from now on.
  void begin();
  bool is_broken() const { return load_acquire(&words_->released) != 0; }
  /// Why; empty: it is not.
  std::string cause();

  const std::string& name() const { return name_; }

  // What the service hears; any thread.
  /// See collective_note. `for_whom`: it waits itself, for this rank; -1: that is not known.
  void note_wait(std::uint32_t rank, std::uint64_t note, int for_whom);
  /// How to tell ranks of other nodes. Any may be null.
  struct Others {
    /// This rank has waited for a while for one of its node.
    std::function<void(std::uint32_t rank)> tell;
    std::function<void(const CallDifference&)> tell_of_difference;
  };
  void set_others(Others others);
  /// Who is asked at each look, by the service. Either may be null.
  struct Watch {
    /// A note of a wait for a rank of this node has changed.
    std::function<void(std::size_t local)> notice;
    /// What has kept calls up for longer than so many seconds, where no wait is noted; empty: nothing.
    std::function<std::string(double seconds)> stuck;
  };
  void set_watch(Watch watch);
  void note_difference(const CallDifference& difference);
  /// Nothing comes any more.
  void fail(const std::string& why);
  void break_with(const std::string& cause);
  double patience() const { return seconds_; }

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  /// A wait goes on for as long as its note changes; it is the same wait while the number in it is the same. A note
  /// that has changed says that the wait went on behind the look before, and no more: the service may have been kept
  /// from looking since.
  struct Seen {
    std::uint64_t note = 0;
    std::uint32_t number = 0;
    Clock::time_point since{}, changed{}, looked{};
    Clock::duration reported{};
    std::uint32_t told = 0;  ///< of which number the others know
  };
  std::string text_of(const CallDifference& difference) const;
  void tell_of_difference();
  void ask(std::size_t local);
  bool lasts(const Seen& seen, Clock::time_point now) const;
  bool is_overdue(Seen& seen, std::uint64_t note, Clock::time_point now) const;
  std::string missing_text(std::size_t index);
  void tell_others(std::size_t local);
  void notice();
  void tell_if_stuck();

  CollectiveWords* const words_;
  const std::vector<int> locals_;
  const int rank_;
  const std::string name_, hang_advice_;
  const double seconds_;
  const bool fail_;
  bool begun_ = false, told_of_difference_ = false;
  std::vector<Seen> seen_;
  std::mutex mutex_;  ///< what follows
  std::string cause_;
  CallDifference difference_{};  ///< as others have told
  std::vector<int> for_whom_;    ///< by rank
  std::mutex others_mutex_;
  NodeNotes* notes_ = nullptr;
  Others others_;
  Watch watch_;
  std::vector<std::uint64_t> noticed_;  ///< notes, by rank of this node
};

}  // namespace mpix
