// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Ranks that call different things, and ranks that do not call at all: a report says who has called what, or who is
// missing; the waits end, and the communicator's calls return an error from then on. Nothing else is broken.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>

#include "support/capture.h"
#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

const bool settings_made = [] {
  setenv("MPIX_TIMEOUT", std::to_string(time_scale()).c_str(), 1);
  setenv("MPIX_ON_TIMEOUT", "error", 0);  // a test that ends all the same may run without
  return true;
}();

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A rank that hears of it from others, or its service, comes to say so when it has the time.
void wait_for(Capture& errors, const char* text) {
  const double limit = MPI_Wtime() + 20 * slowdown();
  while (MPI_Wtime() < limit && !contains(errors.text(), text)) usleep(10000);
}

int synchronize(Stream& stream) {
  if (device().is_host())
    return MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(static_cast<void*>(stream)));
  stream.synchronize();
  return MPI_SUCCESS;
}

/// A communicator whose ranks will disagree, and one beside it that must not notice.
class Bench {
 public:
  Bench() : comm_(Comm::duplicate()), other_(Comm::duplicate()), a_(most_bytes()), b_(most_bytes()) {
    for (MPI_Comm comm : {MPI_Comm(comm_), MPI_Comm(other_), MPI_COMM_WORLD})
      MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI_OK(MPI_Comm_set_name(comm_, "pressure"));
    for (const Comm* comm : {&comm_, &other_}) {
      Sequence before(*comm, 3, 100);
      for (int i = 0; i < 5; ++i) before.enqueue(stream_);
      stream_.synchronize();
      before.check();
    }
    barrier();
  }
  ~Bench() { MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL); }

  int call(const Call& call) {
    // nobody is at fault who gives buffers to a call that does not use them
    return enqueue(call, a_.data(), b_.data(), comm_, stream_);
  }
  /// The code of a synchronization, where the device knows it.
  int synchronize() {
    const double begin = MPI_Wtime();
    const int code = ::synchronize(stream_);
    seconds_ = MPI_Wtime() - begin;
    return code;
  }
  double seconds() const { return seconds_; }

  /// After what has gone wrong: calls that would be right come back, and all ranks are told in the end.
  void check_broken() {
    Call right;
    bool told = false;
    for (int i = 0; i < 20 && !told; ++i) {
      right.what = i % 2 ? What::bcast : What::allreduce;
      const int code = call(right);
      told = code != MPI_SUCCESS;
      const std::string text = error_text(code);
      INFO("call " << i << ": " << text);
      if (told) {
        CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
        CHECK(contains(text, name(right.what)));
      }
      (void)synchronize();
      CHECK(seconds() < 30.0 * slowdown());
    }
    CHECK(told);
    for (What what : all_kinds) {
      right.what = what;
      CHECK(error_class(call(right)) == MPI_ERR_RMA_SYNC);
    }
    (void)synchronize();
  }

  /// Nothing else is broken.
  void check_others() {
    barrier();
    Sequence after(other_, 4, 3000);
    Stream stream;
    for (int i = 0; i < 20; ++i) after.enqueue(stream);
    stream.synchronize();
    after.check();
    int one = 1, sum = 0;
    MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm_));
    CHECK(sum == size());
    barrier();
  }

 private:
  /// Of what is called here: 300000 bytes, or a block of 20000 for each rank.
  static std::size_t most_bytes() { return std::max(std::size_t{300000}, std::size_t{20000} * size()); }

  Comm comm_, other_;
  const Buffer a_, b_;
  Stream stream_;
  double seconds_ = 0;
};

struct Difference {
  const char* what;
  Call most, one;  ///< of all ranks, of one
  const char* in_report[2];
  bool all_notice = false;  ///< on a node, as all hear from all
};

Call call_of(What what, std::size_t count = 4, MPI_Datatype type = MPI_INT, MPI_Op op = MPI_SUM, int root = 0) {
  Call call;
  call.what = what;
  call.count = count;
  call.type = type;
  call.op = op;
  call.root = root;
  return call;
}

