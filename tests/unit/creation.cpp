// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// How ranks find each other when a window is created: what they tell each other, who reaches whom, and what it takes.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/job_environment.h"
#include "catch.h"
#include "device/host/arena.h"
#include "device/host/host_device.h"
#include "device/host/shared_file.h"
#include "device/host/stream.h"
#include "epoch/window.h"
#include "forwarding_device.h"
#include "team/differing.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

Settings quiet_settings() {
  Settings settings = Settings::from_environment();
  settings.timeout_seconds = 30;
  settings.fail_on_timeout = true;
  return settings;
}

/// What the function throws; empty: nothing.
template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Renamed : public ForwardingDevice {
 public:
  Renamed(Device& device, const char* name) : ForwardingDevice(device), name_(name) {}
  const char* name() const noexcept override { return name_; }

 private:
  const char* const name_;
};

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

/// An epoch from each rank to each of `ranks`, with one put by mailbox and one that is direct or staged.
void exchange(Window& window, const std::vector<int>& ranks, int me, int value) {
  static constexpr int large = 200;
  HostStream* const stream = create_host_stream();
  const std::vector<int> one(1, value + me), many(large, value + me);
  window.post_stream(ranks, stream);
  window.start_stream(ranks);
  for (int rank : ranks) {
    window.put({one.data(), sizeof(int), rank, me * (large + 1)});
    window.put({many.data(), sizeof(int) * large, rank, me * (large + 1) + 1});
  }
  window.complete_stream(stream);
  window.wait_stream(stream);
  EXPECT(stream->synchronize());
  destroy_host_stream(stream);
}
constexpr std::size_t ints_for_exchange = 4 * 201;

bool has_come(const std::vector<int>& memory, int from, int value) {
  return memory[static_cast<std::size_t>(from) * 201] == value + from &&
         memory[static_cast<std::size_t>(from) * 201 + 200] == value + from;
}

}  // namespace

// ---- what ranks tell each other ----------------------------------------------------------------------

TEST_CASE("what differs is told by rank", "[creation]") {
  CHECK(differing({}).empty());
  CHECK(differing({"4", "4"}).empty());
  CHECK(differing({"4", "2"}) == "4 on rank 0, 2 on rank 1");
  CHECK(differing({"4", "2", "4", "2", "2"}) == "4 on ranks 0 and 2, 2 on ranks 1, 3 and 4");
  CHECK(differing({"a", "b", "b", "b", "b", "b", "b"}) == "a on rank 0, b on ranks 1, 2, 3 and 3 others");
  CHECK(differing({"1", "2", "3", "4", "5"}) == "1 on rank 0, 2 on rank 1, 3 on rank 2, …");
}

TEST_CASE("settings that differ are named on all ranks, with their values", "[creation]") {
  const Settings same = quiet_settings();
  auto device = make_host_device(same, 3);
  const auto errors = [&](const std::function<void(Settings&)>& change) {
    std::vector<std::string> texts(3);
    ThreadRanks(3).run([&](Bootstrap& bootstrap) {
      Settings settings = same;
      if (bootstrap.rank() == 1) change(settings);
      std::vector<char> memory(100);
      texts[static_cast<std::size_t>(bootstrap.rank())] = error_of([&] {
        Window("w", {memory.data(), memory.size(), 1}, bootstrap, *device, settings);
      });
    });
    CHECK(texts[0] == texts[1]);
    CHECK(texts[0] == texts[2]);
    return texts[0];
  };
  CHECK(errors([](Settings&) {}).empty());
  CHECK(errors([](Settings& settings) { settings.eager_bytes = 512; }) ==
        "MPIX_EAGER_SIZE differs between the ranks: the preset on ranks 0 and 2, 512 on rank 1");
  CHECK(errors([](Settings& settings) { settings.mailbox_slots = 8; }) ==
        "MPIX_MAILBOX_SLOTS differs between the ranks: 4 on ranks 0 and 2, 8 on rank 1");
  CHECK(errors([](Settings& settings) { settings.waits = Waits::memory; }) ==
        "MPIX_WAIT differs between the ranks: auto on ranks 0 and 2, memory on rank 1");
  CHECK(errors([](Settings& settings) { settings.relay = true; }).empty());  // they are on one node
}

