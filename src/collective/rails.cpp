// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/rails.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "base/error.h"

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

/// For trouble; and a wait is worth a note when it has lasted as long.
constexpr auto between_looks = std::chrono::milliseconds(50);

/// A partner, as shipments know it.
class RailPeer final : public Recipient {
 public:
  RailPeer(std::shared_ptr<const Team> team, OperationBudget& budget, int rank, RemoteMemory memory,
           std::uint64_t offset, std::shared_ptr<char> keep)
      : team_(std::move(team)),
        keep_(std::move(keep)),
        budget_(budget),
        rank_(rank),
        memory_(memory),
        offset_(offset),
        is_broken_(false) {}
  Connection connection() const override { return team_->far(rank_).connection; }
  std::string name() const override { return "rank " + std::to_string(rank_); }
  std::string probe() override {
    const std::string why = budget_.network().probe(connection(), memory_, offset_);
    return why.empty() ? why : lost(name(), why);
  }
  bool is_broken() const override { return is_broken_; }
  void break_off() { is_broken_ = true; }

 private:
  const std::shared_ptr<const Team> team_;
  const std::shared_ptr<char> keep_;  ///< what is sent
  OperationBudget& budget_;
  const int rank_;
  const RemoteMemory memory_;
  const std::uint64_t offset_;
  std::atomic<bool> is_broken_;
};

}  // namespace

void Rails::allocate(std::size_t slot_bytes) {
  RailPlaces& p = places_ = shape_.places(slot_bytes);
  const std::uint64_t all = sizeof(RailWords) + out_bytes() + in_bytes();
  memory_ = device_.allocate_pinned(all);
  p.words = reinterpret_cast<RailWords*>(memory_.get());
  p.out = memory_.get() + sizeof(RailWords);
  p.in = p.out + out_bytes();
  // Blocks for ranks of this node, of which a slot takes as many as a node has ranks.
  const std::uint64_t block = p.columns * slot_bytes;
  device_memory_ = device_.allocate(sizeof(std::uint64_t) * 8 + 2 * block).base;
  p.number = reinterpret_cast<std::uint64_t*>(device_memory_);
  packed_ = device_memory_ + sizeof(std::uint64_t) * 8;
  collected_ = packed_ + block;
  memory_bytes_ = all + sizeof(std::uint64_t) * 8 + 2 * block;
  const auto table = [this](int which, const auto& entries) {
    tables_[which] = device_.upload(entries.data(), entries.size() * sizeof entries[0]);
    return tables_[which].get();
  };
  p.partner = static_cast<const RailPartner*>(table(0, shape_.partners()));
  p.source = static_cast<const std::uint32_t*>(table(1, shape_.sources()));
  p.rank = static_cast<const RailRank*>(table(2, shape_.by_rank()));
  p.target = static_cast<const std::uint32_t*>(table(3, shape_.targets()));
}

Rails::Rails(std::shared_ptr<const Team> team, Bootstrap& bootstrap, Device& device, OperationBudget& budget,
             std::size_t scratch, CollectiveWords* host, CollectiveReports& reports, NodeNotes& notes)
    : team_(std::move(team)),
      device_(device),
      budget_(budget),
      host_(host),
      reports_(reports),
      notes_(notes),
      shape_(*team_, team_->rank()),
      streams_serve_(device.serves_remote_work()),
      patience_(reports.patience()) {
  budget_.begin();
  allocate(shape_.slot_bytes(scratch));
  exposed_ = budget_.network().expose(places_.in, in_bytes());
  source_ = budget_.network().register_source(places_.out, out_bytes());
  const std::vector<RemoteMemory> all = bootstrap.allgather(exposed_->remote());
  std::vector<RailWaits::Listener> listeners;
  for (const RailPartner& partner : shape_.partners()) {
    const int rank = static_cast<int>(partner.rank);
    const RailShape there(*team_, rank);
    Peer peer;
    peer.memory = all[partner.rank];
    peer.position = there.partner_of(team_->rank());
    peer.slots = static_cast<std::uint32_t>(there.partners().size());
    peer.to = std::make_shared<RailPeer>(team_, budget_, rank, peer.memory,
                                         peer.position * places_.slot() + offsetof(RailHeader, unused), memory_);
    listeners.push_back({peer.to, peer.memory,
                         std::uint64_t{2} * peer.slots * places_.slot() + peer.position * sizeof(CollectiveNote)});
    peers_.push_back(std::move(peer));
  }
  waits_ = std::make_unique<RailWaits>(
      budget_, this, reinterpret_cast<const CollectiveNote*>(places_.in + places_.slots_bytes()),
      reinterpret_cast<CallDifference*>(places_.out + places_.slots_bytes()), source_, std::move(listeners));
  reports_.set_others({[this](std::uint32_t rank) {
                         Hold hold(mutex_);
                         if (!is_released()) waits_->tell_partners(taken_, rank);
                       },
                       [this](const CallDifference& difference) {
                         Hold hold(mutex_);
                         waits_->tell_partners(difference);
                         wake_service(*this);
                       }});
  budget_.enter(this);
  begin_service(*this);
  listed_ = true;
}

