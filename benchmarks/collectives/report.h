// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "call.h"
#include "measure.h"
#include "options.h"
#include "support/domain.h"

/// A table for each collective, and a file of all that was measured. Only rank 0 writes.
namespace collectives {

class Report {
 public:
  Report(const Options& options, int ranks) : options_(options), ranks_(ranks) {
    if (options.csv.empty()) return;
    csv_ = std::fopen(options.csv.c_str(), "w");
    if (!csv_) {
      std::perror(options.csv.c_str());
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    std::fprintf(csv_,
                 "collective,type,ranks,block_bytes,library,mode,calls,us,us_least,us_most,us_to_enqueue,way,right\n");
  }
  ~Report() {
    if (csv_) std::fclose(csv_);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void begin_table(const Topic& topic) const {
    std::printf("\n%s, %d ranks: %s\n", topic.name().c_str(), ranks_,
                options_.check_only ? "checked only" : "us a call, of the slowest rank; median");
    if (support::ranks_are_blocks) {
      std::string captured = "captured, " + std::to_string(options_.in_graph) + " a graph";
      std::printf("%8s %13s | %-59s | %-59s | %s\n", "", "", "in a stream", captured.c_str(), "loop of the host");
    }
    std::printf("%8s %13s", "block", "way");
    const char* const first[] = {"libmpix", "attached"};
    if (support::ranks_are_blocks)
      for (int mode = 0; mode < 2; ++mode)
        std::printf(" | %8s %8s %8s %8s %7s %7s %7s", first[0], first[1], "NCCL", "reg.", "ratio", "att./N.",
                    "att./r.");
    else
      std::printf(" | %8s %8s", first[0], first[1]);
    std::printf(" | %9s %7s %7s\n", "MPI", "ratio", "att./M.");
  }

  void row(const Topic& topic, std::size_t bytes, const std::vector<Result>& results) const {
    std::printf("%8s %13s", text_of(bytes).c_str(), ways(results).c_str());
    for (const Mode mode : {Mode::stream, Mode::graph}) {
      const Result* const mpix = find(results, Library::mpix, mode);
      const Result* const attached = find(results, Library::attached, mode);
      const Result* const nccl = find(results, Library::nccl, mode);
      const Result* const registered = find(results, Library::nccl_registered, mode);
      if (mode == Mode::graph && !support::ranks_are_blocks) continue;
      std::printf(" | %8s %8s", time(mpix).c_str(), time(attached).c_str());
      if (support::ranks_are_blocks)
        std::printf(" %8s %8s %7s %7s %7s", time(nccl).c_str(), time(registered).c_str(), ratio(mpix, nccl).c_str(),
                    ratio(attached, nccl).c_str(), ratio(attached, registered).c_str());
    }
    const Result* const mpi = find(results, Library::mpi, Mode::stream);
    std::printf(" | %9s %7s %7s\n", time(mpi).c_str(), ratio(find(results, Library::mpix, Mode::stream), mpi).c_str(),
                ratio(find(results, Library::attached, Mode::stream), mpi).c_str());
    std::fflush(stdout);
    if (csv_) lines(topic, bytes, results);
  }

 private:
  void lines(const Topic& topic, std::size_t bytes, const std::vector<Result>& results) const {
    for (const Result& r : results)
      std::fprintf(csv_, "%s,%s,%d,%zu,%s,%s,%d,%.3f,%.3f,%.3f,%.3f,%s,%s\n", name_of(topic.kind), name_of(topic.type),
                   ranks_, bytes, name_of(r.library),
                   r.mode == Mode::graph       ? "graph"
                   : r.library == Library::mpi ? "host"
                                               : "stream",
                   r.calls, r.time.median, r.time.least, r.time.most, r.cpu.median, r.way.c_str(),
                   r.right ? "yes" : "WRONG");
    std::fflush(csv_);
  }
  static const Result* find(const std::vector<Result>& results, Library library, Mode mode) {
    for (const Result& result : results)
      if (result.library == library && result.mode == mode) return &result;
    return nullptr;
  }
  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, value < 10000 ? "%.2f" : "%.0f", value);
    return text;
  }
  std::string time(const Result* result) const {
    if (!result) return "-";
    if (!result->right) return "WRONG";
    return options_.check_only ? "right" : number(result->time.median);
  }
  std::string ratio(const Result* mine, const Result* other) const {
    if (!mine || !other || !mine->right || !other->right || options_.check_only) return "-";
    return number(mine->time.median / other->time.median);
  }
  /// That libmpix took, without and with memory attached.
  static std::string ways(const std::vector<Result>& results) {
    const Result* const mpix = find(results, Library::mpix, Mode::stream);
    const Result* const attached = find(results, Library::attached, Mode::stream);
    if (!mpix || !attached) return "-";
    return mpix->way == attached->way ? mpix->way : mpix->way + "/" + attached->way;
  }
  static std::string text_of(std::size_t bytes) {
    if (bytes > 0 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + "m";
    if (bytes > 0 && bytes % (1 << 10) == 0) return std::to_string(bytes >> 10) + "k";
    return std::to_string(bytes);
  }

  const Options& options_;
  const int ranks_;
  std::FILE* csv_ = nullptr;
};

}  // namespace collectives
