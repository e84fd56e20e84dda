// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#endif

/// Memory operations that the kernels are written in: the same names for the host, CUDA and HIP.
///
/// Every word that two processes share is accessed through these, at system scope. A release store makes
/// everything the caller did before visible to who reads the stored value with an acquire load.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define MPIX_FN __host__ __device__ inline
#else
#define MPIX_FN inline
#endif

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define MPIX_ON_DEVICE 1
#else
#define MPIX_ON_DEVICE 0
#endif

namespace mpix {

MPIX_FN std::uint64_t load_acquire(const std::uint64_t* p) {
#if defined(__CUDA_ARCH__)
  std::uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0,[%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
#endif
}

/// A load that orders nothing.
MPIX_FN std::uint64_t load_relaxed(const std::uint64_t* p) {
#if defined(__CUDA_ARCH__)
  std::uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0,[%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}

/// A load for a caller that only *stores* depending on what it sees: a store is never ahead of the branch it
/// depends on. On the host it acquires; on a GPU that would cost what no store needs.
MPIX_FN std::uint64_t load_before_stores(const std::uint64_t* p) {
#if MPIX_ON_DEVICE
  return load_relaxed(p);
#else
  return load_acquire(p);
#endif
}

MPIX_FN void store_release(std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.sys.global.u64 [%0],%1;" ::"l"(p), "l"(v) : "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  __hip_atomic_store(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}

/// A release store of a caller that only has *loads* to order before it, each of which has returned already, or
/// stores of kernels that have ended. On a GPU that takes no fence, which would wait for every store of the
/// thread to arrive, over the link and back.
MPIX_FN void store_after_loads(std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.global.u64 [%0],%1;" ::"l"(p), "l"(v) : "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  store_release(p, v);
#endif
}

/// As store_after_loads, for a word that several write, in any order: it is what the greatest of them wrote. On a GPU
/// only in memory that its atomic operations reach, over no PCIe.
MPIX_FN void raise_after_loads(std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  asm volatile("red.relaxed.sys.global.max.u64 [%0],%1;" ::"l"(p), "l"(v) : "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  (void)__hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  std::uint64_t seen = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (seen < v && !__atomic_compare_exchange_n(p, &seen, v, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
#endif
}

/// An atomic addition that releases, as a release store does.
MPIX_FN void add_release(std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  asm volatile("red.release.sys.global.add.u64 [%0],%1;" ::"l"(p), "l"(v) : "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  (void)__hip_atomic_fetch_add(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  (void)__atomic_fetch_add(p, v, __ATOMIC_RELEASE);
#endif
}

/// Orders stores before it with everything after it, for a store_after_loads that follows.
MPIX_FN void fence_stores() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  __threadfence_system();
#endif
  // On the host that store is a release.
}

/// An atomic addition for threads of one device, which orders nothing. Returns what was there.
MPIX_FN std::uint64_t fetch_add_on_device(std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  std::uint64_t before;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0,[%1],%2;" : "=l"(before) : "l"(p), "l"(v) : "memory");
  return before;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
  return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
#endif
}

/// As that, and it acquires, which on a GPU costs less than a fence behind it.
MPIX_FN std::uint64_t fetch_add_acquire_on_device(std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  std::uint64_t before;
  asm volatile("atom.acquire.gpu.global.add.u64 %0,[%1],%2;" : "=l"(before) : "l"(p), "l"(v) : "memory");
  return before;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __hip_atomic_fetch_add(p, v, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
#else
  return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
#endif
}

/// An atomic addition that releases and acquires. Returns what was there.
MPIX_FN std::uint64_t fetch_add(std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  std::uint64_t before;
  asm volatile("atom.acq_rel.sys.global.add.u64 %0,[%1],%2;" : "=l"(before) : "l"(p), "l"(v) : "memory");
  return before;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __hip_atomic_fetch_add(p, v, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
#endif
}

/// The same by the threads that it is for; the others get 0. Without a branch, which a GPU's warp has to come out of.
MPIX_FN std::uint64_t fetch_add_where(bool wanted, std::uint64_t* p, std::uint64_t v) {
#if defined(__CUDA_ARCH__)
  std::uint64_t before = 0;
  asm volatile("{.reg .pred p;setp.ne.u32 p,%3,0;@p atom.relaxed.gpu.global.add.u64 %0,[%1],%2;}"
               : "+l"(before)
               : "l"(p), "l"(v), "r"(static_cast<std::uint32_t>(wanted))
               : "memory");
  return before;
#else
  return wanted ? fetch_add_on_device(p, v) : 0;
#endif
}

/// Change 0 to 1, and acquire. False: it was 1. On a GPU in memory that its atomic operations reach.
MPIX_FN bool try_lock(std::uint64_t* p) {
#if defined(__CUDA_ARCH__)
  std::uint64_t before;
  asm volatile("atom.acquire.sys.global.cas.b64 %0,[%1],0,1;" : "=l"(before) : "l"(p) : "memory");
  return before == 0;
#elif defined(__HIP_DEVICE_COMPILE__)
  std::uint64_t free = 0;
  return __hip_atomic_compare_exchange_strong(p, &free, std::uint64_t{1}, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED,
                                              __HIP_MEMORY_SCOPE_SYSTEM);
#else
  std::uint64_t free = 0;
  return __atomic_compare_exchange_n(p, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
#endif
}

/// fence_stores and fence_acquire for threads of one device alone.
MPIX_FN void fence_on_device() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  __threadfence();
#endif
}

/// Orders relaxed loads before it with everything after it.
MPIX_FN void fence_acquire() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  __threadfence_system();
#endif
  // On the host the loads acquire by themselves.
}

/// A line of a mailbox: 8 bytes of data in two halves, each beside the flag of its epoch. A half is one
/// 8-byte word, which every machine writes whole, so a half whose flag is right carries the right data:
/// no order between lines, or between halves, is needed.
struct alignas(16) Line {
  std::uint64_t half[2];  ///< low 32 bits: data; high 32 bits: flag
};

MPIX_FN void write_line(Line* line, std::uint64_t data, std::uint32_t flag) {
  const std::uint64_t tag = static_cast<std::uint64_t>(flag) << 32;
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.global.v2.u64 [%0],{%1,%2};" ::"l"(line), "l"((data & 0xffffffffu) | tag),
               "l"((data >> 32) | tag)
               : "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  __hip_atomic_store(&line->half[0], (data & 0xffffffffu) | tag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_store(&line->half[1], (data >> 32) | tag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  // Released, which costs nothing on x86.
  __atomic_store_n(&line->half[0], (data & 0xffffffffu) | tag, __ATOMIC_RELEASE);
  __atomic_store_n(&line->half[1], (data >> 32) | tag, __ATOMIC_RELEASE);
#endif
}

/// As write_line, and everything that the caller wrote before is visible to who then sees the line with
/// line_arrived and acquires. Both halves are released, for the reader accepts them in either order.
MPIX_FN void write_line_release(Line* line, std::uint64_t data, std::uint32_t flag) {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.acq_rel.sys;" ::: "memory");  // one, where two release stores would take two
  write_line(line, data, flag);
  return;
#endif
  const std::uint64_t tag = static_cast<std::uint64_t>(flag) << 32;
  store_release(&line->half[0], (data & 0xffffffffu) | tag);
  store_release(&line->half[1], (data >> 32) | tag);
}

/// Two lines in a row, of one thread; as write_line, without an order between them.
MPIX_FN void write_entry(Line* lines, std::uint64_t first, std::uint64_t second, std::uint32_t flag) {
  write_line(lines, first, flag);
  write_line(lines + 1, second, flag);
}

/// True when the line carries `flag`; then *data is what was written with it. Orders nothing else on a GPU:
/// fence_acquire() does, where it is needed. On the host it acquires.
MPIX_FN bool line_arrived(const Line* line, std::uint32_t flag, std::uint64_t* data) {
#if defined(__CUDA_ARCH__)
  std::uint64_t low, high;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1},[%2];" : "=l"(low), "=l"(high) : "l"(line) : "memory");
#elif defined(__HIP_DEVICE_COMPILE__)
  // As on the host: the first half behind the second. These GPUs load nothing ahead of a branch.
  const std::uint64_t high = __hip_atomic_load(&line->half[1], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  if ((high >> 32) != flag) return false;
  __atomic_signal_fence(__ATOMIC_ACQUIRE);
  const std::uint64_t low = __hip_atomic_load(&line->half[0], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  // The second half first: in a header that a network writes it is the signal, and the first half may be torn before.
  const std::uint64_t high = load_acquire(&line->half[1]);
  if ((high >> 32) != flag) return false;
  const std::uint64_t low = load_acquire(&line->half[0]);
#endif
  if ((low >> 32) != flag || (high >> 32) != flag) return false;
  *data = (low & 0xffffffffu) | (high << 32);
  return true;
}

/// The line was there: whatever its writer did before it released it is seen from here on. On a GPU that is a load,
/// where a fence would wait for the stores of the thread.
MPIX_FN void acquire_line(const Line* line) {
#if defined(__CUDA_ARCH__)
  (void)load_acquire(&line->half[0]);
#else
  (void)line;
  fence_acquire();
#endif
}

/// Of an entry, both of whose lines were there. The first may have been written before its writer's fence.
MPIX_FN void acquire_entry(const Line* lines) { acquire_line(lines + 1); }

/// As line_arrived; and whatever its writer did before it wrote the line (write_line_release) is seen from here on.
/// Each look acquires, which on a GPU costs less than a fence, or a second trip, behind the one that succeeds.
MPIX_FN bool line_acquired(const Line* line, std::uint32_t flag, std::uint64_t* data) {
#if defined(__CUDA_ARCH__)
  std::uint64_t low, high;
  asm volatile("ld.acquire.sys.global.v2.u64 {%0,%1},[%2];" : "=l"(low), "=l"(high) : "l"(line) : "memory");
  if ((low >> 32) != flag || (high >> 32) != flag) return false;
  *data = (low & 0xffffffffu) | (high << 32);
  return true;
#else
  if (!line_arrived(line, flag, data)) return false;
  fence_acquire();
  return true;
#endif
}

/// line_arrived for two lines, both of which are looked at in one go: bits 1 and 2, for those that have come.
MPIX_FN std::uint32_t lines_arrived(const Line* lines, std::uint32_t flag, std::uint64_t data[2]) {
#if defined(__CUDA_ARCH__)
  std::uint64_t a, b, c, d;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1},[%2];" : "=l"(a), "=l"(b) : "l"(lines) : "memory");
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1},[%2];" : "=l"(c), "=l"(d) : "l"(lines + 1) : "memory");
  data[0] = (a & 0xffffffffu) | (b << 32);
  data[1] = (c & 0xffffffffu) | (d << 32);
  return ((a >> 32) == flag && (b >> 32) == flag ? 1u : 0u) | ((c >> 32) == flag && (d >> 32) == flag ? 2u : 0u);
#else
  return (line_arrived(lines, flag, &data[0]) ? 1u : 0u) | (line_arrived(lines + 1, flag, &data[1]) ? 2u : 0u);
#endif
}

/// A line as it was seen, with its flags, which say whether it had come.
struct SeenLine {
  std::uint32_t low, low_flag, high, high_flag;

  /// 0: it has come.
  MPIX_FN std::uint32_t lacks(std::uint32_t flag) const { return (low_flag ^ flag) | (high_flag ^ flag); }
  MPIX_FN std::uint64_t data() const { return std::uint64_t{low} | std::uint64_t{high} << 32; }
};

/// As line_arrived, for a flag that is not known yet.
MPIX_FN SeenLine look_at_line(const Line* line) {
  std::uint64_t low, high;
#if defined(__CUDA_ARCH__)
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1},[%2];" : "=l"(low), "=l"(high) : "l"(line) : "memory");
#else
  low = load_relaxed(&line->half[0]);
  high = load_relaxed(&line->half[1]);
#endif
  return SeenLine{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                  static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
}

#if MPIX_ON_DEVICE
/// A look at two lines in a row, and at two others in a row, all in one go: as line_arrived, it orders nothing.
MPIX_FN void look_at_lines(const Line* lines, const Line* others, SeenLine seen[4]) {
#if defined(__CUDA_ARCH__)
  // One statement: between two of them the compiler would wait for the first.
  asm volatile(
      "{.reg .b64 a,b,c,d,e,f,g,h;"
      "ld.relaxed.sys.global.v2.u64 {a,b},[%16];ld.relaxed.sys.global.v2.u64 {c,d},[%16+16];"
      "ld.relaxed.sys.global.v2.u64 {e,f},[%17];ld.relaxed.sys.global.v2.u64 {g,h},[%17+16];"
      "mov.b64 {%0,%1},a;mov.b64 {%2,%3},b;mov.b64 {%4,%5},c;mov.b64 {%6,%7},d;"
      "mov.b64 {%8,%9},e;mov.b64 {%10,%11},f;mov.b64 {%12,%13},g;mov.b64 {%14,%15},h;}"
      : "=r"(seen[0].low), "=r"(seen[0].low_flag), "=r"(seen[0].high), "=r"(seen[0].high_flag), "=r"(seen[1].low),
        "=r"(seen[1].low_flag), "=r"(seen[1].high), "=r"(seen[1].high_flag), "=r"(seen[2].low), "=r"(seen[2].low_flag),
        "=r"(seen[2].high), "=r"(seen[2].high_flag), "=r"(seen[3].low), "=r"(seen[3].low_flag), "=r"(seen[3].high),
        "=r"(seen[3].high_flag)
      : "l"(lines), "l"(others)
      : "memory");
#else
  const Line* const at[4] = {lines, lines + 1, others, others + 1};
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t low = __hip_atomic_load(&at[i]->half[0], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    const std::uint64_t high = __hip_atomic_load(&at[i]->half[1], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    seen[i] = SeenLine{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                       static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
  }
#endif
}
#endif

/// The threads that share one piece of work: a thread block on a GPU, the worker alone on the host.
struct Workers {
  std::uint32_t index;
  std::uint32_t size;
};

/// A load that a GPU's first-level cache has no part in, for what is read once. Kernels that start before the one
/// in front of them has ended (device/gpu) may not trust that cache either.
template <class T>
MPIX_FN T load_once(const T* p) {
#if defined(__CUDA_ARCH__)
  return __ldcg(p);
#else
  return *p;
#endif
}

/// Word `i` (8 bytes) of `bytes` bytes at `from`, zero-filled past the end; any alignment.
MPIX_FN std::uint64_t load_word(const char* from, std::size_t i, std::size_t bytes) {
  const char* p = from + 8 * i;
  const std::size_t left = bytes - 8 * i;
  std::uint64_t word = 0;
#if MPIX_ON_DEVICE
  if (left >= 8 && reinterpret_cast<std::uintptr_t>(p) % 8 == 0)
    return load_once(reinterpret_cast<const unsigned long long*>(p));
  for (std::size_t b = 0; b < 8 && b < left; ++b)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(load_once(p + b))) << (8 * b);
#else
  if (left >= 8)
    std::memcpy(&word, p, 8);
  else
    std::memcpy(&word, p, left);
#endif
  return word;
}

/// The inverse of load_word: bytes past the end are not written.
MPIX_FN void store_word(char* to, std::size_t i, std::size_t bytes, std::uint64_t word) {
  char* p = to + 8 * i;
  const std::size_t left = bytes - 8 * i;
#if MPIX_ON_DEVICE
  if (left >= 8 && reinterpret_cast<std::uintptr_t>(p) % 8 == 0) {
    *reinterpret_cast<std::uint64_t*>(p) = word;
    return;
  }
  for (std::size_t b = 0; b < 8 && b < left; ++b) p[b] = static_cast<char>(word >> (8 * b));
#else
  if (left >= 8)
    std::memcpy(p, &word, 8);
  else
    std::memcpy(p, &word, left);
#endif
}

/// Two words at an address that is a multiple of 16: as load_once, and as one store.
MPIX_FN void load_pair(const void* from, std::uint64_t* words) {
#if MPIX_ON_DEVICE
  const ulonglong2 pair = load_once(static_cast<const ulonglong2*>(from));
  words[0] = pair.x;
  words[1] = pair.y;
#else
  std::memcpy(words, from, 16);
#endif
}
MPIX_FN void store_pair(void* to, const std::uint64_t* words) {
#if MPIX_ON_DEVICE
  *static_cast<ulonglong2*>(to) = make_ulonglong2(words[0], words[1]);
#else
  std::memcpy(to, words, 16);
#endif
}

/// Each product is rounded, on GPUs as on hosts: fused with the sum it would have other bits.
MPIX_FN float rounded_product(float a, float b) {
#if MPIX_ON_DEVICE
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
MPIX_FN double rounded_product(double a, double b) {
#if MPIX_ON_DEVICE
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

/// Copy by several workers: 16 bytes a thread and turn where both sides allow it.
MPIX_FN void copy_bytes(char* to, const char* from, std::size_t bytes, Workers workers) {
#if MPIX_ON_DEVICE
  std::size_t done = 0;
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 16 == 0) {
    const std::size_t quads = bytes / 16, step = workers.size;
    const auto* source = reinterpret_cast<const ulonglong2*>(from);
    auto* target = reinterpret_cast<ulonglong2*>(to);
    std::size_t i = workers.index;
    for (; i + 3 * step < quads; i += 4 * step) {
      const ulonglong2 a = load_once(source + i), b = load_once(source + i + step),
                       c = load_once(source + i + 2 * step), d = load_once(source + i + 3 * step);
      target[i] = a, target[i + step] = b, target[i + 2 * step] = c, target[i + 3 * step] = d;
    }
    for (; i < quads; i += step) target[i] = load_once(source + i);
    done = quads * 16;
  }
  const std::size_t left = bytes - done;
  for (std::size_t i = workers.index; i < (left + 7) / 8; i += workers.size)
    store_word(to + done, i, left, load_word(from + done, i, left));
#else
  // A put to oneself may name overlapping buffers.
  if (workers.index == 0) std::memmove(to, from, bytes);
#endif
}

}  // namespace mpix