Rails::~Rails() {
  close(false);
  tables_[0] = tables_[1] = tables_[2] = tables_[3] = nullptr;
  if (device_memory_) device_.release(device_memory_);
}

bool Rails::is_telling() {
  Hold hold(mutex_);
  return waits_->go_on_telling();
}

void Rails::close(bool is_orderly) {
  if (std::exchange(closed_, true)) return;
  reports_.set_others({});
  if (listed_) end_service(*this);
  store_release(&host_->released, 1);
  {
    Hold hold(mutex_);
    turn_.leave();
    exchanges_.clear();
    waits_->close();
  }
  for (const Peer& peer : peers_) static_cast<RailPeer&>(*peer.to).break_off();
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  while (!budget_.is_idle(this) && Clock::now() < deadline) {
    budget_.progress();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  budget_.abandon(this);
  // Else a partner may write there still.
  if (is_orderly) exposed_ = nullptr;
}

// ---- one round ---------------------------------------------------------------------------------------

Poller::Clock::duration Rails::look(Clock::time_point now) {
  bool moved = false, idle = false, served = false;
  {
    Hold hold(mutex_);
    moved = serve_all();
    look_for_trouble(now);
    idle = exchanges_.empty() || is_released();
    served = is_served_ && !is_released();
    if (idle && waits_->go_on_telling()) idle = false;
  }
  if (streams_serve_ && (idle || served)) return when_woken;
  budget_.progress_once(service_round());
  return back_off_.next(moved, budget_.network().is_moving(), now);
}

void Rails::failed(const char* why) noexcept { reports_.fail(why); }

bool Rails::serve() {
  const std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (!hold) return false;
  is_served_ = true;
  try {
    if (serve_all()) return true;
    budget_.progress();
    look_for_trouble(Clock::now());
    return serve_all();
  } catch (const Error& error) {
    reports_.fail(error.what());
    return false;
  }
}

void Rails::leave() {
  Hold hold(mutex_);
  is_served_ = false;
  if (!exchanges_.empty()) wake_service(*this);
}

bool Rails::serve_all() {
  if (is_released()) {
    turn_.leave();
    return false;
  }
  bool moved = false;
  take_tasks(&moved);
  if (hear()) moved = true;
  for (Exchange& exchange : exchanges_)
    if (send(exchange)) moved = true;
  if (announce()) moved = true;
  forget();
  return moved;
}

void Rails::take_tasks(bool* moved) {
  const Lane lane{places_.words->tasks, 2};
  for (Task task; take_task(lane, taken_ + 1, &task);) {
    if (task.what != task_of(TaskKind::rail)) throw Error(Fault::other, "streams post tasks that are not known");
    const std::uint64_t number = ++taken_;
    exchanges_.push_back({number, task, std::vector<bool>(peers_.size()), peers_.size(), {}, Clock::now()});
    for (std::uint32_t i = 0; i < places_.partners; ++i) places_.out_header(number, i)->word = task.word[rail_word];
    *moved = true;
  }
}

// ---- to send -----------------------------------------------------------------------------------------

bool Rails::send(Exchange& exchange) {
  bool moved = false;
  for (std::uint32_t i = 0; exchange.unsent > 0 && i < peers_.size(); ++i) {
    if (exchange.sent[i] || peers_[i].heard + 1 < exchange.number) continue;
    if (!send(exchange, i)) break;
    moved = true;
  }
  for (auto one = exchange.shipments.begin(); one != exchange.shipments.end();)
    one = (*one)->is_over() ? exchange.shipments.erase(one) : std::next(one);
  return moved;
}

/// False: not now.
bool Rails::send(Exchange& exchange, std::uint32_t partner) {
  const Peer& peer = peers_[partner];
  const std::uint64_t* const word = exchange.task.word;
  const bool with_data =
      word[rail_bytes] > 0 && shape_.partners()[partner].gets_from(static_cast<std::uint32_t>(word[rail_to]), partner);
  const std::uint32_t from = with_data && word[rail_same] != 0 ? 0 : partner;
  const RailHeader* const header = places_.out_header(exchange.number, from);
  // In the partner's memory all slots are as large.
  const std::uint64_t parity = exchange.number % 2;
  const std::uint64_t at = (parity * peer.slots + peer.position) * places_.slot();
  Shipment::Content content{peer.to, "data", exchange.number, {}, std::nullopt};
  content.writes.push_back({&header->word, source_.get(),
                            8 + (with_data ? sizeof header->unused + word[rail_bytes] : 0), peer.memory,
                            at + offsetof(RailHeader, word)});
  content.signal = NetworkSignal{NetworkSignal::Kind::set, exchange.number, peer.memory, at};
  auto shipment = Shipment::dispatch(budget_, this, std::move(content), turn_).shipment;
  if (!shipment) return false;
  exchange.sent[partner] = true;
  --exchange.unsent;
  exchange.shipments.push_back(std::move(shipment));
  return true;
}

// ---- to receive --------------------------------------------------------------------------------------

bool Rails::hear() {
  bool moved = false;
  for (std::uint32_t i = 0; i < peers_.size(); ++i)
    if (hear(peers_[i], i)) moved = true;
  return moved;
}

bool Rails::hear(Peer& peer, std::uint32_t partner) {
  const std::uint64_t next = peer.heard + 1;
  if (next > taken_) return false;
  const RailHeader* const header = places_.in_header(next, partner);
  if (load_acquire(&header->number) != next) return false;
  const auto exchange =
      std::find_if(exchanges_.begin(), exchanges_.end(), [next](const Exchange& one) { return one.number == next; });
  const std::uint64_t mine = exchange->task.word[rail_word];
  if (header->word != mine) {
    reports_.note_difference(
        CallDifference::of(static_cast<int>(shape_.partners()[partner].rank), header->word, team_->rank(), mine));
    return false;
  }
  peer.heard = next;
  return true;
}

bool Rails::needs(const Exchange& exchange, std::uint32_t partner) const {
  const std::uint64_t needed = exchange.task.word[rail_needs];
  return needed == rail_everybody || needed == partner;
}

bool Rails::has_arrived(const Exchange& exchange) const {
  for (std::uint32_t i = 0; i < peers_.size(); ++i)
    if (needs(exchange, i) && peers_[i].heard < exchange.number) return false;
  return std::all_of(exchanges_.begin(), exchanges_.end(),
                     [&](const Exchange& other) { return other.number >= exchange.number || other.has_left(); });
}

bool Rails::announce() {
  bool moved = false;
  for (const Exchange& exchange : exchanges_) {
    if (exchange.number <= arrived_) continue;
    if (is_released() || !has_arrived(exchange)) break;
    notes_.tell_wait(-1);
    store_release(&places_.words->arrived, arrived_ = exchange.number);
    moved = true;
  }
  return moved;
}

bool Rails::forget() {
  const auto is_over = [this](const Exchange& exchange) {
    return exchange.has_left() && exchange.number <= arrived_ &&
           std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.heard >= exchange.number; });
  };
  bool any = false;
  for (; !exchanges_.empty() && is_over(exchanges_.front()); any = true) exchanges_.pop_front();
  return any;
}

