// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What concerns all ranks of a process, or of a domain: puts that all ranks of the target's process are told of,
// broadcasts, reductions. Ranks are threads or, compiled as CUDA or HIP, blocks, or warps:
//
//   mpiexec -n N domain_together random STEPS RANKS...
//     random calls one after another, with nothing between them but delays, against a serial computation; process p has
//     the p-th number of ranks
//   mpiexec -n N domain_together warps STEPS RANKS...
//     the same, with a warp as the rank where it may be one
//   mpiexec -n N domain_together flood ROUNDS RANKS...
//     more puts that all are told of than lanes hold, from all at once
//   mpiexec -n N domain_together shared STEPS RANKS...
//     the ranks of a process have one part together
//   mpiexec -n N domain_together wrong 1 RANKS...
//     wrong arguments; with two processes also a list of pending notifications that is full
//   mpiexec -n N domain_together all STEPS RANKS...
//     all of these one after another, but for warps
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "support/domain.h"
#include "support/domain_kernels.h"
#include "support/domain_program.h"

namespace {

using test::process;

constexpr std::uint32_t most_processes = 8;
constexpr std::size_t most_bytes = 65536, room = most_bytes + 128, part = 5 * room;
constexpr std::size_t scratch_at = room, told_at = 3 * room, source_at = 4 * room;
constexpr int told_tag = 1000, answer_tag = 2000;

enum class Kind : std::uint64_t { bcast, reduce, told };
enum class Type : std::uint64_t { i32, u64, f32, f64, types };

/// What the kernels do, and all that they know of it.
struct Together {
  MPIX_Dev_win window;
  char* base;
  std::uint32_t steps;
  std::uint64_t seed;
  std::uint32_t processes;  ///< that have ranks
  std::uint32_t first[most_processes + 1];
  test::Findings* findings;

