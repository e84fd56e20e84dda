// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "report.h"

#include <mpi.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "mpi_check.h"

namespace faces {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Timing median_of(const std::vector<Timing>& timings) {
  std::vector<double> average, least, most;
  for (const Timing& timing : timings) {
    average.push_back(timing.average);
    least.push_back(timing.least);
    most.push_back(timing.most);
  }
  return Timing{median(average), median(least), median(most)};
}

/// The time that variants are compared by: the exchange is over when it is over everywhere.
double compared_time(const Result& result) { return median_of(result.timings).most; }

/// Time relative to that of a variant: "-" where that was not run.
std::string ratio_to(const char* name, const Result& result, const std::vector<Result>& results) {
  char text[32] = "-";
  for (const Result& other : results)
    if (std::strcmp(other.variant->name, name) == 0)
      std::snprintf(text, sizeof text, "%.3f", compared_time(result) / compared_time(other));
  return text;
}

double megabytes(long doubles) { return static_cast<double>(doubles) * sizeof(double) / 1e6; }

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  FACES_MPI(MPI_Get_library_version(text, &length));
  std::string version(text, static_cast<std::size_t>(length));
  version = version.substr(0, version.find('\n'));
  std::replace(version.begin(), version.end(), '\t', ' ');
  return version;
}

}  // namespace

void Report::line(const char* format, ...) {
  if (!active_) return;
  if (options_.csv) std::fputs("# ", stdout);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(stdout);
}

void Report::settings(const Geometry& geometry) {
  long traffic[2] = {geometry.bytes_sent(), static_cast<long>(geometry.neighbours.size())};
  long most[2] = {0, 0};
  FACES_MPI(MPI_Reduce(traffic, most, 2, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD));

  const auto bytes = [&](int x, int y, int z) {
    return geometry.mesh.layout[direction_of(x, y, z)].count * static_cast<long>(sizeof(double));
  };
  const Problem& p = problem_;
  line("Faces: nearest-neighbour exchange, not periodic, and sum of shared points");
  line("  MPI               %s", library_version().c_str());
  line("  input from        %s", options_.source == InputSource::standard_input
                                     ? "standard input"
                                     : (std::string("size ") + preset_name(options_.preset) + " and options").c_str());
  line("  processes         %d x %d x %d (lx ly lz)", p.grid[0], p.grid[1], p.grid[2]);
  line("  elements          %d x %d x %d a process (mx my mz), of %d points an edge (n)", p.elements[0], p.elements[1],
       p.elements[2], p.points);
  line("  messages [B]      faces %ld %ld %ld, edges %ld %ld %ld (x y z), corner %ld", bytes(1, 0, 0), bytes(0, 1, 0),
       bytes(0, 0, 1), bytes(0, 1, 1), bytes(1, 0, 1), bytes(1, 1, 0), bytes(1, 1, 1));
  line("  busiest process   %ld neighbours, sends %ld B an exchange", most[1], most[0]);
  line("  memory [MB]       %.1f a process: %.1f field, 2 x %.1f messages",
       megabytes(geometry.field_size + 2 * geometry.buffer_size), megabytes(geometry.field_size),
       megabytes(geometry.buffer_size));
  line("  repetitions       %d face inits x %d element inits (and one untimed) x %d shares", p.niface, p.niel,
       p.nshare);
  line("  compute kernels   %s", p.compute ? "yes" : "no: only pack, and sum on the surface of the process");
  how_it_runs();
}

