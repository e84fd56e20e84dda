// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "device/device.h"

namespace mpix {

/// Marks in the time of a stream, which a device sets. Times in µs.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;
  /// When the stream comes here. A mark can be set again once it has been cleared.
  virtual void set(std::size_t mark, Stream stream) noexcept = 0;
  virtual bool passed(std::size_t mark) noexcept = 0;
  /// The time of the thread that enqueues.
  virtual double now() noexcept;
  /// The time from one mark to a later one, both passed. Negative: not known.
  virtual double between(std::size_t first, std::size_t second) noexcept = 0;
  virtual void clear() noexcept = 0;
};

/// Which calls of a window go to their stream as prepared graphs of one kernel, and which as launches, found by trying.
///
/// A prepared graph takes the CPU less than half of what a launch takes, and the stream more, for nothing of it
/// overlaps with its neighbours. Where the CPU bounds the program (small messages, small kernels around) graphs are up
/// to a third faster; where the stream does, they cost as much. Which it is depends on the machine, on the messages,
/// and on what the program does in between, so nobody knows beforehand (measured on H200: doc/history.md).
///
/// So a window tries each way for some rounds, several times in turn. What they take is the time in the stream or that
/// of the thread that enqueues, whichever is longer: a stream that has much in front of it for the moment says nothing
/// of the thread, which may hold it up later. A round is a repetition of its calls. Ranks that run the same program try
/// the same at the same time. Later it tries again, as programs have phases.
class LaunchTrials {
 public:
  explicit LaunchTrials(std::unique_ptr<StreamMarks> marks) : marks_(std::move(marks)) {}

  /// Before each launch outside of graphs: whether this one goes as a prepared graph.
  bool as_graph(Call call, Stream stream);

  /// In the order in which calls become graphs: the wait has least to overlap with, the puts have most.
  static constexpr std::size_t ways = 4;
  static constexpr std::size_t passes = 3;
  static constexpr std::size_t segments = ways * passes;
  static constexpr std::uint64_t rounds_before = 64;  ///< the program warms up
  static constexpr std::uint64_t rounds_of_segment = 64;
  static constexpr std::uint64_t rounds_to_settle =
      16;  ///< of these: graphs are made, the stream goes on with what it had
  static constexpr std::uint64_t rounds_between_trials = 32768;
  static constexpr double worth_it = 0.97;  ///< of the time of plain launches: less gain is noise

 private:
  void begin_round(Stream stream);
  void begin_segment(std::size_t segment);
  void set_mark(std::size_t mark, Stream stream);
  double time_of(std::size_t segment) const;
  void judge();

  const std::unique_ptr<StreamMarks> marks_;
  unsigned seen_ = 0;  ///< calls of this round
  std::uint64_t round_ = 0;
  std::size_t chosen_ = 0, way_ = 0;
  Stream stream_ = nullptr;  ///< of the segment at hand
  std::array<bool, segments> timed_{};
  std::array<double, 2 * segments> host_times_{};
  bool to_judge_ = false;
};

}  // namespace mpix
