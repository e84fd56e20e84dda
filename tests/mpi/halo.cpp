// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The halo engine; every cell is compared with what it has to be.
//
//   mpiexec -n N halo cube [STEPS [ROUTE]]
//                                     N ranks in a periodic grid, 26 messages each (several to one rank, and to itself,
//                                     where the grid is narrow), one or two fields of cells of 1 to 24 bytes
//   mpiexec -n N halo keys [STEPS]    all pairs of values of info keys
//   mpiexec -n N halo ahead [STEPS]   the CPU is thousands of exchanges ahead
//   mpiexec -n N halo blocking [STEPS]
//   mpiexec -n 2 halo gathered [STEPS]  short messages that go together, and come in any order
//   mpiexec -n N halo wrong           wrong calls: the same error on all ranks, and what it says
//   mpiexec -n 2 halo hang [0 ROUTE]  a rank that does not come: a report that names the message, and an end
//   mpiexec -n N halo ends            ranks without messages; messages that the two ends put together in other ways
//   mpiexec -n N halo single          an MPI for one thread: all goes by memory, or the error says what it takes
//
// ROUTE: what the key mpix_route is, where a case does not say.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>

#include "mpi/halo_wrong.h"
#include "support/capture.h"
#include "support/halo_cube.h"
#include "support/slowdown.h"
#include "support/streams.h"

