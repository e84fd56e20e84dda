// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "net/shipment.h"
#include "wire/rail.h"

namespace mpix {

/// What ranks tell their partners on other nodes for the reports, by notes there (wire/rail.h): a rank knows by itself
/// for whom it waits, but not for whom that one does. Nobody waits to tell.
///
/// | tells                                        | word       | where there is no room for it now |
/// |----------------------------------------------|------------|-----------------------------------|
/// | that it has waited for a rank of its node for a while | since which exchange | it is not known  |
/// | once: that calls differ, and so it has stopped | who has called what | it is told later         |
///
/// The owner sees to it that calls do not overlap.
class RailWaits {
 public:
  /// Where a partner looks.
  struct Listener {
    std::shared_ptr<Recipient> to;
    RemoteMemory memory;
    std::uint64_t at;
  };
  /// `owner`: for whom the budget counts. `told`: the notes of partners. `out`: for what is sent, which `source` has.
  RailWaits(OperationBudget& budget, const void* owner, const CollectiveNote* told, CallDifference* out,
            std::shared_ptr<const Registration> source, std::vector<Listener> partners)
      : budget_(budget),
        owner_(owner),
        told_(told),
        out_(out),
        source_(std::move(source)),
        partners_(std::move(partners)) {}

  /// This rank waits for that one, before exchange `number` + 1; to these partners. False: not all have been told.
  bool tell(std::uint64_t number, std::uint32_t rank, const std::vector<std::uint32_t>& partners);
  /// Once.
  void tell_partners(const CallDifference& difference);
  /// False: all that was to be told has been.
  bool go_on_telling();
  /// Whom a partner waits for before exchange `number` + 1; -1: it has not told.
  int of_partner(std::size_t partner, std::uint64_t number) const;
  CallDifference difference_of_partner(std::size_t partner) const;
  /// What is on its way is nobody's any more.
  void close() {
    shipments_.clear();
    untold_.clear();
  }

 private:
  bool send(const Listener& partner, const char* what, std::vector<NetworkWrite> writes, std::uint64_t word,
            std::size_t place);

  OperationBudget& budget_;
  const void* const owner_;
  const CollectiveNote* const told_;
  CallDifference* const out_;
  const std::shared_ptr<const Registration> source_;
  const std::vector<Listener> partners_;
  std::vector<const Listener*> untold_;  ///< of the difference
  std::list<std::shared_ptr<Shipment>> shipments_;
};

}  // namespace mpix
