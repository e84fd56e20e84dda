// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "support/collective_calls.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

namespace test {
namespace {

constexpr unsigned char canary = 0xc5;

bool has_parts(What what) {
  return what == What::reduce_scatter_block || what == What::allgather || what == What::alltoall;
}
bool sends_parts(What what) { return what == What::reduce_scatter_block || what == What::alltoall; }

std::size_t of_ranks(int size) { return static_cast<std::size_t>(size); }

/// Some elements of what `who` sends.
std::vector<char> elements_of(const Call& call, int who, std::size_t first, std::size_t count) {
  const Type& type = type_of(call.type);
  const Function function = is_reduction(call.what) ? op_of(call.op).function : Function::max;
  const std::uint64_t from = key({call.salt, static_cast<std::uint64_t>(who), static_cast<std::uint64_t>(call.what)});
  std::vector<char> all(count * type.extent);
  for (std::size_t i = 0; i < count; ++i) type.generate(&all[i * type.extent], mix(from + first + i), function);
  return all;
}

}  // namespace

const char* name(What what) {
  switch (what) {
    case What::barrier:
      return "MPIX_Barrier_stream";
    case What::bcast:
      return "MPIX_Bcast_stream";
    case What::reduce:
      return "MPIX_Reduce_stream";
    case What::allreduce:
      return "MPIX_Allreduce_stream";
    case What::reduce_scatter_block:
      return "MPIX_Reduce_scatter_block_stream";
    case What::allgather:
      return "MPIX_Allgather_stream";
    case What::alltoall:
      return "MPIX_Alltoall_stream";
  }
  return "?";
}

std::string describe(const Call& call) {
  std::ostringstream text;
  text << name(call.what);
  if (call.what == What::barrier) return text.str();
  text << " of " << call.count << " " << type_of(call.type).name;
  if (is_reduction(call.what)) text << ", " << op_of(call.op).name;
  if (is_rooted(call.what)) text << ", root " << call.root;
  if (call.in_place) text << ", in place";
  if (call.skew) text << ", off by " << call.skew;
  return text.str();
}

std::size_t send_count(const Call& call, int size) {
  if (call.what == What::barrier) return 0;
  return call.count * (sends_parts(call.what) ? of_ranks(size) : 1);
}

std::size_t recv_count(const Call& call, int size) {
  if (call.what == What::barrier) return 0;
  const bool all = call.what == What::reduce_scatter_block ? call.in_place : has_parts(call.what);
  return call.count * (all ? of_ranks(size) : 1);
}

std::vector<char> input_of(const Call& call, int me, int size) {
  return elements_of(call, me, 0, send_count(call, size));
}

std::vector<int> nodes_of(MPI_Comm comm) {
  if (!spans_nodes()) return {};
  const int per_node = std::atoi(std::getenv("MPIX_NODE_SIZE"));
  MPI_Group own, all;
  int ranks = 0;
  MPI_OK(MPI_Comm_size(comm, &ranks));
  MPI_OK(MPI_Comm_group(comm, &own));
  MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
  std::vector<int> numbers(of_ranks(ranks)), nodes(numbers.size());
  for (int i = 0; i < ranks; ++i) numbers[of_ranks(i)] = i;
  MPI_OK(MPI_Group_translate_ranks(own, ranks, numbers.data(), all, nodes.data()));
  for (int& node : nodes) node /= per_node;
  MPI_Group_free(&own);
  MPI_Group_free(&all);
  return nodes;
}

std::vector<char> result_of(const Call& call, int me, int size, const std::vector<int>& nodes) {
  if (call.what == What::barrier) return {};
  const Type& type = type_of(call.type);
  const std::size_t bytes = call.count * type.extent;
  switch (call.what) {
    case What::bcast:
      return input_of(call, call.root, size);
    case What::allgather:
    case What::alltoall: {
      std::vector<char> all;
      for (int r = 0; r < size; ++r) {
        const std::vector<char> mine =
            elements_of(call, r, call.what == What::alltoall ? call.count * of_ranks(me) : 0, call.count);
        all.insert(all.end(), mine.begin(), mine.end());
      }
      return all;
    }
    default:
      break;
  }
  if (call.what == What::reduce && me != call.root) return {};
  const std::size_t first = call.what == What::reduce_scatter_block ? call.count * of_ranks(me) : 0;
  const auto combine = [&](std::vector<char>& result, const std::vector<char>& operand) {
    if (result.empty()) return void(result = operand);
    for (std::size_t i = 0; i < bytes; i += type.extent) type.combine(&result[i], &operand[i], op_of(call.op).function);
  };
  std::vector<std::pair<int, std::vector<char>>> of_nodes;
  for (int r = 0; r < size; ++r) {
    const int node = nodes.empty() ? 0 : nodes[of_ranks(r)];
    auto known = std::find_if(of_nodes.begin(), of_nodes.end(), [&](const auto& one) { return one.first == node; });
    if (known == of_nodes.end()) known = of_nodes.insert(known, {node, {}});
    combine(known->second, elements_of(call, r, first, call.count));
  }
  std::vector<char> result;
  for (const auto& [node, operand] : of_nodes) combine(result, operand);
  return result;
}

Rounding::Rounding(const Call& call, int me, int size) : call_(call) {
  const std::size_t first = call.what == What::reduce_scatter_block ? call.count * of_ranks(me) : 0;
  for (int r = 0; r < size; ++r) inputs_.push_back(elements_of(call, r, first, call.count));
}

double Rounding::of(std::size_t element) const {
  const Type& type = type_of(call_.type);
  double sum = 0, product = 1;
  for (const std::vector<char>& input : inputs_) {
    const double magnitude = type.magnitude(&input[element * type.extent]);
    sum += magnitude;
    product *= magnitude;
  }
  const bool is_float = type.extent == (type.of == Class::complex ? 8 : 4);
  const double epsilon = is_float ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const double scale = op_of(call_.op).function == Function::sum ? sum : product;
  return 4 * static_cast<double>(inputs_.size()) * epsilon * scale;
}

namespace {

/// Trees combine in their own order; but a star, of ranks that share a place, in that of the ranks.
bool has_order_of_a_tree(const Call& call) {
  const char* const setting = std::getenv("MPIX_COLL");
  const std::string way = setting ? setting : "";
  return (call.what == What::allreduce || call.what == What::reduce) &&
         is_rounded(op_of(call.op), type_of(call.type)) &&
         (way.find("btb") != std::string::npos || (way == "gsb" && !device().is_host()));
}

}  // namespace

int enqueue(const Call& call, const void* sendbuf, void* recvbuf, MPI_Comm comm, void* stream) {
  const int count = static_cast<int>(call.count);
  switch (call.what) {
    case What::barrier:
      return MPIX_Barrier_stream(comm, stream);
    case What::bcast:
      return MPIX_Bcast_stream(recvbuf, count, call.type, call.root, comm, stream);
    case What::reduce:
      return MPIX_Reduce_stream(sendbuf, recvbuf, count, call.type, call.op, call.root, comm, stream);
    case What::allreduce:
      return MPIX_Allreduce_stream(sendbuf, recvbuf, count, call.type, call.op, comm, stream);
    case What::reduce_scatter_block:
      return MPIX_Reduce_scatter_block_stream(sendbuf, recvbuf, count, call.type, call.op, comm, stream);
    case What::allgather:
      return MPIX_Allgather_stream(sendbuf, count, call.type, recvbuf, count, call.type, comm, stream);
    case What::alltoall:
      return MPIX_Alltoall_stream(sendbuf, count, call.type, recvbuf, count, call.type, comm, stream);
  }
  return MPI_ERR_INTERN;
}

int make_now(const Call& call, const void* sendbuf, void* recvbuf, MPI_Comm comm) {
  const int count = static_cast<int>(call.count);
  switch (call.what) {
    case What::barrier:
      return MPI_Barrier(comm);
    case What::bcast:
      return MPI_Bcast(recvbuf, count, call.type, call.root, comm);
    case What::reduce:
      return MPI_Reduce(sendbuf, recvbuf, count, call.type, call.op, call.root, comm);
    case What::allreduce:
      return MPI_Allreduce(sendbuf, recvbuf, count, call.type, call.op, comm);
    case What::reduce_scatter_block:
      return MPI_Reduce_scatter_block(sendbuf, recvbuf, count, call.type, call.op, comm);
    case What::allgather:
      return MPI_Allgather(sendbuf, count, call.type, recvbuf, count, call.type, comm);
    case What::alltoall:
      return MPI_Alltoall(sendbuf, count, call.type, recvbuf, count, call.type, comm);
  }
  return MPI_ERR_INTERN;
}

// ---- memory of a side ------------------------------------------------------------------------------

Side::Side(std::size_t bytes, std::size_t skew, Kind kind, char* where)
    : bytes_(bytes),
      before_(margin_ + skew),
      image_(before_ + bytes + margin_, static_cast<char>(canary)),
      buffer_(where ? nullptr : std::make_unique<Buffer>(image_.size(), kind)),
      begin_(where ? where : buffer_->data()) {}

void Side::place(const std::vector<char>& content, std::size_t at) {
  std::copy(content.begin(), content.end(), image_.begin() + static_cast<std::ptrdiff_t>(before_ + at));
}

void Side::write() { device().write(begin_, image_.data(), image_.size()); }

std::ptrdiff_t Side::touched() const {
  const std::vector<char> now = contents<char>(begin(), bytes());
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (i == before_) i += bytes_;
    if (now[i] == static_cast<char>(canary)) continue;
    return static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(i < before_ ? before_ : before_ + bytes_ - 1);
  }
  return 0;
}

