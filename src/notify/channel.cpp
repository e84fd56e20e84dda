// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/channel.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "notify/bells.h"

namespace mpix {
namespace {

/// Of a ring in a row: the others' turn comes soon, and posters of this one learn in time that there is room.
constexpr std::uint32_t most_in_a_row = 16;
constexpr std::uint32_t rings_ahead = 8;
constexpr auto longest_nap = std::chrono::milliseconds(1);
constexpr auto shortest_nap = std::chrono::microseconds(50);
/// Of one that has been quiet for long: a nap of a millisecond takes 1.6 % of a core.
constexpr auto quiet_for_long = std::chrono::milliseconds(100);
constexpr auto quiet_nap = std::chrono::milliseconds(2);
/// From the last task to the first nap of an idle one, and to naps of the longest kind.
constexpr auto awake_for = std::chrono::microseconds(200);
/// What is to be there soon: words that a kernel is writing.
constexpr auto grace = std::chrono::seconds(2);
constexpr std::uint64_t words_cleared_each = std::uint64_t{1} << 30;

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
      is_on_host_(std::strcmp(device.name(), "host") == 0),
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
  reports_ = std::make_unique<WaitReports>(
      WaitReports::Waits{param_.host->notes, std::size_t{options.lanes} + options.flags, "lanes and flags",
                         [lanes = options.lanes, flag_text = options.flag_text](std::uint64_t note, std::size_t index) {
                           return index >= lanes && flag_text
                                      ? flag_text(static_cast<std::uint32_t>(index) - lanes, note >> 2)
                                      : waiting_text(note, static_cast<std::uint32_t>(index), lanes);
                         },
                         [this](Clock::time_point now) { watch_host(now); }},
      options.name, settings, [this](const std::string& why) { break_for(why); });
  if (options.service == TaskService::library) {
    library_ = std::make_unique<LibraryService>(*this);
    library_->begin();
  }
  if (options.service == TaskService::own) thread_ = start_thread("a channel", [this] { work(); });
}

Channel::~Channel() {
  if (getpid() != born_in_) {  // a child of fork(): neither threads nor, where they are shared, words are its own
    (void)new std::thread(std::move(thread_));
    (void)memory_.release();
    return;
  }
  stop_service();
  store_release(&param_.host->released, 1);
  ring(kernels_bell(param_.host));
}

void Channel::stop_service() {
  reports_.reset();
  if (library_) library_->end();
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

void Channel::check_flag(std::uint32_t flag) const {
  if (flag >= param_.flags)
    throw Error(Fault::argument,
                "flag " + std::to_string(static_cast<std::int32_t>(flag)) + " of " + std::to_string(param_.flags));
}

// ---- Tasks -------------------------------------------------------------------------------------------

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
    break_for("task " + std::to_string(number) + " of " + ring_name(ring) +
              " is garbage: something has written over the words of the channel");
    return false;
  }
  const Line* const words = dev::words_of(param_, ring, number);
  for (std::uint32_t i = 0; i < head.words; ++i) {
    std::uint64_t word = 0;
    if (!line_arrived(words + i, tag, &word)) return false;
    task->word[i] = word;
  }
  for (std::uint32_t i = head.words; i < dev::task_words; ++i) task->word[i] = 0;
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
  const auto which = [&] {
    return "task " + std::to_string(task.number) + " of lane " + std::to_string(task.lane) + ", of kind " +
           std::to_string(task.kind);
  };
  if (!handler.call) return break_for("no handler for " + which());
  handled_number_.store(task.number, std::memory_order_relaxed);
  handled_lane_.store(task.lane, std::memory_order_relaxed);
  handled_.fetch_add(1, std::memory_order_release);  // odd: in a handler
  try {
    const int failure = handler.call(handle_, &task, handler.arg);
    if (failure != 0) break_for("the handler of " + which() + " has failed: " + explain_(failure));
  } catch (const std::exception& error) {
    break_for("the handler of " + which() + " has thrown: " + error.what());
  } catch (...) {
    break_for("the handler of " + which() + " has thrown what is no std::exception");
  }
  handled_.fetch_add(1, std::memory_order_relaxed);
}

