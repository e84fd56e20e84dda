// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <string>

#include "mpi_library.h"

namespace mpix {

/// Empty: the key is not there, or has no value.
std::string info_value(MPI_Info info, const char* key);
bool has_key(MPI_Info info, const char* key);

/// Whether the info asks for memory of the device: mpi_memory_alloc_kinds lists mpix:device.
bool wants_device_memory(MPI_Info info);

constexpr const char name_key[] = "mpix_name";
/// What it names; empty: nothing.
std::string name_in(MPI_Info info);

/// Memory for windows that peers can map and kernels reach. Throws Error.
void* allocate_device_memory(std::size_t bytes);

/// Whether it is from allocate_device_memory.
bool is_device_memory(void* base);
/// False: it is not.
bool release_device_memory(void* base);

bool device_memory_in_use();

/// Whether it takes memory of GPUs. Looked up: MPI libraries differ in which queries they have, and where they declare
/// them.
bool mpi_says_gpu_aware();

}  // namespace mpix