bool Rails::is_quiet(std::uint64_t exchanges) {
  Hold hold(mutex_);
  return taken_ >= exchanges && exchanges_.empty() && load_acquire(&places_.words->over) >= exchanges;
}

// ---- trouble -----------------------------------------------------------------------------------------

void Rails::look_for_trouble(Clock::time_point now) {
  if (now - looked_ < between_looks || is_released()) return;
  looked_ = now;
  for (std::uint32_t i = 0; i < peers_.size(); ++i)
    if (const CallDifference told = waits_->difference_of_partner(i); told.is_known())
      return reports_.note_difference(told);
  std::string trouble = budget_.network().failure();
  bool waits = false;
  Clock::time_point oldest = now;
  for (const Exchange& exchange : exchanges_)
    for (const auto& shipment : exchange.shipments) {
      if (trouble.empty()) trouble = shipment->failure();
      oldest = std::min(oldest, shipment->born());
      waits = true;
    }
  if (trouble.empty() && waits && patience_ > 0 &&
      std::chrono::duration<double>(now - std::max(oldest, probed_)).count() >= patience_) {
    probed_ = now;
    trouble = budget_.probe(this);
  }
  if (trouble.empty())
    note_missing(now);
  else
    reports_.fail(trouble);
}

/// For the reports: whom the exchange waits for that has not arrived; or, at the end, one that needed to hear from
/// nobody, and that others have not made.
void Rails::note_missing(Clock::time_point now) {
  auto waits = std::find_if(exchanges_.begin(), exchanges_.end(),
                            [this](const Exchange& exchange) { return exchange.number > arrived_; });
  const bool of_all = waits == exchanges_.end() && is_awaited_;
  if (of_all) waits = exchanges_.begin();
  if (waits == exchanges_.end() || now - waits->since < between_looks) return;
  ++beat_;
  const bool is_long = std::chrono::duration<double>(now - waits->since).count() >= patience_ / 8;
  for (std::uint32_t i = 0; i < peers_.size(); ++i) {
    const bool holds_back = std::any_of(exchanges_.begin(), waits, [i](const Exchange& one) { return !one.sent[i]; });
    if (!holds_back && ((!of_all && !needs(*waits, i)) || peers_[i].heard >= waits->number)) continue;
    const auto partner = static_cast<int>(shape_.partners()[i].rank);
    const int told = waits_->of_partner(i, peers_[i].heard);
    if (is_long) notes_.tell_wait(told >= 0 ? told : partner);
    reports_.note_wait(shape_.partners()[i].rank, collective_note(static_cast<std::uint32_t>(waits->number), beat_),
                       told);
  }
}

}  // namespace mpix
