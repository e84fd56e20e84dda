// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/process_kept.h"

#include <csignal>
#include <cstdlib>
#include <string>

#include "support/catch.h"

using namespace mpix;

namespace {

extern "C" void ours(int) {}
extern "C" void theirs(int) {}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "(none)";
}

}  // namespace

TEST_CASE("what a library changes in the process while it is loaded is put back", "[nic]") {
  struct sigaction own {
  }, before{}, now{};
  own.sa_handler = ours;
  own.sa_flags = SA_RESTART;
  sigaddset(&own.sa_mask, SIGUSR2);
  REQUIRE(sigaction(SIGUSR1, &own, &before) == 0);
  setenv("KEPT_CHANGED", "1", 1);
  setenv("KEPT_REMOVED", "2", 1);
  unsetenv("KEPT_ADDED");
  {
    const ProcessKept kept;
    struct sigaction other {};
    other.sa_handler = theirs;
    REQUIRE(sigaction(SIGUSR1, &other, nullptr) == 0);
    setenv("KEPT_CHANGED", "10", 1);
    unsetenv("KEPT_REMOVED");
    setenv("KEPT_ADDED", "3", 1);
  }
  REQUIRE(sigaction(SIGUSR1, &before, &now) == 0);
  CHECK(now.sa_handler == ours);
  CHECK((now.sa_flags & SA_RESTART) != 0);
  CHECK(sigismember(&now.sa_mask, SIGUSR2) == 1);
  CHECK(variable("KEPT_CHANGED") == "1");
  CHECK(variable("KEPT_REMOVED") == "2");
  CHECK(variable("KEPT_ADDED") == "(none)");
  for (const char* name : {"KEPT_CHANGED", "KEPT_REMOVED"}) unsetenv(name);
}
