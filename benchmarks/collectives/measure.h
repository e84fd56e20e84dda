// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/dev/stream.h"
#include "call.h"
#include "data.h"
#include "libraries.h"
#include "options.h"
#include "support/abort.h"

namespace collectives {

enum class Library { mpix, attached, nccl, nccl_registered, mpi };
/// graph: many calls captured, the graph launched again and again. MPI's calls are the host's, in a loop.
enum class Mode { stream, graph };

inline const char* name_of(Library library) {
  switch (library) {
    case Library::mpix:
      return "mpix";
    case Library::attached:
      return "mpix-attached";
    case Library::nccl:
      return "nccl";
    case Library::nccl_registered:
      return "nccl-registered";
    case Library::mpi:
      return "mpi";
  }
  return "";
}

struct Variant {
  Library library;
  Mode mode;
  std::function<void(const Call&)> call;
  std::function<std::string()> way;          ///< that calls since the last one have taken; may be empty
  void *send = nullptr, *receive = nullptr;  ///< its own buffers; null: those of all
};

/// µs a call, of the slowest rank.
struct Spread {
  double median = 0, least = 0, most = 0;
};
inline Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

struct Result {
  Library library;
  Mode mode;
  int calls;  ///< in a measurement
  Spread time, cpu;
  std::string way;
  bool right;
};

/// A variant of a call, prepared: its graph is there, its results have been compared.
class Candidate {
 public:
  Candidate(const Variant& variant, const Call& call, Data& data, launcher::Stream& stream, const Options& options)
      : variant_(variant),
        call_(with_buffers_of(variant, call)),
        data_(data),
        stream_(stream),
        in_graph_(variant.mode == Mode::graph ? options.in_graph : 1) {
    if (variant_.way) variant_.way();
    check();
    if (variant_.way) way_ = variant_.way();
    if (options.check_only) return;
    if (variant_.mode == Mode::graph)
      graph_ = std::make_unique<launcher::Repeated>(stream_, [this] { call_times(in_graph_); });
    settle(options);
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;

  /// Collective. The data are new, and the results are compared.
  void measure() {
    using clock = std::chrono::steady_clock;
    data_.fill(call_);
    stream_.synchronize();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = clock::now();
    if (graph_)
      for (int i = 0; i < calls_ / in_graph_; ++i) graph_->launch();
    else
      call_times(calls_);
    const auto enqueued = clock::now();
    stream_.synchronize();
    const auto end = clock::now();
    times_.push_back(std::chrono::duration<double, std::micro>(end - begin).count() / calls_);
    cpu_.push_back(std::chrono::duration<double, std::micro>(enqueued - begin).count() / calls_);
    if (call_.kind != Kind::barrier) data_.compare(call_);
    note_what_is_wrong();
  }

  /// Some turns with data that change from one to the next, in the mode that is measured.
  void check() {
    const int turns = is_large() ? 4 : 8, turns_in_graph = turns / 2;
    const auto run = [this](int count) {
      for (int i = 0; i < count; ++i) {
        data_.fill(call_);
        if (variant_.library == Library::mpi) stream_.synchronize();
        variant_.call(call_);
        data_.compare(call_);
      }
    };
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (variant_.mode == Mode::graph) {
      launcher::Repeated graph(stream_, [&] { run(turns_in_graph); });
      for (int i = 0; i < turns / turns_in_graph; ++i) graph.launch();
      stream_.synchronize();  // the graph is in use until then
    } else {
      run(turns);
    }
    note_what_is_wrong();
  }

  Result result() const {
    return {variant_.library, variant_.mode, calls_, of_slowest_rank(times_), of_slowest_rank(cpu_), way_, right_};
  }

 private:
  static Call with_buffers_of(const Variant& variant, Call call) {
    if (variant.send) call.send = variant.send;
    if (variant.receive) call.receive = variant.receive;
    return call;
  }
  bool is_large() const { return call_.bytes_received() > 1 << 20; }
  void call_times(int count) const {
    for (int i = 0; i < count; ++i) variant_.call(call_);
  }
  void note_what_is_wrong() {
    if (data_.wrong_since() > 0) right_ = false;
  }
  /// Warm up, and choose how many calls fit into the time limit.
  void settle(const Options& options) {
    calls_ = std::max(in_graph_, is_large() ? 1 : 20);
    calls_ = calls_ / in_graph_ * in_graph_;
    for (int i = 0; i < 2; ++i) measure();
    double time = times_.back(), slowest = 0;
    CHECK_MPI(MPI_Allreduce(&time, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    const double fit = std::min<double>(options.calls, options.limit_ms * 1000 / slowest);
    calls_ = std::max(1, static_cast<int>(fit) / in_graph_) * in_graph_;
    times_.clear();
    cpu_.clear();
  }
  static Spread of_slowest_rank(std::vector<double> samples) {
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, samples.data(), static_cast<int>(samples.size()), MPI_DOUBLE, MPI_MAX,
                            MPI_COMM_WORLD));
    return spread_of(std::move(samples));
  }

  const Variant& variant_;
  const Call call_;
  Data& data_;
  launcher::Stream& stream_;
  const int in_graph_;
  std::unique_ptr<launcher::Repeated> graph_;
  int calls_ = 0;
  std::vector<double> times_, cpu_;
  std::string way_;
  bool right_ = true;
};

/// All variants in turn, so that what changes with time changes all. Collective.
inline std::vector<Result> measure_all(const std::vector<Variant>& variants, const Call& call, Data& data,
                                       launcher::Stream& stream, const Options& options) {
  data.load(call);
  std::vector<std::unique_ptr<Candidate>> candidates;
  for (const Variant& variant : variants)
    candidates.push_back(std::make_unique<Candidate>(variant, call, data, stream, options));
  if (!options.check_only) {
    for (int round = 0; round < options.rounds; ++round)
      for (const auto& candidate : candidates) candidate->measure();
    for (const auto& candidate : candidates) candidate->check();
  }
  std::vector<Result> results;
  for (const auto& candidate : candidates) results.push_back(candidate->result());
  return results;
}

}  // namespace collectives
