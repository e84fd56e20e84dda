// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "support/random_graphs.h"

#include <memory>

#include "support/epochs.h"

namespace test {
namespace {

constexpr std::size_t source_bytes = 100000;
constexpr std::size_t biggest_put = 70000;

/// What every rank knows of the windows of the others.
struct Shape {
  Memory memory;
  std::size_t bytes;
  int unit;
  std::size_t skew;
  bool lazy_post;
};

constexpr int window_count = 6;

/// Windows 0 … 3 have memory of one kind each. Window 4 mixes them, and every third rank has none.
/// Window 5 has lazy posts.
Shape shape_of(int window, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const int units[] = {1, 3, 8, 16};
  Shape shape{all_memories[window % 4], 150000 + 1001 * r, units[(rank + window) % 4],
              static_cast<std::size_t>(rank + window) % 7, window == 5};
  if (window == 4) {
    shape.memory = rank % 2 == 0 ? Memory::unmapped : Memory::part;
    if (rank % 3 == 2) shape.bytes = 0;
  }
  return shape;
}

struct RandomPut {
  int origin, target;
  std::size_t source;  ///< offset in the origin's buffer
  std::size_t bytes;
  std::size_t displacement;  ///< in the target's units
};

struct Graph {
  std::vector<std::vector<int>> targets;  ///< of each rank, in the order of its group
  std::vector<std::vector<int>> origins;
  std::vector<RandomPut> puts;  ///< in the order of the calls
};

std::size_t random_size(Random& random) {
  if (random.chance(0.04)) return random.below(biggest_put);
  if (random.chance(0.04)) return 16383 + random.below(3);
  return random.pick<std::size_t>({0, 1, 7, 8, 8, 63, 64, 65, 100, 1000, 4096});
}

/// Edges, puts on them that do not overlap at the target, and the order of everything.
Graph make_graph(Random random, int window) {
  const int n = size();
  Graph graph;
  graph.targets.resize(static_cast<std::size_t>(n));
  graph.origins.resize(static_cast<std::size_t>(n));
  const double density = random.pick({0.0, 1.0 / n, 1.5 / n, 0.5, 1.0});
  // MPIX_EAGER_SIZE is what an epoch may send to one target by its mailbox: 64 bytes or more.
  const std::size_t most = random.pick<std::size_t>({8, 64, 1000, biggest_put});
  for (int target = 0; target < n; ++target) {
    const Shape shape = shape_of(window, target);
    const auto unit = static_cast<std::size_t>(shape.unit);
    std::size_t next = 0;  // the first unit that is free
    for (int origin = 0; origin < n; ++origin) {
      if (!random.chance(origin == target ? density / 2 : density)) continue;
      graph.targets[static_cast<std::size_t>(origin)].push_back(target);
      graph.origins[static_cast<std::size_t>(target)].push_back(origin);
      const int puts = random.pick({0, 1, 1, 2, 5, 26});
      for (int i = 0; i < puts; ++i) {
        const std::size_t bytes = std::min(random_size(random), most);
        next += random.below(3);
        if (next * unit + bytes > shape.bytes) continue;
        // Variations move it a bit.
        const std::size_t source = random.below(source_bytes - biggest_put - 100);
        graph.puts.push_back({origin, target, source, bytes, next});
        next += (bytes + unit - 1) / unit;
      }
    }
  }
  random.shuffle(graph.puts);
  for (auto& ranks : graph.targets) random.shuffle(ranks);
  for (auto& ranks : graph.origins) random.shuffle(ranks);
  return graph;
}

/// The same with one difference, such that nothing overlaps anew.
Graph make_variation(const Graph& graph, Random random, int window) {
  Graph other = graph;
  if (other.puts.empty()) return other;
  RandomPut& put = other.puts[random.below(other.puts.size())];
  const auto unit = static_cast<std::size_t>(shape_of(window, put.target).unit);
  switch (random.below(6)) {
    case 0:
      other.puts.pop_back();
      break;
    case 1:
      std::swap(put, other.puts.front());
      break;
    case 2:
      put.source += 1;
      break;
    case 3:
      put.bytes /= 2;
      break;
    case 4:
      if (put.bytes <= unit) break;
      put.bytes -= unit;
      put.displacement += 1;
      break;
    case 5:
      for (RandomPut& twin : other.puts)
        if (twin.origin == put.origin && twin.target == put.target && twin.bytes == put.bytes)
          std::swap(twin.displacement, put.displacement);
      break;
  }
  return other;
}

/// One window, what it must hold, and the buffer that its puts are read from.
class CheckedWindow {
 public:
  CheckedWindow(int number, std::uint64_t seed)
      : number_(number),
        seed_(seed),
        shape_(shape_of(number, rank())),
        window_(shape_.memory, shape_.bytes, shape_.unit, MPI_COMM_WORLD, shape_.skew, shape_.lazy_post),
        image_(shape_.bytes),
        source_(source_bytes) {
    const Pattern start(key({seed, static_cast<std::uint64_t>(number)}));
    void* own = device().own_stream();
    device().fill(own, window_.base(), shape_.bytes, start);
    device().fill(own, image_.data(), shape_.bytes, start);
    device().wait_for(own);
    barrier();
  }

