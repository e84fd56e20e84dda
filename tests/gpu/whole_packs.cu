// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What packs rely on (src/wire/pack.h), asked of the GPUs at hand: eight threads that load a pack at once see the same
// state of it, while another GPU, or the same one, stores one after another there. No MPI, no library:
//
//   whole_packs
//
// As a control, lanes that load one half after the other must be seen to differ.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "device/cuda/names.h"
#include "wire/pack.h"

namespace {

using mpix::Pack;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

constexpr int threads = 512;

struct Seen {
  unsigned long long looks, older, newer;  ///< than the number that came with it; of lanes
};

__global__ void store(Pack* packs, std::uint64_t count, std::uint64_t rounds) {
  const std::uint64_t first = blockIdx.x * std::uint64_t{threads} + threadIdx.x,
                      all = gridDim.x * std::uint64_t{threads};
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const std::uint64_t words[2] = {round, round};
    for (std::uint64_t i = first; i < count * Pack::lanes; i += all)
      mpix::gpu_store_two(packs[i / Pack::lanes].word + 2 * (i % Pack::lanes), words);
  }
}

template <bool at_once>
__global__ void look(const Pack* packs, std::uint64_t count, std::uint64_t rounds, Seen* seen) {
  constexpr long long most_cycles = 3'000'000'000;
  const std::uint64_t first = blockIdx.x * std::uint64_t{threads} + threadIdx.x,
                      all = gridDim.x * std::uint64_t{threads};
  const unsigned lane = threadIdx.x % Pack::lanes;
  Seen mine{};
  const long long begin = clock64();
  for (bool ended = false; !ended && clock64() - begin < most_cycles;) {
    ended = true;
    for (std::uint64_t i = first; i < count * Pack::lanes; i += all) {
      const std::uint64_t* const from = packs[i / Pack::lanes].word + 2 * lane;
      std::uint64_t words[2] = {};
      mpix::gpu_converge_warp();
      if (at_once || lane < Pack::lanes / 2) mpix::gpu_load_two(from, words);
      mpix::gpu_converge_warp();
      if (!at_once && lane >= Pack::lanes / 2) mpix::gpu_load_two(from, words);
      const std::uint64_t number = __shfl_sync(0xffffffffu, words[1], Pack::lanes - 1, Pack::lanes);
      ++mine.looks;
      mine.older += words[0] < number || words[1] < number;
      mine.newer += words[0] > number || words[1] > number;
      ended = ended && number == rounds;
    }
    ended = mpix::gpu_all_of_warp(ended);
  }
  atomicAdd(&seen->looks, mine.looks);
  atomicAdd(&seen->older, mine.older);
  atomicAdd(&seen->newer, mine.newer);
}

/// The GPU `writer` stores to memory of `reader`.
Seen look_while_stored(int reader, int writer, bool at_once, int blocks, std::uint64_t packs_of_a_thread) {
  const std::uint64_t count = blocks * std::uint64_t{threads} / Pack::lanes * packs_of_a_thread;
  const std::uint64_t rounds = 100000 / packs_of_a_thread;
  Pack* packs = nullptr;
  Seen *seen = nullptr, result{};
  cudaStream_t looks = nullptr, stores = nullptr;
  CHECK(cudaSetDevice(reader));
  CHECK(cudaMalloc(&packs, count * sizeof(Pack)));
  CHECK(cudaMalloc(&seen, sizeof *seen));
  CHECK(cudaMemset(packs, 0, count * sizeof(Pack)));
  CHECK(cudaMemset(seen, 0, sizeof *seen));
  CHECK(cudaStreamCreateWithFlags(&looks, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaSetDevice(writer));
  CHECK(cudaStreamCreateWithFlags(&stores, cudaStreamNonBlocking));
  CHECK(cudaSetDevice(reader));
  if (at_once)
    look<true><<<blocks, threads, 0, looks>>>(packs, count, rounds, seen);
  else
    look<false><<<blocks, threads, 0, looks>>>(packs, count, rounds, seen);
  CHECK(cudaGetLastError());
  CHECK(cudaSetDevice(writer));
  store<<<blocks, threads, 0, stores>>>(packs, count, rounds);
  CHECK(cudaGetLastError());
  CHECK(cudaStreamSynchronize(stores));
  CHECK(cudaStreamSynchronize(looks));
  CHECK(cudaMemcpy(&result, seen, sizeof result, cudaMemcpyDeviceToHost));
  CHECK(cudaStreamDestroy(looks));
  CHECK(cudaStreamDestroy(stores));
  CHECK(cudaFree(packs));
  CHECK(cudaFree(seen));
  return result;
}

bool carries_packs(int from, int to) {
  if (from == to) return true;
  int reaches = 0, has_atomics = 0;
  CHECK(cudaDeviceCanAccessPeer(&reaches, from, to));
  CHECK(cudaDeviceGetP2PAttribute(&has_atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
  if (!reaches || !has_atomics) return false;
  CHECK(cudaSetDevice(from));
  CHECK(cudaDeviceEnablePeerAccess(to, 0));
  return true;
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("skipped: there is no GPU\n");
    return 77;
  }
  bool good = true;
  for (int writer = 0; writer < gpus; ++writer)
    for (int reader = 0; reader < gpus; ++reader) {
      if (!carries_packs(writer, reader)) continue;
      unsigned long long differed = 0;
      for (const int blocks : {8, 64})
        for (const std::uint64_t packs_of_a_thread : {1, 8}) {
          const Seen seen = look_while_stored(reader, writer, true, blocks, packs_of_a_thread);
          const Seen control = look_while_stored(reader, writer, false, blocks, packs_of_a_thread);
          std::printf(
              "GPU %d to %d, %d blocks, %d packs a lane: %.2e looks, %llu saw older words, %llu newer; by halves %llu, "
              "%llu\n",
              writer, reader, blocks, static_cast<int>(packs_of_a_thread), static_cast<double>(seen.looks), seen.older,
              seen.newer, control.older, control.newer);
          differed += control.older + control.newer;
          if (seen.older + seen.newer > 0 || seen.looks == 0) {
            std::printf("FAILED: packs come apart\n");
            good = false;
          }
        }
      if (differed == 0) {
        std::printf("FAILED: the control has seen nothing\n");
        good = false;
      }
    }
  return good ? 0 : 1;
}
