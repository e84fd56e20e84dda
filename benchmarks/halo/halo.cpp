// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The halo engine beside what programs do without it: launch a kernel that packs, synchronize, send, receive, launch
// one that unpacks, synchronize. Blocks are those of kernels (compiled as CUDA or HIP), or threads.
//
//   mpiexec -n 2 halo [--sizes=NAME,NAME,…] [--runs=N] [--iterations=N] [--csv]
//
// Sizes, of each pair of ranks (2k and 2k + 1):
//   w9 w27 wsmall wlarge      Vanecek 2020: 9, 27 and 4 messages; wlarge is w27 with 10 times the bytes
//   elis200 elis400 elis800   Elis et al. 2024: 26 messages of a cube's faces, edges and corners
//
// Rows: baselines {Isend, Send} x {Waitall, Testany}, their buffers in memory of the host that kernels reach; the
// engine with a block a message (stream) and with several for a large one (stacked). A figure is the time of an
// iteration, from data in memory of the device to data there: the median of all runs, in turns; every word is checked
// after each run. The ratio is to the best baseline, and in brackets what the papers have.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/channel.h"
#include "support/random.h"

namespace {

using Clock = std::chrono::steady_clock;

int rank = 0, ranks = 1;

struct Size {
  const char* name;
  std::vector<std::size_t> bytes;
  const char* paper;  ///< time of its best variant, of its baseline's
};

std::vector<std::size_t> times(const std::vector<std::size_t>& sizes, std::size_t factor) {
  std::vector<std::size_t> all;
  for (const std::size_t one : sizes) all.push_back(one * factor);
  return all;
}

std::vector<Size> sizes() {
  std::vector<std::size_t> w9{8}, w27;
  for (std::size_t b = 1; b <= 8; ++b) w9.push_back(120000 * b);
  w27 = w9;
  for (std::size_t i = 0; i <= 8; ++i) {
    w27.push_back(40000 + 120000 * i);
    w27.push_back(80000 + 120000 * i);
  }
  const auto cube = [](std::size_t face, std::size_t edge, std::size_t corner) {
    std::vector<std::size_t> all(6, face);
    all.insert(all.end(), 12, edge);
    all.insert(all.end(), 8, corner);
    return all;
  };
  return {{"wsmall", {8, 120, 240, 360}, "0.91"},
          {"w9", w9, "0.92"},
          {"w27", w27, "0.90"},
          {"wlarge", times(w27, 10), "0.82"},
          {"elis200", cube(60000, 1200, 24), "0.93"},
          {"elis400", cube(240000, 2400, 24), "0.93"},
          {"elis800", cube(960000, 4800, 24), "0.93"}};
}

/// Words of a message, as both ends compute them.
TEST_FN std::uint64_t word_of(int from, std::uint64_t message, std::uint64_t word) {
  return test::mix((message << 40) + word) + static_cast<std::uint64_t>(from);
}

struct Part {
  char *to, *from;
  std::uint64_t words;
};

/// By blocks: each a part.
struct Copy {
  const Part* parts;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    const Part part = parts[team.block];
    auto* const to = reinterpret_cast<std::uint64_t*>(part.to);
    const auto* const from = reinterpret_cast<const std::uint64_t*>(part.from);
    for (std::uint64_t i = team.thread; i < part.words; i += team.threads) to[i] = from[i];
  }
};

struct FillAll {
  std::uint64_t* const* data;
  const std::uint64_t* words;
  int from;
  bool spoils;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    for (std::uint64_t i = team.thread; i < words[team.block]; i += team.threads)
      data[team.block][i] = spoils ? ~std::uint64_t{0} : word_of(from, team.block, i);
  }
};
struct CheckAll {
  std::uint64_t* const* data;
  const std::uint64_t* words;
  int from;
  std::uint64_t* wrong;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    for (std::uint64_t i = team.thread; i < words[team.block]; i += team.threads)
      if (data[team.block][i] != word_of(from, team.block, i)) (void)mpix::fetch_add_on_device(wrong, 1);
  }
};

template <class T>
T* uploaded(const std::vector<T>& table) {
  T* const there = static_cast<T*>(support::allocate_on_device(table.size() * sizeof(T)));
  support::from_host(there, table.data(), table.size() * sizeof(T));
  return there;
}

