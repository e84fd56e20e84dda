// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The collectives of libmpix on streams, beside those of NCCL and of MPI.
//
//   mpiexec -n N collectives [options]     (--help shows them)
//
// A size is that of a block, as MPI's count says: an all-gather and an all-to-all receive a block of each rank, and
// reduce_scatter_block reduces as many. Rooted collectives have rank 0 as root.
//
// libmpix   on streams of the host, or of a GPU: calls enqueued one behind the other, and on GPUs captured
// attached  the same with the buffers attached to the communicator. Both are ordinary memory of the GPU
// NCCL      the same; a barrier is an all-reduce of one float, an all-to-all a group of sends and receives
// reg.      of NCCL, with buffers of its own memory that are registered with it as symmetric windows; NCCL 2.27 and
//           later. Its barrier is the same
// MPI       a loop of the host. On GPUs each call synchronizes the stream, and copies to memory of the host and back
//
// way: how libmpix moves the data, without and with the buffers attached.
#include <mpi.h>
#include <mpix_collectives.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "data.h"
#include "libraries.h"
#include "loops.h"
#include "measure.h"
#include "memory.h"
#include "options.h"
#include "report.h"
#include "support/abort.h"
#include "support/domain.h"

namespace {

using namespace collectives;

class Benchmark {
 public:
  explicit Benchmark(const Options& options)
      : options_(options),
        stream_(1, loops::threads),
        send_(options.most),
        receive_(options.most),
        data_(stream_),
        attached_send_(options.most),
        attached_receive_(options.most),
        mpix_(stream_),
        mpi_(stream_, support::ranks_are_blocks && options.mpi_is_staged, options.most) {
    mpix_.attach(attached_send_);
    mpix_.attach(attached_receive_);
    std::string missing;
    auto world = nccl::World::make(options.nccl, missing);
    if (rank_ == 0) print_setting(world ? world->about() : missing);
    if (world) nccl_ = std::make_unique<Nccl>(stream_, std::move(world));
    if (nccl_) {
      const std::string without = nccl_->register_buffers(options.most);
      is_registered_ = without.empty();
      if (rank_ == 0 && !is_registered_) std::printf("NCCL, registered memory: left out: %s\n", without.c_str());
    }
    list_variants();
  }
  ~Benchmark() {
    mpix_.detach(attached_receive_);
    mpix_.detach(attached_send_);
  }
  Benchmark(const Benchmark&) = delete;
  Benchmark& operator=(const Benchmark&) = delete;

  bool run() {
    if (rank_ == 0) report_ = std::make_unique<Report>(options_, ranks_);
    for (const Topic& topic : topics)
      if (options_.only.empty() ||
          std::find(options_.only.begin(), options_.only.end(), name_of(topic.kind)) != options_.only.end())
        run(topic);
    return right_;
  }

 private:
  void run(const Topic& topic) {
    if (report_) report_->begin_table(topic);
    if (topic.kind == Kind::barrier) return row(topic, 0);
    for (const std::size_t bytes : options_.sizes) row(topic, bytes);
  }
  void row(const Topic& topic, std::size_t bytes) {
    Call call{topic.kind, topic.type, 0, rank_, ranks_, send_.get(), receive_.get()};
    call.count = bytes / call.size_of_element();
    if (std::max(call.bytes_sent(), call.bytes_received()) > options_.most) return;
    const std::vector<Result> results = measure_all(variants_, call, data_, stream_, options_);
    for (const Result& result : results) right_ = right_ && result.right;
    if (report_) report_->row(topic, bytes, results);
  }

  void print_setting(const std::string& nccl) const {
    std::printf("streams of %s; %d ranks; up to %d calls or %g ms a measurement, %d rounds\n",
                support::ranks_are_blocks ? "GPUs" : "the host", ranks_, options_.calls, options_.limit_ms,
                options_.rounds);
    std::printf("NCCL: %s\n", nccl.c_str());
    if (support::ranks_are_blocks) std::printf("MPI: %s\n", options_.mpi_is_staged ? "staged" : "GPU-aware");
  }
  void list_variants() {
    std::vector<Mode> modes = {Mode::stream};
    if (support::ranks_are_blocks) modes.push_back(Mode::graph);
    for (const Mode mode : modes) {
      // One communicator: another one would find less room on a GPU.
      const auto by_mpix = [this](const Call& c) { mpix_.enqueue(c); };
      variants_.push_back({Library::mpix, mode, by_mpix, way_of(mpix_)});
      variants_.push_back(
          {Library::attached, mode, by_mpix, way_of(mpix_), attached_send_.get(), attached_receive_.get()});
      const auto by_nccl = [this](const Call& c) { nccl_->enqueue(c); };
      if (nccl_) variants_.push_back({Library::nccl, mode, by_nccl, {}});
      if (is_registered_)
        variants_.push_back(
            {Library::nccl_registered, mode, by_nccl, {}, nccl_->registered_send(), nccl_->registered_receive()});
    }
    variants_.push_back({Library::mpi, Mode::stream, [this](const Call& c) { mpi_.call(c); }, {}});
  }
  static std::function<std::string()> way_of(const Mpix& mpix) {
    auto before = std::make_shared<MPIX_Comm_stats>();
    return [&mpix, before]() -> std::string {
      const MPIX_Comm_stats then = std::exchange(*before, mpix.stats());
      const bool lines = before->calls_lines > then.calls_lines, direct = before->calls_direct > then.calls_direct;
      if (before->calls_nodes > then.calls_nodes) return "rails";
      if (before->calls_trees > then.calls_trees) return "tree";
      if (before->calls_turns > then.calls_turns) return "turns";
      if (before->calls_staged > then.calls_staged) return "staged";
      if (before->calls_copies > then.calls_copies) return "copies";
      if (before->calls_packs > then.calls_packs && !lines && !direct) return "packs";
      return lines && direct ? "both" : lines ? "lines" : direct ? "direct" : "other";
    };
  }

  const Options& options_;
  const int rank_ = benchmark::process(), ranks_ = benchmark::processes();
  launcher::Stream stream_;
  const place::Memory send_, receive_;
  Data data_;
  const place::Memory attached_send_, attached_receive_;
  Mpix mpix_;
  const Mpi mpi_;
  std::unique_ptr<Nccl> nccl_;
  bool is_registered_ = false;  ///< buffers of NCCL's
  std::vector<Variant> variants_;
  std::unique_ptr<Report> report_;
  bool right_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
  support::choose_gpu(benchmark::process());
  const Options options = read_options(argc, argv, "collectives");
  const bool right = Benchmark(options).run();
  if (!right && benchmark::process() == 0) std::printf("\nWRONG: not all results were right\n");
  CHECK_MPI(MPI_Finalize());
  return right ? 0 : 1;
}