  operator MPI_Win() const { return window_; }
  /// From now on the data is counted by this number in memory of the device; null: it is not.
  void count_by(const std::uint64_t* replay) { replay_ = replay; }
  const char* source() const { return source_.data(); }

  // The exposure side …
  void check(Stream& stream, int epoch, const char* when) {
    device().check_same(stream, window_.base(), image_.data(), image_.size(),
                        HERE("seed " << seed_ << ", window " << number_ << " (" << name(shape_.memory) << "), " << when
                                     << " epoch " << epoch));
  }

  void expect(Stream& stream, const Graph& graph, int epoch) {
    for (const RandomPut& put : graph.puts)
      if (put.target == rank())
        device().fill(stream, image_.data() + put.displacement * static_cast<std::size_t>(shape_.unit), put.bytes,
                      data_of(put.origin, epoch), put.source);
  }

  // … and the access side.
  void fill_source(Stream& stream, int epoch) { stream.fill(source_.data(), source_.size(), data_of(rank(), epoch)); }
  void spoil_source(Stream& stream) { stream.set(source_.data(), source_.size(), '\xee'); }

 private:
  /// In a graph every replay has its own.
  Pattern data_of(int origin, int epoch) const {
    const Pattern pattern(key({seed_, static_cast<std::uint64_t>(number_), static_cast<std::uint64_t>(origin),
                               static_cast<std::uint64_t>(epoch)}));
    return replay_ ? pattern.counted_by(replay_) : pattern;
  }

  const int number_;
  const std::uint64_t seed_;
  const Shape shape_;
  Window window_;
  Buffer image_;
  Buffer source_;
  const std::uint64_t* replay_ = nullptr;
};

/// Enqueues this rank's part of the epochs.
class Player {
 public:
  Player(std::uint64_t seed) : random_(key({seed, 99, static_cast<std::uint64_t>(rank())})) {}

  /// The epochs that follow use one stream for both sides, or one for each.
  void choose_streams() { separate_ = random_.chance(0.3); }
  void use_one_stream() { separate_ = false; }
  Stream& stream() { return exposure_; }

  void epoch(CheckedWindow& window, const Graph& graph, int epoch) {
    const auto me = static_cast<std::size_t>(rank());
    const auto& origins = graph.origins[me];
    const auto& targets = graph.targets[me];
    // An epoch with nobody may be left out, or not.
    const bool exposes = !origins.empty() || random_.chance(0.5);
    const bool accesses = !targets.empty() || random_.chance(0.5);
    const bool fused = exposes && accesses && !separate_ && random_.chance(0.4);
    if (exposes) post(window, origins, epoch);
    nap();
    if (accesses) access(window, graph, targets, epoch, fused);
    nap();
    if (!exposes) return;
    if (!fused) MPI_OK(MPIX_Win_wait_stream(window, exposure_));
    delay(exposure_);
    window.expect(exposure_, graph, epoch);
    window.check(exposure_, epoch, "after");
  }

