// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Tasks of a channel: taken, handled, replied to.
#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "notify/bells.h"
#include "notify/channel.h"

namespace mpix {
namespace {

/// Of a ring in a row: the others' turn comes soon, and posters of this one learn in time that there is room.
constexpr std::uint32_t most_in_a_row = 16;
constexpr std::uint32_t rings_ahead = 8;
constexpr std::uint32_t looks_between_clocks = 16;
constexpr std::uint64_t words_cleared_each = std::uint64_t{1} << 30;

/// Of a counter that one thread at a time writes: no locked instruction, which would wait for the stores before it.
void add_one(std::atomic<std::uint64_t>& counter, std::memory_order order) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, order);
}

std::string text_of(const MPIX_Task& task) {
  return "task " + std::to_string(task.number) + " of lane " + std::to_string(task.lane) + ", of kind " +
         std::to_string(task.kind);
}

}  // namespace

/// What a caller needs the lock for; the service lets go of it then.
Channel::Visit::Visit(const Channel& channel) {
  ++channel.visitors_;
  hold_ = Lock(channel.serving_);
  --channel.visitors_;
}

std::string Channel::ring_name(std::uint32_t ring) const {
  return options_.is_queue ? "the queue" : "lane " + std::to_string(ring);
}

/// False: the next one is not there yet, or not whole.
bool Channel::take(std::uint32_t ring, MPIX_Task* task) {
  const std::uint64_t number = taken_[ring] + 1;
  const std::uint32_t tag = dev::task_tag(number);
  std::uint64_t data = 0;
  if (!line_arrived(dev::head_of(param_, ring, number), tag, &data)) return false;
  const dev::TaskHead head = dev::TaskHead::unpacked(data);
  if (head.words > dev::task_words || head.lane >= param_.lanes || (param_.rings > 1 && head.lane != ring)) {
    break_for_garbage(ring, number);
    return false;
  }
  std::fill(std::begin(task->word), std::end(task->word), 0);
  if (head.words > 0) {
    const Line* const words = dev::words_of(param_, ring, number);
    for (std::uint32_t i = 0; i < head.words; ++i) {
      std::uint64_t word = 0;
      if (!line_arrived(words + i, tag, &word)) return false;
      task->word[i] = word;
    }
  }
  taken_[ring] = number;
  if ((number & (words_cleared_each - 1)) < param_.depth) clear_words(ring, number);
  task->number = number;
  task->lane = head.lane;
  task->kind = head.kind;
  task->words = head.words;
  task->ticket = 0;
  if (head.reply)
    task->ticket = dev::Ticket{head.lane, ++wanted_[head.lane], static_cast<std::uint32_t>(param_.generation)}.packed();
  return true;
}

void Channel::break_for_garbage(std::uint32_t ring, std::uint64_t number) {
  break_for("task " + std::to_string(number) + " of " + ring_name(ring) +
            " is garbage: something has written over the words of the channel");
}

void Channel::clear_words(std::uint32_t ring, std::uint64_t number) {
  Line* const words = dev::words_of(param_, ring, number);
  for (std::uint32_t i = 0; i < dev::task_words; ++i) write_line(words + i, 0, 0);
}

void Channel::publish_taken(std::uint32_t ring_index) {
  store_release(dev::taken_of(param_, ring_index), taken_[ring_index]);
  if (is_on_host_) ring(kernels_bell(param_.host));
}

void Channel::handle(const MPIX_Task& task) {
  const HandlerOf handler = task.kind < handlers_.size() ? handlers_[task.kind] : HandlerOf{};
  if (!handler.call) return break_for_kind(task);
  handled_number_.store(task.number, std::memory_order_relaxed);
  handled_lane_.store(task.lane, std::memory_order_relaxed);
  add_one(handled_, std::memory_order_release);  // odd: in a handler
  try {
    const int failure = handler.call(handle_, &task, handler.arg);
    if (failure != 0) break_for_failure(task, failure);
  } catch (...) {
    break_for_exception(task);
  }
  add_one(handled_, std::memory_order_relaxed);
}

