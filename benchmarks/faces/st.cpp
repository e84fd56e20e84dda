// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpix.h>

#include <algorithm>
#include <map>
#include <utility>

#include "exchange.h"
#include "mpi_check.h"
#include "window.h"

namespace faces {
namespace {

/// The hints for the window of stream epochs.
class StreamInfo {
 public:
  explicit StreamInfo(bool lazy_post) {
    FACES_MPI(MPI_Info_create(&info_));
    FACES_MPI(MPI_Info_set(info_, "mpi_memory_alloc_kinds", "mpix:device"));
    if (lazy_post) FACES_MPI(MPI_Info_set(info_, "mpix_lazy_post", "true"));
  }
  ~StreamInfo() { FACES_MPI(MPI_Info_free(&info_)); }
  StreamInfo(const StreamInfo&) = delete;
  StreamInfo& operator=(const StreamInfo&) = delete;
  MPI_Info handle() const { return info_; }

 private:
  MPI_Info info_ = MPI_INFO_NULL;
};

class StreamTriggered final : public Exchange {
 public:
  StreamTriggered(Field& field, WindowMemory memory, StreamUse use, int sync)
      : field_(field),
        geometry_(field.geometry()),
        device_(field.device()),
        send_(field.send()),
        use_(use),
        sync_(sync),
        neighbours_(geometry_.neighbour_ranks()),
        window_(field.device(), geometry_.buffer_size, memory, StreamInfo(use.lazy_post).handle()),
        kernels_(field, window_.data()) {}

  void poison_buffers() override { kernels_.poison_buffers(); }

  void share(int times) override {
    if (use_.captured)
      for (int step = 0; step < times; step += most_in_graph)
        graph_of(step, std::min(times - step, most_in_graph)).launch();
    else
      enqueue(0, times);
    device_.synchronize();  // once, for all steps, if not asked for more
  }

 private:
  void enqueue(int first, int times) {
    const MPI_Win win = window_.handle();
    void* const stream = device_.stream();
    const bool beside = use_.fused && sums_beside();
    for (int step = first; step < first + times; ++step) {
      // In stream order after the sums of the step before: no put overwrites what they read.
      FACES_MPI(MPIX_Win_post_stream(neighbours_.handle(), win, stream));
      kernels_.pack();
      FACES_MPI(MPI_Win_start(neighbours_.handle(), MPIX_MODE_STREAM, win));
      for (const Neighbour& to : geometry_.neighbours)
        FACES_MPI(MPI_Put(send_ + to.slot, to.count, MPI_DOUBLE, to.rank, to.remote_slot, to.count, MPI_DOUBLE, win));
      if (use_.fused) {
        if (beside) device_.beside([&] { kernels_.sum_inside(step); });
        FACES_MPI(MPIX_Win_complete_wait_stream(win, stream));
        if (beside)
          device_.join();
        else
          kernels_.sum_inside(step);
      } else {
        FACES_MPI(MPIX_Win_complete_stream(win, stream));
        kernels_.sum_inside(step);
        FACES_MPI(MPIX_Win_wait_stream(win, stream));
      }
      kernels_.sum_surface(step);
      if (sync_ > 0 && !use_.captured && (step + 1) % sync_ == 0) device_.synchronize();
    }
  }

  /// Where both epochs are closed at once the inside may be summed in a second stream meanwhile. To order the streams
  /// takes 1.4 us (H200), but for graphs: only where more is gained.
  bool sums_beside() const {
    constexpr int many = 8192;  // values of a message
    if (!device_.is_gpu() || !field_.problem().compute) return false;
    if (use_.captured) return true;
    const auto is_large = [](const Neighbour& to) { return to.count >= many; };
    if (std::any_of(geometry_.neighbours.begin(), geometry_.neighbours.end(), is_large)) return true;
    MPIX_Win_stats stats;
    FACES_MPI(MPIX_Win_get_stats(window_.handle(), &stats, sizeof stats));
    return stats.network_operations > 0;
  }

  /// Steps differ only where values are rescaled, which the last one of a full graph may do.
  support::Graph& graph_of(int first, int times) {
    static_assert(shares_between_rescales % most_in_graph == 0, "only the last step may rescale");
    const bool rescales = (first + times) % shares_between_rescales == 0;
    std::unique_ptr<support::Graph>& graph = graphs_[{times, rescales}];
    if (graph == nullptr) graph = device_.capture([&] { enqueue(first, times); });
    return *graph;
  }

  static constexpr int most_in_graph = 32;

  const Field& field_;
  const Geometry& geometry_;
  Device& device_;
  double* const send_;
  const StreamUse use_;
  const int sync_;
  Group neighbours_;
  Window window_;
  ShareKernels kernels_;
  std::map<std::pair<int, bool>, std::unique_ptr<support::Graph>> graphs_;
};

}  // namespace

std::unique_ptr<Exchange> make_stream_triggered(Field& field, WindowMemory memory, StreamUse use, int sync) {
  return std::make_unique<StreamTriggered>(field, memory, use, sync);
}

}  // namespace faces
