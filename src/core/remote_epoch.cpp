// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "core/remote_epoch.h"

#include <algorithm>

#include "core/error.h"

namespace mpix {

namespace {

using Hold = std::lock_guard<std::mutex>;

void append(std::string& text, int rank, const std::string& what) {
  text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " " + what;
}

/// Counters are read by the host, too.
void set(std::uint64_t& counter, std::uint64_t epoch) { __atomic_store_n(&counter, epoch, __ATOMIC_RELEASE); }

}  // namespace

// ---- queueing ----------------------------------------------------------------------------------------

void RemoteOperations::add_post(RemotePeer& peer, std::uint64_t epoch) {
  Hold hold(mutex_);
  items_.emplace_back(peer, nullptr, epoch);
}

void RemoteOperations::add_send(const RemoteSend& send, std::uint64_t epoch) {
  Hold hold(mutex_);
  items_.emplace_back(*send.peer, &send, epoch);
}

void RemoteOperations::queue_ahead() {
  Hold hold(mutex_);
  for (Item& item : items_)
    if (!queue_stage(item)) return;
}

NetworkWrite RemoteOperations::write_of(const Item& item, std::size_t i) const {
  const RemoteSend& send = *item.send;
  const bool has_message = send.message_bytes > 0;
  if (!has_message || i > 0) return send.direct[i - (has_message ? 1 : 0)];
  const std::size_t slot = peers_->slot(item.epoch) * item.peer->slot_bytes;
  return {item.peer->staging + slot, peers_->staging_registration(), send.message_bytes, item.peer->control,
          item.peer->inbox_offset + slot};
}

NetworkSignal RemoteOperations::signal_of(const Item& item) const {
  const RemotePeer& peer = *item.peer;
  if (!item.send) return {NetworkSignal::Kind::add, 1, peer.control, peer.posted_offset};
  const std::uint64_t has_message = item.send->message_bytes > 0 ? 1 : 0;
  return {NetworkSignal::Kind::set, 2 * item.epoch + has_message, peer.control,
          peer.arrived_offset + 8 * peers_->slot(item.epoch)};
}

/// As much of the item as what is free allows; false when that is nothing. The signal comes with the last write, or
/// after it: it hangs on writes of its own stage, and a stage begins when the one before is at the peer.
bool RemoteOperations::queue_stage(Item& item) {
  if (free_.operations == 0 || free_.transfers == 0) return false;
  const std::size_t left = item.writes() - item.writes_queued;
  const std::size_t count = std::min(left, free_.operations);
  const bool last = count == left && free_.operations > count;
  scratch_.clear();
  for (std::size_t i = 0; i < count; ++i) scratch_.push_back(write_of(item, item.writes_queued + i));
  const NetworkSignal signal = signal_of(item);
  try {
    item.transfer = peers_->interconnect().network().queue(item.peer->connection, scratch_.data(), count,
                                                           last ? &signal : nullptr);
  } catch (const Error& error) {
    throw Error(error.fault(), item.peer->lost(error.what()));
  }
  item.stage = {count + (last ? 1 : 0), 1};
  item.writes_queued += count;
  item.signal_queued = last;
  free_.take(item.stage);
  return true;
}

void RemoteOperations::end_stage(Item& item) {
  item.transfer = nullptr;
  free_.add(item.stage);
  item.stage = {};
}

void RemoteOperations::recycle() {
  for (Item& item : items_)
    if ((item.state == State::served || given_up_) && item.transfer && item.transfer->finished()) end_stage(item);
}

Grant RemoteOperations::reclaim() {
  Hold hold(mutex_);
  recycle();
  const bool all_queued = given_up_ || std::all_of(items_.begin(), items_.end(), [](const Item& item) { return item.signal_queued; });
  if (!all_queued) return {};
  const Grant back = free_;
  held_.take(back);
  free_ = {};
  return back;
}

Grant RemoteOperations::held() const {
  Hold hold(mutex_);
  return held_;
}

std::string RemoteOperations::failure() {
  Hold hold(mutex_);
  if (!failure_.empty()) return failure_;
  for (Item& item : items_) {
    if (!item.transfer) continue;
    const std::string text = item.transfer->failure();
    if (!text.empty()) return item.peer->lost(text);
  }
  return "";
}

std::string RemoteOperations::probe() {
  std::string text = failure();
  Hold hold(mutex_);
  for (const Item& item : items_)
    if (text.empty() && (item.transfer || item.state != State::served)) text = peers_->probe(*item.peer);
  return text;
}

void RemoteOperations::give_up() {
  Hold hold(mutex_);
  given_up_ = true;
  for (Item& item : items_)
    if (item.transfer && item.transfer->cancel()) end_stage(item);
}

std::string RemoteOperations::missing() const {
  Hold hold(mutex_);
  std::string text;
  for (const Item& item : items_)
    if (item.transfer || item.state != State::served)
      append(text, item.peer->rank, std::string("has not been reached with the ") + (item.send ? "data" : "post") +
                                        " of epoch " + std::to_string(item.epoch));
  return text;
}

// ---- serving -----------------------------------------------------------------------------------------

bool RemoteOperations::serve(std::size_t first, std::size_t end) {
  Hold hold(mutex_);
  bool moved = false;
  for (std::size_t i = first; i < end; ++i)
    if (items_[i].state != State::served && try_to_serve(items_[i])) moved = true;
  return moved;
}

/// In the thread of a stream, which has nobody to throw to.
bool RemoteOperations::try_to_serve(Item& item) {
  if (given_up_ || !failure_.empty()) return false;
  try {
    return serve(item);
  } catch (const Error& error) {
    failure_ = error.what();
    return false;
  }
}

bool RemoteOperations::is_ready(const Item& item) const {
  if (!item.send) return true;
  return peers_->has_credit(*item.peer, item.epoch) &&
         (!item.send->awaits_post() || RemotePeers::is_exposed(*item.peer, item.epoch));
}

bool RemoteOperations::serve(Item& item) {
  if (item.state == State::waiting) {
    if (!is_ready(item)) return false;
    if (item.send && item.send->message_bytes > 0)
      RemoteMessage::gather(item.peer->staging + peers_->slot(item.epoch) * item.peer->slot_bytes, item.send->gathered);
    item.state = State::ready;
  }
  if (item.state == State::moving) {
    // Where all of it was gathered, the origin buffers were free at the start.
    if (!(item.signal_queued ? item.transfer->delivered() : item.transfer->finished())) return false;
    if (item.signal_queued) {
      note_served(item);
      item.state = State::served;
      return true;
    }
    end_stage(item);
    item.state = State::ready;
  }
  if (!item.transfer) {
    recycle();
    if (!queue_stage(item)) return false;
  }
  item.transfer->start();
  const bool origin_is_free = !item.send || item.send->direct.empty();
  if (item.signal_queued && origin_is_free) {
    note_served(item);
    item.state = State::served;
  } else {
    item.state = State::moving;
  }
  return true;
}

void RemoteOperations::note_served(const Item& item) { set(item.send ? item.peer->sent : item.peer->opened, item.epoch); }

bool RemoteOperations::served(std::size_t first, std::size_t end) const {
  Hold hold(mutex_);
  return std::all_of(items_.begin() + static_cast<std::ptrdiff_t>(first), items_.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Item& item) { return item.state == State::served; });
}

