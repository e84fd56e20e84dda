// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/request_words.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace mpix {
namespace {

std::shared_ptr<char> zeroed(Device& device, std::size_t bytes) {
  std::shared_ptr<char> memory = device.allocate_pinned(bytes);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

}  // namespace

RequestWords::RequestWords(Device& device, const dev::ChannelHooks* hooks)
    : device_(device), hooks_(hooks), host_(zeroed(device, sizeof(dev::ChannelHost))) {}

RequestWords::~RequestWords() {
  for (const Block& block : blocks_) device_.release(block.state);
}

void RequestWords::grow() {
  Block block{};
  block.words = zeroed(device_, (2 + dev::words_apart) * block_places * sizeof(std::uint64_t));
  partitions_.reserve(places() + block_places);
  generations_.reserve(places() + block_places);
  blocks_.reserve(blocks_.size() + 1);
  const std::vector<dev::RequestState> none(block_places);
  char* const there = device_.allocate(none.size() * sizeof none[0]).base;
  try {
    device_.write(there, none.data(), none.size() * sizeof none[0]);
  } catch (...) {
    device_.release(there);
    throw;
  }
  block.state = reinterpret_cast<dev::RequestState*>(there);
  blocks_.push_back(std::move(block));
  partitions_.resize(places());
  generations_.resize(places());
}

MPIX_Drequest RequestWords::give_out(std::size_t place, std::uint32_t partitions, bool sends) {
  Partitions& own = partitions_[place];
  const std::uint32_t apart = dev::partitions_apart(sends);
  const std::size_t room = std::size_t{partitions} * apart;
  if (own.room < room) own = Partitions{zeroed(device_, room * sizeof(std::uint64_t)), room};
  own.apart = apart;
  const std::uint64_t number = std::max(load_acquire(up(place)), load_acquire(down(place)));
  store_release(up(place), number);
  store_release(down(place), number);
  store_release(note(place), 0);
  for (std::uint32_t p = 0; p < partitions; ++p) store_release(partition(place, p), number);
  const std::uint64_t generation = last_generation_ + 1;
  const dev::RequestState first{generation, number, number, 0};
  device_.write(state_of(place), &first, sizeof first);
  generations_[place] = last_generation_ = generation;

  MPIX_Drequest given{};
  given.abi = MPIX_DEV_REQUEST_ABI;
  given.number = static_cast<std::uint32_t>(place);
  given.partitions = partitions;
  given.sends = sends;
  given.generation = generation;
  given.state = state_of(place);
  given.up = up(place);
  given.down = down(place);
  given.note = note(place);
  given.partition = partition(place, 0);
  given.host = host();
  given.hooks = hooks_;
  return given;
}

void RequestWords::take_back(std::size_t place) {
  generations_[place] = 0;
  try {
    device_.write_word(&state_of(place)->generation, 0);
  } catch (const Error&) {  // the GPU has failed: nobody runs there
  }
}

bool RequestWords::is_current(const MPIX_Drequest& request) const {
  return request.generation != 0 && request.number < places() && request.generation == generations_[request.number];
}

}  // namespace mpix
