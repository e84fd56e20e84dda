// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Random sparse graphs with a new group in every epoch. SOAK_EPOCHS and SOAK_SEED make a soak of
// it:
//   for s in 1 2 3 4 5; do SOAK_EPOCHS=10000 SOAK_SEED=$s mpiexec -n 4 tests/mpi/graph_epochs; done
#include "support/catch.h"
#include "support/random_graphs.h"
#include "support/world.h"

TEST_CASE("random graphs") {
  const auto seed = static_cast<std::uint64_t>(test::parameter("SOAK_SEED", 1));
  test::run_random_graphs(seed, test::scaled(static_cast<int>(test::parameter("SOAK_EPOCHS", 300))));
}
