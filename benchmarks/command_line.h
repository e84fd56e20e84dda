// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/abort.h"

/// The command line of a benchmark.
namespace benchmark {

inline int process() {
  int rank = 0;
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}
inline int processes() {
  int size = 1;
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  return size;
}

/// The parts of a list between commas.
inline std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    if (comma > at) parts.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

/// False: it is no whole number from least to most.
inline bool read_number(const std::string& text, long least, long most, int& value) {
  char* end = nullptr;
  const long read = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || read < least || read > most) return false;
  value = static_cast<int>(read);
  return true;
}

/// Some of the names that are known.
inline bool read_names(const std::string& list, const std::vector<std::string>& known,
                       std::vector<std::string>& names) {
  names = split(list);
  return !names.empty() && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(known.begin(), known.end(), name) != known.end();
  });
}

inline bool read_numbers(const std::string& list, long least, long most, std::vector<int>& numbers) {
  numbers.clear();
  for (const std::string& text : split(list))
    if (!read_number(text, least, most, numbers.emplace_back())) return false;
  return !numbers.empty();
}

/// Bytes, with k or m; multiples of 8, to 8 GiB.
inline bool read_sizes(const std::string& list, std::vector<std::size_t>& sizes) {
  sizes.clear();
  for (const std::string& text : split(list)) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    const long unit = *end == 'k' ? 1024 : *end == 'm' ? 1024 * 1024 : 1;
    if (unit > 1) ++end;
    if (*end != '\0' || value < 1 || value > (1L << 33) / unit || value * unit % 8 != 0) return false;
    sizes.push_back(static_cast<std::size_t>(value * unit));
  }
  return !sizes.empty();
}
constexpr const char* wanted_sizes = "a list of multiples of 8, with k or m,";

/// The options that a program knows: each is said once, for its reader and for the help. For --help, and where a value
/// is wrong, all ranks end.
class CommandLine {
 public:
  static constexpr int large = 1 << 20;

  /// `about`: lines of the help, each with its end.
  explicit CommandLine(std::string program, std::string about = "")
      : program_(std::move(program)), about_(std::move(about)) {}

  CommandLine& number(const char* name, int& value, int least, int most, const char* help) {
    return add({name, "N", help, std::to_string(value),
                "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
                [&value, least, most](const std::string& text) { return read_number(text, least, most, value); }});
  }
  CommandLine& real(const char* name, double& value, double least, double most, const char* help) {
    return add({name, "X", help, text_of(value), "a number from " + text_of(least) + " to " + text_of(most),
                [&value, least, most](const std::string& text) {
                  char* end = nullptr;
                  value = std::strtod(text.c_str(), &end);
                  return !text.empty() && *end == '\0' && value >= least && value <= most;
                }});
  }
  CommandLine& text(const char* name, const char* word, std::string& value, const char* help) {
    return add({name, word, help, value, "a text", [&value](const std::string& read) {
                  value = read;
                  return !read.empty();
                }});
  }
  CommandLine& flag(const char* name, bool& value, const char* help) {
    return add({name, "", help, "", "no value", [&value](const std::string&) { return value = true; }});
  }
  /// `take`: whether the text is one of those, say `wanted` what they are.
  CommandLine& value(const char* name, const char* word, const std::string& preset, const std::string& wanted,
                     std::function<bool(const std::string&)> take, const char* help) {
    return add({name, word, help, preset, wanted, std::move(take)});
  }
  /// What stands beside libmpix on GPUs.
  CommandLine& mpi_and_nccl(bool& mpi_is_staged, std::string& nccl) {
    value(
        "mpi", "WHICH", "staged", "staged or device",
        [&mpi_is_staged](const std::string& text) {
          mpi_is_staged = text == "staged";
          return mpi_is_staged || text == "device";
        },
        "on GPUs: staged, through memory of the host, or device, as a GPU-aware MPI takes it");
    return text("nccl", "FILE", nccl, "NCCL's library");
  }
  /// Words that are no options may be these.
  CommandLine& words(std::vector<std::string>& found, std::vector<std::string> known) {
    found_ = &found;
    known_ = std::move(known);
    return *this;
  }

  void read(int argc, char** argv) const {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "-h" || word == "--help") help();
      if (word.compare(0, 2, "--") != 0) {
        if (!found_ || std::find(known_.begin(), known_.end(), word) == known_.end()) refuse("unknown word " + word);
        found_->push_back(word);
        continue;
      }
      const std::size_t equals = std::min(word.find('='), word.size());
      const std::string name = word.substr(2, equals - 2);
      const auto known = std::find_if(all_.begin(), all_.end(), [&](const Option& one) { return name == one.name; });
      if (known == all_.end()) refuse("unknown option " + word);
      const bool has_value = equals < word.size();
      std::string text = has_value ? word.substr(equals + 1) : "";
      if (!has_value && known->takes_value() && i + 1 < argc) text = argv[++i];
      if (has_value && !known->takes_value()) refuse("--" + name + " takes no value");
      if (!known->take(text)) refuse("--" + name + "=" + text + ": " + known->wanted + " is needed");
    }
  }

  /// The command line is wrong.
  [[noreturn]] void refuse(const std::string& why) const {
    if (process() == 0) std::fprintf(stderr, "%s: %s (--help lists the options)\n", program_.c_str(), why.c_str());
    end(2);
  }

 private:
  struct Option {
    const char *name, *word, *help;
    std::string preset, wanted;
    std::function<bool(const std::string&)> take;
    bool takes_value() const { return *word != '\0'; }
    std::string left() const { return "  --" + std::string(name) + (takes_value() ? "=" : "") + word; }
  };

  CommandLine& add(Option option) {
    all_.push_back(std::move(option));
    return *this;
  }
  static std::string text_of(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
  }

  [[noreturn]] void help() const {
    if (process() == 0) {
      std::string words;
      for (const std::string& word : known_) words += " [" + word + "]";
      std::printf("usage: mpiexec -n N %s%s [options]\n%s", program_.c_str(), words.c_str(), about_.c_str());
      std::size_t width = 0;
      for (const Option& one : all_) width = std::max(width, one.left().size());
      for (const Option& one : all_)
        std::printf("%-*s  %s%s\n", static_cast<int>(width), one.left().c_str(), one.help,
                    one.preset.empty() ? "" : ("; preset: " + one.preset).c_str());
    }
    end(0);
  }
  [[noreturn]] static void end(int status) {
    CHECK_MPI(MPI_Finalize());
    std::exit(status);
  }

  const std::string program_, about_;
  std::vector<Option> all_;
  std::vector<std::string>* found_ = nullptr;
  std::vector<std::string> known_;
};

}  // namespace benchmark
