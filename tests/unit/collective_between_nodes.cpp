// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// How calls are cut into exchanges between nodes, and what goes where in them: all ranks in one thread, without
// streams, services and a network. Calls on a node are done by what MPI says of them; exchanges by the steps that
// streams run. What a rank does not wait for does not come, and memory that nobody has filled holds rubbish.
#include "collective/between_nodes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "device/host/host_device.h"
#include "rail_shapes.h"
#include "support/catch.h"
#include "wire/rail_steps.h"

using namespace mpix;

namespace {

using Call = Collectives::Call;
using Kind = CollectiveKind;
using Bytes = std::vector<char>;
using Words = std::vector<std::uint64_t>;

/// x → a x + b, one after another, in 32 bits each: the order matters, how they are put together does not.
void compose(void*, const void* in, void* inout, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at + 8 <= bytes; at += 8) {
    std::uint32_t first[2], second[2];
    std::memcpy(first, static_cast<const char*>(in) + at, 8);
    std::memcpy(second, static_cast<char*>(inout) + at, 8);
    const std::uint32_t both[2] = {first[0] * second[0], first[1] * second[0] + second[1]};
    std::memcpy(static_cast<char*>(inout) + at, both, 8);
  }
}

void combine_into(const Call& call, const char* operand, char* result, std::uint64_t bytes) {
  Bytes next(operand, operand + bytes);
  if (call.operation == Operation::by_function) {
    call.function(call.context, result, next.data(), bytes);
  } else {
    for (std::uint64_t at = 0; at < bytes; at += 8) {
      std::uint64_t a, b;
      std::memcpy(&a, result + at, 8);
      std::memcpy(&b, next.data() + at, 8);
      b += a;
      std::memcpy(next.data() + at, &b, 8);
    }
  }
  std::memcpy(result, next.data(), bytes);
}

/// As RailAlone of device/host/rail_run.cpp; an exchange waits elsewhere.
struct Crew {
  Workers workers() const { return Workers{0, 1}; }
  bool agree(bool yes) const { return yes; }
  bool leads() const { return true; }
  bool await(const RailStep&, std::uint64_t) const { return true; }
  template <class Operand>
  bool combine_by_function(const RailStep& step, std::uint32_t count, Operand operand) const {
    Call call;
    call.operation = Operation::by_function;
    call.function = step.function;
    Bytes result(operand(0), operand(0) + step.bytes);
    for (std::uint32_t i = 1; i < count; ++i) combine_into(call, operand(i), result.data(), step.bytes);
    std::memcpy(step.taking.to, result.data(), step.bytes);
    return true;
  }
};

constexpr char rubbish = 0x5a;

/// What a rank has for a communicator, and what it is to do for a call.
struct Rank {
  Rank(const RailShape& rail_shape, std::uint64_t slot_bytes, std::uint64_t node_bytes)
      : shape(rail_shape),
        places(shape.places(slot_bytes, node_bytes)),
        partners(shape.partners()),
        sources(shape.sources()),
        targets(shape.targets()),
        by_rank(shape.by_rank()),
        out(places.slots_bytes(), rubbish),
        in(places.slots_bytes(), rubbish),
        gathered(2 * places.nodes * places.node_bytes, rubbish),
        packed(places.columns * slot_bytes, rubbish),
        collected(places.columns * slot_bytes, rubbish) {
    places.words = &words;
    places.out = out.data();
    places.in = in.data();
    places.gathered = gathered.data();
    places.number = &number;
    places.partner = partners.data();
    places.source = sources.data();
    places.rank = by_rank.data();
    places.target = targets.data();
  }
  Rank(const Rank&) = delete;

  void queue(const Call& call) {
    BetweenNodes(
        {shape, places, packed.data(), collected.data()}, call,
        {[this](const Call& on_node) { work.push_back(on_node); }, [this](RailStep& step) { work.push_back(step); }})
        .enqueue();
  }
  void run(RailStep step, std::uint32_t phases) {
    step.phases &= phases;
    if (step.phases != 0) (void)RailSteps<Crew>(Crew(), step).run();
  }
  const RailStep* next_step() const { return work.empty() ? nullptr : std::get_if<RailStep>(&work.front()); }
  const Call* next_call() const { return work.empty() ? nullptr : std::get_if<Call>(&work.front()); }