TEST_CASE("ranks that relay and ranks that do not are told apart, on several nodes", "[creation]") {
  auto device = make_host_device(quiet_settings(), 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Settings settings = quiet_settings();
    settings.relay = bootstrap.rank() == 0;
    std::vector<char> memory(100);
    EXPECT(error_of([&] {
             Window("w", {memory.data(), memory.size(), 1}, bootstrap, *device, settings);
           }) == "MPIX_RELAY differs between the ranks: on on rank 0, off on rank 1");
  });
}

// ---- who reaches whom --------------------------------------------------------------------------------

TEST_CASE("ranks of one node with different devices have stream epochs among their own", "[creation]") {
  const Settings settings = quiet_settings();
  auto host = make_host_device(settings, 4);
  Renamed other(*host, "other");
  const unsigned others = GENERATE(0x1u, 0x8u, 0x5u, 0xcu, 0xfu);
  CAPTURE(others);
  ThreadRanks(4).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    const auto is_other = [&](int rank) { return (others >> rank & 1) != 0; };
    std::vector<int> memory(ints_for_exchange);
    Window window("mixed", {memory.data(), memory.size() * sizeof(int), sizeof(int)}, bootstrap,
                  is_other(me) ? static_cast<Device&>(other) : *host, settings);
    std::vector<int> alike;
    HostStream* const stream = create_host_stream();
    for (int rank = 0; rank < 4; ++rank) {
      if (is_other(rank) == is_other(me)) {
        alike.push_back(rank);
        continue;
      }
      const std::string expected = "rank " + std::to_string(rank) + " works with the device " +
                                   (is_other(rank) ? "other" : "host") + ", and this rank with " +
                                   (is_other(me) ? "other" : "host");
      EXPECT(contains(error_of([&] { window.post_stream({rank}, stream); }), expected));
      EXPECT(contains(error_of([&] { window.start_stream({rank}); }), expected));
    }
    destroy_host_stream(stream);
    exchange(window, alike, me, 100);
    for (int rank : alike) EXPECT(has_come(memory, rank, 100));
    bootstrap.allgather(0);
  });
}

TEST_CASE("ranks with different devices on several nodes have stream epochs on their own node", "[creation]") {
  auto host = make_host_device(quiet_settings(), 4);
  Renamed other(*host, "other");
  ThreadRanks(4, 2).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    const bool relays = me >= 2;
    Settings settings = quiet_settings();
    settings.relay = relays;
    std::vector<int> memory(ints_for_exchange);
    Window window("mixed", {memory.data(), memory.size() * sizeof(int), sizeof(int)}, bootstrap,
                  relays ? static_cast<Device&>(other) : *host, settings);
    const int far = (me + 2) % 4;
    const std::string error = error_of([&] { window.start_stream({far}); });
    EXPECT(contains(error, "rank " + std::to_string(far) + " is on another node"));
    EXPECT(contains(error, "the devices differ between the ranks: host on ranks 0 and 1, other on ranks 2 and 3"));
    exchange(window, {me ^ 1}, me, 7);
    EXPECT(has_come(memory, me ^ 1, 7));
    bootstrap.allgather(0);
  });
}

