// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "device_memory.h"
#include "mpi_library.h"

namespace mpix {

/// Of windows; true: as LocalMemory has it.
constexpr const char lazy_post_key[] = "mpix_lazy_post";

[[noreturn]] void reject_info(const char* key, const std::string& text, const std::string& expected);

template <class Value>
Value choice_in(MPI_Info info, const char* key, Value preset,
                const std::vector<std::pair<const char*, Value>>& choices) {
  const std::string text = info_value(info, key);
  if (text.empty() && !has_key(info, key)) return preset;
  std::string expected;
  for (const auto& choice : choices) {
    if (text == choice.first) return choice.second;
    expected += (expected.empty() ? "" : "|") + std::string(choice.first);
  }
  reject_info(key, text, expected);
}

std::uint64_t number_in(MPI_Info info, const char* key, std::uint64_t preset, std::uint64_t least, std::uint64_t most);

/// A key that nobody knows is a spelling mistake, as a rule.
void warn_of_unknown_keys(const char* call, MPI_Info info, std::initializer_list<const char*> known);

}  // namespace mpix