  MPIX_DEV_METHOD char* mine(const MPIX_Dev_ctx& c) const { return base + (c.rank - c.p.first_rank) * part; }
  MPIX_DEV_METHOD test::Findings& found(const MPIX_Dev_ctx& c) const { return findings[c.rank - c.p.first_rank]; }
  MPIX_DEV_METHOD std::uint32_t process_of(std::uint32_t rank) const {
    std::uint32_t process = 0;
    while (first[process + 1] <= rank) ++process;
    return process;
  }
};

MPIX_DEV_METHOD char cheap(std::uint64_t key, std::size_t i) {
  return static_cast<char>((key + i) * 0x9e3779b97f4a7c15u >> 56);
}
MPIX_DEV_METHOD void fill(const MPIX_Dev_ctx& c, char* to, std::size_t bytes, std::uint64_t key) {
  const mpix::Workers team = mpix::dev::team_of(c);
  for (std::size_t i = team.index; i < bytes; i += team.size) to[i] = cheap(key, i);
  mpix::dev::sync_team(c);
}
MPIX_DEV_METHOD void expect(const MPIX_Dev_ctx& c, test::Findings& f, const char* data, std::size_t bytes,
                            std::uint64_t key, std::uint64_t line, std::uint64_t step) {
  // Each thread its own bytes; whichever finds one that is wrong tells of it.
  const mpix::Workers team = mpix::dev::team_of(c);
  for (std::size_t i = team.index; i < bytes; i += team.size) {
    if (data[i] == cheap(key, i)) continue;
    if (mpix::fetch_add_on_device(&f.faults, 1) == 0) {
      const std::uint64_t all[] = {line, step, i, bytes, static_cast<unsigned char>(data[i]), c.rank};
      for (int k = 0; k < 6; ++k) f.first[k] = all[k];
    }
    break;
  }
  mpix::dev::sync_team(c);
}

/// One rank at a time, as a rule, is late.
MPIX_DEV_METHOD void be_late(std::uint64_t bits) {
  if (bits % 4 != 0) return;
  const std::uint64_t until = bits / 4 % 8 == 0 ? 200000 : 2000;
  for (const std::uint64_t begin = MPIX_Dev_clock(); MPIX_Dev_clock() - begin < until;) {
  }
}

MPIX_DEV_METHOD std::size_t some_bytes(std::uint64_t bits) {
  const std::size_t below = bits % 8 == 0   ? 1
                            : bits % 8 < 3  ? 17
                            : bits % 8 < 6  ? 700
                            : bits % 8 == 6 ? 9000
                                            : most_bytes + 1;
  return (bits >> 8) % below;
}

/// Sums of these depend on their order.
template <class T>
MPIX_DEV_METHOD T element(std::uint64_t key, std::uint32_t rank, std::size_t i) {
  const std::uint64_t bits = test::mix(key ^ (std::uint64_t{rank} << 40) ^ i);
  if (std::is_integral_v<T>) return static_cast<T>(bits);
  const T fraction = static_cast<T>(static_cast<std::int64_t>(bits % 2000001) - 1000000) / static_cast<T>(777777);
  return fraction * static_cast<T>(1u << (bits >> 32) % 20);
}
template <class T>
MPIX_DEV_METHOD T serial(int op, T a, T b) {
  if (op == MPIX_DEV_MAX) return a > b ? a : b;
  if (op == MPIX_DEV_MIN) return a < b ? a : b;
  if (std::is_same_v<T, std::int32_t>)
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  return a + b;
}

struct Random : Together {
  struct Step {
    Kind kind;
    std::uint32_t root;
    std::size_t bytes, at;
    int tag;
    std::uint64_t key;
  };
  MPIX_DEV_METHOD Step step_of(std::uint32_t step, std::uint32_t ranks) const {
    const std::uint64_t key = test::mix(seed ^ test::mix(step));
    const std::uint64_t bits = test::mix(key), more = test::mix(bits);
    const std::uint32_t kind = static_cast<std::uint32_t>(bits % 8);
    Step s{};
    s.kind = kind < 4 ? Kind::bcast : kind < 7 ? Kind::reduce : Kind::told;
    s.root = static_cast<std::uint32_t>((bits >> 8) % ranks);
    s.bytes = some_bytes(more);
    if (s.kind == Kind::reduce && s.bytes > 9000) s.bytes /= 4;  // the serial computation takes long
    s.at = (bits >> 40) % 3 == 0 ? (bits >> 44) % 64 : 0;
    s.tag = (bits >> 52) % 3 == 0 ? 7 : 3;
    s.key = key;
    return s;
  }

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    for (std::uint32_t step = 0; step < steps && c.broken == mpix::dev::Result::ok; ++step) {
      const Step s = step_of(step, c.p.ranks);
      if (s.kind == Kind::bcast) broadcast(c, s, step);
      if (s.kind == Kind::reduce) {
        const auto type = static_cast<Type>((s.key >> 7) % static_cast<std::uint64_t>(Type::types));
        if (type == Type::i32) reduce<std::int32_t>(c, s, step);
        if (type == Type::u64) reduce<std::uint64_t>(c, s, step);
        if (type == Type::f32) reduce<float>(c, s, step);
        if (type == Type::f64) reduce<double>(c, s, step);
      }
      if (s.kind == Kind::told) tell_all(c, s, step);
      if (mpix::dev::is_first(c)) ++found(c).operations;
    }
    int flag = 0;
    DOMAIN_EXPECT(c, found(c), MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, found(c), MPIX_Dev_test(&c, -1, -1, -1, 1, &flag) == MPI_SUCCESS && flag == 0);
  }

  MPIX_DEV_METHOD std::uint64_t key_of(const MPIX_Dev_ctx& c, const Step& s, std::uint32_t when) const {
    return test::mix(s.key ^ (std::uint64_t{c.rank} << 32) ^ when);
  }

