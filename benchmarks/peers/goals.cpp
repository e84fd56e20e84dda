// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "goals.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace peers {
namespace {

constexpr std::size_t mailbox_sizes = 128 * 1024;  ///< faces up to here
constexpr std::size_t any_size = ~std::size_t{0};

constexpr double no_limit = 0;

/// A row in a mode, at most so many times another one, for faces of above `over` and up to `up_to` bytes. Without a
/// limit it is reported, and not judged.
struct RatioGoal {
  const char* text;
  const char* row;
  Mode mode;
  const char* reference;
  Mode reference_mode;
  double limit;
  std::size_t over, up_to;
};

constexpr Mode stream = Mode::stream, graph = Mode::graph, unrolled = Mode::unrolled;

const RatioGoal ratio_goals[] = {
    {"stream, three calls / NCCL", "mpix", stream, "nccl", stream, 0.72, 0, mailbox_sizes},
    {"stream, three calls / NCCL", "mpix", stream, "nccl", stream, 0.75, mailbox_sizes, any_size},
    {"stream, three calls, lazy post / NCCL", "mpix-lazy", stream, "nccl", stream, 0.65, 0, mailbox_sizes},
    {"stream, three calls, lazy post / NCCL", "mpix-lazy", stream, "nccl", stream, 0.75, mailbox_sizes, any_size},
    {"stream, fused / NCCL", "mpix-fused", stream, "nccl", stream, 0.48, 0, mailbox_sizes},
    {"stream, fused / NCCL", "mpix-fused", stream, "nccl", stream, no_limit, mailbox_sizes, any_size},
    {"stream, fused, lazy post / NCCL", "mpix-fused-lazy", stream, "nccl", stream, 0.4, 0, mailbox_sizes},
    {"stream, fused, lazy post / NCCL", "mpix-fused-lazy", stream, "nccl", stream, no_limit, mailbox_sizes, any_size},
    {"graph, three calls / NCCL", "mpix", graph, "nccl", graph, 0.5, 0, mailbox_sizes},
    {"graph, three calls / NCCL", "mpix", graph, "nccl", graph, 0.65, mailbox_sizes, any_size},
    {"graph, fused / NCCL", "mpix-fused", graph, "nccl", graph, 0.45, 0, mailbox_sizes},
    {"graph, fused / NCCL", "mpix-fused", graph, "nccl", graph, no_limit, mailbox_sizes, any_size},
    {"stream, 2 user kernels / NCCL with them", "mpix-user", stream, "nccl-user", stream, 0.8, 0, mailbox_sizes},
    {"stream, 2 user kernels / NCCL with them", "mpix-user", stream, "nccl-user", stream, 0.9, mailbox_sizes, any_size},
    {"stream, 2 user kernels, lazy / NCCL with them", "mpix-user-lazy", stream, "nccl-user", stream, 0.75, 0, any_size},
    {"graph, 2 user kernels / NCCL with them", "mpix-user", graph, "nccl-user", graph, 0.65, 0, any_size},
    {"WHILE, three calls / the same captured", "mpix", unrolled, "mpix", graph, 1.0, 0, any_size},
    {"WHILE, fused / the same captured", "mpix-fused", unrolled, "mpix-fused", graph, 1.0, 0, any_size},
    {"WHILE, 2 user kernels / the same captured", "mpix-user", unrolled, "mpix-user", graph, 1.0, 0, any_size},
    {"WHILE, one epoch in its body / captured", "mpix", Mode::loop, "mpix", graph, no_limit, 0, any_size},
    {"stream, three calls / NVSHMEM", "mpix", stream, "nvshmem", stream, 0.3, 0, mailbox_sizes},
    {"stream, 2 user kernels / MPI Isend/Irecv", "mpix-user", stream, "mpi-p2p", stream, 0.2, 0, any_size},
    {"stream, 2 user kernels / MPI active RMA", "mpix-user", stream, "mpi-rma", stream, 0.2, 0, any_size},
    {"stream, 2 user kernels / staged Isend/Irecv", "mpix-user", stream, "mpi-p2p-staged", stream, no_limit, 0,
     any_size},
    {"stream, 2 user kernels / staged active RMA", "mpix-user", stream, "mpi-rma-staged", stream, no_limit, 0,
     any_size},
};

/// The worst of several sizes.
class Worst {
 public:
  void add(double value, std::size_t face) {
    if (count_ == 0 || value > value_) {
      value_ = value;
      face_ = face;
    }
    least_ = count_ == 0 ? value : std::min(least_, value);
    ++count_;
  }
  bool has_any() const { return count_ > 0; }
  void print(const char* margin, const std::string& text, double limit, int digits) const {
    const auto number = [&](double value) {
      char formatted[32];
      std::snprintf(formatted, sizeof formatted, "%.*f", digits, value);
      return std::string(formatted);
    };
    const std::string goal = limit == no_limit ? "" : "<= " + number(limit);
    const std::string range = has_any() ? number(least_) + " to " + number(value_) : "";
    // as printed: what lies beyond those digits is noise
    const bool met = has_any() && std::stod(number(value_)) <= std::stod(number(limit));
    const char* verdict = !has_any() ? "not measured" : limit == no_limit ? "" : met ? "met" : "NOT MET";
    std::printf("%s  %-64s %9s  %16s  %-12s%s%s\n", margin, text.c_str(), goal.c_str(), range.c_str(), verdict,
                has_any() ? "  worst at " : "", has_any() ? size_text(face_).c_str() : "");
  }