  const RailShape& shape;
  RailPlaces places;
  const std::vector<RailPartner> partners;
  const std::vector<std::uint32_t> sources, targets;
  const std::vector<RailRank> by_rank;
  RailWords words{};
  std::uint64_t number = 0;
  Bytes out, in, gathered, packed, collected;
  std::deque<std::variant<Call, RailStep>> work;
};

class World {
 public:
  /// Exchanges go in rounds if nodes have as many ranks, and there are more nodes than that.
  World(const std::vector<int>& nodes, std::uint64_t scratch, std::uint32_t rounds_above = 1000)
      : device_(make_host_device(Settings(), 1)), shapes_(shapes_of(nodes, *device_)) {
    slot_bytes = shapes_[0]->slot_bytes(scratch);
    for (const auto& shape : shapes_) {
      REQUIRE(shape->slot_bytes(scratch) == slot_bytes);
      ranks.push_back(std::make_unique<Rank>(*shape, slot_bytes, shape->node_bytes(scratch, rounds_above)));
    }
    const std::uint64_t most_locals = shapes_[0]->most_locals();
    block = slot_bytes / most_locals / 64 * 64;
    REQUIRE(block > 0);
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks.size()); }

  /// A call of all ranks, from its begin to its end.
  void run(const std::vector<Call>& calls) {
    exchanges.clear();
    carried.clear();
    for (std::uint32_t rank = 0; rank < size(); ++rank) ranks[rank]->queue(calls[rank]);
    while (run_on_a_node() || pack() || exchange()) {
    }
    for (const auto& rank : ranks) REQUIRE(rank->work.empty());
  }

  std::vector<std::unique_ptr<Rank>> ranks;
  std::uint64_t slot_bytes = 0, block = 0;
  Words exchanges;  ///< of the last call: the bytes of a block in each
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> carried;  ///< from, to: bytes of data in all of them
  std::set<RailRoute> routes;                                                ///< of all calls

 private:
  bool run_on_a_node() {
    for (std::uint32_t node = 0; node < shapes_[0]->nodes(); ++node) {
      const std::vector<int>& locals = shapes_[0]->ranks_of(node);
      std::vector<Call> calls;
      for (const int rank : locals)
        if (const Call* call = ranks[static_cast<std::size_t>(rank)]->next_call()) calls.push_back(*call);
      if (calls.size() != locals.size()) continue;
      run_on_node(calls);
      for (const int rank : locals) ranks[static_cast<std::size_t>(rank)]->work.pop_front();
      return true;
    }
    return false;
  }

  static void run_on_node(const std::vector<Call>& calls) {
    const Kind kind = calls[0].kind;
    const std::uint64_t bytes = calls[0].bytes, count = calls.size();
    const auto root = static_cast<std::size_t>(calls[0].root);
    const bool has_blocks = kind == Kind::alltoall || kind == Kind::reduce_scatter;
    std::vector<Bytes> given, sums;
    for (const Call& call : calls) {
      REQUIRE((call.kind == kind && call.bytes == bytes && call.root == calls[0].root && root < count));
      const char* const from =
          static_cast<const char*>(kind == Kind::bcast && call.recv && given.size() == root ? call.recv : call.send);
      given.emplace_back(from, from + bytes * (has_blocks ? count : 1));
    }
    for (std::size_t i = 0; i < count; ++i) {
      char* const to = static_cast<char*>(calls[i].recv);
      Bytes sum(given[0]);
      for (std::size_t j = 1; j < count && calls[0].operation != Operation::none; ++j)
        combine_into(calls[i], given[j].data(), sum.data(), sum.size());
      for (std::size_t j = 0; j < count && kind == Kind::allgather; ++j)
        std::memcpy(to + j * bytes, given[j].data(), bytes);
      for (std::size_t j = 0; j < count && kind == Kind::alltoall; ++j)
        std::memcpy(to + j * bytes, given[j].data() + i * bytes, bytes);
      if (kind == Kind::bcast) std::memcpy(to, given[root].data(), bytes);
      if (kind == Kind::allreduce || (kind == Kind::reduce && i == root)) std::memcpy(to, sum.data(), bytes);
      if (kind == Kind::reduce_scatter) std::memcpy(to, sum.data() + i * bytes, bytes);
    }
  }

  bool pack() {
    bool any = false;
    for (const auto& rank : ranks)
      if (const RailStep* step = rank->next_step(); step && !step->does(RailStep::meet)) {
        rank->run(*step, RailStep::pack);
        rank->work.pop_front();
        any = true;
      }
    return any;
  }

  /// As services do it (collective/rails.cpp).
  bool exchange() {
    std::vector<Task> tasks;
    for (const auto& rank : ranks) {
      if (!rank->next_step()) return false;
      const RailPlaces& p = rank->places;
      for (std::uint32_t i = 0; i < p.partners; ++i) {
        std::memset(p.out_data(rank->number + 1, i), rubbish, slot_bytes);
        std::memset(p.in_header(rank->number + 1, i) + 1, rubbish, slot_bytes);
      }
      std::fill(rank->gathered.begin(), rank->gathered.end(), rubbish);
      rank->run(*rank->next_step(), RailStep::fill | RailStep::meet);
      tasks.emplace_back();
      REQUIRE(take_task(Lane{p.words->tasks, 2}, rank->number, &tasks.back()));
      REQUIRE(tasks.back().word[rail_bytes] <= slot_bytes);
    }
    exchanges.push_back(ranks[0]->next_step()->bytes);
    for (std::uint32_t rank = 0; rank < size(); ++rank) send(rank, tasks);
    for (const auto& rank : ranks) {
      rank->run(*rank->next_step(), RailStep::take);
      rank->work.pop_front();
    }
    return true;
  }

  void send(std::uint32_t from, const std::vector<Task>& tasks) {
    const Rank& rank = *ranks[from];
    const std::uint64_t* const word = tasks[from].word;
    routes.insert(static_cast<RailRoute>(word[rail_route]));
    for (std::uint32_t i = 0; i < rank.places.partners; ++i) {
      const std::uint32_t other = rank.partners[i].rank;
      const Rank& peer = *ranks[other];
      const std::uint32_t here = peer.shape.partner_of(static_cast<int>(from));
      REQUIRE(rank.number == peer.number);
      REQUIRE(word[rail_route] == tasks[other].word[rail_route]);
      if (word[rail_bytes] == 0 || !rank.partners[i].gets_from(static_cast<std::uint32_t>(word[rail_to]), i)) continue;
      carried[{from, other}] += word[rail_bytes];
      if (static_cast<RailRoute>(word[rail_route]) == RailRoute::gathered) {
        // The same from all, for all.
        REQUIRE((word[rail_to] == rail_everybody && word[rail_needs] == rail_everybody && word[rail_same] != 0));
        REQUIRE(word[rail_bytes] <= rank.places.node_bytes);
        REQUIRE(word[rail_bytes] == tasks[other].word[rail_bytes]);
        std::memcpy(peer.places.gathered + peer.places.gathered_at(rank.number, rank.shape.node(), word[rail_bytes]),
                    rank.places.out_data(rank.number, 0), word[rail_bytes]);
        continue;
      }
      const std::uint64_t needs = tasks[other].word[rail_needs];
      if (static_cast<RailRoute>(word[rail_route]) == RailRoute::passed_on) REQUIRE(needs == here);
      if (needs != rail_everybody && needs != here) continue;
      std::memcpy(peer.places.in_header(rank.number, here) + 1,
                  rank.places.out_data(rank.number, word[rail_same] != 0 ? 0 : i), word[rail_bytes]);
    }
  }

  const std::unique_ptr<Device> device_;
  const Shapes shapes_;
};

