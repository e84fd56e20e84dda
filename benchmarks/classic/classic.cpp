// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Collectives of GPUs that processors lead, as they are in I. Faraji's dissertation (Queen's University, 2018), beside
// those of libmpix, which kernels lead, and of MPI, staged through memory of the host.
//
//   mpiexec -n N classic [options]     (--help shows them)
//
// GSB, BTB   all ranks on one GPU: chapter 3 (levels.h)
// X-Y        X among the ranks of a GPU, Y between the GPUs of a node: chapter 4 (levels.h)
// Static, Dynamic   copies by memory of the host and by mapped memory of the GPU side by side: chapter 5 (mixes.h).
//            Static's table is what Dynamic has chosen, as there: the mean of the calls of its measurement.
//            Shown: copies that Dynamic staged, of a stage, and sent again, of a call, in the mean, of the first node
// --nodes=N  the ranks are dealt out to N pretended nodes: each of these inside a node, MPI between the nodes' leaders,
//            by way of pinned memory, and back: the extensions of all three chapters to clusters. MPI and libmpix have
//            all ranks in one call; libmpix believes in the nodes where MPIX_NODE_SIZE is the ranks of one
// --pairs    instead of collectives: why chapter 5 mixes copies (pairs.h)
// --init     what the set-up of GSB and BTB takes, in calls: chapter 3
// kernels    likewise, where kernels lead: libmpix's own ways of these names (MPIX_COLL)
// libmpix    the call, and the end of the stream: it is not used as it is meant, for the others return when it is done
#include <mpi.h>
#include <mpix_collectives.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/collectives/call.h"
#include "benchmarks/collectives/data.h"
#include "benchmarks/collectives/libraries.h"
#include "benchmarks/collectives/loops.h"
#include "benchmarks/collectives/memory.h"
#include "levels.h"
#include "mixes.h"
#include "nodes.h"
#include "options.h"
#include "pairs.h"
#include "support/abort.h"
#include "support/domain.h"

namespace {

using namespace classic;
using collectives::Call;
using collectives::Kind;

/// One of the ways to make a call, which returns when it is done.
struct Way {
  std::string name;
  std::function<void(const Call&)> call;
  double setup = 0;                ///< µs, once, of the slowest rank; 0: not measured
  std::vector<double> times = {};  ///< µs a call, of the slowest rank
  int calls = 1;
  bool right = true;
  std::function<void()> prepare = [] {};  ///< collective; not measured
  double median() const {
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
};

class Benchmark {
 public:
  Benchmark(const Options& options, const Place& place)
      : options_(options),
        places_(place),
        most_(*std::max_element(options.sizes.begin(), options.sizes.end())),
        stream_(1, loops::threads),
        send_(most_),
        receive_(most_ * static_cast<std::size_t>(ranks_)),
        data_(stream_),
        mpi_(stream_, support::ranks_are_blocks, receive_.bytes()),
        mixed_(places_, stream_, most_ / sizeof(float)) {
    if (options.slow != "none") mixed_.slow_down(options.slow == "ipc" ? ipc : staged);
  }

  bool run() {
    allreduce();
    if (places_.gpus == 1) allgather();
    return right_;
  }

 private:
  /// `setup`: where it is wanted, µs to make one, of the slowest rank; median of the rounds, and the first is not
  /// counted, with what a GPU and MPI do only once.
  std::unique_ptr<Hierarchy> hierarchy(Shape inside, Shape between, double* setup = nullptr) {
    const auto make = [&] {
      return std::make_unique<Hierarchy>(places_, inside, between, stream_, most_ / sizeof(float));
    };
    auto made = make();
    if (!options_.init || options_.check_only || !setup) return made;
    Way way{"", [&](const Call&) { made = make(); }};
    for (int round = 0; round < options_.rounds; ++round) {
      made.reset();
      way.times.push_back(time({}, way));
    }
    *setup = way.median();
    return made;
  }
  static const float* source(const Call& c) { return static_cast<const float*>(c.send); }
  static float* target(const Call& c) { return static_cast<float*>(c.receive); }

