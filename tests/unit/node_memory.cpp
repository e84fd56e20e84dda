// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The memory that ranks of a node share: files, arenas, exported memory, and what is mapped of it.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "creation.h"
#include "device/host/arena.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "device/shared_file.h"
#include "epoch/window.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "support/catch.h"
#include "support/child.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

/// Descriptors of shared memory.
int open_files() {
  int count = 0;
  for (int file = 0; file < 1024; ++file) {
    char name[100] = "";
    if (readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof name - 1) > 0 &&
        contains(name, "memfd:mpix"))
      ++count;
  }
  return count;
}

int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    if (contains(line, "memfd:mpix")) ++count;
  return count;
}

/// As a GPU's: each rank shares memory of its own.
class ExportingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::unique_ptr<TeamMemory> new_team_memory() override { return make_exported_team_memory(); }
  std::unique_ptr<NodeMemory> new_node_memory(const NodeShape& shape) override {
    return make_exported_node_memory(*this, shape);
  }
};

}  // namespace

TEST_CASE("each rank reads the farewells of the others, with whatever memory they share", "[creation]") {
  const Settings settings = quiet_settings();
  const bool exported = GENERATE(false, true);
  CAPTURE(exported);
  auto host = make_host_device(settings, 3);
  ExportingDevice exporting(*host);
  Device& device = exported ? exporting : *host;
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    const auto team = std::make_shared<const Team>(bootstrap, device, settings, nullptr);
    for (int window = 0; window < 3; ++window) {
      const int me = bootstrap.rank();
      std::vector<int> memory(64);
      Neighbourhood peers({memory.data(), memory.size() * sizeof(int), sizeof(int)}, team, bootstrap, device, settings);
      peers.agree(bootstrap);
      for (int other = 0; other < 3; ++other) EXPECT(peers.farewell_of(other) == Farewell::none);
      bootstrap.allgather(0);
      if (me == 1) peers.say_farewell(Farewell::win_free);
      if (me == 2) peers.say_farewell(Farewell::finalize);
      bootstrap.allgather(0);
      EXPECT(peers.farewell_of(0) == Farewell::none);
      EXPECT(peers.farewell_of(1) == Farewell::win_free);
      EXPECT(peers.farewell_of(2) == Farewell::finalize);
      bootstrap.allgather(0);
    }
  });
}

TEST_CASE("a window works, and can be left, where each rank shares memory of its own", "[creation]") {
  const Settings settings = quiet_settings();
  auto host = make_host_device(settings, 2);
  ExportingDevice device(*host);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    std::vector<int> memory(ints_for_exchange);
    Window window("exported", {memory.data(), memory.size() * sizeof(int), sizeof(int)}, bootstrap, device, settings);
    window.say_farewell(Farewell::win_free);
    exchange(window, {0, 1}, me, 7);
    EXPECT(has_come(memory, 0, 7) && has_come(memory, 1, 7));
    bootstrap.allgather(0);
  });
}

namespace {

/// Counts what it has allocated, and holds it.
class CountedAllocations final : public ExportingDevice {
 public:
  using ExportingDevice::ExportingDevice;
  Allocation allocate(std::size_t bytes) override {
    bury();
    const Allocation memory = ExportingDevice::allocate(bytes);
    held_[memory.base] = bytes;
    ++ever_;
    return memory;
  }
  void release(void* base) noexcept override {
    bury();
    held_.erase(static_cast<char*>(base));
    ExportingDevice::release(base);
  }
  void write(void* to, const void* from, std::size_t bytes) override {
    bury();
    ExportingDevice::write(to, from, bytes);
  }
  /// As a GPU's device, it drops what graphs held in a call of something else.
  void drop_later(std::shared_ptr<const void> part) { dead_.push_back(std::move(part)); }
  void bury() noexcept {
    const auto dead = std::move(dead_);
    dead_.clear();
  }
  std::size_t bytes() const {
    return std::accumulate(held_.begin(), held_.end(), std::size_t{0},
                           [](std::size_t sum, const auto& one) { return sum + one.second; });
  }
  int ever() const { return ever_; }

 private:
  std::map<char*, std::size_t> held_;
  std::vector<std::shared_ptr<const void>> dead_;
  int ever_ = 0;
};

}  // namespace