namespace {

/// The node memory of a device, but for what rank 1 has of rank 0.
class HalfBlind : public NodeMemory {
 public:
  explicit HalfBlind(std::unique_ptr<NodeMemory> memory) : memory_(std::move(memory)) {}
  NodeOffer offer() override { return memory_->offer(); }
  NodeOffer offer_anew() override { return memory_->offer_anew(); }
  void join(const std::vector<NodeRank>& group, const NodeOffer& offer) override { memory_->join(group, offer); }
  void join(const NodeRank& rank, const NodeOffer& offer) override {
    if (rank.local == 0) throw Error(Fault::memory, "no way there");
    memory_->join(rank, offer);
  }
  NodePlace choose_place() override { return memory_->choose_place(); }
  void open(const NodePlace& place) noexcept override { memory_->open(place); }
  char* header(int local) override { return memory_->header(local); }
  char* mailbox(int owner, int origin) override { return memory_->mailbox(owner, origin); }
  char* window(int local) override { return memory_->window(local); }
  const char* own_staging() override { return memory_->own_staging(); }
  void say_farewell(Farewell farewell) override { memory_->say_farewell(farewell); }
  Farewell farewell_of(int local) override { return memory_->farewell_of(local); }
  std::shared_ptr<const void> own_control() const override { return memory_->own_control(); }

 private:
  const std::unique_ptr<NodeMemory> memory_;
};

class HalfBlindDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::unique_ptr<NodeMemory> new_node_memory(const NodeShape& shape) override {
    return std::make_unique<HalfBlind>(ForwardingDevice::new_node_memory(shape));
  }
};

}  // namespace

TEST_CASE("a pair of which one side cannot map the other is refused on both sides", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 3);
  HalfBlindDevice half_blind(*device);
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    std::vector<int> memory(ints_for_exchange);
    Window window("half", {memory.data(), memory.size() * sizeof(int), sizeof(int)}, bootstrap,
                  me == 1 ? static_cast<Device&>(half_blind) : *device, settings);
    if (me == 1)
      EXPECT(contains(error_of([&] { window.start_stream({0}); }),
                      "rank 0's memory cannot be mapped from here: no way there"));
    if (me == 0)
      EXPECT(contains(error_of([&] { window.start_stream({1}); }), "rank 1 cannot map the memory of this rank"));
    if (me == 2)
      exchange(window, {0, 1, 2}, me, 3);
    else
      exchange(window, {me, 2}, me, 3);
    EXPECT(has_come(memory, 2, 3));
    bootstrap.allgather(0);
  });
}

TEST_CASE("of unreached ranks there may be more than there is room to name", "[creation]") {
  Unreached few, many;
  for (int rank = 10; rank < 13; ++rank) few.add(rank);
  CHECK((few.has(10) && few.has(12) && !few.has(13) && !few.has(0)));
  for (int rank = 0; rank < 100; ++rank) many.add(rank);
  CHECK((many.has(0) && many.has(99) && many.has(1000)));
}

TEST_CASE("ranks of other nodes number this one without its own node", "[creation]") {
  ThreadRanks(7, 3).run([](Bootstrap& bootstrap) {
    const NumbersElsewhere numbers(bootstrap);
    const std::size_t at_first[] = {0, 0, 0, 0, 1, 2, 3}, at_second[] = {0, 1, 2, 0, 0, 0, 3},
                      at_last[] = {0, 1, 2, 3, 4, 5, 0};
    const auto me = static_cast<std::size_t>(bootstrap.rank());
    if (me > 2) EXPECT(numbers.number_at(0) == at_first[me]);
    if (me < 3 || me > 5) EXPECT(numbers.number_at(4) == at_second[me]);
    if (me < 6) EXPECT(numbers.number_at(6) == at_last[me]);
    EXPECT(numbers.count_at(0) == 4);
    EXPECT(numbers.count_at(6) == 6);
  });
}

// ---- what it takes -----------------------------------------------------------------------------------

