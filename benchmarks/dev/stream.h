// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix.h>

#include <functional>
#include <memory>
#include <utility>

#include "launcher.h"
#include "support/abort.h"
#include "support/domain.h"

/// A stream that runs the same kernels as a Launcher, and what is enqueued again and again there. Nothing waits but
/// synchronize().
namespace launcher {

#if defined(__CUDACC__) || defined(__HIPCC__)
class Stream {
 public:
  Stream(int, int threads) : threads_(threads) {
    DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamCreateWithFlags)(&stream_, DOMAIN_GPU(StreamNonBlocking)));
  }
  ~Stream() { DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamDestroy)(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  DOMAIN_GPU(Stream_t) handle() const { return stream_; }
  template <class Body>
  void run(const Body& body, int blocks) {
    run_body<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads_), 0, stream_>>>(body);
    DOMAIN_CHECK_GPU(DOMAIN_GPU(GetLastError)());
  }
  void synchronize() { DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamSynchronize)(stream_)); }

 private:
  const int threads_;
  DOMAIN_GPU(Stream_t) stream_ = nullptr;
};

/// What `enqueue` enqueues is captured once.
class Repeated {
 public:
  Repeated(Stream& stream, const std::function<void()>& enqueue) : stream_(stream) {
    DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamBeginCapture)(stream.handle(), DOMAIN_GPU(StreamCaptureModeThreadLocal)));
    enqueue();
    DOMAIN_GPU(Graph_t) graph = nullptr;
    DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamEndCapture)(stream.handle(), &graph));
    DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphInstantiateWithFlags)(&executable_, graph, 0));
    DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphDestroy)(graph));
  }
  ~Repeated() { DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphExecDestroy)(executable_)); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  void launch() { DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphLaunch)(executable_, stream_.handle())); }

 private:
  Stream& stream_;
  DOMAIN_GPU(GraphExec_t) executable_ = nullptr;
};
#else
class Stream {
 public:
  Stream(int workers, int) : launcher_(workers, 1) { CHECK_MPI(MPIX_Host_stream_create(&stream_)); }
  ~Stream() { CHECK_MPI(MPIX_Host_stream_destroy(&stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  MPIX_Host_stream handle() const { return stream_; }
  template <class Body>
  void run(const Body& body, int blocks) {
    struct Job {
      Launcher& launcher;
      Body body;
      int blocks;
    };
    auto job = std::make_unique<Job>(Job{launcher_, body, blocks});
    const auto run_and_delete = [](void* argument) {
      const std::unique_ptr<Job> mine(static_cast<Job*>(argument));
      mine->launcher.run(mine->body, mine->blocks);
    };
    CHECK_MPI(MPIX_Host_stream_launch(stream_, run_and_delete, job.release()));
  }
  void synchronize() { CHECK_MPI(MPIX_Host_stream_synchronize(stream_)); }

 private:
  Launcher launcher_;  // only the stream's thread calls it
  MPIX_Host_stream stream_ = nullptr;
};

/// Host streams have no graphs: `enqueue` is called each time.
class Repeated {
 public:
  Repeated(Stream&, std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
  void launch() { enqueue_(); }

 private:
  const std::function<void()> enqueue_;
};
#endif

/// Of a loop: `enqueue` enqueues as many as it is told.
class Iterations {
 public:
  Iterations(Stream& stream, int in_graph, std::function<void(int)> enqueue)
      : stream_(stream), in_graph_(in_graph), enqueue_(std::move(enqueue)) {}

  void run(int iterations) {
    enqueue_(iterations);
    stream_.synchronize();
  }
  /// So many at a time, in one graph; the last ones, if these are fewer, by themselves.
  void run_captured(int iterations) {
    if (!graph_ && iterations >= in_graph_)
      graph_ = std::make_unique<Repeated>(stream_, [this] { enqueue_(in_graph_); });
    for (int i = 0; i < iterations / in_graph_; ++i) graph_->launch();
    enqueue_(iterations % in_graph_);
    stream_.synchronize();
  }

 private:
  Stream& stream_;
  const int in_graph_;
  const std::function<void(int)> enqueue_;
  std::unique_ptr<Repeated> graph_;
};

}  // namespace launcher
