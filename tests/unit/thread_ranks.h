// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/slowdown.h"
#include "team/bootstrap.h"

#define EXPECT(...) ThreadRanks::expect((__VA_ARGS__), #__VA_ARGS__)

/// Ranks as threads of one process: the engine without MPI, where ThreadSanitizer sees both sides.
class ThreadRanks {
 public:
  /// Nodes of `node_size` ranks; 0: one node.
  explicit ThreadRanks(int size, int node_size = 0) : size_(size), node_size_(node_size ? node_size : size) {}

  /// Run body(bootstrap) on every rank; throws what one of them threw, or failed to EXPECT.
  void run(const std::function<void(mpix::Bootstrap&)>& body) {
    unmet_expectations();
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank)
      threads.emplace_back([&, rank] {
        Rank self(*this, rank);
        try {
          body(self);
        } catch (...) {
          failures[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
    const std::string unmet = unmet_expectations();
    if (!unmet.empty()) throw std::runtime_error("expected: " + unmet);
  }

  /// Bytes that all ranks together have told others so far.
  std::size_t exchanged() {
    std::lock_guard<std::mutex> hold(mutex_);
    return exchanged_;
  }

  /// Catch's assertions are for one thread: this one is for those of run().
  static void expect(bool holds, const char* text) {
    if (holds) return;
    std::lock_guard<std::mutex> hold(unmet_mutex());
    unmet_text() += std::string(unmet_text().empty() ? "" : "; ") + text;
  }

 private:
  static std::mutex& unmet_mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::string& unmet_text() {
    static std::string text;
    return text;
  }
  static std::string unmet_expectations() {
    std::lock_guard<std::mutex> hold(unmet_mutex());
    return std::exchange(unmet_text(), std::string());
  }

  class Rank final : public mpix::Bootstrap {
   public:
    Rank(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return all_.size_; }
    int node_of(int rank) const override { return rank / all_.node_size_; }
    void allgather(const void* mine, std::size_t bytes, void* result) override {
      all_.gather(rank_, mine, bytes, result, 0, all_.size_);
    }
    void node_allgather(const void* mine, std::size_t bytes, void* result) override {
      const int first = node_of(rank_) * all_.node_size_;
      all_.gather(rank_, mine, bytes, result, first, std::min(all_.node_size_, all_.size_ - first));
    }

   private:
    ThreadRanks& all_;
    int rank_;
  };

  /// Where some ranks meet, by the first of them and their number.
  struct Board {
    std::condition_variable changed;
    std::vector<char> bytes;
    int present = 0;
    unsigned turn = 0;
  };

  void gather(int rank, const void* mine, std::size_t bytes, void* result, int first, int count) {
    std::unique_lock<std::mutex> hold(mutex_);
    Board& board = boards_[{first, count}];
    const std::size_t n = static_cast<std::size_t>(count);
    board.bytes.resize(bytes * n);
    std::memcpy(board.bytes.data() + bytes * static_cast<std::size_t>(rank - first), mine, bytes);
    exchanged_ += bytes;
    meet(board, count, hold);
    std::memcpy(result, board.bytes.data(), bytes * n);
    meet(board, count, hold);
  }

  static void meet(Board& board, int count, std::unique_lock<std::mutex>& hold) {
    const unsigned turn = board.turn;
    if (++board.present == count) {
      board.present = 0;
      ++board.turn;
      board.changed.notify_all();
    } else {
      board.changed.wait(hold, [&] { return board.turn != turn; });
    }
  }

  const int size_;
  const int node_size_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, Board> boards_;
  std::size_t exchanged_ = 0;
};
