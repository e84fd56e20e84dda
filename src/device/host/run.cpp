// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/run.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "device/host/bell.h"
#include "wire/collective.h"
#include "wire/missing_ranks.h"
#include "wire/protocol.h"
#include "wire/wait_note.h"

namespace mpix {
namespace {

constexpr Alone alone{};
// Errors are looked for where nothing has come for long: to ask all epochs under way costs as much as a hundred looks.
constexpr unsigned looks_between_errors = 256;
constexpr auto time_between_errors = std::chrono::milliseconds(5);

void count(PartCounters& counters) { advance(alone, counters, load_counter(counters, 0), false); }

/// It has sent, and waits for the network to be done with the origin buffers.
bool awaits_end(const SendPeer& peer, std::uint64_t epoch) {
  return peer.signals && peer.relayed && peer.relayed->reads_origin && last_task(peer.relayed->out->lane()) == epoch;
}

/// False: not yet.
bool serve(const SendPeer& peer, const Program& program) {
  const std::uint64_t epoch = peer.words->own.sent[0] + 1;
  if (!awaits_end(peer, epoch)) {
    if (!may_send(peer)) return false;
    const PutOp* const puts = program.tables.ops;
    send(
        alone, peer, [puts](std::uint32_t i) -> const PutOp& { return puts[i]; }, epoch, program.guards);
  }
  if (awaits_end(peer, epoch) && !has_left(*peer.relayed, epoch)) return false;
  if (peer.signals) {
    count(peer.words->own.sent);
    ring(peer.bell);
  }
  return true;
}

bool serve(const ReceivePeer& peer, const Program& program) {
  const std::uint64_t epoch = peer.words->own.closed[0] + 1;
  Header header{};
  if (!has_arrived(peer, epoch, &header)) return false;
  Alone::Descriptors descriptors;
  (void)receive(alone, peer, epoch, header, descriptors);
  if (program.guards) count_received(peer.words, 0);
  count(peer.words->own.closed);
  return true;
}

void abandon(const SendPeer& peer) {
  if (peer.signals) count(peer.words->own.sent);
}
void abandon(const ReceivePeer& peer) { count(peer.words->own.closed); }

/// The peers of one program that are not served yet, looked at in turn: none waits for another.
class Pending {
 public:
  explicit Pending(const Launch& launch)
      : launch_(launch), program_(launch.program), sends_(scratch<SendPeer>()), receives_(scratch<ReceivePeer>()) {
    const Program& program = program_;
    for (std::uint32_t i = 0; i < program.send_count; ++i) sends_.push_back(&program.tables.sends[i]);
    for (std::uint32_t i = 0; i < program.receive_count; ++i) receives_.push_back(&program.tables.receives[i]);
  }

  bool empty() const {
    return sends_.empty() && receives_.empty() &&
           std::all_of(launch_.remote.begin(), launch_.remote.end(),
                       [](const auto& work) { return !work || work->done(); });
  }

  /// Serve who is ready. False when nobody was.
  bool look() {
    if (look_around()) return true;
    RemoteWork* network = nullptr;
    for (const auto& work : launch_.remote)
      if (work && !work->done()) network = work.get();
    if (!network) return false;
    // What it brings is seen before this thread gives its core away.
    network->progress();
    return look_around();
  }

  /// Empty, or why it will never be empty.
  std::string failure() const { return first_of(&RemoteWork::failure); }
  std::string probe() const { return first_of(&RemoteWork::probe); }

  std::string describe() const {
    MissingRanks missing;
    const auto add = [&](const auto* peer) {
      const WaitNote note = waits_for(*peer, false);
      const Farewell farewell = launch_.stall ? launch_.stall->farewell_of(peer->rank) : Farewell::none;
      missing.add(peer->rank, note.missing, note.epoch, farewell);
    };
    for (const SendPeer* peer : sends_) add(peer);
    for (const ReceivePeer* peer : receives_) add(peer);
    std::string text = missing.text();
    for (const auto& work : launch_.remote)
      if (work) work->describe(text);
    return text;
  }

  /// The wait was released: the counters go on without what was awaited.
  void abandon_all() {
    for (const SendPeer* peer : sends_) abandon(*peer);
    for (const ReceivePeer* peer : receives_) abandon(*peer);
  }

 private:
  std::string first_of(std::string (RemoteWork::*ask)()) const {
    for (const auto& work : launch_.remote) {
      std::string text = work && !work->done() ? (work.get()->*ask)() : "";
      if (!text.empty()) return text;
    }
    return "";
  }

  bool look_around() {
    const std::size_t before = sends_.size() + receives_.size();
    serve_all_of(sends_);
    serve_all_of(receives_);
    bool moved = sends_.size() + receives_.size() < before;
    for (const auto& work : launch_.remote)
      if (work && !work->done() && work->look()) moved = true;
    return moved;
  }

