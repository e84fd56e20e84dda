// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// How a halo is made: its buffers, the tables that kernels read, and the channel.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "notify/halo.h"

namespace mpix {
namespace {

/// MPI's reads and writes, and those of kernels, on pages of their own.
constexpr std::uint64_t apart = 4096;
/// Blocks on each multiprocessor: others' kernels fit beside them.
constexpr std::uint32_t blocks_each = 2;

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + apart - 1) / apart * apart; }

}  // namespace

struct Halo::Memory {
  explicit Memory(Device& to) : device(to) {}
  ~Memory() {
    for (void* const p : {words, buffers})
      if (p) device.release(p);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device& device;
  std::shared_ptr<char> pinned, passed;
  std::shared_ptr<const void> first, messages, boxes, parts;
  void *words = nullptr, *buffers = nullptr;
};

/// What is waited for, as the watch of the channel finds it.
std::string Halo::wait_text(const Known& known, std::uint32_t flag, std::uint64_t packed, const std::string& advice) {
  const HaloNote note = HaloNote::unpacked(packed);
  const std::string step = std::to_string(note.step), block = "block " + std::to_string(note.block) + " waits: ";
  const std::size_t count = known.names.size();
  if (flag < 2 * count) {
    const bool packs = flag < count;
    const std::size_t cargo = packs ? flag : flag - count;
    const char* const why =
        known.by_memory[cargo]
            ? (packs ? "that rank has not unpacked the last but one" : "that rank has not packed it")
            : (packs ? "MPI has not sent the one before" : "MPI has not received it (has that rank packed it?)");
    return block + known.names[cargo] + " of exchange " + step + " cannot be " + (packs ? "packed: " : "unpacked: ") +
           why;
  }
  if (flag == 2 * count)
    return (note.step < known.last_step ? "steps " + step + " to " + std::to_string(known.last_step) + " were"
                                        : "step " + step + " was") +
           " not made ready (MPIX_Halo_ready_stream, MPIX_Halo_end_stream), and the launch for them waits" + advice;
  if (flag == 2 * count + 1)
    return std::to_string(blocks_of_meeting(note) - note.block) + " of " + std::to_string(blocks_of_meeting(note)) +
           " blocks of a grid have come to a meeting (MPIX_Dev_halo_begin, MPIX_Dev_halo_sync), and wait for the "
           "others";
  return "a stream waits for step " + step + ", which is not over";
}

ChannelOptions Halo::channel_options(const Options& options, std::shared_ptr<const Known> known, std::uint32_t flags,
                                     const std::string& hang_advice) {
  ChannelOptions all;
  all.flags = flags;
  all.service = TaskService::caller;
  all.name = options.name;
  all.local_ranks = options.local_ranks;
  const std::string advice = hang_advice.empty() ? "" : "; " + hang_advice;
  all.flag_text = [known = std::move(known), advice](std::uint32_t flag, std::uint64_t note) {
    return wait_text(*known, flag, note, advice);
  };
  return all;
}

/// Multiprocessors that are this rank's. Where processes share a GPU under MPS, blocks of one keep those of all others
/// from a multiprocessor, and wait for them perhaps.
std::uint32_t Halo::places() const {
  if (!room_) return 0;
  if (options_.sharers == 1) return room_->all();
  return std::max(WaitingRoom::most(room_->all(), options_.sharers), 1u);
}

/// On hosts one thread packs and unpacks all, unless it is told otherwise.
std::uint32_t Halo::most_blocks() const {
  const std::uint32_t all = options_.sharers == 1 ? blocks_each * places() : places();
  if (options_.blocks == 0) return all > 0 ? all : 1;
  return all > 0 ? std::min(options_.blocks, all) : options_.blocks;
}

HaloShape Halo::shape() const { return {options_.form, options_.chunk, most_blocks(), options_.largest_first}; }

Halo::Halo(const Options& options, const std::vector<HaloContent>& messages, Device& device, const Settings& settings)
    : options_(options),
      device_(device),
      room_(device.new_waiting_room()),
      plan_(plan_halo(messages, shape())),
      known_(std::make_shared<Known>()),
      channel_(channel_options(options, known_, 2 * static_cast<std::uint32_t>(plan_.cargo.size()) + halo_extra_flags,
                               device.hang_advice()),
               nullptr, nullptr, device, settings),
      memory_(std::make_shared<Memory>(device)),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings.timeout_seconds))),
      fails_on_timeout_(settings.fail_on_timeout),
      progress_(plan_.cargo.size()) {
  for (const HaloCargo& cargo : plan_.cargo) {
    known_->names.push_back(cargo.name);
    counts_.send_bytes += cargo.send_bytes;
    counts_.recv_bytes += cargo.recv_bytes;
  }
  device.prepare_halos();
}