void Channel::break_for_kind(const MPIX_Task& task) { break_for("no handler for " + text_of(task)); }

void Channel::break_for_failure(const MPIX_Task& task, int failure) {
  break_for("the handler of " + text_of(task) + " has failed: " + explain_(failure));
}

/// The one under way.
void Channel::break_for_exception(const MPIX_Task& task) {
  try {
    throw;
  } catch (const std::exception& error) {
    break_for("the handler of " + text_of(task) + " has thrown: " + error.what());
  } catch (...) {
    break_for("the handler of " + text_of(task) + " has thrown what is no std::exception");
  }
}

/// Once through all rings, under serving_. True: there was something. `spins`: one of many in a row.
bool Channel::round(bool spins) {
  const Clock::time_point begin = armed_ && !spins ? Clock::now() : Clock::time_point{};
  const std::uint32_t most = std::clamp<std::uint32_t>(param_.depth / 4, 1, most_in_a_row);
  std::uint64_t found = 0;
  MPIX_Task task;
  for (std::uint32_t ring = 0; ring < param_.rings; ++ring) {
    std::uint32_t here = 0;
    // What a GPU has written is in no cache of this core: several fetches at a time.
    if (const std::uint32_t ahead = ring + rings_ahead; ahead < param_.rings) {
      const std::uint64_t number = taken_[ahead] + 1;
      __builtin_prefetch(dev::head_of(param_, ahead, number));
      if (tasks_have_words_) __builtin_prefetch(dev::words_of(param_, ahead, number));
    }
    while (here < most && take(ring, &task)) {
      ++here;
      handle(task);
      if (is_broken()) break;
    }
    if (here > 0) {
      tasks_have_words_ = task.words > 0;
      publish_taken(ring);
    }
    found += here;
    if (here > 0 && is_broken()) break;
  }
  if (found > 0) {
    counts_.tasks += found;
    counts_.chained += chain_ > 0 ? found : found - 1;
    chain_ += found;
    counts_.longest_chain = std::max(counts_.longest_chain, chain_);
  } else {
    chain_ = 0;
  }
  if (spins)
    note_spinning(found > 0);
  else
    note_look(begin, found > 0);
  return found > 0;
}

/// Rounds under one lock, until `looks` of them in a row have found nothing, or somebody else wants the lock. True:
/// there was something.
bool Channel::serve_rounds(std::uint32_t looks) {
  const Lock hold(serving_);
  serving_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  bool any = false;
  for (std::uint32_t in_vain = 0; in_vain < looks;) {
    if (round(looks > 1)) {
      any = true;
      in_vain = 0;
    } else if (++in_vain < looks) {
      relax();
    }
    if (visitors_.load(std::memory_order_relaxed) > 0 || stop_.load(std::memory_order_relaxed) || is_broken()) break;
  }
  serving_thread_.store(std::thread::id{}, std::memory_order_relaxed);
  return any;
}

/// One, for a caller that has other things to do.
bool Channel::serve_round() {
  const Lock hold(serving_);
  serving_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  const bool found = round(false);
  serving_thread_.store(std::thread::id{}, std::memory_order_relaxed);
  return found;
}

/// How long it was from the look before to this one, and, as what came meanwhile waits for the next, how long this
/// took.
void Channel::note_look(Clock::time_point begin, bool found) {
  if (!armed_ || begin == Clock::time_point{}) return;  // it was armed just now
  const auto note = [&](Clock::duration gap) {
    counts_.late_ns = std::max(counts_.late_ns, static_cast<std::uint64_t>(std::chrono::nanoseconds(gap).count()));
  };
  if (looked_ != Clock::time_point{}) note(begin - looked_);
  if (found) note(Clock::now() - begin);
  // On hosts it sleeps when there is nothing: kernels ring.
  looked_ = is_on_host_ && !found ? Clock::time_point{} : begin;
}

