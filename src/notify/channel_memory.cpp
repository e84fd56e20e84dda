// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/channel_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "notify/channel.h"

namespace mpix {
namespace {

/// What lanes of different blocks use lies as far apart where the layout is padded: GPUs write to the host's memory,
/// and hosts fetch it, by this much.
constexpr std::size_t apart = 128;

/// Hands out parts of a range, each at a multiple of `apart`.
class Parts {
 public:
  std::size_t take(std::size_t bytes) {
    const std::size_t at = end_;
    end_ += (bytes + apart - 1) / apart * apart;
    return at;
  }
  std::size_t all() const { return end_; }

 private:
  std::size_t end_ = 0;
};

}  // namespace

struct ChannelMemory::Kept {
  std::mutex mutex;
  std::vector<std::pair<Device*, Room>> rooms;
  std::uint64_t generation = 0;  ///< of the last channel
};

ChannelMemory::Kept& ChannelMemory::kept() {
  static Kept& all = *new Kept;
  return all;
}

ChannelMemory::ChannelMemory(const ChannelOptions& options, Device& device) : device_(device) {
  MPIX_Dev_channel& c = param_;
  c.abi = MPIX_DEV_CHANNEL_ABI;
  c.lanes = options.lanes;
  c.flags = options.flags;
  c.depth = options.depth;
  c.rings = options.is_queue ? std::min(options.lanes, 1u) : options.lanes;
  c.all_fence = options.all_fence;
  const std::uint32_t lines_apart = apart / sizeof(Line);
  c.ring_lines = options.is_dense ? c.depth : (c.depth + lines_apart - 1) / lines_apart * lines_apart;
  c.word_stride = options.is_dense ? 1 : apart / sizeof(std::uint64_t);
  const std::uint64_t lanes = c.lanes, rings = c.rings, flags = c.flags;

  Parts host;
  const std::size_t head_at = host.take(dev::ChannelHost::bytes(lanes, flags));
  const std::size_t heads_at = host.take(rings * c.ring_lines * sizeof(Line));
  const std::size_t words_at = host.take(rings * c.depth * dev::task_words * sizeof(Line));
  const std::size_t replies_at = host.take(lanes * c.ring_lines * sizeof(Line));
  const std::size_t taken_at = host.take(rings * c.word_stride * sizeof(std::uint64_t));
  const std::size_t up_at = host.take(flags * c.word_stride * sizeof(std::uint64_t));
  const std::size_t down_at = host.take(flags * c.word_stride * sizeof(std::uint64_t));
  Parts there;
  const std::size_t state_at = there.take(sizeof(dev::ChannelState));
  const std::size_t lanes_at = there.take(lanes * sizeof(dev::ChannelLane));
  const std::size_t read_at = there.take(lanes * c.depth * sizeof(std::uint64_t));
  const std::size_t last_at = there.take(flags * sizeof(std::uint64_t));

  {
    Kept& all = kept();
    const std::lock_guard<std::mutex> hold(all.mutex);
    const auto same = std::find_if(all.rooms.begin(), all.rooms.end(), [&](const auto& one) {
      return one.first == &device && one.second.host_bytes == host.all() && one.second.device_bytes == there.all();
    });
    if (same != all.rooms.end()) {
      room_ = std::move(same->second);
      all.rooms.erase(same);
    }
    room_.generation = ++all.generation;
  }
  if (!room_.host) {
    room_.host_bytes = host.all();
    room_.device_bytes = there.all();
    room_.host = device.allocate_pinned(room_.host_bytes);
    room_.device = device.allocate(room_.device_bytes).base;
  }
  c.generation = room_.generation;
  char* const here = room_.host.get();
  std::memset(here, 0, room_.host_bytes);
  c.host = reinterpret_cast<dev::ChannelHost*>(here + head_at);
  c.heads = reinterpret_cast<Line*>(here + heads_at);
  c.words = reinterpret_cast<Line*>(here + words_at);
  c.replies = reinterpret_cast<Line*>(here + replies_at);
  c.taken = reinterpret_cast<std::uint64_t*>(here + taken_at);
  c.up = reinterpret_cast<std::uint64_t*>(here + up_at);
  c.down = reinterpret_cast<std::uint64_t*>(here + down_at);
  c.state = reinterpret_cast<dev::ChannelState*>(room_.device + state_at);
  c.lane = reinterpret_cast<dev::ChannelLane*>(room_.device + lanes_at);
  c.read = reinterpret_cast<std::uint64_t*>(room_.device + read_at);
  c.last = reinterpret_cast<std::uint64_t*>(room_.device + last_at);

  std::vector<char> first(room_.device_bytes);
  const std::uint64_t before = options.first_number - 1;
  auto* const state = reinterpret_cast<dev::ChannelState*>(first.data() + state_at);
  state->generation = room_.generation;
  state->tickets = state->taken_seen = before;
  auto* const lane = reinterpret_cast<dev::ChannelLane*>(first.data() + lanes_at);
  for (std::uint64_t i = 0; i < lanes; ++i) {
    lane[i].generation = room_.generation;
    lane[i].posted = lane[i].taken_seen = before;
  }
  device.write(room_.device, first.data(), first.size());
  for (std::uint64_t i = 0; i < rings; ++i) *dev::taken_of(c, i) = before;
}

ChannelMemory::~ChannelMemory() {
  try {
    device_.write_word(&param_.state->generation, 0);
    const std::vector<dev::ChannelLane> none(param_.lanes);
    device_.write(param_.lane, none.data(), none.size() * sizeof none[0]);
  } catch (const Error&) {  // the GPU has failed: nobody runs there
  }
  Kept& all = kept();
  const std::lock_guard<std::mutex> hold(all.mutex);
  all.rooms.emplace_back(&device_, std::move(room_));
}

void ChannelMemory::forget_all() noexcept {
  Kept& all = kept();
  const std::lock_guard<std::mutex> hold(all.mutex);
  for (auto& one : all.rooms) one.first->release(one.second.device);
  all.rooms.clear();
}

}  // namespace mpix
