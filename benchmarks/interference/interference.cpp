// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What MPI_Send of a buffer costs while a kernel writes, as Elis et al. 2024 measure it. The buffer lies in memory of
// the host that kernels reach; blocks are those of a kernel (compiled as CUDA or HIP), or threads.
//
//   mpiexec -n 2 interference [--sizes=N,N,…] [--messages=N] [--csv]
//
// The kernel writes the message, and
//   SSB    ends, and the program synchronizes before it sends: the base of the ratios
//   PSB    sets a flag, and goes on to write the same values into the same buffer. MPI forbids that: the worst case
//   PCB    sets a flag, and goes on to write the buffer behind it
//   P2AB   likewise, 2 MiB further on
// until MPI_Send has returned; with one block of 1024 threads, or a grid of a block for each multiprocessor (on the
// host: for each core), which meet after each pass. A figure is the time in MPI_Send: its receive is posted, and has
// said so. Median, least and most of all messages after 5 that do not count, the accesses in turns; the receiver checks
// every word.
#include <mpi.h>
#include <mpix.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/command_line.h"
#include "writer.h"

namespace {

using Clock = std::chrono::steady_clock;
using interference::Grid;
using interference::word_of;
using interference::Writer;

constexpr int warm_up = 5;
constexpr std::size_t apart = std::size_t{2} << 20;

enum class Access { ssb, psb, pcb, p2ab };
constexpr Access accesses[] = {Access::ssb, Access::psb, Access::pcb, Access::p2ab};
constexpr const char* names[] = {"SSB", "PSB", "PCB", "P2AB"};

int rank = 0;

class Sender {
 public:
  explicit Sender(std::size_t bytes) : words_(bytes / 8) {
    CHECK_MPI(MPIX_Channel_create(0, 1, MPI_INFO_NULL, &channel_));
    CHECK_MPI(MPIX_Channel_get_device(channel_, &device_));
    memory_ = static_cast<char*>(support::allocate_pinned(2 * bytes + apart));
    grid_ = static_cast<Grid*>(support::allocate_on_device(sizeof(Grid)));
  }
  ~Sender() {
    support::release_on_device(grid_);
    support::release_pinned(memory_);
    CHECK_MPI(MPIX_Channel_free(&channel_));
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// Microseconds in MPI_Send.
  double send(Access access, int blocks, std::uint64_t number) {
    const std::size_t bytes = words_ * 8;
    CHECK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, rank + 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    char* const other = access == Access::psb   ? memory_
                        : access == Access::pcb ? memory_ + bytes
                                                : memory_ + bytes + apart;
    const Grid none{};
    support::from_host(grid_, &none, sizeof none);
    support::launch_blocks(
        Writer{device_, words(memory_), access == Access::ssb ? nullptr : words(other), words_, number, grid_}, blocks,
        1024);
    if (access == Access::ssb) support::synchronize();
    CHECK_MPI(MPIX_Channel_flag_wait(channel_, 0, number));
    const auto begin = Clock::now();
    CHECK_MPI(MPI_Send(memory_, static_cast<int>(bytes), MPI_BYTE, rank + 1, 0, MPI_COMM_WORLD));
    const double time = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    CHECK_MPI(MPIX_Channel_flag_set(channel_, 0, number));
    support::synchronize();
    return time;
  }

 private:
  static std::uint64_t* words(char* memory) { return reinterpret_cast<std::uint64_t*>(memory); }

  const std::size_t words_;
  MPIX_Channel channel_ = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device_;
  char* memory_ = nullptr;
  Grid* grid_ = nullptr;
};

class Receiver {
 public:
  explicit Receiver(std::size_t bytes)
      : words_(bytes / 8), memory_(static_cast<std::uint64_t*>(support::allocate_pinned(bytes))) {}
  ~Receiver() { support::release_pinned(memory_); }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  void receive(std::uint64_t number) {
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Irecv(memory_, static_cast<int>(words_ * 8), MPI_BYTE, rank - 1, 0, MPI_COMM_WORLD, &request));
    CHECK_MPI(MPI_Send(nullptr, 0, MPI_BYTE, rank - 1, 1, MPI_COMM_WORLD));
    CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (std::uint64_t i = 0; i < words_; ++i)
      if (memory_[i] != word_of(number, i)) {
        std::fprintf(stderr, "rank %d: word %llu of message %llu is wrong\n", rank, static_cast<unsigned long long>(i),
                     static_cast<unsigned long long>(number));
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
  }

 private:
  const std::uint64_t words_;
  std::uint64_t* const memory_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(std::size_t bytes, int blocks, const std::vector<std::vector<double>>& times, bool csv) {
  const double base = median(times[0]);
  for (std::size_t a = 0; a < times.size(); ++a) {
    const auto [least, most] = std::minmax_element(times[a].begin(), times[a].end());
    std::printf(csv ? "%zu,%d,%s,%.2f,%.2f,%.2f,%.3f\n" : "%10zu %7d %-7s %10.1f %10.1f %10.1f %7.2f\n", bytes, blocks,
                names[a], median(times[a]), *least, *most, median(times[a]) / base);
  }
  std::fflush(stdout);
}

void measure(std::size_t bytes, int blocks, int messages, bool csv) {
  std::vector<std::vector<double>> times(std::size(accesses));
  const bool sends = rank % 2 == 0;
  std::uint64_t number = 0;
  const auto in_turns = [&](auto&& each) {
    for (int i = 0; i < warm_up + messages; ++i)
      for (std::size_t a = 0; a < times.size(); ++a) each(a, i >= warm_up, ++number);
  };
  if (sends) {
    Sender sender(bytes);
    in_turns([&](std::size_t a, bool counts, std::uint64_t n) {
      const double time = sender.send(accesses[a], blocks, n);
      if (counts) times[a].push_back(time);
    });
  } else {
    Receiver receiver(bytes);
    in_turns([&](std::size_t, bool, std::uint64_t n) { receiver.receive(n); });
  }
  if (rank == 0) print(bytes, blocks, times, csv);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, ranks = 1;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  const char* const preset = support::ranks_are_blocks ? "1k,4k,16k,64k,256k,1m,4m,16m,64m" : "1k,16k,256k,1m";
  std::vector<std::size_t> sizes;
  (void)benchmark::read_sizes(preset, sizes);
  int messages = 20;
  bool csv = false;
  benchmark::CommandLine line("interference", "MPI_Send of a buffer while a kernel writes; an even number of ranks.\n");
  line.value(
          "sizes", "LIST", preset, benchmark::wanted_sizes,
          [&](const std::string& text) { return benchmark::read_sizes(text, sizes); }, "bytes of a message")
      .number("messages", messages, 1, benchmark::CommandLine::large, "behind some that do not count")
      .flag("csv", csv, "comma-separated values");
  line.read(argc, argv);
  if (*std::max_element(sizes.begin(), sizes.end()) > std::size_t{std::numeric_limits<int>::max()})
    line.refuse("a message of MPI has less than 2 GiB");
  if (ranks % 2 != 0) line.refuse("an even number of ranks is needed");
  support::choose_gpu(rank);
  const int grid = support::ranks_are_blocks ? support::multiprocessors()
                                             : static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
  if (rank == 0)
    std::printf(csv ? "bytes,blocks,access,us,least,most,ratio\n" : "%10s %7s %-7s %10s %10s %10s %7s\n", "bytes",
                "blocks", "access", "us", "least", "most", "ratio");
  for (const int blocks : {1, grid})
    for (const std::size_t bytes : sizes) measure(bytes, blocks, messages, csv);
  CHECK_MPI(MPI_Finalize());
  return 0;
}
