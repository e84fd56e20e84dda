// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <vector>

#include "net/fabric/endpoint.h"
#include "net/network.h"

namespace mpix {

/// An inlet of tagged receives, one for each place that is open; its tag is the name of the place.
///
/// sockets answers each write, with a message of its own. A send it does not, so it is most of the cost less. What
/// arrives is in nobody's queue of completions: they are selective, and receives do not ask.
///
/// The context of a receive is its tag. The provider does not look at it (it asks for no FI_CONTEXT); and as no tag is
/// used twice, and none is an address, what comes late of one that was taken back is taken for nothing else.
class FabricInlet final : public Inlet {
 public:
  FabricInlet(std::shared_ptr<Endpoint> endpoint, char* base, std::size_t places, std::size_t bytes);
  ~FabricInlet() override { close(); }
  std::uint64_t name() const override { return first_tag_; }
  bool open(std::size_t place) override;
  bool close() override;

 private:
  const std::shared_ptr<Endpoint> endpoint_;
  char* const base_;
  const std::size_t bytes_;
  const std::uint64_t first_tag_;
  std::vector<unsigned char> opened_;  ///< ever; each place is one thread's at a time
};

}  // namespace mpix