bool Side::unchanged() const { return contents<char>(begin(), bytes()) == image_; }

// ---- a trial ---------------------------------------------------------------------------------------

std::size_t Trial::room(const Call& call, int size) {
  return 256 + (std::max(send_count(call, size), recv_count(call, size)) + call.skew) * type_of(call.type).extent;
}

Trial::Trial(const Call& call, int me, int size, Kind kind, char* send_at, char* recv_at)
    : call_(call),
      me_(me),
      size_(size),
      send_(call.what == What::bcast ? 0 : send_count(call, size) * type_of(call.type).extent,
            call.skew * type_of(call.type).extent, kind, send_at),
      recv_(recv_count(call, size) * type_of(call.type).extent, call.skew * type_of(call.type).extent, kind, recv_at) {
  const std::vector<char> input = input_of(call, me, size);
  if (call.what == What::bcast) {
    if (me == call.root) recv_.place(input);
  } else if (sends_in_place()) {
    recv_.place(input, call.what == What::allgather ? input.size() * of_ranks(me) : 0);
  } else {
    send_.place(input);
  }
  renew();
}

void Trial::renew() {
  send_.write();
  recv_.write();
}

bool Trial::sends_in_place() const { return call_.in_place && (call_.what != What::reduce || me_ == call_.root); }

