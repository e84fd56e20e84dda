// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "report.h"

#include <cstdio>

namespace peers {
namespace {

bool is_bandwidth(const Section& section) { return section.exchange == "pair"; }

double gigabytes_a_second(const Section& section, const Measured& row) {
  return static_cast<double>(section.face) / row.time.median / 1000;
}

/// Of time; where bandwidth is measured, of that.
std::string ratio_text(const Section& section, const Measured& row) {
  const Measured* reference = reference_of(section, row);
  if (!reference || !reference->failure.empty() || !row.failure.empty()) return "";
  const double ratio =
      is_bandwidth(section) ? reference->time.median / row.time.median : row.time.median / reference->time.median;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

void print_row(const Section& section, const Measured& row) {
  if (!row.failure.empty()) {
    std::printf("  %-36s %-8s not measured: %s\n", row.name.c_str(), name_of(row.mode), row.failure.c_str());
    return;
  }
  std::printf("  %-36s %-8s %9.2f %9.2f %9.2f %9.3f %6s", row.name.c_str(), name_of(row.mode), row.time.median,
              row.time.least, row.time.most, row.cpu.median, ratio_text(section, row).c_str());
  if (is_bandwidth(section)) std::printf("  %6.1f GB/s", gigabytes_a_second(section, row));
  std::printf("  %s\n", row.right ? "ok" : "WRONG DATA");
}

void print_csv_row(const Section& section, const Measured& row) {
  std::printf("%s,%zu,%s,%s,%d,%.3f,%.3f,%.3f,%.4f,%s,%s\n", section.exchange.c_str(), section.face, row.key.c_str(),
              name_of(row.mode), row.epochs, row.time.median, row.time.least, row.time.most, row.cpu.median,
              ratio_text(section, row).c_str(),
              !row.failure.empty() ? "not measured"
              : row.right          ? "ok"
                                   : "WRONG");
}

std::string cell(const Section& section, const std::string& key, Mode mode) {
  const Measured* row = section.find(key, mode);
  if (!row || !row->failure.empty()) return "-";
  char text[64];
  const std::string ratio = ratio_text(section, *row);
  std::snprintf(text, sizeof text, is_bandwidth(section) ? "%.1f" : "%.2f",
                is_bandwidth(section) ? gigabytes_a_second(section, *row) : row->time.median);
  return std::string(text) + (ratio.empty() ? "" : " (" + ratio + ")") + (row->right ? "" : " WRONG");
}

void print_table(const std::vector<const Section*>& sections, Mode mode, const char* margin) {
  std::vector<const Measured*> rows;
  for (const Measured& row : sections.front()->rows)
    if (row.mode == mode) rows.push_back(&row);
  if (rows.empty()) return;
  std::printf("%s\n%s%s, %s, %s (ratio)\n%s%-36s", margin, margin, sections.front()->exchange.c_str(), name_of(mode),
              is_bandwidth(*sections.front()) ? "GB/s each way" : "us an epoch", margin, "");
  for (const Section* section : sections) std::printf(" %15s", size_text(section->face).c_str());
  std::printf("\n");
  for (const Measured* row : rows) {
    std::printf("%s%-36s", margin, row->name.c_str());
    for (const Section* section : sections) std::printf(" %15s", cell(*section, row->key, mode).c_str());
    std::printf("\n");
  }
}

}  // namespace

const Measured* Section::find(const std::string& key, Mode mode) const {
  for (const Measured& row : rows)
    if (row.key == key && row.mode == mode) return &row;
  return nullptr;
}

const Measured* reference_of(const Section& section, const Measured& row) {
  if (is_bandwidth(section)) return section.find("copy", Mode::stream);
  const bool with_kernels = row.key.find("-user") != std::string::npos;
  return section.find(with_kernels ? "nccl-user" : "nccl", row.mode == Mode::stream ? Mode::stream : Mode::graph);
}

std::string size_text(std::size_t bytes) {
  if (bytes >= 1024 * 1024 && bytes % (1024 * 1024) == 0) return std::to_string(bytes / (1024 * 1024)) + " MiB";
  if (bytes >= 1024 && bytes % 1024 == 0) return std::to_string(bytes / 1024) + " KiB";
  return std::to_string(bytes) + " B";
}

void print_section(const Section& section, bool csv) {
  if (csv) {
    for (const Measured& row : section.rows) print_csv_row(section, row);
  } else {
    std::printf("\n%s (%s), face %s\n  %-36s %-8s %9s %9s %9s %9s %6s  data\n", section.exchange.c_str(),
                section.about.c_str(), size_text(section.face).c_str(), "us an epoch", "mode", "median", "least",
                "most", "CPU", "ratio");
    for (const Measured& row : section.rows) print_row(section, row);
  }
  std::fflush(stdout);
}

void print_csv_header() { std::printf("exchange,face_bytes,row,mode,epochs,us,least_us,most_us,cpu_us,ratio,data\n"); }

void print_tables(const std::vector<Section>& sections, bool csv) {
  const char* margin = csv ? "# " : "";
  for (std::size_t first = 0; first < sections.size();) {
    std::vector<const Section*> same;
    while (first < sections.size() && (same.empty() || sections[first].exchange == same.front()->exchange))
      same.push_back(&sections[first++]);
    for (Mode mode : all_modes) print_table(same, mode, margin);
  }
}

bool all_right(const std::vector<Section>& sections) {
  for (const Section& section : sections)
    for (const Measured& row : section.rows)
      if (row.failure.empty() && !row.right) return false;
  return true;
}

}  // namespace peers
