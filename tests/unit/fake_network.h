// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "net/network.h"
#include "thread_ranks.h"

/// A network among the ranks of ThreadRanks: it stores into their memory, one operation at a time, in whatever order
/// the rules of a transfer allow, and only while somebody calls progress(). It counts what is queued, and can fail.
/// One that keeps words whole has inlets, too, and ends the test when a message comes that finds no open place. It
/// writes them in any order, and now and then the last byte of one later than the others.
class FakeNetwork final : public mpix::Network {
 public:
  FakeNetwork(mpix::Capacity capacity, unsigned seed, bool keeps_words_whole, std::size_t least_device_write = SIZE_MAX)
      : state_(std::make_shared<State>()),
        capacity_(capacity),
        keeps_words_whole_(keeps_words_whole),
        least_device_write_(least_device_write) {
    state_->random.seed(seed);
  }

  /// Transfers from here on to who exposes from this address fail when they are started.
  void fail(mpix::Connection peer) { state_->failing = peer + 1; }
  /// Nothing connects to this one from here on.
  void refuse_to_connect(const mpix::NetworkAddress& peer) {
    std::memcpy(&unconnected_, peer.bytes, sizeof unconnected_);
  }
  /// After `more` others, transfers cannot be queued, for this reason.
  void refuse(long more, mpix::Fault reason) {
    state_->refusal = reason;
    state_->until_refused = more;
  }
  void accept() { state_->until_refused = never; }
  /// Transfers cannot be queued, as there is no memory.
  void run_out_of_memory(bool out = true) { state_->out_of_memory = out; }
  /// The next look throws, as one that makes room for others may.
  void fail_once_in_progress() { state_->progress_fails = true; }
  long refused() const { return state_->refused; }
  /// Places of inlets cannot be opened again.
  void fail_inlets() { state_->inlets_fail = true; }
  /// Nothing comes from anybody any more.
  void end_receiving() { state_->receives = false; }
  /// Memory that peers may write into: so many pieces.
  long exposed() const { return state_->exposed; }
  /// Whether peers give a sign of life.
  void let_peers_live(bool live) { state_->peers_live = live; }
  std::size_t queued_operations() const {
    std::lock_guard<std::mutex> hold(state_->mutex);
    return state_->operations;
  }
  /// What is at the peer is not told to be, and its sources are still read, until this is over.
  void hold_back_ends(bool held) { state_->holding = held; }
  /// Writes of so many bytes come behind their signal: not before the test ends.
  void leave_out_writes_of(std::size_t bytes) { state_->left_out = bytes; }
  /// Posts wait until data for the same peer carry them.
  void hold_back_posts() { state_->holds_posts = true; }
  std::size_t most_operations() const { return state_->most_operations; }
  std::size_t most_transfers() const { return state_->most_transfers; }

  std::string name() const override { return "fake"; }
  mpix::NetworkAddress address() const override {
    mpix::NetworkAddress address;
    const std::uint64_t own = reinterpret_cast<std::uintptr_t>(this);
    address.length = sizeof own;
    std::memcpy(address.bytes, &own, sizeof own);
    return address;
  }
  mpix::Connection connect(const mpix::NetworkAddress& peer) override {
    mpix::Connection connection = 0;
    std::memcpy(&connection, peer.bytes, sizeof connection);
    if (connection == unconnected_) throw mpix::Error(mpix::Fault::unsupported, "no route");
    return connection;
  }
  std::shared_ptr<const mpix::Registration> expose(void* base, std::size_t) override {
    return std::make_shared<Memory>(base, state_);
  }
  std::shared_ptr<const mpix::Registration> register_source(const void* base, std::size_t bytes) override {
    sources_.push_back({static_cast<const char*>(base), bytes});
    return nullptr;
  }
  /// The memory that transfers are to read from.
  struct Source {
    const char* base;
    std::size_t bytes;
  };
  const std::vector<Source>& sources() const { return sources_; }
  std::size_t least_device_write() const override { return least_device_write_; }
  /// Memory that no CPU reaches: smaller writes from there, and into it, end the test.
  static void hide(const void* base, std::size_t bytes) {
    std::lock_guard<std::mutex> hold(hidden().mutex);
    hidden().ranges.push_back({static_cast<const char*>(base), bytes});
  }
  static void hide_nothing() {
    std::lock_guard<std::mutex> hold(hidden().mutex);
    hidden().ranges.clear();
  }
  mpix::Capacity capacity() const override { return capacity_; }
  bool keeps_words_whole() const override { return keeps_words_whole_; }
  std::unique_ptr<mpix::Inlet> open_inlet(char* base, std::size_t places, std::size_t bytes) override {
    if (!keeps_words_whole_) return nullptr;
    return std::make_unique<FakeInlet>(base, places, bytes, state_);
  }

