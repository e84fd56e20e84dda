// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "sizes.h"
#include "support/channel.h"
#include "support/random.h"

namespace halo {

/// What a block copies.
struct Part {
  char *to, *from;
  std::uint64_t words;
};

template <class Unit>
MPIX_DEV_FN void copy_units(const MPIX_Dev_team& team, Unit* to, const Unit* from, std::uint64_t units) {
  constexpr std::uint64_t in_flight = 4;  // each load takes as long as the link to the host and back
  for (std::uint64_t begin = team.thread; begin < units; begin += in_flight * team.threads) {
    Unit unit[in_flight];
#if MPIX_ON_DEVICE
#pragma unroll
#endif
    for (std::uint64_t k = 0; k < in_flight; ++k) {
      const std::uint64_t i = begin + k * team.threads;
      unit[k] = from[i < units ? i : begin];
    }
#if MPIX_ON_DEVICE
#pragma unroll
#endif
    for (std::uint64_t k = 0; k < in_flight; ++k)
      if (begin + k * team.threads < units) to[begin + k * team.threads] = unit[k];
  }
}

/// By pairs of words, where all of it begins at one.
MPIX_DEV_FN void copy_part(const MPIX_Dev_team& team, const Part& part) {
  const auto places = reinterpret_cast<std::uintptr_t>(part.to) | reinterpret_cast<std::uintptr_t>(part.from);
  std::uint64_t paired = 0;
  if (places % 16 == 0) {
    copy_units(team, reinterpret_cast<mpix::HaloUnit16*>(part.to), reinterpret_cast<const mpix::HaloUnit16*>(part.from),
               part.words / 2);
    paired = part.words / 2 * 16;
  }
  copy_units(team, reinterpret_cast<std::uint64_t*>(part.to + paired),
             reinterpret_cast<const std::uint64_t*>(part.from + paired), part.words - paired / 8);
}

/// `stamp` may be null. All threads of the block.
MPIX_DEV_FN void stamp_here(const MPIX_Dev_team& team, std::uint64_t* stamp) {
  if (!stamp) return;
  MPIX_Dev_sync(team);
  if (team.thread == 0) *stamp = MPIX_Dev_clock();
}

/// By blocks: each a part, or several.
struct Copy {
  const Part* parts;
  std::uint32_t count;
  std::uint64_t* stamps;  ///< by part, begin and end; or null
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    for (std::uint32_t p = team.block; p < count; p += team.blocks) {
      std::uint64_t* const mine = stamps ? stamps + 2 * std::size_t{p} : nullptr;
      stamp_here(team, mine);
      copy_part(team, parts[p]);
      stamp_here(team, mine ? mine + 1 : nullptr);
    }
  }
};

/// Where a kernel tells what a call of it returned, if it failed: in memory of the host.
class Failure {
 public:
  Failure() : word_(static_cast<std::uint64_t*>(support::allocate_pinned(64))) {}
  ~Failure() { support::release_pinned(word_); }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;
  std::uint64_t* word() const { return word_; }
  void check() const {
    const std::uint64_t result = mpix::load_acquire(word_);
    if (result == 0) return;
    std::fprintf(stderr, "a call in the kernel returned %d\n", static_cast<int>(result));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  std::uint64_t* const word_;
};
MPIX_DEV_FN void tell_failure(const MPIX_Dev_team& team, std::uint64_t* word, int result) {
  if (team.thread == 0) mpix::store_release(word, static_cast<std::uint64_t>(result));
}

/// Words of a message, as both ends compute them: with every change of the data each is another.
TEST_FN std::uint64_t word_of(int from, std::uint64_t change, std::uint64_t message, std::uint64_t word) {
  return test::mix((message << 40) + word) + (change << 32) + static_cast<std::uint64_t>(from);
}

struct FillAll {
  std::uint64_t* const* data;
  const std::uint64_t* words;
  int from;
  bool spoils;
  std::uint64_t change;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const { fill(team, team.block, change); }
  MPIX_DEV_METHOD void fill(const MPIX_Dev_team& team, std::uint32_t message, std::uint64_t number) const {
    for (std::uint64_t i = team.thread; i < words[message]; i += team.threads)
      data[message][i] = spoils ? ~std::uint64_t{0} : word_of(from, number, message, i);
  }
};
struct CheckAll {
  std::uint64_t* const* data;
  const std::uint64_t* words;
  int from;
  std::uint64_t change;
  std::uint64_t* wrong;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    for (std::uint64_t i = team.thread; i < words[team.block]; i += team.threads)
      if (data[team.block][i] != word_of(from, change, team.block, i)) (void)mpix::fetch_add_on_device(wrong, 1);
  }
};

template <class T>
T* uploaded(const std::vector<T>& table) {
  T* const there = static_cast<T*>(support::allocate_on_device(table.size() * sizeof(T)));
  support::from_host(there, table.data(), table.size() * sizeof(T));
  return there;
}