std::uint64_t value(std::uint32_t rank, std::uint64_t index) {
  return (rank + 1) * 0x9e3779b97f4a7c15u ^ (index + 1) * 0xc2b2ae3d27d4eb4fu;
}

Words values(std::uint32_t rank, std::uint64_t begin, std::uint64_t count) {
  Words all(count);
  for (std::uint64_t i = 0; i < count; ++i) all[i] = value(rank, begin + i);
  return all;
}

enum class How { sum, commutes, in_order };

/// Words from `begin` on of what all ranks give, put together in the order of the ranks.
Words combined(const Call& call, std::uint32_t ranks, std::uint64_t begin, std::uint64_t count) {
  Words result = values(0, begin, count);
  for (std::uint32_t rank = 1; rank < ranks; ++rank)
    combine_into(call, reinterpret_cast<const char*>(values(rank, begin, count).data()),
                 reinterpret_cast<char*>(result.data()), 8 * count);
  return result;
}

/// What a rank gives, what it has behind the call, and where that may be checked.
struct Buffers {
  Words send, recv, expected;
};

Buffers buffers_of(const Call& call, std::uint32_t rank, std::uint32_t ranks) {
  const std::uint64_t words = call.bytes / 8;
  Buffers b;
  const bool has_blocks = call.kind == Kind::alltoall || call.kind == Kind::reduce_scatter;
  b.send = values(rank, 0, has_blocks ? words * ranks : words);
  const bool is_root = rank == static_cast<std::uint32_t>(call.root);
  switch (call.kind) {
    case Kind::barrier:
      b.send.clear();
      break;
    case Kind::bcast:
      b.expected = values(static_cast<std::uint32_t>(call.root), 0, words);
      b.recv = is_root ? b.send : Words(words, 0);
      b.send.clear();
      return b;
    case Kind::reduce:
      if (is_root) b.expected = combined(call, ranks, 0, words);
      break;
    case Kind::allreduce:
      b.expected = combined(call, ranks, 0, words);
      break;
    case Kind::reduce_scatter:
      b.expected = combined(call, ranks, rank * words, words);
      break;
    case Kind::allgather:
      for (std::uint32_t from = 0; from < ranks; ++from) {
        const Words block = values(from, 0, words);
        b.expected.insert(b.expected.end(), block.begin(), block.end());
      }
      break;
    case Kind::alltoall:
      for (std::uint32_t from = 0; from < ranks; ++from) {
        const Words block = values(from, rank * words, words);
        b.expected.insert(b.expected.end(), block.begin(), block.end());
      }
      break;
  }
  b.recv.assign(b.expected.size(), 0);
  return b;
}