void Halo::use_ends(std::unique_ptr<HaloSegment> segment, const std::vector<HaloEnd>& ends) {
  for (std::uint32_t m = 0; m < plan_.cargo.size(); ++m) {
    const bool by_memory = ends[m].segment != nullptr;
    known_->by_memory.push_back(by_memory);
    if (sends_by_mpi(m)) sends_.push_back(m);
    if (receives_by_mpi(m)) receives_.push_back(m);
    if (by_memory && plan_.cargo[m].sends) ++counts_.by_memory;
    if (by_memory && plan_.cargo[m].receives) ++received_by_memory_;
  }
  if (counts_.by_memory + received_by_memory_ > 0) segment_ = std::move(segment);
  std::vector<bool> from_host(plan_.cargo.size());
  if (options_.buffers == HaloBuffers::pinned && !device_.is_host())
    for (const std::uint32_t m : receives_) from_host[m] = true;
  plan_parts(plan_, shape(), from_host);
  for (const HaloPlan::Range& range : plan_.launches)
    counts_.blocks = std::max<std::uint64_t>(counts_.blocks, std::min(range.end - range.first, most_blocks()));
  make_buffers();
  upload_tables(ends);
  if (options_.buffers == HaloBuffers::copied && serves_any()) copier_ = device_.new_copier();
}

void Halo::make_buffers() {
  std::uint64_t bytes = 0;
  for (const std::uint32_t m : sends_) bytes += options_.halves * rounded(plan_.cargo[m].send_bytes);
  for (const std::uint32_t m : receives_) bytes += options_.halves * rounded(plan_.cargo[m].recv_bytes);
  const auto cut = [&](char* base, std::vector<HaloBufferPair>& all) {
    all.resize(plan_.cargo.size());
    char* at = base;
    for (const bool send : {true, false})
      for (const std::uint32_t m : send ? sends_ : receives_)
        for (std::size_t half = 0; half < 2; ++half) {
          std::array<char*, 2>& place = send ? all[m].send : all[m].recv;
          place[half] = half < options_.halves ? at : place[0];
          if (half < options_.halves) at += rounded(send ? plan_.cargo[m].send_bytes : plan_.cargo[m].recv_bytes);
        }
  };
  if (!serves_any()) {
    for_mpi_.resize(plan_.cargo.size());
    for_kernels_.resize(plan_.cargo.size());
    return;
  }
  bytes = std::max(bytes, apart);
  if (options_.buffers != HaloBuffers::pinned) {
    memory_->buffers = device_.allocate(bytes).base;
    cut(static_cast<char*>(memory_->buffers), for_kernels_);
  }
  if (options_.buffers != HaloBuffers::device) {
    memory_->pinned = device_.allocate_pinned(bytes);
    cut(memory_->pinned.get(), for_mpi_);
  }
  if (options_.buffers == HaloBuffers::pinned) for_kernels_ = for_mpi_;
  if (options_.buffers == HaloBuffers::device) for_mpi_ = for_kernels_;
}

void Halo::upload_tables(const std::vector<HaloEnd>& ends) {
  const auto place = [&](HaloPart& part) {
    const HaloEnd& end = ends[part.message];
    if (!end.segment) {
      const HaloBufferPair& pair = for_kernels_[part.message];
      std::copy_n((part.unpacks != 0 ? pair.recv : pair.send).begin(), 2, part.side.buffer);
      return;
    }
    const HaloEndWords* const own = HaloSegment::words_of(segment_->base(), part.message);
    part.told_bell = HaloSegment::bell_of(end.segment);
    part.by_lines = (part.unpacks != 0 ? end.takes_lines : end.sends_lines) ? 1 : 0;
    if (part.unpacks != 0) {
      for (std::size_t half = 0; half < 2; ++half)
        part.side.buffer[half] = segment_->base() + segment_->buffers_of(part.message)[half];
      part.awaited = &own->there;
      part.told = &HaloSegment::words_of(end.segment, end.sends)->room;
    } else {
      for (std::size_t half = 0; half < 2; ++half) part.side.buffer[half] = end.segment + end.at[half];
      part.awaited = &own->room;
      part.told = &HaloSegment::words_of(end.segment, end.takes)->there;
    }
  };
  for (HaloMessage& message : plan_.messages) {
    place(message.send);
    place(message.recv);
  }
  for (HaloPart& part : plan_.parts) place(part);
  const auto upload = [this](auto table) {
    if (table.empty()) table.emplace_back();  // to have an address
    return device_.upload(table.data(), table.size() * sizeof table[0]);
  };
  memory_->first = upload(plan_.first);
  memory_->messages = upload(plan_.messages);
  memory_->boxes = upload(plan_.boxes);
  memory_->parts = upload(plan_.parts);
  memory_->words = device_.allocate(sizeof(HaloWords) + 2 * plan_.messages.size() * sizeof(std::uint64_t)).base;
  param_.abi = MPIX_DEV_HALO_ABI;
  param_.given = static_cast<std::uint32_t>(plan_.first.size()) - 1;
  param_.messages = static_cast<std::uint32_t>(plan_.messages.size());
  param_.parts = static_cast<std::uint32_t>(plan_.parts.size());
  param_.halves = options_.halves;
  param_.first = static_cast<const std::uint32_t*>(memory_->first.get());
  param_.message = static_cast<const HaloMessage*>(memory_->messages.get());
  param_.box = static_cast<const HaloBox*>(memory_->boxes.get());
  param_.part = static_cast<const HaloPart*>(memory_->parts.get());
  param_.words = static_cast<HaloWords*>(memory_->words);
  memory_->passed = device_.allocate_pinned(most_waiting * sizeof *passed_);
  passed_ = reinterpret_cast<std::uint64_t*>(memory_->passed.get());
  std::fill_n(passed_, most_waiting, 0);
  param_.channel = channel_.param();
  if (segment_ && device_.is_host()) param_.bell = HaloSegment::bell_of(segment_->base());
}

}  // namespace mpix
