// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/messages/engine.h"

#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "base/block_pool.h"
#include "base/log.h"

namespace mpix {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the end of a window waits for large data that are on their way into it. Only after a failure are there any.
constexpr auto patience = std::chrono::seconds(10);

}  // namespace

/// A transfer, for its user.
class MessageEngine::MessageTransfer final : public Transfer, public InBlock {
 public:
  MessageTransfer(std::shared_ptr<MessageEngine> engine, MessageBuffer* outgoing)
      : engine_(std::move(engine)), outgoing_(outgoing) {}
  ~MessageTransfer() override { engine_->pool_.let_go(outgoing_); }
  void start() override {
    started_ = true;
    engine_->start(*outgoing_);
  }
  bool delivered() override { return outgoing_->reads.load(std::memory_order_acquire) == 0; }
  bool finished() override { return outgoing_->messages.load(std::memory_order_acquire) == 0; }
  std::string failure() override { return engine_->failure_of(*outgoing_); }
  bool cancel() override { return !started_ || finished(); }

 private:
  const std::shared_ptr<MessageEngine> engine_;
  MessageBuffer* const outgoing_;
  bool started_ = false;
};

class MessageEngine::ExposedRegistration final : public Registration {
 public:
  ExposedRegistration(std::shared_ptr<MessageEngine> engine, std::uint64_t key)
      : engine_(std::move(engine)), key_(key) {}
  ~ExposedRegistration() override { engine_->hide(key_); }
  RemoteMemory remote() const override { return {key_, 0}; }

 private:
  const std::shared_ptr<MessageEngine> engine_;
  const std::uint64_t key_;
};

MessageEngine::MessageEngine(std::shared_ptr<MessageWorld> world)
    : world_(std::move(world)), sends_(*world_, requests_, pool_), receives_(*world_, requests_) {}

// ---- transfers ---------------------------------------------------------------------------------------

std::unique_ptr<Transfer> MessageEngine::queue(int peer, const NetworkWrite* writes, std::size_t count,
                                               const NetworkSignal* signal) {
  MessageBuffer* const outgoing = pool_.take();
  auto transfer = std::make_unique<MessageTransfer>(shared_from_this(), outgoing);
  outgoing->peer = peer;
  outgoing->writes.assign(writes, writes + count);
  outgoing->has_signal = signal != nullptr;
  if (signal) outgoing->signal = *signal;
  outgoing->messages = 1;
  outgoing->reads = 1;
  outgoing->failure.clear();
  return transfer;
}

void MessageEngine::start(MessageBuffer& outgoing) {
  Hold hold(mutex_);
  if (stopped_)
    outgoing.failure = "MPI_Finalize has begun";
  else
    sends_.start(outgoing);
}

std::string MessageEngine::failure_of(const MessageBuffer& outgoing) const {
  Hold hold(mutex_);
  return outgoing.failure;
}

std::string MessageEngine::failure() const {
  Hold hold(mutex_);
  return receives_.failure();
}

// ---- memory ------------------------------------------------------------------------------------------

std::shared_ptr<const Registration> MessageEngine::expose(void* base, std::size_t bytes) {
  Hold hold(mutex_);
  return std::make_shared<ExposedRegistration>(shared_from_this(), receives_.expose(base, bytes));
}

void MessageEngine::hide(std::uint64_t key) noexcept {
  const auto until = Clock::now() + patience;
  std::unique_lock<std::mutex> hold(mutex_);
  while (receives_.hide(key) && !closed_) {
    if (Clock::now() > until) {
      log(LogLevel::error, "memory of a window is given back though large data are still on their way into it");
      return;
    }
    try {
      test();
    } catch (const std::exception& error) {
      receives_.fail(error.what());
    }
    hold.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    hold.lock();
  }
}

void MessageEngine::receive() {
  Hold hold(mutex_);
  if (!closed_) receives_.begin();
}

// ---- progress ----------------------------------------------------------------------------------------

void MessageEngine::look(MessageSends::Who who) {
  const std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (!hold || closed_) return;
  looks_.fetch_add(1, std::memory_order_relaxed);
  try {
    sends_.send_late(who);
    test();
  } catch (const std::exception& error) {
    receives_.fail(error.what());
  }
}

/// Under mutex_.
void MessageEngine::test() {
  const MessageRequests::Result& tested = requests_.test();
  sends_.note(tested);
  receives_.take(tested);
}

bool MessageEngine::is_busy() const {
  Hold hold(mutex_);
  return !closed_ && (!sends_.empty() || receives_.is_busy());
}

// ---- the end -----------------------------------------------------------------------------------------

std::vector<std::uint64_t> MessageEngine::stop_sending() {
  Hold hold(mutex_);
  stopped_ = true;
  sends_.send_all_held();
  return sends_.packets_to();
}

bool MessageEngine::has_drained(std::uint64_t packets) const {
  Hold hold(mutex_);
  return receives_.packets() >= packets && !receives_.is_busy() && sends_.empty();
}

void MessageEngine::close() {
  Hold hold(mutex_);
  receives_.cancel();
  closed_ = true;
}

}  // namespace mpix
