// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "support/domain.h"

/// What a loop on the host needs: kernels of as many blocks, or jobs of as many threads, as the domain beside it has
/// ranks; and memory that both the host and kernels reach.
namespace launcher {

#if defined(__CUDACC__) || defined(__HIPCC__)
template <class Body>
__global__ void run_body(Body body) {
  body(static_cast<int>(blockIdx.x));
}

/// body(i) for each i below `blocks`: a block each, in the order of the calls.
class Launcher {
 public:
  Launcher(int, int threads) : threads_(threads) {}
  template <class Body>
  void run(const Body& body, int blocks) {
    run_body<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads_)>>>(body);
    DOMAIN_CHECK_GPU(DOMAIN_GPU(GetLastError)());
  }
  void synchronize() { DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamSynchronize)(nullptr)); }

 private:
  const int threads_;
};

struct FreePinned {
#if defined(__HIPCC__)
  void operator()(double* memory) const { DOMAIN_CHECK_GPU(hipHostFree(memory)); }
#else
  void operator()(double* memory) const { DOMAIN_CHECK_GPU(cudaFreeHost(memory)); }
#endif
};
using Pinned = std::unique_ptr<double[], FreePinned>;
inline Pinned allocate_pinned(std::size_t count) {
  void* memory = nullptr;
#if defined(__HIPCC__)
  DOMAIN_CHECK_GPU(hipHostMalloc(&memory, count * sizeof(double), 0));
#else
  DOMAIN_CHECK_GPU(cudaMallocHost(&memory, count * sizeof(double)));
#endif
  return Pinned(static_cast<double*>(memory));
}
#else
/// body(i) for each i below `blocks`, by `workers` threads, of which the caller is one. Returns when all is done.
class Launcher {
 public:
  Launcher(int workers, int) : workers_(workers) {
    for (int i = 1; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Launcher() {
    start([](int) {}, true);
    for (std::thread& thread : threads_) thread.join();
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  template <class Body>
  void run(const Body& body, int blocks) {
    const auto part = [this, &body, blocks](int worker) {
      for (int block = worker; block < blocks; block += workers_) body(block);
    };
    start(part, false);
    part(0);
    std::unique_lock<std::mutex> hold(mutex_);
    over_.wait(hold, [this] { return working_ == 0; });
  }
  void synchronize() {}

 private:
  void start(std::function<void(int)> job, bool last) {
    const std::lock_guard<std::mutex> hold(mutex_);
    job_ = std::move(job);
    working_ = workers_ - 1;
    last_ = last;
    ++round_;
    begin_.notify_all();
  }
  void work(int worker) {
    for (unsigned seen = 0;;) {
      std::unique_lock<std::mutex> hold(mutex_);
      begin_.wait(hold, [this, seen] { return round_ != seen; });
      seen = round_;
      if (last_) return;
      hold.unlock();
      job_(worker);
      hold.lock();
      if (--working_ == 0) over_.notify_one();
    }
  }

  const int workers_;
  std::mutex mutex_;
  std::condition_variable begin_, over_;
  std::function<void(int)> job_;
  unsigned round_ = 0;
  int working_ = 0;
  bool last_ = false;
  std::vector<std::thread> threads_;
};

using Pinned = std::unique_ptr<double[]>;
inline Pinned allocate_pinned(std::size_t count) { return std::make_unique<double[]>(count); }
#endif

}  // namespace launcher
