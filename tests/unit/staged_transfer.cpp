// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// A transfer in stages: as few of them as the room allows, the signal behind all data, the room whole afterwards.
#include "net/staged_transfer.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "fake_network.h"
#include "support/catch.h"

using namespace mpix;

namespace {

void run_to_the_end(StagedTransfer& transfer, Network& network) {
  transfer.start();
  while (!transfer.finished()) network.progress();
}

}  // namespace

TEST_CASE("a transfer goes in as few stages as its room allows, and the signal comes last", "[staged]") {
  FakeNetwork network({64, 64}, 7, false);
  const Connection to = network.connect(network.address());
  for (std::size_t writes = 0; writes <= 7; ++writes)
    for (std::size_t operations = 1; operations <= 9; ++operations)
      for (bool signals : {false, true}) {
        if (writes == 0 && !signals) continue;
        CAPTURE(writes, operations, signals);
        std::vector<std::uint64_t> source(writes + 1), target(writes + 1, 0);
        for (std::size_t i = 0; i < writes; ++i) source[i] = i + 1;
        const auto exposed = network.expose(target.data(), target.size() * sizeof target[0]);
        const NetworkSignal signal{NetworkSignal::Kind::set, 77, exposed->remote(), 8 * writes};
        const auto write_of = [&](std::size_t i) {
          return NetworkWrite{&source[i], nullptr, 8, exposed->remote(), 8 * i};
        };
        StagedTransfer transfer;
        Grant room{operations, 1};
        std::size_t stages = 0;
        while (!transfer.all_queued()) {
          CHECK(target[writes] == 0);
          REQUIRE(transfer.queue(network, to, writes, write_of, signals ? &signal : nullptr, room));
          CHECK(transfer.held().operations + room.operations == operations);
          CHECK(room.transfers == 0);
          CHECK_FALSE(transfer.queue(network, to, writes, write_of, signals ? &signal : nullptr, room));
          run_to_the_end(transfer, network);
          transfer.end_stage(room);
          CHECK(room.operations == operations);
          ++stages;
        }
        CHECK(stages == (writes + (signals ? 1 : 0) + operations - 1) / operations);
        for (std::size_t i = 0; i < writes; ++i) CHECK(target[i] == i + 1);
        CHECK(target[writes] == (signals ? 77 : 0));
      }
}

TEST_CASE("what the network refuses has changed nothing, and is queued the next time", "[staged]") {
  FakeNetwork network({64, 64}, 7, false);
  const Connection to = network.connect(network.address());
  std::uint64_t source = 5, target[2] = {};
  const auto exposed = network.expose(target, sizeof target);
  const NetworkSignal signal{NetworkSignal::Kind::set, 77, exposed->remote(), 8};
  const auto write_of = [&](std::size_t) { return NetworkWrite{&source, nullptr, 8, exposed->remote(), 0}; };
  StagedTransfer transfer;
  Grant room{2, 1};
  network.refuse(0, Fault::memory);
  CHECK_THROWS_AS(transfer.queue(network, to, 1, write_of, &signal, room), Error);
  CHECK_FALSE(transfer.has_stage());
  CHECK(room.operations == 2);
  network.accept();
  REQUIRE(transfer.queue(network, to, 1, write_of, &signal, room));
  run_to_the_end(transfer, network);
  CHECK(target[0] == 5);
  CHECK(target[1] == 77);
}