  std::unique_ptr<mpix::Transfer> queue(mpix::Connection peer, const mpix::NetworkWrite* writes, std::size_t count,
                                        const mpix::NetworkSignal* signal) override {
    for (std::size_t i = 0; i < count; ++i)
      if (writes[i].bytes < least_device_write_ &&
          (is_hidden(static_cast<const char*>(writes[i].source)) ||
           is_hidden(reinterpret_cast<const char*>(writes[i].memory.base + writes[i].offset)))) {
        std::fprintf(stderr, "a CPU would copy %zu bytes of memory that it cannot reach\n", writes[i].bytes);
        std::abort();
      }
    auto work = std::make_shared<Work>();
    work->peer = peer;
    for (std::size_t i = 0; i < count; ++i)
      if (writes[i].bytes != state_->left_out) work->writes.push_back(writes[i]);
    work->by_words = keeps_words_whole_;
    if (signal) work->signal = std::make_unique<mpix::NetworkSignal>(*signal);
    std::lock_guard<std::mutex> hold(state_->mutex);
    if (state_->out_of_memory) throw std::bad_alloc();
    if (state_->until_refused-- <= 0) {
      ++state_->refused;
      throw mpix::Error(state_->refusal, "nobody is there");
    }
    state_->operations += work->size();
    ++state_->transfers;
    state_->most_operations = std::max<std::size_t>(state_->most_operations, state_->operations);
    state_->most_transfers = std::max<std::size_t>(state_->most_transfers, state_->transfers);
    return std::make_unique<FakeTransfer>(state_, work);
  }

  std::string probe(mpix::Connection, const mpix::RemoteMemory&, std::uint64_t) override {
    return state_->peers_live ? "" : "no sign of life";
  }

  bool is_moving() const override {
    std::lock_guard<std::mutex> hold(state_->mutex);
    return !state_->started.empty();
  }

  std::string failure() override { return state_->receives ? "" : "nothing comes any more"; }

  void progress() override {
    if (state_->progress_fails.exchange(false)) throw std::bad_alloc();
    std::lock_guard<std::mutex> hold(state_->mutex);
    if (state_->started.empty()) return;
    const std::size_t at = state_->random() % state_->started.size();
    Work& work = *state_->started[at];
    const bool more = work.done < work.size() && work.step(state_->random);
    if (state_->holding) return;
    if (work.done >= work.writes.size()) work.delivered = true;
    if (more) return;
    state_->remove(work);
    work.finished = true;
    state_->started.erase(state_->started.begin() + static_cast<std::ptrdiff_t>(at));
  }

 private:
  struct State;

  struct Memory final : mpix::Registration {
    Memory(void* p, std::shared_ptr<State> its_state)
        : base(reinterpret_cast<std::uintptr_t>(p)), state(std::move(its_state)) {
      ++state->exposed;
    }
    ~Memory() override { --state->exposed; }
    mpix::RemoteMemory remote() const override { return {1, base}; }
    const std::uint64_t base;
    const std::shared_ptr<State> state;
  };

  /// Of all ranks, which are one process; by name.
  class Places {
   public:
    std::uint64_t add(char* base, std::size_t count, std::size_t bytes) {
      std::lock_guard<std::mutex> hold(mutex_);
      const std::uint64_t first = places_.size() + 1;
      for (std::size_t i = 0; i < count; ++i) places_.push_back({base + i * bytes, false});
      return first;
    }
    void open(std::uint64_t name) {
      std::lock_guard<std::mutex> hold(mutex_);
      Place& place = places_[name - 1];
      if (place.open) end_test("a place was opened that is open");
      place.open = true;
    }
    /// False: it is not open.
    bool close(std::uint64_t name) {
      std::lock_guard<std::mutex> hold(mutex_);
      return std::exchange(places_[name - 1].open, false);
    }
    void take(std::uint64_t name, const char* memory) {
      if (!close(name)) end_test("a message came for a place that is not open");
      std::lock_guard<std::mutex> hold(mutex_);
      if (places_[name - 1].memory != memory) end_test("a message came for another place");
    }

