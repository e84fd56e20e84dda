// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "channel.h"
#include "soak_plan.h"
#include "support/channel.h"
#include "support/streams.h"
#include "table.h"

/// All that a channel offers, at random, for as long as is asked: on a GPU that nobody has tried the library on, too.
/// Tasks are whole, come once, and in the order of their poster; data that were written in front of a post, a flag or a
/// reply are there behind it; replies reach the block that asked. Every word is checked.
namespace notify::soak {

/// How the channel of a round is made, and the grid.
struct Setting {
  int blocks, threads;
  bool is_queue, serves;  ///< the program does
  std::string tasks, service, layout, fence, place, depth;

  static Setting random(std::uint64_t seed) {
    std::uint64_t next = seed;
    const auto draw = [&next](std::size_t many) { return (next = mix(next)) % many; };
    const auto one_of = [&](std::initializer_list<const char*> of) { return std::string(of.begin()[draw(of.size())]); };
    const int on_gpu[] = {1, 2, 7, 27, 64, 132, 300}, on_host[] = {1, 2, 3, 5, 8, 13, 27};
    const int threads[] = {32, 64, 96, 256};
    Setting s;
    s.blocks = (support::ranks_are_blocks ? on_gpu : on_host)[draw(7)];
    s.threads = threads[draw(4)];
    s.tasks = one_of({"lanes", "queue"});
    s.service = one_of({"own", "thread", "caller"});
    s.layout = one_of({"padded", "dense"});
    s.fence = one_of({"block", "thread"});
    s.place = one_of({"host", "device"});
    s.depth = one_of({"1", "2", "4", "32", "256"});
    s.is_queue = s.tasks == "queue";
    s.serves = s.service == "caller";
    return s;
  }
  std::string text() const {
    return std::to_string(blocks) + " blocks of " + std::to_string(threads) + ", mpix_tasks=" + tasks +
           " mpix_depth=" + depth + " mpix_service=" + service + " mpix_layout=" + layout + " mpix_fence=" + fence +
           " mpix_words=" + place;
  }
};

/// Of all rounds.
struct Totals {
  std::uint64_t seed = 0, rounds = 0, checked = 0;
  std::atomic<std::uint64_t> wrong{0};
  std::string now;  ///< the round, for reports
  Clock::time_point begin = Clock::now();

  /// The first few are told.
  void add_wrong(const std::string& what, std::uint64_t many = 1) {
    if (many > 0 && wrong.fetch_add(many) < 20) std::fprintf(stderr, "%s: %s\n", now.c_str(), what.c_str());
  }
  void print() const {
    std::printf("soak: %llu operations checked in %.1f s, %llu rounds, seed %llu: %llu wrong\n",
                static_cast<unsigned long long>(checked), since(begin) * 1e-6, static_cast<unsigned long long>(rounds),
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(wrong));
    std::fflush(stdout);
  }
};

class Round {
 public:
  Round(const Setting& setting, const Plan& plan, const Data& data, std::uint64_t* shared, Totals& totals)
      : setting_(setting),
        plan_(plan),
        data_(data),
        shared_(shared),
        totals_(totals),
        lanes_(static_cast<std::size_t>(setting.blocks)),
        channel_(setting.blocks, setting.blocks + 1,
                 {{"mpix_tasks", setting.tasks.c_str()},
                  {"mpix_depth", setting.depth.c_str()},
                  {"mpix_service", setting.service.c_str()},
                  {"mpix_layout", setting.layout.c_str()},
                  {"mpix_fence", setting.fence.c_str()},
                  {"mpix_words", setting.place.c_str()}}) {
    for (unsigned kind = 0; kind < kinds; ++kind) CHECK_MPI(MPIX_Channel_set_handler(channel_, kind, take, this));
    for (std::uint32_t block = 0; block < lanes_.size(); ++block) {
      lanes_[block] = Lane{next_task(block, 0), next_turn(block, 0), 0, 0};
      for (std::uint32_t op = 0; op < plan_.operations; ++op) {
        tasks_ += plan_.is_task(block, op) ? 1 : 0;
        turns_ += plan_.act(block, op) == Act::turn ? 1 : 0;
      }
    }
  }

