// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/messages/sends.h"

#include <algorithm>
#include <utility>

#include "mpix/errors.h"
#include "mpix/messages/buffers.h"
#include "net/packet.h"

namespace mpix {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto longest_hold = std::chrono::microseconds(500);
constexpr std::uint32_t holds_skipped = 16;

}  // namespace

MessageBuffer* MessageBufferPool::take() {
  std::lock_guard<std::mutex> hold(mutex_);
  if (free_.empty()) {
    all_.push_back(std::make_unique<MessageBuffer>());
    free_.reserve(all_.size());  // so that letting go needs no memory
    free_.push_back(all_.back().get());
  }
  MessageBuffer* outgoing = free_.back();
  free_.pop_back();
  outgoing->references = 1;
  return outgoing;
}

void MessageBufferPool::let_go(MessageBuffer* outgoing) {
  if (outgoing->references.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  std::lock_guard<std::mutex> hold(mutex_);
  free_.push_back(outgoing);
}

// ---- transfers ---------------------------------------------------------------------------------------

void MessageSends::start(MessageBuffer& outgoing) {
  MessageBuffer* const held = take_held(outgoing.peer);
  if (!held && may_hold(outgoing)) {
    outgoing.references.fetch_add(1, std::memory_order_relaxed);
    held_.push_back({&outgoing, false, Clock::now()});
    return;
  }
  try {
    send(outgoing, held ? &held->signal : nullptr);
  } catch (const std::exception& error) {  // no memory: the post that goes in front is not this window's
    if (held) {
      held->failure = error.what();
      pool_.let_go(held);
    }
    throw;
  }
  if (!held) return;
  held->failure = outgoing.failure;
  handed_over(*held);
  pool_.let_go(held);
}

void MessageSends::send(MessageBuffer& outgoing, const NetworkSignal* in_front) {
  const std::vector<NetworkWrite>& writes = outgoing.writes;
  bool signals = outgoing.has_signal;
  std::size_t at = 0;  // in the next write
  for (std::size_t next = 0; in_front || next < writes.size() || signals;) {
    Buffer buffer = take_packet();
    PacketWriter packet(buffer.get(), packet_bytes);
    if (in_front) packet.add(*in_front);
    in_front = nullptr;
    const std::size_t first = next;
    while (next < writes.size() &&
           (comes_apart(writes[next]) ? packet.add_apart(writes[next]) : packet.add(writes[next], at))) {
      ++next;
      at = 0;
    }
    if (next == writes.size() && signals) signals = !packet.add(outgoing.signal);
    const char* const from = buffer.get();
    if (!send_message(outgoing, from, packet.size(), packet_tag, std::move(buffer))) return;
    ++packets_to_[static_cast<std::size_t>(outgoing.peer)];
    for (std::size_t i = first; i < next; ++i)
      if (comes_apart(writes[i]) && !send_large(outgoing, writes[i])) return;
  }
  handed_over(outgoing);
}

/// All of its messages are MPI's. What failed counts as under way for ever.
void MessageSends::handed_over(MessageBuffer& outgoing) {
  if (!outgoing.failure.empty()) return;
  outgoing.reads.fetch_sub(1, std::memory_order_release);
  outgoing.messages.fetch_sub(1, std::memory_order_release);
}

// ---- what is held ------------------------------------------------------------------------------------

bool MessageSends::may_hold(const MessageBuffer& outgoing) {
  if (!outgoing.writes.empty()) return false;
  std::uint32_t& to_skip = holds_to_skip_[static_cast<std::size_t>(outgoing.peer)];
  if (to_skip == 0) return true;
  --to_skip;
  return false;
}

MessageBuffer* MessageSends::take_held(int peer) {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [=](const Held& held) { return held.outgoing->peer == peer; });
  if (found == held_.end()) return nullptr;
  MessageBuffer* const outgoing = found->outgoing;
  held_.erase(found);
  return outgoing;
}

