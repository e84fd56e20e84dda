// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/halo.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "device/halo_launch.h"

namespace mpix {
namespace {

/// MPI's reads and writes, and those of kernels, on pages of their own.
constexpr std::uint64_t apart = 4096;
/// Of a message that several blocks share: what one moves in some microseconds.
constexpr std::uint64_t bytes_of_a_part = 32 * 1024;
constexpr std::uint32_t most_parts_of_a_message = 32;
/// Blocks on each multiprocessor: others' kernels fit beside them.
constexpr std::uint32_t blocks_each = 2;
constexpr int looks_in_a_row = 32;
/// Where graphs are launched nobody tells the service.
constexpr auto longest_nap_for_graphs = std::chrono::microseconds(50);

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + apart - 1) / apart * apart; }

std::uint64_t bytes_of(const std::vector<HaloBox>& boxes) {
  std::uint64_t all = 0;
  for (const HaloBox& box : boxes) all += box.bytes();
  return all;
}

/// What all rows of the box begin and end at, here and in the message.
std::uint32_t unit_of(const HaloBox& box) {
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(box.base) | box.row_bytes | box.at;
  for (int d = 0; d < 4; ++d)
    if (box.rows[d] > 1) all |= static_cast<std::uint64_t>(box.stride[d]);
  for (std::uint32_t unit = 16; unit > 1; unit /= 2)
    if (all % unit == 0) return unit;
  return 1;
}

}  // namespace

struct Halo::Memory {
  explicit Memory(Device& to) : device(to) {}
  ~Memory() {
    if (words) device.release(words);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device& device;
  std::shared_ptr<char> pinned;
  std::shared_ptr<const void> messages, boxes, parts;
  void* words = nullptr;
};

ChannelOptions Halo::channel_options(const Options& options, const std::vector<HaloContent>& messages) {
  ChannelOptions all;
  all.flags = 2 * static_cast<std::uint32_t>(messages.size());
  all.service = TaskService::caller;
  all.name = options.name;
  all.local_ranks = options.local_ranks;
  std::vector<std::string> names;
  for (const HaloContent& message : messages) names.push_back(message.name);
  all.flag_text = [names](std::uint32_t flag, std::uint64_t number) {
    const std::size_t count = names.size();
    return flag < count ? names[flag] + " of exchange " + std::to_string(number + 1) +
                              " cannot be packed: MPI has not sent the one before"
                        : names[flag - count] + " of exchange " + std::to_string(number) +
                              " cannot be unpacked: MPI has not received it";
  };
  return all;
}

Halo::Halo(const Options& options, const std::vector<HaloContent>& messages, Device& device, const Settings& settings)
    : device_(device),
      channel_(channel_options(options, messages), nullptr, nullptr, device, settings),
      memory_(std::make_shared<Memory>(device)),
      room_(device.new_waiting_room()),
      progress_(messages.size()) {
  device.prepare_halos();
  make_buffers(messages, device);
  std::vector<HaloMessage> all;
  std::vector<HaloBox> boxes;
  const auto append = [&boxes](const std::vector<HaloBox>& from) {
    std::uint64_t at = 0;
    for (HaloBox box : from) {
      box.at = at;
      at += box.bytes();
      box.unit = unit_of(box);
      boxes.push_back(box);
    }
  };
  for (std::size_t m = 0; m < messages.size(); ++m) {
    HaloMessage message{buffers_[m].send, buffers_[m].recv, 0, 0, 0, 0};
    message.first_send = static_cast<std::uint32_t>(boxes.size());
    append(messages[m].send);
    message.send_boxes = static_cast<std::uint32_t>(boxes.size()) - message.first_send;
    message.first_recv = static_cast<std::uint32_t>(boxes.size());
    append(messages[m].recv);
    message.recv_boxes = static_cast<std::uint32_t>(boxes.size()) - message.first_recv;
    all.push_back(message);
    moves_.push_back(!messages[m].is_null);
  }
  std::vector<HaloPart> parts;
  for (const std::uint32_t unpacks : {0u, 1u})
    for (std::uint32_t m = 0; m < messages.size(); ++m) {
      if (messages[m].is_null) continue;
      const std::uint64_t bytes = unpacks ? buffers_[m].recv_bytes : buffers_[m].send_bytes;
      const std::uint32_t count = room_ && options.is_stacked
                                      ? static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / bytes_of_a_part, 1,
                                                                                             most_parts_of_a_message))
                                      : 1;
      for (std::uint32_t part = 0; part < count; ++part) parts.push_back({m, part, count, unpacks});
    }
  run_.message_count = static_cast<std::uint32_t>(messages.size());
  run_.part_count = static_cast<std::uint32_t>(parts.size());
  const auto upload = [&device](auto& table) {
    if (table.empty()) table.emplace_back();  // to have an address
    return device.upload(table.data(), table.size() * sizeof table[0]);
  };
  memory_->messages = upload(all);
  memory_->boxes = upload(boxes);
  memory_->parts = upload(parts);
  memory_->words = device.allocate(sizeof(HaloWords) + 2 * messages.size() * sizeof(std::uint64_t)).base;
  run_.channel = channel_.param();
  run_.messages = static_cast<const HaloMessage*>(memory_->messages.get());
  run_.boxes = static_cast<const HaloBox*>(memory_->boxes.get());
  run_.parts = static_cast<const HaloPart*>(memory_->parts.get());
  run_.words = static_cast<HaloWords*>(memory_->words);
  run_.blocks = room_ ? std::min(run_.part_count, blocks_each * room_->all()) : std::min(run_.part_count, 1u);
  counts_.blocks = run_.blocks;
}

