// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/channel_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "mpix_device/flags.h"
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

/// Four sizes for each power of two, so that what many shapes leave behind is little.
std::size_t room_for(std::size_t bytes) {
  std::size_t step = 1024;
  while (bytes > 8 * step) step *= 2;
  return (bytes + step - 1) / step * step;
}

}  // namespace

struct ChannelMemory::Kept {
  std::mutex mutex;
  std::vector<Room<std::shared_ptr<char>>> hosts;
  std::vector<Room<char*>> devices;
  std::uint64_t generation = std::uint64_t{1} << 62;  ///< of the last channel

  /// One of these that is kept; without a base: there is none.
  template <class Memory>
  static Room<Memory> take(std::vector<Room<Memory>>& rooms, Device& device, std::size_t bytes) {
    const auto same = std::find_if(rooms.begin(), rooms.end(),
                                   [&](const auto& one) { return one.of == &device && one.bytes == bytes; });
    if (same == rooms.end()) return {&device, bytes, {}};
    Room<Memory> found = std::move(*same);
    rooms.erase(same);
    return found;
  }
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
  c.ring_lines = options.is_dense ? std::max(c.depth, static_cast<std::uint32_t>(dev::sector / sizeof(Line)))
                                  : (c.depth + lines_apart - 1) / lines_apart * lines_apart;
  c.word_stride = options.is_dense ? 1 : apart / sizeof(std::uint64_t);
  const std::uint64_t lanes = c.lanes, rings = c.rings, flags = c.flags;

  Parts host;
  const std::size_t head_at = host.take(dev::ChannelHost::bytes(lanes, flags));
  const std::size_t heads_at = host.take(rings * c.ring_lines * sizeof(Line));
  const std::size_t words_at = host.take(rings * c.depth * dev::task_words * sizeof(Line));
  const std::size_t replies_at = host.take(lanes * c.ring_lines * sizeof(Line));
  const std::size_t taken_at = host.take(rings * dev::words_apart * sizeof(std::uint64_t));
  const std::size_t up_at = host.take(flags * c.word_stride * sizeof(std::uint64_t));
  const std::size_t down_at = host.take(flags * dev::words_apart * sizeof(std::uint64_t));
  Parts there;
  const std::size_t state_at = there.take(sizeof(dev::ChannelState));
  const std::size_t lanes_at = there.take(lanes * sizeof(dev::ChannelLane));
  const std::size_t read_at = there.take(lanes * c.depth * sizeof(std::uint64_t));
  const std::size_t last_at = there.take(flags * sizeof(std::uint64_t));
  const std::size_t watched_at = there.take(flags * sizeof(dev::WatchedFlag));
  const std::size_t down_there_at =
      there.take(options.flags_on_device ? flags * dev::words_apart * sizeof(std::uint64_t) : 0);

  {
    Kept& all = kept();
    const std::lock_guard<std::mutex> hold(all.mutex);
    host_ = Kept::take(all.hosts, device, room_for(host.all()));
    there_ = Kept::take(all.devices, device, room_for(there.all()));
    c.generation = ++all.generation;
  }
  if (!host_.base) host_.base = device.allocate_pinned(host_.bytes);
  if (!there_.base) there_.base = device.allocate(there_.bytes).base;
  char* const here = host_.base.get();
  std::memset(here, 0, host_.bytes);
  c.host = reinterpret_cast<dev::ChannelHost*>(here + head_at);
  c.heads = reinterpret_cast<Line*>(here + heads_at);
  c.words = reinterpret_cast<Line*>(here + words_at);
  c.replies = reinterpret_cast<Line*>(here + replies_at);
  c.taken = reinterpret_cast<std::uint64_t*>(here + taken_at);
  c.up = reinterpret_cast<std::uint64_t*>(here + up_at);
  flags_set_ = reinterpret_cast<std::uint64_t*>(here + down_at);
  c.down = options.flags_on_device ? reinterpret_cast<std::uint64_t*>(there_.base + down_there_at) : flags_set_;
  c.state = reinterpret_cast<dev::ChannelState*>(there_.base + state_at);
  c.lane = reinterpret_cast<dev::ChannelLane*>(there_.base + lanes_at);
  c.read = reinterpret_cast<std::uint64_t*>(there_.base + read_at);
  c.last = reinterpret_cast<std::uint64_t*>(there_.base + last_at);
  c.watched = reinterpret_cast<dev::WatchedFlag*>(there_.base + watched_at);

  std::vector<char> first(there_.bytes);
  const std::uint64_t before = options.first_number - 1;
  auto* const state = reinterpret_cast<dev::ChannelState*>(first.data() + state_at);
  state->generation = c.generation;
  state->tickets = state->taken_seen = before;
  auto* const lane = reinterpret_cast<dev::ChannelLane*>(first.data() + lanes_at);
  for (std::uint64_t i = 0; i < lanes; ++i) {
    lane[i].generation = c.generation;
    lane[i].posted = lane[i].taken_seen = before;
  }
  device.write(there_.base, first.data(), first.size());
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
  all.hosts.push_back(std::move(host_));
  all.devices.push_back(there_);
}

void ChannelMemory::forget_all() noexcept {
  Kept& all = kept();
  const std::lock_guard<std::mutex> hold(all.mutex);
  for (const auto& one : all.devices) one.of->release(one.base);
  all.devices.clear();
  all.hosts.clear();
}

}  // namespace mpix
