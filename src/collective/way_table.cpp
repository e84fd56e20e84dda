// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/way_table.h"

#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"

namespace mpix {
namespace {

constexpr std::array<const char*, 7> kinds = {"barrier",   "bcast",   "reduce", "allreduce", "reduce_scatter_block",
                                              "allgather", "alltoall"};
constexpr std::array<const char*, 3> ways = {"lines", "packs", "direct"};
constexpr std::array<CollectiveWay, 3> way_values = {CollectiveWay::lines, CollectiveWay::packs, CollectiveWay::direct};
constexpr std::uint64_t most_ranks = 1u << 16, most_bytes = std::uint64_t{1} << CallWord::byte_bits;
constexpr const char head[] = "libmpix-ways 1";
constexpr off_t most_text = 16 << 20;

/// A number, with k, m or g where `has_unit`. False: it is none, or out of range.
bool parse(const std::string& word, bool has_unit, std::uint64_t least, std::uint64_t most, std::uint64_t* number) {
  std::string digits = word;
  unsigned shift = 0;
  if (has_unit && !digits.empty()) {
    const char unit = digits.back();
    shift = unit == 'k' ? 10 : unit == 'm' ? 20 : unit == 'g' ? 30 : 0;
    if (shift) digits.pop_back();
  }
  if (digits.empty() || digits.size() > 12 || digits.find_first_not_of("0123456789") != std::string::npos) return false;
  *number = std::stoull(digits);
  if (*number > most >> shift) return false;
  *number <<= shift;
  return *number >= least;
}

/// For a message.
std::string shown(const std::string& word) {
  std::string text = word.substr(0, 40);
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return "'" + text + "'";
}

/// Without what is behind a #, and spaces at the end.
std::string stripped(const std::string& line) {
  const std::string text = line.substr(0, line.find('#'));
  return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

}  // namespace

WayTable::WayTable(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  std::string line;
  int number = 0;
  bool has_head = false;
  const auto fail = [&](const std::string& what) {
    throw Error(Fault::argument, name + ":" + std::to_string(number) + ": " + what);
  };
  while (std::getline(in, line)) {
    ++number;
    line = stripped(line);
    if (line.empty()) continue;
    if (!has_head) {
      if (line != head) fail(shown(line) + ": expected '" + head + "'");
      has_head = true;
      continue;
    }
    std::istringstream split(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(split), {}};
    if (words.size() != 6) fail("expected six words: kind, ranks, sharers, bytes, way, blocks");
    const auto kind = std::find(kinds.begin() + 1, kinds.end(), words[0]);
    if (kind == kinds.end())
      fail("kind " + shown(words[0]) +
           ": expected bcast, reduce, allreduce, reduce_scatter_block, allgather or alltoall");
    std::uint64_t ranks = 0, sharers = 0, bytes = 0, blocks = 0;
    if (!parse(words[1], false, 2, most_ranks, &ranks))
      fail("ranks " + shown(words[1]) + ": expected a number from 2 to 65536");
    if (!parse(words[2], false, 1, ranks, &sharers))
      fail("sharers " + shown(words[2]) + ": expected a number from 1 to that of ranks");
    if (!parse(words[3], true, 1, most_bytes, &bytes))
      fail("bytes " + shown(words[3]) + ": expected a number from 1 to 64g, with k, m or g");
    const auto way = std::find(ways.begin(), ways.end(), words[4]);
    if (way == ways.end()) fail("way " + shown(words[4]) + ": expected lines, packs or direct");
    if (!parse(words[5], false, 0, most_blocks, &blocks))
      fail("blocks " + shown(words[5]) + ": expected a number from 0 to " + std::to_string(most_blocks));
    const Key key{static_cast<CollectiveKind>(kind - kinds.begin()), static_cast<std::uint32_t>(ranks),
                  static_cast<std::uint32_t>(sharers)};
    const auto before =
        std::find_if(lines_.rbegin(), lines_.rend(), [&](const Line& known) { return known.key == key; });
    if (before != lines_.rend() && before->bytes >= bytes)
      fail("bytes " + shown(words[3]) + ": expected more than in the line before of this kind, ranks and sharers");
    lines_.push_back(
        {key, bytes, {way_values[static_cast<std::size_t>(way - ways.begin())], static_cast<std::uint32_t>(blocks)}});
  }
  if (!has_head) {
    number = std::max(number, 1);
    fail(std::string("expected '") + head + "'");
  }
}

WayTable WayTable::from_file(const std::string& path) {
  const std::string name = "MPIX_COLL_TABLE: " + path;
  const auto fail = [&](const std::string& why) { throw Error(Fault::argument, name + ": " + why); };
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) fail(std::strerror(errno));
  if (!S_ISREG(about.st_mode)) fail("it is no regular file");  // others may have no end
  if (about.st_size > most_text) fail("it has more than 16 MiB");
  std::ifstream in(path);
  if (!in) fail(std::strerror(errno));
  std::string text(static_cast<std::size_t>(about.st_size), ' ');
  in.read(text.data(), about.st_size);
  if (in.gcount() != about.st_size) fail("it cannot be read");
  return WayTable(text, name);
}

const WayTable::Choice* WayTable::find(CollectiveKind kind, std::uint32_t ranks, std::uint32_t sharers,
                                       std::uint64_t bytes) const {
  const Key key{kind, ranks, sharers};
  for (const Line& line : lines_)
    if (line.key == key && bytes <= line.bytes) return &line.choice;
  return nullptr;
}

std::uint64_t WayTable::fingerprint() const {
  std::uint64_t print = 0;
  const auto mix = [&](std::uint64_t value) { print = (print ^ value) * 0x100000001b3u + 0x9e3779b97f4a7c15u; };
  for (const Line& line : lines_)
    for (const std::uint64_t value :
         {static_cast<std::uint64_t>(line.key.kind), std::uint64_t{line.key.ranks}, std::uint64_t{line.key.sharers},
          line.bytes, static_cast<std::uint64_t>(line.choice.way), std::uint64_t{line.choice.blocks}})
      mix(value);
  return print;
}

}  // namespace mpix