/// As MPIX_… calls hand over MPI_IN_PLACE (mpix/collectives.cpp).
void put_in_place(Call& call, Buffers& b, std::uint32_t rank) {
  const std::uint64_t at = call.kind == Kind::allgather ? rank * call.bytes / 8 : 0;
  if (b.recv.size() < at + b.send.size()) b.recv.resize(at + b.send.size());
  std::copy(b.send.begin(), b.send.end(), b.recv.begin() + static_cast<std::ptrdiff_t>(at));
  call.in_place = true;
  call.send = b.recv.data() + at;
}

void check(World& world, Call call, How how, bool in_place) {
  const bool combines = call.kind == Kind::reduce || call.kind == Kind::allreduce || call.kind == Kind::reduce_scatter;
  if (combines) {
    call.operation = how == How::sum ? Operation::sum : Operation::by_function;
    call.element = Element::u64;
    call.function = compose;
    call.commutes = how != How::in_order;
  }
  INFO("kind " << static_cast<int>(call.kind) << ", " << call.bytes << " bytes, root " << call.root << ", how "
               << static_cast<int>(how) << (in_place ? ", in place" : ""));
  std::vector<Buffers> buffers;
  std::vector<Call> calls;
  buffers.reserve(world.size());
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    Buffers& b = buffers.emplace_back(buffers_of(call, rank, world.size()));
    Call mine = call;
    const bool rooted = call.kind == Kind::reduce && rank != static_cast<std::uint32_t>(call.root);
    mine.send = call.kind == Kind::bcast ? b.recv.data() : b.send.data();
    if (in_place && !rooted && call.kind != Kind::bcast) put_in_place(mine, b, rank);
    mine.recv = b.recv.data();
    calls.push_back(mine);
  }
  world.run(calls);
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    INFO("rank " << rank);
    const Buffers& b = buffers[rank];
    // how == commutes: not in the order of the ranks where nodes' ranks are not in a row
    REQUIRE(std::equal(b.expected.begin(), b.expected.end(), b.recv.begin()));
  }
}

constexpr Kind all_kinds[] = {Kind::bcast,     Kind::reduce,   Kind::allreduce, Kind::reduce_scatter,
                              Kind::allgather, Kind::alltoall, Kind::barrier};