void Report::how_it_runs() {
  std::string names;
  for (int variant = 0; variant < variants; ++variant)
    if (options_.run[variant]) names += std::string(names.empty() ? "" : " ") + all_variants[variant].name;
  line("  variants          %s", names.c_str());
  line("  measurements      %d of each%s", options_.repeat, options_.repeat == 1 ? "" : ", in turn; medians");
  if (setup_.baseline != nullptr)
    line("  kernels           st: %s; p2p, rma: %s", setup_.device->describe().c_str(),
         setup_.baseline->describe().c_str());
  else
    line("  kernels           %s", setup_.device->describe().c_str());
  line("  p2p, rma          %s", setup_.staged
                                     ? "staged: messages are copied through pinned memory of the CPU, as MPI does not "
                                       "take the device's"
                                     : "MPI takes memory of the device");
  line("  windows           %s", options_.window == WindowMemory::create
                                     ? "MPI_Win_create over memory of the program"
                                     : "MPI_Win_allocate; st: with mpi_memory_alloc_kinds=mpix:device");
  if (options_.inject_error) line("  injected error    yes: the correctness check must fail");
}

void Report::running(const Variant& variant, int repetition) {
  if (options_.repeat > 1)
    line("Running %s (%d of %d)", setup_.label(variant).c_str(), repetition + 1, options_.repeat);
  else
    line("Running %s", setup_.label(variant).c_str());
}

void Report::checked(const Variant& variant, const Timing& timing, int passed) {
  line("%d tasks passed correctness check", passed);
  if (passed < ranks_)
    line("%s: WRONG RESULT on %d of %d tasks", setup_.label(variant).c_str(), ranks_ - passed, ranks_);
  line("time %.6g avg %.6g min %.6g max", timing.average, timing.least, timing.most);
}

void Report::table(const std::vector<Result>& results) {
  if (options_.csv) {
    if (active_) csv_table(results);
    return;
  }
  line("%s", "");
  line("%-22s %14s %8s %8s %11s %11s %11s  %s", "variant", "a share [us]", "to p2p", "to rma", "avg [s]", "min [s]",
       "max [s]", "correct tasks");
  for (const Result& result : results) {
    const Timing timing = median_of(result.timings);
    line("%-22s %14.2f %8s %8s %11.6f %11.6f %11.6f  %d of %d", setup_.label(*result.variant).c_str(),
         microseconds_a_share(timing.most), ratio_to("p2p", result, results).c_str(),
         ratio_to("rma", result, results).c_str(), timing.average, timing.least, timing.most, result.passed, ranks_);
  }
  line(
      "avg, min, max over ranks of the time in all %ld shares; a share: max / shares; ratios of times: below 1 is "
      "faster",
      problem_.shares());
  closing_line(results);
}

void Report::closing_line(const std::vector<Result>& results) {
  const Result* fastest = nullptr;
  for (const Result& result : results)
    if (result.variant->kind == Variant::st && (fastest == nullptr || compared_time(result) < compared_time(*fastest)))
      fastest = &result;
  if (fastest == nullptr) return;
  std::string comparison;
  for (const char* other : {"p2p", "rma"}) {
    const std::string ratio = ratio_to(other, *fastest, results);
    if (ratio != "-") comparison += (comparison.empty() ? "" : ", ") + ratio + " of the time of " + other;
  }
  if (!comparison.empty())
    line("%s, the fastest stream-triggered variant, takes %s", fastest->variant->name, comparison.c_str());
}

void Report::csv_table(const std::vector<Result>& results) {
  std::printf(
      "variant,lx,ly,lz,mx,my,mz,n,niface,niel,nshare,compute,repeat,"
      "avg_s,min_s,max_s,us_a_share,to_p2p,to_rma,correct_tasks,tasks\n");
  for (const Result& result : results) {
    const Timing timing = median_of(result.timings);
    const Problem& p = problem_;
    std::printf("%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%.9g,%.9g,%.9g,%.6g,%s,%s,%d,%d\n",
                setup_.label(*result.variant).c_str(), p.grid[0], p.grid[1], p.grid[2], p.elements[0], p.elements[1],
                p.elements[2], p.points, p.niface, p.niel, p.nshare, p.compute ? 1 : 0, options_.repeat, timing.average,
                timing.least, timing.most, microseconds_a_share(timing.most), ratio_to("p2p", result, results).c_str(),
                ratio_to("rma", result, results).c_str(), result.passed, ranks_);
  }
  std::fflush(stdout);
}

}  // namespace faces