void try_out(const Difference& difference, int odd) {
  INFO(difference.what << ", rank " << odd << " differs");
  alive(difference.what);
  Bench bench;
  std::string report;
  int code = MPI_SUCCESS;
  {
    Capture errors(STDERR_FILENO);
    code = bench.call(rank() == odd ? difference.one : difference.most);
    CHECK(code == MPI_SUCCESS);  // nobody can know
    code = bench.synchronize();
    CHECK(bench.seconds() < 30.0 * slowdown());
    // An error may end the program: the reason is told before.
    if (code != MPI_SUCCESS) CHECK(contains(errors.text(), "collectives of 'pressure': "));
    usleep(200000);  // the service looks now and then
    bench.check_broken();
    report = errors.end();
  }
  INFO("report: " << report);
  // With copies a rank that only sends to a root may be through with it, and be found in its next call.
  const char* const way = std::getenv("MPIX_COLL");
  const bool in_next = way && std::string(way) == "copies" && difference.one.what == What::reduce &&
                       difference.most.what == What::bcast && contains(report, "MPIX_Allreduce_stream");
  const bool reported = contains(report, difference.in_report[0]) &&
                        (contains(report, difference.in_report[1]) || in_next) && contains(report, "rank ");
  CHECK_FALSE(on_all_ranks(!reported));  // one rank has seen the difference
  if (difference.all_notice && !spans_nodes()) CHECK(contains(report, "the ranks call different things"));
  if (!report.empty()) CHECK(contains(report, "pressure"));
  bench.check_others();
}

}  // namespace

TEST_CASE("ranks that call different things") {
  NEEDS_RANKS(2);
  REQUIRE(settings_made);
  const char *const allreduce = "MPIX_Allreduce_stream", *const bcast = "MPIX_Bcast_stream";
  const std::vector<Difference> differences = {
      {"the kind", call_of(What::allreduce), call_of(What::allgather), {allreduce, "MPIX_Allgather_stream"}},
      {"a barrier", call_of(What::allreduce), call_of(What::barrier), {allreduce, "MPIX_Barrier_stream"}},
      {"rooted or not", call_of(What::bcast), call_of(What::allreduce), {bcast, allreduce}},
      {"rooted: the kind", call_of(What::bcast), call_of(What::reduce), {bcast, "MPIX_Reduce_stream"}},
      {"the count", call_of(What::allreduce, 4), call_of(What::allreduce, 5), {"16 bytes", "20 bytes"}},
      {"the count of a bcast", call_of(What::bcast, 4), call_of(What::bcast, 5), {"16 bytes", "20 bytes"}},
      {"the count, nothing", call_of(What::alltoall, 4), call_of(What::alltoall, 0), {"16 bytes", "0 bytes"}},
      {"large and small",
       call_of(What::allreduce, 10),
       call_of(What::allreduce, 10000),
       {"40 bytes", "40000 bytes"},
       true},
      {"small and large",
       call_of(What::allreduce, 10000),
       call_of(What::allreduce, 10),
       {"40 bytes", "40000 bytes"},
       true},
      {"the type", call_of(What::allreduce), call_of(What::allreduce, 4, MPI_FLOAT), {"integers", "floating"}},
      {"the operation",
       call_of(What::allreduce),
       call_of(What::allreduce, 4, MPI_INT, MPI_MAX),
       {"MPI_SUM", "MPI_MAX"}},
      {"the root of a bcast", call_of(What::bcast), call_of(What::bcast, 4, MPI_INT, MPI_SUM, 1), {"root 0", "root 1"}},
      {"the root of a reduce",
       call_of(What::reduce),
       call_of(What::reduce, 4, MPI_INT, MPI_SUM, 1),
       {"root 0", "root 1"}},
  };
  int turn = 0;
  for (const Difference& difference : differences) try_out(difference, turn++ % size());
}

namespace {

void keep_as_it_is(void*, void*, int*, MPI_Datatype*) {}

struct OwnOperation {
  explicit OwnOperation(bool commutes) { MPI_OK(MPI_Op_create(keep_as_it_is, commutes, &op)); }
  ~OwnOperation() { MPI_Op_free(&op); }
  MPI_Op op = MPI_OP_NULL;
};

}  // namespace

