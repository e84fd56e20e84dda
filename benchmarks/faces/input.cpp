// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <vector>

#include "options.h"

namespace faces {
namespace {

constexpr int patience_ms = 1000;

/// False: nothing to read within that time, or standard input is closed.
bool readable(int timeout_ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  int ready;
  do ready = poll(&input, 1, timeout_ms);
  while (ready < 0 && errno == EINTR);
  return ready > 0 && (input.revents & POLLNVAL) == 0;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Up to the end of the line (or file) in which the last of `count` words stands.
std::string read_words(std::size_t count) {
  std::string text;
  char byte;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text += byte;
    if (byte == '\n' && words_of(text).size() >= count) return text;
  }
}

}  // namespace

bool read_standard_input(bool wait, int (&value)[Options::values]) {
  if (isatty(STDIN_FILENO) && !wait) return false;
  if (!readable(wait ? -1 : patience_ms)) return false;
  const std::vector<std::string> words = words_of(read_words(Options::values));
  if (words.empty()) return false;
  if (words.size() < Options::values)
    throw InputError("standard input holds " + std::to_string(words.size()) +
                     " values, not the ten lx ly lz mx my mz n niface niel nshare (--no-stdin ignores it)");
  try {
    for (std::size_t v = 0; v < Options::values; ++v) value[v] = parse_integer(words[v]);
  } catch (const InputError& error) {
    throw InputError(std::string("standard input: ") + error.what());
  }
  return true;
}

}  // namespace faces
