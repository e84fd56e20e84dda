// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu/host/host_device.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/cores.h"
#include "core/settings.h"
#include "gpu/host/shared_memory.h"
#include "gpu/host/stream.h"

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

class HostDevice final : public Device {
 public:
  HostDevice(const Settings& settings, int local_ranks) { set_host_polling(polling_of(settings, local_ranks)); }

  const char* name() const noexcept override { return "host"; }

  bool hidden_from_host(const void*) const noexcept override { return false; }
  void use_memory_of(const void*, std::size_t) override {}
  // A mailbox line of 16 bytes carries 8: beyond a cache line of payload, moving twice as many lines between
  // cores costs more than looking for the post, which as a rule is there (measured with 2 and 8 ranks).
  std::size_t preferred_eager_bytes() const noexcept override { return 64; }
  std::size_t preferred_copy_bytes() const noexcept override { return SIZE_MAX; }  // it has none
  std::uint32_t parts_in_use() const noexcept override { return 1; }

  Allocation allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  void release(void* base) noexcept override { memory_.release(base); }
  std::optional<Allocation> shareable(const void* p) const override { return memory_.find(p); }

  ExportedMemory export_memory(const void* base) override { return memory_.export_memory(base); }
  char* import_memory(const ExportedMemory& memory) override { return memory_.import_memory(memory); }
  void close_import(char* base) noexcept override { memory_.close_import(base); }

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

  std::shared_ptr<HostWords> host_words(std::size_t ranks) override {
    struct WithNotes {
      HostWords words{};
      std::vector<WaitNotes> notes;
    };
    auto all = std::make_shared<WithNotes>();
    all->notes.resize(ranks);
    all->words.notes = all->notes.data();
    return std::shared_ptr<HostWords>(all, &all->words);
  }

  std::shared_ptr<char> allocate_pinned(std::size_t bytes) override {
    return std::shared_ptr<char>(memory_.allocate(bytes).base, [this](char* base) { memory_.release(base); });
  }
  bool serves_remote_work() const noexcept override { return true; }

  std::uint64_t check_stream(Stream stream) const override {
    check_host_stream(stream);
    return 0;
  }
  bool reads_plans_later() const noexcept override { return false; }
  void keep_for_graph(Stream, std::shared_ptr<const void>) override {}
  void launch(Stream stream, const Launch& launch) override { host_stream_launch(stream, launch); }
  void copy(Stream, void*, const void*, std::size_t) override {}  // preferred_copy_bytes()
  void run_memory_ops(Stream stream, MemoryOps ops) override { host_stream_launch(stream, std::move(ops)); }

  // Threads that wait give their core away.
  std::uint64_t place() override { return 0; }
  bool wants_guards_where_shared() override { return false; }
  bool stalls_silently() const noexcept override { return false; }
  bool have_ended(const HostWords& words, std::uint64_t launches) const override {
    return __atomic_load_n(&words.executed, __ATOMIC_ACQUIRE) >= launches;
  }

 private:
  static constexpr std::align_val_t alignment{64};
  SharedMemory memory_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const Settings& settings, int local_ranks) {
  return std::make_unique<HostDevice>(settings, local_ranks);
}

}  // namespace mpix
