// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdlib>
#include <new>

/// Whether the allocation that this thread asks for fails. Defined by the one file of a program that includes this.
bool allocation_fails() noexcept;

// In front of the C++ library's, for the whole program. Out of line: GCC takes one that is inlined, and one that is
// not, for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = allocation_fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
