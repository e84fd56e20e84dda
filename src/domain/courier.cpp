// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/courier.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "domain/far_message.h"

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

constexpr unsigned looks_between_troubles = 256;
constexpr int most_tasks_each_look = 256;

FarMessage message_of(const Task& task) {
  FarMessage message{};
  message.kind = static_cast<std::uint32_t>(task.what);
  std::copy_n(task.word, 6, message.word);
  return message;
}

/// A process of another node.
class FarProcess final : public Recipient {
 public:
  FarProcess(std::shared_ptr<const Team> team, OperationBudget& budget, int process, RemoteMemory doorsteps,
             std::uint64_t offset, const std::uint64_t* released, std::shared_ptr<const FarRings> rings)
      : team_(std::move(team)),
        rings_(std::move(rings)),
        budget_(budget),
        process_(process),
        doorsteps_(doorsteps),
        offset_(offset),
        released_(released) {}
  Connection connection() const override { return team_->far(process_).connection; }
  std::string name() const override { return "process " + std::to_string(process_); }
  std::string probe() override {
    const std::string why = budget_.network().probe(connection(), doorsteps_, offset_);
    return why.empty() ? why : lost(name(), why);
  }
  bool is_broken() const override { return load_acquire(released_) != 0; }

 private:
  const std::shared_ptr<const Team> team_;
  const std::shared_ptr<const FarRings> rings_;  ///< the memory
  OperationBudget& budget_;
  const int process_;
  const RemoteMemory doorsteps_;
  const std::uint64_t offset_;
  const std::uint64_t* const released_;
};

}  // namespace

Courier::Courier(CourierDomain domain, std::shared_ptr<const Team> team, Bootstrap& bootstrap, Device& device,
                 OperationBudget& budget)
    : domain_(std::move(domain)), team_(std::move(team)), budget_(budget), copier_(device.new_copier()) {
  for (int process = 0; process < team_->size(); ++process)
    if (!team_->same_node(process) && !team_->far(process).reachable)
      throw Error(Fault::unsupported,
                  "process " + std::to_string(process) +
                      " of the domain is on another node, and cannot be reached: " + team_->why_not());
  budget_.begin();
  const std::size_t ranks_bytes = ranks_here() * sizeof(dev::FarRank);
  memory_ =
      device.allocate_pinned(sizeof(dev::FarWords) + ranks_bytes + dev::far_tasks * sizeof(Task) + dev::far_data_bytes);
  words_ = reinterpret_cast<dev::FarWords*>(memory_.get());
  ranks_ = reinterpret_cast<dev::FarRank*>(words_ + 1);
  tasks_ = reinterpret_cast<Task*>(memory_.get() + sizeof(dev::FarWords) + ranks_bytes);
  data_ = reinterpret_cast<char*>(tasks_ + dev::far_tasks);
  lanes_.resize(ranks_here());

  const auto processes = static_cast<std::size_t>(team_->size());
  const std::size_t doorsteps_bytes = processes * sizeof(FarDoorstep);
  doorsteps_ = device.allocate_pinned(doorsteps_bytes);
  exposed_ = budget_.network().expose(doorsteps_.get(), doorsteps_bytes);
  const std::vector<RemoteMemory> all = bootstrap.allgather(exposed_->remote());
  const std::uint64_t offset = static_cast<std::uint64_t>(domain_.process) * sizeof(FarDoorstep);
  peer_of_process_.assign(processes, SIZE_MAX);
  for (int process = 0; process < team_->size(); ++process) {
    if (team_->same_node(process)) continue;
    const auto p = static_cast<std::size_t>(process);
    Peer peer;
    const auto rings = std::make_shared<FarRings>();
    peer.link = std::make_unique<FarLink>(
        process, std::make_shared<FarProcess>(team_, budget_, process, all[p], offset, domain_.released, rings), rings,
        device, budget_, this, reinterpret_cast<FarDoorstep*>(doorsteps_.get())[p], all[p], offset);
    peer.has_ranks = domain_.first_ranks[p + 1] > domain_.first_ranks[p];
    peer_of_process_[p] = peers_.size();
    peers_.push_back(std::move(peer));
  }
  const auto has_ranks = [](const Peer& peer) { return peer.has_ranks; };
  if (std::none_of(peers_.begin(), peers_.end(), has_ranks)) words_->go = went_ = UINT64_MAX;  // nobody is awaited
  budget_.enter(this);
  begin_service(*this);
  listed_ = true;
}

