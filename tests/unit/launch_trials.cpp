// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/launch_trials.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "support/catch.h"

using namespace mpix;

namespace {

/// A stream whose rounds take a time that depends on how many of their calls are graphs.
struct Stage {
  std::map<std::size_t, double> set;  ///< marks, and when
  double now = 0, host = 0;
  bool far_behind = false;  ///< the stream has passed no mark yet
  std::size_t most_set = 0;
};

class FakeMarks final : public StreamMarks {
 public:
  explicit FakeMarks(Stage& stage) : stage_(stage) {}
  void set(std::size_t mark, Stream) noexcept override {
    stage_.set[mark] = stage_.now;
    stage_.most_set = std::max(stage_.most_set, stage_.set.size());
  }
  bool passed(std::size_t) noexcept override { return !stage_.far_behind; }
  double between(std::size_t first, std::size_t second) noexcept override {
    return stage_.set.count(first) && stage_.set.count(second) ? stage_.set[second] - stage_.set[first] : -1;
  }
  double now() noexcept override { return stage_.host; }
  void clear() noexcept override { stage_.set.clear(); }

 private:
  Stage& stage_;
};

struct Looping {
  explicit Looping(std::vector<Call> its_calls)
      : calls(std::move(its_calls)), trials(std::make_unique<FakeMarks>(stage)) {}

  /// One round; `times`: what it takes, and what the thread takes, by the number of its calls that go as graphs.
  unsigned round(const std::vector<double>& times, Stream stream = nullptr,
                 const std::vector<double>& host_times = {1, 1, 1, 1}) {
    unsigned graphs = 0;
    for (Call call : calls)
      if (trials.as_graph(call, stream)) ++graphs;
    stage.now += times.at(graphs);
    stage.host += host_times.at(graphs);
    return graphs;
  }
  unsigned rounds(std::uint64_t count, const std::vector<double>& times) {
    unsigned graphs = 0;
    while (count-- > 0) graphs = round(times);
    return graphs;
  }

  std::vector<Call> calls;
  Stage stage;
  LaunchTrials trials;
};

constexpr std::uint64_t enough = 1200;
static_assert(enough > LaunchTrials::rounds_before + LaunchTrials::segments * LaunchTrials::rounds_of_segment + 64, "");
const std::vector<Call> three = {Call::post, Call::complete, Call::wait};

}  // namespace

TEST_CASE("a window takes the way that is fastest in its stream") {
  CHECK(Looping(three).rounds(enough, {9, 8, 7, 6}) == 3);
  CHECK(Looping(three).rounds(enough, {9, 8, 7, 8}) == 2);
  CHECK(Looping(three).rounds(enough, {9, 7, 8, 8}) == 1);
  CHECK(Looping(three).rounds(enough, {6, 7, 8, 9}) == 0);
  CHECK(Looping({Call::post, Call::complete_wait}).rounds(enough, {6, 5, 7}) == 1);
  CHECK(Looping({Call::post, Call::complete_wait}).rounds(enough, {6, 7, 5}) == 2);
  CHECK(Looping({Call::complete_wait}).rounds(enough, {6, 5}) == 1);
  CHECK(Looping({Call::post, Call::wait}).rounds(enough, {6, 7, 5}) == 2);
}

TEST_CASE("a gain that may be noise changes nothing") {
  CHECK(Looping(three).rounds(enough, {9, 9, 9, 8.9}) == 0);
  Looping noisy(three);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0.99, 1.01);
  for (std::uint64_t i = 0; i < enough; ++i)
    noisy.round({10 * noise(random), 10 * noise(random), 10 * noise(random), 8 * noise(random)});
  CHECK(noisy.rounds(1, {1, 1, 1, 1}) == 3);
}

TEST_CASE("one slow segment does not decide") {
  Looping program(three);
  const std::uint64_t hiccup = LaunchTrials::rounds_before + 3 * LaunchTrials::rounds_of_segment + 40;
  program.rounds(hiccup, {9, 8, 7, 6});
  program.stage.now += 100000;
  CHECK(program.rounds(enough - hiccup, {9, 8, 7, 6}) == 3);
}

TEST_CASE("a stream that is far behind is waited for without a wait") {
  Looping program(three);
  program.stage.far_behind = true;
  CHECK(program.rounds(3 * enough, {9, 8, 7, 6}) == 0);
  program.stage.far_behind = false;
  CHECK(program.rounds(100, {9, 8, 7, 6}) == 3);
}

TEST_CASE("a stream that catches up for the moment does not hide what the thread takes") {
  Looping program(three);
  for (std::uint64_t i = 0; i < enough; ++i) program.round({4, 5, 6, 7}, nullptr, {10, 9, 8, 6});
  CHECK(program.rounds(1, {1, 1, 1, 1}) == 3);
}

TEST_CASE("segments that change their stream are not compared") {
  Looping program(three);
  int a = 0, b = 0;
  for (std::uint64_t i = 0; i < enough; ++i)
    program.round({9, 8, 7, 6}, i % 64 >= 10 && i % 64 < 30 ? static_cast<void*>(&a) : &b);
  CHECK(program.stage.set.empty());
  CHECK(program.rounds(1, {9, 8, 7, 6}) == 0);
}

TEST_CASE("later it tries again") {
  Looping program(three);
  CHECK(program.rounds(enough, {9, 8, 7, 6}) == 3);
  CHECK(program.rounds(LaunchTrials::rounds_between_trials + enough, {5, 6, 7, 8}) == 0);
  CHECK(program.stage.most_set <= 2 * LaunchTrials::segments);
  CHECK(program.stage.set.empty());
}