  void allreduce() {
    double setup_of_gsb = 0, setup_of_btb = 0;
    const auto gsb = hierarchy(Shape::gsb, Shape::gsb, &setup_of_gsb);
    const auto btb = hierarchy(Shape::btb, Shape::btb, &setup_of_btb);
    const auto gsb_btb = hierarchy(Shape::gsb, Shape::btb), btb_gsb = hierarchy(Shape::btb, Shape::gsb);
    std::vector<Way> ways = libraries();
    const auto add = [&](const char* name, Hierarchy& by, double setup = 0) {
      ways.push_back({name, [&by](const Call& c) { by.allreduce(source(c), target(c), c.count); }, setup});
    };
    if (places_.gpus == 1) {
      add("GSB", *gsb, setup_of_gsb);
      add("BTB", *btb, setup_of_btb);
      add_kernels(ways, "GSB, kern.", "gsb");
      add_kernels(ways, "BTB, kern.", "btb");
      add_mixes(ways,
                [this](Mixing& mixing, const Call& c) { mixed_.allreduce(mixing, source(c), target(c), c.count); });
    } else {
      add("GSB-GSB", *gsb, setup_of_gsb);
      add("GSB-BTB", *gsb_btb);
      add("BTB-GSB", *btb_gsb);
      add("BTB-BTB", *btb, setup_of_btb);
      add_kernels(ways, "GSB-GSB, k", "gsb");
      add_kernels(ways, "GSB-BTB, k", "gsb-btb");
      add_kernels(ways, "BTB-GSB, k", "btb-gsb");
      add_kernels(ways, "BTB-BTB, k", "btb");
    }
    table(Kind::allreduce, ways);
  }
  /// `way`: see collectives::Mpix.
  void add_kernels(std::vector<Way>& ways, const char* name, const char* way) {
    ways.push_back({name, [this](const Call& c) { mpix_->enqueue(c), stream_.synchronize(); }});
    ways.back().prepare = [this, way] {
      if (mpix_ && mpix_way_ == way) return;
      mpix_.reset();
      mpix_ = std::make_unique<collectives::Mpix>(stream_, way);
      mpix_way_ = way;
    };
  }
  void allgather() {
    std::vector<Way> ways = libraries();
    add_mixes(ways, [this](Mixing& mixing, const Call& c) { mixed_.allgather(mixing, source(c), target(c), c.count); });
    table(Kind::allgather, ways);
  }

  std::vector<Way> libraries() {
    std::vector<Way> ways{{"MPI", [this](const Call& c) { mpi_.call(c), stream_.synchronize(); }}};
    add_kernels(ways, "libmpix", nullptr);
    return ways;
  }
  template <class Run>
  void add_mixes(std::vector<Way>& ways, Run run) {
    if (places_.ranks_of_node == 1) return;
    // Dynamic is measured first: Static has its table.
    ways.push_back({"Dynamic", [this, run](const Call& c) {
                      run(dynamic_, c);
                      ++dynamic_calls_;
                      staged_in_all_ += mixed_.staged_in_gather() + mixed_.staged_in_broadcast();
                      sent_again_ += mixed_.has_come_again();
                    }});
    ways.push_back({"Static", [this, run](const Call& c) {
                      static_.set(staged_by_table());
                      run(static_, c);
                    }});
    for (const int staged_ones : options_.mixes)
      ways.push_back({std::to_string(staged_ones) + " HS", [this, run, staged_ones](const Call& c) {
                        static_.set(staged_ones);
                        run(static_, c);
                      }});
  }
  /// Known to the leader, who assigns: what Dynamic has staged in a stage of this size, in the mean.
  int staged_by_table() const {
    return dynamic_calls_ == 0 ? 0 : static_cast<int>(std::lround(staged_in_all_ / (2. * dynamic_calls_)));
  }

  void table(Kind kind, std::vector<Way>& ways) {
    const bool has_mixes = places_.gpus == 1 && places_.ranks_of_node > 1;
    if (rank_ == 0) {
      std::printf("\n%s of floats: %s\n%8s", collectives::name_of(kind),
                  options_.check_only ? "checked only" : "us a call, of the slowest rank; median", "block");
      for (const Way& way : ways) std::printf(" %10s", way.name.c_str());
      if (!options_.check_only) std::printf(" |  MPI's time to that of the others");
      std::printf("%s\n", has_mixes ? ";  staged, sent again" : "");
    }
    std::string lines;
    for (const std::size_t bytes : options_.sizes) {
      const Call call{kind,          collectives::Type::float32, bytes / sizeof(float), rank_, ranks_, send_.get(),
                      receive_.get()};
      dynamic_calls_ = 0;
      staged_in_all_ = 0;
      sent_again_ = 0;
      measure(call, ways);
      if (rank_ == 0) print(bytes, ways, has_mixes);
      lines += line_of_setup(bytes, ways);
    }
    if (rank_ == 0 && !lines.empty()) {
      std::printf("\ncalls until the set-up has paid, against MPI\n%8s", "block");
      for (const Way& way : ways)
        if (way.setup > 0) std::printf(" %10s", way.name.c_str());
      std::printf("\n%s%8s", lines.c_str(), "set-up:");
      for (const Way& way : ways)
        if (way.setup > 0) std::printf(" %7.1f ms", way.setup / 1000);
      std::printf("\n");
    }
  }
  /// For the ways whose set-up was measured.
  static std::string line_of_setup(std::size_t bytes, const std::vector<Way>& ways) {
    std::string line;
    for (const Way& way : ways) {
      if (way.setup <= 0) continue;
      const double saved = ways[0].median() - way.median();
      char calls[32] = "never";
      if (saved > 0) std::snprintf(calls, sizeof calls, "%.0f", std::ceil(way.setup / saved));
      char text[64];
      std::snprintf(text, sizeof text, " %10s", calls);
      line += text;
    }
    if (line.empty()) return line;
    char block[32];
    std::snprintf(block, sizeof block, "%8zu", bytes);
    return block + line + "\n";
  }

