// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace test {

/// What this process writes to a file descriptor, from here to end().
class Capture {
 public:
  explicit Capture(int descriptor)
      : descriptor_(descriptor), saved_(dup(descriptor)), memory_(memfd_create("capture", 0)) {
    std::fflush(nullptr);
    dup2(memory_, descriptor_);
    if (descriptor == STDERR_FILENO) open() = this;
  }
  ~Capture() { end(); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// What has been written so far.
  std::string text() const {
    std::fflush(nullptr);
    std::string all(static_cast<std::size_t>(lseek(memory_, 0, SEEK_END)), '\0');
    const ssize_t got = pread(memory_, &all[0], all.size(), 0);
    all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return all;
  }

  std::string end() {
    if (saved_ < 0) return "";
    if (open() == this) open() = nullptr;
    const std::string all = text();
    dup2(saved_, descriptor_);
    close(saved_);
    close(memory_);
    saved_ = -1;
    return all;
  }

  /// Of a process that ends meanwhile, what it has written to stderr.
  static void show_open(int to) {
    if (open()) dprintf(to, "%s", open()->text().c_str());
  }

 private:
  static Capture*& open() {
    static Capture* capture = nullptr;
    return capture;
  }

  const int descriptor_;
  int saved_;
  const int memory_;
};

}  // namespace test
