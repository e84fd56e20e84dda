// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu/host/run.h"

#include <string>
#include <vector>

#include "gpu/host/bell.h"
#include "kernels/protocol.h"

namespace mpix {
namespace {

constexpr Team alone{0, 1};

void finish_send(const SendPeer& peer, const PutOp* ops) {
  send(peer, [ops](std::uint32_t i) -> const PutOp& { return ops[i]; }, alone);
  if (!peer.signals) return;
  write_header(peer, peer.words->own.sent[0] + 1, 0, 1);
  advance(peer.words->own.sent);
  ring(peer.bell);
}

void finish_receive(const ReceivePeer& peer) {
  receive(peer, alone);
  advance(peer.words->own.closed);
}

/// The peers of one program that are not served yet, looked at in turn: none waits for another.
class Pending {
 public:
  explicit Pending(const Program& program) : program_(program), sends_(scratch<SendPeer>()), receives_(scratch<ReceivePeer>()) {
    for (std::uint32_t i = 0; i < program.send_count; ++i) sends_.push_back(&program.tables.sends[i]);
    for (std::uint32_t i = 0; i < program.receive_count; ++i) receives_.push_back(&program.tables.receives[i]);
  }

  bool empty() const { return sends_.empty() && receives_.empty(); }

  /// Serve who is ready. False when nobody was.
  bool look() {
    const std::size_t before = sends_.size() + receives_.size();
    serve(sends_, [](const SendPeer& peer) { return may_send(peer); }, [this](const SendPeer& peer) { finish_send(peer, program_.tables.ops); });
    serve(receives_, has_arrived, finish_receive);
    return sends_.size() + receives_.size() < before;
  }

  std::string describe() const {
    std::string text;
    for (const SendPeer* peer : sends_)
      append(text, peer->rank,
             "has not posted access epoch " + std::to_string(post_needed(*peer, peer->words->own.sent[0] + 1)));
    for (const ReceivePeer* peer : receives_)
      append(text, peer->rank, "has not completed exposure epoch " + std::to_string(peer->words->own.closed[0] + 1));
    return text;
  }

 private:
  template <class Peer, class Ready, class Finish>
  static void serve(std::vector<const Peer*>& peers, Ready ready, Finish finish) {
    std::size_t kept = 0;
    for (const Peer* peer : peers) {
      if (ready(*peer))
        finish(*peer);
      else
        peers[kept++] = peer;
    }
    peers.resize(kept);
  }

  static void append(std::string& text, int rank, const std::string& what) {
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " " + what;
  }

  /// One list for each thread, which runs one program at a time: no allocation in every epoch.
  template <class Peer>
  static std::vector<const Peer*>& scratch() {
    thread_local std::vector<const Peer*> list;
    list.clear();
    return list;
  }

  const Program& program_;
  std::vector<const SendPeer*>& sends_;
  std::vector<const ReceivePeer*>& receives_;
};

bool released(const Program& program) { return __atomic_load_n(&program.host->released, __ATOMIC_RELAXED) != 0; }

/// False when the wait was released.
bool serve_all(const Launch& launch, const Polling& polling) {
  using Seconds = std::chrono::duration<double>;
  Pending pending(launch.program);
  Patience patience(launch.program.bell, polling);
  const double limit = launch.stall ? launch.stall->patience() : 0;
  double reported = 0;
  while (!pending.empty()) {
    if (pending.look()) {
      patience.refresh();
      reported = 0;
      continue;
    }
    if (released(launch.program)) return false;
    patience.pause();
    if (limit <= 0 || !patience.slept()) continue;
    const double waited = Seconds(patience.waited()).count();
    if (waited - reported < limit) continue;
    reported = waited;
    if (launch.stall->stalled(launch.call, pending.describe(), waited)) return false;
  }
  return true;
}

}  // namespace

bool run_on_host(const Launch& launch, const Polling& polling) {
  const Program& program = launch.program;
  bool served = !released(program);
  if (served) {
    for (std::uint32_t i = 0; i < program.post_count; ++i) {
      announce(program.tables.posts[i]);
      ring(program.tables.posts[i].bell);
    }
    served = serve_all(launch, polling);
  }
  __atomic_fetch_add(&program.host->executed, 1, __ATOMIC_RELEASE);
  return served;
}

}  // namespace mpix
