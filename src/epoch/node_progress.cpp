// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/node_progress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/kept.h"
#include "base/log.h"

namespace mpix {
namespace {

constexpr int looks_for_posts = 200;  ///< a millisecond each

}  // namespace

bool NodeProgress::has_run() const {
  if (!device_.have_ended(words_, launched_)) return false;
  for (int rank = 0; rank < peers_.size(); ++rank) {
    if (off_node_.find(rank)) continue;
    const EpochCounts& enqueued = enqueued_.with(rank);
    if (enqueued.opened + enqueued.sent + enqueued.closed == 0) continue;
    const Peer& peer = peers_.peer(rank);
    PairCounters done;
    device_.read(&done, &peer.words->own, sizeof done);
    // Read again: what was replayed must not be older than the epochs.
    std::atomic_thread_fence(std::memory_order_seq_cst);  // two looks, also where they are plain copies
    PairCounters later;
    device_.read(&later, &peer.words->own, sizeof later);
    if (done.opened.epochs < enqueued.opened + later.opened.replayed) return false;
    for (std::uint32_t part = 0; part < device_.parts_in_use(); ++part)
      if (done.sent[part] < enqueued.sent + later.sent.replayed ||
          done.closed[part] < enqueued.closed + later.closed.replayed)
        return false;
  }
  return true;
}

EpochCounts NodeProgress::run(int rank) const {
  if (const RemotePeer* remote = off_node_.find(rank))
    return {load_acquire(&remote->sent), load_acquire(&remote->opened), load_acquire(&remote->closed)};
  const Peer& peer = peers_.peer(rank);
  const auto read = [&](const std::uint64_t& word) { return device_.read_word(&word); };
  const PairCounters& own = peer.words->own;
  EpochCounts run{read(own.sent[0]), read(own.opened.epochs), read(own.closed[0])};
  for (std::uint32_t part = 1; part < device_.parts_in_use(); ++part) {
    run.sent = std::min(run.sent, read(own.sent[part]));
    run.closed = std::min(run.closed, read(own.closed[part]));
  }
  return run;
}

/// Those for all epochs that this rank has sent on its node: peers write no word here after them.
bool NodeProgress::has_all_posts(bool with_guards) const {
  for (int rank : peers_.team().locals()) {
    const Peer& peer = peers_.peer(rank);
    if (!peer.words) continue;
    PairWords words;
    device_.read(&words, peer.words, sizeof words);
    if (words.posted < words.own.sent[0] || (with_guards && words.credit < peer.outbox.depth)) return false;
  }
  return true;
}

void NodeProgress::await_posts(bool with_guards, const std::string& window) const noexcept {
  if (!device_.posts_may_be_late()) return;
  try {
    for (int look = 0; look < looks_for_posts; ++look) {
      if (has_all_posts(with_guards)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    log(LogLevel::info, "window '" + window + "': posts of peers have not come, so its memory is not used again");
  } catch (const std::exception& error) {
    log(LogLevel::info, error.what());
  }
  keep_for_ever(peers_.control_memory());
}

}  // namespace mpix
