// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// How ranks find each other when a window is created: what they tell each other, who reaches whom, and what it takes.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/job_environment.h"
#include "creation.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "epoch/window.h"
#include "fake_network.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "offnode/remote_peers.h"
#include "support/catch.h"
#include "support/child.h"
#include "team/differing.h"
#include "team/enqueued_epochs.h"
#include "team/neighbourhood.h"
#include "team/team.h"
#include "team/window_card.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

class Renamed : public ForwardingDevice {
 public:
  Renamed(Device& device, const char* name) : ForwardingDevice(device), name_(name) {}
  const char* name() const noexcept override { return name_; }

 private:
  const char* const name_;
};

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

namespace {

/// What stands first in what ranks tell each other, in every release.
struct Build {
  char name[8];
  std::uint32_t version, shape;
  char release[16];
};

/// A rank with another release, as the others see it: what follows the build is not for them to understand.
class OtherBuild : public Bootstrap {
 public:
  OtherBuild(Bootstrap& ranks, const std::function<void(Build&)>& change) : ranks_(ranks), change_(change) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int node_of(int rank) const override { return ranks_.node_of(rank); }
  void allgather(const void* mine, std::size_t bytes, void* all) override {
    std::vector<char> card(bytes, '\xff');
    std::memcpy(card.data(), mine, std::min(bytes, sizeof(Build)));
    Build build;
    std::memcpy(&build, card.data(), sizeof build);
    change_(build);
    std::memcpy(card.data(), &build, sizeof build);
    ranks_.allgather(card.data(), bytes, all);
  }
  void node_allgather(const void* mine, std::size_t bytes, void* all) override {
    ranks_.node_allgather(mine, bytes, all);
  }

 private:
  Bootstrap& ranks_;
  const std::function<void(Build&)> change_;
};

}  // namespace

TEST_CASE("ranks with another build of the library are named on all ranks", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 3);
  std::string ours;
  const auto error = [&](const std::function<void(Build&)>& change) {
    std::vector<std::string> texts(3);
    ThreadRanks(3).run([&](Bootstrap& bootstrap) {
      OtherBuild other(bootstrap, change);
      std::vector<char> memory(100);
      texts[static_cast<std::size_t>(bootstrap.rank())] = error_of([&] {
        Window("w", {memory.data(), memory.size(), 1},
               bootstrap.rank() == 2 ? static_cast<Bootstrap&>(other) : bootstrap, *device, settings);
      });
    });
    CHECK(texts[0] == texts[1]);
    CHECK(texts[0] == texts[2]);
    return texts[0];
  };
  const auto text_of = [](const Build& build) {
    return std::string("libmpix ") + build.release + " (" + std::to_string(build.version) + "." +
           std::to_string(build.shape) + ")";
  };
  const auto check = [&](const std::function<void(Build&)>& change) {
    std::string mine, its;
    const std::string told = error([&](Build& build) {
      CHECK(std::string(build.name) == "libmpix");
      mine = text_of(build);
      change(build);
      its = text_of(build);
    });
    CHECK(told == "the library differs between the ranks: " + mine + " on ranks 0 and 1, " + its + " on rank 2");
  };
  check([](Build& build) { ++build.version; });
  check([](Build& build) { build.shape ^= 1; });
  check([](Build& build) { std::strcpy(build.release, "0.0.1"); });
}

TEST_CASE("a displacement unit that ranks could not tell each other is refused", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    std::vector<char> memory(100);
    const std::size_t unit = bootstrap.rank() == 1 ? std::size_t{1} << 32 : 1;
    EXPECT(contains(error_of([&] {
                      Window("w", {memory.data(), memory.size(), unit}, bootstrap, *device, settings);
                    }),
                    "displacement unit is above 4 GiB"));
  });
}

