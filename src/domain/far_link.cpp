// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/far_link.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "mpix_device/memory.h"

namespace mpix {
namespace {

/// What one transfer carries as long as more than one message fits; and how many are under way at a time.
constexpr std::uint64_t usual_transfer_bytes = 128 << 10;
constexpr std::size_t most_under_way = 4;

std::uint64_t whole(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

FarLink::FarLink(int process, std::shared_ptr<Recipient> to, std::shared_ptr<FarRings> rings, Device& device,
                 OperationBudget& budget, const void* owner, FarDoorstep& own, RemoteMemory doorsteps,
                 std::uint64_t offset)
    : process_(process),
      to_(std::move(to)),
      rings_(std::move(rings)),
      device_(device),
      budget_(budget),
      owner_(owner),
      own_(own),
      doorsteps_(doorsteps),
      offset_(offset) {}

FarLink::Range FarLink::range(char* ring, std::uint64_t position, std::uint64_t bytes) {
  const std::uint64_t at = position % ring_bytes, first = std::min(bytes, ring_bytes - at);
  return {{{ring + at, first}, {ring, bytes - first}}};
}

// ---- to send -----------------------------------------------------------------------------------------

std::uint64_t FarLink::dealt_with() const { return load_acquire(&own_.freed); }

bool FarLink::has_room(std::uint64_t bytes) {
  wants_ring_ = true;
  if (load_acquire(&own_.told) == 0) return false;
  if (!rings_->out) {
    rings_->out = device_.allocate_pinned(ring_bytes);
    rings_->out_source = budget_.network().register_source(rings_->out.get(), ring_bytes);
  }
  // Memory that the network still reads is not written again, though the other side has dealt with it.
  const std::uint64_t free = std::min(dealt_with(), left_);
  return appended_ + sizeof(FarMessage) + whole(bytes) <= free + ring_bytes;
}

std::uint64_t FarLink::append(FarMessage message) {
  message.number = appended_ / sizeof(FarMessage) + 1;
  std::memcpy(out(appended_, sizeof message).piece[0].at, &message, sizeof message);
  const std::uint64_t data = appended_ + sizeof message;
  appended_ = data + whole(message.bytes);
  ends_.push_back(appended_);
  return data;
}

void FarLink::copy_in(std::uint64_t position, const char* from, std::uint64_t bytes) const {
  for (const Piece& piece : out(position, bytes).piece) {
    if (piece.bytes > 0) std::memcpy(piece.at, from, piece.bytes);
    from += piece.bytes;
  }
}

// ---- to receive --------------------------------------------------------------------------------------

const FarMessage* FarLink::next() const {
  if (!rings_->in) return nullptr;
  const auto* const message = reinterpret_cast<const FarMessage*>(in(read_, sizeof(FarMessage)).piece[0].at);
  return load_acquire(&message->number) == read_ / sizeof(FarMessage) + 1 ? message : nullptr;
}

std::uint64_t FarLink::begin_next() {
  const std::uint64_t bytes = next()->bytes, data = read_ + sizeof(FarMessage);
  read_ = data + whole(bytes);
  return data;
}

void FarLink::free_until(std::uint64_t position) {
  // What lay there may look like the number of a message to come.
  for (; freed_ < position; freed_ += sizeof(FarMessage)) std::memset(in(freed_, 8).piece[0].at, 0, 8);
}

// ---- by turns ----------------------------------------------------------------------------------------

bool FarLink::serve() {
  bool moved = end_shipments();
  if (ask()) moved = true;
  if (tell()) moved = true;
  if (tell_freed()) moved = true;
  while (send()) moved = true;
  return moved;
}

bool FarLink::end_shipments() {
  // All of them: each may have another stage to queue.
  for (const Sending& one : sending_) (void)one.shipment->is_over();
  bool moved = false;
  while (!sending_.empty() && sending_.front().shipment->is_over()) {
    left_ = sending_.front().end;
    sending_.pop_front();
    moved = true;
  }
  for (auto one = signals_.begin(); one != signals_.end();) {
    const bool over = (*one)->is_over();
    moved = moved || over;
    one = over ? signals_.erase(one) : std::next(one);
  }
  return moved;
}

bool FarLink::ask() {
  if (!wants_ring_ || has_asked_) return false;
  auto shipment = dispatch({to_, "question", 1, {}, signal(offsetof(FarDoorstep, asked), 1)}, signal_turn_);
  if (!shipment) return false;
  has_asked_ = true;
  signals_.push_back(std::move(shipment));
  return true;
}

bool FarLink::tell() {
  if (has_told_ || load_acquire(&own_.asked) == 0) return false;
  if (!rings_->in) {
    const std::size_t in_front = sizeof(FarMessage);
    const std::shared_ptr<char> memory = device_.allocate_pinned(in_front + ring_bytes);
    rings_->in_source = budget_.network().register_source(memory.get(), in_front);
    rings_->in_exposed = budget_.network().expose(memory.get() + in_front, ring_bytes);
    rings_->told = std::shared_ptr<RemoteMemory>(memory, reinterpret_cast<RemoteMemory*>(memory.get()));
    *rings_->told = rings_->in_exposed->remote();
    rings_->in = std::shared_ptr<char>(memory, memory.get() + in_front);
  }
  const NetworkWrite write{rings_->told.get(), rings_->in_source.get(), sizeof *rings_->told, doorsteps_,
                           offset_ + offsetof(FarDoorstep, ring)};
  auto shipment = dispatch({to_, "answer", 1, {write}, signal(offsetof(FarDoorstep, told), 1)}, signal_turn_);
  if (!shipment) return false;
  has_told_ = true;
  signals_.push_back(std::move(shipment));
  return true;
}

bool FarLink::tell_freed() {
  if (freed_ == told_freed_ || (freed_ - told_freed_ < ring_bytes / 4 && !answers_)) return false;
  // One behind the other: the word is what the last one says.
  if (!signals_.empty()) return false;
  auto shipment = dispatch({to_, "answer", 2, {}, signal(offsetof(FarDoorstep, freed), freed_)}, signal_turn_);
  if (!shipment) return false;
  told_freed_ = freed_;
  answers_ = false;
  signals_.push_back(std::move(shipment));
  return true;
}

bool FarLink::send() {
  if (sending_.size() >= most_under_way) return false;
  const std::uint64_t ready = held_.empty() ? appended_ : *held_.begin();
  std::size_t count = 0;
  std::uint64_t end = sent_;
  for (; count < ends_.size() && ends_[count] <= ready; ++count) {
    if (count > 0 && ends_[count] - sent_ > usual_transfer_bytes) break;
    end = ends_[count];
  }
  if (end == sent_) return false;
  Shipment::Content content{to_, "data", sent_ / sizeof(FarMessage) + 1, {}, std::nullopt};
  // The number of the first message is the signal.
  const RemoteMemory& ring = own_.ring;
  for (const Piece& piece : out(sent_ + 8, end - sent_ - 8).piece)
    if (piece.bytes > 0)
      content.writes.push_back({piece.at, rings_->out_source.get(), piece.bytes, ring,
                                static_cast<std::uint64_t>(piece.at - rings_->out.get())});
  content.signal = NetworkSignal{NetworkSignal::Kind::set, sent_ / sizeof(FarMessage) + 1, ring, sent_ % ring_bytes};
  auto shipment = dispatch(std::move(content), send_turn_);
  if (!shipment) return false;
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(count));
  sent_ = end;
  sending_.push_back({std::move(shipment), end});
  return true;
}

/// Null: not now.
std::shared_ptr<Shipment> FarLink::dispatch(Shipment::Content content, OperationBudget::Turn& turn) {
  return Shipment::dispatch(budget_, owner_, std::move(content), turn).shipment;
}

void FarLink::leave_lines() {
  send_turn_.leave();
  signal_turn_.leave();
}

std::string FarLink::failure() const {
  for (const Sending& one : sending_)
    if (std::string text = one.shipment->failure(); !text.empty()) return text;
  for (const auto& one : signals_)
    if (std::string text = one->failure(); !text.empty()) return text;
  return "";
}

bool FarLink::oldest(Poller::Clock::time_point* since) const {
  bool any = false;
  const auto note = [&](Poller::Clock::time_point when) {
    *since = any ? std::min(*since, when) : when;
    any = true;
  };
  for (const Sending& one : sending_) note(one.shipment->born());
  for (const auto& one : signals_) note(one->born());
  for (const auto* turn : {&send_turn_, &signal_turn_})
    if (turn->since()) note(*turn->since());
  return any;
}

}  // namespace mpix