 private:
  double value_ = 0, least_ = 0;
  std::size_t face_ = 0;
  int count_ = 0;
};

const Measured* measured(const Section& section, const char* key, Mode mode) {
  const Measured* row = section.find(key, mode);
  return row && row->failure.empty() ? row : nullptr;
}

std::string range_text(const RatioGoal& goal) {
  if (goal.up_to == mailbox_sizes) return ", up to 128 KiB";
  return goal.over == mailbox_sizes ? ", above 128 KiB" : "";
}

void print_ratio_goals(const std::vector<Section>& sections, const std::string& exchange, const char* margin) {
  for (const RatioGoal& goal : ratio_goals) {
    Worst worst;
    for (const Section& section : sections) {
      if (section.exchange != exchange || section.face <= goal.over || section.face > goal.up_to) continue;
      const Measured* row = measured(section, goal.row, goal.mode);
      const Measured* reference = measured(section, goal.reference, goal.reference_mode);
      if (row && reference) worst.add(row->time.median / reference->time.median, section.face);
    }
    if (goal.limit == no_limit && !worst.has_any()) continue;
    worst.print(margin, exchange + ": " + goal.text + range_text(goal), goal.limit, 2);
  }
  Worst cpu;
  for (const Section& section : sections)
    if (section.exchange == exchange)
      if (const Measured* row = measured(section, "mpix", unrolled)) cpu.add(row->cpu.median, section.face);
  cpu.print(margin, exchange + ": WHILE, CPU time, us an epoch", 0.05, 3);
}

/// Several ranks on one GPU: absolute goals, which depend on whether MPS shares it.
void print_ring_goal(const std::vector<Section>& sections, const Machine& machine, const char* margin) {
  int mps = 0;
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) (void)cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, device);
  Worst worst;
  for (const Section& section : sections)
    if (section.exchange == "ring" && section.face <= mailbox_sizes)
      if (const Measured* row = measured(section, "mpix", stream)) worst.add(row->time.median, section.face);
  worst.print(
      margin,
      "ring: " + std::to_string(machine.ranks) + " ranks on one GPU, " + (mps ? "MPS" : "no MPS") + ", us an epoch",
      mps ? 25 : 500, 1);
}

void print_bandwidth_goal(const std::vector<Section>& sections, const char* margin) {
  Worst worst;
  for (const Section& section : sections) {
    if (section.exchange != "pair") continue;
    const Measured* row = measured(section, "mpix", stream);
    const Measured* copy = measured(section, "copy", stream);
    if (row && copy) worst.add(row->time.median / copy->time.median, section.face);
  }
  worst.print(margin, "pair: time of a put epoch / of a copy (bandwidth >= 0.95)", 1 / 0.95, 3);
}

}  // namespace

void print_goals(const std::vector<Section>& sections, const Machine& machine, bool csv) {
  const char* margin = csv ? "# " : "";
  std::printf("%s\n%sgoals: what libmpix aims at, and the best and the worst of the sizes\n", margin, margin);
  const auto has = [&](const char* exchange) {
    return std::any_of(sections.begin(), sections.end(), [&](const Section& s) { return s.exchange == exchange; });
  };
  for (const char* exchange : {"near", "full"})
    if (has(exchange)) print_ratio_goals(sections, exchange, margin);
  if (has("pair")) print_bandwidth_goal(sections, margin);
  if (has("ring") && machine.gpus == 1) print_ring_goal(sections, machine, margin);
}

}  // namespace peers
