// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/block_pool.h"
#include "device/device.h"
#include "net/operation_budget.h"
#include "net/staged_transfer.h"
#include "offnode/remote_peers.h"
#include "offnode/remote_plan.h"

namespace mpix {

/// The transfers of one call on a window: the posts of an exposure epoch, or the puts and completion signals of an
/// access epoch. Queued when the call is made, as far as the grant goes; started, one by one, when the stream has got
/// there and the peer is ready. What the grant was too small for is queued as its first part is over.
///
/// Shared by the stream, which serves it, and by the budget, until nothing of it is queued any more.
class RemoteOperations final : public GrantHolder, public std::enable_shared_from_this<RemoteOperations> {
 public:
  /// `words` are the window's: they tell whether it broke.
  RemoteOperations(std::shared_ptr<RemotePeers> peers, const void* window, std::shared_ptr<const HostWords> words,
                   const Grant& grant)
      : peers_(std::move(peers)), window_(window), words_(std::move(words)), free_(grant), held_(grant) {}

  // Locks: the sends of a window, then its posts, a later one before an earlier one.

  void expect(std::size_t items) { items_.reserve(items); }
  void add_post(RemotePeer& peer, std::uint64_t epoch);
  /// `send` stays as long as `keep`.
  void add_send(const RemoteSend& send, std::uint64_t epoch);
  void keep(std::shared_ptr<const void> plan) { plan_ = std::move(plan); }
  /// Once all have been added.
  void queue_ahead();

  // For the stream: items `first` … `end` - 1.
  bool serve(std::size_t first, std::size_t end);
  bool served(std::size_t first, std::size_t end) const;
  void describe(std::size_t first, std::size_t end, std::string& text) const;

  // For RemotePeers: what became of a post that was held.
  void post_rides(std::size_t item);
  /// False: the network has no room for it now.
  bool send_post(std::size_t item);

  // For the budget, and for failures.
  const void* window() const override { return window_; }
  Grant reclaim() override;
  Grant held() const override;
  std::size_t with_data() const override;
  std::string failure() override;
  std::string probe() override;
  std::string missing() const override;
  bool moved() override;
  bool is_broken() const override { return __atomic_load_n(&words_->released, __ATOMIC_ACQUIRE) != 0; }
  void give_up() override;

 private:
  /// waiting for the peer → ready: only the start is missing → moving ( → ready again, for the next stage) → served.
  /// A post that may ride: waiting → held, which is served for its stream → served, in a message or by itself.
  enum class State { waiting, ready, moving, held, served };

  struct Item {
    Item(RemotePeer& its_peer, const RemoteSend* its_send, std::uint64_t its_epoch)
        : peer(&its_peer), send(its_send), epoch(its_epoch) {}
    RemotePeer* peer;
    const RemoteSend* send;  ///< null: a post
    std::uint64_t epoch;
    State state = State::waiting;
    bool at_hand = false;  ///< its stream has come to it
    bool may_ride = false;
    StagedTransfer transfer;
    std::size_t writes() const { return send ? send->writes() : RemotePeers::tells(epoch) ? 1 : 0; }
    bool has_signal() const { return !send || !send->marked; }
  };

  bool try_to_serve(Item& item);
  static bool is_served(const Item& item) { return item.state == State::served || item.state == State::held; }
  bool serve(Item& item);
  bool is_ready(const Item& item) const;
  bool knows_where(const Item& item) const;
  void write_message(const Item& item);
  bool queue_stage(Item& item);
  NetworkWrite write_of(const Item& item, std::size_t i) const;
  NetworkSignal signal_of(const Item& item) const;
  void end_stage(Item& item);
  void recycle();
  void note_served(const Item& item);

  const std::shared_ptr<RemotePeers> peers_;
  const void* const window_;
  const std::shared_ptr<const HostWords> words_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::shared_ptr<const void> plan_;
  std::vector<Item, BlockAllocator<Item>> items_;
  Grant free_;  ///< of what is held: not queued
  Grant held_;
  bool given_up_ = false;
  bool moved_ = false;
  std::string failure_;        ///< of a call of the network
  bool send_all_held_ = true;  ///< no complete has done so yet
};

/// Some items of the operations of a call, as one launch serves them.
class RemoteOperationsPart final : public RemoteWork {
 public:
  RemoteOperationsPart(std::shared_ptr<RemoteOperations> operations, RemotePeers& peers, std::size_t first,
                       std::size_t count)
      : operations_(std::move(operations)),
        peers_(peers),
        first_(first),
        end_(first + count),
        at_work_(peers.budget()) {}
  bool look() override { return operations_->serve(first_, end_); }
  bool done() const override { return operations_->served(first_, end_); }
  void progress() override { peers_.budget().progress(); }
  void over() override { at_work_.over(); }
  void describe(std::string& text) const override { operations_->describe(first_, end_, text); }
  /// What failed may be an epoch before, which its stream is done with: the peer then will not post.
  std::string failure() override {
    const std::string own = operations_->failure();
    return own.empty() ? peers_.budget().failure_of(operations_->window()) : own;
  }
  std::string probe() override {
    const std::string known = failure();
    return known.empty() ? operations_->probe() : known;
  }

 private:
  const std::shared_ptr<RemoteOperations> operations_;
  RemotePeers& peers_;
  const std::size_t first_, end_;
  OperationBudget::AtWork at_work_;
};

/// The origins of an exposure epoch that are on other nodes: waits for each, and moves what came in its message.
class RemoteReceives final : public RemoteWork {
 public:
  RemoteReceives(std::shared_ptr<RemotePeers> peers, const void* window, std::size_t count)
      : peers_(std::move(peers)), window_(window), at_work_(peers_->budget()) {
    pending_.reserve(count);
  }
  void add(RemotePeer& peer, std::uint64_t epoch) { pending_.push_back(Item{&peer, epoch}); }

  bool look() override;
  bool done() const override { return pending_.empty(); }
  void progress() override { peers_->budget().progress(); }
  void over() override { at_work_.over(); }
  void describe(std::string& text) const override;
  /// Who did not get this rank's post, or data of an epoch before, will not complete.
  std::string failure() override { return failure_.empty() ? peers_->budget().failure_of(window_) : failure_; }
  std::string probe() override;

 private:
  struct Item {
    RemotePeer* peer;
    std::uint64_t epoch;
    std::size_t words = 1;     ///< of its marked message that have arrived: the front is read apart
    std::vector<char> data{};  ///< of these
  };
  bool try_to_receive(Item& item);
  bool receive(Item& item);
  bool receive_marked(Item& item);
  const std::shared_ptr<RemotePeers> peers_;
  const void* const window_;
  std::vector<Item, BlockAllocator<Item>> pending_;
  bool looked_ = false;
  std::string failure_;  ///< of a call of the network
  OperationBudget::AtWork at_work_;
};

}  // namespace mpix
