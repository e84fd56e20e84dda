// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "memory.h"

/// How kernels hand tasks to the service (base/service.h), and how it answers. In pinned memory of the process.
///
/// A lane is a ring of tasks with one poster at a time; or with several, each of which is given a number of its own.
/// Tasks are numbered from 1; number n lies in slot n mod depth.
///
/// | word            | written by               | read by                 | order |
/// |-----------------|--------------------------|-------------------------|-------|
/// | what, word[]    | the poster of task n     | the service, after number | before `number` |
/// | number          | the poster: n            | the service: n is there   | release / acquire: publishes the words, and all that the poster has seen. 64 bits, never repeats: nothing is reset |
/// | a flag up       | kernels: a number that only grows | the service      | release / acquire, likewise: there is more of a task |
/// | a flag down     | the service: likewise    | kernels                 | release; kernels acquire where they read what it speaks of |
///
/// Flow control: whoever has a lane knows how many of its tasks are under way. Task n is posted when the flag down that
/// belongs to the lane says that n - depth has been taken.
///
/// Liveness: nobody can wake a CPU from a GPU, so the service looks at lanes by its back-off, and a task is late, never
/// lost. A kernel polls a flag down by one thread, with notes for the hang report, and leaves when it is released.
namespace mpix {

enum class TaskKind : std::uint32_t {
  send = 1,  ///< an epoch's message to a relayed rank (wire/relayed.h)
  // Of domains (far.h):
  far_put = 2,      ///< with or without a notification
  far_get = 3,      ///< into the room for data
  far_release = 4,  ///< that room is free again
  far_flush = 5,
  far_barrier = 6,
  far_window = 7,  ///< the rank's part of a window, or none any more
  rail = 8,        ///< of collectives between nodes (wire/rail.h)
};

/// So that a poster and a service of different builds do not misread each other.
constexpr std::uint32_t channel_version = 1;

struct alignas(64) Task {
  std::uint64_t number;  ///< 0: there was none yet
  std::uint64_t what;
  std::uint64_t word[6];
};
static_assert(sizeof(Task) == 64, "a line of its own");

struct Lane {
  Task* tasks;
  std::uint32_t depth;  ///< a power of two

  MPIX_FN Task& slot(std::uint64_t number) const { return tasks[number & (depth - 1)]; }
};

MPIX_FN std::uint64_t task_of(TaskKind kind) {
  return std::uint64_t{channel_version} << 32 | static_cast<std::uint32_t>(kind);
}

/// One thread. Nobody sees it before publish_task.
MPIX_FN void write_task(const Lane& lane, std::uint64_t number, TaskKind kind, std::uint64_t word) {
  Task& task = lane.slot(number);
  task.what = task_of(kind);
  task.word[0] = word;
}
MPIX_FN void write_task(const Lane& lane, std::uint64_t number, TaskKind kind, const std::uint64_t (&words)[6]) {
  Task& task = lane.slot(number);
  task.what = task_of(kind);
  for (int i = 0; i < 6; ++i) task.word[i] = words[i];
}

/// Behind fence_stores() of whoever wrote it, and whatever it speaks of.
MPIX_FN void publish_task(const Lane& lane, std::uint64_t number) {
  store_after_loads(&lane.slot(number).number, number);
}

/// False: it is not there.
inline bool take_task(const Lane& lane, std::uint64_t number, Task* task) {
  const Task& slot = lane.slot(number);
  if (load_acquire(&slot.number) != number) return false;
  *task = slot;
  return true;
}

/// The number of the last task that was posted.
inline std::uint64_t last_task(const Lane& lane) {
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < lane.depth; ++i) {
    const std::uint64_t number = load_acquire(&lane.tasks[i].number);
    if (number > last) last = number;
  }
  return last;
}

}  // namespace mpix