  /// What a rank has stays as it is until it calls, and from when it has returned. What others read of it later, and
  /// should not, is something else by then.
  MPIX_DEV_METHOD void broadcast(MPIX_Dev_ctx& c, const Step& s, std::uint32_t step) const {
    const bool roots = c.rank == s.root;
    char* const data = mine(c) + s.at;
    const std::uint64_t before = roots ? s.key : key_of(c, s, 1), own = key_of(c, s, 2), behind = key_of(c, s, 3);
    fill(c, data, s.bytes, before);
    fill(c, data + s.bytes, 8, behind);
    be_late(test::mix(own));
    expect(c, found(c), data, s.bytes, before, __LINE__, step);
    const int result = MPIX_Dev_bcast(&c, window, static_cast<int>(s.root), s.at, s.bytes, s.tag);
    if (result != MPI_SUCCESS)
      test::fault(c, found(c), __LINE__, step, static_cast<std::uint64_t>(result), s.root, s.bytes);
    expect(c, found(c), data, s.bytes, s.key, __LINE__, step);
    expect(c, found(c), data + s.bytes, 8, behind, __LINE__, step);
    fill(c, data, s.bytes, own);
    be_late(test::mix(before));
    expect(c, found(c), data, s.bytes, own, __LINE__, step);
  }

  template <class T>
  MPIX_DEV_METHOD void put_element(char* to, std::size_t i, T value) const {
    mpix::dev::copy_odd(to + i * sizeof value, &value, sizeof value);
  }
  template <class T>
  MPIX_DEV_METHOD T reduced(std::uint64_t key, std::uint32_t root, int op, std::size_t i) const {
    T all[most_processes];
    const std::uint32_t begin = process_of(root);
    for (std::uint32_t n = 0; n < processes; ++n) {
      const std::uint32_t p = (begin + n) % processes;
      all[n] = element<T>(key, first[p], i);
      for (std::uint32_t rank = first[p] + 1; rank < first[p + 1]; ++rank)
        all[n] = serial(op, all[n], element<T>(key, rank, i));
    }
    for (std::uint32_t bit = 1; bit < processes; bit *= 2)
      for (std::uint32_t n = 0; n + bit < processes; n += 2 * bit) all[n] = serial(op, all[n], all[n + bit]);
    return all[0];
  }
  template <class T>
  MPIX_DEV_METHOD void reduce(MPIX_Dev_ctx& c, const Step& s, std::uint32_t step) const {
    const mpix::Workers team = mpix::dev::team_of(c);
    const std::size_t count = s.bytes / sizeof(T), bytes = count * sizeof(T), scratch = scratch_at + s.at / 2;
    char *const data = mine(c) + s.at, *const unused = mine(c) + scratch;
    const int op = static_cast<int>(s.key % 3);
    for (std::size_t i = team.index; i < count; i += team.size) put_element(data, i, element<T>(s.key, c.rank, i));
    const std::uint64_t own = key_of(c, s, 2);
    fill(c, unused, 2 * bytes, own);
    be_late(test::mix(own));
    expect(c, found(c), unused, 2 * bytes, own, __LINE__, step);
    const int result = MPIX_Dev_reduce<T>(&c, window, static_cast<int>(s.root), s.at, count, op, scratch, s.tag);
    if (result != MPI_SUCCESS)
      test::fault(c, found(c), __LINE__, step, static_cast<std::uint64_t>(result), s.root, s.bytes);
    for (std::size_t i = team.index; i < count; i += team.size) {
      const T wanted = c.rank == s.root ? reduced<T>(s.key, s.root, op, i) : element<T>(s.key, c.rank, i);
      bool same = true;
      for (std::size_t b = 0; b < sizeof wanted; ++b)
        same = same && data[i * sizeof wanted + b] == reinterpret_cast<const char*>(&wanted)[b];
      if (same) continue;
      if (mpix::fetch_add_on_device(&found(c).faults, 1) == 0) {
        const std::uint64_t all[] = {__LINE__, step, i, count, s.root, c.rank};
        for (int k = 0; k < 6; ++k) found(c).first[k] = all[k];
      }
      break;
    }
    mpix::dev::sync_team(c);
    fill(c, data, bytes, own);
    fill(c, unused, 2 * bytes, own + 1);
    be_late(test::mix(own + 1));
    expect(c, found(c), data, bytes, own, __LINE__, step);
    expect(c, found(c), unused, 2 * bytes, own + 1, __LINE__, step);
  }