/// Once through all rings. True: there was something.
bool Channel::serve_round() {
  Lock hold(serving_);
  serving_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  const Clock::time_point begin = armed_ ? Clock::now() : Clock::time_point{};
  const std::uint32_t most = std::clamp<std::uint32_t>(param_.depth / 4, 1, most_in_a_row);
  std::uint64_t found = 0;
  MPIX_Task task;
  for (std::uint32_t ring = 0; ring < param_.rings; ++ring) {
    std::uint32_t here = 0;
    // What a GPU has written is in no cache of this core: several fetches at a time.
    if (ring + rings_ahead < param_.rings)
      __builtin_prefetch(dev::head_of(param_, ring + rings_ahead, taken_[ring + rings_ahead] + 1));
    while (here < most && take(ring, &task)) {
      ++here;
      handle(task);
      if (is_broken()) break;
    }
    if (here > 0) publish_taken(ring);
    found += here;
    if (here > 0 && is_broken()) break;
  }
  serving_thread_.store(std::thread::id{}, std::memory_order_relaxed);
  if (found > 0) {
    counts_.tasks += found;
    counts_.chained += chain_ > 0 ? found : found - 1;
    chain_ += found;
    counts_.longest_chain = std::max(counts_.longest_chain, chain_);
  } else {
    chain_ = 0;
  }
  note_look(begin, found > 0);
  return found > 0;
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

void Channel::set_handler(std::uint32_t kind, MPIX_Task_function* handler, void* arg) {
  if (kind >= dev::most_kinds) throw Error(Fault::argument, "kind " + std::to_string(kind) + " is not below 65536");
  if (armed_) throw Error(Fault::other, "the channel is armed");
  if (is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
  const std::lock_guard<std::mutex> hold(serving_);
  if (kind >= handlers_.size()) handlers_.resize(std::size_t{kind} + 1);
  handlers_[kind] = HandlerOf{handler, arg};
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
  const dev::Ticket near = dev::unpacked_ticket(task.ticket, 0);
  if (task.ticket == 0) throw Error(Fault::argument, "nobody waits for a reply to this task");
  if (near.lane >= param_.lanes || near.channel != (param_.generation & 0xff))
    throw Error(Fault::argument, "the task is of another channel");
  // No atomic operation, which would wait for the stores before it, on their way to lines that a GPU polls.
  std::atomic<std::uint64_t>& last =
      replied_[std::size_t{near.lane} * param_.depth + dev::place_in(param_, near.number)];
  const std::uint64_t before = last.load(std::memory_order_relaxed);
  const std::uint64_t number = dev::unpacked_ticket(task.ticket, before).number;
  if (number <= before) throw Error(Fault::argument, "the task has its reply already");
  last.store(number, std::memory_order_relaxed);
  write_line_release(dev::reply_of(param_, near.lane, number), value, dev::task_tag(number));
  if (is_on_host_) ring(kernels_bell(param_.host));
  if (is_in_handler())
    ++counts_.replies;
  else
    replies_.fetch_add(1, std::memory_order_relaxed);
}

// ---- Flags -------------------------------------------------------------------------------------------

void Channel::set_flag(std::uint32_t flag, std::uint64_t value) {
  check_flag(flag);
  require_whole();
  std::uint64_t* const word = param_.down + std::uint64_t{flag} * param_.word_stride;
  const std::uint64_t before = load_relaxed(word);
  if (value < before)
    throw Error(Fault::argument, "flag " + std::to_string(flag) + " is " + std::to_string(before) + ", and " +
                                     std::to_string(value) + " is less");
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

/// Now and then, from another thread.
void Channel::watch_host(Clock::time_point now) {
  // Those that wait for flags look at the time when they are awake.
  if (flag_waits_ > 0) ring(service_bell(param_.host));
  const std::uint64_t handled = handled_.load(std::memory_order_acquire);
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

/// The first task that kernels have begun to post and that was not taken; empty: there is none.
std::string Channel::hole() {
  if (param_.rings == 0) return "";
  const std::vector<dev::ChannelLane> lanes = param_.rings > 1 ? lanes_now() : std::vector<dev::ChannelLane>{};
  const std::uint64_t tickets = lanes.empty() ? device_.read_word(&param_.state->tickets) : 0;
  const std::lock_guard<std::mutex> hold(serving_);
  for (std::uint32_t ring = 0; ring < param_.rings; ++ring) {
    const std::uint64_t posted = lanes.empty() ? tickets : lanes[ring].posted;
    if (posted > taken_[ring])
      return "task " + std::to_string(taken_[ring] + 1) + " of " + std::to_string(posted) + " of " + ring_name(ring);
  }
  return "";
}

void Channel::disarm() {
  if (is_in_handler()) throw Error(Fault::other, "this is a handler of the channel");
  if (!armed_) throw Error(Fault::other, "the channel is not armed");
  auto moved_at = Clock::now();
  std::string missing;
  std::uint64_t tasks = 0;
  while (!is_broken() && !(missing = hole()).empty()) {
    bool moved = false;
    if (options_.service == TaskService::caller) {
      moved = serve_round();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      const std::lock_guard<std::mutex> hold(serving_);
      moved = std::exchange(tasks, counts_.tasks) != counts_.tasks;
    }
    if (moved) moved_at = Clock::now();
    if (Clock::now() - moved_at > grace)
      break_for(missing + " was begun, and has not come: a kernel ended in the middle of a post");
  }
  {
    const std::lock_guard<std::mutex> hold(serving_);
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
  prctl(PR_SET_TIMERSLACK, 1000);
  if (core_ >= 0 && !run_on_core(core_))
    log(LogLevel::warn, options_.name + ": its thread cannot run on core " + std::to_string(core_) +
                            " (MPIX_CHANNEL_CORE): it runs on any");
  Patience patience(service_bell(param_.host), polling_);
  Clock::time_point quiet_since = Clock::now();
  for (std::uint32_t looks = 0; !stop_; ++looks) {
    if (!is_broken() && serve_round()) {
      patience.refresh();
      quiet_since = {};
      continue;
    }
    if (is_on_host_) {  // asleep until somebody rings
      patience.pause();
      if (patience.slept()) naps_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    if (armed_ && !is_broken()) {
      if (spins_ && looks % 64 != 0)
        relax();
      else
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
    if (!stop_ && !armed_) woken_.wait_for(hold, nap);
    naps_.fetch_add(1, std::memory_order_relaxed);
  }
}

Channel::Counts Channel::counts() {
  Counts all;
  {
    Lock hold(serving_, std::defer_lock);
    if (!is_in_handler()) hold.lock();
    all = counts_;
  }
  all.replies += replies_;
  all.naps = naps_;
  for (const dev::ChannelLane& lane : lanes_now()) all.full_waits += lane.full_waits;
  all.refused = device_.read_word(&param_.state->refused);
  return all;
}

}  // namespace mpix