TEST_CASE("reductions by functions that differ") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "functions of the host");
  REQUIRE(settings_made);
  const OwnOperation any_order(true), in_order(false);
  const What sum = What::allreduce;
  const char* const by_program = "an operation of the program that commutes, of ";
  const std::vector<Difference> differences = {
      {"the operation",
       call_of(sum, 4, MPI_LONG_DOUBLE, MPI_SUM),
       call_of(sum, 4, MPI_LONG_DOUBLE, MPI_MAX),
       {"MPI_SUM of long double", "MPI_MAX of long double"}},
      {"the type",
       call_of(sum, 4, MPI_LONG_DOUBLE, MPI_SUM),
       call_of(sum, 2, MPI_C_LONG_DOUBLE_COMPLEX, MPI_SUM),
       {"MPI_SUM of long double", "MPI_SUM of long double complex"}},
      {"where the least is",
       call_of(sum, 4, MPI_LONG_DOUBLE_INT, MPI_MAXLOC),
       call_of(sum, 4, MPI_LONG_DOUBLE_INT, MPI_MINLOC),
       {"MPI_MAXLOC of MPI_LONG_DOUBLE_INT", "MPI_MINLOC of MPI_LONG_DOUBLE_INT"}},
      {"the program's and MPI's",
       call_of(sum, 4, MPI_LONG_DOUBLE, MPI_SUM),
       call_of(sum, 4, MPI_LONG_DOUBLE, any_order.op),
       {"MPI_SUM of long double", by_program}},
      {"the type of the program's",
       call_of(sum, 4, MPI_DOUBLE, any_order.op),
       call_of(sum, 4, MPI_LONG, any_order.op),
       {by_program, "8-byte integers"}},
      {"the size of the program's type",
       call_of(sum, 4, MPI_DOUBLE, any_order.op),
       call_of(sum, 8, MPI_INT, any_order.op),
       {by_program, "4-byte integers"}},
      {"whether it commutes",
       call_of(sum, 4, MPI_DOUBLE, any_order.op),
       call_of(sum, 4, MPI_DOUBLE, in_order.op),
       {by_program, "does not commute"}},
  };
  int turn = 0;
  for (const Difference& difference : differences) try_out(difference, turn++ % size());
}

// A rank that finds out tells its node, and other nodes; and so does each that is told.
TEST_CASE("ranks of two nodes that call different things are all told", "[nodes]") {
  NEEDS_RANKS(2);
  if (!spans_nodes() || size() != 4) return checked(1);
  const Difference differences[] = {
      {"the count", call_of(What::allreduce, 4), call_of(What::allreduce, 5), {"16 bytes", "20 bytes"}},
      {"one that leads its node", call_of(What::allgather), call_of(What::bcast), {name(What::allgather), "Bcast"}},
      {"with another root", call_of(What::bcast), call_of(What::bcast, 4, MPI_INT, MPI_SUM, 3), {"root 0", "root 3"}},
      {"a barrier", call_of(What::alltoall), call_of(What::barrier), {name(What::alltoall), "Barrier"}},
      {"a reduce", call_of(What::barrier), call_of(What::reduce), {"Barrier", name(What::reduce)}},
      {"large", call_of(What::allreduce, 10), call_of(What::allreduce, 10000), {"40 bytes", "40000 bytes"}},
  };
  for (const Difference& difference : differences)
    for (const int odd : {1, 2}) {
      INFO(difference.what << ", rank " << odd << " differs");
      alive(difference.what);
      Bench bench;
      Capture errors(STDERR_FILENO);
      // A call that need not hear from all is found in the next one.
      for (int call = 0; call < 3; ++call) {
        const int code = bench.call(rank() == odd && call == 0 ? difference.one : difference.most);
        if (code != MPI_SUCCESS) CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
      }
      (void)bench.synchronize();
      CHECK(bench.seconds() < 30.0 * slowdown());
      wait_for(errors, "pressure");
      const std::string report = errors.end();
      INFO("report: " << report);
      CHECK(contains(report, "the ranks call different things: rank "));
      for (const char* const part : difference.in_report) CHECK(contains(report, part));
      bench.check_others();
    }
}