namespace {

void exchange(int steps, const Cube& cube, const Keys& keys) {
  CubeHalo one(cube, keys);
  for (int step = 0; step < steps; ++step) {
    one.fill(nullptr);
    CHECK_MPI(MPIX_Halo_exchange_stream(one.halo(), nullptr));
    one.compare(nullptr);
  }
  support::synchronize();
  one.expect(static_cast<std::uint64_t>(steps));
  EXPECT(one.stats().exchanges == static_cast<unsigned long long>(steps));
  const MPIX_Halo_stats stats = one.stats();
  EXPECT(stats.received >= 26ull * static_cast<unsigned long long>(steps));
  EXPECT(stats.received % static_cast<unsigned long long>(steps) == 0);
  if (route_in(keys) == "mpi") {
    EXPECT(stats.by_memory == 0);
    EXPECT(stats.mpi_sends <= stats.sent);
    EXPECT(stats.mpi_sends > 0);
  } else if (!std::getenv("MPIX_NODE_SIZE")) {
    EXPECT(stats.by_memory * static_cast<unsigned long long>(steps) == stats.received);
  } else {
    EXPECT(stats.by_memory * static_cast<unsigned long long>(steps) <= stats.received);
  }
  std::string text;
  for (const auto& key : keys) text += " " + key.first.substr(5) + "=" + key.second;
  if (rank == 0)
    std::printf("%d steps, %d x %d x %d cells of %zu bytes, %d fields:%s: %llu blocks\n", steps, cube.n[0], cube.n[1],
                cube.n[2], cube.element, cube.fields, text.c_str(), one.stats().blocks);
  CHECK_MPI(MPIX_Halo_free(one.handle()));
  EXPECT(one.halo() == MPIX_HALO_NULL);
}

void cube(int wanted) {
  const int steps = wanted > 0 ? wanted : 30;
  const auto run = [steps](std::size_t element, int fields, const char* form, int x, int y, int z, int each = 1) {
    exchange(std::max(1, steps / each), cube_of(element, fields, x, y, z),
             {{"mpix_form", form}, {"mpix_sends", fields == 1 ? "nonblocking" : "blocking"}});
  };
  run(8, 1, "stacked", 5, 4, 3);
  run(24, 2, "stream", 4, 4, 4);
  run(1, 3, "stacked", 7, 3, 2);
  run(4, 1, "auto", 2, 2, 2);
  run(16, 1, "stacked", 1, 1, 1);
  run(8, 3, "stacked", 60, 60, 60, 10);
}

/// What a program may choose; the cube is a choice, too.
const std::vector<std::pair<std::string, std::vector<std::string>>>& factors() {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> all{
      {"mpix_form", {"stacked", "stream", "barrier", "launches", "blocks"}},
      {"mpix_buffers", {"pinned", "copied"}},
      {"mpix_sends", {"nonblocking", "blocking"}},
      {"mpix_receives", {"testsome", "testany", "waitall"}},
      {"mpix_order", {"interleaved", "sends-first"}},
      {"mpix_pack_order", {"given", "largest"}},
      {"mpix_chunk", {"0", "48", "5000"}},
      {"mpix_gather", {"8192", "0", "100"}},
      {"mpix_packers", {"0", "3", "5"}},
      {"mpix_halves", {"1", "2"}},
      {"mpix_route", {"auto", "mpi"}},
      {"cube", {"small", "large", "odd"}},
  };
  return all;
}

/// Rows so that every two values of every two factors meet in one; the same on all ranks.
std::vector<std::vector<std::size_t>> pairwise() {
  const auto& all = factors();
  const auto pair = [&](const std::vector<std::size_t>& row, std::size_t f, std::size_t g) {
    return ((f * 16 + row[f]) * 16 + g) * 16 + row[g];
  };
  std::vector<bool> met(16 * 16 * 16 * 16);
  std::uint64_t random = 1;
  std::vector<std::vector<std::size_t>> rows;
  for (std::size_t left = 1; left > 0;) {
    std::vector<std::size_t> best;
    std::size_t best_new = 0;
    for (int attempt = 0; attempt < 200; ++attempt) {
      std::vector<std::size_t> row;
      for (const auto& factor : all) row.push_back((random = test::mix(random)) % factor.second.size());
      std::size_t fresh = 0;
      for (std::size_t f = 0; f < row.size(); ++f)
        for (std::size_t g = f + 1; g < row.size(); ++g) fresh += met[pair(row, f, g)] ? 0 : 1;
      if (fresh > best_new) best = row, best_new = fresh;
    }
    if (best_new > 0) {
      for (std::size_t f = 0; f < best.size(); ++f)
        for (std::size_t g = f + 1; g < best.size(); ++g) met[pair(best, f, g)] = true;
      rows.push_back(best);
    }
    left = 0;
    for (std::size_t f = 0; f < all.size(); ++f)
      for (std::size_t g = f + 1; g < all.size(); ++g) {
        std::vector<std::size_t> row(all.size());
        for (row[f] = 0; row[f] < all[f].second.size(); ++row[f])
          for (row[g] = 0; row[g] < all[g].second.size(); ++row[g]) left += met[pair(row, f, g)] ? 0 : 1;
      }
  }
  return rows;
}

void keys(int wanted) {
  const int steps = wanted > 0 ? wanted : 8;
  for (const std::vector<std::size_t>& row : pairwise()) {
    Keys chosen;
    for (std::size_t f = 0; f + 1 < row.size(); ++f)
      chosen.emplace_back(factors()[f].first, factors()[f].second[row[f]]);
    const std::string& size = factors().back().second[row.back()];
    exchange(steps,
             size == "small"   ? cube_of(8, 1, 4, 3, 2)
             : size == "large" ? cube_of(8, 2, 80, 60, 3)
                               : cube_of(3, 1, 9, 5, 7),
             chosen);
  }
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  exchange(steps, cube_of(8, 2, 5, 4, 3), {{"mpix_buffers", "device"}, {"mpix_halves", "2"}});
#endif
}

// ---- Wrong calls -------------------------------------------------------------------------------------

/// More than the queue of a stream of CUDA takes, while the service copies.
void ahead(int wanted) {
  const int steps = wanted > 0 ? wanted : 3000;
  preset_route = "mpi";
  exchange(steps, cube_of(8, 1, 2, 2, 2), {{"mpix_buffers", "copied"}});
  exchange(steps / 200, cube_of(8, 1, 20, 3, 2),
           {{"mpix_buffers", "copied"}, {"mpix_form", "blocks"}, {"mpix_chunk", "16"}});
}

/// A kernel that sends the message of the next exchange before it receives that of this one.
struct SendsAhead {
  MPIX_Dev_halo halo;
  std::uint64_t *out, *in, *wrong;
  std::uint64_t words, steps;
  int me, peer;
  MPIX_DEV_METHOD static std::uint64_t value(std::uint64_t step, int of, std::uint64_t i) {
    return step << 32 | static_cast<std::uint64_t>(of) << 24 | i;
  }
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    const std::uint64_t before = MPIX_Dev_halo_begin(team, halo);
    int failed = 0;
    for (std::uint64_t step = before + 1; step <= before + steps + 1; ++step) {
      if (step <= before + steps) {
        for (std::uint64_t i = team.thread; i < words; i += team.threads) out[i] = value(step, me, i);
        MPIX_Dev_sync(team);
        failed |= MPIX_Dev_halo_send(team, halo, 0, step);
      }
      if (step == before + 1) continue;
      // So that the service finds the one packed and the other not unpacked.
      for (const std::uint64_t begin = MPIX_Dev_clock(); MPIX_Dev_clock() - begin < 2000000;)
        support::let_other_blocks_run();
      failed |= MPIX_Dev_halo_receive(team, halo, 0, step - 1);
      for (std::uint64_t i = team.thread; i < words; i += team.threads)
        if (in[i] != value(step - 1, peer, i)) (void)mpix::fetch_add_on_device(wrong, 1);
      MPIX_Dev_sync(team);
    }
    if (failed != 0 && team.thread == 0) (void)mpix::fetch_add_on_device(wrong, 1);
  }
};