void RemoteOperations::describe(std::size_t first, std::size_t end, std::string& text) const {
  Hold hold(mutex_);
  for (std::size_t i = first; i < end; ++i) {
    const Item& item = items_[i];
    const auto epoch = [&](std::uint64_t number) { return "access epoch " + std::to_string(number); };
    switch (item.state) {
      case State::served: break;
      case State::waiting:
        append(text, item.peer->rank,
               "has not posted " + epoch(peers_->has_credit(*item.peer, item.epoch) ? item.epoch
                                                                                    : item.epoch - peers_->depth() + 1));
        break;
      case State::ready:
      case State::moving: append(text, item.peer->rank, "has not been reached with the data of " + epoch(item.epoch)); break;
    }
  }
}

// ---- receiving ---------------------------------------------------------------------------------------

bool RemoteReceives::look() {
  const auto gone = std::remove_if(pending_.begin(), pending_.end(), [this](const Item& item) {
    RemotePeer& peer = *item.peer;
    const std::size_t slot = peers_->slot(item.epoch);
    const std::uint64_t arrived = load_acquire(&peer.arrived[slot]);
    if (arrived / 2 < item.epoch) return false;
    // The slot is free again when this rank posts anew (remote_peers.h).
    if (arrived % 2) RemoteMessage::scatter(peer.inbox + slot * peers_->slot_bytes(), peers_->window());
    set(peer.closed, item.epoch);
    return true;
  });
  const bool moved = gone != pending_.end();
  pending_.erase(gone, pending_.end());
  return moved;
}

std::string RemoteReceives::probe() {
  std::string text = failure();
  for (const Item& item : pending_)
    if (text.empty()) text = peers_->probe(*item.peer);
  return text;
}

void RemoteReceives::describe(std::string& text) const {
  for (const Item& item : pending_)
    append(text, item.peer->rank, "has not completed exposure epoch " + std::to_string(item.epoch));
}

}  // namespace mpix