/// No clock in front of a task (two reads a round took 0.4 us of a task and its reply on an H200); one
/// behind it, and now and then between tasks: so what is noted is longer by a few looks.
void Channel::note_spinning(bool found) {
  if (!armed_ || (!found && ++looks_in_vain_ % looks_between_clocks != 0)) return;
  const auto now = Clock::now();
  if (looked_ != Clock::time_point{})
    counts_.late_ns =
        std::max(counts_.late_ns, static_cast<std::uint64_t>(std::chrono::nanoseconds(now - looked_).count()));
  looked_ = now;
}

void Channel::set_handler(std::uint32_t kind, MPIX_Task_function* handler, void* arg) {
  if (kind >= dev::most_kinds) throw Error(Fault::argument, "kind " + std::to_string(kind) + " is not below 65536");
  if (armed_) throw Error(Fault::other, "the channel is armed");
  if (is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
  const Visit visit(*this);
  if (kind >= handlers_.size()) handlers_.resize(std::size_t{kind} + 1);
  handlers_[kind] = HandlerOf{handler, arg};
}

/// The program may poll instead.
bool Channel::serves_by_handlers() {
  if (options_.service != TaskService::caller) return true;
  const Visit visit(*this);
  return std::any_of(handlers_.begin(), handlers_.end(), [](const HandlerOf& one) { return one.call != nullptr; });
}

bool Channel::poll(MPIX_Task* task) {
  if (options_.service != TaskService::caller)
    throw Error(Fault::other, "a thread takes the tasks of this channel (mpix_service=caller: the program does)");
  if (is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
  require_whole();
  const std::lock_guard<std::mutex> hold(serving_);
  for (std::uint32_t looked = 0; looked < param_.rings; ++looked) {
    const std::uint32_t ring = next_polled_;
    next_polled_ = ring + 1 < param_.rings ? ring + 1 : 0;
    if (!take(ring, task)) continue;
    publish_taken(ring);
    ++counts_.tasks;
    handled_.fetch_add(2, std::memory_order_release);  // as a handler that has returned
    if (chain_++ > 0) ++counts_.chained;
    counts_.longest_chain = std::max(counts_.longest_chain, chain_);
    return true;
  }
  chain_ = 0;
  require_whole();
  return false;
}

bool Channel::serve() {
  if (options_.service != TaskService::caller)
    throw Error(Fault::other, "a thread serves this channel (mpix_service=caller: the program does)");
  if (is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
  require_whole();
  const bool moved = serve_round();
  require_whole();
  return moved;
}

void Channel::reply(const MPIX_Task& task, std::uint64_t value) {
  require_whole();
  if (task.ticket == 0) throw Error(Fault::argument, "nobody waits for a reply to this task");
  const std::uint32_t lane = dev::lane_of_ticket(task.ticket);
  if (lane >= param_.lanes || task.ticket >> 56 != (param_.generation & 0xff))
    throw Error(Fault::argument, "the task is of another channel");
  // No atomic operation, which would wait for the stores before it, on their way to lines that a GPU polls.
  std::atomic<std::uint64_t>& last = replied_[std::size_t{lane} * param_.depth + dev::place_in(param_, task.ticket)];
  const std::uint64_t before = last.load(std::memory_order_relaxed);
  const std::uint64_t number = dev::unpacked_ticket(task.ticket, before).number;
  if (number <= before) throw Error(Fault::argument, "the task has its reply already");
  last.store(number, std::memory_order_relaxed);
  write_line_release(dev::reply_of(param_, lane, number), value, dev::task_tag(number));
  if (is_on_host_) ring(kernels_bell(param_.host));
}

/// All so far: a place is written once in each lap, with numbers that go on, and has its last one.
std::uint64_t Channel::replies() const {
  std::uint64_t all = 0;
  for (const std::atomic<std::uint64_t>& last : replied_) {
    const std::uint64_t number = last.load(std::memory_order_relaxed);
    all += (number + param_.depth - 1) / param_.depth;
  }
  return all;
}

}  // namespace mpix