   private:
    struct Place {
      char* memory;
      bool open;
    };
    [[noreturn]] static void end_test(const char* why) {
      std::fprintf(stderr, "fake network: %s\n", why);
      std::abort();
    }
    std::mutex mutex_;
    std::vector<Place> places_;
  };
  static Places& places() {
    static Places all;
    return all;
  }

  class FakeInlet final : public mpix::Inlet {
   public:
    FakeInlet(char* base, std::size_t count, std::size_t bytes, std::shared_ptr<State> state)
        : first_(places().add(base, count, bytes)), count_(count), state_(std::move(state)) {}
    std::uint64_t name() const override { return first_; }
    bool open(std::size_t place) override {
      if (state_->inlets_fail) throw mpix::Error(mpix::Fault::other, "the inlet is stuck");
      places().open(first_ + place);
      return true;
    }
    bool close() override {
      bool all = true;
      for (std::size_t i = 0; i < count_; ++i) all = places().close(first_ + i) && all;
      return all;
    }

   private:
    const std::uint64_t first_;
    const std::size_t count_;
    const std::shared_ptr<State> state_;
  };

  struct Work {
    mpix::Connection peer = 0;
    std::vector<mpix::NetworkWrite> writes;
    std::unique_ptr<mpix::NetworkSignal> signal;
    std::size_t done = 0;
    bool by_words = false;
    static constexpr std::size_t none = SIZE_MAX, largest_by_words = 128 * 1024;
    std::vector<std::size_t> order;  ///< words of the write at hand that are still to be written
    std::size_t torn = none;         ///< its last byte is
    std::atomic<bool> started{false}, delivered{false}, finished{false}, failed{false};

