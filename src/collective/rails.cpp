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
#include "collective/rail_rounds.h"

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

/// For trouble; and a wait is worth a note when it has lasted as long.
constexpr auto between_looks = std::chrono::milliseconds(50);

/// A partner, as shipments know it.
class Partner final : public Recipient {
 public:
  Partner(std::shared_ptr<const Team> team, OperationBudget& budget, int rank, RemoteMemory memory,
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

/// Slots; what partners tell for reports; and where exchanges go in rounds, what is told in them, and gathered.
std::uint64_t Rails::in_bytes() const {
  return slots_and_notes_bytes() + told_bytes() + std::uint64_t{2} * places_.nodes * places_.node_bytes;
}
std::uint64_t Rails::slots_and_notes_bytes() const {
  return (places_.slots_bytes() + places_.partners * sizeof(CollectiveNote) + 63) / 64 * 64;
}
std::uint64_t Rails::told_bytes() const {
  return places_.rounds > 0 ? RailRounds(places_.nodes, places_.node).told_bytes() : 0;
}

void Rails::allocate(std::size_t slot_bytes, std::size_t node_bytes) {
  RailPlaces& p = places_ = shape_.places(slot_bytes, node_bytes);
  const std::uint64_t all = sizeof(RailWords) + out_bytes() + in_bytes();
  memory_ = device_.allocate_pinned(all);
  p.words = reinterpret_cast<RailWords*>(memory_.get());
  p.out = memory_.get() + sizeof(RailWords);
  p.in = p.out + out_bytes();
  p.gathered = p.in + slots_and_notes_bytes() + told_bytes();
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
             const Size& size, CollectiveWords* host, CollectiveReports& reports, NodeNotes& notes)
    : team_(std::move(team)),
      device_(device),
      budget_(budget),
      host_(host),
      reports_(reports),
      notes_(notes),
      shape_(*team_, team_->rank()),
      streams_serve_(device.serves_remote_work()),
      patience_(reports.patience()),
      sender_{budget, this, nullptr, nullptr} {
  budget_.begin();
  allocate(shape_.slot_bytes(size.scratch), shape_.node_bytes(size.scratch, size.rounds_above));
  exposed_ = budget_.network().expose(places_.in, in_bytes());
  sender_.out = budget_.network().register_source(places_.out, out_bytes());
  if (places_.rounds > 0) sender_.in = budget_.network().register_source(places_.in, in_bytes());
  const std::vector<RemoteMemory> all = bootstrap.allgather(exposed_->remote());
  std::vector<RailPeer> peers;
  std::vector<RailWaits::Listener> listeners;
  for (const RailPartner& partner : shape_.partners()) {
    const int rank = static_cast<int>(partner.rank);
    const RailShape::Position there = shape_.position_with(*team_, partner);
    RailPeer peer{nullptr, all[partner.rank], there.position, there.partners};
    peer.to = std::make_shared<Partner>(team_, budget_, rank, peer.memory,
                                        peer.position * places_.slot() + offsetof(RailHeader, unused), memory_);
    listeners.push_back({peer.to, peer.memory,
                         std::uint64_t{2} * peer.slots * places_.slot() + peer.position * sizeof(CollectiveNote)});
    peers.push_back(std::move(peer));
  }
  meeting_ = (places_.rounds > 0 ? RailMeeting::in_rounds : RailMeeting::of_all)(
      shape_, places_, std::move(peers), sender_,
      [this](std::uint32_t partner, std::uint64_t theirs, std::uint64_t mine) {
        reports_.note_difference(
            CallDifference::of(static_cast<int>(shape_.partners()[partner].rank), theirs, team_->rank(), mine));
      });
  waits_ = std::make_unique<RailWaits>(
      budget_, this, reinterpret_cast<const CollectiveNote*>(places_.in + places_.slots_bytes()),
      reinterpret_cast<CallDifference*>(places_.out + places_.slots_bytes()), sender_.out, std::move(listeners));
  reports_.set_others({[this](std::uint32_t rank) {
                         Hold hold(mutex_);
                         if (!is_released()) (void)waits_->tell(taken_, rank, meeting_->listeners());
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
    sender_.turn.leave();
    exchanges_.clear();
    waits_->close();
  }
  for (const RailPeer& peer : meeting_->peers()) static_cast<Partner&>(*peer.to).break_off();
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  while (!budget_.is_idle(this) && Clock::now() < deadline) {
    budget_.progress();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  budget_.abandon(this);
  // Else a partner may write there still.
  if (is_orderly) exposed_ = nullptr;
}

// ---- one look ----------------------------------------------------------------------------------------

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
    sender_.turn.leave();
    return false;
  }
  bool moved = false;
  take_tasks(&moved);
  if (meeting_->hear(exchanges_)) moved = true;
  if (meeting_->send(exchanges_)) moved = true;
  for (RailExchange& exchange : exchanges_)
    exchange.shipments.remove_if([](const auto& shipment) { return shipment->is_over(); });
  if (announce()) moved = true;
  forget();
  return moved;
}

void Rails::take_tasks(bool* moved) {
  const Lane lane{places_.words->tasks, 2};
  for (Task task; take_task(lane, taken_ + 1, &task);) {
    if (task.what != task_of(TaskKind::rail)) throw Error(Fault::other, "streams post tasks that are not known");
    const std::uint64_t number = ++taken_;
    exchanges_.push_back({number, task, Clock::now(), {}, {}, {}});
    meeting_->take(exchanges_.back());
    *moved = true;
  }
}

// ---- what has come -----------------------------------------------------------------------------------

bool Rails::has_arrived(const RailExchange& exchange) const {
  return meeting_->has_come(exchange) &&
         std::all_of(exchanges_.begin(), exchanges_.end(), [&](const RailExchange& other) {
           return other.number >= exchange.number || meeting_->has_left(other);
         });
}

bool Rails::announce() {
  bool moved = false;
  for (const RailExchange& exchange : exchanges_) {
    if (exchange.number <= arrived_) continue;
    if (is_released() || !has_arrived(exchange)) break;
    notes_.tell_wait(-1);
    store_release(&places_.words->arrived, arrived_ = exchange.number);
    moved = true;
  }
  return moved;
}

bool Rails::forget() {
  const auto is_over = [this](const RailExchange& exchange) {
    return exchange.number <= arrived_ && meeting_->has_left(exchange) && meeting_->is_met(exchange);
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
  for (std::uint32_t i = 0; i < meeting_->peers().size(); ++i)
    if (const CallDifference told = waits_->difference_of_partner(i); told.is_known())
      return reports_.note_difference(told);
  std::string trouble = budget_.network().failure();
  bool waits = false;
  Clock::time_point oldest = now;
  for (const RailExchange& exchange : exchanges_)
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
                            [this](const RailExchange& exchange) { return exchange.number > arrived_; });
  const bool of_all = waits == exchanges_.end() && is_awaited_;
  if (of_all) waits = exchanges_.begin();
  if (waits == exchanges_.end() || now - waits->since < between_looks) return;
  ++beat_;
  const bool is_long = std::chrono::duration<double>(now - waits->since).count() >= patience_ / 8;
  struct {
    std::uint64_t begun;
    int missing, told;
  } first{0, -1, -1};
  meeting_->missing(exchanges_, *waits, of_all, [&](std::uint32_t i, std::uint64_t begun) {
    const auto partner = static_cast<int>(shape_.partners()[i].rank);
    const int told = waits_->of_partner(i, begun), missing = told >= 0 ? told : partner;
    if (is_long) notes_.tell_wait(missing);
    if (first.missing < 0 || (first.told < 0 && told >= 0 && begun == first.begun)) first = {begun, missing, told};
    reports_.note_wait(shape_.partners()[i].rank, collective_note(static_cast<std::uint32_t>(waits->number), beat_),
                       told);
  });
  // In rounds others wait to hear from this rank what it waits for itself. Nobody reads it where nothing is reported.
  const std::pair<std::uint64_t, int> news{first.begun, first.missing};
  if (places_.rounds == 0 || !is_long || patience_ <= 0 || first.missing < 0 || news == told_) return;
  if (waits_->tell(news.first, static_cast<std::uint32_t>(news.second), meeting_->listeners())) told_ = news;
}

}  // namespace mpix
