// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/remote_epoch.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "net/shipment.h"
#include "wire/missing_ranks.h"

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
  // What may ride is queued when it turns out that it does not; it must be able to then, come what may.
  std::size_t operations = 0;
  for (const Item& item : items_) operations += item.writes() + 1;
  const bool all_granted = free_.operations >= operations && free_.transfers >= items_.size();
  for (Item& item : items_) {
    item.may_ride = !item.send && !RemotePeers::tells(item.epoch) && all_granted && peers_->may_ride(*item.peer);
    if (item.may_ride || !knows_where(item)) continue;
    if (!queue_stage(item)) return;
  }
}

/// A post goes to a table that is known; of all else the first post of the peer tells. What is queued then is queued by
/// the stream.
bool RemoteOperations::knows_where(const Item& item) const { return !item.send || peers_->has_told(*item.peer); }

NetworkWrite RemoteOperations::write_of(const Item& item, std::size_t i) const {
  if (!item.send) return peers_->tell(*item.peer);
  const RemoteSend& send = *item.send;
  const bool has_message = send.has_message();
  if (has_message && i == 0)
    return peers_->message_to(*item.peer, peers_->slot(item.epoch), send.marked ? 8 * send.words() : send.message_bytes,
                              send.marked);
  NetworkWrite write = send.direct[i - (has_message ? 1 : 0)];
  write.memory = peers_->window_of(*item.peer);
  return write;
}

void RemoteOperations::write_message(const Item& item) {
  const RemoteSend& send = *item.send;
  char* const buffer = item.peer->gather_buffer + peers_->slot(item.epoch) * item.peer->slot_bytes;
  if (!send.marked) {
    RemoteMessage::gather(buffer, send.gathered);
    return;
  }
  thread_local std::vector<char> data;
  data.resize(send.message_bytes);
  if (send.message_bytes > 0) RemoteMessage::gather(data.data(), send.gathered);
  const MarkedMessage::Front front{static_cast<std::uint32_t>(send.words()), peers_->give_ride(*item.peer)};
  MarkedMessage::write(reinterpret_cast<std::uint64_t*>(buffer), front, data.data(), data.size());
}

NetworkSignal RemoteOperations::signal_of(const Item& item) const {
  if (!item.send) return peers_->post_to(*item.peer, item.epoch);
  const std::uint64_t has_message = item.send->message_bytes > 0 ? 1 : 0;
  return peers_->arrival_at(*item.peer, peers_->slot(item.epoch), 2 * item.epoch + has_message);
}

/// As much of the item as what is free allows; false when that is nothing.
bool RemoteOperations::queue_stage(Item& item) {
  const NetworkSignal signal = item.has_signal() ? signal_of(item) : NetworkSignal{};
  try {
    return item.transfer.queue(
        peers_->budget().network(), item.peer->connection, item.writes(),
        [&](std::size_t i) { return write_of(item, i); }, item.has_signal() ? &signal : nullptr, free_);
  } catch (const Error& error) {
    throw Error(error.fault(), lost(item.peer->name(), error.what()));
  }
}

void RemoteOperations::end_stage(Item& item) {
  moved_ = true;
  item.transfer.end_stage(free_);
}

void RemoteOperations::recycle() {
  for (Item& item : items_)
    if ((item.state == State::served || given_up_) && item.transfer.has_stage() && item.transfer.finished())
      end_stage(item);
}

// ---- posts that ride ---------------------------------------------------------------------------------

void RemoteOperations::post_rides(std::size_t index) {
  Hold hold(mutex_);
  items_[index].state = State::served;
  items_[index].transfer.leave_out();
}

bool RemoteOperations::send_post(std::size_t index) {
  Hold hold(mutex_);
  Item& item = items_[index];
  try {
    if (!given_up_) {
      queue_stage(item);
      item.transfer.start();
    }
  } catch (const Error& error) {
    // Its part of the budget is reserved, so the room is somebody else's for a moment.
    if (error.fault() == Fault::memory) return false;
    failure_ = error.what();
  }
  item.state = State::served;
  return true;
}

// ---- the budget --------------------------------------------------------------------------------