  /// Each source has a place of its own, and waits until all have looked at it.
  MPIX_DEV_METHOD void tell_all(MPIX_Dev_ctx& c, const Step& s, std::uint32_t step) const {
    const std::uint32_t source = static_cast<std::uint32_t>((s.key >> 20) % c.p.ranks), to = process_of(s.root);
    const int tag = static_cast<int>(step % 500);
    const std::size_t place = room / c.p.ranks / 16 * 16, at = told_at + source * place + s.at;
    const std::size_t bytes = s.bytes < place - 64 ? s.bytes : place - 64;
    test::Findings& f = found(c);
    if (c.rank == source) {
      char* const from = mine(c) + source_at + s.at / 2;
      fill(c, from, bytes, s.key);
      be_late(s.key);
      DOMAIN_EXPECT(c, f,
                    MPIX_Dev_put_notify_all(&c, window, static_cast<int>(s.root), at, bytes, from, told_tag + tag) ==
                        MPI_SUCCESS);
      fill(c, from, bytes, s.key + 1);
    }
    if (process_of(c.rank) == to) {
      MPIX_Dev_status status{};
      DOMAIN_EXPECT(
          c, f, MPIX_Dev_wait_status(&c, window, static_cast<int>(source), told_tag + tag, 1, &status) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, status.bytes == bytes && status.window == window && !status.was_read);
      const char* const there = static_cast<const char*>(MPIX_Dev_ptr(&c, window, static_cast<int>(s.root), at));
      expect(c, f, there, bytes, s.key, __LINE__, step);
      DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, static_cast<int>(source), answer_tag + tag) == MPI_SUCCESS);
    }
    if (c.rank == source)
      DOMAIN_EXPECT(c, f,
                    MPIX_Dev_wait(&c, window, MPIX_DEV_ANY_SOURCE, answer_tag + tag,
                                  static_cast<int>(first[to + 1] - first[to])) == MPI_SUCCESS);
  }
};

/// All ranks put to all of random processes, and only then ask for what came.
struct Flood : Together {
  static constexpr std::uint32_t each = 40;
  MPIX_DEV_METHOD std::uint32_t target(std::uint32_t source, std::uint32_t round, std::uint32_t k,
                                       std::uint32_t ranks) const {
    return static_cast<std::uint32_t>(test::mix(seed ^ test::mix(source ^ (std::uint64_t{round} << 32)) ^ k) % ranks);
  }
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = found(c);
    char* const from = mine(c) + source_at;
    for (std::uint32_t round = 0; round < steps; ++round) {
      const int tag = static_cast<int>(round);
      for (std::uint32_t k = 0; k < each; ++k) {
        const int to = static_cast<int>(target(c.rank, round, k, c.p.ranks));
        const std::size_t at = told_at + 8 * (c.rank * each + k);
        mpix::dev::sync_team(c);
        if (mpix::dev::is_first(c)) {
          const std::uint64_t word = (std::uint64_t{round} << 32) + k;
          mpix::dev::copy_odd(from, &word, 8);
        }
        DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_all(&c, window, to, at, 8, from, tag) == MPI_SUCCESS);
        if (k % 8 == 0)  // between others
          DOMAIN_EXPECT(
              c, f,
              MPIX_Dev_put_notify(&c, window, to, told_at + most_bytes / 2 + 8 * c.rank, 8, from, tag) == MPI_SUCCESS);
      }
      const std::uint32_t own = process_of(c.rank);
      for (std::uint32_t source = 0; source < c.p.ranks; ++source) {
        int count = 0;
        for (std::uint32_t k = 0; k < each; ++k) {
          const std::uint32_t to = target(source, round, k, c.p.ranks);
          count += (process_of(to) == own) + (to == c.rank && k % 8 == 0);
        }
        DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, static_cast<int>(source), tag, count) == MPI_SUCCESS);
        for (std::uint32_t k = 0; k < each; ++k) {
          const std::uint32_t to = target(source, round, k, c.p.ranks);
          if (process_of(to) != own) continue;
          std::uint64_t word = 0;
          mpix::dev::copy_odd(&word, MPIX_Dev_ptr(&c, window, static_cast<int>(to), told_at + 8 * (source * each + k)),
                              8);
          DOMAIN_EXPECT(c, f, word == (std::uint64_t{round} << 32) + k);
        }
      }
      if (mpix::dev::is_first(c)) ++f.operations;
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    }
  }
};

