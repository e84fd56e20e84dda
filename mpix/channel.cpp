// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Channels: include/mpix_channel.h has the contract.
#include "channel.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/job_environment.h"
#include "base/log.h"
#include "device/host/grid.h"
#include "errors.h"
#include "handles.h"
#include "info_keys.h"
#include "mpix.h"
#include "notify/channel.h"
#include "runtime.h"

/// What a handle stands for.
struct MPIX_Channel_s {
  std::unique_ptr<mpix::Channel> channel;
  bool is_being_freed = false;
};

namespace mpix {
namespace {

Handles<MPIX_Channel>& handles() {
  static auto& all = *new Handles<MPIX_Channel>("channel", Handles<MPIX_Channel>::Children::may_use_them);
  return all;
}

/// Channels that were freed, so far: a handle that was valid when there were as many is so still.
std::atomic<std::uint64_t> freed{0};

Channel& of(MPIX_Channel handle) {
  // A handler replies to millions of tasks a second, as a rule of one channel.
  struct Last {
    MPIX_Channel handle = nullptr;
    std::uint64_t freed = 0;
  };
  static thread_local Last last;
  const std::uint64_t now = freed.load(std::memory_order_acquire);
  if (handle && last.handle == handle && last.freed == now) return *handle->channel;
  handles().require(handle);
  last = Last{handle, now};
  return *handle->channel;
}

std::uint32_t depth_in(MPI_Info info, std::uint32_t preset) {
  const std::string text = info_value(info, "mpix_depth");
  if (text.empty() && !has_key(info, "mpix_depth")) return preset;
  const bool is_number = !text.empty() && text.size() <= 4 &&
                         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const unsigned long depth = is_number ? std::stoul(text) : 0;
  if (depth == 0 || depth > dev::most_depth || (depth & (depth - 1)) != 0)
    reject_info("mpix_depth", text, "1, 2, 4, … 4096");
  return static_cast<std::uint32_t>(depth);
}

ChannelOptions options_from(int lanes, int flags, MPI_Info info) {
  if (lanes < 0 || static_cast<std::uint32_t>(lanes) > dev::most_lanes)
    throw Error(Fault::argument, std::to_string(lanes) + " lanes: there may be 0 to 65536");
  if (flags < 0 || static_cast<std::uint32_t>(flags) > dev::most_lanes)
    throw Error(Fault::argument, std::to_string(flags) + " flags: there may be 0 to 65536");
  warn_of_unknown_keys(
      "MPIX_Channel_create", info,
      {"mpix_tasks", "mpix_depth", "mpix_layout", "mpix_fence", name_key, "mpix_service", "mpix_words"});
  ChannelOptions options;
  options.lanes = static_cast<std::uint32_t>(lanes);
  options.flags = static_cast<std::uint32_t>(flags);
  options.depth = depth_in(info, options.depth);
  if (std::uint64_t{options.lanes} * options.depth > dev::most_places)
    throw Error(Fault::argument, std::to_string(lanes) + " lanes of mpix_depth " + std::to_string(options.depth) +
                                     " are more than 4 million places");
  options.is_queue = choice_in<bool>(info, "mpix_tasks", false, {{"lanes", false}, {"queue", true}, {"auto", false}});
  options.is_dense = choice_in<bool>(info, "mpix_layout", true, {{"dense", true}, {"padded", false}});
  options.all_fence = choice_in<bool>(info, "mpix_fence", false, {{"block", false}, {"thread", true}});
  options.flags_on_device =
      choice_in<bool>(info, "mpix_words", false, {{"host", false}, {"auto", false}, {"device", true}});
  const int level = threads_of_mpi();
  const TaskService preset = level == MPI_THREAD_MULTIPLE ? TaskService::own : TaskService::caller;
  options.service = choice_in<TaskService>(
      info, "mpix_service", preset,
      {{"own", TaskService::own}, {"thread", TaskService::library}, {"caller", TaskService::caller}, {"auto", preset}});
  if (options.service != TaskService::caller && level != MPI_THREAD_MULTIPLE)
    throw Error(Fault::unsupported,
                "info mpix_service=" + info_value(info, "mpix_service") +
                    ": handlers may call MPI, which gives one thread at a time only (MPI_Init_thread with "
                    "MPI_THREAD_MULTIPLE, or MPIX_CHANNEL_THREAD=on, or mpix_service=caller)");
  return options;
}

std::string name_for(MPI_Info info) {
  static std::atomic<std::uint64_t> created{0};
  const std::string name = name_in(info);
  const std::uint64_t number = ++created;
  return name.empty() ? "channel " + std::to_string(number) : "channel '" + name + "'";
}

}  // namespace

void end_channels() noexcept {
  const std::set<MPIX_Channel> left = handles().all();
  // Not under the lock: a handler that is under way may call, and is waited for.
  for (const MPIX_Channel handle : left) {
    log(LogLevel::warn, "MPI_Finalize: a channel was not freed");
    handle->channel->end_service_for("MPI_Finalize was called");
  }
}

bool any_channel_alive() { return handles().any(); }

}  // namespace mpix