void send_ahead() {
  constexpr std::uint64_t words = 100000, steps = 20;  // more than MPI sends before it is received
  auto* const data = static_cast<std::uint64_t*>(support::allocate_on_device((2 * words + 1) * sizeof(std::uint64_t)));
  const auto box = [&](std::uint64_t* base) {
    return MPIX_Box{base, sizeof *base, 1, {static_cast<int>(words), 0, 0}, {sizeof *base, 0, 0}, 1, 0};
  };
  const MPIX_Box out = box(data), in = box(data + words);
  const int peer = ranks - 1 - rank;
  const MPIX_Halo_message message{peer, 1, 1, 1, 1, &out, &in};
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, Info(Keys{{"mpix_sends", "blocking"}}), &halo));
  std::uint64_t* const wrong = data + 2 * words;
  SendsAhead kernel{{}, data, data + words, wrong, words, steps, rank, peer};
  CHECK_MPI(MPIX_Halo_get_device(halo, &kernel.halo));
  support::load_blocks<SendsAhead>();
  support::launch_blocks(kernel, 1, 256);
  support::synchronize();
  std::uint64_t found = 1;
  support::to_host(&found, wrong, sizeof found);
  EXPECT(found == 0);
  CHECK_MPI(MPIX_Halo_free(&halo));
  support::release_on_device(data);
}

/// A kernel that sends two exchanges of each message, and receives the messages in another order.
struct Crosses {
  MPIX_Dev_halo halo;
  std::uint64_t *out, *in, *wrong;
  std::uint64_t words, steps;
  int messages, me, peer;
  bool one_by_one;  ///< receives a message before it sends the next one
  MPIX_DEV_METHOD static std::uint64_t value(std::uint64_t step, int of, int message, std::uint64_t i) {
    return step << 32 | static_cast<std::uint64_t>(of) << 24 | static_cast<std::uint64_t>(message) << 16 | i;
  }
  MPIX_DEV_METHOD int send(const MPIX_Dev_team& team, int m, std::uint64_t step) const {
    std::uint64_t* const from = out + static_cast<std::uint64_t>(m) * words;
    for (std::uint64_t i = team.thread; i < words; i += team.threads) from[i] = value(step, me, m, i);
    MPIX_Dev_sync(team);
    return MPIX_Dev_halo_send(team, halo, m, step);
  }
  MPIX_DEV_METHOD int receive(const MPIX_Dev_team& team, int m, std::uint64_t step) const {
    const int result = MPIX_Dev_halo_receive(team, halo, m, step);
    const std::uint64_t* const at = in + static_cast<std::uint64_t>(m) * words;
    for (std::uint64_t i = team.thread; i < words; i += team.threads)
      if (at[i] != value(step, peer, m, i)) (void)mpix::fetch_add_on_device(wrong, 1);
    MPIX_Dev_sync(team);
    return result;
  }
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    const std::uint64_t before = MPIX_Dev_halo_begin(team, halo);
    int failed = 0;
    for (std::uint64_t step = before + 1; step <= before + steps; step += 2) {
      for (int m = 0; m < messages; ++m)
        for (std::uint64_t s = step; s < step + 2; ++s) {
          failed |= send(team, m, s);
          if (one_by_one) failed |= receive(team, m, s);
        }
      for (int m = messages; m-- > 0 && !one_by_one;)
        for (std::uint64_t s = step; s < step + 2; ++s) failed |= receive(team, m, s);
    }
    if (failed != 0 && team.thread == 0) (void)mpix::fetch_add_on_device(wrong, 1);
  }
};