  void synchronize() {
    exposure_.synchronize();
    access_.synchronize();
  }

 private:
  Stream& access_stream() { return separate_ ? access_ : exposure_; }

  void post(CheckedWindow& window, const std::vector<int>& origins, int epoch) {
    delay(exposure_);
    window.check(exposure_, epoch, "before");
    const Group group(origins);
    MPI_OK(MPIX_Win_post_stream(group, window, exposure_));
  }

  void access(CheckedWindow& window, const Graph& graph, const std::vector<int>& targets, int epoch, bool fused) {
    Stream& stream = access_stream();
    delay(stream);
    window.fill_source(stream, epoch);
    {
      const Group group(targets);
      MPI_OK(MPI_Win_start(group, MPIX_MODE_STREAM, window));
    }
    for (const RandomPut& put : graph.puts) {
      if (put.origin != rank()) continue;
      const int bytes = static_cast<int>(put.bytes);
      MPI_OK(MPI_Put(window.source() + put.source, bytes, MPI_BYTE, put.target, static_cast<MPI_Aint>(put.displacement),
                     bytes, MPI_BYTE, window));
    }
    if (fused) {
      MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    } else {
      MPI_OK(MPIX_Win_complete_stream(window, stream));
    }
    window.spoil_source(stream);
  }

  void delay(Stream& stream) {
    if (random_.chance(0.1)) stream.delay(static_cast<int>(random_.below(300)));
  }
  void nap() {
    if (random_.chance(0.1)) usleep(static_cast<useconds_t>(random_.below(200)));
  }

  Random random_;
  Stream exposure_;
  Stream access_;
  bool separate_ = false;
};

}  // namespace

void run_random_graphs(std::uint64_t seed, int epochs, const Replay& replay) {
  std::vector<std::unique_ptr<CheckedWindow>> windows;
  for (int i = 0; i < window_count; ++i) windows.push_back(std::make_unique<CheckedWindow>(i, seed));
  const Buffer counter(sizeof(std::uint64_t));  // replays, of all graphs
  Graph graph;
  Player player(seed);
  Random random(key({seed, 1}));
  for (int epoch = 1; epoch <= epochs;) {
    // Some epochs on one window, then a synchronization; ranks are not in step here either.
    const int number = static_cast<int>(random.below(window_count));
    CheckedWindow& window = *windows[static_cast<std::size_t>(number)];
    const int end = std::min<int>(epochs, epoch + static_cast<int>(random.below(40)));
    const auto enqueue = [&] {
      for (bool first = true; epoch <= end; ++epoch, first = false) {
        const Random own(key({seed, 2, static_cast<std::uint64_t>(epoch)}));
        const bool again = !first && random.chance(0.6);  // with other data
        if (!again) {
          graph = make_graph(own, number);
        } else if (random.chance(0.5)) {
          graph = make_variation(graph, own, number);
        }
        player.epoch(window, graph, epoch);
      }
    };
    player.choose_streams();
    if (replay && random.chance(0.6)) {
      player.use_one_stream();
      window.count_by(counter.as<std::uint64_t>());
      const int times = 1 + static_cast<int>(random.below(5));
      replay(
          player.stream(),
          [&] {
            device().count(player.stream(), counter.as<std::uint64_t>());
            enqueue();
          },
          times);
      window.count_by(nullptr);
    } else {
      enqueue();
    }
    player.synchronize();
    alive("epoch " + std::to_string(end) + " of seed " + std::to_string(seed));
  }
}

}  // namespace test