  template <class Peer>
  void serve_all_of(std::vector<const Peer*>& peers) {
    peers.erase(std::remove_if(peers.begin(), peers.end(), [this](const Peer* peer) { return serve(*peer, program_); }),
                peers.end());
  }

  /// One list for each thread, which runs one program at a time: no allocation in every epoch.
  template <class Peer>
  static std::vector<const Peer*>& scratch() {
    thread_local std::vector<const Peer*> list;
    list.clear();
    return list;
  }

  const Launch& launch_;
  const Program& program_;
  std::vector<const SendPeer*>& sends_;
  std::vector<const ReceivePeer*>& receives_;
};

bool released(const Program& program) { return __atomic_load_n(&program.host->released, __ATOMIC_RELAXED) != 0; }

/// Until all is served, the wait is released, or the window broken.
void serve_all(const Launch& launch, Pending& pending, const Polling& polling) {
  using Seconds = std::chrono::duration<double>;
  const bool remote = launch.remote[0] || launch.remote[1];
  Patience patience(launch.program.bell, polling, remote || launch.relayed);
  unsigned looks = 0;
  std::chrono::nanoseconds ask_after = time_between_errors;
  const double limit = launch.stall ? launch.stall->patience() : 0;
  double reported = 0;
  while (!pending.empty()) {
    if (pending.look()) {
      patience.refresh();
      ask_after = time_between_errors;
      reported = 0;
      continue;
    }
    if (released(launch.program)) break;
    if (++looks % looks_between_errors == 0 && remote && patience.waited() >= ask_after) {
      ask_after = patience.waited() + time_between_errors;
      const std::string failure = pending.failure();
      if (!failure.empty()) {
        launch.stall->failed(launch.call, failure);
        break;
      }
    }
    patience.pause();
    if (limit <= 0 || (!patience.slept() && looks % looks_between_errors != 0)) continue;
    const double waited = Seconds(patience.waited()).count();
    if (waited - reported < limit) continue;
    reported = waited;
    const std::string lost = pending.probe();
    if (!lost.empty()) {
      launch.stall->failed(launch.call, lost);
      break;
    }
    if (launch.stall->stalled(launch.call, pending.describe(), waited)) break;
  }
}

/// There is nobody to throw to in the thread of a stream: it is the end of the window.
void break_window(const Launch& launch, const std::exception& error) {
  if (launch.stall) launch.stall->failed(launch.call, error.what());
  __atomic_store_n(&launch.program.host->released, 1, __ATOMIC_RELEASE);
}

void end_remote(const Launch& launch) {
  for (const auto& work : launch.remote)
    if (work) work->over();
}

/// Without memory, as there may be none.
void abandon(const Launch& launch) {
  const Program& program = launch.program;
  for (std::uint32_t i = 0; i < program.send_count; ++i) abandon(program.tables.sends[i]);
  for (std::uint32_t i = 0; i < program.receive_count; ++i) abandon(program.tables.receives[i]);
  end_remote(launch);
}

/// False when the wait was released, or the window broke.
bool serve_or_abandon(const Launch& launch, const Polling& polling) {
  std::optional<Pending> pending;
  try {
    pending.emplace(launch);
  } catch (const std::exception& error) {
    break_window(launch, error);
    abandon(launch);
    return false;
  }
  bool served = false;
  try {
    serve_all(launch, *pending, polling);
    served = pending->empty();
  } catch (const std::exception& error) {
    break_window(launch, error);
  }
  pending->abandon_all();
  end_remote(launch);
  return served;
}

}  // namespace

bool run_on_host(const Launch& launch, const Polling& polling) {
  const Program& program = launch.program;
  bool served = !released(program);
  for (std::uint32_t i = 0; i < program.post_count; ++i) {
    const PostPeer& peer = program.tables.posts[i];
    if (!served) {
      peer.words->own.opened.store(peer.words->own.opened.load().next(false));
      continue;
    }
    announce(peer, peer.words->own.opened.load(), program.captured, program.guards, program.raises_posts);
    ring(peer.bell);
  }
  if (program.guards && program.send_count > 0) store_release(&program.guards->targets, 0);
  if (program.guards && program.receive_count > 0) store_release(&program.guards->origins, 0);
  if (served)
    served = serve_or_abandon(launch, polling);
  else
    abandon(launch);
  return served;
}

bool run_on_host(const MemoryOps& memory, const Polling& polling) {
  for (const MemoryOp& op : memory.ops) {
    if (!op.waits) {
      store_release(op.word, op.value);
      continue;
    }
    Patience patience(memory.bell, polling);
    for (;; patience.pause()) {
      if (memory.window && __atomic_load_n(&memory.window->released, __ATOMIC_RELAXED) != 0) return false;
      if (memory.calls && load_relaxed(&memory.calls->released) != 0) return false;
      if (load_acquire(op.word) >= op.value) break;
    }
  }
  return true;
}

}  // namespace mpix