  void run() {
    const std::size_t blocks = lanes_.size();
    auto* const found = static_cast<Found*>(support::allocate_on_device(blocks * sizeof(Found)));
    mpix::store_release(shared_, 0);
    CHECK_MPI(MPIX_Channel_arm(channel_));
    support::launch_blocks(Poster{channel_.device(), plan_, data_, shared_, found}, setting_.blocks, setting_.threads);
    serve();
    support::synchronize();
    demand(MPIX_Channel_disarm(channel_), "MPIX_Channel_disarm");
    std::vector<Found> by_block(blocks);
    support::to_host(by_block.data(), found, blocks * sizeof(Found));
    support::release_on_device(found);
    for (std::size_t block = 0; block < blocks; ++block) {
      totals_.checked += by_block[block].checked;
      totals_.add_wrong("block " + std::to_string(block) + " found wrong words or results", by_block[block].wrong);
    }
    MPIX_Channel_stats stats{};
    demand(MPIX_Channel_get_stats(channel_, &stats, sizeof stats), "MPIX_Channel_get_stats");
    if (handled_ != tasks_ || stats.tasks != tasks_) totals_.add_wrong("tasks were lost, or came twice");
    if (stats.refused != 0) totals_.add_wrong("flags were refused");
    totals_.checked += tasks_ + turns_;
    ++totals_.rounds;
  }

 private:
  struct Lane {
    std::uint32_t next_task, next_turn;
    std::uint64_t tasks, flag;
  };
  struct Asked {
    MPIX_Task task;
    std::uint32_t op;
  };

  std::uint32_t next_task(std::uint32_t block, std::uint32_t from) const {
    while (from < plan_.operations && !plan_.is_task(block, from)) ++from;
    return from;
  }
  std::uint32_t next_turn(std::uint32_t block, std::uint32_t from) const {
    while (from < plan_.operations && plan_.act(block, from) != Act::turn) ++from;
    return from;
  }

  void expect(bool holds, const char* what, std::uint32_t block, std::uint32_t op) {
    if (!holds)
      totals_.add_wrong("block " + std::to_string(block) + ", operation " + std::to_string(op) + ": wrong " + what);
  }
  void check_data(std::uint32_t block, std::uint32_t op) {
    const std::uint64_t* const from = data_.up(block, op);
    for (std::uint32_t at = 0; at < data_words; ++at)
      expect(mpix::load_once(from + at) == plan_.up(block, op, at), "data", block, op);
  }
  void give_data(std::uint32_t block, std::uint32_t op) {
    std::uint64_t* const to = data_.down(block, op);
    for (std::uint32_t at = 0; at < data_words; ++at) to[at] = plan_.down(block, op, at);
  }

  // ---- tasks: by one thread at a time

  static int take(MPIX_Channel, const MPIX_Task* task, void* round) {
    static_cast<Round*>(round)->take(*task);
    ++static_cast<Round*>(round)->handled_;
    return MPI_SUCCESS;
  }
  void take(const MPIX_Task& task) {
    const std::uint32_t block = task.lane;
    ++numbered_;
    if (block >= lanes_.size() || lanes_[block].next_task >= plan_.operations)
      return totals_.add_wrong("a task too many, of lane " + std::to_string(block));
    Lane& lane = lanes_[block];
    const std::uint32_t op = lane.next_task;
    lane.next_task = next_task(block, op + 1);
    ++lane.tasks;
    expect(task.number == (setting_.is_queue ? numbered_ : lane.tasks), "number", block, op);
    expect(task.kind == plan_.kind(block, op), "kind", block, op);
    expect(task.words == plan_.words(block, op), "number of words", block, op);
    for (std::uint32_t at = 0; at < most_words; ++at)
      expect(task.word[at] == (at < plan_.words(block, op) ? plan_.word(block, op, at) : 0), "word", block, op);
    expect((task.ticket != 0) == plan_.wants_reply(block, op), "ticket", block, op);
    if (plan_.act(block, op) == Act::post) check_data(block, op);
    if (task.ticket == 0) return;
    if (!plan_.is_answered_later(block, op)) return answer(Asked{task, op});
    const std::lock_guard<std::mutex> hold(later_mutex_);
    later_.push_back(Asked{task, op});
  }
  void answer(const Asked& asked) {
    give_data(asked.task.lane, asked.op);
    const int replied = MPIX_Channel_reply(channel_, &asked.task, plan_.reply(asked.task.lane, asked.op));
    expect(replied == MPI_SUCCESS, "reply", asked.task.lane, asked.op);
  }

  // ---- what this thread does, until the blocks need nothing any more

