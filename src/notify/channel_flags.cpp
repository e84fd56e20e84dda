// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Flags of a channel.
#include <chrono>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "notify/bells.h"
#include "notify/channel.h"

namespace mpix {
namespace {

/// One more, in this scope.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

void Channel::check_flag(std::uint32_t flag) const {
  if (flag >= param_.flags)
    throw Error(Fault::argument,
                "flag " + std::to_string(static_cast<std::int32_t>(flag)) + " of " + std::to_string(param_.flags));
}

void Channel::set_flag(std::uint32_t flag, std::uint64_t value) {
  check_flag(flag);
  require_whole();
  std::uint64_t* const word = memory_->flags_set() + flag * dev::words_apart;
  const std::uint64_t before = load_relaxed(word);
  if (value < before)
    throw Error(Fault::argument, "flag " + std::to_string(flag) + " is " + std::to_string(before) + ", and " +
                                     std::to_string(value) + " is less");
  if (flags_writer_) {
    const std::lock_guard<std::mutex> hold(flags_);
    if (value <= load_relaxed(word)) return;
    device_.run_memory_ops(flags_writer_->handle(), {{{dev::down_of(param_, flag), value, false}}, nullptr});
    store_release(word, value);
    return;
  }
  raise_after_loads(word, value);
  if (is_on_host_) ring(kernels_bell(param_.host));
}

std::uint64_t Channel::flag(std::uint32_t flag) const {
  check_flag(flag);
  return load_acquire(param_.up + std::uint64_t{flag} * param_.word_stride);
}

void Channel::wait_for_flag(std::uint32_t flag, std::uint64_t value) {
  check_flag(flag);
  const std::uint64_t* const word = param_.up + std::uint64_t{flag} * param_.word_stride;
  const auto begin = Clock::now();
  double reported = 0;
  const Counted here(flag_waits_);
  // On a GPU nobody rings.
  Patience patience(service_bell(param_.host), is_on_host_ ? polling_ : Polling{std::chrono::hours(1), spins_, {}});
  for (std::uint32_t looks = 1; load_acquire(word) < value; ++looks) {
    require_whole();
    patience.pause();
    if (looks % 64 != 0 && !patience.slept()) continue;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (patience_ <= 0 || seconds - reported < patience_) continue;
    reported = seconds;
    const std::string text = "the program waits for flag " + std::to_string(flag) + " to become " +
                             std::to_string(value) + ", and kernels have set it to " +
                             std::to_string(load_acquire(word));
    log(fails_on_timeout_ ? LogLevel::error : LogLevel::warn,
        options_.name + ": " + text + ", for " + std::to_string(static_cast<int>(seconds)) + " s");
    if (fails_on_timeout_) break_for(text + "; MPIX_ON_TIMEOUT=error");
  }
}

}  // namespace mpix