/// By a kernel of one block; how many messages of MPI that takes.
unsigned long long cross(std::uint64_t steps, bool one_by_one, const Keys& keys, int words_of_each = 5) {
  constexpr int messages = 12;
  const auto words = static_cast<std::uint64_t>(words_of_each);
  const std::size_t all = messages * words;
  auto* const data = static_cast<std::uint64_t*>(support::allocate_on_device((2 * all + 1) * sizeof(std::uint64_t)));
  std::uint64_t* const wrong = data + 2 * all;
  const std::uint64_t zero = 0;
  support::from_host(wrong, &zero, sizeof zero);
  const int peer = ranks - 1 - rank;
  std::vector<MPIX_Box> boxes;
  for (std::uint64_t* const base : {data, data + all})
    for (int m = 0; m < messages; ++m)
      boxes.push_back({base + static_cast<std::uint64_t>(m) * words,
                       sizeof *base,
                       1,
                       {words_of_each, 0, 0},
                       {sizeof *base, 0, 0},
                       1,
                       0});
  std::vector<MPIX_Halo_message> list;
  for (std::size_t m = 0; m < messages; ++m)
    list.push_back({peer, static_cast<int>(m), static_cast<int>(m), 1, 1, &boxes[m], &boxes[messages + m]});
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, messages, list.data(), Info(keys), &halo));
  Crosses kernel{{}, data, data + all, wrong, words, steps, messages, rank, peer, one_by_one};
  CHECK_MPI(MPIX_Halo_get_device(halo, &kernel.halo));
  support::load_blocks<Crosses>();
  support::launch_blocks(kernel, 1, 256);
  support::synchronize();
  std::uint64_t found = 1;
  support::to_host(&found, wrong, sizeof found);
  EXPECT(found == 0);
  // The other rank's kernel has received all, so all has been sent; this one's has only packed it.
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  MPIX_Halo_stats stats;
  CHECK_MPI(MPIX_Halo_get_stats(halo, &stats, sizeof stats));
  CHECK_MPI(MPIX_Halo_free(&halo));
  support::release_on_device(data);
  return stats.mpi_sends;
}

void gathered(int wanted) {
  preset_route = "mpi";
  const std::uint64_t steps = 2 * static_cast<std::uint64_t>(wanted > 0 ? wanted : 300);
  for (const char* const halves : {"1", "2"})
    for (const char* const buffers : {"pinned", "copied"}) {
      const Keys keys{{"mpix_route", "mpi"}, {"mpix_halves", halves}, {"mpix_buffers", buffers}};
      const auto with = [&keys](const char* gather) {
        Keys all = keys;
        all.emplace_back("mpix_gather", gather);
        return all;
      };
      cross(steps, true, keys);
      EXPECT(cross(steps, false, keys) < 12 * steps);
      // One end alone gathers, or what is shorter than these messages: they go by themselves.
      for (const char* const gather : {rank == 0 ? "0" : "8192", "39"}) EXPECT(cross(10, false, with(gather)) == 120);
    }
  cross(steps, false, Keys{});
  // Large ones, of which few are under way at once: what the other rank waits for is behind what it does not receive.
  for (const char* const halves : {"1", "2"})
    for (const bool one_by_one : {true, false})
      EXPECT(cross(4, one_by_one, Keys{{"mpix_route", "mpi"}, {"mpix_halves", halves}}, 60000) == 48);
  MPIX_Halo halo = MPIX_HALO_NULL;
  EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 0, nullptr, Info(Keys{{"mpix_gather", "65537"}}), &halo),
               MPI_ERR_INFO_VALUE, "mpix_gather");
}

