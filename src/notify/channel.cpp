// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/channel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "notify/bells.h"

namespace mpix {
namespace {

constexpr auto longest_nap = std::chrono::milliseconds(1);
constexpr auto shortest_nap = std::chrono::microseconds(50);
/// Of one that has been quiet for long. Of a core, naps of 1 ms take 1.6 %, of 2 ms 1.2, of 3 ms 0.8 to 1.0 (H200).
constexpr auto quiet_for_long = std::chrono::milliseconds(100);
constexpr auto quiet_nap = std::chrono::milliseconds(4);
/// From the last task to the first nap of an idle one, and to naps of the longest kind.
constexpr auto awake_for = std::chrono::microseconds(200);
/// What is to be there soon: words that a kernel is writing. A thread of a host kernel may be without a core for long.
constexpr auto grace = std::chrono::seconds(5);
/// In a row, where its thread has a core of its own.
constexpr std::uint32_t looks_at_gpus = 64;

bool waits_for_room(std::uint64_t note) { return (note & 3) == static_cast<std::uint64_t>(dev::ChannelWait::room); }

}  // namespace

/// The one thread of the library looks.
class Channel::LibraryService final : public Poller {
 public:
  explicit LibraryService(Channel& channel) : channel_(channel) {}
  void begin() {
    begin_service(*this);
    if (channel_.is_on_host_) wake_for(channel_.param_.host, this);
  }
  void end() noexcept {
    wake_for(channel_.param_.host, nullptr);
    end_service(*this);
  }

  Clock::duration look(Clock::time_point now) override {
    std::uint32_t* const sleepers = &channel_.param_.host->service_sleepers;
    if (std::exchange(sleeps_, false)) __atomic_fetch_sub(sleepers, 1, __ATOMIC_RELAXED);
    if (channel_.is_broken()) return when_woken;
    const bool moved = channel_.serve_round();
    const Clock::duration nap = back_off_.next(moved, false, now);
    if (!channel_.is_on_host_) {
      if (channel_.armed_) return {};
      return nap < longest_nap ? nap : quiet_nap;
    }
    if (nap == Clock::duration{}) return nap;
    // Either a kernel sees that it sleeps, and wakes it, or this sees the task.
    __atomic_fetch_add(sleepers, 1, __ATOMIC_SEQ_CST);
    sleeps_ = true;
    return channel_.serve_round() ? Clock::duration{} : when_woken;
  }
  void failed(const char* why) noexcept override { channel_.break_for(why); }

