// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/process_kept.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace mpix {
namespace {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry && *entry; ++entry) {
    const char* const sign = std::strchr(*entry, '=');
    if (sign) found.emplace(std::string(*entry, static_cast<std::size_t>(sign - *entry)), sign + 1);
  }
  return found;
}

bool same(const struct sigaction& one, const struct sigaction& other) {
  // sa_handler and sa_sigaction are one word; behind the signals that there are a mask holds anything
  if (one.sa_handler != other.sa_handler || one.sa_flags != other.sa_flags) return false;
  for (int number = 1; number < NSIG; ++number)
    if (sigismember(&one.sa_mask, number) != sigismember(&other.sa_mask, number)) return false;
  return true;
}

}  // namespace

ProcessKept::ProcessKept() : environment_(environment()) {
  for (std::size_t i = 1; i < handlers_.size(); ++i)
    handlers_[i].known = sigaction(static_cast<int>(i), nullptr, &handlers_[i].action) == 0;  // two are the C library's
}

ProcessKept::~ProcessKept() {
  for (std::size_t i = 1; i < handlers_.size(); ++i) {
    struct sigaction now {};
    if (!handlers_[i].known || sigaction(static_cast<int>(i), nullptr, &now) != 0) continue;
    if (!same(now, handlers_[i].action)) sigaction(static_cast<int>(i), &handlers_[i].action, nullptr);
  }
  // Other threads may read it just now: it is written to only where it has to be.
  for (const auto& [name, value] : environment()) {
    const auto before = environment_.find(name);
    if (before == environment_.end())
      unsetenv(name.c_str());
    else if (before->second != value)
      setenv(name.c_str(), before->second.c_str(), 1);
  }
  for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 0);
}

}  // namespace mpix