Courier::~Courier() {
  if (listed_) end_service(*this);
  {
    Hold hold(mutex_);
    for (Peer& peer : peers_) peer.link->leave_lines();
  }
  // What is under way goes where it belongs, or is lost with whom it was for.
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  while (!budget_.is_idle(this) && Clock::now() < deadline) {
    budget_.progress();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  budget_.abandon(this);
}

std::uint32_t Courier::first_rank() const { return domain_.first_ranks[static_cast<std::size_t>(domain_.process)]; }

std::uint32_t Courier::ranks_here() const {
  return domain_.first_ranks[static_cast<std::size_t>(domain_.process) + 1] - first_rank();
}

Courier::Peer& Courier::peer_of(std::uint32_t rank) {
  const auto after = std::upper_bound(domain_.first_ranks.begin(), domain_.first_ranks.end(), rank);
  const std::size_t index = peer_of_process_[static_cast<std::size_t>(after - domain_.first_ranks.begin()) - 1];
  if (index == SIZE_MAX) throw Error(Fault::other, "a task for a rank of this node");
  return peers_[index];
}

void Courier::know_window(std::uint32_t window, const std::vector<dev::WindowEntry>& parts) {
  Hold hold(mutex_);
  parts_[window] = parts;
}

bool Courier::is_released() const { return load_acquire(domain_.released) != 0; }

// ---- one round ---------------------------------------------------------------------------------------

Poller::Clock::duration Courier::look(Clock::time_point now) {
  const bool moved = serve_all();
  budget_.progress_once(service_round());
  return back_off_.next(moved, budget_.network().is_moving(), now);
}

void Courier::failed(const char* why) noexcept {
  Hold hold(mutex_);
  has_failed_ = true;
  for (Peer& peer : peers_) peer.link->leave_lines();
  domain_.fail(why);
}

bool Courier::serve_all() {
  Hold hold(mutex_);
  if (is_released()) {
    for (Peer& peer : peers_) peer.link->leave_lines();
    return false;
  }
  bool moved = take_tasks();
  for (Peer& peer : peers_) {
    if (receive(peer)) moved = true;
    if (begin_gets(peer)) moved = true;
    if (deliver(peer)) moved = true;
    if (peer.link->serve()) moved = true;
  }
  if (fill_lanes()) moved = true;
  if (end_flushes()) moved = true;
  if (++looks_ % looks_between_troubles == 0) look_for_trouble(Clock::now());
  return moved;
}

// ---- tasks -------------------------------------------------------------------------------------------

bool Courier::take_tasks() {
  const Lane lane{tasks_, dev::far_tasks};
  int count = 0;
  for (Task task; count < most_tasks_each_look && take_task(lane, taken_ + 1, &task); ++count) {
    if (!take(task)) break;
    progress_ = 0;
    store_release(&words_->tasks_taken, ++taken_);
  }
  return count > 0;
}

/// False: not now.
bool Courier::take(const Task& task) {
  const std::uint64_t* const word = task.word;
  if (task.what == task_of(TaskKind::far_put)) return take_put(task);
  if (task.what == task_of(TaskKind::far_get)) return take_get(task);
  if (task.what == task_of(TaskKind::far_flush)) return take_flush(task);
  if (task.what == task_of(TaskKind::far_barrier)) return to_all(task);
  if (task.what == task_of(TaskKind::far_release)) {
    free_data(word[dev::far_place], word[dev::far_bytes]);
    return true;
  }
  if (task.what != task_of(TaskKind::far_window)) throw Error(Fault::other, "kernels post tasks that are not known");
  std::vector<dev::WindowEntry>& parts = parts_[dev::window_of(word[dev::far_what])];
  parts.resize(ranks_here());
  parts[dev::source_of(word[dev::far_what]) - first_rank()] = {
      reinterpret_cast<char*>(static_cast<std::uintptr_t>(word[dev::far_displacement])), word[dev::far_bytes]};
  return to_all(task);
}

/// What ranks here send; a reply that waits for room goes first.
bool Courier::may_append(Peer& peer, std::uint64_t bytes) { return peer.gets.empty() && peer.link->has_room(bytes); }

bool Courier::take_put(const Task& task) {
  const std::uint64_t bytes = task.word[dev::far_bytes], place = task.word[dev::far_place];
  Peer& peer = peer_of(rank_in(task.word[dev::far_route]));
  FarLink& link = *peer.link;
  if (!may_append(peer, bytes)) return false;
  FarMessage message = message_of(task);
  message.bytes = static_cast<std::uint32_t>(bytes);
  const std::uint64_t to = link.append(message);
  if (bytes == 0) return true;
  const std::uint64_t at = place % dev::far_data_bytes, first = std::min(bytes, dev::far_data_bytes - at);
  link.copy_in(to, data_ + at, first);
  link.copy_in(to + first, data_, bytes - first);
  free_data(place, bytes);
  return true;
}

bool Courier::take_get(const Task& task) {
  Peer& peer = peer_of(rank_in(task.word[dev::far_route]));
  if (!may_append(peer, 0)) return false;
  (void)peer.link->append(message_of(task));
  return true;
}

/// What was sent before is at the targets when they have dealt with the question, which they say at once.
bool Courier::take_flush(const Task& task) {
  const auto owes = [](const Peer& peer) { return peer.link->dealt_with() < peer.link->sent_so_far(); };
  for (Peer& peer : peers_)
    if (owes(peer) && !may_append(peer, 0)) return false;
  const std::uint32_t here = rank_in(task.word[dev::far_what]) - first_rank();
  Flush flush{here, task.word[dev::far_route], {}};
  for (Peer& peer : peers_) {
    if (!owes(peer)) continue;
    (void)peer.link->append(message_of(task));
    peer.link->note_question();
    flush.until.emplace_back(peer.link.get(), peer.link->sent_so_far());
  }
  flushes_.push_back(std::move(flush));
  return true;
}

bool Courier::to_all(const Task& task) {
  for (; progress_ < peers_.size(); ++progress_) {
    Peer& peer = peers_[progress_];
    if (!peer.has_ranks) continue;
    if (!may_append(peer, 0)) return false;
    FarMessage message = message_of(task);
    if (message.kind == kind_of_message(TaskKind::far_window)) message.word[dev::far_displacement] = 0;
    (void)peer.link->append(message);
  }
  return true;
}

/// Rooms are freed in any order, and given out in theirs.
void Courier::free_data(std::uint64_t place, std::uint64_t bytes) {
  if (bytes == 0) return;
  freed_[place] = place + dev::far_round(bytes);
  for (auto first = freed_.begin(); first != freed_.end() && first->first == data_freed_; first = freed_.begin()) {
    data_freed_ = first->second;
    freed_.erase(first);
  }
  store_release(&words_->data_freed, data_freed_);
}

bool Courier::end_flushes() {
  bool moved = false;
  for (auto one = flushes_.begin(); one != flushes_.end();) {
    const bool over = std::all_of(one->until.begin(), one->until.end(),
                                  [](const auto& part) { return part.first->dealt_with() >= part.second; });
    if (!over) {
      ++one;
      continue;
    }
    store_release(&ranks_[one->rank_here].flushed, one->number);
    domain_.wake_rank(one->rank_here);
    one = flushes_.erase(one);
    moved = true;
  }
  return moved;
}

// ---- the end, and trouble ----------------------------------------------------------------------------

bool Courier::is_drained(std::uint64_t tasks) {
  Hold hold(mutex_);
  if (taken_ < tasks) return false;
  bool all = flushes_.empty();
  for (Peer& peer : peers_) {
    const FarLink& link = *peer.link;
    if (link.dealt_with() < link.sent_so_far()) {
      all = false;
      // An own question; the last one may still be on its way.
      if (!link.is_asking() && peer.link->has_room(0)) {
        FarMessage message{};
        message.kind = kind_of_message(TaskKind::far_flush);
        (void)peer.link->append(message);
        peer.link->note_question();
      }
    }
    if (!peer.deliveries.empty() || !peer.gets.empty() || !peer.reads.empty() || !link.is_quiet()) {
      all = false;
      peer.link->answer_soon();  // unasked: the other process may call MPIX_Dev_free much later
    }
  }
  return all;
}

bool Courier::drain(std::uint64_t tasks, const std::function<void()>& meanwhile) {
  const auto begin = Clock::now();
  double reported = 0;
  wake();
  while (!is_drained(tasks)) {
    if (is_released() || has_failed_) return false;
    if (meanwhile) meanwhile();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (domain_.patience <= 0 || seconds - reported < domain_.patience) continue;
    reported = seconds;
    const std::string why = "what its ranks have put to other nodes, or ranks there to its own, is under way for " +
                            std::to_string(static_cast<int>(seconds)) + " s" + who_is_slow();
    if (!domain_.fails_on_timeout) {
      log(LogLevel::warn, "domain: " + why);
      continue;
    }
    domain_.fail(why + "; MPIX_ON_TIMEOUT=error");
    return false;
  }
  return true;
}

/// For the report.
std::string Courier::who_is_slow() const {
  const Hold hold(mutex_);
  std::string text;
  for (std::size_t process = 0; process < peer_of_process_.size(); ++process) {
    const std::size_t at = peer_of_process_[process];
    if (at < peers_.size() && peers_[at].link->dealt_with() < peers_[at].link->sent_so_far())
      text += (text.empty() ? "; process " : ", ") + std::to_string(process);
  }
  return text.empty()
             ? ""
             : text +
                   " has not dealt with all of it: have ranks there no room for notifications, as they ask for none?";
}

void Courier::look_for_trouble(Clock::time_point now) {
  std::string trouble = budget_.network().failure();
  bool waits = false;
  Clock::time_point oldest = now;
  for (const Peer& peer : peers_) {
    if (trouble.empty()) trouble = peer.link->failure();
    Clock::time_point since;
    if (peer.link->oldest(&since)) {
      waits = true;
      oldest = std::min(oldest, since);
    }
  }
  const double patience = domain_.patience;
  if (trouble.empty() && waits && patience > 0 &&
      std::chrono::duration<double>(now - std::max(oldest, reported_)).count() >= patience) {
    reported_ = now;
    trouble = budget_.probe(this);
    const std::string missing = budget_.missing(this);
    if (trouble.empty() && !missing.empty()) log(LogLevel::warn, "domain: " + missing + "; still trying");
  }
  if (!trouble.empty()) domain_.fail(trouble);
}

}  // namespace mpix
