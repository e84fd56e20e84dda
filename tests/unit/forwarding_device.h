// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/collective_launch.h"
#include "device/copier.h"
#include "device/device.h"
#include "device/node_memory.h"

/// A device that does what another one does: for tests that change a part of it.
class ForwardingDevice : public mpix::Device {
 public:
  explicit ForwardingDevice(mpix::Device& device) : to_(device) {}

  const char* name() const noexcept override { return to_.name(); }
  bool hidden_from_host(const void* p) const noexcept override { return to_.hidden_from_host(p); }
  void use_memory_of(const void* base, std::size_t bytes) override { to_.use_memory_of(base, bytes); }
  bool lets_networks_reach(const void* p) const override { return to_.lets_networks_reach(p); }
  void settle_thread() override { to_.settle_thread(); }
  std::size_t preferred_eager_bytes() const noexcept override { return to_.preferred_eager_bytes(); }
  std::size_t packs_above() const noexcept override { return to_.packs_above(); }
  std::size_t preferred_copy_bytes() const noexcept override { return to_.preferred_copy_bytes(); }
  std::uint32_t parts_in_use() const noexcept override { return to_.parts_in_use(); }
  mpix::Allocation allocate(std::size_t bytes) override { return to_.allocate(bytes); }
  void release(void* base) noexcept override { to_.release(base); }
  std::optional<mpix::Allocation> shareable(const void* p) const override { return to_.shareable(p); }
  mpix::ExportedMemory export_memory(const void* base) override { return to_.export_memory(base); }
  char* import_memory(const mpix::ExportedMemory& memory) override { return to_.import_memory(memory); }
  void close_import(char* base) noexcept override { to_.close_import(base); }
  std::unique_ptr<mpix::TeamMemory> new_team_memory() override { return to_.new_team_memory(); }
  std::unique_ptr<mpix::NodeMemory> new_node_memory(const mpix::NodeShape& shape) override {
    return to_.new_node_memory(shape);
  }
  std::uint64_t sharing_group() const override { return to_.sharing_group(); }
  std::unique_ptr<mpix::Copier> new_copier() override { return to_.new_copier(); }
  std::shared_ptr<const void> upload(const void* data, std::size_t bytes) override { return to_.upload(data, bytes); }
  void read(void* to, const void* from, std::size_t bytes) override { to_.read(to, from, bytes); }
  void write(void* to, const void* from, std::size_t bytes) override { to_.write(to, from, bytes); }
  std::uint64_t read_word(const std::uint64_t* word) override { return to_.read_word(word); }
  void write_word(std::uint64_t* word, std::uint64_t value) override { to_.write_word(word, value); }
  std::shared_ptr<mpix::HostWords> host_words(std::size_t ranks) override { return to_.host_words(ranks); }
  std::shared_ptr<char> allocate_pinned(std::size_t bytes) override { return to_.allocate_pinned(bytes); }
  bool waits_for_launches() const noexcept override { return to_.waits_for_launches(); }
  bool serves_remote_work() const noexcept override { return to_.serves_remote_work(); }
  std::uint64_t check_stream(mpix::Stream stream) const override { return to_.check_stream(stream); }
  std::uint64_t number_of(mpix::Stream stream) const noexcept override { return to_.number_of(stream); }
  bool reads_plans_later() const noexcept override { return to_.reads_plans_later(); }
  void keep_for_graph(mpix::Stream stream, std::shared_ptr<const void> what) override {
    to_.keep_for_graph(stream, std::move(what));
  }
  void launch(mpix::Stream stream, mpix::Launch&& launch) override { to_.launch(stream, std::move(launch)); }
  void launch(mpix::Stream stream, mpix::CollectiveLaunch&& launch) override { to_.launch(stream, std::move(launch)); }
  void launch(mpix::Stream stream, mpix::HaloLaunch&& launch) override { to_.launch(stream, std::move(launch)); }
  void launch(mpix::Stream stream, const mpix::HaloGate& gate, const std::shared_ptr<const void>& keep) override {
    to_.launch(stream, gate, keep);
  }
  void launch(mpix::Stream stream, mpix::RailLaunch&& launch) override { to_.launch(stream, std::move(launch)); }
  std::unique_ptr<mpix::OwnStream> new_stream() override { return to_.new_stream(); }
  void prepare_collectives() override { to_.prepare_collectives(); }
  std::uint64_t collectives_run(const mpix::Collective& any) override { return to_.collectives_run(any); }
  std::shared_ptr<mpix::StreamPoint> new_point() override { return to_.new_point(); }
  std::size_t preferred_line_bytes(std::uint32_t ranks) const noexcept override {
    return to_.preferred_line_bytes(ranks);
  }
  PackForm pack_form(std::uint32_t ranks) const noexcept override { return to_.pack_form(ranks); }
  bool carries_packs(std::uint64_t processor) override { return to_.carries_packs(processor); }
  std::size_t least_chosen_bytes(std::uint32_t ranks) const noexcept override { return to_.least_chosen_bytes(ranks); }
  bool chooses_lines() const noexcept override { return to_.chooses_lines(); }
  std::uint64_t chosen_direct(const mpix::Collective& any) override { return to_.chosen_direct(any); }
  std::unique_ptr<mpix::CallRoom> new_call_room() override { return to_.new_call_room(); }
  std::size_t preferred_scratch_bytes() const noexcept override { return to_.preferred_scratch_bytes(); }
  using mpix::Device::copy;
  void copy(mpix::Stream stream, const mpix::RowCopy& rows) override { to_.copy(stream, rows); }
  void run_memory_ops(mpix::Stream stream, mpix::MemoryOps ops) override { to_.run_memory_ops(stream, std::move(ops)); }
  mpix::PostStreams* post_streams() override { return to_.post_streams(); }
  std::uint64_t processor() override { return to_.processor(); }
  bool wants_guards_where_shared() override { return to_.wants_guards_where_shared(); }
  bool stalls_silently() const noexcept override { return to_.stalls_silently(); }
  bool have_ended(const mpix::HostWords& words, std::uint64_t launches) const override {
    return to_.have_ended(words, launches);
  }

 private:
  mpix::Device& to_;
};

/// Likewise, of one window.
class ForwardingNodeMemory : public mpix::NodeMemory {
 public:
  explicit ForwardingNodeMemory(std::unique_ptr<mpix::NodeMemory> to) : to_(std::move(to)) {}
  mpix::NodeOffer offer() override { return to_->offer(); }
  void join(const std::vector<mpix::NodeRank>& group, const mpix::NodeOffer& offer) override {
    to_->join(group, offer);
  }
  void join(const mpix::NodeRank& rank, const mpix::NodeOffer& offer) override { to_->join(rank, offer); }
  bool takes_place() const override { return to_->takes_place(); }
  mpix::NodeExtent choose_extent() override { return to_->choose_extent(); }
  void open(const mpix::NodeExtent& place, bool all_joined) noexcept override { to_->open(place, all_joined); }
  char* header(int local) override { return to_->header(local); }
  char* mailbox(int owner, int origin) override { return to_->mailbox(owner, origin); }
  char* window(int local) override { return to_->window(local); }
  const char* own_staging() override { return to_->own_staging(); }
  void say_farewell(mpix::Farewell farewell) override { to_->say_farewell(farewell); }
  mpix::Farewell farewell_of(int local) override { return to_->farewell_of(local); }
  std::shared_ptr<const void> own_control() const override { return to_->own_control(); }

 private:
  const std::unique_ptr<mpix::NodeMemory> to_;
};
