// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "setup.h"

#include <dlfcn.h>
#include <mpix.h>

#include <cstdlib>
#include <stdexcept>

#include "mpi_check.h"

namespace faces {
namespace {

/// Looked up: MPI libraries differ in which of these they have. The setting is libmpix's, which must agree.
bool mpi_is_gpu_aware(const std::string& device) {
  if (const char* setting = std::getenv("MPIX_MPI_GPU_AWARE")) {
    if (std::string(setting) == "on") return true;
    if (std::string(setting) == "off") return false;
  }
  const bool cuda = device == "cuda";
  for (const char* name : {cuda ? "MPIX_Query_cuda_support" : "MPIX_Query_rocm_support",
                           cuda ? "MPIX_Query_cuda_support" : "MPIX_Query_hip_support"})
    if (void* query = dlsym(RTLD_DEFAULT, name); query != nullptr && reinterpret_cast<int (*)()>(query)() == 1)
      return true;
  constexpr int mpich_cuda = 0, mpich_hip = 2;  // MPIX_GPU_SUPPORT_…
  int supported = 0;
  if (void* query = dlsym(RTLD_DEFAULT, "MPIX_GPU_query_support"))
    (void)reinterpret_cast<int (*)(int, int*)>(query)(cuda ? mpich_cuda : mpich_hip, &supported);
  return supported != 0;
}

bool is_staged(const Options& options, const bench::Device& device) {
  if (options.gpu_aware != GpuAware::automatic) return options.gpu_aware == GpuAware::no;
  return device.is_gpu() && !mpi_is_gpu_aware(device.name());
}

/// All that the device can, unless the user chose.
void choose_variants(Options& options, const bench::Device& device) {
  for (int v = 0; v < variants; ++v) {
    const bool possible = device.is_gpu() || !all_variants[v].use.captured;
    if (!options.variants_given)
      options.run[v] = possible;
    else if (options.run[v] && !possible)
      throw InputError(std::string(all_variants[v].name) + ": host streams cannot be captured");
  }
}

/// Without libmpix in front of MPI its stream epochs would be ordinary ones, and fail in odd ways.
void require_libmpix(const Options& options) {
  int active = 0;
  FACES_MPI(MPIX_Query_stream_rma(&active));
  if (active != 0) return;
  for (int v = 0; v < variants; ++v)
    if (options.run[v] && all_variants[v].kind == Variant::st)
      throw InputError(
          "st needs libmpix in front of MPI: link -lmpix before the MPI library, or use "
          "--variant p2p,rma");
}

}  // namespace

Setup make_setup(const Options& options) {
  Setup setup{};
  setup.options = options;
  FACES_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &setup.rank));
  FACES_MPI(MPI_Comm_size(MPI_COMM_WORLD, &setup.ranks));
  setup.problem = options.problem_for(setup.ranks);
  setup.device = bench::make_device(options.device);
  if (!setup.device->is_gpu() && !options.baseline_streams) setup.baseline = bench::make_inline_host_device();
  setup.staged = is_staged(options, *setup.device);
  choose_variants(setup.options, *setup.device);
  require_libmpix(setup.options);
  return setup;
}

}  // namespace faces