void Halo::make_buffers(const std::vector<HaloContent>& messages, Device& device) {
  std::uint64_t bytes = 0;
  for (const HaloContent& message : messages)
    bytes += rounded(bytes_of(message.send)) + rounded(bytes_of(message.recv));
  memory_->pinned = device.allocate_pinned(std::max(bytes, apart));
  char* at = memory_->pinned.get();
  for (const HaloContent& message : messages) {
    HaloBuffers one{at, nullptr, bytes_of(message.send), bytes_of(message.recv)};
    at += rounded(one.send_bytes);
    buffers_.push_back(one);
    counts_.send_bytes += one.send_bytes;
  }
  for (HaloBuffers& one : buffers_) {
    one.recv = at;
    at += rounded(one.recv_bytes);
    counts_.recv_bytes += one.recv_bytes;
  }
}

Halo::~Halo() { end_service(); }

void Halo::serve_by(std::unique_ptr<HaloTransport> transport) {
  transport_ = std::move(transport);
  is_served_ = true;
  begin_service(*this);
}

void Halo::end_service() {
  if (!is_served_) return;
  is_served_ = false;
  ::mpix::end_service(*this);
  transport_->cancel();
}

void Halo::enqueue(Stream stream) {
  if (is_broken()) throw Error(Fault::other, "the halo is broken: " + cause());
  HaloLaunch launch;
  launch.run = run_;
  launch.captured = device_.check_stream(stream) != 0;
  launch.keep = memory_;
  const bool captured = launch.captured;
  if (run_.part_count > 0) device_.launch(stream, std::move(launch));
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    ++counts_.exchanges;
  }
  if (captured)
    in_graphs_ = true;
  else if (run_.part_count > 0)
    ++enqueued_;
  if (is_served_) wake_service(*this);
}

Poller::Clock::duration Halo::look(Clock::time_point now) {
  if (channel_.is_broken()) return Poller::when_woken;
  // Networks in software move a piece a look, and a round of the service takes as long as some looks.
  bool moved = false;
  for (int looks = 0; looks < looks_in_a_row && (looks == 0 || is_moving_) && !channel_.is_broken(); ++looks)
    if (serve()) moved = true;
  const Clock::duration nap = back_off_.next(moved, false, now);
  if (run_so_far_ < enqueued_) return {};
  return in_graphs_ ? std::min<Clock::duration>(nap, longest_nap_for_graphs) : nap;
}

bool Halo::serve() {
  const std::lock_guard<std::mutex> hold(mutex_);
  const std::uint32_t count = run_.message_count;
  std::uint64_t unpacked_by_all = UINT64_MAX;
  bool moved = false;
  // Receives first: sends may wait for those of the other side, which are started likewise.
  for (std::uint32_t m = 0; m < count; ++m) {
    if (!moves_[m]) continue;
    Progress& one = progress_[m];
    const std::uint64_t unpacked = channel_.flag(count + m);
    unpacked_by_all = std::min(unpacked_by_all, unpacked);
    if (one.receiving != one.received || unpacked != one.received) continue;
    transport_->start_receive(m);
    ++one.receiving;
  }
  for (std::uint32_t m = 0; m < count; ++m) {
    Progress& one = progress_[m];
    if (!moves_[m] || one.sending != one.sent || channel_.flag(m) <= one.sending) continue;
    transport_->start_send(m);
    ++one.sending;
    moved = true;
  }
  over_sends_.clear();
  over_receives_.clear();
  transport_->look(&over_sends_, &over_receives_);
  for (const std::uint32_t m : over_sends_) {
    channel_.set_flag(m, ++progress_[m].sent);
    ++counts_.sent;
  }
  for (const std::uint32_t m : over_receives_) {
    channel_.set_flag(count + m, ++progress_[m].received);
    ++counts_.received;
  }
  if (unpacked_by_all != UINT64_MAX) run_so_far_ = unpacked_by_all;
  is_moving_ = std::any_of(progress_.begin(), progress_.end(), [&](const Progress& one) {
    return one.sending != one.sent || one.sending > one.received;  // what was sent, and what is to come in its exchange
  });
  return moved || !over_sends_.empty() || !over_receives_.empty();
}

bool Halo::wait_for_all() {
  // Exchanges in graphs have counted, too: so this is not exact, and not too little.
  const std::uint64_t enqueued = enqueued_;
  for (auto nap = std::chrono::microseconds(5);; nap = std::min(2 * nap, std::chrono::microseconds(2000))) {
    if (run_.part_count == 0 || device_.read_word(&run_.words->step) >= enqueued) break;
    if (is_broken()) return false;
    std::this_thread::sleep_for(nap);
  }
  // The last sends, which no kernel waits for.
  for (bool over = false; !over;) {
    if (is_broken()) return false;
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      over = true;
      for (std::uint32_t m = 0; m < run_.message_count; ++m)
        if (moves_[m] && progress_[m].sent < channel_.flag(m)) over = false;
    }
    if (!over) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return !is_broken();
}

Halo::Counts Halo::counts() {
  const std::lock_guard<std::mutex> hold(mutex_);
  return counts_;
}

}  // namespace mpix