 private:
  Channel& channel_;
  BackOff back_off_;
  bool sleeps_ = false;
};

Channel::Channel(const ChannelOptions& options, MPIX_Channel handle, Explain explain, Device& device,
                 const Settings& settings)
    : device_(device),
      options_(options),
      handle_(handle),
      explain_(explain),
      is_on_host_(device.is_host()),
      spins_(has_cores_to_spare(options.local_ranks)),
      polling_(polling_for(settings, options.local_ranks)),
      patience_(settings.timeout_seconds),
      fails_on_timeout_(settings.fail_on_timeout),
      core_(settings.channel_core),
      born_in_(getpid()),
      memory_(std::make_unique<ChannelMemory>(options, device)),
      param_(memory_->param()),
      replied_(std::size_t{options.lanes} * options.depth),
      taken_(param_.rings, options.first_number - 1),
      wanted_(options.lanes) {
  if (is_on_host_) param_.hooks = hooks_for_threads(polling_);
  if (options.flags_on_device && options.flags > 0) flags_writer_ = device.new_stream();
  reports_ = std::make_unique<WaitReports>(
      WaitReports::Waits{param_.host->notes, std::size_t{options.lanes} + options.flags, "lanes and flags",
                         [lanes = options.lanes, flag_text = options.flag_text](std::uint64_t note, std::size_t index) {
                           return index >= lanes && flag_text
                                      ? flag_text(static_cast<std::uint32_t>(index) - lanes, note >> 2)
                                      : waiting_text(note, static_cast<std::uint32_t>(index), lanes);
                         },
                         [this](Clock::time_point now) { watch_host(now); },
                         [this](std::uint64_t note) { return handlers_move_ && waits_for_room(note); }},
      options.name, settings, [this](const std::string& why) { break_for(why); });
  if (options.service == TaskService::library) {
    library_ = std::make_unique<LibraryService>(*this);
    library_->begin();
  }
  if (options.service == TaskService::own) thread_ = start_thread("a channel", [this] { work(); });
}

bool Channel::is_of_parent() const { return getpid() != born_in_; }

Channel::~Channel() {
  if (is_of_parent()) {  // neither threads nor, where they are shared, words are its own
    (void)new std::thread(std::move(thread_));
    (void)memory_.release();
    (void)flags_writer_.release();
    return;
  }
  stop_service();
  store_release(&param_.host->released, 1);
  ring(kernels_bell(param_.host));
}

void Channel::finish() {
  if (is_of_parent()) return;
  try {
    if (!is_broken() && serves_by_handlers()) handle_what_is_posted();
  } catch (const std::exception& error) {  // the device's; or there is no memory
    break_for(error.what());
  }
  stop_service();
  // They were told that it is broken.
  for (; is_broken() && is_awaited(); std::this_thread::sleep_for(std::chrono::microseconds(50)))
    ring(service_bell(param_.host));
}

void Channel::stop_service() {
  reports_.reset();
  if (library_) library_->end();
  library_.reset();
  stop_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

void Channel::end_service_for(const std::string& cause) {
  break_for(cause);
  stop_service();
}

// ---- Trouble -----------------------------------------------------------------------------------------

std::string Channel::cause() const {
  const std::lock_guard<std::mutex> hold(cause_mutex_);
  return cause_;
}

void Channel::break_for(const std::string& cause) {
  {
    const std::lock_guard<std::mutex> hold(cause_mutex_);
    if (!cause_.empty()) return;
    cause_ = cause;
  }
  log(LogLevel::error, options_.name + " is broken: " + cause + "; its kernels wait no more");
  store_release(&param_.host->released, 1);
  ring(kernels_bell(param_.host));
  wake();
}

void Channel::require_whole() const {
  if (is_broken()) throw Error(Fault::other, options_.name + " is broken: " + cause());
}

/// Now and then, from another thread.
void Channel::watch_host(Clock::time_point now) {
  // Those that wait for flags look at the time when they are awake.
  if (flag_waits_ > 0) ring(service_bell(param_.host));
  const std::uint64_t handled = handled_.load(std::memory_order_acquire);
  // One that is at work takes no tasks meanwhile; of one that does not return is told below.
  handlers_move_ = handled != watched_ || handled % 2 != 0;
  if (handled != watched_ || handled % 2 == 0) {
    watched_ = handled;
    watched_since_ = now;
    watched_reported_ = 0;
    return;
  }
  const double seconds = std::chrono::duration<double>(now - watched_since_).count();
  if (patience_ <= 0 || seconds - watched_reported_ < patience_) return;
  watched_reported_ = seconds;
  const std::string text = "the handler of task " + std::to_string(handled_number_.load(std::memory_order_relaxed)) +
                           " of lane " + std::to_string(handled_lane_.load(std::memory_order_relaxed)) +
                           " has not returned";
  log(fails_on_timeout_ ? LogLevel::error : LogLevel::warn,
      options_.name + ": " + text + ", for " + std::to_string(static_cast<int>(seconds)) + " s");
  if (fails_on_timeout_) break_for(text + "; MPIX_ON_TIMEOUT=error");
}

// ---- Armed and not -----------------------------------------------------------------------------------

void Channel::arm() {
  require_whole();
  if (is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
  if (armed_.exchange(true)) throw Error(Fault::other, "the channel is armed already");
  wake();
}

std::vector<dev::ChannelLane> Channel::lanes_now() {
  std::vector<dev::ChannelLane> lanes(param_.lanes);
  if (!is_on_host_) {
    device_.read(lanes.data(), param_.lane, lanes.size() * sizeof lanes[0]);
    return lanes;
  }
  for (std::uint32_t i = 0; i < param_.lanes; ++i) {
    lanes[i].posted = load_relaxed(&param_.lane[i].posted);
    lanes[i].full_waits = load_relaxed(&param_.lane[i].full_waits);
  }
  return lanes;
}

/// By ring, tasks that kernels have begun to post, so far.
std::vector<std::uint64_t> Channel::posted_so_far() {
  if (param_.rings == 0) return {};
  if (param_.rings == 1) return {device_.read_word(&param_.state->tickets)};
  std::vector<std::uint64_t> posted;
  for (const dev::ChannelLane& lane : lanes_now()) posted.push_back(lane.posted);
  return posted;
}

/// The first of these tasks that was not taken; empty: all were.
std::string Channel::hole_in(const std::vector<std::uint64_t>& posted) const {
  const Visit visit(*this);
  for (std::uint32_t ring = 0; ring < posted.size(); ++ring)
    if (posted[ring] > taken_[ring])
      return "task " + std::to_string(taken_[ring] + 1) + " of " + std::to_string(posted[ring]) + " of " +
             ring_name(ring);
  return "";
}

/// Tasks of before the call; so it ends, too, where kernels go on. Breaks the channel where a task does not come.
void Channel::handle_what_is_posted() {
  const std::vector<std::uint64_t> posted = posted_so_far();
  auto moved_at = Clock::now();
  std::string missing;
  std::uint64_t tasks = 0;
  while (!is_broken() && !(missing = hole_in(posted)).empty()) {
    bool moved = false;
    if (options_.service != TaskService::own) {
      moved = serve_round();  // this may be the thread of the library
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      const Visit visit(*this);
      moved = std::exchange(tasks, counts_.tasks) != counts_.tasks;
    }
    // While this thread waited for its turn another may have taken what was missing.
    if (moved || hole_in(posted) != missing) moved_at = Clock::now();
    if (Clock::now() - moved_at > grace)
      break_for(missing + " was begun, and has not come: a kernel ended in the middle of a post");
  }
}

void Channel::disarm() {
  if (is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
  if (!armed_) throw Error(Fault::other, "the channel is not armed");
  if (serves_by_handlers()) handle_what_is_posted();
  {
    const Visit visit(*this);
    armed_ = false;
    looked_ = {};
  }
  require_whole();
}

void Channel::wake() {
  { const std::lock_guard<std::mutex> hold(nap_mutex_); }
  woken_.notify_all();
  ring(service_bell(param_.host));
  if (library_) wake_service(*library_);
}

void Channel::work() noexcept {
  wake_soon();
  if (core_ >= 0 && !run_on_core(core_))
    log(LogLevel::warn, options_.name + ": its thread cannot run on core " + std::to_string(core_) +
                            " (MPIX_CHANNEL_CORE): it runs on any");
  Patience patience(service_bell(param_.host), polling_);
  Clock::time_point quiet_since = Clock::now();
  while (!stop_) {
    while (visitors_ > 0) sched_yield();
    const bool looks_all_the_time = armed_ && !is_on_host_;
    if (!is_broken() && serve_rounds(looks_all_the_time && spins_ ? looks_at_gpus : 1)) {
      patience.refresh();
      quiet_since = {};
      continue;
    }
    if (is_on_host_) {  // asleep until somebody rings
      patience.pause();
      if (patience.slept()) naps_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    if (looks_all_the_time && !is_broken()) {
      sched_yield();
      continue;
    }
    const auto now = Clock::now();
    if (quiet_since == Clock::time_point{}) quiet_since = now;
    if (now - quiet_since < awake_for) {
      sched_yield();
      continue;
    }
    const auto nap = now - quiet_since > quiet_for_long
                         ? Clock::duration{quiet_nap}
                         : std::clamp<Clock::duration>((now - quiet_since) / 8, shortest_nap, longest_nap);
    Lock hold(nap_mutex_);
    if (!stop_ && (!armed_ || is_broken())) woken_.wait_for(hold, nap);
    naps_.fetch_add(1, std::memory_order_relaxed);
  }
}

Channel::Counts Channel::counts() {
  Counts all;
  {
    std::optional<Visit> visit;
    if (!is_in_handler()) visit.emplace(*this);
    all = counts_;
  }
  all.replies = replies();
  all.naps = naps_;
  for (const dev::ChannelLane& lane : lanes_now()) all.full_waits += lane.full_waits;
  all.refused = device_.read_word(&param_.state->refused);
  return all;
}

}  // namespace mpix
