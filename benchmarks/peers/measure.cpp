// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "measure.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>

#include "graphs.h"
#include "support/abort.h"

namespace peers {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_loop(Mode mode) { return mode == Mode::loop || mode == Mode::unrolled; }

/// Its graph has several epochs.
bool is_multiple(Mode mode) { return mode == Mode::graph || mode == Mode::unrolled; }

/// A row in a mode, prepared: its graph is there, its data was checked.
class Candidate {
 public:
  Candidate(const Row& row, Mode mode, Data& data, const Options& options, cudaStream_t stream)
      : row_(row),
        mode_(mode),
        step_(mode == Mode::graph      ? options.epochs_in_graph
              : mode == Mode::unrolled ? options.epochs_in_body
                                       : 1),
        stream_(stream) {
    check(data);
    if (failure_.empty() && mode == Mode::graph) {
      graph_ = std::make_unique<EpochGraph>(options.epochs_in_graph, row.captured_epoch, stream);
      failure_ = graph_->failure();
    }
    if (failure_.empty() && is_loop(mode)) {
      loop_ = std::make_unique<LoopGraph>(step_, row.captured_epoch, stream);
      failure_ = loop_->failure();
    }
    agree();
    if (failure_.empty()) settle(options);
  }

  void measure() {
    if (!failure_.empty()) return;
    if (loop_) loop_->set_runs(static_cast<unsigned>(epochs_ / step_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const double begin = now_us();
    enqueue(epochs_);
    const double enqueued = now_us();
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    times_.push_back((now_us() - begin) / epochs_);
    cpu_.push_back((enqueued - begin) / epochs_);
  }

  Measured result() {
    Measured measured{row_.key, row_.name, mode_, epochs_, {}, {}, right_, failure_};
    if (!failure_.empty()) return measured;
    measured.time = spread_of(of_slowest_rank(times_));
    measured.cpu = spread_of(of_slowest_rank(cpu_));
    return measured;
  }

 private:
  void enqueue(int epochs) {
    if (graph_) return graph_->launch(epochs / step_);
    if (loop_) return loop_->launch();
    for (int i = 0; i < epochs; ++i) row_.epoch();
  }

  /// Run it with all its data written and compared, in the mode that will be measured.
  void check(Data& data) {
    constexpr int rounds = 12, rounds_in_graph = 4;
    const auto checked = [&](const std::function<void()>& epoch) {
      data.fill(row_.send);
      if (row_.meet) row_.meet();
      epoch();
      if (row_.meet) row_.meet();
      data.check(row_.received());
    };
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (mode_ == Mode::stream) {
      for (int i = 0; i < rounds; ++i) checked(row_.epoch);
    } else if (mode_ == Mode::graph) {
      EpochGraph graph(
          rounds_in_graph, [&] { checked(row_.captured_epoch); }, stream_);
      failure_ = graph.failure();
      agree();
      if (failure_.empty()) graph.launch(rounds / rounds_in_graph);
      CHECK_CUDA(cudaStreamSynchronize(stream_));
    } else {
      const int in_body = is_multiple(mode_) ? rounds_in_graph : 1;
      LoopGraph loop(
          in_body, [&] { checked(row_.captured_epoch); }, stream_);
      failure_ = loop.failure();
      agree();
      if (failure_.empty()) {
        loop.set_runs(static_cast<unsigned>(rounds / in_body));
        loop.launch();
      }
      CHECK_CUDA(cudaStreamSynchronize(stream_));
    }
    right_ = data.wrong_anywhere() == 0;
  }

  /// A failure on one rank is one of all: else the others would wait for it.
  void agree() {
    const int mine = failure_.empty() ? 0 : 1;
    int any = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    if (any && !mine) failure_ = "it failed on another rank";
  }

  /// Warm up, and choose how many epochs fit into the time limit.
  void settle(const Options& options) {
    constexpr int few = 20;
    if (mode_ == Mode::stream && row_.warm_up > few) {
      enqueue(row_.warm_up);
      CHECK_CUDA(cudaStreamSynchronize(stream_));
    }
    epochs_ = is_multiple(mode_) ? step_ : few;
    for (int i = 0; i < 2; ++i) measure();
    const double time = of_slowest_rank(times_).back();
    times_.clear();
    cpu_.clear();
    const double fit = std::min<double>(options.epochs, options.limit_ms * 1000 / time);
    epochs_ = std::max(1, static_cast<int>(fit) / step_) * step_;
  }

  static std::vector<double> of_slowest_rank(std::vector<double> samples) {
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, samples.data(), static_cast<int>(samples.size()), MPI_DOUBLE, MPI_MAX,
                            MPI_COMM_WORLD));
    return samples;
  }

  const Row& row_;
  const Mode mode_;
  const int step_;
  const cudaStream_t stream_;
  std::unique_ptr<EpochGraph> graph_;
  std::unique_ptr<LoopGraph> loop_;
  int epochs_ = 0;
  std::vector<double> times_, cpu_;
  bool right_ = false;
  std::string failure_;
};

bool is_possible(const Row& row, Mode mode) {
  return mode == Mode::stream || (row.captured_epoch && (mode == Mode::graph || row.loops));
}

}  // namespace

const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::stream:
      return "stream";
    case Mode::graph:
      return "graph";
    case Mode::loop:
      return "loop";
    case Mode::unrolled:
      return "unrolled";
  }
  return "";
}

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

std::vector<Measured> measure_all(const std::vector<Row>& rows, Data& data, const Options& options,
                                  cudaStream_t stream) {
  std::vector<std::unique_ptr<Candidate>> candidates;
  for (Mode mode : all_modes)
    for (const Row& row : rows)
      if (contains(options.modes, name_of(mode)) && is_possible(row, mode))
        candidates.push_back(std::make_unique<Candidate>(row, mode, data, options, stream));
  for (int repeat = 0; repeat < options.repeats; ++repeat)
    for (const auto& candidate : candidates) candidate->measure();
  std::vector<Measured> results;
  for (const auto& candidate : candidates) results.push_back(candidate->result());
  return results;
}

}  // namespace peers
