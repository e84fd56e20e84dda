// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "net/shipment.h"
#include "wire/collective_staged.h"
#include "wire/rail.h"

namespace mpix {

/// Whom ranks wait for, as they tell each other for the reports: a rank knows by itself for whom it waits, but not for
/// whom that one does. Nothing hangs on it, so nobody waits to tell, and what is not told is not known.
///
/// | waits                  | for          | tells         | by a word                                  |
/// |------------------------|--------------|---------------|--------------------------------------------|
/// | a rank, for a while    | its node's   | its partners  | waits[] there (wire/rail.h): since which exchange |
/// | nobody any more: a rank of its node calls another thing | its node's | its partners | waits[] there: that one, and no exchange |
/// | its service, for long  | another node's | its node    | in its memory for collectives, or where there are staged calls in the node's: 0 or a rank |
///
/// The owner sees to it that calls do not overlap, but for of_node.
class RailWaits {
 public:
  /// Where a partner looks.
  struct Listener {
    std::shared_ptr<Recipient> to;
    RemoteMemory memory;
    std::uint64_t at;
  };
  /// `owner`: for whom the budget counts. `told`: this rank's waits[]. `on_host`: where ranks of the node tell each
  /// other, if there is some: staged calls wait for the service, which must not wait for a GPU then.
  RailWaits(Device& device, OperationBudget& budget, const void* owner, const Collective& on_node,
            const std::uint64_t* told, std::vector<Listener> partners, const StagedMemory& on_host)
      : device_(device),
        budget_(budget),
        owner_(owner),
        on_node_(on_node),
        told_(told),
        partners_(std::move(partners)),
        on_host_(on_host) {}

  /// This rank waits for that one of its node, before exchange `number` + 1.
  void tell_partners(std::uint64_t number, std::uint32_t rank);
  /// This rank's calls are over, as that one of its node calls another thing.
  void tell_partners_of_difference(std::uint32_t rank);
  /// Something that was told is on its way.
  bool are_telling();
  /// For whom of another node; -1: for nobody any more.
  void tell_node(int rank);
  /// Whom a partner waits for before exchange `number` + 1; -1: it has not told.
  int of_partner(std::size_t partner, std::uint64_t number) const;
  /// Which rank's calls differ, as a partner has told; -1: it has not.
  int difference_of_partner(std::size_t partner) const;
  /// Whom a rank of this node, by its number there, waits for; -1: it has not told. Any thread.
  int of_node(std::size_t local) const;
  /// What is on its way is nobody's any more.
  void close() { shipments_.clear(); }

 private:
  void tell(std::uint64_t number, std::uint64_t word);

  Device& device_;
  OperationBudget& budget_;
  const void* const owner_;
  const Collective on_node_;
  const std::uint64_t* const told_;
  const std::vector<Listener> partners_;
  const StagedMemory on_host_;
  std::list<std::shared_ptr<Shipment>> shipments_;
  bool has_told_node_ = false;
};

}  // namespace mpix