TEST_CASE("control memory of all windows of a team lies in few allocations, and none of it overlaps", "[creation]") {
  const Settings settings = quiet_settings();
  auto host = make_host_device(settings, 1);
  CountedAllocations device(*host);
  auto team = device.new_team_memory();
  struct Kept {
    std::unique_ptr<NodeMemory> memory;
    char* begin;
    std::size_t bytes;
    unsigned char value;
  };
  std::mt19937 random(11);
  std::vector<Kept> windows;
  std::size_t most = 0, now = 0;
  const auto is_whole = [](const Kept& one) {
    return std::all_of(one.begin, one.begin + one.bytes,
                       [&](char byte) { return static_cast<unsigned char>(byte) == one.value; });
  };
  for (int turn = 0; turn < 600; ++turn) {
    if (!windows.empty() && random() % 5 < 2) {
      const std::size_t i = random() % windows.size();
      REQUIRE(is_whole(windows[i]));
      now -= windows[i].bytes;
      if (random() % 2 == 0) device.drop_later(windows[i].memory->own_control());
      windows.erase(windows.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    NodeShape shape;
    shape.locals = 2;
    shape.me.mailbox_bytes = random() % 40 == 0 ? 9000000 : 1 + random() % 600000;
    shape.team = team.get();
    auto memory = make_exported_node_memory(device, shape);
    const NodeOffer offer = memory->offer();
    char* const block = device.import_memory(offer.control);
    REQUIRE(memory->header(0) == block + offer.control_offset);
    REQUIRE(offer.control_offset % 64 == 0);
    Kept kept{std::move(memory), nullptr, 0, static_cast<unsigned char>(1 + turn % 255)};
    kept.begin = kept.memory->header(0);
    kept.bytes = static_cast<std::size_t>(kept.memory->mailbox(0, 1) - kept.begin) + shape.me.mailbox_bytes;
    REQUIRE(std::all_of(kept.begin, kept.begin + kept.bytes, [](char byte) { return byte == 0; }));
    std::memset(kept.begin, kept.value, kept.bytes);
    now += kept.bytes;
    most = std::max(most, now);
    windows.push_back(std::move(kept));
  }
  CHECK(device.ever() < 20);
  CHECK(device.bytes() < 4 * most);
  CHECK(std::all_of(windows.begin(), windows.end(), is_whole));
  // What graphs still hold stays, and the team may go first.
  std::shared_ptr<const void> held = windows.front().memory->own_control();
  windows.clear();
  device.bury();
  team.reset();
  CHECK(device.bytes() > 0);
  held.reset();
  CHECK(device.bytes() == 0);
}

TEST_CASE("a window that ends behind the memory that its rank can share is staged", "[creation]") {
  constexpr std::size_t bytes = 10000;
  class ShortDevice : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    std::optional<Allocation> shareable(const void* p) const override {
      std::optional<Allocation> around = ForwardingDevice::shareable(p);
      if (around) around->bytes = static_cast<std::size_t>(static_cast<const char*>(p) - around->base) + bytes - 1;
      return around;
    }
  };
  const Settings settings = quiet_settings();
  auto host = make_host_device(settings, 2);
  ShortDevice device(*host);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(device, bytes, true);
    Window window("short", memory.local(), bootstrap, device, settings);
    ScopedStream stream;
    const std::vector<unsigned char> source(bytes, 'a');
    const int other = 1 - bootstrap.rank();
    window.post_stream({other}, stream);
    window.start_stream({other});
    window.put({source.data(), bytes, other, 0});
    window.complete_wait_stream(stream);
    EXPECT(stream->synchronize());
    EXPECT(std::equal(source.begin(), source.end(), memory.data()));
    EXPECT(window.stats().bytes_staged == bytes);
    EXPECT(window.drain());
    bootstrap.allgather(0);
  });
}

TEST_CASE("windows without stream epochs map nothing and keep no descriptor open", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 3);
  const int files = open_files();
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    const auto team = std::make_shared<const Team>(bootstrap, *device, settings, nullptr);
    std::vector<int> memory(ints_for_exchange);
    const LocalMemory local{memory.data(), memory.size() * sizeof(int), sizeof(int)};
    std::vector<std::unique_ptr<Window>> windows;
    const auto create = [&] {
      windows.push_back(std::make_unique<Window>("many", local, team, bootstrap, *device, settings));
    };
    create();
    bootstrap.allgather(0);
    const int mapped = mappings();
    bootstrap.allgather(0);
    for (int i = 0; i < 30; ++i) create();
    EXPECT(open_files() == files);
    EXPECT(mappings() == mapped);
    bootstrap.allgather(0);
    exchange(*windows[17], {0, 1, 2}, me, 5);
    EXPECT(has_come(memory, 0, 5) && has_come(memory, 1, 5) && has_come(memory, 2, 5));
    EXPECT(mappings() > mapped);
    EXPECT(open_files() == files);
    bootstrap.allgather(0);
    windows.clear();
    bootstrap.allgather(0);
    EXPECT(mappings() == mapped);
  });
  CHECK(open_files() == files);
}

