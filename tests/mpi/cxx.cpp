// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// mpix.hpp: epochs and streams that end with their scope, functions that are copied, errors that are thrown.
#include <mpix.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

/// A window over ints, whose errors are thrown.
struct Shared {
  explicit Shared(std::size_t count) : window(Memory::device, count * sizeof(int), sizeof(int)) {
    mpix::throw_errors(window);
  }
  ~Shared() { MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL); }
  int* in() { return window.as<int>(); }

  test::Window window;
  mpix::Group left{MPI_COMM_WORLD, {left_of(rank())}};
  mpix::Group right{MPI_COMM_WORLD, {right_of(rank())}};
};

template <class Call>
mpix::Error error_of(Call call) {
  try {
    call();
  } catch (const mpix::Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  throw std::logic_error("not reached");
}

}  // namespace

TEST_CASE("epochs of mpix.hpp carry data") {
  NEEDS(device().is_host(), "host streams");
  CHECK(mpix::is_active());
  Shared shared(8);
  mpix::Stream stream;
  const auto out = std::make_shared<std::vector<int>>(8);
  int wrong = 0;
  for (int step = 0; step < 50; ++step) {
    mpix::Exposure exposure(shared.left, shared.window, stream);
    stream.launch([out, step] { out->assign(8, 1000 * rank() + step); });
    mpix::Access access(shared.right, shared.window, stream);
    access.put(out->data(), 8, right_of(rank()), 0);
    switch (step % 3) {
      case 0:
        mpix::complete_wait(access, exposure);
        break;
      case 1:
        access.complete();
        exposure.wait();
        break;
      default:
        break;  // the ends of their scopes, in this order
    }
    if (step % 3 == 2) continue;
    stream.launch([in = shared.in(), step, &wrong] { wrong += in[7] != 1000 * left_of(rank()) + step; });
  }
  stream.synchronize();
  CHECK(wrong == 0);
  CHECK(shared.in()[0] == 1000 * left_of(rank()) + 49);
  MPIX_Win_stats stats;
  MPI_OK(MPIX_Win_get_stats(shared.window, &stats, sizeof stats));
  CHECK(stats.access_epochs == 50);
  CHECK(stats.exposure_epochs == 50);
}

TEST_CASE("a launched function is copied, and destroyed when it has run") {
  NEEDS(device().is_host(), "host streams");
  mpix::Stream stream;
  int sum = 0;
  std::weak_ptr<std::vector<int>> alive;
  {
    const auto captured = std::make_shared<std::vector<int>>(1000, 3);
    alive = captured;
    stream.launch([captured, &sum] {
      for (const int value : *captured) sum += value;
    });
  }
  stream.synchronize();
  CHECK(sum == 3000);
  CHECK(alive.expired());
  stream.launch([unique = std::make_unique<int>(7), &sum] { sum = *unique; });
  mpix::Stream moved(std::move(stream));
  moved.synchronize();
  CHECK(sum == 7);
}

TEST_CASE("an exception of a launched function comes out of synchronize, once") {
  NEEDS(device().is_host(), "host streams");
  mpix::Stream stream;
  bool went_on = false;
  stream.launch([] { throw std::runtime_error("the first"); });
  stream.launch([&] { went_on = true; });
  stream.launch([] { throw std::runtime_error("the second"); });
  CHECK_THROWS_WITH(stream.synchronize(), "the first");
  CHECK(went_on);
  CHECK_NOTHROW(stream.synchronize());
  stream.launch([] { throw std::runtime_error("late"); });
  CHECK_THROWS_WITH(stream.close(), "late");
  CHECK_NOTHROW(stream.close());
}

TEST_CASE("a wrong call throws MPI's code and text") {
  NEEDS(device().is_host(), "host streams");
  Shared shared(8);
  mpix::Stream stream;
  const int value = 5;
  const mpix::Error none =
      error_of([&] { mpix::check(MPIX_Win_wait_stream(shared.window, stream), "MPIX_Win_wait_stream"); });
  CHECK(none.error_class() == MPI_ERR_RMA_SYNC);
  CHECK(std::string(none.what()).find("no stream exposure epoch is open") != std::string::npos);
  {
    mpix::Exposure exposure(shared.left, shared.window, stream);
    const mpix::Error twice = error_of([&] { mpix::Exposure again(shared.left, shared.window, stream); });
    CHECK(twice.error_class() == MPI_ERR_RMA_SYNC);
    CHECK(twice.code() != MPI_SUCCESS);
    // what unwinds through an epoch completes it: the target does not wait for ever
    const mpix::Error outside = error_of([&] {
      mpix::Access access(shared.right, shared.window, stream);
      access.put(&value, 1, right_of(rank()), 3);
      access.put(&value, 1, right_of(rank()), 8);
    });
    CHECK(std::string(outside.what()).find("MPI_Put: ") == 0);
    CHECK(std::string(outside.what()).find("past the end") != std::string::npos);
    exposure.wait();
  }
  stream.synchronize();
  CHECK(shared.in()[3] == 5);
  mpix::Exposure exposure(shared.left, shared.window, stream);
  mpix::Stream other;
  mpix::Access access(shared.right, shared.window, other);
  CHECK_THROWS_AS(mpix::complete_wait(access, exposure), std::invalid_argument);
  access.complete();
  exposure.wait();
  stream.synchronize();
}