// By lines a large call has several steps, between which a rank waits that hears from nobody.
TEST_CASE("a rank that sends for several steps while another one calls another thing") {
  NEEDS_RANKS(2);
  constexpr std::size_t many = 75000;
  for (const What large : {What::bcast, What::reduce})
    for (const Call& other : {call_of(What::barrier), call_of(What::bcast, 4), call_of(What::allreduce, many)}) {
      INFO(name(large) << ", and " << describe(other));
      alive(describe(other));
      Bench bench;
      // All but one send, or one sends to all.
      const int root = large == What::bcast ? 0 : size() - 1;
      Capture errors(STDERR_FILENO);
      CHECK(bench.call(rank() == size() - 1 ? other : call_of(large, many, MPI_INT, MPI_SUM, root)) == MPI_SUCCESS);
      // By packs it has one step, and hears from others in the next call.
      const int code = bench.call(call_of(What::allreduce, 4));
      if (code != MPI_SUCCESS) CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
      (void)bench.synchronize();
      wait_for(errors, "the ranks call different things: ");
      const std::string report = errors.end();
      INFO("report: " << report);
      CHECK(contains(report, "the ranks call different things: "));
      CHECK(contains(report, name(large)));
      // A rank that hears late hears of the next call of the other one.
      CHECK((contains(report, name(other.what)) || contains(report, name(What::allreduce))));
      bench.check_others();
    }
}

// Each takes itself for the root, and may hear from nobody; and no call follows that would.
TEST_CASE("the roots of the last broadcast differ") {
  NEEDS_RANKS(2);
  for (const bool differ : {false, true}) {
    MPI_Comm comm = Comm::duplicate();
    MPI_OK(MPI_Comm_set_name(comm, "roots"));
    const Buffer data(4096);
    Stream stream;
    Capture errors(STDERR_FILENO);
    MPI_OK(enqueue(call_of(What::bcast, 4, MPI_INT, MPI_SUM, differ ? rank() : 0), data.data(), data.data(), comm,
                   stream));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)synchronize(stream);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_OK(MPI_Comm_free(&comm));
    const std::string report = errors.end();
    INFO("report: " << report);
    // Of other nodes some rank may notice, and behind guards all do.
    CHECK((contains(report, "the ranks have called different things") ||
           contains(report, "the ranks call different things")) == differ);
    CHECK(contains(report, "collectives of 'roots': ") == differ);
    CHECK(contains(report, "MPIX_Bcast_stream (16 bytes, root " + std::to_string(rank()) + ")") == differ);
    barrier();
  }
}

TEST_CASE("a rank that never calls") {
  NEEDS_RANKS(2);
  const std::pair<What, std::size_t> calls[] = {
      {What::allreduce, 10}, {What::barrier, 0}, {What::bcast, 10000}, {What::reduce, 10}, {What::alltoall, 5000}};
  for (const auto& [what, count] : calls) {
    const int missing = size() - 1;
    Call call = call_of(what, count);
    call.root = what == What::bcast ? missing : 0;  // so that all wait for it
    INFO(describe(call));
    alive(describe(call));
    Bench bench;
    bool is_named = false;
    if (rank() != missing) {
      Capture errors(STDERR_FILENO);
      CHECK(bench.call(call) == MPI_SUCCESS);
      const int code = bench.synchronize();
      // those that only send need not wait
      if (what != What::reduce || rank() == 0) {
        CHECK(bench.seconds() > 0.5);
        CHECK(bench.seconds() < 30.0 * slowdown());
        if (device().is_host()) CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
        const std::string report = errors.text();
        INFO("report: " << report);
        CHECK(contains(report, "rank"));
        is_named = contains(report, "rank " + std::to_string(missing));
        // on its own node a rank may wait for one that waits for another node's
        if (!spans_nodes()) CHECK(contains(report, std::to_string(missing)));
        CHECK(contains(report, "pressure"));
      }
      bench.check_broken();
    }
    if (spans_nodes()) CHECK_FALSE(on_all_ranks(!is_named));
    bench.check_others();
  }
}

