// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/epoch_state.h"

#include "base/error.h"
#include "support/catch.h"

using namespace mpix;

TEST_CASE("nothing stream-triggered may close what is not open", "[epochs]") {
  EpochState state;
  CHECK_THROWS_AS(state.check_complete_stream(), Error);
  CHECK_THROWS_AS(state.check_wait_stream(), Error);
  CHECK_NOTHROW(state.check_start_stream());
  CHECK_NOTHROW(state.check_post_stream());
  CHECK_NOTHROW(state.check_free());
}

TEST_CASE("a stream access epoch excludes every other access", "[epochs]") {
  EpochState state;
  state.start_stream();
  CHECK_THROWS_AS(state.check_start_stream(), Error);
  CHECK_THROWS_AS(state.check_start(), Error);
  CHECK_THROWS_AS(state.check_complete(), Error);
  CHECK_THROWS_AS(state.check_lock(), Error);
  CHECK_THROWS_AS(state.check_passive_operation(), Error);
  CHECK_THROWS_AS(state.check_fence(), Error);
  CHECK_THROWS_AS(state.check_free(), Error);
  CHECK_NOTHROW(state.check_post());
  CHECK_NOTHROW(state.check_post_stream());
  CHECK_NOTHROW(state.check_complete_stream());
  state.complete_stream();
  CHECK_NOTHROW(state.check_start());
  CHECK_NOTHROW(state.check_fence());
}

TEST_CASE("a stream exposure epoch excludes every other exposure", "[epochs]") {
  EpochState state;
  state.post_stream();
  CHECK_THROWS_AS(state.check_post_stream(), Error);
  CHECK_THROWS_AS(state.check_post(), Error);
  CHECK_THROWS_AS(state.check_wait(), Error);
  CHECK_THROWS_AS(state.check_fence(), Error);
  CHECK_THROWS_AS(state.check_free(), Error);
  CHECK_NOTHROW(state.check_start());
  CHECK_NOTHROW(state.check_start_stream());
  CHECK_NOTHROW(state.check_wait_stream());
  state.wait_stream();
  CHECK_NOTHROW(state.check_free());
}

TEST_CASE("an ordinary epoch excludes a stream epoch of its side", "[epochs]") {
  EpochState state;
  state.started();
  CHECK_THROWS_AS(state.check_start_stream(), Error);
  CHECK_THROWS_AS(state.check_complete_stream(), Error);
  CHECK_NOTHROW(state.check_post_stream());
  state.completed();
  CHECK_NOTHROW(state.check_start_stream());

  state.posted();
  CHECK_THROWS_AS(state.check_post_stream(), Error);
  CHECK_THROWS_AS(state.check_wait_stream(), Error);
  CHECK_NOTHROW(state.check_start_stream());
  state.waited();
  CHECK_NOTHROW(state.check_post_stream());
}

TEST_CASE("no stream access epoch while a lock is held", "[epochs]") {
  EpochState state;
  state.locked();
  state.locked();
  state.unlocked();
  CHECK_THROWS_AS(state.check_start_stream(), Error);
  state.unlocked();
  CHECK_NOTHROW(state.check_start_stream());
  state.unlocked();  // MPI's error; ours must not count below zero
  state.locked();
  CHECK_THROWS_AS(state.check_start_stream(), Error);
}

TEST_CASE("puts lack an epoch where none is open", "[epochs]") {
  EpochState state;
  CHECK(state.lacks_access());
  state.posted();
  state.waited();
  CHECK(state.lacks_access());
  state.started();
  CHECK_FALSE(state.lacks_access());
  state.completed();
  CHECK(state.lacks_access());
  CHECK_FALSE(state.has_stream_epochs());
  state.post_stream();
  CHECK(state.lacks_access());
  state.start_stream();
  CHECK_FALSE(state.lacks_access());
  state.complete_stream();
  CHECK(state.lacks_access());
  state.wait_stream();
  CHECK(state.lacks_access());
  state.locked();
  CHECK_FALSE(state.lacks_access());
  state.unlocked();
  CHECK(state.lacks_access());
  state.started();
  CHECK_FALSE(state.lacks_access());
  state.completed();
  CHECK(state.lacks_access());
  state.fenced(true);
  CHECK_FALSE(state.lacks_access());
  state.fenced(false);
  CHECK(state.lacks_access());
  state.fenced(true);
  state.start_stream();
  state.complete_stream();
  CHECK(state.lacks_access());
}