Grant RemoteOperations::reclaim() {
  Hold hold(mutex_);
  recycle();
  const bool all_queued = given_up_ || std::all_of(items_.begin(), items_.end(),
                                                   [](const Item& item) { return item.transfer.all_queued(); });
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

std::size_t RemoteOperations::with_data() const {
  Hold hold(mutex_);
  return !items_.empty() && items_.front().send ? held_.operations : 0;
}

std::string RemoteOperations::failure() {
  Hold hold(mutex_);
  if (!failure_.empty()) return failure_;
  for (Item& item : items_) {
    if (!item.transfer.has_stage()) continue;
    const std::string text = item.transfer.failure();
    if (!text.empty()) return lost(item.peer->name(), text);
  }
  return "";
}

std::string RemoteOperations::probe() {
  std::string text = failure();
  Hold hold(mutex_);
  for (const Item& item : items_)
    if (text.empty() && (item.transfer.has_stage() || item.state != State::served)) text = peers_->probe(*item.peer);
  return text;
}

void RemoteOperations::give_up() {
  Hold hold(mutex_);
  given_up_ = true;
  for (Item& item : items_)
    if (item.transfer.has_stage() && item.transfer.cancel()) end_stage(item);
}

std::string RemoteOperations::missing() const {
  Hold hold(mutex_);
  std::string text;
  for (const Item& item : items_)
    if (item.at_hand && (item.transfer.has_stage() || item.state != State::served))
      append(text, item.peer->rank,
             std::string("has not been reached with the ") + (item.send ? "data" : "post") + " of epoch " +
                 std::to_string(item.epoch));
  return text;
}

bool RemoteOperations::moved() {
  Hold hold(mutex_);
  return std::exchange(moved_, false);
}

// ---- serving -----------------------------------------------------------------------------------------

bool RemoteOperations::serve(std::size_t first, std::size_t end) {
  Hold hold(mutex_);
  bool moved = false;
  for (std::size_t i = first; i < end; ++i) {
    if (is_served(items_[i])) continue;
    items_[i].at_hand = true;
    if (try_to_serve(items_[i])) moved = true;
  }
  if (end == items_.size() && send_all_held_ && items_.front().send) {
    peers_->send_all_held();
    send_all_held_ = false;
  }
  return moved;
}

/// In the thread of a stream, which has nobody to throw to.
bool RemoteOperations::try_to_serve(Item& item) {
  if (given_up_ || !failure_.empty()) return false;
  try {
    return serve(item);
  } catch (const Error& error) {
    // Where there is no room now it asks again when it looks again.
    if (error.fault() != Fault::memory) failure_ = error.what();
  } catch (const std::bad_alloc&) {
    failure_ = "out of memory";  // as short as needs none
  }
  return false;
}

bool RemoteOperations::is_ready(const Item& item) const {
  if (!item.send) return true;
  return peers_->has_credit(*item.peer, item.epoch) &&
         (!item.send->awaits_post() || peers_->is_exposed(*item.peer, item.epoch));
}

bool RemoteOperations::serve(Item& item) {
  if (item.may_ride) {
    item.state = State::held;
    note_served(item);
    peers_->hold(*item.peer, {shared_from_this(), static_cast<std::size_t>(&item - items_.data())});
    return true;
  }
  if (item.state == State::moving) {
    // Where all of it was gathered, the origin buffers were free at the start.
    if (!(item.transfer.all_queued() ? item.transfer.delivered() : item.transfer.finished())) return false;
    if (item.transfer.all_queued()) {
      note_served(item);
      item.state = State::served;
      return true;
    }
    end_stage(item);
    item.state = State::ready;
  }
  if (item.state == State::waiting && !is_ready(item)) return false;
  if (!item.transfer.has_stage()) {
    recycle();
    if (!queue_stage(item)) return false;
  }
  // Not before it can start: a post that rides in it must not wait.
  if (item.state == State::waiting && item.send && item.send->has_message()) write_message(item);
  item.transfer.start();
  moved_ = true;
  const bool origin_is_free = !item.send || item.send->direct.empty();
  if (item.transfer.all_queued() && origin_is_free) {
    note_served(item);
    item.state = State::served;
  } else {
    item.state = State::moving;
  }
  return true;
}

void RemoteOperations::note_served(const Item& item) {
  set(item.send ? item.peer->sent : item.peer->opened, item.epoch);
}

bool RemoteOperations::served(std::size_t first, std::size_t end) const {
  Hold hold(mutex_);
  return std::all_of(items_.begin() + static_cast<std::ptrdiff_t>(first),
                     items_.begin() + static_cast<std::ptrdiff_t>(end), is_served);
}

void RemoteOperations::describe(std::size_t first, std::size_t end, std::string& text) const {
  Hold hold(mutex_);
  for (std::size_t i = first; i < end; ++i) {
    const Item& item = items_[i];
    switch (item.state) {
      case State::served:
      case State::held:
        break;
      case State::waiting:
        append(text, item.peer->rank,
               "has not " + missing_text(Missing::post,
                                         peers_->has_credit(*item.peer, item.epoch) ? item.epoch
                                                                                    : peers_->awaited_post(item.epoch),
                                         peers_->doorsteps().farewell_of(item.peer->rank)));
        break;
      case State::ready:
      case State::moving:
        append(text, item.peer->rank,
               "has not been reached with the data of access epoch " + std::to_string(item.epoch));
        break;
    }
  }
}

// ---- receiving ---------------------------------------------------------------------------------------

bool RemoteReceives::look() {
  if (!looked_) peers_->send_all_held();
  looked_ = true;
  const auto gone =
      std::remove_if(pending_.begin(), pending_.end(), [this](Item& item) { return try_to_receive(item); });
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

/// In the thread of a stream, which has nobody to throw to.
bool RemoteReceives::try_to_receive(Item& item) {
  if (!failure_.empty()) return false;
  try {
    return receive(item);
  } catch (const Error& error) {
    failure_ = lost(item.peer->name(), error.what());
  } catch (const std::bad_alloc&) {
    failure_ = "out of memory";
  }
  return false;
}

bool RemoteReceives::receive(Item& item) {
  RemotePeer& peer = *item.peer;
  const std::size_t slot = peers_->slot(item.epoch);
  const std::uint64_t arrived = load_acquire(&peer.arrived[slot]);
  if (arrived / 2 < item.epoch) {
    if (!receive_marked(item)) return false;
  } else if (arrived % 2) {
    char* const message = peer.inbox + slot * peers_->slot_bytes();
    const std::size_t length =
        RemoteMessage::scatter(message, peers_->slot_bytes(), peers_->window(), peers_->window_bytes());
    MarkedMessage::wipe(reinterpret_cast<std::uint64_t*>(message), length / 8);
  }
  // The slot is free again when this rank posts anew (remote_peers.h).
  set(peer.closed, item.epoch);
  return true;
}

bool RemoteReceives::receive_marked(Item& item) {
  const std::size_t slot = peers_->slot(item.epoch);
  auto* const words = reinterpret_cast<std::uint64_t*>(item.peer->inbox + slot * peers_->slot_bytes());
  MarkedMessage::Front front;
  if (!MarkedMessage::read_front(words, &front)) return false;  // a first look costs nothing
  bool all = false;
  peers_->budget().network().read_still([&] {
    if (!MarkedMessage::read_front(words, &front)) return;
    if (8 * std::size_t{front.words} > peers_->slot_bytes())
      throw Error(Fault::other, "a message from it makes no sense");
    item.data.resize(8 * std::size_t{front.words});
    all = MarkedMessage::read(words, front.words, &item.words, item.data.data());
  });
  if (!all || !peers_->open(*item.peer, slot)) return false;
  RemotePeers::note_ridden(*item.peer, front.posts);
  if (front.words > 1)
    RemoteMessage::scatter(item.data.data(), MarkedMessage::capacity(front.words), peers_->window(),
                           peers_->window_bytes());
  MarkedMessage::wipe(words, front.words);
  return true;
}

void RemoteReceives::describe(std::string& text) const {
  for (const Item& item : pending_)
    append(
        text, item.peer->rank,
        "has not " + missing_text(Missing::completion, item.epoch, peers_->doorsteps().farewell_of(item.peer->rank)));
}

}  // namespace mpix
