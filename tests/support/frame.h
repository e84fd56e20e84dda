// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <dirent.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/channel.h"

/// What tests of channels, device requests and halos share: expectations, error texts, what a process holds.

inline int failures = 0, rank = 0, ranks = 1;

#define EXPECT(holds)                                                                 \
  do {                                                                                \
    if (!(holds)) {                                                                   \
      std::printf("%s:%d: rank %d: expected %s\n", __FILE__, __LINE__, rank, #holds); \
      if (++failures > 20) std::abort();                                              \
    }                                                                                 \
  } while (false)

inline std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (code != MPI_SUCCESS) CHECK_MPI(MPI_Error_string(code, text, &length));
  return text;
}
inline int class_of(int code) {
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) CHECK_MPI(MPI_Error_class(code, &error_class));
  return error_class;
}

inline void expect_error(int line, int code, int error_class, const std::string& part) {
  const std::string text = text_of(code);
  if (class_of(code) == error_class && text.find(part) != std::string::npos) return;
  std::printf("rank %d, line %d: class %d (expected %d): %s (expected: %s)\n", rank, line, class_of(code), error_class,
              text.c_str(), part.c_str());
  ++failures;
}
#define EXPECT_ERROR(call, error_class, part) expect_error(__LINE__, call, error_class, part)

/// Of a kernel: what its calls returned, one after another.
inline void expect_results(const char* what, const void* on_device, const std::vector<int>& expected) {
  std::vector<int> found(expected.size());
  support::to_host(found.data(), on_device, found.size() * sizeof(int));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    std::printf("%s %zu: %d instead of %d\n", what, i, found[i], expected[i]);
    ++failures;
  }
}

/// What may grow while things are created and freed: take it when a part of them is over, and compare at the end.
struct Holdings {
  long threads = 0, kilobytes = 0, descriptors = 0;

  static Holdings now() {
    Holdings all;
    char line[256];
    std::FILE* const status = std::fopen("/proc/self/status", "r");
    while (status && std::fgets(line, sizeof line, status)) {
      if (std::strncmp(line, "Threads:", 8) == 0) all.threads = std::atol(line + 8);
      if (std::strncmp(line, "VmRSS:", 6) == 0) all.kilobytes = std::atol(line + 6);
    }
    if (status) std::fclose(status);
    DIR* const open = opendir("/proc/self/fd");
    while (open && readdir(open)) ++all.descriptors;
    if (open) closedir(open);
    return all;
  }
  void expect_no_more() const {
    const Holdings later = now();
    EXPECT(later.threads <= threads);
    EXPECT(later.descriptors <= descriptors);
    EXPECT(later.kilobytes - kilobytes < 1000);
    std::printf("%ld threads, %ld descriptors, %ld kB; then %ld kB\n", threads, descriptors, kilobytes,
                later.kilobytes);
  }
};