TEST_CASE("a rank that comes late to a call that is collective on the host") {
  NEEDS_RANKS(2);
  MPI_Comm comm = Comm::duplicate();
  MPI_OK(MPI_Comm_set_name(comm, "moisture"));
  int nothing = 0;
  const std::pair<std::string, std::function<int()>> calls[] = {
      {"the first call on the communicator", [&] { return MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL); }},
      {"MPIX_Comm_attach", [&] { return MPIX_Comm_attach(comm, &nothing, 0); }},
      {"MPIX_Comm_detach", [&] { return MPIX_Comm_detach(comm, &nothing); }},
      {"MPI_Comm_free", [&] { return MPI_Comm_free(&comm); }}};
  for (const auto& [name, call] : calls) {
    barrier();
    Capture errors(STDERR_FILENO);
    if (rank() == size() - 1) usleep(static_cast<useconds_t>(2500000 * time_scale()));
    MPI_OK(call());
    const std::string report = errors.end();
    INFO(name << ", report: " << report);
    CHECK(contains(report, "collectives of 'moisture': " + name + " waits for other ranks") == (rank() != size() - 1));
  }
}

// The others do not wait for it; what they have told MPI lies where it may be read when the rank comes.
TEST_CASE("a rank that comes late to the end of calls that are broken") {
  NEEDS_RANKS(2);
  MPI_Comm comm = Comm::duplicate();
  MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  const Buffer from(4096), to(4096);
  Stream stream;
  Capture errors(STDERR_FILENO);
  CHECK(enqueue(call_of(What::allreduce, rank() == 1 ? 5 : 4), from.data(), to.data(), comm, stream) == MPI_SUCCESS);
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  (void)synchronize(stream);
  MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  if (rank() == 0) usleep(static_cast<useconds_t>(1600000 * time_scale()));
  MPI_OK(MPI_Comm_free(&comm));
  for (int i = 0; i < 100; ++i) {
    int one = 1, sum = 0;
    MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size());
  }
  CHECK(contains(errors.end(), "the ranks call different things"));
}

// A rank that comes late, but within the time, is nobody's fault.
TEST_CASE("a rank that comes late") {
  NEEDS_RANKS(2);
  Bench bench;
  Capture errors(STDERR_FILENO);
  for (int late = 0; late < size(); ++late) {
    if (rank() == late) usleep(static_cast<useconds_t>(200000 * time_scale()));
    CHECK(bench.call(call_of(What::allreduce)) == MPI_SUCCESS);
    CHECK(bench.synchronize() == MPI_SUCCESS);
  }
  const std::string report = errors.end();
  INFO("report: " << report);
  CHECK_FALSE(contains(report, "pressure"));
  bench.check_others();
}

// The stream of one rank stands before its call, behind what another stream must do first.
TEST_CASE("a stream that does not come to its call") {
  NEEDS_RANKS(2);
  Bench bench;
  const int held = size() - 1;
  Stream stream;
  std::unique_ptr<Gate> gate;
  const Comm comm(Comm::duplicate());
  MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  MPI_OK(MPI_Comm_set_name(comm, "humidity"));
  MPI_OK(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  Capture errors(STDERR_FILENO);
  if (rank() == held) gate = device().hold(stream);
  CHECK(MPIX_Barrier_stream(comm, stream) == MPI_SUCCESS);
  if (!gate) {
    if (device().is_host()) {
      CHECK(error_class(MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(static_cast<void*>(stream)))) ==
            MPI_ERR_RMA_SYNC);
    } else {
      stream.synchronize();
    }
    const std::string report = errors.text();
    INFO(report);
    CHECK(contains(report, "humidity"));
    CHECK(contains(report, std::to_string(held)));
  }
  barrier();
  if (gate) gate->open();
  if (device().is_host()) {
    (void)MPIX_Host_stream_synchronize(static_cast<MPIX_Host_stream>(static_cast<void*>(stream)));
  } else {
    stream.synchronize();
  }
  errors.end();
  bench.check_others();
}
