// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// An ordinary program that looks at its own process: threads, descriptors, mappings, address space, signals,
// environment. It knows nothing of libmpix. tests/mpi/harmless.sh compares what it prints with and without it.
//
//   harmless WINDOWS    creates so many, all open at a time, frees them, and prints a line for each fact and moment
//   harmless exit CODE  ends with that code, after MPI_Finalize
//   harmless handler    has a handler of its own for SIGTERM, and sends itself that
//   harmless raise      sends itself SIGTERM
//   harmless put        puts without an epoch, which ends it
#include <dirent.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

extern char** environ;

namespace {

int rank = 0;
int size = 1;
std::string report;

void note(const char* moment, const char* fact, unsigned long long value) {
  report += "rank " + std::to_string(rank) + " " + moment + ": " + fact + " " + std::to_string(value) + "\n";
}

unsigned long long entries(const char* folder) {
  unsigned long long count = 0;
  if (DIR* open = opendir(folder)) {
    while (const dirent* entry = readdir(open))
      if (entry->d_name[0] != '.') ++count;
    closedir(open);
  }
  return count;
}

unsigned long long lines(const char* file) {
  std::ifstream in(file);
  unsigned long long count = 0;
  for (std::string line; std::getline(in, line);) ++count;
  return count;
}

unsigned long long status(const char* key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.compare(0, std::strlen(key), key) == 0)
      return std::strtoull(line.c_str() + std::strlen(key) + 1, nullptr, key[0] == 'S' ? 16 : 10);
  return 0;
}

unsigned long long environment() {
  unsigned long long sum = 0;
  for (char** entry = environ; *entry; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) == 0) continue;  // with which the one run differs from the other
    std::uint64_t hash = 14695981039346656037u;
    for (const char* byte = *entry; *byte && *byte != '='; ++byte)
      hash = (hash ^ static_cast<unsigned char>(*byte)) * 1099511628211u;
    sum += hash % 1000003;
  }
  return sum;
}

void look(const char* moment) {
  note(moment, "threads", entries("/proc/self/task"));
  note(moment, "descriptors", entries("/proc/self/fd"));
  note(moment, "mappings", lines("/proc/self/maps"));
  note(moment, "address-KB", status("VmSize:"));
  note(moment, "peak-KB", status("VmPeak:"));
  note(moment, "caught-signals", status("SigCgt:"));
  note(moment, "ignored-signals", status("SigIgn:"));
  note(moment, "blocked-signals", status("SigBlk:"));
  note(moment, "environment", environment());
}

void windows(int count) {
  constexpr MPI_Aint bytes = 4096;
  std::vector<MPI_Win> all(static_cast<std::size_t>(count));
  std::vector<std::vector<char>> memory(all.size(), std::vector<char>(bytes));
  for (std::size_t i = 0; i < all.size(); ++i) {
    void* base = nullptr;
    if (i % 2 == 0)
      MPI_Win_create(memory[i].data(), bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &all[i]);
    else
      MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &all[i]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  look("windows");
  if (!all.empty()) {
    MPI_Win_fence(0, all[0]);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, all[0]);
    MPI_Win_fence(0, all[0]);
    int got = -1;
    std::memcpy(&got, memory[0].data(), sizeof got);
    note("fence", "got", static_cast<unsigned long long>(got));
  }
  for (MPI_Win& win : all) MPI_Win_free(&win);
  MPI_Barrier(MPI_COMM_WORLD);
  look("freed");
}

}  // namespace

int main(int argc, char* argv[]) {
  const std::string what = argc > 1 ? argv[1] : "0";
  if (what == "handler") {
    struct sigaction ours {};
    ours.sa_handler = [](int) {
      const char text[] = "the program's handler\n";
      _exit(write(STDOUT_FILENO, text, sizeof text - 1) > 0 ? 7 : 8);
    };
    sigaction(SIGTERM, &ours, nullptr);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (what == "handler" || what == "raise") {
    if (rank == 0) kill(getpid(), SIGTERM);
    pause();
  }
  if (what == "put") {  // without an epoch: MPI ends the program, in words of its own
    MPI_Win window = MPI_WIN_NULL;
    int word = 0, value = 1;
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Put(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, window);
  }
  if (what != "exit") {
    int level = -1;
    MPI_Query_thread(&level);
    note("init", "thread-level", static_cast<unsigned long long>(level));
    look("init");
    windows(std::atoi(what.c_str()));
    for (int i = 0; i < size; ++i) {  // a rank after the other
      if (i == rank) {
        std::fputs(report.c_str(), stdout);
        std::fflush(stdout);
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  MPI_Finalize();
  return what == "exit" ? std::atoi(argv[2]) : 0;
}