/// One part for all ranks of a process: nobody writes it before the last of them has called.
struct Shared : Together {
  MPIX_DEV_METHOD std::uint32_t root(std::uint32_t step, std::uint32_t ranks) const {
    return static_cast<std::uint32_t>(test::mix(seed ^ step) % ranks);
  }
  MPIX_DEV_METHOD std::uint64_t key(std::uint32_t step) const { return test::mix(seed ^ (std::uint64_t{step} << 32)); }
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = found(c);
    const std::size_t bytes = 3000;
    if (c.rank == c.p.first_rank) fill(c, base, bytes, key(0));
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    for (std::uint32_t step = 1; step <= steps; ++step) {
      const std::uint32_t from = root(step, c.p.ranks);
      if (c.rank == from) fill(c, base, bytes, key(step));
      be_late(test::mix(key(step) ^ c.rank));
      if (process_of(c.rank) != process_of(from)) expect(c, f, base, bytes, key(step - 1), __LINE__, step);
      DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, window, static_cast<int>(from), 0, bytes, 1) == MPI_SUCCESS);
      expect(c, f, base, bytes, key(step), __LINE__, step);
      if (mpix::dev::is_first(c)) ++f.operations;
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_DEVICE) == MPI_SUCCESS);
    }
  }
};

struct Wrong : Together {
  MPIX_Dev_win uneven;  ///< the last rank has less of it than the others
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = found(c);
    const int n = static_cast<int>(c.p.ranks), none = static_cast<int>(c.p.ranks);
    char* const from = mine(c);
    const std::size_t huge = ~std::size_t{0} / 2;
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_all(&c, window, MPI_PROC_NULL, 0, 8, from, 0) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_all(&c, window, none, 0, 8, from, 0) == MPI_ERR_RANK);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_all(&c, window, 0, 0, 8, from, -1) == MPI_ERR_TAG);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_all(&c, window, n - 1, part, 1, from, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_all(&c, window, n - 1, 0, 8, nullptr, 0) == MPI_ERR_BUFFER);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_all(&c, window + 40, 0, 0, 8, from, 0) == MPI_ERR_WIN);
    for (const int root : {-1, none}) {
      DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, window, root, 0, 8, 0) == MPI_ERR_ROOT);
      DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<float>(&c, window, root, 0, 8, MPIX_DEV_SUM, 64, 0) == MPI_ERR_ROOT);
    }
    for (const int win : {-1, window + 40, 100000}) {
      DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, win, 0, 0, 8, 0) == MPI_ERR_WIN);
      DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<int>(&c, win, 0, 0, 8, MPIX_DEV_SUM, 64, 0) == MPI_ERR_WIN);
    }
    DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, window, 0, 0, 8, -1) == MPI_ERR_TAG);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<int>(&c, window, 0, 0, 8, MPIX_DEV_SUM, 64, -1) == MPI_ERR_TAG);
    DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, window, 0, part, 1, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, window, 0, 8, ~std::size_t{0} - 4, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, uneven, 0, 100, 8, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<double>(&c, uneven, 0, 0, 8, MPIX_DEV_MIN, 64, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<double>(&c, window, 0, 0, huge, MPIX_DEV_MIN, 64, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<double>(&c, window, 0, 0, 4, MPIX_DEV_MIN, part - 63, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<int>(&c, window, 0, 0, 8, 3, 64, 0) == MPI_ERR_OP);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<int>(&c, window, 0, 0, 8, MPIX_DEV_MAX, 31, 0) == MPI_ERR_BUFFER);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<int>(&c, window, 0, 60, 8, MPIX_DEV_MAX, 0, 0) == MPI_ERR_BUFFER);
    // None of these has sent something.
    int flag = 1;
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_test(&c, -1, -1, -1, 1, &flag) == MPI_SUCCESS && flag == 0);
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, uneven, n - 1, 0, 64, 0) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_reduce<int>(&c, window, n - 1, 0, 8, MPIX_DEV_MAX, 32, 0) == MPI_SUCCESS);
    if (mpix::dev::is_first(c)) ++f.operations;
  }
};

