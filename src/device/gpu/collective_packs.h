// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/collective_kernel.h"
#include "wire/collective_packs.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

GPU_OUT_OF_LINE std::uint64_t load_any_word(const char* from, std::uint64_t i, std::uint64_t bytes) {
  return load_word(from, i, bytes);
}
GPU_OUT_OF_LINE void store_any_word(char* to, std::uint64_t i, std::uint64_t bytes, std::uint64_t word) {
  store_word(to, i, bytes, word);
}

/// The crew of a block whose threads hold packs in eights (wire/collective_packs.h).
struct PackBlock : CollectiveBlock {
  static constexpr std::uint32_t lanes = Pack::lanes;
  enum Judgement : std::uint32_t { none, good, bad };
  volatile std::uint32_t* judgement;  ///< of the block

  __device__ Workers movers() const { return Workers{threadIdx.x, pack_movers}; }
  __device__ Workers askers() const { return Workers{threadIdx.x - pack_movers, pack_askers}; }
  __device__ std::uint64_t load_any(const char* from, std::uint64_t i, std::uint64_t bytes) const {
    return load_any_word(from, i, bytes);
  }
  __device__ void store_any(char* to, std::uint64_t i, std::uint64_t bytes, std::uint64_t word) const {
    store_any_word(to, i, bytes, word);
  }
  __device__ void converge() const { gpu_converge_warp(); }
  __device__ bool together(bool yes) const { return gpu_all_of_warp(yes); }
  /// Askers are one warp.
  __device__ void judge(bool yes) const {
    const bool all = together(yes);
    if (threadIdx.x == pack_movers) *judgement = all ? good : bad;
  }
  __device__ bool judged_good() const {
    while (*judgement == none) {
    }
    return *judgement == good;
  }
  __device__ bool still_waits(std::uint32_t number, std::uint32_t rank, std::uint32_t beat) const {
    return ::mpix::still_waits(call, number, rank, beat);
  }
  __device__ void store_pack(Pack* pack, std::uint32_t lane, const std::uint64_t* words) const {
    gpu_store_two(pack->word + 2 * lane, words);
  }
  __device__ void load_pack(const Pack* pack, std::uint32_t lane, std::uint64_t* words) const {
    gpu_load_two(pack->word + 2 * lane, words);
  }
};

template <std::uint32_t most, std::uint32_t each, PackWork work, bool aligned>
__global__ void __launch_bounds__(pack_movers + pack_askers, 1) run_packs(const GPU_GRID_CONSTANT Collective call) {
  __shared__ std::uint32_t judgement;
  if (threadIdx.x == 0) judgement = PackBlock::none;
  __syncthreads();
  gpu_wait_for_front();
  if (call.lets_next_start) gpu_let_next_start();
  const PackBlock crew{{call, blockIdx.x}, &judgement};
  (void)PackCall<most, each, work, aligned, PackBlock>(crew, call).run();
}

template <std::uint32_t most, std::uint32_t each, bool aligned = true>
const Kernel& pack_kernel(bool combines) {
  static const Kernel combining(run_packs<most, each, PackWork::combine, aligned>),
      moving(run_packs<most, each, PackWork::move, aligned>);
  return combines ? combining : moving;
}
template <std::uint32_t most, bool aligned = true>
const Kernel& share_kernel() {
  static const Kernel kernel(run_packs<most, 1, PackWork::share, aligned>);
  return kernel;
}

const Kernel& pack_kernel(const Collective& call, std::uint32_t turns) {
  const auto is_aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 8 == 0; };
  const bool combines = call.combines();
  if (call.bytes % 8 != 0 || !is_aligned(call.send) || !is_aligned(call.recv))
    return call.shared ? share_kernel<Collective::most_near, false>()
                       : pack_kernel<Collective::most_near, 1, false>(combines);
  if (call.shared) return call.ranks() > 4 ? share_kernel<8>() : share_kernel<4>();
  // All turns at once where they are few; of more, two: 2 MiB took 12.0, 11.5 and 12.6 us with one, two and four at
  // once, 8 MiB 34.8, 31.8 and 31.7 (2 H100, captured).
  if (call.ranks() <= 2)
    return turns <= 1                ? pack_kernel<2, 1>(combines)
           : turns <= 2 || turns > 4 ? pack_kernel<2, 2>(combines)
                                     : pack_kernel<2, 4>(combines);
  if (call.ranks() <= 4) return turns <= 1 ? pack_kernel<4, 1>(combines) : pack_kernel<4, 2>(combines);
  return pack_kernel<8, 1>(combines);
}

void load_pack_kernels() {
  for (const bool combines : {false, true}) {
    (void)pack_kernel<Collective::most_near, 1, false>(combines);
    (void)pack_kernel<2, 1>(combines), (void)pack_kernel<2, 2>(combines), (void)pack_kernel<2, 4>(combines);
    (void)pack_kernel<4, 1>(combines), (void)pack_kernel<4, 2>(combines);
    (void)pack_kernel<8, 1>(combines);
  }
  (void)share_kernel<Collective::most_near, false>();
  (void)share_kernel<4>(), (void)share_kernel<8>();
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
