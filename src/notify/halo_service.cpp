// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What the service does for a halo: it sends what is packed, and receives what is to be unpacked.
#include <algorithm>
#include <chrono>

#include "notify/halo.h"

namespace mpix {
namespace {

constexpr int looks_in_a_row = 32;
/// Where nobody tells the service of kernels.
constexpr auto longest_nap_unseen = std::chrono::microseconds(50);

}  // namespace

Poller::Clock::duration Halo::look(Clock::time_point now) {
  if (channel_.is_broken()) return Poller::when_woken;
  // Networks in software move a piece a look, and a round of the service takes as long as some looks.
  bool moved = false;
  for (int looks = 0; looks < looks_in_a_row && (looks == 0 || is_moving_) && !channel_.is_broken(); ++looks)
    if (serve()) moved = true;
  const Clock::duration nap = back_off_.next(moved, false, now);
  if (run_so_far_ < exchanges_) return {};
  if (runs_unseen_) return std::min<Clock::duration>(nap, longest_nap_unseen);
  return nap > Clock::duration{} && !is_moving_ ? when_woken : nap;
}

bool Halo::serve() {
  const std::lock_guard<std::mutex> hold(mutex_);
  bool moved = start_moves();
  over_.clear();
  // A halo that has nothing under way leaves MPI to the program; its receives have been started.
  const bool is_awaited = moved || is_moving_ || run_so_far_ < exchanges_ || runs_unseen_;
  if (is_awaited) transport_->look(options_.sends_first && !are_all_sent(), &over_);
  moved = moved || !over_.empty();
  for (const HaloTransport::Over& of : over_) {
    if (of.is_send || !copier_) {
      end_move(of);
      continue;
    }
    const HaloBufferPair &from = for_mpi_[of.message], &to = for_kernels_[of.message];
    copies_.push_back({copier_->start(to.recv[of.half], from.recv[of.half], plan_.cargo[of.message].recv_bytes), of});
  }
  if (!copies_.empty()) end_copies();
  tell();
  std::uint64_t begun = 0;
  is_moving_ = false;
  for (const std::uint32_t m : sends_) {
    begun = std::max(begun, progress_[m].send.begun);
    is_moving_ = is_moving_ || progress_[m].send.is_moving();
  }
  for (const std::uint32_t m : receives_)
    is_moving_ = is_moving_ || progress_[m].receive.over < begun;  // what is to come in the exchange of a send
  return moved;
}

bool Halo::start_moves() {
  const std::uint32_t count = param_.messages;
  std::uint64_t unpacked_by_all = UINT64_MAX, packed_by_all = UINT64_MAX;
  bool moved = false;
  for (const std::uint32_t m : sends_) packed_by_all = std::min(packed_by_all, channel_.flag(m));
  for (const std::uint32_t m : receives_) {
    Way& way = progress_[m].receive;
    const std::uint64_t unpacked = channel_.flag(count + m);
    unpacked_by_all = std::min(unpacked_by_all, unpacked);
    while (way.begun < unpacked + options_.halves) transport_->start_receive(m, half_of(++way.begun));
  }
  run_so_far_ = std::min(packed_by_all, unpacked_by_all);  // what goes may be packed when all has come
  // A send that blocks waits for the receive of the other side; and that side's, perhaps, for one of this. So those of
  // an exchange begin when all its receives have, here as there.
  const std::uint64_t last =
      transport_->sends_block() && !receives_.empty() ? unpacked_by_all + options_.halves : UINT64_MAX;
  for (const std::uint32_t m : sends_) {
    Way& way = progress_[m].send;
    for (const std::uint64_t packed = std::min(channel_.flag(m), last); way.begun < packed; moved = true) {
      const std::uint32_t half = half_of(++way.begun);
      if (!copier_) {
        transport_->start_send(m, half);
        continue;
      }
      copies_.push_back({copier_->start(for_mpi_[m].send[half], for_kernels_[m].send[half], plan_.cargo[m].send_bytes),
                         {m, half, true}});
    }
  }
  return moved;
}

/// In the order of exchanges: MPI may be done with the later one first.
void Halo::end_move(const HaloTransport::Over& of) {
  Way& way = of.is_send ? progress_[of.message].send : progress_[of.message].receive;
  way.is_over[of.half] = true;
  while (way.is_moving() && way.is_over[half_of(way.over + 1)]) {
    way.is_over[half_of(++way.over)] = false;
    ++(of.is_send ? counts_.sent : counts_.received);
  }
}

void Halo::end_copies() {
  for (const std::uint64_t finished = copier_->finished(); !copies_.empty() && copies_.front().number <= finished;
       copies_.pop_front()) {
    const HaloTransport::Over of = copies_.front().of;
    if (of.is_send)
      transport_->start_send(of.message, of.half);
    else
      end_move(of);
  }
}

/// Of the exchange that is to be received next.
bool Halo::are_all_sent() const {
  std::uint64_t received = UINT64_MAX, sent = UINT64_MAX;
  for (const std::uint32_t m : sends_) sent = std::min(sent, progress_[m].send.over);
  for (const std::uint32_t m : receives_) received = std::min(received, progress_[m].receive.over);
  return sent > received;
}

/// Kernels of what is over.
void Halo::tell() {
  std::uint64_t by_all = UINT64_MAX, sent = UINT64_MAX;
  if (options_.waits_for_all)
    for (const std::uint32_t m : receives_) by_all = std::min(by_all, progress_[m].receive.over);
  for (const std::uint32_t m : sends_) {
    Progress& one = progress_[m];
    if (one.told_sent < one.send.over) channel_.set_flag(m, one.told_sent = one.send.over);
    sent = std::min(sent, one.told_sent);
  }
  for (const std::uint32_t m : receives_) {
    Progress& one = progress_[m];
    const std::uint64_t received = std::min(one.receive.over, by_all);
    if (one.told_received < received) channel_.set_flag(param_.messages + m, one.told_received = received);
  }
  sent_by_all_.store(sent, std::memory_order_release);
}

}  // namespace mpix