  void serve() {
    std::uint64_t turns = 0, shared = 0, handled = 0;
    auto moved_at = Clock::now();
    // The end of a block is a turn, too: until then replies may be missing.
    while (turns < turns_ + lanes_.size() || handled_ < tasks_) {
      bool moved = answer_one();
      if (setting_.serves) demand(MPIX_Channel_serve(channel_, nullptr), "MPIX_Channel_serve");
      if (shared < plan_.operations) {
        mpix::store_release(shared_, ++shared);
        demand(MPIX_Channel_flag_set(channel_, setting_.blocks, shared), "MPIX_Channel_flag_set");
        moved = true;
      }
      for (std::uint32_t block = 0; block < lanes_.size(); ++block)
        if (take_turn(block)) ++turns, moved = true;
      if (moved || handled != handled_) {
        handled = handled_;
        moved_at = Clock::now();
        continue;
      }
      if (Clock::now() - moved_at > patience)
        give_up("nothing moves: " + std::to_string(handled_) + " of " + std::to_string(tasks_) + " tasks, " +
                std::to_string(turns) + " of " + std::to_string(turns_ + lanes_.size()) + " turns and ends");
      std::this_thread::yield();
    }
  }

  bool take_turn(std::uint32_t block) {
    Lane& lane = lanes_[block];
    const std::uint32_t op = lane.next_turn;
    if (lane.flag > plan_.operations) return false;
    unsigned long long value = 0;
    demand(MPIX_Channel_flag_get(channel_, static_cast<int>(block), &value), "MPIX_Channel_flag_get");
    if (value == lane.flag) return false;
    lane.flag = value;
    expect(value == std::uint64_t{op} + 1, "flag", block, op);
    if (op == plan_.operations) return true;
    lane.next_turn = next_turn(block, op + 1);
    check_data(block, op);
    give_data(block, op);
    demand(MPIX_Channel_flag_set(channel_, static_cast<int>(block), std::uint64_t{op} + 1), "MPIX_Channel_flag_set");
    return true;
  }

  /// Any of those that wait for it.
  bool answer_one() {
    Asked asked;
    {
      const std::lock_guard<std::mutex> hold(later_mutex_);
      if (later_.empty()) return false;
      std::swap(later_[mix(numbered_later_++) % later_.size()], later_.back());
      asked = later_.back();
      later_.pop_back();
    }
    answer(asked);
    return true;
  }

  void demand(int result, const char* call) {
    if (result != MPI_SUCCESS) give_up(std::string(call) + ": " + support::mpi_error_text(result));
  }
  /// The blocks may wait for ever.
  [[noreturn]] void give_up(const std::string& why) {
    totals_.add_wrong(why);
    totals_.print();
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
  }

  static constexpr std::chrono::seconds patience{20};

  const Setting setting_;
  const Plan plan_;
  const Data data_;
  std::uint64_t* const shared_;
  Totals& totals_;
  std::vector<Lane> lanes_;
  std::uint64_t tasks_ = 0, turns_ = 0;
  std::uint64_t numbered_ = 0, numbered_later_ = 0;
  std::atomic<std::uint64_t> handled_{0};
  std::mutex later_mutex_;
  std::vector<Asked> later_;
  Channel channel_;  ///< first to end: its thread calls take()
};

/// Returns whether nothing was wrong. All processes do the same, each for itself.
inline bool run(int seconds, std::uint64_t seed) {
  const int most_blocks = 300;
  const std::uint32_t most_operations = support::ranks_are_blocks ? 20000 : 600;  ///< of a round
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  auto* const data = static_cast<std::uint64_t*>(
      support::allocate_pinned(Data::bytes(1, most_operations + static_cast<std::size_t>(most_blocks))));
  auto* const shared = static_cast<std::uint64_t*>(support::allocate_pinned(128));
  Totals totals;
  totals.seed = seed;
  std::printf("soak: %d s, seed %llu\n", seconds, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  do {
    const std::uint64_t own = mix(seed ^ mix(totals.rounds));
    const Setting setting = Setting::random(own);
    const auto each =
        static_cast<std::uint32_t>(1 + mix(own) % (most_operations / static_cast<unsigned>(setting.blocks)));
    totals.now = "round " + std::to_string(totals.rounds) + ", " + setting.text();
    Round(setting, Plan{own, each}, Data{data, each}, shared, totals).run();
  } while (since(totals.begin) < seconds * 1e6);
  totals.print();
  support::release_pinned(shared);
  support::release_pinned(data);
  return totals.wrong == 0;
}

}  // namespace notify::soak
