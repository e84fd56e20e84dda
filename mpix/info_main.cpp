// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// mpix-info: what this libmpix can do, and what its settings are in this environment.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "collective/way_table.h"
#include "config.h"
#include "net/fabric/triggered_network.h"

namespace {

void print_usage(std::FILE* to) {
  std::fputs(
      "usage: mpix-info [--help | --version]\n"
      "Prints the version of libmpix, the devices and networks it was built for, and every setting: the value in\n"
      "force in this environment, the default, what it may hold, what it does.\n"
      "Exit status: 0; 1 when a setting holds what it may not; 2 for a wrong option.\n",
      to);
}

std::string back_ends() {
  std::string names = "host";
#ifdef HAVE_CUDA
  names += ", cuda";
#endif
#ifdef HAVE_HIP
  names += ", hip";
#endif
  return names;
}

/// Characters, not bytes: the texts are UTF-8.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, width_of(text)), ' ');
}

/// Columns as wide as they need; the help of a setting on a line of its own, as it is a sentence.
void print_settings() {
  std::vector<std::array<std::string, 4>> rows{{"setting", "value", "default", "allowed"}};
  std::vector<std::string> helps{""};
  for (const mpix::SettingInfo& setting : mpix::settings_table()) {
    rows.push_back({setting.name, mpix::setting_text(setting), setting.preset, setting.values});
    helps.push_back(setting.help);
  }
  std::array<std::size_t, 4> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& row = rows[r];
    std::printf("%s  %s  %s  %s\n", padded(row[0], widths[0]).c_str(), padded(row[1], widths[1]).c_str(),
                padded(row[2], widths[2]).c_str(), row[3].c_str());
    if (!helps[r].empty()) std::printf("    %s\n", helps[r].c_str());
  }
}

int report() {
  std::printf("libmpix %s\nback ends: %s\nbetween nodes: %s\n\n", PACKAGE_VERSION, back_ends().c_str(),
              mpix::triggered_network_built() ? "cxi, sockets, mpi" : "mpi");
  print_settings();
  for (const std::string& complaint : mpix::unknown_settings())
    std::fprintf(stderr, "mpix-info: %s\n", complaint.c_str());
  const mpix::Settings settings = mpix::Settings::from_environment();
  if (!settings.collective_table.empty()) (void)mpix::WayTable::from_file(settings.collective_table);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      print_usage(stdout);
      return 0;
    }
    if (std::strcmp(argv[i], "--version") == 0) {
      std::printf("mpix-info (libmpix) %s\n", PACKAGE_VERSION);
      return 0;
    }
    std::fprintf(stderr, "mpix-info: unknown option %s\n", argv[i]);
    print_usage(stderr);
    return 2;
  }
  try {
    return report();
  } catch (const mpix::Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "mpix-info: %s\n", error.what());
    return 1;
  }
}