  void measure(const Call& call, std::vector<Way>& ways) {
    for (Way& way : ways) {
      way.times.clear();
      way.right = true;
      for (int turn = 0; turn < 4; ++turn) check(call, way);
      if (options_.check_only) continue;
      way.calls = 4;
      const double first = time(call, way);
      way.calls = std::max(1, static_cast<int>(std::min<double>(options_.calls, options_.limit_ms * 1000 / first)));
    }
    for (int round = 0; round < options_.rounds && !options_.check_only; ++round)
      for (Way& way : ways) way.times.push_back(time(call, way));
    for (Way& way : ways) {
      check(call, way);
      right_ = right_ && way.right;
    }
  }
  double time(const Call& call, const Way& way) {
    using clock = std::chrono::steady_clock;
    way.prepare();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = clock::now();
    for (int i = 0; i < way.calls; ++i) way.call(call);
    double took = std::chrono::duration<double, std::micro>(clock::now() - begin).count() / way.calls, slowest = 0;
    CHECK_MPI(MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return slowest;
  }
  void check(const Call& call, Way& way) {
    way.prepare();
    data_.fill(call);
    stream_.synchronize();
    way.call(call);
    data_.compare(call);
    if (data_.wrong_since() > 0) way.right = false;
  }

  void print(std::size_t bytes, const std::vector<Way>& ways, bool has_mixes) const {
    std::printf("%8zu", bytes);
    for (const Way& way : ways)
      if (!way.right || options_.check_only)
        std::printf(" %10s", way.right ? "right" : "WRONG");
      else
        std::printf(" %10.1f", way.median());
    if (!options_.check_only) {
      std::printf(" | ");
      for (std::size_t i = 1; i < ways.size(); ++i) std::printf(" %6.2f", ways[0].median() / ways[i].median());
    }
    if (has_mixes && dynamic_calls_ > 0)
      std::printf(";  %.1f, %.2f", staged_in_all_ / (2. * dynamic_calls_), 1. * sent_again_ / dynamic_calls_);
    std::printf("\n");
    std::fflush(stdout);
  }

  const Options& options_;
  const int rank_ = benchmark::process(), ranks_ = benchmark::processes();
  const Places places_;
  const std::size_t most_;
  launcher::Stream stream_;
  const place::Memory send_, receive_;
  collectives::Data data_;
  /// One communicator at a time: several would share what a GPU has of room for their blocks.
  std::unique_ptr<collectives::Mpix> mpix_;
  const char* mpix_way_ = nullptr;
  const collectives::Mpi mpi_;
  MixedCopies mixed_;
  Dynamic dynamic_;
  Static static_;
  int dynamic_calls_ = 0, sent_again_ = 0;  // the leader's, as is the next
  double staged_in_all_ = 0;
  bool right_ = true;
};

void print_setting(const Options& options, const Place& place) {
  std::printf("%d ranks on ", benchmark::processes());
  if (place.nodes > 1) std::printf("%d pretended nodes of ", place.nodes);
  std::printf("%d %s; up to %d calls or %g ms a measurement, %d rounds\n", place.gpus,
              support::ranks_are_blocks ? "GPUs" : "pretended GPUs, streams of the host", options.calls,
              options.limit_ms, options.rounds);
  const char* const believed = std::getenv("MPIX_NODE_SIZE");
  if (place.nodes > 1 && (!believed || std::atoi(believed) != place.ranks_of_node))
    std::printf("note: libmpix does not see these nodes without MPIX_NODE_SIZE=%d\n", place.ranks_of_node);
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
  const Options options = read_options(argc, argv, "classic");
  const Place place(benchmark::process(), benchmark::processes(), options.nodes, options.gpus);
  support::choose_gpu(place.gpu);
  if (place.node == 0 && place.local == 0) print_setting(options, place);
  const bool right = options.pairs ? PairsTable(options).run() : Benchmark(options, place).run();
  if (!right && benchmark::process() == 0) std::printf("\nWRONG: not all results were right\n");
  CHECK_MPI(MPI_Finalize());
  return right ? 0 : 1;
}