/// One size: buffers on the device and pinned ones, and the tables of the kernels.
class Bench {
 public:
  explicit Bench(const Size& size) : count_(size.bytes.size()), peer_(rank ^ 1) {
    for (const std::size_t bytes : size.bytes) words_.push_back(bytes / 8);
    std::vector<Part> pack, unpack;
    for (std::size_t m = 0; m < count_; ++m) {
      const std::size_t bytes = words_[m] * 8;
      send_.push_back(static_cast<char*>(support::allocate_on_device(bytes)));
      recv_.push_back(static_cast<char*>(support::allocate_on_device(bytes)));
      out_.push_back(static_cast<char*>(support::allocate_pinned(bytes)));
      in_.push_back(static_cast<char*>(support::allocate_pinned(bytes)));
      // As many blocks as the engine has.
      const std::uint64_t parts = support::ranks_are_blocks ? std::clamp<std::uint64_t>(bytes / (32 * 1024), 1, 32) : 1;
      for (std::uint64_t p = 0; p < parts; ++p) {
        const std::uint64_t first = words_[m] * p / parts, last = words_[m] * (p + 1) / parts;
        pack.push_back({out_[m] + 8 * first, send_[m] + 8 * first, last - first});
        unpack.push_back({recv_[m] + 8 * first, in_[m] + 8 * first, last - first});
      }
    }
    blocks_ = static_cast<int>(pack.size());
    pack_ = uploaded(pack);
    unpack_ = uploaded(unpack);
    send_table_ = reinterpret_cast<std::uint64_t**>(uploaded(send_));
    recv_table_ = reinterpret_cast<std::uint64_t**>(uploaded(recv_));
    words_table_ = uploaded(words_);
    wrong_ = static_cast<std::uint64_t*>(support::allocate_on_device(8));
    fill(send_table_, false);
  }
  ~Bench() {
    for (std::size_t m = 0; m < count_; ++m) {
      support::release_on_device(send_[m]);
      support::release_on_device(recv_[m]);
      support::release_pinned(out_[m]);
      support::release_pinned(in_[m]);
    }
    for (void* const p :
         {static_cast<void*>(pack_), static_cast<void*>(unpack_), static_cast<void*>(send_table_),
          static_cast<void*>(recv_table_), static_cast<void*>(words_table_), static_cast<void*>(wrong_)})
      support::release_on_device(p);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// The baseline of Vanecek's program, without its clean-up.
  void baseline(bool blocking, bool testany) {
    std::vector<MPI_Request> receives(count_), sends(count_, MPI_REQUEST_NULL);
    support::launch_blocks(Copy{pack_}, blocks_, 256);
    for (std::size_t m = 0; m < count_; ++m)
      CHECK_MPI(MPI_Irecv(in_[m], bytes(m), MPI_BYTE, peer_, tag(m), MPI_COMM_WORLD, &receives[m]));
    support::synchronize();
    for (std::size_t m = 0; m < count_; ++m)
      if (blocking)
        CHECK_MPI(MPI_Send(out_[m], bytes(m), MPI_BYTE, peer_, tag(m), MPI_COMM_WORLD));
      else
        CHECK_MPI(MPI_Isend(out_[m], bytes(m), MPI_BYTE, peer_, tag(m), MPI_COMM_WORLD, &sends[m]));
    const auto number = static_cast<int>(count_);
    if (testany)
      for (int left = number; left > 0;) {
        int index = 0, over = 0;
        CHECK_MPI(MPI_Testany(number, receives.data(), &index, &over, MPI_STATUS_IGNORE));
        if (over && index != MPI_UNDEFINED) --left;
      }
    else
      CHECK_MPI(MPI_Waitall(number, receives.data(), MPI_STATUSES_IGNORE));
    support::launch_blocks(Copy{unpack_}, blocks_, 256);
    CHECK_MPI(MPI_Waitall(number, sends.data(), MPI_STATUSES_IGNORE));
    support::synchronize();
  }

  MPIX_Halo make_halo(const char* form, const char* sends) const {
    std::vector<MPIX_Box> boxes(2 * count_);
    std::vector<MPIX_Halo_message> messages;
    for (std::size_t m = 0; m < count_; ++m) {
      for (const bool out : {true, false}) {
        MPIX_Box& box = boxes[2 * m + (out ? 0 : 1)];
        box = MPIX_Box{};
        box.base = out ? send_[m] : recv_[m];
        box.element = 8;
        box.dims = 1;
        box.count[0] = static_cast<long>(words_[m]);
        box.stride[0] = 8;
      }
      messages.push_back(MPIX_Halo_message{peer_, tag(m), tag(m), 1, 1, &boxes[2 * m], &boxes[2 * m + 1]});
    }
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpix_form", form));
    CHECK_MPI(MPI_Info_set(info, "mpix_sends", sends));
    MPIX_Halo halo = MPIX_HALO_NULL;
    CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, static_cast<int>(count_), messages.data(), info, &halo));
    CHECK_MPI(MPI_Info_free(&info));
    return halo;
  }

  void spoil() { fill(recv_table_, true); }
  void check(const std::string& what) {
    support::launch_blocks(CheckAll{recv_table_, words_table_, peer_, wrong_}, static_cast<int>(count_), 256);
    support::synchronize();
    std::uint64_t wrong = 0;
    support::to_host(&wrong, wrong_, sizeof wrong);
    if (wrong == 0) return;
    std::fprintf(stderr, "rank %d: %s: %llu words are wrong\n", rank, what.c_str(),
                 static_cast<unsigned long long>(wrong));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  int bytes(std::size_t m) const { return static_cast<int>(words_[m] * 8); }
  static int tag(std::size_t m) { return static_cast<int>(m); }
  void fill(std::uint64_t** table, bool spoils) {
    support::launch_blocks(FillAll{table, words_table_, rank, spoils}, static_cast<int>(count_), 256);
    support::synchronize();
  }

  const std::size_t count_;
  const int peer_;
  std::vector<std::uint64_t> words_;
  std::vector<char*> send_, recv_, out_, in_;
  Part *pack_ = nullptr, *unpack_ = nullptr;
  int blocks_ = 0;
  std::uint64_t **send_table_ = nullptr, **recv_table_ = nullptr, *words_table_ = nullptr, *wrong_ = nullptr;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const Size& size, int runs, int iterations, bool csv) {
  Bench bench(size);
  struct Way {
    std::string name;
    std::function<void()> iteration;
    bool is_baseline, blocks;
  };
  std::vector<Way> ways;
  for (const bool blocking : {false, true})
    for (const bool testany : {false, true})
      ways.push_back({std::string(blocking ? "Send" : "Isend") + ", " + (testany ? "Testany" : "Waitall"),
                      [&bench, blocking, testany] { bench.baseline(blocking, testany); }, true, blocking});
  MPIX_Halo halos[4];
  const char* const names[4] = {"engine, stream, Isend", "engine, stacked, Isend", "engine, stream, Send",
                                "engine, stacked, Send"};
  for (int i = 0; i < 4; ++i) {
    halos[i] = bench.make_halo(i % 2 ? "stacked" : "stream", i < 2 ? "nonblocking" : "blocking");
    ways.push_back({names[i],
                    [halo = halos[i]] {
                      CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
                      support::synchronize();
                    },
                    false, i >= 2});
  }
  ways.push_back({"engine, stacked, Isend, 10 at once",
                  [halo = halos[1]] {
                    for (int i = 0; i < 10; ++i) CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
                    support::synchronize();
                  },
                  false, false});
  std::vector<std::vector<double>> all(ways.size());
  for (int turn = 0; turn <= runs; ++turn)
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const int each = w + 1 == ways.size() ? 10 : 1;
      bench.spoil();
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
      const auto begin = Clock::now();
      for (int i = 0; i < iterations; i += each) ways[w].iteration();
      const double time = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / iterations;
      bench.check(ways[w].name);
      if (turn > 0) all[w].push_back(time);
    }
  for (MPIX_Halo& halo : halos) CHECK_MPI(MPIX_Halo_free(&halo));
  double best[2] = {1e30, 1e30};  // of its kind of sends
  std::vector<double> medians;
  for (std::size_t w = 0; w < ways.size(); ++w) {
    medians.push_back(median(all[w]));
    if (ways[w].is_baseline) best[ways[w].blocks] = std::min(best[ways[w].blocks], medians[w]);
  }
  if (rank != 0) return;
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const auto [least, most] = std::minmax_element(all[w].begin(), all[w].end());
    if (csv)
      std::printf("%s,%s,%.2f,%.2f,%.2f,%.3f\n", size.name, ways[w].name.c_str(), medians[w], *least, *most,
                  medians[w] / best[ways[w].blocks]);
    else
      std::printf("%-8s %-34s %10.1f us (%.1f to %.1f)  ratio %.2f%s%s%s\n", size.name, ways[w].name.c_str(),
                  medians[w], *least, *most, medians[w] / best[ways[w].blocks], ways[w].is_baseline ? "" : " (",
                  ways[w].is_baseline ? "" : size.paper, ways[w].is_baseline ? "" : ")");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  support::choose_gpu(rank);
  std::string wanted;
  int runs = 9, iterations = 20;
  bool csv = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--sizes=", 8) == 0) {
      wanted = "," + std::string(argv[i] + 8) + ",";
    } else if (std::strncmp(argv[i], "--runs=", 7) == 0) {
      runs = std::max(1, std::atoi(argv[i] + 7));
    } else if (std::strncmp(argv[i], "--iterations=", 13) == 0) {
      iterations = std::max(10, std::atoi(argv[i] + 13) / 10 * 10);
    } else if (std::strcmp(argv[i], "--csv") == 0) {
      csv = true;
    } else {
      if (rank == 0) std::fprintf(stderr, "halo [--sizes=NAME,NAME,...] [--runs=N] [--iterations=N] [--csv]\n");
      MPI_Finalize();
      return 2;
    }
  }
  if (ranks % 2 != 0 || provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) std::fprintf(stderr, "halo needs an even number of ranks, and MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 2;
  }
  if (csv && rank == 0) std::printf("size,way,us,least,most,ratio\n");
  for (const Size& size : sizes())
    if (wanted.empty() || wanted.find("," + std::string(size.name) + ",") != std::string::npos)
      run(size, runs, iterations, csv);
  CHECK_MPI(MPI_Finalize());
  return 0;
}
