// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "team/route.h"
#include "wire/protocol.h"

namespace mpix {
namespace {

template <class T>
DeviceArray<T> uploaded(Device& device, std::vector<T> entries) {
  auto memory = device.upload(entries.data(), entries.size() * sizeof(T));
  return {std::move(entries), std::move(memory)};
}

bool waits_for_post(Route route) {
  return route != Route::mailbox && route != Route::packs && route != Route::relayed && route != Route::relayed_apart;
}

/// Where the puts of one target go: on their route, and what the slot tells of them. To a relayed one: the message.
class TargetPlanner {
 public:
  TargetPlanner(const Peer& target, const std::vector<const Put*>& puts, const Device& device, bool in_chunks)
      : target_(target) {
    if (target.relayed)
      plan_message(puts, device, in_chunks);
    else
      plan_slot(puts);
  }

  /// Asked of each put, in order. Those that do not are placed.
  bool goes_direct() { return next_ < direct_.size() && direct_[next_++]; }
  PutOp place(const Put& put) {
    PutOp op{};
    op.source = static_cast<const char*>(put.source);
    op.bytes = put.bytes;
    op.offset = put.offset(target_.displacement_unit);
    if (target_.relayed) {
      op.direct = taken_.send.data + positions_[placed_++];
      return op;
    }
    if (waits_for_post(route_)) op.direct = target_.direct + op.offset;
    if (descriptors_ > 0) op.descriptor = 1 + 2 * placed_++;
    if (route_ == Route::mailbox) {
      op.payload = 1 + 2 * descriptors_ + payload_so_far_;
      payload_so_far_ += payload_lines(put);
    } else if (route_ == Route::packs) {
      op.payload = payload_so_far_;
      payload_so_far_ += packs_for(static_cast<std::uint32_t>(put.bytes));
    }
    return op;
  }

  std::uint32_t descriptors() const { return descriptors_; }
  const OutgoingSource::Taken& taken() const { return taken_; }
  Route route() const { return route_; }
  std::size_t bytes_in_slot() const { return waits_for_post(route_) ? 0 : bytes_; }

 private:
  static std::uint32_t payload_lines(const Put& put) { return static_cast<std::uint32_t>((put.bytes + 7) / 8); }

  void plan_slot(const std::vector<const Put*>& puts) {
    PutsToRank all;
    all.count = puts.size();
    for (const Put* put : puts) {
      all.bytes += put->bytes;
      all.lines += 2 + payload_lines(*put);
      all.packs += (put->bytes + Pack::words * 8 - 1) / (Pack::words * 8);
    }
    bytes_ = all.bytes;
    route_ = route_by_stores(target_, all);
    if (route_ != Route::direct) descriptors_ = static_cast<std::uint32_t>(puts.size());
  }

  /// The data of what does not go direct lie one behind another.
  void plan_message(const std::vector<const Put*>& puts, const Device& device, bool in_chunks) {
    PlannedMessage message;
    for (const Put* put : puts) {
      direct_.push_back(put->bytes > target_.direct_above && device.lets_networks_reach(put->source));
      if (direct_.back()) {
        message.direct.push_back({put->source, put->bytes, put->offset(target_.displacement_unit)});
        continue;
      }
      bytes_ += put->bytes;
      const std::size_t alignment = data_alignment(put->bytes);
      const std::size_t at = (message.bytes + alignment - 1) / alignment * alignment;
      message.entries.push_back({put->offset(target_.displacement_unit), put->bytes, at});
      message.bytes = at + put->bytes;
      positions_.push_back(at);
    }
    route_ = route_by_relay(target_, bytes_, entries_bytes(message.entries.size()) + message.bytes);
    if (route_ == Route::relayed_apart) message.chunk_shift = in_chunks ? chunk_shift_for(message.bytes) : one_chunk;
    taken_ = target_.outgoing->take(std::move(message));
  }