TEST_CASE("windows without stream epochs map nothing and keep no descriptor open", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 3);
  const int files = open_files();
  ThreadRanks ranks(3);
  ranks.know_processes();
  ranks.run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    std::vector<int> memory(ints_for_exchange);
    const LocalMemory local{memory.data(), memory.size() * sizeof(int), sizeof(int)};
    std::vector<std::unique_ptr<Window>> windows;
    const auto create = [&] {
      windows.push_back(std::make_unique<Window>("many", local, bootstrap, *device, settings));
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

TEST_CASE("ranks that do not know of the same shared memory make another", "[creation]") {
  const Settings settings = quiet_settings();
  std::unique_ptr<Device> devices[2];
  for (auto& device : devices) device = make_host_device(settings, 2);
  for (int forgets : {-1, 0, 1, 0, -1, 1}) {
    if (forgets >= 0) devices[forgets] = make_host_device(settings, 2);
    ThreadRanks ranks(2);
    ranks.know_processes();
    ranks.run([&](Bootstrap& bootstrap) {
      const int me = bootstrap.rank();
      std::vector<int> memory(ints_for_exchange);
      Window window("again", {memory.data(), memory.size() * sizeof(int), sizeof(int)}, bootstrap,
                    *devices[static_cast<std::size_t>(me)], settings);
      exchange(window, {0, 1}, me, forgets);
      EXPECT(has_come(memory, 0, forgets) && has_come(memory, 1, forgets));
      bootstrap.allgather(0);
    });
  }
}

TEST_CASE("a place in an arena is given out again when all have left it, and its memory with the last", "[creation]") {
  SharedMemory memory;
  Arena first(memory.create_file(), 1, true, 2);
  Arena second(memory.join(first.file().ticket()), 1, false, 2);
  const NodePlace a = first.take(10 * SharedFile::page(), 2);
  const NodePlace b = first.take(5 * SharedFile::page(), 2);
  CHECK(b.offset == a.offset + a.bytes);
  CHECK(a.entry != b.entry);
  first.touch(a);
  char* const word = first.file().map(a.offset, 1);
  *word = 'x';
  first.leave(a, 2);
  CHECK(*word == 'x');  // the other one may still read it
  const NodePlace c = first.take(10 * SharedFile::page(), 2);
  CHECK(c.offset > b.offset);
  second.leave(a, 2);
  CHECK(*word == 0);
  first.file().unmap(word);
  const NodePlace d = first.take(4 * SharedFile::page(), 2);
  CHECK(d.offset == a.offset);
  first.give_back(d);
  CHECK(first.take(10 * SharedFile::page(), 2).offset == a.offset);
}

TEST_CASE("each rank of each window in an arena has a farewell of its own, which no place overlaps", "[creation]") {
  SharedMemory memory;
  constexpr int ranks = 9;  // three pages of farewells
  Arena arena(memory.create_file(), 1, true, ranks);
  std::set<const unsigned char*> all;
  std::size_t places = 0;
  for (; arena.has_room(); ++places) {
    const NodePlace place = arena.take(SharedFile::page(), ranks);
    CHECK(place.offset >= 4 * SharedFile::page());
    for (int local = 0; local < ranks; ++local) all.insert(&arena.farewell(place, local));
  }
  CHECK(all.size() == places * ranks);
  CHECK(*all.rbegin() - *all.begin() < static_cast<std::ptrdiff_t>(3 * SharedFile::page()));
}

TEST_CASE("an arena has room for the windows of a page of entries, and says when it has not", "[creation]") {
  SharedMemory memory;
  Arena arena(memory.create_file(), 1, true, 1);
  std::vector<NodePlace> places;
  while (arena.has_room()) places.push_back(arena.take(SharedFile::page(), 1));
  CHECK(places.size() > 900);
  arena.leave(places[500], 1);
  CHECK(arena.has_room());
  CHECK_THROWS_AS(
      [&] {
        for (;;) arena.take(SharedFile::page(), 1);
      }(),
      Error);
}

namespace {

template <class Function>
int status_of_child(Function function) {
  const pid_t child = fork();
  if (child == 0) _exit(function());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

}  // namespace

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

TEST_CASE("the launcher tells how many ranks share a node", "[creation]") {
  CHECK(status_of_child([] {
          for (const char* name : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"})
            unsetenv(name);
          if (launcher_local_ranks() != 1) return 1;
          setenv("SLURM_STEP_TASKS_PER_NODE", "6(x2)", 1);
          if (launcher_local_ranks() != 6) return 2;
          setenv("MPI_LOCALNRANKS", "3", 1);
          return launcher_local_ranks() == 3 ? 0 : 3;
        }) == 0);
}
