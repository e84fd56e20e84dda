// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/host_device.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/cores.h"
#include "base/error.h"
#include "base/settings.h"
#include "device/collective_launch.h"
#include "device/copier.h"
#include "device/host/arena.h"
#include "device/host/halo_run.h"
#include "device/host/post_streams.h"
#include "device/host/shared_memory.h"
#include "device/host/stream.h"
#include "device/rail_launch.h"
#include "wire/collective.h"
#include "wire/way_choice.h"

namespace mpix {
namespace {

Polling polling_of(const Settings& settings, int local_ranks) {
  const bool own_core = cores_per_rank(local_ranks) >= 1;
  const auto limit = [&](double preset) {
    const double seconds = settings.spin_seconds >= 0 ? settings.spin_seconds : preset;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  };
  return Polling{limit(own_core ? 200e-6 : 50e-6), own_core, limit(1e-3)};
}

/// Processes find each other's files where they have one user and see each other's numbers.
std::uint64_t this_group() {
  struct stat numbers {};
  if (stat("/proc/self/ns/pid", &numbers) != 0) numbers.st_ino = 0;
  return static_cast<std::uint64_t>(numbers.st_ino) << 32 | geteuid();
}

void copy_rows(void* p) {
  const std::unique_ptr<const RowCopy> rows(static_cast<RowCopy*>(p));
  if (rows->bytes == 0) return;
  for (std::uint64_t row = 0; row < rows->rows; ++row)
    std::memcpy(rows->to + row * rows->to_stride, rows->from + row * rows->from_stride, rows->bytes);
}

class HostCopier final : public Copier {
 public:
  std::uint64_t start(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return ++started_;
  }
  std::uint64_t finished() override { return started_; }

 private:
  std::uint64_t started_ = 0;
};

class OwnHostStream final : public OwnStream {
 public:
  ~OwnHostStream() override { (void)destroy_host_stream(stream_); }
  Stream handle() const noexcept override { return stream_; }
  void synchronize() override { (void)host_stream_synchronize(stream_); }

 private:
  const Stream stream_ = create_host_stream();
};

class HostDevice final : public Device {
 public:
  HostDevice(const Settings& settings, int local_ranks)
      : packs_above_(settings.packs_above.value_or(SIZE_MAX)), free_posts_(settings.posts == Posts::free) {
    set_host_polling(polling_of(settings, local_ranks));
  }

  const char* name() const noexcept override { return "host"; }

  bool hidden_from_host(const void*) const noexcept override { return false; }
  void use_memory_of(const void*, std::size_t) override {}
  // A mailbox line of 16 bytes carries 8: beyond a cache line of payload, moving twice as many lines between
  // cores costs more than looking for the post, which as a rule is there (measured with 2 and 8 ranks).
  std::size_t preferred_eager_bytes() const noexcept override { return 64; }
  std::size_t packs_above() const noexcept override { return packs_above_; }
  bool carries_packs(std::uint64_t) override { return true; }
  std::size_t preferred_copy_bytes() const noexcept override { return SIZE_MAX; }  // it has none
  std::uint32_t parts_in_use() const noexcept override { return 1; }

  Allocation allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  void release(void* base) noexcept override { memory_.release(base); }
  std::optional<Allocation> shareable(const void* p) const override { return memory_.find(p); }

  ExportedMemory export_memory(const void* base) override { return memory_.export_memory(base); }
  char* import_memory(const ExportedMemory& memory) override { return memory_.import_memory(memory); }
  void close_import(char* base) noexcept override { memory_.close_import(base); }

  std::unique_ptr<TeamMemory> new_team_memory() override { return std::make_unique<TeamArena>(); }
  std::unique_ptr<NodeMemory> new_node_memory(const NodeShape& shape) override {
    return make_arena_node_memory(memory_, shape);
  }
  std::uint64_t sharing_group() const override { return group_; }

  std::unique_ptr<Copier> new_copier() override { return std::make_unique<HostCopier>(); }
  std::shared_ptr<const void> upload(const void* data, std::size_t bytes) override {
    std::shared_ptr<char> copy(static_cast<char*>(::operator new(bytes, alignment)),
                               [](char* p) { ::operator delete(p, alignment); });
    if (bytes) std::memcpy(copy.get(), data, bytes);
    return copy;
  }

