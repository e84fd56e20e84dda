// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

#include <sstream>
#include <string>

#include "support/device.h"

/// What a process has of what can leak.
namespace test {

inline std::size_t entries(const char* directory) {
  std::size_t count = 0;
  DIR* const open = opendir(directory);
  while (open && readdir(open)) ++count;
  if (open) closedir(open);
  return count;
}

struct Usage {
  long kilobytes, mappings;
  std::size_t files, threads;
  long heap;      ///< bytes that malloc has given; sanitizers have their own
  long gpu_free;  ///< bytes, of the GPU, whoever uses it; 0 on hosts

  static Usage now() {
    long pages = 0, mappings = 0;
    if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(statm, "%*d %ld", &pages) != 1) pages = 0;
      std::fclose(statm);
    }
    if (std::FILE* maps = std::fopen("/proc/self/maps", "r")) {
      for (int c; (c = std::fgetc(maps)) != EOF;) mappings += c == '\n';
      std::fclose(maps);
    }
    return {pages * sysconf(_SC_PAGESIZE) / 1024,
            mappings,
            entries("/proc/self/fd"),
            entries("/proc/self/task"),
            static_cast<long>(mallinfo2().uordblks),
            device().free_bytes()};
  }

  std::string text() const {
    std::ostringstream all;
    all << kilobytes << " KiB, of them " << heap / 1024 << " of malloc; " << files << " files, " << threads
        << " threads, " << mappings << " mappings";
    if (gpu_free > 0) all << "; " << gpu_free / 1024 << " KiB of the GPU are free";
    return all.str();
  }
};

}  // namespace test
