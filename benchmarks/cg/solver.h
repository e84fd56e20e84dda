// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/collectives/loops.h"
#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "kernels.h"
#include "libraries.h"
#include "reference.h"
#include "support/domain.h"

namespace cg {

/// The memory of a process; all solvers share it.
class Fields {
 public:
  Fields(const Direction& direction, const std::vector<double>& b, int iterations)
      : box_(direction.box()),
        x_(bytes()),
        r_(bytes()),
        q_(bytes()),
        b_(bytes()),
        history_(static_cast<std::size_t>(iterations) * sizeof(double)),
        scalars_(sizeof(Scalars)),
        partials_(static_cast<std::size_t>(blocks()) * sizeof(double)),
        ended_(sizeof(std::uint64_t)),
        p_(direction.plane(0)),
        iterations_(iterations) {
    support::from_host(b_.get(), b.data(), bytes());
    support::synchronize();  // not all streams wait for such copies
  }

  const Box& box() const { return box_; }
  int blocks() const { return std::min(loops::blocks_for(box_.points()), 1024); }
  Vectors vectors() const {
    return {x_.as<double>(),
            r_.as<double>(),
            p_,
            q_.as<double>(),
            b_.as<double>(),
            history_.as<double>(),
            static_cast<std::size_t>(iterations_),
            scalars_.as<Scalars>(),
            partials_.as<double>(),
            ended_.as<std::uint64_t>()};
  }
  /// What a solver has left; its stream is done.
  Solution solution() const {
    Solution found{std::vector<double>(box_.points()), std::vector<double>(static_cast<std::size_t>(iterations_) + 1)};
    Scalars scalars{};
    support::to_host(found.x.data(), x_.get(), bytes());
    support::to_host(found.history.data(), history_.get(), history_.bytes());
    support::to_host(&scalars, scalars_.get(), sizeof scalars);
    found.history.back() = scalars.rr_next;
    return found;
  }

 private:
  std::size_t bytes() const { return box_.points() * sizeof(double); }

  const Box box_;
  const place::Memory x_, r_, q_, b_, history_, scalars_, partials_, ended_;
  double* const p_;
  const int iterations_;
};

/// Enqueues iterations, with a library in between: none here knows what the scalars are, or waits.
class Solver {
 public:
  /// `in_graph` > 0: so many iterations are captured once, and launched again and again.
  Solver(const Fields& fields, launcher::Stream& stream, Library& library, bool on_stream, int in_graph)
      : fields_(fields), stream_(stream), library_(library), on_stream_(on_stream), in_graph_(in_graph) {}

  /// x = 0; rr_next is that of the right-hand side.
  void begin() {
    run(Begin{fields_.box(), fields_.vectors(), fields_.blocks()});
    update_solution();
  }
  void iterate(int iterations) {
    if (in_graph_ > 0 && iterations >= in_graph_) {
      if (!graph_) graph_ = std::make_unique<launcher::Repeated>(stream_, [this] { enqueue(in_graph_); });
      for (; iterations >= in_graph_; iterations -= in_graph_) graph_->launch();
    }
    enqueue(iterations);
  }

 private:
  void enqueue(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      library_.expose();
      run(UpdateDirection{fields_.box(), fields_.vectors(), fields_.blocks()});
      library_.exchange();
      run(Multiply{fields_.box(), fields_.vectors(), fields_.blocks()});
      Scalars* const scalars = fields_.vectors().scalars;
      library_.sum(&scalars->own_pq, &scalars->pq);
      update_solution();
    }
  }
  void update_solution() {
    run(UpdateSolution{fields_.box(), fields_.vectors(), fields_.blocks()});
    Scalars* const scalars = fields_.vectors().scalars;
    library_.sum(&scalars->own_rr, &scalars->rr_next);
  }
  template <class Body>
  void run(const Body& body) {
    if constexpr (!support::ranks_are_blocks) {
      if (!on_stream_) {  // a loop of the host needs no stream
        for (int block = 0; block < body.blocks; ++block) body(block);
        return;
      }
    }
    stream_.run(body, body.blocks);
  }

  const Fields& fields_;
  launcher::Stream& stream_;
  Library& library_;
  const bool on_stream_;
  const int in_graph_;
  std::unique_ptr<launcher::Repeated> graph_;
};

}  // namespace cg
