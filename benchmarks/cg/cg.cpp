// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Conjugate gradients for a stencil of seven points, weak scaling: each process has planes of the box, exchanges the
// outer ones with its neighbours once an iteration, and takes part in two sums of a double.
//
//   mpiexec -n N cg [options]     (--help shows them)
//
//   libmpix           planes by stream epochs, sums by MPIX_Allreduce_stream: all is enqueued
//   libmpix captured  on GPUs: some iterations of that in a graph, which is launched again and again
//   libmpix loop      with CUDA: the whole solve in one launch, of a graph whose WHILE node has some iterations in its
//                     body; it ends when the residual is small, of which all processes have the same bits
//   NCCL, captured    the same by ncclSend, ncclRecv and ncclAllReduce
//   MPI               a loop of the host: MPI_Isend, MPI_Irecv and MPI_Allreduce behind synchronizations of the stream,
//                     on GPUs by way of memory of the host
//
// Checked behind each measurement: the residual of each iteration and the solution are those of a serial computation,
// but for rounding; and all rows of libmpix have the same bits, each time.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/collectives/loops.h"
#include "kernels.h"
#include "libraries.h"
#include "options.h"
#include "reference.h"
#include "solver.h"
#include "support/abort.h"
#include "support/domain.h"

namespace {

using namespace cg;

struct Row {
  std::string name;
  bool is_mpix;
  std::unique_ptr<Solver> solver;
  std::vector<double> times = {};  ///< µs an iteration, of the slowest process
  bool right = true;

  double median() const { return times[times.size() / 2]; }
};

/// Of what both have: a loop may have ended before.
bool has_same_bits(const Solution& found, const Solution& other) {
  const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::memcmp(a.data(), b.data(), std::min(a.size(), b.size()) * sizeof(double)) == 0;
  };
  return same(found.history, other.history) && (found.iterations() != other.iterations() || same(found.x, other.x));
}

class Benchmark {
 public:
  explicit Benchmark(const Options& options)
      : options_(options),
        box_{options.side, options.side, options.planes},
        all_{options.side, options.side, options.planes * processes()},
        stream_(1, loops::threads),
        direction_(box_),
        fields_(direction_, right_hand_side(box_, first_plane()), options.iterations),
        mpix_(direction_, stream_),
        mpi_(direction_, stream_, support::ranks_are_blocks && options.mpi_is_staged) {
    std::string missing;
    auto world = nccl::World::make(options.nccl, missing);
    if (process() == 0) print_setting(world ? world->about() : missing);
    if (world) nccl_ = std::make_unique<Nccl>(direction_, stream_, std::move(world));
    expected_ = solve_serially(all_, options_.iterations);
    add_both("libmpix", mpix_);
    // No such row for NCCL: CUDA 13.0 refuses to instantiate a body with what NCCL 2.28.9 captures.
    if (Loop::is_there) add("libmpix loop", mpix_, How::in_a_loop);
    if (nccl_) add_both("NCCL", *nccl_);
    add("MPI", mpi_, How::by_host);
  }