using mpix::Caller;
using mpix::Channel;
using mpix::Error;
using mpix::Fault;
using mpix::guarded;

MPIX_INTERPOSED int MPIX_Channel_create(int lanes, int flags, MPI_Info info, MPIX_Channel* channel) {
  return guarded(Caller::on_world("MPIX_Channel_create"), [&] {
    mpix::require_mpi();
    MPIX_Channel& given = mpix::required(channel, "the channel");
    mpix::ChannelOptions options = mpix::options_from(lanes, flags, info);
    options.local_ranks = mpix::launcher_local_ranks();
    mpix::Runtime& runtime = mpix::ensure_runtime(options.local_ranks);
    mpix::Device& device = mpix::usable_device(runtime);
    if (device.is_host()) options.flags_on_device = false;  // it is the same memory
    if (options.flags_on_device && !device.has_memory_ops())
      throw Error(Fault::unsupported,
                  "info mpix_words=device: streams of this GPU write no words, and the CPU cannot write there");
    auto made = std::make_unique<MPIX_Channel_s>();
    options.name = mpix::name_for(info);
    made->channel = std::make_unique<Channel>(options, made.get(), mpix::text_of, device, runtime.settings);
    mpix::handles().add(made.get());
    given = made.release();
  });
}

MPIX_INTERPOSED int MPIX_Channel_free(MPIX_Channel* channel) {
  return guarded(Caller::on_world("MPIX_Channel_free"), [&] {
    Channel& gone = mpix::of(mpix::required(channel, "the channel"));
    if (gone.is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
    const bool is_in_use = !gone.is_broken() && !gone.is_of_parent();
    if (is_in_use && gone.is_awaited())
      throw Error(Fault::other, "a thread is in MPIX_Channel_flag_wait of the channel");
    if (is_in_use && gone.is_armed())
      throw Error(Fault::other, "the channel is armed (MPIX_Channel_disarm, when its kernels are over)");
    mpix::handles().require(*channel, [&] {
      if (std::exchange((*channel)->is_being_freed, true)) throw Error(Fault::argument, "no such channel");
    });
    gone.finish();  // its handlers may call until then
    mpix::handles().remove(*channel);
    ++mpix::freed;
    if (!gone.is_of_parent()) delete *channel;
    *channel = MPIX_CHANNEL_NULL;
  });
}

MPIX_INTERPOSED int MPIX_Channel_get_device(MPIX_Channel channel, MPIX_Dev_channel* device) {
  return guarded(Caller::on_world("MPIX_Channel_get_device"),
                 [&] { mpix::required(device, "the channel for kernels") = mpix::of(channel).param(); });
}

MPIX_INTERPOSED int MPIX_Channel_set_handler(MPIX_Channel channel, unsigned kind, MPIX_Task_function* function,
                                             void* arg) {
  return guarded(Caller::on_world("MPIX_Channel_set_handler"),
                 [&] { mpix::of(channel).set_handler(kind, function, arg); });
}

MPIX_INTERPOSED int MPIX_Channel_arm(MPIX_Channel channel) {
  return guarded(Caller::on_world("MPIX_Channel_arm"), [&] { mpix::of(channel).arm(); });
}

MPIX_INTERPOSED int MPIX_Channel_disarm(MPIX_Channel channel) {
  return guarded(Caller::on_world("MPIX_Channel_disarm"), [&] { mpix::of(channel).disarm(); });
}

MPIX_INTERPOSED int MPIX_Channel_poll(MPIX_Channel channel, MPIX_Task* task, int* found) {
  return guarded(Caller::on_world("MPIX_Channel_poll"), [&] {
    Channel& from = mpix::of(channel);
    (void)mpix::required(task, "the task");
    mpix::required(found, "whether there was one") = 0;
    *found = from.poll(task) ? 1 : 0;
  });
}

MPIX_INTERPOSED int MPIX_Channel_serve(MPIX_Channel channel, int* moved) {
  return guarded(Caller::on_world("MPIX_Channel_serve"), [&] {
    const bool any = mpix::of(channel).serve();
    if (moved) *moved = any ? 1 : 0;
  });
}

MPIX_INTERPOSED int MPIX_Channel_reply(MPIX_Channel channel, const MPIX_Task* task, unsigned long long value) {
  return guarded(Caller::on_world("MPIX_Channel_reply"), [&] {
    if (!task) throw Error(Fault::argument, "no task to reply to");
    mpix::of(channel).reply(*task, value);
  });
}

MPIX_INTERPOSED int MPIX_Channel_flag_set(MPIX_Channel channel, int flag, unsigned long long value) {
  return guarded(Caller::on_world("MPIX_Channel_flag_set"),
                 [&] { mpix::of(channel).set_flag(static_cast<std::uint32_t>(flag), value); });
}

MPIX_INTERPOSED int MPIX_Channel_flag_get(MPIX_Channel channel, int flag, unsigned long long* value) {
  return guarded(Caller::on_world("MPIX_Channel_flag_get"), [&] {
    const mpix::Channel& of = mpix::of(channel);
    unsigned long long& place = mpix::required(value, "the flag's number");
    const std::uint64_t number = of.flag(static_cast<std::uint32_t>(flag));
    of.require_whole();  // who looks again and again has to hear of it
    place = number;
  });
}

MPIX_INTERPOSED int MPIX_Channel_flag_wait(MPIX_Channel channel, int flag, unsigned long long value) {
  return guarded(Caller::on_world("MPIX_Channel_flag_wait"),
                 [&] { mpix::of(channel).wait_for_flag(static_cast<std::uint32_t>(flag), value); });
}

MPIX_INTERPOSED int MPIX_Channel_get_stats(MPIX_Channel channel, MPIX_Channel_stats* stats, size_t size) {
  return guarded(Caller::on_world("MPIX_Channel_get_stats"), [&] {
    Channel& from = mpix::of(channel);
    (void)mpix::required(stats, "the counters");
    const Channel::Counts counts = from.counts();
    MPIX_Channel_stats all{};
    all.tasks = counts.tasks;
    all.replies = counts.replies;
    all.full_waits = counts.full_waits;
    all.chained = counts.chained;
    all.longest_chain = counts.longest_chain;
    all.naps = counts.naps;
    all.late_ns_max = counts.late_ns;
    all.refused = counts.refused;
    mpix::give_counters(stats, size, all);
  });
}

MPIX_INTERPOSED int MPIX_Host_stream_launch_grid(struct MPIX_Host_stream_s* stream, int blocks,
                                                 void (*fn)(const MPIX_Dev_team*, void*), void* arg) {
  return guarded(Caller::on_world("MPIX_Host_stream_launch_grid"), [&] {
    if (!fn) throw Error(Fault::argument, "no function to call");
    if (blocks < 1) throw Error(Fault::argument, std::to_string(blocks) + " blocks");
    mpix::launch_grid(stream, static_cast<unsigned>(blocks), fn, arg);
  });
}
