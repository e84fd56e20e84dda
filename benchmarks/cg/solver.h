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
#include "loop.h"
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
        partials_(static_cast<std::size_t>(blocks_for(box_)) * sizeof(double)),
        ended_(sizeof(std::uint64_t)),
        p_(direction.plane(0)),
        iterations_(iterations) {
    support::from_host(b_.get(), b.data(), bytes());
    support::synchronize();  // not all streams wait for such copies
  }

  const Box& box() const { return box_; }
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
    Solution found{std::vector<double>(box_.points()), std::vector<double>(static_cast<std::size_t>(iterations_))};
    Scalars scalars{};
    support::to_host(found.x.data(), x_.get(), bytes());
    support::to_host(found.history.data(), history_.get(), history_.bytes());
    support::to_host(&scalars, scalars_.get(), sizeof scalars);
    found.history.resize(static_cast<std::size_t>(scalars.iteration));
    found.history.push_back(scalars.rr_next);
    return found;
  }

 private:
  std::size_t bytes() const { return box_.points() * sizeof(double); }

  const Box box_;
  const place::Memory x_, r_, q_, b_, history_, scalars_, partials_, ended_;
  double* const p_;
  const int iterations_;
};

enum class How {
  by_host,   ///< no stream where that is of the host
  enqueued,  ///< to the stream
  captured,  ///< some iterations in a graph, which is launched again and again
  in_a_loop  ///< they are the body of a graph's WHILE node, which is launched once
};

/// Enqueues iterations, with a library in between: none here knows what the scalars are, or waits.
class Solver {
 public:
  /// `some`: iterations in a graph, or in the body of its loop.
  Solver(const Fields& fields, launcher::Stream& stream, Library& library, How how, int some, const End& end)
      : fields_(fields), stream_(stream), library_(library), how_(how), some_(some), end_(end) {}

  /// x = 0; rr_next is that of the right-hand side.
  void begin() {
    run(Begin{fields_.box(), fields_.vectors(), blocks_for(fields_.box())});
    update_solution();
  }
  /// All of them; a loop may end before.
  void iterate() {
    const auto enqueue_some = [this] { enqueue(some_); };
    const auto all = static_cast<int>(end_.iterations);
    if (how_ == How::in_a_loop) {
      if (!loop_) loop_ = std::make_unique<Loop>(stream_, fields_.vectors(), end_, enqueue_some);
      loop_->launch();
    } else if (how_ == How::captured) {
      if (!graph_) graph_ = std::make_unique<launcher::Repeated>(stream_, enqueue_some);
      for (int done = 0; done < all; done += some_) graph_->launch();
    } else {
      enqueue(all);
    }
  }

 private:
  void enqueue(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      library_.expose();
      run(UpdateDirection{fields_.box(), fields_.vectors(), blocks_for(fields_.box())});
      library_.exchange();
      run(Multiply{fields_.box(), fields_.vectors(), blocks_for(fields_.box())});
      Scalars* const scalars = fields_.vectors().scalars;
      library_.sum(&scalars->own_pq, &scalars->pq);
      update_solution();
    }
  }
  void update_solution() {
    run(UpdateSolution{fields_.box(), fields_.vectors(), blocks_for(fields_.box())});
    Scalars* const scalars = fields_.vectors().scalars;
    library_.sum(&scalars->own_rr, &scalars->rr_next);
  }
  template <class Body>
  void run(const Body& body) {
    if constexpr (!support::ranks_are_blocks) {
      if (how_ == How::by_host) {
        for (int block = 0; block < body.blocks; ++block) body(block);
        return;
      }
    }
    stream_.run(body, body.blocks);
  }

  const Fields& fields_;
  launcher::Stream& stream_;
  Library& library_;
  const How how_;
  const int some_;
  const End end_;
  std::unique_ptr<launcher::Repeated> graph_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace cg