  void read(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void write(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  std::uint64_t read_word(const std::uint64_t* word) override { return load_acquire(word); }
  void write_word(std::uint64_t* word, std::uint64_t value) override { store_release(word, value); }

  /// Without notes: streams report by themselves.
  std::shared_ptr<HostWords> host_words(std::size_t) override { return std::make_shared<HostWords>(); }

  /// Nobody else maps it, so it is no file.
  std::shared_ptr<char> allocate_pinned(std::size_t bytes) override {
    const std::size_t mapped = SharedFile::in_pages(bytes ? bytes : 1);
    void* const base = bytes > SIZE_MAX / 4
                           ? MAP_FAILED
                           : mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw Error(Fault::memory, "cannot allocate " + std::to_string(bytes) + " bytes");
    return std::shared_ptr<char>(static_cast<char*>(base), [mapped](char* p) { munmap(p, mapped); });
  }
  bool serves_remote_work() const noexcept override { return true; }

  std::uint64_t check_stream(Stream stream) const override {
    check_host_stream(stream);
    return 0;
  }
  bool reads_plans_later() const noexcept override { return false; }
  void keep_for_graph(Stream, std::shared_ptr<const void>) override {}
  void launch(Stream stream, Launch&& launch) override { host_stream_launch(stream, std::move(launch)); }
  void launch(Stream stream, CollectiveLaunch&& launch) override { host_stream_launch(stream, std::move(launch)); }
  void launch(Stream stream, HaloLaunch&& launch) override { launch_halo(stream, std::move(launch)); }
  void launch(Stream stream, const HaloGate& gate, const std::shared_ptr<const void>& keep) override {
    launch_halo(stream, gate, keep);
  }
  void launch(Stream stream, RailLaunch&& launch) override { host_stream_launch(stream, std::move(launch)); }
  std::uint64_t collectives_run(const Collective& any) override { return load_acquire(&any.host->run); }
  /// By mpix-tune: lines are no longer the best from 512 bytes on with 2 ranks, and from 1 KiB on with 4 and 8.
  std::size_t preferred_line_bytes(std::uint32_t) const noexcept override { return 512; }
  std::unique_ptr<OwnStream> new_stream() override { return std::make_unique<OwnHostStream>(); }
  std::size_t least_chosen_bytes(std::uint32_t) const noexcept override { return 1; }
  std::uint64_t chosen_direct(const Collective& any) override {
    const auto* const last = reinterpret_cast<const LastCalls*>(any.own() + any.places.choices());
    return __atomic_load_n(&last->direct, __ATOMIC_RELAXED);
  }
  std::size_t preferred_scratch_bytes() const noexcept override { return 4 << 20; }
  using Device::copy;
  void copy(Stream stream, const RowCopy& rows) override {
    auto own = std::make_unique<RowCopy>(rows);
    host_stream_launch(stream, copy_rows, own.get());
    (void)own.release();
  }
  void run_memory_ops(Stream stream, MemoryOps ops) override { host_stream_launch(stream, std::move(ops)); }
  /// To destroy a stream is to wait for it.
  std::uint64_t number_of(Stream stream) const noexcept override { return reinterpret_cast<std::uintptr_t>(stream); }
  PostStreams* post_streams() override { return free_posts_ ? &post_streams_ : nullptr; }

  // Threads that wait give their core away.
  std::uint64_t processor() override { return 0; }
  bool wants_guards_where_shared() override { return false; }
  bool stalls_silently() const noexcept override { return false; }
  bool have_ended(const HostWords& words, std::uint64_t launches) const override {
    return __atomic_load_n(&words.executed, __ATOMIC_ACQUIRE) >= launches;
  }

 private:
  static constexpr std::align_val_t alignment{64};
  const std::uint64_t group_ = this_group();
  const std::size_t packs_above_;
  const bool free_posts_;
  SharedMemory memory_;
  HostPostStreams post_streams_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const Settings& settings, int local_ranks) {
  return std::make_unique<HostDevice>(settings, local_ranks);
}

}  // namespace mpix