namespace {

class Unjoined : public ForwardingNodeMemory {
 public:
  using ForwardingNodeMemory::ForwardingNodeMemory;
  using ForwardingNodeMemory::join;
  void join(const std::vector<NodeRank>&, const NodeOffer&) override { throw Error(Fault::memory, "not now"); }
};

/// Its node memory can be told not to join what a window shares.
class FailingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::unique_ptr<NodeMemory> new_node_memory(const NodeShape& shape) override {
    auto memory = ForwardingDevice::new_node_memory(shape);
    if (!fails) return memory;
    return std::make_unique<Unjoined>(std::move(memory));
  }
  bool fails = false;
};

}  // namespace

TEST_CASE("a rank that could not map what a team shares can map what its next window has", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 3);
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    FailingDevice failing(*device);
    const auto team = std::make_shared<const Team>(bootstrap, failing, settings, nullptr);
    std::vector<int> memory(ints_for_exchange);
    for (int window = 0; window < 6; ++window) {
      const int fails = window % 3;  // 0: none; what is known to all, as foreseen windows need it, cannot fail
      failing.fails = me == fails && me != 0;
      Window one("again", {memory.data(), memory.size() * sizeof(int), sizeof(int)}, team, bootstrap, failing,
                 settings);
      std::vector<int> reached;
      for (int rank = 0; rank < 3; ++rank) {
        const bool is_lost = fails != 0 && (rank == fails || me == fails);
        if (is_lost)
          EXPECT(contains(error_of([&] { one.start_stream({rank}); }), "cannot"));
        else
          reached.push_back(rank);
      }
      exchange(one, reached, me, window);
      for (int rank : reached) EXPECT(has_come(memory, rank, window));
      bootstrap.allgather(0);
    }
  });
}

TEST_CASE("a place in an arena is given out again when all have left it, and its memory with the last", "[creation]") {
  SharedMemory memory;
  Arena first(memory.create_file(), 1, 2);
  Arena second(memory.join(first.file().ticket()), 1, 2);
  const NodeExtent a = first.take(10 * SharedFile::page(), 2);
  const NodeExtent b = first.take(5 * SharedFile::page(), 2);
  CHECK(b.offset == a.offset + 10 * SharedFile::page());
  CHECK(a.entry != b.entry);
  first.touch(a);
  char* const word = first.file().map(a.offset, 1);
  *word = 'x';
  first.leave(a, 10 * SharedFile::page(), 2);
  CHECK(*word == 'x');  // the other one may still read it
  const NodeExtent c = first.take(10 * SharedFile::page(), 2);
  CHECK(c.offset > b.offset);
  second.leave(a, 10 * SharedFile::page(), 2);
  CHECK(*word == 0);
  first.file().unmap(word);
  const NodeExtent d = first.take(4 * SharedFile::page(), 2);
  CHECK(d.offset == a.offset);
  first.give_back(d);
  CHECK(first.take(10 * SharedFile::page(), 2).offset == a.offset);
}

TEST_CASE("each rank of each window in an arena has a farewell of its own, which no place overlaps", "[creation]") {
  SharedMemory memory;
  constexpr int ranks = 9;  // three pages of farewells
  Arena arena(memory.create_file(), 1, ranks);
  std::set<const unsigned char*> all;
  std::size_t places = 0;
  for (; arena.has_room(); ++places) {
    const NodeExtent place = arena.take(SharedFile::page(), ranks);
    CHECK(place.offset >= 4 * SharedFile::page());
    for (int local = 0; local < ranks; ++local) all.insert(&arena.farewell(place, local));
  }
  CHECK(all.size() == places * ranks);
  CHECK(*all.rbegin() - *all.begin() < static_cast<std::ptrdiff_t>(3 * SharedFile::page()));
}