void MessageSends::send_held(const Held& held) {
  holds_to_skip_[static_cast<std::size_t>(held.outgoing->peer)] = holds_skipped;
  try {
    send(*held.outgoing, nullptr);
  } catch (const std::exception& error) {  // no memory
    held.outgoing->failure = error.what();
  }
  pool_.let_go(held.outgoing);
}

void MessageSends::send_all_held() {
  for (const Held& held : held_) send_held(held);
  held_.clear();
}

void MessageSends::send_late(Who who) {
  if (held_.empty()) return;
  const auto now = who == Who::agent ? Clock::now() : Clock::time_point{};
  const auto due = std::stable_partition(held_.begin(), held_.end(), [&](Held& held) {
    return who == Who::agent ? now - held.since <= longest_hold : !std::exchange(held.looked_at, true);
  });
  for (auto late = due; late != held_.end(); ++late) send_held(*late);
  held_.erase(due, held_.end());
}

// ---- messages ----------------------------------------------------------------------------------------

MessageSends::Buffer MessageSends::take_packet() {
  if (free_packets_.empty()) return Buffer(new char[packet_bytes]);
  Buffer packet = std::move(free_packets_.back());
  free_packets_.pop_back();
  return packet;
}

bool MessageSends::send_large(MessageBuffer& outgoing, const NetworkWrite& write) {
  return in_pieces(static_cast<const char*>(write.source), write.bytes, [&](const char* from, std::size_t bytes) {
    return send_message(outgoing, from, bytes, data_tag, nullptr);
  });
}

bool MessageSends::send_message(MessageBuffer& outgoing, const char* from, std::size_t bytes, int tag, Buffer packet) {
  MPI_Request& request = requests_.add_send();
  try {
    sendings_.push_back({&outgoing, std::move(packet)});
  } catch (...) {  // both lists, or none
    requests_.drop_last_send();
    throw;
  }
  const int code = PMPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, outgoing.peer, tag, world_.comm(), &request);
  if (code != MPI_SUCCESS) {
    outgoing.failure = "MPI_Isend to " + rank_text(outgoing.peer) + ": " + text_of(code);
    requests_.drop_last_send();
    sendings_.pop_back();
    return false;
  }
  outgoing.references.fetch_add(1, std::memory_order_relaxed);
  outgoing.messages.fetch_add(1, std::memory_order_relaxed);
  if (!sendings_.back().packet) outgoing.reads.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void MessageSends::note(const MessageRequests::Result& tested) {
  if (tested.failure != MPI_SUCCESS) return fail_all(tested.failure);
  if (tested.sends.empty()) return;
  for (const MessageRequests::Ended& ended : tested.sends) {
    Sending& sending = sendings_[ended.place];
    if (ended.error != MPI_SUCCESS && sending.of->failure.empty())
      sending.of->failure = "a message to " + rank_text(sending.of->peer) + " failed: " + text_of(ended.error);
    end(sending);
  }
  const auto is_over = [](const Sending& sending) { return !sending.of; };
  sendings_.erase(std::remove_if(sendings_.begin(), sendings_.end(), is_over), sendings_.end());
}

/// MPI does not say which.
void MessageSends::fail_all(int code) {
  for (const Sending& sending : sendings_)
    if (sending.of->failure.empty())
      sending.of->failure = "messages failed, maybe one to " + rank_text(sending.of->peer) + ": " + text_of(code);
}

/// Its request is gone.
void MessageSends::end(Sending& sending) {
  MessageBuffer& outgoing = *sending.of;
  const bool large = !sending.packet;
  if (!large) free_packets_.push_back(std::move(sending.packet));
  if (outgoing.failure.empty()) {
    if (large) outgoing.reads.fetch_sub(1, std::memory_order_release);
    outgoing.messages.fetch_sub(1, std::memory_order_release);
  }
  pool_.let_go(&outgoing);
  sending.of = nullptr;
}

}  // namespace mpix