    std::size_t size() const { return writes.size() + (signal ? 1 : 0); }
    static char* place(const mpix::RemoteMemory& memory, std::uint64_t offset) {
      return reinterpret_cast<char*>(memory.base + offset);
    }
    /// False: all of them.
    bool write_some_words(const mpix::NetworkWrite& write, std::mt19937& random) {
      if (order.empty() && torn == none) {
        if (write.place != 0) places().take(write.place, place(write.memory, write.offset));
        order.resize(write.bytes / 8);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), random);
      }
      const auto word_of = [&](std::size_t i) {
        std::uint64_t word;
        std::memcpy(&word, static_cast<const char*>(write.source) + 8 * i, 8);
        return word;
      };
      auto* const to = reinterpret_cast<std::uint64_t*>(place(write.memory, write.offset));
      if (torn != none) __atomic_store_n(to + torn, word_of(torn), __ATOMIC_RELEASE);
      torn = none;
      for (std::size_t some = random() % (1 + write.bytes / 8); some > 0 && !order.empty(); --some) {
        const std::size_t i = order.back();
        order.pop_back();
        if (random() % 4 == 0) {
          torn = i;
          constexpr std::uint64_t last_byte = std::uint64_t{0xff} << 56;
          const std::uint64_t before = __atomic_load_n(to + i, __ATOMIC_RELAXED);
          __atomic_store_n(to + i, (word_of(i) & ~last_byte) | (before & last_byte), __ATOMIC_RELEASE);
          return true;
        }
        __atomic_store_n(to + i, word_of(i), __ATOMIC_RELEASE);
      }
      return !order.empty();
    }
    /// In words, as a NIC writes, and in any order: a reader may poll them.
    static void copy(char* to, const char* from, std::size_t bytes, std::mt19937& random) {
      if (reinterpret_cast<std::uintptr_t>(to) % 8 != 0) {
        std::memcpy(to, from, bytes);
        return;
      }
      const std::size_t words = bytes / 8, begin = words > 0 ? random() % words : 0;
      for (std::size_t i = 0; i < words; ++i) {
        const std::size_t word = (begin + i) % words;
        std::uint64_t value;
        std::memcpy(&value, from + 8 * word, 8);
        __atomic_store_n(reinterpret_cast<std::uint64_t*>(to) + word, value, __ATOMIC_RELEASE);
      }
      std::memcpy(to + 8 * words, from + 8 * words, bytes % 8);
    }
    /// False: that was the last.
    bool step(std::mt19937& random) {
      if (done < writes.size()) {
        if (order.empty() && torn == none)
          std::swap(writes[done], writes[done + random() % (writes.size() - done)]);  // they have no order
        const mpix::NetworkWrite& write = writes[done];
        // Nobody reads what is larger before its signal.
        if (by_words && write.offset % 8 == 0 && write.bytes % 8 == 0 && write.bytes <= largest_by_words) {
          if (write_some_words(write, random)) return true;
        } else {
          copy(place(write.memory, write.offset), static_cast<const char*>(write.source), write.bytes, random);
        }
      } else if (signal) {
        auto* word = reinterpret_cast<std::uint64_t*>(place(signal->memory, signal->offset));
        if (signal->kind == mpix::NetworkSignal::Kind::add)
          __atomic_fetch_add(word, signal->value, __ATOMIC_RELEASE);
        else
          __atomic_store_n(word, signal->value, __ATOMIC_RELEASE);
      }
      return ++done < size();
    }
  };

  static constexpr long never = 1L << 60;

  struct State {
    void remove(const Work& work) {
      operations -= work.size();
      --transfers;
    }
    std::mutex mutex;
    std::mt19937 random;
    std::vector<std::shared_ptr<Work>> started, held;
    std::size_t operations = 0, transfers = 0;
    std::atomic<std::size_t> most_operations{0}, most_transfers{0};
    std::atomic<mpix::Connection> failing{0};
    std::atomic<bool> peers_live{true}, inlets_fail{false}, out_of_memory{false}, progress_fails{false};
    std::atomic<long> until_refused{never}, refused{0}, exposed{0};
    std::atomic<mpix::Fault> refusal{mpix::Fault::other};
    std::atomic<std::size_t> left_out{SIZE_MAX};
    std::atomic<bool> holding{false}, receives{true}, holds_posts{false};
  };

  class FakeTransfer final : public mpix::Transfer {
   public:
    FakeTransfer(std::shared_ptr<State> state, std::shared_ptr<Work> work)
        : state_(std::move(state)), work_(std::move(work)) {}
    void start() override {
      work_->started = true;
      if (state_->failing == work_->peer + 1) {
        work_->failed = true;
        return;
      }
      std::lock_guard<std::mutex> hold(state_->mutex);
      if (state_->holds_posts && work_->writes.empty()) {
        state_->held.push_back(work_);
        return;
      }
      const auto carried = std::stable_partition(state_->held.begin(), state_->held.end(),
                                                 [this](const auto& held) { return held->peer != work_->peer; });
      state_->started.insert(state_->started.end(), carried, state_->held.end());
      state_->held.erase(carried, state_->held.end());
      state_->started.push_back(work_);
    }
    bool delivered() override { return work_->delivered; }
    bool finished() override { return work_->finished; }
    std::string failure() override { return work_->failed ? "the cable is cut" : ""; }
    bool cancel() override {
      if (work_->started) return work_->finished;
      std::lock_guard<std::mutex> hold(state_->mutex);
      state_->remove(*work_);
      return true;
    }

   private:
    const std::shared_ptr<State> state_;
    const std::shared_ptr<Work> work_;
  };

  const std::shared_ptr<State> state_;
  const mpix::Capacity capacity_;
  const bool keeps_words_whole_;
  struct Hidden {
    std::mutex mutex;
    std::vector<Source> ranges;
  };
  static Hidden& hidden() {
    static Hidden all;
    return all;
  }
  static bool is_hidden(const char* p) {
    std::lock_guard<std::mutex> hold(hidden().mutex);
    return std::any_of(hidden().ranges.begin(), hidden().ranges.end(),
                       [p](const Source& one) { return p >= one.base && p < one.base + one.bytes; });
  }

  const std::size_t least_device_write_;
  std::vector<Source> sources_;
  mpix::Connection unconnected_ = 0;
};