/// Each send waits for a receive that the same thread starts, here or there.
void blocking(int wanted) {
  preset_route = "mpi";
  send_ahead();
  const int steps = wanted > 0 ? wanted : 1000;
  for (const char* const form : {"launches", "stacked"})
    exchange(steps, cube_of(3, 1, 9, 5, 7), {{"mpix_form", form}, {"mpix_sends", "blocking"}, {"mpix_packers", "3"}});
}

/// A rank that comes when another has said that it waits.
void late() {
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  test::Capture log(2);
  const auto come = [&] { CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 0, nullptr, MPI_INFO_NULL, &halo)); };
  if (rank == 0) {
    come();
    EXPECT(log.end().find("MPIX_Halo_create waits for other ranks") != std::string::npos);
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500) * test::time_scale());
    come();
    EXPECT(log.end().find("waits for other ranks") == std::string::npos);
  }
  CHECK_MPI(MPIX_Halo_free(&halo));
}

#if !defined(__CUDACC__) && !defined(__HIPCC__)
/// A call that waits for an exchange, which waits for the call.
void free_in_the_stream(const MPIX_Box& box) {
  static MPIX_Halo halo = MPIX_HALO_NULL;
  const MPIX_Halo_message self{0, 1, 1, 1, 1, &box, &box};
  MPIX_Host_stream stream = nullptr;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_SELF, 1, &self, Info(Keys{}), &halo));
  CHECK_MPI(MPIX_Host_stream_create(&stream));
  static std::promise<void> enqueued;
  CHECK_MPI(MPIX_Host_stream_launch(
      stream,
      [](void*) {
        enqueued.get_future().wait();
        EXPECT_ERROR(MPIX_Halo_free(&halo), MPI_ERR_OTHER, "does their stream wait for this call?");
      },
      nullptr));
  CHECK_MPI(MPIX_Halo_exchange_stream(halo, stream));
  enqueued.set_value();
  synchronize_broken(stream);
  EXPECT(halo == MPIX_HALO_NULL);
  CHECK_MPI(MPIX_Host_stream_destroy(&stream));
}
#endif

#if !defined(__CUDACC__) && !defined(__HIPCC__)
/// When MPI is over: a launch of a halo that was freed in vain comes to its turn, and one that was left is freed.
class Leftovers {
 public:
  Leftovers() {
    for (long i = 0; i < words; ++i) data_[i] = i;
    const MPIX_Box box{data_, 8, 1, {words, 0, 0}, {8, 0, 0}, 1, 0};
    const MPIX_Halo_message self{0, 1, 1, 1, 1, &box, &box}, other{1 - rank, 1, 1, 1, 1, &box, &box};
    MPIX_Halo late = MPIX_HALO_NULL;
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_SELF, 1, &self, Info(Keys{}), &late));
    CHECK_MPI(MPIX_Host_stream_create(&stream_));
    CHECK_MPI(MPIX_Host_stream_launch(
        stream_, [](void* go) { static_cast<std::promise<void>*>(go)->get_future().wait(); }, &go_));
    CHECK_MPI(MPIX_Halo_exchange_stream(late, stream_));
    EXPECT_ERROR(MPIX_Halo_free(&late), MPI_ERR_OTHER, "that were enqueued and are not over");
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &other, Info(Keys{{"mpix_route", "mpi"}}), &left_));
    CHECK_MPI(MPIX_Halo_exchange_stream(left_, nullptr));
    support::synchronize();
  }
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;
  ~Leftovers() {
    go_.set_value();
    (void)MPIX_Host_stream_synchronize(stream_);
    (void)MPIX_Halo_free(&left_);
  }

 private:
  static constexpr long words = 16;
  std::int64_t data_[words];
  std::promise<void> go_;
  MPIX_Host_stream stream_ = nullptr;
  MPIX_Halo left_ = MPIX_HALO_NULL;
};
std::unique_ptr<Leftovers> leftovers;
#endif