/// Of two processes with a rank each: the second cannot set aside what lies in front of the call's notification.
struct Full : Together {
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = found(c);
    const bool is_root = c.rank == 0;
    for (int i = 0; is_root && i < 20; ++i) DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, 1, 3) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, window, 0, 0, 8, 5) == (is_root ? MPI_SUCCESS : MPI_ERR_NO_MEM));
    // Not with the notification of that one.
    if (!is_root) DOMAIN_EXPECT(c, f, MPIX_Dev_bcast(&c, window, 0, 0, 8, 5) == MPI_ERR_RMA_SYNC);
    if (mpix::dev::is_first(c)) ++f.operations;
  }
};

#if defined(__CUDACC__) || defined(__HIPCC__)
/// Of each block one warp calls.
template <class Kernel>
__global__ void run_by_warps(MPIX_Dev_param param, Kernel kernel) {
  __shared__ MPIX_Dev_ctx ctx;
  if (threadIdx.x >= warpSize || MPIX_Dev_init(&ctx, param, MPIX_DEV_WARP) != MPI_SUCCESS) return;
  kernel(ctx);
  MPIX_Dev_finish(&ctx);
}
template <class Kernel>
int launch(MPIX_Dev dev, const Kernel& kernel, bool by_warps) {
  return by_warps ? MPIX_Dev_launch(dev, run_by_warps<Kernel>, dim3(96), 0, nullptr, kernel)
                  : support::launch(dev, kernel, 128);
}
#else
template <class Kernel>
int launch(MPIX_Dev dev, const Kernel& kernel, bool) {
  return support::launch(dev, kernel, 1);
}
#endif

template <class Kernel>
void run(support::Domain& domain, Kernel& kernel, const std::vector<int>& counts, std::uint64_t operations,
         bool by_warps = false) {
  const auto here = static_cast<std::size_t>(counts[static_cast<std::size_t>(process)]);
  std::uint32_t ranks = 0;
  for (const int count : counts) {
    if (count > 0) kernel.first[kernel.processes++] = ranks;
    ranks += static_cast<std::uint32_t>(count);
  }
  kernel.first[kernel.processes] = ranks;
  std::vector<test::Findings> findings(here);
  kernel.findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof(test::Findings) * here));
  CHECK_MPI(launch(domain, kernel, by_warps));
  support::synchronize();
  support::to_host(findings.data(), kernel.findings, sizeof(test::Findings) * here);
  for (const test::Findings& one : findings) {
    EXPECT(one.operations == operations);
    if (one.faults == 0) continue;
    std::printf("rank %llu: %llu faults; the first at line %llu: %llu %llu %llu %llu\n",
                static_cast<unsigned long long>(one.first[5]), static_cast<unsigned long long>(one.faults),
                static_cast<unsigned long long>(one.first[0]), static_cast<unsigned long long>(one.first[1]),
                static_cast<unsigned long long>(one.first[2]), static_cast<unsigned long long>(one.first[3]),
                static_cast<unsigned long long>(one.first[4]));
    ++test::failures;
  }
}

template <class Kernel>
Kernel start(support::Domain& domain, int steps, int here) {
  Kernel kernel{};
  kernel.base = domain.allocate(part * static_cast<std::size_t>(here));
  kernel.window = domain.window_over(kernel.base, part);
  kernel.steps = static_cast<std::uint32_t>(steps);
  if (const char* seed = std::getenv("TEST_SEED")) kernel.seed = std::strtoull(seed, nullptr, 10);
  return kernel;
}

