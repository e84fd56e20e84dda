// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "baselines.h"
#include "messages.h"
#include "support/streams.h"
#include "way.h"

/// The task queues of Vanecek 2020, on channels: one kernel an exchange, a block a message.
namespace halo {

constexpr unsigned packed_task = 1;

/// Packs, says so, waits for the answer, unpacks.
struct PackAndUnpack {
  MPIX_Dev_channel channel;
  const Part *pack, *unpack;
  std::uint64_t* stamps;  ///< of packing, by block, and behind them those of unpacking; or null
  std::uint64_t* failed;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    std::uint64_t* const packing = stamps ? stamps + 2 * std::size_t{team.block} : nullptr;
    std::uint64_t* const unpacking = packing ? packing + 2 * std::size_t{team.blocks} : nullptr;
    stamp_here(team, packing);
    copy_part(team, pack[team.block]);
    stamp_here(team, packing ? packing + 1 : nullptr);
    std::uint64_t message = team.block, ticket = 0;
    int result = MPIX_Dev_block_post(team, channel, team.block, packed_task, &message, 1, &ticket);
    if (result == MPIX_DEV_DONE) result = MPIX_Dev_block_reply_wait(team, channel, ticket, nullptr);
    if (result != MPIX_DEV_DONE) {
      tell_failure(team, failed, result);
      return;
    }
    stamp_here(team, unpacking);
    copy_part(team, unpack[team.block]);
    stamp_here(team, unpacking ? unpacking + 1 : nullptr);
  }
};

