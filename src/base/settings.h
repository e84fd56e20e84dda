// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mpix {

enum class LogLevel { error, warn, info, debug };
enum class Throttle { application, fixed, adaptive };

/// How a kernel is handed to a GPU; see device/gpu/launcher.h.
enum class LaunchForm { automatic, plain, dependent, graph };

/// How the data of a collective travel; see wire/collective.h.
enum class CollectiveWay { automatic, lines, direct, packs, gsb, btb, gsb_btb, btb_gsb, staged, copies };
/// As MPIX_COLL has them.
extern const std::vector<std::pair<const char*, CollectiveWay>> collective_way_names;

/// How that is chosen where nothing forces it: by a table, or else by size; by a few calls that are measured when a
/// communicator is prepared; or where a call runs, by what others have taken.
enum class WaySelection { fixed, model, dynamic };

/// When a post goes; see epoch/free_posts.h.
enum class Posts {
  automatic,  ///< free on a GPU, where that saves launches
  prompt,     ///< at once, in a launch of its own
  free,
};

/// How streams of a GPU wait for other ranks.
enum class Waits {
  automatic,
  kernel,  ///< in kernels that poll
  memory,  ///< in memory operations, in front of the kernels (wire/guard.h)
};

/// Every setting of the library, as environment variables MPIX_…; declared once, in settings.cpp.
struct Settings {
  std::string device;
  LogLevel log;
  bool stats;
  std::optional<std::size_t> eager_bytes;  ///< none: what the device prefers
  std::optional<std::size_t> packs_above;  ///< bytes of an epoch; none: what the device prefers
  std::uint32_t mailbox_slots;
  bool merge;
  Posts posts;
  Waits waits;
  LaunchForm launch_form;
  std::size_t copy_engine_bytes;
  bool ranges;
  double timeout_seconds;
  bool fail_on_timeout;
  std::optional<bool> mpi_gpu_aware;  ///< none: ask MPI
  bool nic_gpu_direct;
  int node_size;  ///< 0: as the machine is
  CollectiveWay collective_way;
  WaySelection collective_selection;
  std::string collective_table;                   ///< a file; empty: none
  std::optional<std::size_t> collective_scratch;  ///< of each rank, for a communicator; none: what the device prefers
  std::uint32_t rail_rounds_above;                ///< nodes
  bool channel_thread;
  int channel_core;     ///< negative: any
  double spin_seconds;  ///< negative: chosen by the device

  // Between nodes.
  std::string nic;                             ///< auto, cxi, sockets, mpi, none
  std::optional<std::size_t> nic_eager_bytes;  ///< none: what was measured to be best
  Throttle throttle;
  std::size_t triggered_operations;  ///< 0: as many as the provider allows
  std::uint64_t counter_limit;
  bool always_chain;
  bool relay;  ///< even for a device that needs none

  /// Throws Error, naming the variable, what it holds and what it may hold.
  static Settings from_environment();
};

/// One row of the table, for mpix-info and the documentation.
struct SettingInfo {
  const char* name;
  const char* values;
  const char* preset;
  const char* help;
};

const std::vector<SettingInfo>& settings_table();

/// The text in force: the environment's, or, where that is empty or not there, the default.
std::string setting_text(const SettingInfo& setting);

/// A sentence for each MPIX_… variable in the environment that names no setting (a spelling mistake, as a rule) and is
/// not empty; with the setting that may have been meant.
std::vector<std::string> unknown_settings();

}  // namespace mpix