TEST_CASE("an arena has room for the windows of a page of entries, and says when it has not", "[creation]") {
  SharedMemory memory;
  Arena arena(memory.create_file(), 1, 1);
  std::vector<NodeExtent> places;
  while (arena.has_room()) places.push_back(arena.take(SharedFile::page(), 1));
  CHECK(places.size() > 900);
  arena.leave(places[500], SharedFile::page(), 1);
  CHECK(arena.has_room());
  CHECK_THROWS_AS(
      [&] {
        for (;;) arena.take(SharedFile::page(), 1);
      }(),
      Error);
}

TEST_CASE("parts of a shared file are mapped without its descriptor, also where addresses are few", "[creation]") {
  const int files = open_files();
  auto file = SharedFile::create();
  file->close_descriptor();
  CHECK(open_files() == files);
  const std::uint64_t far = std::uint64_t{20} << 30;
  char* const there = file->map(far, 100);
  there[99] = 'f';
  CHECK(file->map(far, 100) == there);
  file->unmap(there);
  CHECK(there[99] == 'f');
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have all addresses
  CHECK(status_of_child([&] {
          std::ifstream status("/proc/self/statm");
          long pages = 0;
          status >> pages;
          const rlim_t now = static_cast<rlim_t>(pages) * SharedFile::page();
          const rlimit limit{now + (rlim_t{256} << 20), RLIM_INFINITY};
          if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
          const char* const here = file->map(far, 200 * SharedFile::page());
          if (here == there || here[99] != 'f') return 2;
          if (error_of([&] { file->map(far, std::size_t{1} << 30); }).empty()) return 3;
          file->discard(far, std::uint64_t{1} << 30);
          return here[99] == 0 ? 0 : 4;
        }) == 0);
#endif
  file->unmap(there);
}

TEST_CASE("a limit of file sizes is an error, and no signal", "[creation]") {
  CHECK(status_of_child([] {
          const rlimit limit{rlim_t{1} << 20, rlim_t{1} << 20};
          if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
          auto file = SharedFile::create();
          if (file->size() > limit.rlim_cur) return 2;
          file->map(0, 1 << 20)[(1 << 20) - 1] = 'x';
          if (!contains(error_of([&] { file->map(SharedFile::page(), 1 << 20); }), "ulimit -f")) return 3;
          const rlimit none{0, 0};
          if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 4;
          return contains(error_of([] { SharedFile::create(); }), "ulimit -f") ? 0 : 5;
        }) == 0);
}

TEST_CASE("memory that is freed comes back where files have a limit", "[creation]") {
  const Settings settings = quiet_settings();
  CHECK(status_of_child([&] {
          const rlimit limit{rlim_t{16} << 20, rlim_t{16} << 20};
          if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
          auto device = make_host_device(settings, 1);
          (void)device->allocate(4096);
          for (int turn = 0; turn < 20; ++turn) {
            const Allocation memory = device->allocate(std::size_t{6} << 20);
            memory.base[memory.bytes - 1] = 'x';
            device->release(memory.base);
          }
          return contains(error_of([&] { (void)device->allocate(std::size_t{17} << 20); }), "ulimit -f") ? 0 : 2;
        }) == 0);
}

TEST_CASE("memory that cannot be mapped is an error of the call that needs it, and may be there later", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(status_of_child([&] {
          int result = 0;
          ThreadRanks(1).run([&](Bootstrap& bootstrap) {
            std::vector<int> memory(ints_for_exchange);
            Window window("late", {memory.data(), memory.size() * sizeof(int), sizeof(int)}, bootstrap, *device,
                          settings);
            HostStream* const stream = create_host_stream();
            std::ifstream status("/proc/self/statm");
            long pages = 0;
            status >> pages;
            rlimit limit{static_cast<rlim_t>(pages) * SharedFile::page() + (rlim_t{1} << 20), RLIM_INFINITY};
            if (setrlimit(RLIMIT_AS, &limit) != 0) result = 1;
            if (!contains(error_of([&] { window.post_stream({0}, stream); }), "shared memory")) result = 2;
            if (!contains(error_of([&] { window.start_stream({0}); }), "shared memory")) result = 3;
            limit.rlim_cur = RLIM_INFINITY;
            setrlimit(RLIMIT_AS, &limit);
            destroy_host_stream(stream);
            exchange(window, {0}, 0, 11);
            if (!has_come(memory, 0, 11)) result = 4;
          });
          return result;
        }) == 0);
#endif
}