/// The channel, with one queue or a lane a block, and what both kinds of buffers need.
class TaskQueue {
 public:
  TaskQueue(const Messages& messages, const char* tasks, int threads)
      : messages_(messages), threads_(threads), streams_(static_cast<std::size_t>(messages.count())) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpix_tasks", tasks));
    CHECK_MPI(MPI_Info_set(info, "mpix_service", "caller"));
    CHECK_MPI(MPI_Info_set(info, "mpix_layout", "padded"));
    CHECK_MPI(MPI_Info_set(info, "mpix_name", tasks));
    CHECK_MPI(MPIX_Channel_create(messages.count(), 0, info, &channel_));
    CHECK_MPI(MPI_Info_free(&info));
    CHECK_MPI(MPIX_Channel_get_device(channel_, &device_));
    words_ = static_cast<std::uint64_t*>(support::allocate_pinned(streams_.size() * 64));
    CHECK_MPI(MPIX_Channel_arm(channel_));  // once: disarming asks the device for what was posted
  }
  ~TaskQueue() {
    CHECK_MPI(MPIX_Channel_disarm(channel_));
    CHECK_MPI(MPIX_Channel_free(&channel_));
    support::release_pinned(words_);
  }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  void exchange(bool copied, bool blocking, Events& events, Trace* trace) {
    const Spanned whole(trace, "exchange");
    const int count = messages_.count();
    begin(copied, trace);
    events.missed();
    const int events_of_a_message = copied ? 3 : 2;
    for (int left = events_of_a_message * count; left > 0;) {
      // A task first, as the thesis has it: what others wait for.
      int found = take_tasks(copied, blocking, trace);
      if (found == 0) found = (copied && send_copied(blocking, trace)) || take_message(trace);
      left -= found;
      if (found == 0) {
        events.missed();
        failure_.check();
        support::let_others_run();
      }
      for (; found > 0; --found) events.found();
    }
    end(trace);
  }

 private:
  struct Of {
    MPIX_Task task;
    bool has_packed, has_come, is_copied;
  };
  Of& of(int m) { return state_[static_cast<std::size_t>(m)]; }
  std::uint64_t* copied_word(int m) const { return words_ + 8 * static_cast<std::size_t>(m); }

  void begin(bool copied, Trace* trace) {
    state_.assign(streams_.size(), Of{});
    receives_ = sends_ = requests_for(messages_);
    ++number_;
    {
      const Spanned span(trace, "receives");
      for (int m = 0; m < messages_.count(); ++m) messages_.receive(m, Buffers::pinned, request_of(receives_, m));
    }
    const Spanned span(trace, "launch");
    support::launch_blocks(
        PackAndUnpack{device_, copied ? messages_.whole_stage() : messages_.whole_pack(), messages_.whole_unpack(),
                      trace ? messages_.stamps() : nullptr, failure_.word()},
        messages_.count(), threads_);
  }

  /// All there are, the largest message first: the last one to come is unpacked when nothing else is under way.
  int take_tasks(bool copied, bool blocking, Trace* trace) {
    packed_.clear();
    for (int found = 1; found != 0;) {
      MPIX_Task task;
      CHECK_MPI(MPIX_Channel_poll(channel_, &task, &found));
      if (!found) break;
      const int m = static_cast<int>(task.word[0]);
      of(m).task = task;
      of(m).has_packed = true;
      packed_.push_back(m);
    }
    std::stable_sort(packed_.begin(), packed_.end(),
                     [this](int a, int b) { return messages_.bytes(a) > messages_.bytes(b); });
    for (const int m : packed_) {
      if (copied)
        copy(m, trace);
      else
        send(m, blocking, trace);
      if (of(m).has_come) reply(m, trace);
    }
    return static_cast<int>(packed_.size());
  }
  void copy(int m, Trace* trace) {
    const Spanned span(trace, "copy", m);
    const auto bytes = static_cast<std::size_t>(messages_.bytes(m));
    streams_[static_cast<std::size_t>(m)].copy_to_host_and_tell(messages_.out(m), messages_.staged(m), bytes,
                                                                copied_word(m), number_);
    of(m).is_copied = true;
  }
  /// A message whose copy is over: a word says so, which the copy's stream writes.
  bool send_copied(bool blocking, Trace* trace) {
    for (int m = 0; m < messages_.count(); ++m) {
      if (!of(m).is_copied || mpix::load_acquire(copied_word(m)) != number_) continue;
      of(m).is_copied = false;
      send(m, blocking, trace);
      return true;
    }
    return false;
  }
  bool take_message(Trace* trace) {
    const int m = any_over(receives_);
    if (m < 0) return false;
    of(m).has_come = true;
    if (of(m).has_packed) reply(m, trace);
    return true;
  }
  void send(int m, bool blocking, Trace* trace) {
    const Spanned span(trace, "send", m);
    messages_.send(m, Buffers::pinned, blocking, request_of(sends_, m));
  }
  void reply(int m, Trace* trace) {
    const Spanned span(trace, "reply", m);
    CHECK_MPI(MPIX_Channel_reply(channel_, &of(m).task, 0));
  }

  void end(Trace* trace) {
    {
      const Spanned span(trace, "synchronize");
      support::synchronize();
    }
    failure_.check();
    const Spanned span(trace, "wait for sends");
    wait_for_all(sends_);
  }

  const Messages& messages_;
  const int threads_;
  MPIX_Channel channel_ = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device_;
  std::vector<support::Stream> streams_;
  std::vector<Of> state_;
  std::vector<int> packed_;  ///< messages whose tasks have just been taken
  std::vector<MPI_Request> receives_, sends_;
  Failure failure_;
  std::uint64_t* words_ = nullptr;  ///< 64 bytes apart: the number of each last copy
  std::uint64_t number_ = 0;        ///< of the exchange
};

inline void add_task_queues(const Messages& messages, const Size& size, int threads, Ways& ways) {
  const std::shared_ptr<TaskQueue> queues[2] = {std::make_shared<TaskQueue>(messages, "queue", threads),
                                                std::make_shared<TaskQueue>(messages, "lanes", threads)};
  for (const bool blocking : {false, true})
    for (const bool copied : {false, true})
      for (const bool lanes : {false, true}) {
        Way way;
        way.name = std::string(lanes ? "lanes, " : "queue, ") + (copied ? "copied, " : "pinned, ") +
                   (blocking ? "Send" : "Isend");
        way.kind = Way::Kind::task_queue;
        way.traced = Way::Blocks::of_messages;
        way.blocks = blocking;
        way.launches = 1;
        way.paper = size.task_queues[blocking][2 * copied + lanes];
        way.events = std::make_shared<Events>();
        way.exchange = [queue = queues[lanes], copied, blocking, events = way.events](Trace* trace) {
          queue->exchange(copied, blocking, *events, trace);
        };
        ways.push_back(way);
      }
}

}  // namespace halo