/// Whose memory MPI sends from and receives in.
enum class Buffers { pinned, device };

/// Of one size, between two ranks: data in memory of the device, what MPI sends and receives in memory of the host that
/// kernels reach or in the device's, and the tables of the kernels.
class Messages {
 public:
  Messages(const Size& size, int rank) : rank_(rank), count_(size.bytes.size()) {
    for (const std::size_t bytes : size.bytes) words_.push_back(bytes / 8);
    std::vector<Part> pack, unpack, stage, unstage, whole_pack, whole_stage, whole_unpack;
    for (std::size_t m = 0; m < count_; ++m) {
      const std::size_t bytes = words_[m] * 8;
      send_.push_back(static_cast<char*>(support::allocate_on_device(bytes)));
      recv_bytes_ += (bytes + 255) / 256 * 256;
      staged_.push_back(static_cast<char*>(support::allocate_on_device(bytes)));
      arrived_.push_back(static_cast<char*>(support::allocate_on_device(bytes)));
      out_.push_back(static_cast<char*>(support::allocate_pinned(bytes)));
      in_.push_back(static_cast<char*>(support::allocate_pinned(bytes)));
      whole_pack.push_back({out_[m], send_[m], words_[m]});
      whole_stage.push_back({staged_[m], send_[m], words_[m]});
    }
    recv_all_ = static_cast<char*>(support::allocate_on_device(recv_bytes_));
    char* next = recv_all_;
    for (std::size_t m = 0; m < count_; ++m) {
      const std::size_t bytes = words_[m] * 8;
      recv_.push_back(next);
      next += (bytes + 255) / 256 * 256;
      whole_unpack.push_back({recv_[m], in_[m], words_[m]});
      // As many blocks as the engine has.
      const std::uint64_t parts = support::ranks_are_blocks ? std::clamp<std::uint64_t>(bytes / (32 * 1024), 1, 32) : 1;
      for (std::uint64_t p = 0; p < parts; ++p) {
        const std::uint64_t first = words_[m] * p / parts, last = words_[m] * (p + 1) / parts;
        pack.push_back({out_[m] + 8 * first, send_[m] + 8 * first, last - first});
        unpack.push_back({recv_[m] + 8 * first, in_[m] + 8 * first, last - first});
        stage.push_back({staged_[m] + 8 * first, send_[m] + 8 * first, last - first});
        unstage.push_back({recv_[m] + 8 * first, arrived_[m] + 8 * first, last - first});
        message_of_.push_back(static_cast<int>(m));
      }
    }
    parts_ = static_cast<int>(pack.size());
    pack_[0] = uploaded(pack);
    unpack_[0] = uploaded(unpack);
    pack_[1] = uploaded(stage);
    unpack_[1] = uploaded(unstage);
    whole_pack_ = uploaded(whole_pack);
    whole_stage_ = uploaded(whole_stage);
    whole_unpack_ = uploaded(whole_unpack);
    send_table_ = reinterpret_cast<std::uint64_t**>(uploaded(send_));
    recv_table_ = reinterpret_cast<std::uint64_t**>(uploaded(recv_));
    staged_table_ = reinterpret_cast<std::uint64_t**>(uploaded(staged_));
    arrived_table_ = reinterpret_cast<std::uint64_t**>(uploaded(arrived_));
    words_table_ = uploaded(words_);
    wrong_ = static_cast<std::uint64_t*>(support::allocate_on_device(8));
    stamps_ = static_cast<std::uint64_t*>(support::allocate_pinned(static_cast<std::size_t>(parts_) * 4 * 8));
    fill(send_table_, false);
  }
  ~Messages() {
    for (std::size_t m = 0; m < count_; ++m) {
      for (char* const p : {send_[m], staged_[m], arrived_[m]}) support::release_on_device(p);
      support::release_pinned(out_[m]);
      support::release_pinned(in_[m]);
    }
    for (void* const p :
         {static_cast<void*>(pack_[0]), static_cast<void*>(unpack_[0]), static_cast<void*>(pack_[1]),
          static_cast<void*>(unpack_[1]), static_cast<void*>(whole_pack_), static_cast<void*>(whole_stage_),
          static_cast<void*>(whole_unpack_), static_cast<void*>(send_table_), static_cast<void*>(recv_table_),
          static_cast<void*>(staged_table_), static_cast<void*>(arrived_table_), static_cast<void*>(words_table_),
          static_cast<void*>(wrong_), static_cast<void*>(recv_all_)})
      support::release_on_device(p);
    support::release_pinned(stamps_);
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  int rank() const { return rank_; }
  int count() const { return static_cast<int>(count_); }
  std::uint64_t words(int m) const { return words_[index(m)]; }
  int bytes(int m) const { return static_cast<int>(words_[index(m)] * 8); }
  int peer() const { return rank_ ^ 1; }
  char* send_data(int m) const { return send_[index(m)]; }
  char* recv_data(int m) const { return recv_[index(m)]; }
  /// One piece of memory, with all that is received; at the same places on both sides.
  char* recv_all() const { return recv_all_; }
  std::size_t recv_bytes() const { return recv_bytes_; }
  char* staged(int m) const { return staged_[index(m)]; }
  char* out(int m) const { return out_[index(m)]; }
  char* in(int m) const { return in_[index(m)]; }

  // Kernels of several blocks for a large message: its parts, and how many blocks.
  const Part* pack(Buffers buffers) const { return pack_[index(buffers)]; }
  const Part* unpack(Buffers buffers) const { return unpack_[index(buffers)]; }
  int parts() const { return parts_; }
  int message_of(int part) const { return message_of_[index(part)]; }
  int blocks_to_pack() const { return parts_; }
  /// Few of a GPU read memory of the host faster than many (src/notify/halo_plan.cpp).
  int blocks_to_unpack(Buffers buffers) const {
    constexpr std::size_t large = 1 << 20;
    constexpr int readers = 8;
    const bool reads_host = support::ranks_are_blocks && buffers == Buffers::pinned;
    return reads_host && recv_bytes_ > large ? std::min(parts_, readers) : parts_;
  }
  // A part a message.
  const Part* whole_pack() const { return whole_pack_; }    ///< to the host
  const Part* whole_stage() const { return whole_stage_; }  ///< in the device
  const Part* whole_unpack() const { return whole_unpack_; }
  /// Room for four numbers a part.
  std::uint64_t* stamps() const { return stamps_; }

  void receive(int m, Buffers buffers, MPI_Request* request) const {
    char* const to = buffers == Buffers::pinned ? in(m) : arrived_[index(m)];
    CHECK_MPI(MPI_Irecv(to, bytes(m), MPI_BYTE, peer(), m, MPI_COMM_WORLD, request));
  }
  /// `request` stays as it is where it blocks.
  void send(int m, Buffers buffers, bool blocks, MPI_Request* request) const {
    char* const from = buffers == Buffers::pinned ? out(m) : staged(m);
    if (blocks)
      CHECK_MPI(MPI_Send(from, bytes(m), MPI_BYTE, peer(), m, MPI_COMM_WORLD));
    else
      CHECK_MPI(MPI_Isend(from, bytes(m), MPI_BYTE, peer(), m, MPI_COMM_WORLD, request));
  }

  /// Nothing of an earlier exchange is left, on the way either.
  void spoil() {
    fill(recv_table_, true);
    fill(staged_table_, true);
    fill(arrived_table_, true);
    for (int m = 0; m < count(); ++m) {
      std::memset(out(m), 0xff, words(m) * 8);
      std::memset(in(m), 0xff, words(m) * 8);
    }
  }
  /// What is sent becomes other data, in the order of the stream; the other side has to change as often.
  void change(void* stream = nullptr) { support::launch_blocks(changes(1), count(), 256, stream); }
  /// The same, for kernels that do so `times` times: with the number of `change`, and those behind it.
  FillAll changes(int times) {
    const FillAll first{send_table_, words_table_, rank_, false, change_ + 1};
    change_ += static_cast<std::uint64_t>(times);
    return first;
  }
  /// What has come is what the other side sent after its last change.
  void check(const std::string& what) {
    support::launch_blocks(CheckAll{recv_table_, words_table_, peer(), change_, wrong_}, count(), 256);
    support::synchronize();
    std::uint64_t wrong = 0;
    support::to_host(&wrong, wrong_, sizeof wrong);
    if (wrong == 0) return;
    std::fprintf(stderr, "rank %d: %s: %llu words are wrong\n", rank_, what.c_str(),
                 static_cast<unsigned long long>(wrong));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static std::size_t index(Buffers buffers) { return buffers == Buffers::device; }
  void fill(std::uint64_t** table, bool spoils) {
    support::launch_blocks(FillAll{table, words_table_, rank_, spoils, change_}, count(), 256);
    support::synchronize();
  }

  const int rank_;
  const std::size_t count_;
  std::vector<std::uint64_t> words_;
  std::vector<char*> send_, recv_, staged_, arrived_, out_, in_;
  char* recv_all_ = nullptr;
  std::size_t recv_bytes_ = 0;
  std::vector<int> message_of_;
  Part* pack_[2] = {};    ///< by the buffers
  Part* unpack_[2] = {};  ///< likewise
  Part *whole_pack_ = nullptr, *whole_stage_ = nullptr, *whole_unpack_ = nullptr;
  int parts_ = 0;
  std::uint64_t **send_table_ = nullptr, **recv_table_ = nullptr, **staged_table_ = nullptr, **arrived_table_ = nullptr;
  std::uint64_t *words_table_ = nullptr, *wrong_ = nullptr, *stamps_ = nullptr;
  std::uint64_t change_ = 0;  ///< the number of the last
};

}  // namespace halo
