// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Of Courier: what becomes of messages that come.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "base/log.h"
#include "domain/courier.h"
#include "domain/far_message.h"

namespace mpix {
namespace {

constexpr std::size_t most_deliveries = 64;

}  // namespace

// ---- messages ----------------------------------------------------------------------------------------

bool Courier::receive(Peer& peer) {
  bool moved = false;
  while (peer.deliveries.size() < most_deliveries) {
    const FarMessage* const message = peer.link->next();
    if (!message) break;
    Delivery delivery{};
    delivery.message = *message;
    begin(peer, *message, delivery);
    peer.deliveries.push_back(delivery);
    moved = true;
  }
  return moved;
}

/// Where its bytes are, or belong. Null: that is outside of the target's part, and said.
char* Courier::target_of(const Peer& peer, const FarMessage& message) {
  const std::uint64_t displacement = message.word[dev::far_displacement], bytes = message.word[dev::far_bytes];
  const std::uint32_t window = dev::window_of(message.word[dev::far_what]);
  const std::uint32_t here = rank_in(message.word[dev::far_route]) - first_rank();
  const auto known = parts_.find(window);
  if (known != parts_.end() && here < known->second.size()) {
    const dev::WindowEntry& part = known->second[here];
    static char nothing;
    if (part.present > displacement && bytes < part.present - displacement)
      return part.base ? part.base + displacement : &nothing;
  }
  log(LogLevel::warn, "domain: process " + std::to_string(peer.link->process()) + " has put " + std::to_string(bytes) +
                          " bytes at " + std::to_string(displacement) + " of window " + std::to_string(window) +
                          ", outside of the part of rank " + std::to_string(rank_in(message.word[dev::far_route])));
  return nullptr;
}

/// Starts its copies.
void Courier::begin(Peer& peer, const FarMessage& message, Delivery& delivery) {
  FarLink& link = *peer.link;
  ++peer.come;
  const FarMessage copy = message;
  const char* const entry = reinterpret_cast<const char*>(&message.word[dev::far_displacement]);
  const std::uint64_t data = link.begin_next();
  delivery.end = data + dev::far_round(copy.bytes);
  if (copy.kind == kind_of_message(TaskKind::far_put)) {
    char* to = target_of(peer, copy);
    delivery.is_wrong = to == nullptr;
    for (const FarLink::Piece& piece : link.in(data, to ? copy.bytes : 0).piece) {
      if (piece.bytes == 0) continue;
      delivery.copy = copier_->start(to, piece.at, piece.bytes);
      to += piece.bytes;
    }
  } else if (copy.kind == kind_of_message(TaskKind::far_get)) {
    peer.gets.push_back(Get{copy, peer.come, 0, 0, false});
  } else if (copy.kind == kind_of_message(TaskKind::far_window)) {
    // As it stands in the message: no base, and the size.
    static_assert(sizeof(dev::WindowEntry) == 16 && dev::far_bytes == dev::far_displacement + 1, "side by side");
    const std::uint64_t ranks = domain_.first_ranks.back();
    const std::uint64_t index =
        std::uint64_t{dev::window_of(copy.word[dev::far_what])} * ranks + dev::source_of(copy.word[dev::far_what]);
    delivery.copy = copier_->start(domain_.segment + domain_.windows_at + index * sizeof(dev::WindowEntry), entry,
                                   sizeof(dev::WindowEntry));
    if (const std::uint64_t call = copy.word[dev::far_place]; call != 0)
      delivery.copy = copier_->start(domain_.segment + domain_.window_calls_at +
                                         dev::window_call_index(dev::world, dev::barrier_of(call),
                                                                dev::source_of(copy.word[dev::far_what]), ranks) *
                                             sizeof call,
                                     &message.word[dev::far_place], sizeof call);
  }
}

/// Reads, behind the copies of what has come before, for those for whose replies there is room.
bool Courier::begin_gets(Peer& peer) {
  FarLink& link = *peer.link;
  bool moved = false;
  for (; !peer.gets.empty(); peer.gets.pop_front(), moved = true) {
    Get get = peer.gets.front();
    const std::uint64_t bytes = get.message.word[dev::far_bytes];
    if (!link.has_room(bytes)) break;
    FarMessage reply{};
    reply.kind = reply_kind;
    std::copy_n(get.message.word, 6, reply.word);
    reply.bytes = static_cast<std::uint32_t>(bytes);
    get.reply = link.sent_so_far();
    const std::uint64_t data = link.append(reply);
    link.hold(get.reply);
    const char* from = target_of(peer, get.message);
    get.is_wrong = from == nullptr;
    for (const FarLink::Piece& piece : link.out(data, from ? bytes : 0).piece) {
      if (piece.bytes == 0) continue;
      get.copy = copier_->start(piece.at, from, piece.bytes);
      from += piece.bytes;
    }
    peer.reads.push_back(get);
  }
  return moved;
}

/// Their notifications come behind those of what was before.
bool Courier::end_gets(Peer& peer, std::uint64_t copied) {
  bool moved = false;
  for (; !peer.reads.empty(); peer.reads.pop_front(), moved = true) {
    const Get& get = peer.reads.front();
    if (get.copy > copied || get.number > peer.dealt_with) break;
    const std::uint64_t* const word = get.message.word;
    const std::uint64_t bytes = word[dev::far_bytes] + word[dev::far_before];
    const bool notifies = (word[dev::far_route] & dev::far_notifies) != 0 && !get.is_wrong;
    if (notifies && !tell(rank_in(word[dev::far_route]), word[dev::far_what], dev::how_of(dev::was_read, bytes))) break;
    peer.link->let_go(get.reply);
  }
  return moved;
}

bool Courier::deliver(Peer& peer) {
  if (peer.deliveries.empty() && peer.reads.empty()) return false;
  const std::uint64_t copied = copier_->finished();
  bool moved = false;
  while (!peer.deliveries.empty() && peer.deliveries.front().copy <= copied && end(peer, peer.deliveries.front())) {
    peer.link->free_until(peer.deliveries.front().end);
    peer.deliveries.pop_front();
    ++peer.dealt_with;
    moved = true;
  }
  return end_gets(peer, copied) || moved;
}

/// False: not now.
bool Courier::end(Peer& peer, const Delivery& delivery) {
  const FarMessage& message = delivery.message;
  const std::uint64_t* const word = message.word;
  const bool notifies = (word[dev::far_route] & dev::far_notifies) != 0 && !delivery.is_wrong;
  if (message.kind == kind_of_message(TaskKind::far_put)) {
    // Of a put that went in pieces: all of it.
    const std::uint64_t bytes = word[dev::far_bytes] + word[dev::far_before];
    return !notifies || tell(rank_in(word[dev::far_route]), word[dev::far_what], dev::how_of(dev::direct, bytes));
  }
  if (message.kind == reply_kind) {
    const std::uint64_t data = delivery.end - dev::far_round(message.bytes);
    const std::uint64_t place = word[dev::far_place];
    std::uint64_t done = 0;
    for (const FarLink::Piece& piece : peer.link->in(data, message.bytes).piece)
      for (std::uint64_t i = 0; i < piece.bytes;) {
        const std::uint64_t at = (place + done) % dev::far_data_bytes;
        const std::uint64_t part = std::min(piece.bytes - i, dev::far_data_bytes - at);
        std::memcpy(data_ + at, piece.at + i, part);
        i += part, done += part;
      }
    const std::uint32_t here = dev::source_of(word[dev::far_what]) - first_rank();
    store_release(&ranks_[here].replies, load_relaxed(&ranks_[here].replies) + 1);
    domain_.wake_rank(here);
    return true;
  }
  if (message.kind == kind_of_message(TaskKind::far_flush)) {
    peer.link->answer_soon();
  } else if (message.kind == kind_of_message(TaskKind::far_barrier)) {
    peer.barriers = word[dev::far_route];
    std::uint64_t all = UINT64_MAX;
    for (const Peer& other : peers_)
      if (other.has_ranks) all = std::min(all, other.barriers);
    if (all > went_) {
      store_release(&words_->go, went_ = all);
      domain_.wake_process();
    }
  }
  return true;
}

// ---- the lanes of ranks here -------------------------------------------------------------------------

/// False: there is no room, nor may more wait for some.
bool Courier::tell(std::uint32_t rank, std::uint64_t what, std::uint64_t how) {
  const std::uint32_t here = rank - first_rank();
  RankLane& lane = lanes_[here];
  if (lane.waiting.size() >= domain_.most_pending) return false;
  if (lane.waiting.empty()) filling_.push_back(here);
  lane.waiting.push_back({what, how});
  fill_lane(here);
  return true;
}

void Courier::fill_lane(std::uint32_t rank_here) {
  RankLane& lane = lanes_[rank_here];
  dev::FarRank& rank = ranks_[rank_here];
  bool any = false;
  while (!lane.waiting.empty() &&
         lane.written + dev::entry_lines <= load_acquire(&rank.lines_read) + dev::far_lane_lines) {
    const Told& told = lane.waiting.front();
    write_entry(rank.lines + (lane.written & (dev::far_lane_lines - 1)), told.what, told.how,
                dev::lap_of_line(lane.written, dev::far_lane_shift));
    lane.written += dev::entry_lines;
    lane.waiting.pop_front();
    any = true;
  }
  if (any) domain_.wake_rank(rank_here);
}

bool Courier::fill_lanes() {
  if (filling_.empty()) return false;
  for (const std::uint32_t here : filling_) fill_lane(here);
  const auto empty = [this](std::uint32_t here) { return lanes_[here].waiting.empty(); };
  const std::size_t before = filling_.size();
  filling_.erase(std::remove_if(filling_.begin(), filling_.end(), empty), filling_.end());
  return filling_.size() != before;
}

std::uint64_t Courier::waiting() const {
  const std::lock_guard<std::mutex> hold(mutex_);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    count += lanes_[i].waiting.size() + (lanes_[i].written - load_acquire(&ranks_[i].lines_read)) / dev::entry_lines;
  return count;
}

}  // namespace mpix
