// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/domain.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/awake_clock.h"
#include "base/error.h"
#include "base/log.h"
#include "device/host/bell.h"
#include "domain/failures.h"
#include "team/differing.h"

namespace mpix {
namespace {

/// Control memory of a process that is mostly lanes; few ranks have long ones.
constexpr auto time_to_leave = std::chrono::seconds(1);
constexpr std::uint64_t usual_lanes_bytes = 64 << 20;
constexpr std::uint32_t preset_pending = 1024, most_preset_lines = 4096, least_preset_lines = 64;
constexpr std::uint32_t most_preset_inline = 4096;
constexpr std::uint32_t most_of_pending = 1u << 20;

bool is_power_of_two(std::uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

/// Lines of a notification with so many bytes.
std::uint32_t lines_with(std::uint32_t bytes) { return dev::lines_of(dev::how_in_lines(bytes, 0)); }

std::uint32_t preset_lines(std::uint64_t ranks_of_a_process, std::uint64_t processes_of_a_node) {
  std::uint32_t lines = most_preset_lines;
  while (lines > least_preset_lines &&
         ranks_of_a_process * processes_of_a_node * lines * sizeof(Line) > usual_lanes_bytes)
    lines /= 2;
  return lines;
}

}  // namespace

struct Domain::Card {
  std::uint32_t abi, ranks_here;
  std::uint32_t processes;                              ///< of its node
  std::int64_t lane_lines, most_pending, inline_bytes;  ///< as asked for; negative: not
  std::uint64_t processor;
  std::uint32_t takes_turns;  ///< with other processes of the place
  std::uint32_t preferred_inline;
};

std::vector<Domain::Card> Domain::introduce(Bootstrap& bootstrap, std::uint32_t ranks_here,
                                            const DomainOptions& options) {
  const auto or_none = [](const std::optional<std::uint32_t>& value) {
    return value ? static_cast<std::int64_t>(*value) : std::int64_t{-1};
  };
  Card card{};
  card.abi = MPIX_DEV_ABI;
  card.ranks_here = ranks_here;
  card.processes = static_cast<std::uint32_t>(team_->locals().size());
  card.lane_lines = or_none(options.lane_lines);
  card.most_pending = or_none(options.most_pending);
  card.inline_bytes = or_none(options.inline_bytes);
  card.processor = device_.processor();
  card.takes_turns = device_.wants_guards_where_shared();
  card.preferred_inline =
      static_cast<std::uint32_t>(std::min<std::size_t>(device_.preferred_eager_bytes(), most_preset_inline));
  std::vector<Card> cards = bootstrap.allgather(card);

  const auto check = [&](const char* what, auto value_of) {
    const std::string by_rank = differing(cards, [&](const Card& one) {
      return value_of(one) < 0 ? std::string("none") : std::to_string(value_of(one));
    });
    if (!by_rank.empty()) throw Error(Fault::argument, std::string(what) + " differs between the ranks: " + by_rank);
  };
  check("info mpix_dev_lane_lines", [](const Card& one) { return one.lane_lines; });
  check("info mpix_dev_pending", [](const Card& one) { return one.most_pending; });
  check("info mpix_dev_inline", [](const Card& one) { return one.inline_bytes; });
  std::uint64_t ranks = 0;
  for (const Card& one : cards) ranks += one.ranks_here;
  if (ranks == 0) throw Error(Fault::argument, "no process brings a rank");
  if (ranks >= dev::most_ranks) throw Error(Fault::argument, std::to_string(ranks) + " ranks are too many");
  for (const Card& one : cards) {
    if (one.processor == 0 || !one.takes_turns) continue;
    if (std::count_if(cards.begin(), cards.end(), [&](const Card& other) { return other.processor == one.processor; }) >
        1)
      throw Error(Fault::unsupported,
                  "processes share a GPU in turns: while the kernel of one waits for the other's, that cannot run. "
                  "MPS lets both run at once");
  }
  return cards;
}

void Domain::choose_sizes(const std::vector<Card>& cards, const DomainOptions& options) {
  std::uint64_t most_here = 1, most_processes = 1;
  std::uint32_t preferred = most_preset_inline;
  for (const Card& card : cards) {
    most_here = std::max<std::uint64_t>(most_here, card.ranks_here);
    most_processes = std::max<std::uint64_t>(most_processes, card.processes);
    preferred = std::min(preferred, card.preferred_inline);
  }
  param_.most_pending = options.most_pending.value_or(preset_pending);
  if (param_.most_pending < 1 || param_.most_pending > most_of_pending)
    throw Error(Fault::argument, "info mpix_dev_pending is 1 to " + std::to_string(most_of_pending));
  std::uint32_t lines = preset_lines(most_here, most_processes);
  // What was asked for travels with the notification, as far as there can be lanes for it.
  while (options.inline_bytes && lines < dev::most_lane_lines && lines_with(*options.inline_bytes) > lines / 2)
    lines *= 2;
  param_.lane_lines = options.lane_lines.value_or(lines);
  if (!is_power_of_two(param_.lane_lines) || param_.lane_lines < dev::least_lane_lines ||
      param_.lane_lines > dev::most_lane_lines)
    throw Error(Fault::argument, "info mpix_dev_lane_lines is a power of two from " +
                                     std::to_string(dev::least_lane_lines) + " to " +
                                     std::to_string(dev::most_lane_lines));
  while ((1u << param_.lane_shift) < param_.lane_lines) ++param_.lane_shift;
  std::uint32_t fitting = std::min(preferred, most_preset_inline);
  while (lines_with(fitting) > param_.lane_lines / 4) fitting /= 2;
  param_.inline_bytes = options.inline_bytes.value_or(fitting);
  if (param_.inline_bytes > dev::most_inline_bytes || lines_with(param_.inline_bytes) > param_.lane_lines)
    throw Error(Fault::argument, "info mpix_dev_inline: " + std::to_string(param_.inline_bytes) +
                                     " bytes: there may be " + std::to_string(dev::most_inline_bytes) +
                                     " at most, and they have to fit into a lane of " +
                                     std::to_string(param_.lane_lines) + " lines");
}

Domain::Domain(std::uint32_t ranks_here, const DomainOptions& options, std::shared_ptr<const Team> team,
               Bootstrap& bootstrap, Device& device, const Settings& settings, OperationBudget* budget)
    : team_(std::move(team)), device_(device), unmaps_later_(device), settings_(settings) {
  const std::vector<Card> cards = introduce(bootstrap, ranks_here, options);
  if (team_->group().size() != team_->locals().size())
    throw Error(Fault::unsupported,
                "the processes of a domain share memory on each node; some of these cannot, as they have other name "
                "spaces");
  if (team_->spans_nodes() && !budget)
    throw Error(Fault::unsupported,
                "the processes of a domain are on several nodes, and there is no network: " + team_->why_not());
  choose_sizes(cards, options);
  param_.abi = MPIX_DEV_ABI;
  param_.process = static_cast<std::uint32_t>(team_->local(own_process()));
  param_.processes = static_cast<std::uint32_t>(team_->locals().size());
  for (const Card& card : cards) {
    first_ranks_.push_back(param_.ranks);
    param_.ranks += card.ranks_here;
  }
  first_ranks_.push_back(param_.ranks);
  param_.first_rank = first_ranks_[static_cast<std::size_t>(own_process())];
  param_.ranks_here = ranks_here;
  for (const int process : team_->locals()) {
    if (process < own_process()) param_.first_on_node += ranks_of(process);
    param_.ranks_on_node += ranks_of(process);
  }
  const Card& mine = cards[static_cast<std::size_t>(own_process())];
  if (mine.processor != 0)
    sharers_ = static_cast<std::uint32_t>(
        std::count_if(cards.begin(), cards.end(), [&](const Card& card) { return card.processor == mine.processor; }));
  param_.lanes_at = dev::lanes_at(param_.processes, param_.most_pending);
  param_.inbox_bytes =
      (param_.lanes_at + std::uint64_t{param_.processes} * param_.lane_lines * sizeof(Line) + 255) / 256 * 256;
  places_ = dev::places(param_.ranks, param_.processes);
  try {
    make_segment(bootstrap);
    fill_segment(cards);
    if (team_->spans_nodes()) make_courier(bootstrap, *budget);
    // All have filled theirs, and mapped the others'.
    (void)bootstrap.allgather(std::uint64_t{0});
    asked_.emplace(*this);
  } catch (...) {
    courier_.reset();
    release_mappings(segments_);
    if (segment_.base) device_.release(segment_.base);
    throw;
  }
}

void Domain::wake_rank(std::uint32_t here) const {
  if (device_.is_host()) ring(reinterpret_cast<Bell*>(inbox(here)));
}

void Domain::wake_process() const {
  if (device_.is_host()) ring(reinterpret_cast<Bell*>(segment_.base));
}

void Domain::make_courier(Bootstrap& bootstrap, OperationBudget& budget) {
  CourierDomain domain;
  domain.process = own_process();
  domain.first_ranks = first_ranks_;
  domain.most_pending = param_.most_pending;
  domain.segment = segment_.base;
  domain.windows_at = places_.windows;
  domain.window_calls_at = places_.window_calls;
  domain.released = param_.released;
  domain.patience = settings_.timeout_seconds;
  domain.fails_on_timeout = settings_.fail_on_timeout;
  domain.wake_rank = [this](std::uint32_t here) { wake_rank(here); };
  domain.wake_process = [this] { wake_process(); };
  domain.fail = [this](const std::string& why) {
    if (reports_->is_released()) return;
    log(LogLevel::error, "domain: " + why + "; its ranks wait no more, and their calls fail");
    reports_->release();
  };
  courier_ = std::make_unique<Courier>(std::move(domain), team_, bootstrap, device_, budget);
  param_.far_words = courier_->words();
  param_.far_ranks = courier_->ranks();
  param_.far_tasks = courier_->tasks();
  param_.far_data = courier_->data();
}

void Domain::make_segment(Bootstrap& bootstrap) {
  segment_ = device_.allocate(places_.inboxes + param_.ranks_here * param_.inbox_bytes);
  param_.segment = segment_.base;
  const std::vector<int>& locals = team_->locals();
  const auto all = bootstrap.node_allgather(device_.export_memory(segment_.base), locals.size());
  for (std::size_t i = 0; i < locals.size(); ++i) segments_.push_back(map(locals[i], all[i], segment_.base));

  std::vector<char*> bases, inboxes;
  for (int process = 0; process < team_->size(); ++process) {
    const int local = team_->local(process);
    char* const base = local < 0 ? nullptr : segments_[static_cast<std::size_t>(local)].base;
    if (base) bases.push_back(base);
    for (std::uint32_t i = 0; i < ranks_of(process); ++i)
      inboxes.push_back(base ? base + places_.inboxes + i * param_.inbox_bytes : nullptr);
  }
  segment_table_ = device_.upload(bases.data(), bases.size() * sizeof(char*));
  inbox_table_ = device_.upload(inboxes.data(), inboxes.size() * sizeof(char*));
  param_.segments = static_cast<char* const*>(segment_table_.get());
  param_.inboxes = static_cast<char* const*>(inbox_table_.get());
}

void Domain::fill_segment(const std::vector<Card>& cards) {
  std::vector<std::uint32_t> first_ranks = first_ranks_;  // without those of processes that have none
  first_ranks.erase(std::unique(first_ranks.begin(), first_ranks.end()), first_ranks.end());
  process_table_ = device_.upload(first_ranks.data(), first_ranks.size() * sizeof first_ranks[0]);
  dev::Header header{};
  header.first_ranks = static_cast<const std::uint32_t*>(process_table_.get());
  header.processes = first_ranks.size() - 1;
  device_.write(segment_.base, &header, sizeof header);
  const std::vector<std::uint64_t> room(param_.ranks, param_.lane_lines);
  device_.write(segment_.base + places_.room, room.data(), room.size() * sizeof room[0]);
  // Nobody arrives from where no ranks are.
  std::vector<std::uint64_t> there(std::size_t{dev::comms} * param_.processes, 0);
  for (std::uint32_t local = 0; local < param_.processes; ++local) {
    const bool has_none = cards[static_cast<std::size_t>(team_->locals()[local])].ranks_here == 0;
    for (const dev::Comm comm : {dev::world, dev::node})
      if (has_none) there[comm * param_.processes + local] = UINT64_MAX;
    if (local != param_.process) there[dev::device * param_.processes + local] = UINT64_MAX;
  }
  device_.write(segment_.base + places_.there, there.data(), there.size() * sizeof there[0]);

  constexpr std::size_t in_front = sizeof(dev::RankNote);
  const std::size_t notes = in_front + param_.ranks_here * sizeof(dev::RankNote);
  notes_ = device_.allocate_pinned(notes + dev::log_lines * sizeof(dev::LogLine));
  param_.released = reinterpret_cast<std::uint64_t*>(notes_.get());
  param_.notes = reinterpret_cast<dev::RankNote*>(notes_.get() + in_front);
  param_.log = reinterpret_cast<dev::LogLine*>(notes_.get() + notes);
  reports_ = std::make_unique<DomainReports>(param_.notes, param_.ranks_here, param_.first_rank,
                                             static_cast<std::uint32_t>(own_process()), param_.released, param_.log,
                                             settings_, [this] {
                                               for (std::uint32_t i = 0; i < param_.ranks_here; ++i) wake_rank(i);
                                               wake_process();
                                             });
}

Domain::~Domain() {
  asked_.reset();
  courier_.reset();
  reports_.reset();
  for (Attachment& one : attachments_) release_mappings(one.mappings);
  for (Attachment& one : windows_) release_mappings(one.mappings);
  release_mappings(segments_);
  device_.release(segment_.base);
}

void Domain::release_mappings(std::vector<Mapping>& mappings) noexcept {
  for (const Mapping& mapping : mappings)
    if (mapping.imported) device_.close_import(mapping.base);
  mappings.clear();
}

Domain::Mapping Domain::map(int process, const ExportedMemory& exported, char* own) {
  if (process == own_process()) return Mapping{own, false};
  return Mapping{device_.import_memory(exported), true};
}

dev::Inbox* Domain::inbox(std::uint32_t rank_here) const {
  return reinterpret_cast<dev::Inbox*>(segment_.base + places_.inboxes + rank_here * param_.inbox_bytes);
}

MPIX_Dev_param Domain::begin_launch() {
  if (reports_->is_released()) throw Error(Fault::synchronization, "the domain is broken: it can only be freed");
  reports_->begin();
  const std::lock_guard<std::mutex> hold(launching_);
  MPIX_Dev_param param = param_;
  param.launch = ++launches_;
  return param;
}

void Domain::cancel_launch() {
  const std::lock_guard<std::mutex> hold(launching_);
  --launches_;
}

std::unique_lock<std::mutex> Domain::held_if_idle(bool or_unseen) {
  std::unique_lock<std::mutex> hold(launching_, std::try_to_lock);
  bool is_idle = hold && (or_unseen || !launches_unseen_);
  for (std::uint32_t i = 0; is_idle && i < param_.ranks_here; ++i)
    is_idle = is_broken() || load_acquire(&param_.notes[i].finished) >= launches_;
  if (hold && !is_idle) hold.unlock();
  return hold.owns_lock() ? std::move(hold) : std::unique_lock<std::mutex>();
}

bool Domain::wait_for_launches(const std::function<void()>& meanwhile) {
  using Clock = AwakeClock;
  const auto begin = Clock::now();
  const auto nap_until = begin + std::chrono::milliseconds(1);
  double reported = 0;
  for (std::uint32_t i = 0; i < param_.ranks_here;) {
    if (load_acquire(&param_.notes[i].finished) >= launches_) {
      ++i;
      continue;
    }
    if (reports_->is_released()) return false;
    if (meanwhile) meanwhile();
    if (Clock::now() < nap_until)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (reports_->patience() <= 0 || seconds - reported < reports_->patience()) continue;
    reported = seconds;
    log(LogLevel::warn, "MPIX_Dev_free has waited for " + std::to_string(static_cast<int>(seconds)) + " s for rank " +
                            std::to_string(param_.first_rank + i) + ", which has not called MPIX_Dev_finish");
    if (!reports_->releases()) continue;
    reports_->release();
    return false;
  }
  // They say so under their lock, and are in the segment until they leave that, which is at once. A kernel that the
  // program has launched by itself may have ended with it.
  const auto until = Clock::now() + std::chrono::seconds(1);
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i)
    while (device_.read_word(&inbox(i)->lock) != 0 && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  return true;
}

/// Of a broken one. On hosts it is enough that they have returned.
bool Domain::have_ranks_left() const {
  const auto until = AwakeClock::now() + time_to_leave;
  const auto have_finished = [this] {
    for (std::uint32_t i = 0; i < param_.ranks_here; ++i)
      if (load_acquire(&param_.notes[i].finished) < launches_) return false;
    return true;
  };
  while (device_.is_host() ? host_launches_->load(std::memory_order_acquire) > 0 : !have_finished()) {
    if (AwakeClock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

bool Domain::wait_for_puts(const std::function<void()>& meanwhile) {
  if (!courier_) return true;
  const auto* const header = reinterpret_cast<const dev::Header*>(segment_.base);
  return courier_->drain(device_.read_word(&header->tasks_given), meanwhile);
}

Domain::Failure Domain::failure() const {
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) {
    const dev::RankNote& note = param_.notes[i];
    if (load_acquire(&note.failed) == 0) continue;
    std::string text = failure_text(note, param_.first_rank + i);
    if (is_list_full(note) && load_acquire(&note.finished) >= launches_) text += commonest_text(set_aside(i));
    return Failure{static_cast<dev::Result>(note.failure), std::move(text)};
  }
  return {};
}

std::vector<dev::Notification> Domain::set_aside(std::uint32_t rank_here) const {
  dev::Inbox one{};
  device_.read(&one, inbox(rank_here), sizeof one);
  std::vector<dev::Notification> pending(one.reading.end - one.reading.first);
  if (pending.empty()) return pending;
  const char* const list = reinterpret_cast<const char*>(inbox(rank_here)) + dev::pending_at(param_.processes);
  device_.read(pending.data(), list + one.reading.first * sizeof pending[0], pending.size() * sizeof pending[0]);
  pending.erase(std::remove_if(pending.begin(), pending.end(), [](const auto& n) { return n.what == dev::dead; }),
                pending.end());
  return pending;
}

std::uint64_t Domain::in_lanes(std::uint32_t rank_here) const {
  const char* const own = reinterpret_cast<const char*>(inbox(rank_here));
  std::vector<std::uint64_t> heads(param_.processes);
  std::vector<Line> lanes(std::size_t{param_.processes} * param_.lane_lines);
  device_.read(heads.data(), own + sizeof(dev::Inbox), heads.size() * sizeof heads[0]);
  device_.read(lanes.data(), own + param_.lanes_at, lanes.size() * sizeof lanes[0]);
  std::uint64_t count = 0;
  for (std::uint32_t process = 0; process < param_.processes; ++process) {
    const Line* const lane = lanes.data() + std::size_t{process} * param_.lane_lines;
    std::uint64_t entry[2];
    for (std::uint64_t at = heads[process];
         lines_arrived(lane + (at & (param_.lane_lines - 1)), dev::lap_of_line(at, param_.lane_shift), entry) == 3;
         at += dev::lines_of(entry[1]))
      if (dev::kind_of(entry[1]) != dev::flushing) ++count;
  }
  return count;
}

void Domain::forget_failures() {
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) store_release(&param_.notes[i].failed, 0);
}

Domain::Counts Domain::counts() const {
  Counts counts;
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) {
    dev::Inbox one{};
    device_.read(&one, inbox(i), sizeof one);
    counts.taken += one.reading.taken;
    counts.pending += one.reading.live + in_lanes(i);
  }
  if (courier_) counts.pending += courier_->waiting();
  return counts;
}

}  // namespace mpix
