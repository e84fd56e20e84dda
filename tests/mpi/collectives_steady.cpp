// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// SOAK_CALLS collectives on a stream, and what the process has at the end, of the host and of a GPU, is what it had
// after the first tenth of them.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/collective_calls.h"
#include "support/usage.h"

using namespace test;

namespace {

/// Calls with buffers that stay: nothing that the test does itself takes memory for each.
class Turns {
 public:
  explicit Turns(MPI_Comm comm) : comm_(comm) {
    for (const std::size_t count : {1, 40, 3000}) {
      for (What what : all_kinds) {
        Call call;
        call.what = what;
        call.count = count;
        call.type = MPI_DOUBLE;
        call.salt = trials_.size();
        call.root = static_cast<int>(trials_.size() % static_cast<std::size_t>(size()));
        trials_.push_back(std::make_unique<Trial>(call, rank(), size()));
      }
    }
  }
  /// As often small ones as large ones are seldom.
  void enqueue_next(void* stream) {
    const std::size_t small = trials_.size() / 3 * 2;
    const bool is_large = ++calls_ % 10 == 0;
    Trial& trial = *trials_[is_large ? small + calls_ / 10 % (trials_.size() - small) : calls_ % small];
    MPI_OK(trial.make(comm_, stream));
  }
  void check() {
    for (const auto& trial : trials_) {
      trial->check("after " + std::to_string(calls_) + " calls");
      trial->renew();
    }
  }

 private:
  const MPI_Comm comm_;
  std::vector<std::unique_ptr<Trial>> trials_;
  std::size_t calls_ = 0;
};

}  // namespace

TEST_CASE("what a process has does not grow with the number of calls") {
  const long calls = scaled(static_cast<int>(parameter("SOAK_CALLS", 10000)));
  const Comm comm(Comm::duplicate());
  Turns turns(comm);
  Stream stream;
  const auto look = [&] {
    stream.synchronize();
    turns.check();
    barrier();
    const Usage usage = Usage::now();
    barrier();
    return usage;
  };
  Usage early{};
  for (long k = 1; k <= calls; ++k) {
    turns.enqueue_next(stream);
    if (k % 200 == 0) {
      stream.synchronize();
      alive("call " + std::to_string(k));
    }
    if (k == calls / 10) early = look();
  }
  const Usage late = look();
  const std::string both = early.text() + "; then " + late.text();
  if (rank() == 0) std::printf("%ld calls: %s\n", calls, both.c_str());
  INFO(both);
  CHECK(late.files <= early.files);
  CHECK(late.threads <= early.threads);
  // an MPI takes 150 KiB once, at any time, and the runtime of a GPU some more
  const bool is_host = device().is_host();
  CHECK(late.mappings <= early.mappings + (is_host ? 4 : 16));
  CHECK((sanitized || late.heap - early.heap < (is_host ? 256 : 1024) * 1024));
  CHECK((sanitized || late.kilobytes - early.kilobytes < (is_host ? 512 : 4096)));
  CHECK(early.gpu_free - late.gpu_free <= 4 * 1024 * 1024);
}