const void* Trial::sendbuf() const { return sends_in_place() ? MPI_IN_PLACE : send_.data(); }
void* Trial::recvbuf() const { return call_.what == What::reduce && me_ != call_.root ? nullptr : recv_.data(); }

int Trial::make(MPI_Comm comm, void* stream) {
  if (is_reduction(call_.what)) nodes_ = nodes_of(comm);
  return enqueue(call_, sendbuf(), recvbuf(), comm, stream);
}

void Trial::check(const std::string& context) const {
  const Type& type = type_of(call_.type);
  const std::vector<char> wanted = result_of(call_, me_, size_, nodes_);
  const std::vector<char> found = recv_.read();
  std::size_t wrong = 0;
  const auto rounding = has_order_of_a_tree(call_) ? std::make_unique<Rounding>(call_, me_, size_) : nullptr;
  const auto is_right = [&](const char* one, const char* other) {
    if (!is_reduction(call_.what)) return std::memcmp(one, other, type.extent) == 0;
    return type.same(one, other) || (rounding && type.distance(one, other) <= rounding->of(wrong / type.extent));
  };
  while (wrong < wanted.size() && is_right(&wanted[wrong], &found[wrong])) wrong += type.extent;
  const auto element = wrong / type.extent;
  EXPECT(wrong >= wanted.size(), describe(call_) << ": element " << element << "; " << context);
  EXPECT(recv_.touched() == 0, describe(call_) << ": written at " << recv_.touched() << " from recvbuf; " << context);
  EXPECT(send_.unchanged(), describe(call_) << ": sendbuf has changed; " << context);
  if (call_.what == What::reduce && me_ != call_.root)
    EXPECT(recv_.unchanged(), describe(call_) << ": recvbuf of another than the root; " << context);
}

