// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/failures.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace mpix {
namespace {

constexpr std::size_t most_told = 3;

const char* name_of(dev::DevCall call) {
  switch (call) {
    case dev::DevCall::none:
      return "?";
    case dev::DevCall::init:
      return "MPIX_Dev_init";
    case dev::DevCall::put:
      return "MPIX_Dev_put";
    case dev::DevCall::get:
      return "MPIX_Dev_get";
    case dev::DevCall::put_notify:
      return "MPIX_Dev_put_notify";
    case dev::DevCall::put_notify_2d:
      return "MPIX_Dev_put_notify_2d";
    case dev::DevCall::get_notify:
      return "MPIX_Dev_get_notify";
    case dev::DevCall::notify:
      return "MPIX_Dev_notify";
    case dev::DevCall::wait:
      return "MPIX_Dev_wait";
    case dev::DevCall::test:
      return "MPIX_Dev_test";
    case dev::DevCall::flush:
      return "MPIX_Dev_flush";
    case dev::DevCall::barrier:
      return "MPIX_Dev_barrier";
    case dev::DevCall::win_open:
      return "MPIX_Dev_win_open";
    case dev::DevCall::win_close:
      return "MPIX_Dev_win_close";
    case dev::DevCall::put_notify_all:
      return "MPIX_Dev_put_notify_all";
    case dev::DevCall::bcast:
      return "MPIX_Dev_bcast";
    case dev::DevCall::reduce:
      return "MPIX_Dev_reduce";
  }
  return "?";
}

bool is_rooted(dev::DevCall call) { return call == dev::DevCall::bcast || call == dev::DevCall::reduce; }

const char* reason(dev::Result result, dev::DevCall call) {
  switch (result) {
    case dev::Result::ok:
      return "no error";
    case dev::Result::argument:
      return "the kernel was not launched with a block, or a thread of MPIX_Dev_launch_host, for each rank";
    case dev::Result::buffer:
      return call == dev::DevCall::reduce ? "the scratch memory overlaps the data" : "no buffer";
    case dev::Result::count:
      return "a negative count";
    case dev::Result::group:
      return "no such group of ranks";
    case dev::Result::memory:
      return call == dev::DevCall::win_open ? "no room: too many windows are open"
                                            : "no room: notifications that nobody asked for fill the list of those set "
                                              "aside (info mpix_dev_pending)";
    case dev::Result::not_attached:
      return "the memory is not attached";
    case dev::Result::order:
      return "not what other ranks do: all open and close their windows in one order";
    case dev::Result::other:
      return "the kernel was compiled with the headers of another libmpix";
    case dev::Result::range:
      return is_rooted(call) ? "outside of some rank's part of the window"
                             : "outside of the target's part of the window";
    case dev::Result::rank:
      return "no such rank";
    case dev::Result::synchronization:
      return "the domain is broken: a wait ran into its time-out, or a process cannot be reached";
    case dev::Result::tag:
      return "not a tag";
    case dev::Result::window:
      return "no such window";
    case dev::Result::root:
      return "no such rank for a root";
    case dev::Result::operation:
      return "no such operation";
  }
  return "?";
}

std::string or_any(std::int64_t number) { return number == -1 ? "any" : std::to_string(number); }

/// Which of its arguments a call has told, and what they are.
std::string arguments_of(const dev::RankNote& note) {
  const auto result = static_cast<dev::Result>(note.failure);
  const std::string window = "window " + or_any(note.failed_window), rank = or_any(note.failed_rank);
  const std::string first = std::to_string(note.failed_values[0]), second = std::to_string(note.failed_values[1]);
  const auto bytes = [&note](int i) { return std::to_string(static_cast<std::uint64_t>(note.failed_values[i])); };
  const auto call = static_cast<dev::DevCall>(note.failed_call);
  switch (call) {
    case dev::DevCall::init:
      return result == dev::Result::argument ? " (" + first + " for " + second + " ranks)" : "";
    case dev::DevCall::none:
    case dev::DevCall::barrier:
      return "";
    case dev::DevCall::win_open:
      return result == dev::Result::synchronization ? "" : " (" + bytes(0) + " bytes)";
    case dev::DevCall::win_close:
    case dev::DevCall::flush:
      return " (" + window + ")";
    case dev::DevCall::wait:
    case dev::DevCall::test:
      return " (" + window + ", source " + rank + ", tag " + or_any(note.failed_values[0]) + ", count " + second + ")";
    case dev::DevCall::put:
    case dev::DevCall::get:
    case dev::DevCall::put_notify:
    case dev::DevCall::put_notify_2d:
    case dev::DevCall::get_notify:
    case dev::DevCall::notify:
    case dev::DevCall::put_notify_all:
    case dev::DevCall::bcast:
    case dev::DevCall::reduce:
      return " (" + window + (is_rooted(call) ? ", root " : ", target ") + rank +
             (result == dev::Result::synchronization ? ")"
              : result == dev::Result::tag           ? ", tag " + first + ")"
                                                     : ", displacement " + bytes(0) + ", " + bytes(1) + " bytes)");
  }
  return "";
}

}  // namespace

std::string failure_text(const dev::RankNote& note, std::uint32_t rank) {
  const auto call = static_cast<dev::DevCall>(note.failed_call);
  return "rank " + std::to_string(rank) + ", " + name_of(call) + ": " +
         reason(static_cast<dev::Result>(note.failure), call) + arguments_of(note);
}

bool is_list_full(const dev::RankNote& note) {
  return static_cast<dev::Result>(note.failure) == dev::Result::memory &&
         static_cast<dev::DevCall>(note.failed_call) != dev::DevCall::win_open;
}

std::string commonest_text(const std::vector<dev::Notification>& pending) {
  if (pending.empty()) return "";
  using SourceAndTag = std::pair<std::uint32_t, std::uint32_t>;
  std::map<SourceAndTag, std::size_t> counts;
  for (const dev::Notification& one : pending) ++counts[{dev::source_of(one.what), dev::tag_of(one.what)}];
  std::vector<std::pair<SourceAndTag, std::size_t>> all(counts.begin(), counts.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (all.size() > most_told) all.resize(most_told);
  std::string text = "; of " + std::to_string(pending.size()) + " set aside the commonest are";
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i > 0 ? ", " : " ") + std::to_string(all[i].second) + " of source " + std::to_string(all[i].first.first) +
            " with tag " + std::to_string(all[i].first.second);
  return text;
}

}  // namespace mpix