TEST_CASE("ranks that name different networks are told so, by each that cannot reach the other", "[creation]") {
  auto device = make_host_device(quiet_settings(), 3);
  ThreadRanks(3, 1).run([&](Bootstrap& bootstrap) {
    Settings settings = quiet_settings();
    settings.nic = bootstrap.rank() == 1 ? "mpi" : "none";
    std::vector<char> memory(100);
    Window window("w", {memory.data(), memory.size(), 1}, bootstrap, *device, settings, nullptr, "another reason");
    const int other = (bootstrap.rank() + 1) % 3;
    EXPECT(contains(error_of([&] { window.start_stream({other}); }),
                    "MPIX_NIC differs between the ranks: none on ranks 0 and 2, mpi on rank 1"));
    bootstrap.allgather(0);
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

namespace {

/// The node memory of a device, but for what rank 1 has of rank 0.
class HalfBlind : public ForwardingNodeMemory {
 public:
  using ForwardingNodeMemory::ForwardingNodeMemory;
  using ForwardingNodeMemory::join;
  void join(const NodeRank& rank, const NodeOffer& offer) override {
    if (rank.local == 0) throw Error(Fault::memory, "no way there");
    ForwardingNodeMemory::join(rank, offer);
  }
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

// ---- what it takes -----------------------------------------------------------------------------------

TEST_CASE("a further window of a team tells all ranks 64 bytes, and its node a card", "[creation]") {
  const Settings settings = quiet_settings();
  const int node_size = GENERATE(8, 2, 1);
  auto device = make_host_device(settings, node_size);
  ThreadRanks ranks(8, node_size);
  std::size_t before = 0;
  ranks.run([&](Bootstrap& bootstrap) {
    const auto team = std::make_shared<const Team>(bootstrap, *device, settings, nullptr);
    std::vector<char> memory(100);
    const LocalMemory local{memory.data(), memory.size(), 1};
    const Window first("first", local, team, bootstrap, *device, settings);
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) before = ranks.exchanged();
    bootstrap.allgather(0);
    const Window second("second", local, team, bootstrap, *device, settings);
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) before = ranks.exchanged() - before;
  });
  CHECK(before <= 8 * (60 + 312 + 2 * sizeof(int)));
}

TEST_CASE("a window that is as the last ones takes one exchange, and another one works as well", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 3);
  constexpr std::size_t enough = ints_for_exchange * sizeof(int);
  struct Kind {
    const char* name;
    std::size_t bytes[3];
    bool is_mapped[3];
    bool is_foreseeable;
  };
  const Kind kinds[] = {
      {"alike", {enough, enough, enough}, {}, true},
      {"some are smaller", {3 * enough, enough, 2 * enough}, {}, true},
      {"some are empty", {enough, 0, 0}, {}, true},
      {"all are empty", {0, 0, 0}, {}, true},
      {"one is larger", {enough, enough, enough + 20 * 4096}, {}, false},
      {"the least rank has none", {0, enough, enough}, {}, false},
      {"one is mapped", {enough, enough, enough}, {false, true, false}, false},
      {"all are mapped", {enough, enough, enough}, {true, true, true}, false},
  };
  constexpr std::size_t card = sizeof(WindowCard);
  const std::size_t node_card = 312;  // at most
  std::mt19937 random(20261201);
  std::vector<const Kind*> order;
  for (const Kind& kind : kinds) order.insert(order.end(), 3, &kind);
  for (int i = 0; i < 60; ++i) order.push_back(&kinds[random() % std::size(kinds)]);
  ThreadRanks ranks(3);
  ranks.run([&](Bootstrap& bootstrap) {
    const auto me = static_cast<std::size_t>(bootstrap.rank());
    const auto team = std::make_shared<const Team>(bootstrap, *device, settings, nullptr);
    struct Made {
      std::unique_ptr<WindowMemory> memory;
      std::unique_ptr<Window> window;
      const Kind* kind;
      int value;
    };
    std::vector<Made> alive;
    int in_a_row = 0, value = 0;
    const auto told = [&] {
      bootstrap.allgather(0);
      const std::size_t bytes = ranks.exchanged();
      bootstrap.allgather(0);
      return bytes;
    };
    for (const Kind* kind : order) {
      Made made{
          std::make_unique<WindowMemory>(*device, std::max<std::size_t>(kind->bytes[me], 64), kind->is_mapped[me]),
          nullptr, kind, 0};
      LocalMemory local = made.memory->local(sizeof(int));
      local.bytes = kind->bytes[me];
      const std::size_t before = told();
      made.window = std::make_unique<Window>(kind->name, local, team, bootstrap, *device, settings);
      const std::size_t each = (told() - before) / 3;
      const bool is_foreseen = in_a_row >= 2;
      const std::size_t slow = is_foreseen ? 2 * card + node_card : card + node_card;
      EXPECT(each <= 4 * sizeof(int) + (is_foreseen && kind->is_foreseeable ? card : slow));
      in_a_row = kind->is_foreseeable ? in_a_row + 1 : 0;
      alive.push_back(std::move(made));
      // Old ones, too: their places must be their own.
      for (Made& one : alive) {
        one.value = ++value * 10;
        std::vector<int> there;
        for (int rank = 0; rank < 3; ++rank)
          if (one.kind->bytes[rank] > 0) there.push_back(rank);
        const bool takes = one.kind->bytes[me] > 0;
        if (takes) exchange(*one.window, there, static_cast<int>(me), one.value);
      }
      for (const Made& one : alive) {
        if (one.kind->bytes[me] == 0) continue;
        const int* const ints = reinterpret_cast<const int*>(one.memory->data());
        const std::vector<int> memory(ints, ints + ints_for_exchange);
        for (int rank = 0; rank < 3; ++rank)
          if (one.kind->bytes[rank] > 0) EXPECT(has_come(memory, rank, one.value));
      }
      if (alive.size() > 3) alive.erase(alive.begin() + value % 3);
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("windows that are as the last ones go on where the memory of their team is full", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 2);
  constexpr std::size_t windows = 1100;  // an arena has 1,024 entries
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    const auto team = std::make_shared<const Team>(bootstrap, *device, settings, nullptr);
    std::vector<int> memory(ints_for_exchange);
    const LocalMemory local{memory.data(), memory.size() * sizeof(int), sizeof(int)};
    std::vector<std::unique_ptr<Window>> all;
    while (all.size() < windows)
      all.push_back(std::make_unique<Window>("many", local, team, bootstrap, *device, settings));
    for (const std::size_t i : {std::size_t{3}, std::size_t{500}, windows - 130, windows - 1}) {
      exchange(*all[i], {0, 1}, bootstrap.rank(), static_cast<int>(i));
      EXPECT(has_come(memory, 0, static_cast<int>(i)) && has_come(memory, 1, static_cast<int>(i)));
      bootstrap.allgather(0);
    }
  });
}

TEST_CASE("a team of one node tells what one packet carries", "[creation]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 4);
  ThreadRanks ranks(4);
  ranks.run([&](Bootstrap& bootstrap) { const Team team(bootstrap, *device, settings, nullptr); });
  CHECK(ranks.exchanged() <= 4 * 60);
}

namespace {

/// A rank of a job as large as one likes, alone on its node; the others are as it is.
class OneOfMany : public Bootstrap {
 public:
  explicit OneOfMany(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  int node_of(int rank) const override { return rank; }
  void allgather(const void* mine, std::size_t bytes, void* all) override {
    told_ += bytes;
    for (int rank = 0; rank < ranks_; ++rank)
      std::memcpy(static_cast<char*>(all) + static_cast<std::size_t>(rank) * bytes, mine, bytes);
  }
  void node_allgather(const void* mine, std::size_t bytes, void* all) override { std::memcpy(all, mine, bytes); }

  /// Bytes that this rank has told all others so far.
  std::size_t told() const { return told_; }

 private:
  const int ranks_;
  std::size_t told_ = 0;
};

/// On the thread of main(); 0 where glibc is older than 2.33, or is none.
std::size_t allocated_bytes() {
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 33)
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
#endif
  return 0;
}

/// Also sanitizers bring an allocator of their own.
bool counts_allocations() {
  const std::size_t before = allocated_bytes();
  void* volatile some = std::malloc(10000);  // volatile: or the compiler leaves it out
  const bool counts = some && allocated_bytes() >= before + 10000;
  std::free(some);
  if (!counts) WARN("skipped: nothing counts what is allocated");
  return counts;
}

}  // namespace

TEST_CASE("a window takes 64 bytes for each rank of another node that no epoch has named", "[creation]") {
  if (!counts_allocations()) return;
  Settings own = quiet_settings();
  own.relay = GENERATE(false, true);
  auto device = make_host_device(own, 1);
  const auto bytes_of = [&](int ranks, bool with_network) {
    OneOfMany bootstrap(ranks);
    OperationBudget budget(std::make_unique<FakeNetwork>(Capacity{8, 8}, 1, true), own);
    const auto team = std::make_shared<const Team>(bootstrap, *device, own, &budget.network());
    std::vector<char> memory(100);
    const std::size_t before = allocated_bytes();
    const Window window("w", {memory.data(), memory.size(), 1}, team, bootstrap, *device, own,
                        with_network ? &budget : nullptr);
    return allocated_bytes() - before;
  };
  bytes_of(2, true);  // what is made once
  const std::size_t few = bytes_of(512, true), many = bytes_of(1024, true);
  CHECK(many - few <= 512 * 64);
  CHECK(many <= 64 * 1024);
  CHECK(bytes_of(1024, false) <= 24 * 1024);
}

TEST_CASE("the first window takes what its team does, too", "[creation]") {
  if (!counts_allocations()) return;
  Settings own = quiet_settings();
  own.relay = GENERATE(false, true);
  auto device = make_host_device(own, 1);
  struct Taken {
    std::size_t first, neighbours, told;
  };
  const auto taken_by = [&](int ranks, const std::vector<int>& neighbours) {
    OneOfMany bootstrap(ranks);
    OperationBudget budget(std::make_unique<FakeNetwork>(Capacity{64, 64}, 1, true), own);
    std::vector<char> memory(100);
    const std::size_t before = allocated_bytes();
    Window window("w", {memory.data(), memory.size(), 1}, bootstrap, *device, own, &budget);
    const std::size_t made = allocated_bytes();
    window.start_stream(neighbours);
    return Taken{made - before, allocated_bytes() - made, bootstrap.told()};
  };
  taken_by(2, {1});  // what is made once
  std::vector<int> around;
  for (int rank = 1; rank <= 26; ++rank) around.push_back(39 * rank);
  const Taken few = taken_by(512, {}), many = taken_by(1024, {}), named = taken_by(1024, around);
  CHECK(many.first - few.first <= 512 * 80);
  CHECK(many.first <= 80 * 1024);
  CHECK(named.neighbours - many.neighbours <= 26 * (own.relay ? 2816u : 896u));
  // Each tells: the card of the team, whom the network does not reach, and the card of the window.
  CHECK(many.told <= 168 + sizeof(Unreached) + sizeof(WindowCard));
  CHECK(many.told == few.told);
}

TEST_CASE("counts of epochs take memory for ranks that epochs have named", "[epochs]") {
  if (!counts_allocations()) return;
  const std::size_t before = allocated_bytes();
  EnqueuedEpochs enqueued(1024);
  CHECK(allocated_bytes() - before <= 1024);
  enqueued.make_room({0, 500, 1023});
  enqueued.add_sent({500});
  enqueued.add_opened({500, 1023});
  enqueued.add_opened({1023});
  enqueued.add_closed({0});
  enqueued.make_room({500, 501});
  const auto has = [&](int rank, std::uint64_t sent, std::uint64_t opened, std::uint64_t closed) {
    const EpochCounts& counts = enqueued.with(rank);
    return counts.sent == sent && counts.opened == opened && counts.closed == closed;
  };
  CHECK((has(500, 1, 1, 0) && has(1023, 0, 2, 0) && has(0, 0, 0, 1) && has(501, 0, 0, 0) && has(700, 0, 0, 0)));
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