void check_all(World& world, std::uint64_t bytes, bool in_a_row) {
  for (const Kind kind : all_kinds)
    for (const How how : {How::sum, How::commutes, How::in_order}) {
      if (how == How::commutes && !in_a_row) continue;  // the nodes' own order
      const bool is_rooted = kind == Kind::bcast || kind == Kind::reduce;
      for (std::uint32_t root = 0; root < (is_rooted ? world.size() : 1); ++root)
        for (const bool in_place : {false, true}) {
          Call call;
          call.kind = kind;
          call.bytes = kind == Kind::barrier ? 0 : bytes;
          call.root = static_cast<int>(root);
          check(world, call, how, in_place);
        }
    }
}

Call call_of(Kind kind, std::uint64_t bytes, int root = 0) {
  Call call;
  call.kind = kind;
  call.bytes = bytes;
  call.root = root;
  return call;
}

/// The bytes of a block in each exchange.
Words pieces(World& world, Call call, How how = How::sum) {
  check(world, std::move(call), how, false);
  return world.exchanges;
}

const std::vector<std::vector<int>> all_sizes = {{1, 1}, {2, 2}, {1, 3}, {3, 2}, {1, 1, 1}, {2, 2, 2}, {4, 1, 2}};

}  // namespace

TEST_CASE("collectives between nodes: results, and no more than a slot takes, around a piece's size") {
  for (const auto& sizes : all_sizes) {
    World world(in_a_row(sizes), 0);
    INFO("nodes of " << sizes[0] << ", " << sizes[1] << ", … ranks");
    REQUIRE(world.slot_bytes == 4096);
    for (const std::uint64_t around : {world.block, world.slot_bytes, 3 * world.slot_bytes, std::uint64_t{16384}})
      for (const std::uint64_t bytes : {around - 8, around, around + 8}) check_all(world, bytes, true);
    check_all(world, 8, true);
  }
}

TEST_CASE("collectives between nodes: results, where exchanges go in rounds") {
  for (const auto& sizes : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1, 1, 1, 1}})
    for (const std::uint64_t scratch : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
      World world(in_a_row(sizes), scratch, 1);
      const std::uint64_t of_a_node = world.ranks[0]->places.node_bytes;
      INFO(sizes.size() << " nodes of " << sizes[0] << " ranks, " << of_a_node << " bytes of each are gathered");
      REQUIRE(of_a_node >= 64);
      for (const std::uint64_t around : {of_a_node / 2, of_a_node, world.block, 2 * world.slot_bytes})
        for (const std::uint64_t bytes : {around - 8, around, around + 8}) check_all(world, bytes, true);
      CHECK(world.routes == std::set<RailRoute>{RailRoute::direct, RailRoute::gathered, RailRoute::passed_on});
    }
  World world({0, 2, 1, 1, 0, 2}, 1 << 18, 2);
  for (const std::uint64_t bytes : {8, 4000, 40000}) check_all(world, bytes, false);
}

TEST_CASE("collectives between nodes: rounds are for many nodes with as many ranks each") {
  const auto uses_rounds = [](const std::vector<int>& sizes, std::uint32_t above) {
    World world(in_a_row(sizes), 0, above);
    check(world, call_of(Kind::allreduce, 8), How::sum, false);
    return world.routes.count(RailRoute::gathered) != 0;
  };
  CHECK(uses_rounds({1, 1, 1}, 2));
  CHECK_FALSE(uses_rounds({1, 1, 1}, 3));
  CHECK_FALSE(uses_rounds({1, 2, 1}, 2));
  CHECK_FALSE(uses_rounds({1, 1}, 2));
  CHECK(uses_rounds({1, 1}, 0));
}

TEST_CASE("collectives between nodes: results, random sizes, ranks on nodes in any order") {
  std::mt19937 random(11);
  for (int turn = 0; turn < 24; ++turn) {
    std::vector<int> nodes(2 + random() % 6);
    for (int& node : nodes) node = static_cast<int>(random() % 3);
    nodes[0] = 0, nodes[1] = 1;
    World world(nodes, random() % 2 ? 0 : 1 << 18);
    check_all(world, 8 + random() % 6000 * 8, false);
  }
}