/// By messages of MPI, of which one is so large that MPI does not end its send: the other rank has gone.
void unreceived() {
  constexpr long words = 1 << 17;
  auto* const data = static_cast<char*>(support::allocate_on_device(8 * words));
  const MPIX_Box box{data, 8, 1, {words, 0, 0}, {8, 0, 0}, 1, 0};
  const MPIX_Halo_message message{1 - rank, 6, 6, 1, 1, &box, &box};
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, Info(Keys{}), &halo));
  if (rank == 1) CHECK_MPI(MPIX_Halo_free(&halo));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0) {
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    synchronize_broken(nullptr);
    EXPECT_ERROR(MPIX_Halo_free(&halo), MPI_ERR_OTHER, "message 0 (rank 1, send tag 6, receive tag 6)");
  }
  support::release_on_device(data);
}

/// The report tells what the exchange waits for, though the call has waited as long.
void free_at_once(const MPIX_Halo_message& message) {
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, Info(Keys{}), &halo));
  if (rank == 0) {
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    EXPECT_ERROR(MPIX_Halo_free(&halo), MPI_ERR_OTHER, "block 0 waits: message 0 (rank 1, send tag 5, receive tag 5)");
    synchronize_broken(nullptr);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 1) (void)MPIX_Halo_free(&halo);
}

/// With MPIX_TIMEOUT=1 MPIX_ON_TIMEOUT=error.
void hang(int) {
  auto* const data = static_cast<char*>(support::allocate_on_device(4096));
  const MPIX_Box box{data, 8, 1, {4, 0, 0}, {8, 0, 0}, 1, 0};
  const MPIX_Halo_message message{1 - rank, 5, 5, 1, 1, &box, &box};
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, Info(Keys{}), &halo));
  if (rank == 0) {
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    synchronize_broken(nullptr);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const int freed = MPIX_Halo_free(&halo);
  if (rank == 0)
    EXPECT_ERROR(freed, MPI_ERR_OTHER, "block 0 waits: message 0 (rank 1, send tag 5, receive tag 5) of exchange 1");
  if (rank == 1) EXPECT(freed == MPI_SUCCESS);
  // What was sent for the broken one is not for the next.
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 1, &message, Info(Keys{}), &halo));
  for (int i = 0; i < 5; ++i) CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
  support::synchronize();
  CHECK_MPI(MPIX_Halo_free(&halo));
  late();
  if (preset_route == "mpi") unreceived();
  free_at_once(message);
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  free_in_the_stream(box);
  leftovers = std::make_unique<Leftovers>();
#endif
  support::release_on_device(data);
}

/// Words in memory of the device, and boxes of them.
class Words {
 public:
  explicit Words(std::size_t count)
      : count_(count), data_(static_cast<std::uint64_t*>(support::allocate_on_device(count * sizeof(std::uint64_t)))) {}
  ~Words() { support::release_on_device(data_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  MPIX_Box box(std::size_t first, long count) const {
    return MPIX_Box{data_ + first, sizeof *data_, 1, {count, 0, 0}, {sizeof *data_, 0, 0}, 1, 0};
  }
  void set(std::uint64_t value) {
    const std::vector<std::uint64_t> all(count_, value);
    support::from_host(data_, all.data(), count_ * sizeof *data_);
  }
  bool are(std::uint64_t value) const {
    std::vector<std::uint64_t> all(count_);
    support::to_host(all.data(), data_, count_ * sizeof *data_);
    return std::all_of(all.begin(), all.end(), [value](std::uint64_t one) { return one == value; });
  }

 private:
  const std::size_t count_;
  std::uint64_t* const data_;
};

/// `count` messages between `out` and `in`, all of whose words come from `from`, which says who sends.
void exchange_words(int count, const MPIX_Halo_message* messages, const Keys& keys, Words& out, Words& in, int from) {
  MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, count, messages, Info(keys), &halo));
  for (std::uint64_t step = 1; step <= 5; ++step) {
    out.set(step << 8 | static_cast<std::uint64_t>(rank));
    in.set(0);
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    support::synchronize();
    EXPECT(in.are(from < 0 ? 0 : step << 8 | static_cast<std::uint64_t>(from)));
  }
  CHECK_MPI(MPIX_Halo_free(&halo));
}