  bool run() {
    for (int round = 0; round <= options_.rounds; ++round)
      for (Row& row : rows_) {
        const double time = measure(row);
        const int iterations = check(row);
        if (round > 0) row.times.push_back(time / iterations);  // the first is for warming up
      }
    for (Row& row : rows_) std::sort(row.times.begin(), row.times.end());
    if (process() == 0) print();
    return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.right; });
  }

 private:
  void add(const std::string& name, Library& library, How how) {
    const double falls = options_.digits == 0 ? 0 : std::pow(10, -2 * options_.digits);
    const End end{static_cast<std::uint64_t>(options_.iterations), falls * expected_.history.front()};
    rows_.push_back(
        {name, &library == &mpix_, std::make_unique<Solver>(fields_, stream_, library, how, options_.in_graph, end)});
  }
  void add_both(const std::string& name, Library& library) {
    add(name, library, How::enqueued);
    if (support::ranks_are_blocks) add(name + " captured", library, How::captured);
  }
  int first_plane() const { return process() * box_.planes; }

  double measure(const Row& row) {
    using clock = std::chrono::steady_clock;
    row.solver->begin();
    stream_.synchronize();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = clock::now();
    row.solver->iterate();
    stream_.synchronize();
    double mine = std::chrono::duration<double, std::micro>(clock::now() - begin).count(), all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return all;
  }

  /// Says what is wrong, once a row. Returns how many iterations there were.
  int check(Row& row) {
    Solution found = fields_.solution();
    const int iterations = found.iterations();
    std::string wrong = what_is_wrong(found);
    if (wrong.empty() && row.is_mpix) {
      if (first_.history.empty())
        first_ = std::move(found);
      else if (!has_same_bits(found, first_))
        wrong = "not the bits of libmpix's first run";
    }
    const int mine = wrong.empty() ? 0 : 1;
    int any = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    if (mine && row.right) std::printf("%s, process %d: %s\n", row.name.c_str(), process(), wrong.c_str());
    if (any) row.right = false;
    return std::max(iterations, 1);
  }
  std::string what_is_wrong(const Solution& found) const {
    const int iterations = found.iterations();
    const double start = expected_.history.front();
    const bool has_fallen = options_.digits > 0 && found.history.back() <= std::pow(10, -2 * options_.digits) * start;
    if (iterations != options_.iterations && (iterations < 1 || iterations > options_.iterations || !has_fallen))
      return std::to_string(iterations) + " iterations";
    for (std::size_t k = 0; k < found.history.size(); ++k) {
      const double should = expected_.history[k];
      if (!(std::fabs(found.history[k] - should) <= 1e-6 * should + 1e-20 * start))
        return "the residual of iteration " + std::to_string(k) + " is " + std::to_string(found.history[k]) + ", not " +
               std::to_string(should);
    }
    if (iterations == options_.iterations) return what_is_wrong(found.x, expected_.x);
    return what_is_wrong(found.x, solve_serially(all_, iterations).x);
  }
  std::string what_is_wrong(const std::vector<double>& x, const std::vector<double>& expected) const {
    const double* const mine = expected.data() + static_cast<std::size_t>(first_plane()) * box_.plane();
    double most = 0;
    for (const double value : expected) most = std::max(most, std::fabs(value));
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!(std::fabs(x[i] - mine[i]) <= 1e-8 * most)) return "point " + std::to_string(i) + " of the solution";
    return "";
  }

  void print_setting(const std::string& nccl) const {
    std::printf("conjugate gradients, %d x %d x %d points of each of %d processes; streams of %s\n", box_.columns,
                box_.rows, box_.planes, processes(), support::ranks_are_blocks ? "GPUs" : "the host");
    std::printf("%d iterations a measurement, %d rounds, %d in a graph and in the body of a loop\n",
                options_.iterations, options_.rounds, options_.in_graph);
    std::printf("NCCL: %s\n", nccl.c_str());
    if (support::ranks_are_blocks) std::printf("MPI: %s\n", options_.mpi_is_staged ? "staged" : "GPU-aware");
  }
  const Row* find(const std::string& name) const {
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.name == name; });
    return found == rows_.end() ? nullptr : &*found;
  }
  static std::string ratio(const Row& row, const Row* other) {
    if (!other || !row.right || !other->right) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", row.median() / other->median());
    return text;
  }
  void print() const {
    const double falls = std::sqrt(expected_.history.back() / expected_.history.front());
    std::printf("the residual falls to %.3g of what it was\n\n", falls);
    std::printf("%-17s %12s %10s %10s %8s %10s %8s  %s\n", "variant", "us/iteration", "least", "most", "to NCCL",
                "captured", "to MPI", "results");
    std::FILE* const csv = options_.csv.empty() ? nullptr : std::fopen(options_.csv.c_str(), "w");
    if (!options_.csv.empty() && !csv) std::perror(options_.csv.c_str());
    if (csv) std::fprintf(csv, "variant,processes,columns,rows,planes,iterations,us,us_least,us_most,right\n");
    for (const Row& row : rows_) {
      std::printf("%-17s %12.2f %10.2f %10.2f %8s %10s %8s  %s\n", row.name.c_str(), row.median(), row.times.front(),
                  row.times.back(), ratio(row, find("NCCL")).c_str(), ratio(row, find("NCCL captured")).c_str(),
                  ratio(row, find("MPI")).c_str(), row.right ? "right" : "WRONG");
      if (csv)
        std::fprintf(csv, "%s,%d,%d,%d,%d,%d,%.3f,%.3f,%.3f,%s\n", row.name.c_str(), processes(), box_.columns,
                     box_.rows, box_.planes, options_.iterations, row.median(), row.times.front(), row.times.back(),
                     row.right ? "yes" : "WRONG");
    }
    if (csv) std::fclose(csv);
  }

  const Options& options_;
  const Box box_, all_;  ///< of a process, of all
  launcher::Stream stream_;
  const Direction direction_;
  const Fields fields_;
  Mpix mpix_;
  Mpi mpi_;
  std::unique_ptr<Nccl> nccl_;
  std::vector<Row> rows_;
  Solution expected_, first_;
};

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
  support::choose_gpu(process());
  const Options options = read_options(argc, argv);
  const bool right = Benchmark(options).run();
  CHECK_MPI(MPI_Finalize());
  return right ? 0 : 1;
}
