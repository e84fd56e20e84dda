// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "info_keys.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "errors.h"

namespace mpix {

void reject_info(const char* key, const std::string& text, const std::string& expected) {
  throw Error(Fault::info_value, std::string("info ") + key + "=" + text + ": expected " + expected);
}

std::uint64_t number_in(MPI_Info info, const char* key, std::uint64_t preset, std::uint64_t least, std::uint64_t most) {
  const std::string text = info_value(info, key);
  if (text.empty() && !has_key(info, key)) return preset;
  const bool is_number = !text.empty() && text.size() <= 18 &&
                         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const std::uint64_t number = is_number ? std::stoull(text) : 0;
  if (!is_number || number < least || number > most)
    reject_info(key, text, "a number from " + std::to_string(least) + " to " + std::to_string(most));
  return number;
}

void warn_of_unknown_keys(const char* call, MPI_Info info, std::initializer_list<const char*> known) {
  if (info == MPI_INFO_NULL) return;
  int count = 0;
  check(PMPI_Info_get_nkeys(info, &count));
  for (int i = 0; i < count; ++i) {
    char key[MPI_MAX_INFO_KEY + 1] = "";
    check(PMPI_Info_get_nthkey(info, i, key));
    if (std::strncmp(key, "mpix_", 5) != 0) continue;
    if (std::none_of(known.begin(), known.end(), [&](const char* one) { return std::strcmp(one, key) == 0; }))
      log(LogLevel::warn, std::string(call) + ": unknown info key " + key);
  }
}

}  // namespace mpix