// ---- a batch ---------------------------------------------------------------------------------------

namespace {

bool go_by_copies() {
  const char* const ways = std::getenv("MPIX_COLL");
  return ways && std::strcmp(ways, "copies") == 0;
}

}  // namespace

struct Batch::Group {
  std::size_t begin, end;
  std::unique_ptr<support::Graph> graph;  ///< null: not captured
};

Batch::Batch(MPI_Comm comm)
    : comm_(comm), captured_(parameter("TEST_CAPTURED", 0) != 0), copies_(captured_ && go_by_copies()) {}
Batch::~Batch() = default;

namespace {

struct GroupKind {
  std::size_t calls;
  bool captured;
};
constexpr GroupKind group_kinds[] = {{1, true}, {5, true}, {2, false}, {20, true}};

}  // namespace

void Batch::add(std::unique_ptr<Trial> trial, void* stream) {
  trials_.push_back(std::move(trial));
  if (!captured_) return MPI_OK(trials_.back()->make(comm_, stream));
  const std::size_t enqueued = groups_.empty() ? 0 : groups_.back().end;
  if (trials_.size() - enqueued >= group_kinds[groups_.size() % std::size(group_kinds)].calls) enqueue_group(stream);
}

/// All that has not been enqueued.
void Batch::enqueue_group(void* stream) {
  const bool in_graph = group_kinds[groups_.size() % std::size(group_kinds)].captured && !device().is_host();
  Group group{groups_.empty() ? 0 : groups_.back().end, trials_.size(), nullptr};
  const auto make = [&] {
    for (std::size_t i = group.begin; i < group.end; ++i) MPI_OK(trials_[i]->make(comm_, stream));
  };
  if (!in_graph) {
    make();
  } else if (group.begin < group.end) {
    if (copies_) device().wait_for_all();
    group.graph = device().capture(stream, make);
    group.graph->launch();
  }
  groups_.push_back(std::move(group));
}

void Batch::finish(void* stream, const std::string& context) {
  if (captured_) enqueue_group(stream);
  Stream::synchronize(stream);
  check(context);
  constexpr int launches = 3;
  for (int launch = 2; captured_ && launch <= launches; ++launch) {
    for (const auto& trial : trials_) trial->renew();
    for (const Group& group : groups_) {
      if (group.graph) {
        group.graph->launch();
        continue;
      }
      for (std::size_t i = group.begin; i < group.end; ++i) MPI_OK(trials_[i]->make(comm_, stream));
    }
    Stream::synchronize(stream);
    check(context + ", launch " + std::to_string(launch));
  }
}

void Batch::check(const std::string& context) const {
  for (const auto& trial : trials_) trial->check(context);
}

void Batch::clear() {
  groups_.clear();
  trials_.clear();
}

// ---- one and many ----------------------------------------------------------------------------------

void try_call(const Call& call, Stream& stream, const std::string& context, MPI_Comm comm) {
  int me = 0, size = 0;
  MPI_OK(MPI_Comm_rank(comm, &me));
  MPI_OK(MPI_Comm_size(comm, &size));
  Trial trial(call, me, size);
  MPI_OK(trial.make(comm, stream));
  stream.synchronize();
  trial.check(context);
}

Call random_call(Random& random, int size, std::size_t most) {
  Call call;
  call.what = all_kinds[random.below(7)];
  call.root = static_cast<int>(random.below(of_ranks(size)));
  do {
    call.op = all_ops()[random.below(all_ops().size())].handle;
    call.type = all_types()[random.below(all_types().size())].handle;
  } while (is_reduction(call.what) &&
           (!is_valid(op_of(call.op), type_of(call.type)) || (type_of(call.type).host_only && !device().is_host())));
  if (!is_reduction(call.what) && type_of(call.type).of == Class::pair) call.type = MPI_DOUBLE;  // no holes
  if (!is_reduction(call.what) && type_of(call.type).host_only) call.type = MPI_BYTE;
  // half of them are small
  call.count = random.chance(0.5) ? random.below(10) : random.below(most + 1);
  if (random.chance(0.1)) call.count = random.below(8 * most);
  call.in_place = random.chance(0.3);
  call.skew = random.below(3);
  call.salt = random.next();
  return call;
}

}  // namespace test