void ends(int) {
  Words out(200), in(200);
  // The first two have messages, others none, or to nobody: all free the halo.
  const MPIX_Box all_out = out.box(0, 200), all_in = in.box(0, 200);
  MPIX_Halo_message pair{rank < 2 ? 1 - rank : MPI_PROC_NULL, 1, 1, 1, 1, &all_out, &all_in};
  for (const char* const route : {"auto", "mpi"})
    for (const bool null : {false, true})
      exchange_words(rank < 2 || null ? 1 : 0, &pair, {{"mpix_route", route}}, out, in, rank < 2 ? 1 - rank : -1);
  // One rank alone has its messages by MPI.
  pair.peer = rank;
  exchange_words(1, &pair, {{"mpix_route", rank == 0 ? "mpi" : "auto"}}, out, in, rank);
  // What goes with one tag comes with another, and the two ends put them together differently: so they have chunks each
  // way, and not as many.
  const std::size_t first = 0, second = 25;
  const MPIX_Box few_out = out.box(first, 25), many_out = out.box(second, 175), many_in = in.box(second, 175),
                 few_in = in.box(first, 25);
  const int peer = rank < 2 ? 1 - rank : rank;
  const MPIX_Halo_message here[2] = {{peer, 10, 30, 1, 1, &few_out, &many_in},
                                     {peer, 20, 40, 1, 1, &many_out, &few_in}},
                          there[2] = {{peer, 30, 20, 1, 1, &many_out, &many_in},
                                      {peer, 40, 10, 1, 1, &few_out, &few_in}};
  const MPIX_Halo_message self[2] = {{peer, 1, 2, 1, 1, &few_out, &many_in}, {peer, 2, 1, 1, 1, &many_out, &few_in}};
  for (const char* const route : {"auto", "mpi"})
    for (const char* const chunk : {"0", "64", "4096"})
      exchange_words(2,
                     rank > 1    ? self
                     : rank == 0 ? here
                                 : there,
                     {{"mpix_route", route}, {"mpix_chunk", chunk}}, out, in, peer);
}

/// Nothing is sent, so no thread of the library calls MPI.
void single(int) {
  int level = MPI_THREAD_MULTIPLE;
  CHECK_MPI(MPI_Query_thread(&level));
  EXPECT(level < MPI_THREAD_MULTIPLE);
  exchange(50, cube_of(8, 2, 5, 4, 3), {});
  const MPIX_Halo_message self{rank, 1, 1, 0, 0, nullptr, nullptr};
  MPIX_Halo halo = MPIX_HALO_NULL;
  EXPECT_ERROR(MPIX_Halo_create(MPI_COMM_WORLD, 1, &self, Info(Keys{{"mpix_route", "mpi"}}), &halo),
               MPI_ERR_UNSUPPORTED_OPERATION, "MPIX_CHANNEL_THREAD=on");
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_single = argc > 1 && std::string(argv[1]) == "single";
  const int code = run_case(argc, argv,
                            {{"cube", cube},
                             {"keys", keys},
                             {"ahead", ahead},
                             {"blocking", blocking},
                             {"gathered", gathered},
                             {"wrong", wrong},
                             {"hang", hang},
                             {"ends", ends},
                             {"single", single}},
                            is_single ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE);
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  leftovers = nullptr;
#endif
  return code;
}