void random_calls(int steps, const std::vector<int>& counts, bool by_warps) {
  const int here = counts[static_cast<std::size_t>(process)];
  support::Domain domain(MPI_COMM_WORLD, here);
  auto kernel = start<Random>(domain, steps, here);
  run(domain, kernel, counts, kernel.steps, by_warps);
  domain.check();
}

void flood(int rounds, const std::vector<int>& counts) {
  const int here = counts[static_cast<std::size_t>(process)];
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "mpix_dev_lane_lines", "16"));
  CHECK_MPI(MPI_Info_set(info, "mpix_dev_pending", "4096"));
  support::Domain domain(MPI_COMM_WORLD, here, info);
  CHECK_MPI(MPI_Info_free(&info));
  auto kernel = start<Flood>(domain, rounds, here);
  run(domain, kernel, counts, kernel.steps);
  domain.check();
}

void full() {
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "mpix_dev_pending", "4"));
  support::Domain domain(MPI_COMM_WORLD, 1, info);
  CHECK_MPI(MPI_Info_free(&info));
  auto kernel = start<Full>(domain, 1, 1);
  run(domain, kernel, {1, 1}, 1);
}

void shared(int steps, const std::vector<int>& counts) {
  const auto here = static_cast<std::size_t>(counts[static_cast<std::size_t>(process)]);
  support::Domain domain(MPI_COMM_WORLD, static_cast<int>(here));
  auto kernel = start<Shared>(domain, steps, static_cast<int>(here));
  const std::vector<void*> bases(here, kernel.base);
  const std::vector<std::size_t> sizes(here, part);
  CHECK_MPI(MPIX_Dev_win_create(domain, bases.data(), sizes.data(), &kernel.window));
  run(domain, kernel, counts, kernel.steps);
  domain.check();
}

void wrong(const std::vector<int>& counts) {
  const auto here = static_cast<std::size_t>(counts[static_cast<std::size_t>(process)]);
  support::Domain domain(MPI_COMM_WORLD, static_cast<int>(here));
  auto kernel = start<Wrong>(domain, 0, static_cast<int>(here));
  std::size_t last = counts.size() - 1;
  while (counts[last] == 0) --last;
  std::vector<void*> bases;
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < here; ++i) {
    bases.push_back(kernel.base + i * part);
    sizes.push_back(static_cast<std::size_t>(process) == last && i == here - 1 ? 64 : 4096);
  }
  CHECK_MPI(MPIX_Dev_win_create(domain, bases.data(), sizes.data(), &kernel.uneven));
  run(domain, kernel, counts, 1);
  // The first error is kept, by the call's own name.
  int error_class = MPI_SUCCESS;
  char text[256] = "";
  CHECK_MPI(MPIX_Dev_error(domain, 1, &error_class, text, sizeof text));
  EXPECT(here == 0 || (error_class == MPI_ERR_RANK && std::strstr(text, "MPIX_Dev_put_notify_all: no such rank")));
}

}  // namespace

int main(int argc, char** argv) {
  return test::main_of(argc, argv, [&](const std::string& what) {
    const int steps = argc > 2 ? std::atoi(argv[2]) : 1;
    std::vector<int> counts;
    for (int p = 0; p < test::processes; ++p) counts.push_back(argc > 3 ? std::atoi(argv[3 + p % (argc - 3)]) : 2);
    const bool all = what == "all";
    EXPECT(all || what == "random" || what == "warps" || what == "flood" || what == "shared" || what == "wrong");
    if (all || what == "random") random_calls(steps, counts, false);
    if (what == "warps") random_calls(steps, counts, true);
    if (all || what == "flood") flood(all ? 1 + steps / 50 : steps, counts);
    if (all || what == "shared") shared(steps, counts);
    if (all || what == "wrong") wrong(counts);
    if (test::processes == 2 && (all || what == "wrong")) full();
  });
}