TEST_CASE("collectives between nodes: where the cuts are") {
  World even(in_a_row({2, 2}), 0);  // slots of 4096 bytes, a block of 2048 for each rank of a node
  REQUIRE(even.block == 2048);
  CHECK(pieces(even, call_of(Kind::allgather, 2048)) == Words{2048});
  CHECK(pieces(even, call_of(Kind::allgather, 2056)) == Words{2048, 8});
  CHECK(pieces(even, call_of(Kind::alltoall, 4096)) == Words{2048, 2048});
  CHECK(pieces(even, call_of(Kind::reduce_scatter, 4104)) == Words{2048, 2048, 8});
  CHECK(pieces(even, call_of(Kind::reduce, 4104, 3)) == Words{4096, 8});
  CHECK(pieces(even, call_of(Kind::reduce, 4104, 3), How::in_order) == Words{2048, 2048, 8});
  // up to 16 KiB whole; of more a shard for each rank of a node, and of those one for each node
  CHECK(pieces(even, call_of(Kind::bcast, 16384)) == Words{4096, 4096, 4096, 4096});
  CHECK(pieces(even, call_of(Kind::bcast, 16392)) == Words{4096, 4096, 4096, 8});
  CHECK(pieces(even, call_of(Kind::allreduce, 16384)) == Words{4096, 4096, 4096, 4096});
  CHECK(pieces(even, call_of(Kind::allreduce, 16640)) == Words{4096, 4096, 256});
  CHECK(pieces(even, call_of(Kind::allreduce, 17408), How::in_order) ==
        Words{2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 1024});
  CHECK(pieces(even, call_of(Kind::barrier, 0)) == Words{0});
  CHECK(pieces(even, call_of(Kind::allreduce, 0)) == Words{0});
  // nodes that differ: whole, whatever the size
  World uneven(in_a_row({1, 3}), 0);
  REQUIRE(uneven.block == 4096 / 3 / 64 * 64);
  CHECK(pieces(uneven, call_of(Kind::bcast, 16392)) == Words{4096, 4096, 4096, 4096, 8});
  CHECK(pieces(uneven, call_of(Kind::alltoall, 1352)) == Words{1344, 8});
}

TEST_CASE("collectives between nodes: each byte goes between nodes no more often than it must") {
  World world(in_a_row({2, 2, 2}), 0);
  const auto all_carried = [&] {
    std::uint64_t all = 0;
    for (const auto& [pair, bytes] : world.carried) all += bytes;
    return all;
  };
  const std::uint64_t bytes = 48 * 1024;
  check(world, call_of(Kind::allgather, bytes), How::sum, false);  // of each node all, to all ranks of the others
  CHECK(all_carried() == 6 * 2 * 2 * bytes);
  check(world, call_of(Kind::alltoall, bytes), How::sum, false);
  CHECK(all_carried() == 6 * 4 * bytes);
  check(world, call_of(Kind::reduce_scatter, bytes), How::sum, false);  // of each node one sum for each rank elsewhere
  CHECK(all_carried() == 3 * 4 * bytes);
  check(world, call_of(Kind::reduce, bytes, 5), How::sum, false);
  CHECK(all_carried() == 2 * bytes);
  check(world, call_of(Kind::bcast, 16384, 5), How::sum, false);
  CHECK(all_carried() == 2 * 16384);
  check(world, call_of(Kind::bcast, bytes, 5), How::sum, false);
  CHECK(all_carried() == 2 * bytes);
  // whole: from each rank to its partners; in shards: each node its part of the sum from, and to, both others
  check(world, call_of(Kind::allreduce, 16384), How::sum, false);
  CHECK(all_carried() == 6 * 2 * 16384);
  check(world, call_of(Kind::allreduce, bytes), How::sum, false);
  const std::uint64_t in_shards = bytes - 16384;
  CHECK(all_carried() < 2 * 2 * bytes + 6 * 2 * 16384);
  CHECK(all_carried() >= 2 * 2 * in_shards);
}

TEST_CASE("collectives between nodes: slots have room for all that memory is meant to hold") {
  const auto device = make_host_device(Settings(), 1);
  for (const auto& sizes : all_sizes)
    for (const std::uint64_t scratch : {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{48} << 20}) {
      const Shapes shapes = shapes_of(in_a_row(sizes), *device);
      const std::uint64_t slot = shapes[0]->slot_bytes(scratch);
      CHECK(slot % 4096 == 0);
      for (const auto& shape : shapes) {
        CHECK(shape->slot_bytes(scratch) == slot);
        CHECK(slot >= 64 * shape->locals());
        // out and in, and two blocks of all columns
        const std::uint64_t data = (4 * shape->partners().size() + 2 * shape->columns()) * slot;
        CHECK((slot == 4096 || data <= scratch));
      }
    }
}