  const Peer& target_;
  Route route_ = Route::mailbox;
  std::size_t bytes_ = 0;
  std::uint32_t placed_ = 0;
  // of a slot
  std::uint32_t descriptors_ = 0;
  std::uint32_t payload_so_far_ = 0;
  // of a message
  std::vector<std::size_t> positions_;
  std::vector<bool> direct_;  ///< by put
  std::size_t next_ = 0;      ///< put that is asked for
  OutgoingSource::Taken taken_;
};

/// Of the targets that stores reach, or a relay, in order.
std::vector<TargetPlanner> plan_ways(const std::vector<int>& targets,
                                     const std::vector<std::vector<const Put*>>& of_rank, const Neighbourhood& peers,
                                     RemotePeers& remote, const Device& device, bool in_chunks) {
  std::vector<TargetPlanner> ways;
  for (int rank : targets)
    if (!remote.find(rank))
      ways.emplace_back(peers.peer(rank), of_rank[static_cast<std::size_t>(rank)], device, in_chunks);
  return ways;
}

DeviceArray<RelayedSend> upload_relayed(const std::vector<TargetPlanner>& ways, Device& device,
                                        std::vector<std::shared_ptr<const void>>& keep) {
  std::vector<RelayedSend> relayed;
  for (const TargetPlanner& way : ways) {
    if (!way.taken().keep) continue;
    relayed.push_back(way.taken().send);
    keep.push_back(way.taken().keep);
  }
  return uploaded(device, std::move(relayed));
}

}  // namespace

std::shared_ptr<const ExposurePlan> ExposurePlan::build(const std::vector<int>& origins, const Neighbourhood& peers,
                                                        RemotePeers& remote, Device& device) {
  auto plan = std::make_shared<ExposurePlan>();
  std::vector<PostPeer> posts;
  std::vector<ReceivePeer> receives;
  for (int rank : origins) {
    if (RemotePeer* peer = remote.find(rank)) {
      plan->remote.push_back(peer);
      continue;
    }
    const Peer& peer = peers.peer(rank);
    posts.push_back({peer.words, peer.there, peer.bell, rank, peer.relayed != nullptr});
    receives.push_back({peer.words, peer.inbox, peers.window(), peer.staging, rank, peer.relayed});
  }
  plan->origins = origins;
  plan->posts = uploaded(device, std::move(posts));
  plan->receives = uploaded(device, std::move(receives));
  return plan;
}

std::shared_ptr<const AccessPlan> AccessPlan::build(std::vector<int> targets, std::vector<Put> puts,
                                                    const Neighbourhood& peers, RemotePeers& remote, Device& device,
                                                    bool merge) {
  std::vector<std::vector<const Put*>> of_rank(static_cast<std::size_t>(peers.size()));
  for (const Put& put : puts)
    if (put.bytes > 0) of_rank[static_cast<std::size_t>(put.target)].push_back(&put);

  auto plan = std::make_shared<AccessPlan>();
  plan->bytes_to_move.resize(of_rank.size());
  std::vector<PutOp> ops;
  std::vector<SendPeer> merged;
  std::vector<SendPeer> unmerged;
  std::vector<SendPeer> before_copies;
  const std::size_t copy_from = merge ? device.preferred_copy_bytes() : SIZE_MAX;
  std::vector<bool> has_copies;
  std::vector<TargetPlanner> ways = plan_ways(targets, of_rank, peers, remote, device, merge);
  plan->relayed = upload_relayed(ways, device, plan->outgoing);
  std::size_t next_way = 0, next_relayed = 0;
  for (int rank : targets) {
    const Peer& target = peers.peer(rank);
    const auto& own = of_rank[static_cast<std::size_t>(rank)];
    if (RemotePeer* peer = remote.find(rank)) {
      plan->remote.push_back(RemoteSend::build(*peer, remote, own, target.displacement_unit, plan->effect));
      continue;
    }
    TargetPlanner& way = ways[next_way++];
    SendPeer whole{};
    whole.words = target.words;
    whole.there = target.there;
    whole.ring = target.outbox;
    whole.bell = target.bell;
    whole.rank = rank;
    if (target.relayed) {
      whole.relayed = plan->relayed.data() + next_relayed++;
      whole.allowed = target.allowed;
    }
    whole.header = Header::of(way.descriptors(), 0);
    whole.slots = target.relayed ? 1 : target.outbox.depth;
    if (way.route() == Route::packs) {
      whole.header = whole.header.packed();
      whole.slots = target.outbox.pack_depth();
    }
    whole.signals = true;
    whole.first_op = static_cast<std::uint32_t>(ops.size());
    const std::size_t copies_before = plan->copies.size();
    for (const Put* put : own) {
      if (way.goes_direct()) {
        count(plan->effect, Route::relayed_direct, put->bytes);
        continue;
      }
      const PutOp op = way.place(*put);
      const Route route = way.route() == Route::direct && op.bytes >= copy_from ? Route::copy_engine : way.route();
      count(plan->effect, route, op.bytes);
      whole.awaits_post = waits_for_post(route);
      if (whole.awaits_post) whole.slots = 1;
      if (route == Route::copy_engine) {
        plan->copies.push_back({op.direct, op.source, op.bytes});
        continue;
      }
      whole.bytes += op.bytes;
      ++whole.op_count;
      SendPeer alone = whole;
      alone.first_op = static_cast<std::uint32_t>(ops.size());
      alone.op_count = 1;
      alone.bytes = op.bytes;
      alone.signals = false;
      unmerged.push_back(alone);
      ops.push_back(op);
    }
    if (whole.op_count == 1 && !whole.awaits_post && !whole.relayed && own.size() == 1) {
      PutOp& only = ops.back();
      if (merge && Header::can_hold(only.offset, only.bytes)) {
        const Header single = Header::of_single(only.offset, only.bytes);
        only.descriptor = 0;
        if (way.route() == Route::packs) {
          whole.header = single.packed();
        } else {
          whole.header = single;
          only.payload = Header::single_payload;
        }
      }
    }
    merged.push_back(whole);
    plan->credits.push_back(credit_needed(whole));
    has_copies.push_back(plan->copies.size() > copies_before);
    plan->most_bytes = std::max(plan->most_bytes, whole.bytes);
    plan->bytes_to_move[static_cast<std::size_t>(rank)] =
        target.staged || target.relayed ? whole.bytes : way.bytes_in_slot();
    SendPeer signal = whole;
    signal.op_count = 0;
    signal.bytes = 0;
    unmerged.push_back(signal);
  }
  if (!plan->copies.empty()) {
    std::vector<SendPeer> after_copies;
    for (std::size_t i = 0; i < merged.size(); ++i) {
      before_copies.push_back(merged[i]);
      if (!has_copies[i]) continue;
      after_copies.push_back(merged[i]);
      SendPeer& gate = before_copies.back();
      gate.op_count = 0;
      gate.bytes = 0;
      gate.signals = false;
    }
    merged = std::move(after_copies);
  }
  plan->effect.puts = puts.size();
  plan->targets = std::move(targets);
  plan->puts = std::move(puts);
  plan->ops = uploaded(device, std::move(ops));
  (merge ? plan->merged : plan->unmerged) = uploaded(device, std::move(merge ? merged : unmerged));
  plan->before_copies = uploaded(device, std::move(before_copies));
  return plan;
}

void AccessRecorder::start(const std::vector<int>& targets) {
  if (!had_last(targets)) {  // of the first epoch the targets may be none
    targets_ = targets;
    is_target_.assign(static_cast<std::size_t>(peers_.size()), false);
    for (int rank : targets) is_target_[static_cast<std::size_t>(rank)] = true;
  }
  followed_ = plans_.find([&](const AccessPlan& plan) { return plan.targets == targets_; });
  count_ = 0;
  recorded_.clear();
  if (!followed_) staged_puts_.assign(static_cast<std::size_t>(peers_.size()), 0);
}

void AccessRecorder::put(const Put& put) {
  if (followed_) {
    const bool repeats = count_ < followed_->puts.size() && followed_->puts[count_] == put;
    if (repeats || follow_another(put)) {
      ++count_;
      return;
    }
  }
  check(put);
  stop_following();
  const Peer& target = peers_.peer(put.target);
  if (target.most_puts > 0 && put.bytes > 0) {
    std::uint32_t& staged = staged_puts_[static_cast<std::size_t>(put.target)];
    if (staged == target.most_puts)
      throw Error(Fault::memory,
                  "more than " + std::to_string(target.most_puts) + " puts to rank " + std::to_string(put.target) +
                      " in one epoch, " +
                      (target.relayed ? "and it is on another node"
                                      : "and peers cannot map the memory of its window (into memory of the kind "
                                        "mpix:device any number goes)"));
    ++staged;
  }
  recorded_.push_back(put);
}

void AccessRecorder::stop_following() {
  if (!followed_) return;
  recorded_.assign(followed_->puts.begin(), followed_->puts.begin() + static_cast<std::ptrdiff_t>(count_));
  followed_ = nullptr;
  staged_puts_.assign(static_cast<std::size_t>(peers_.size()), 0);
  for (const Put& put : recorded_)
    if (put.bytes > 0) ++staged_puts_[static_cast<std::size_t>(put.target)];
}

bool AccessRecorder::follow_another(const Put& put) {
  const auto begin = followed_->puts.begin();
  const auto so_far = begin + static_cast<std::ptrdiff_t>(count_);
  auto other = plans_.find([&](const AccessPlan& plan) {
    return plan.targets == targets_ && plan.puts.size() > count_ && plan.puts[count_] == put &&
           std::equal(begin, so_far, plan.puts.begin());
  });
  if (!other) return false;
  followed_ = std::move(other);
  return true;
}

void AccessRecorder::check(const Put& put) {
  if (put.target < 0 || put.target >= peers_.size())
    throw Error(Fault::rank, "target rank " + std::to_string(put.target) + " is not in the window's group of " +
                                 std::to_string(peers_.size()) + " ranks");
  if (!is_target_[static_cast<std::size_t>(put.target)])
    throw Error(Fault::synchronization,
                "target rank " + std::to_string(put.target) + " is not in the group of the open access epoch");
  const Peer& target = peers_.peer(put.target);
  if (put.displacement < 0)
    throw Error(Fault::displacement, "the target displacement is " + std::to_string(put.displacement));
  if (put.bytes == 0) return;
  const std::uint64_t unit = target.displacement_unit;
  const auto displacement = static_cast<std::uint64_t>(put.displacement);
  const std::uint64_t room = target.window_bytes;
  const bool overflows =
      put.first > room || (unit > 0 && displacement > UINT64_MAX / unit) || displacement * unit > room - put.first;
  if (overflows || put.bytes > room - put.offset(unit))
    throw Error(Fault::range, std::to_string(put.bytes) + " bytes at displacement " + std::to_string(put.displacement) +
                                  (put.first > 0 ? " and " + std::to_string(put.first) + " bytes" : "") +
                                  " (in units of " + std::to_string(unit) + ") reach past the end of rank " +
                                  std::to_string(put.target) + "'s window of " + std::to_string(target.window_bytes) +
                                  " bytes");
  device_.check_buffer(put.source, "origin buffer");
}

std::shared_ptr<const AccessPlan> AccessRecorder::finish(bool* reused) {
  if (followed_ && count_ < followed_->puts.size()) {
    // The epoch ended before the plan did: perhaps another one is just that long.
    const auto begin = followed_->puts.begin();
    const auto so_far = begin + static_cast<std::ptrdiff_t>(count_);
    auto other = plans_.find([&](const AccessPlan& plan) {
      return plan.targets == targets_ && plan.puts.size() == count_ && std::equal(begin, so_far, plan.puts.begin());
    });
    if (other)
      followed_ = std::move(other);
    else
      stop_following();  // should the epoch go on, as its complete fails, its puts have been counted
  }
  *reused = followed_ != nullptr;
  if (*reused) return followed_;
  auto plan = AccessPlan::build(targets_, recorded_, peers_, remote_, device_, merge_);
  plans_.add(plan);
  return plan;
}

}  // namespace mpix
