// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <sched.h>

#include <cstdint>

#include "notify.h"
#include "request_param.h"

/// Device requests: what kernels and the service share of the persistent requests of MPI that kernels start, and the
/// kernels' part. A start is a number: the first of a request is 1 more than what its words held when it was given out,
/// so that they never shrink, and a kernel that still waits for an earlier start finds that over.
///
/// | word         | lies in | written by                  | read by     | order |
/// |--------------|---------|-----------------------------|-------------|-------|
/// | started      | device  | kernels: the last start     | the same    | relaxed; who starts a request hands it to others by a barrier of their own. In device memory, so that the launches of a graph count on |
/// | retired      | device  | kernels: the last start that a wait or test has told of | the same | relaxed; equal to started: inactive |
/// | turn         | device  | MPIX_Waitany and MPIX_Testany, of the first request of their array: where they look first | the same | relaxed: a hint |
/// | generation   | device  | the host, when the request is given out, and freed | all calls | relaxed: to be caught, not to be safe |
/// | up           | pinned  | kernels: started            | the service | release / acquire: publishes the buffer of a send |
/// | down         | pinned  | the service: the last start that MPI has completed | kernels | release / acquire: publishes the buffer of a receive |
/// | partition[]  | pinned  | sends: kernels (ready), receives: the service (arrived): the start that it is ready in, or has arrived in | the other | release / acquire |
/// | note         | pinned  | a thread that waits for long: the start, its block | the watch, waiting threads | relaxed; 0: nobody |
/// | released     | pinned  | the host: of all            | those that wait, now and then | relaxed |
///
/// up is down, or 1 more. The service calls MPI_Start when it sees that, MPI_Testsome for all that were started, and
/// writes down. It calls MPI_Pready once for each partition that holds the number of the start.
///
/// A thread at a time starts, tests or waits for a request. Partitions are set and asked for by many.
namespace mpix {
namespace dev {

struct alignas(32) RequestState {
  std::uint64_t generation;
  std::uint64_t started, retired;
  std::uint64_t turn;
};

/// A request as a kernel finds it.
struct RequestNow {
  std::uint64_t started, retired;
  MPIX_DEV_METHOD bool is_inactive() const { return started == retired; }
};

MPIX_DEV_FN bool is_null(const MPIX_Drequest& r) { return r.state == nullptr; }

MPIX_DEV_FN bool is_released(const MPIX_Drequest& r) {
  const std::uint64_t generation = load_relaxed(&r.state->generation), released = load_relaxed(&r.host->released);
  return generation != r.generation || released != 0;
}

MPIX_DEV_FN Post look_at(const MPIX_Drequest& r, RequestNow* now) {
  if (is_null(r)) return Post::argument;
  if (r.abi != MPIX_DEV_REQUEST_ABI) return Post::released;
  const std::uint64_t generation = load_relaxed(&r.state->generation);
  now->started = load_relaxed(&r.state->started);
  now->retired = load_relaxed(&r.state->retired);
  return generation == r.generation ? Post::ok : Post::released;
}

MPIX_DEV_FN bool is_complete(const MPIX_Drequest& r, const RequestNow& now) {
  return load_acquire(r.down) >= now.started;
}
MPIX_DEV_FN void retire(const MPIX_Drequest& r, const RequestNow& now) {
  store_after_loads(&r.state->retired, now.started);
}

MPIX_DEV_FN void tell_service(const MPIX_Drequest& r) {
#if MPIX_ON_DEVICE
  (void)r;
#else
  r.hooks->post(r.host);
#endif
}

/// A test in vain: nobody waits any more, or shall look again. Kernels that are threads test in loops, and give their
/// core to whoever completes the request.
MPIX_DEV_FN Post in_vain(const MPIX_Drequest& r) {
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  (void)sched_yield();
#endif
  return is_released(r) ? Post::released : Post::ok;
}

/// One that is complete may be started without a wait: it was in the program's hands.
MPIX_DEV_FN Post may_start(const MPIX_Drequest& r, RequestNow* now) {
  const Post valid = look_at(r, now);
  if (valid != Post::ok) return valid;
  return now->is_inactive() || is_complete(r, *now) ? Post::ok : Post::active;
}
/// Behind fence_stores.
MPIX_DEV_FN void raise_start(const MPIX_Drequest& r, const RequestNow& now) {
  store_after_loads(&r.state->started, now.started + 1);
  store_after_loads(r.up, now.started + 1);
  tell_service(r);
}

/// All or none; but one that comes twice stops it the second time.
MPIX_DEV_FN Post start_requests(std::uint32_t count, const MPIX_Drequest* requests) {
  RequestNow now{};
  for (std::uint32_t i = 0; i < count; ++i) {
    const Post valid = may_start(requests[i], &now);
    if (valid != Post::ok) return valid;
  }
  fence_stores();
  for (std::uint32_t i = 0; i < count; ++i) {
    if (look_at(requests[i], &now) != Post::ok) return Post::released;
    if (count > 1 && !now.is_inactive() && !is_complete(requests[i], now)) return Post::active;
    raise_start(requests[i], now);
  }
  return Post::ok;
}

/// Null and inactive requests are done, as in MPI.
MPIX_DEV_FN Post test_request(const MPIX_Drequest& r, bool* done) {
  RequestNow now{};
  *done = is_null(r);
  if (*done) return Post::ok;
  const Post valid = look_at(r, &now);
  if (valid != Post::ok) return valid;
  *done = now.is_inactive();
  if (*done) return Post::ok;
  *done = is_complete(r, now);
  if (*done) retire(r, now);
  return *done ? Post::ok : in_vain(r);
}

/// None is retired before all are done.
MPIX_DEV_FN Post test_requests(std::uint32_t count, const MPIX_Drequest* requests, bool* done) {
  RequestNow now{};
  *done = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const MPIX_Drequest& r = requests[i];
    if (is_null(r)) continue;
    const Post valid = look_at(r, &now);
    if (valid != Post::ok) return valid;
    if (!now.is_inactive() && !is_complete(r, now)) return in_vain(r);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (is_null(requests[i])) continue;
    (void)look_at(requests[i], &now);
    if (!now.is_inactive()) retire(requests[i], now);
  }
  *done = true;
  return Post::ok;
}

MPIX_DEV_FN std::uint64_t note_of_block(const MPIX_Drequest& r, std::uint64_t started) {
  return BlockNote{started, block_here(r.hooks)}.packed();
}

MPIX_DEV_FN Post wait_for_request(const MPIX_Drequest& r) {
  RequestNow now{};
  if (is_null(r)) return Post::ok;
  const Post valid = look_at(r, &now);
  if (valid != Post::ok || now.is_inactive()) return valid;
  if (!wait_as(
          Waiter{r.host, r.hooks, r.note}, [&] { return note_of_block(r, now.started); },
          [&] { return is_released(r); }, [&] { return is_complete(r, now); }))
    return Post::released;
  retire(r, now);
  return Post::ok;
}

/// What a look at several requests finds.
struct AnyFound {
  Post result;
  std::int32_t index;   ///< of one that has come to its end, retired now; negative: none
  std::int32_t active;  ///< one that has not; negative: none
};

/// Begins behind the one that it found last, so that none that is started again and again keeps the others waiting.
MPIX_DEV_FN AnyFound look_for_any(std::uint32_t count, const MPIX_Drequest* requests) {
  AnyFound found{Post::ok, -1, -1};
  std::uint64_t* turn = nullptr;
  for (std::uint32_t i = 0; i < count && !turn; ++i)
    if (!is_null(requests[i])) turn = &requests[i].state->turn;
  if (!turn) return found;
  const std::uint32_t begin = static_cast<std::uint32_t>(load_relaxed(turn) % count);
  RequestNow now{};
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t i = begin + k < count ? begin + k : begin + k - count;
    const MPIX_Drequest& r = requests[i];
    if (is_null(r)) continue;
    found.result = look_at(r, &now);
    if (found.result != Post::ok) return found;
    if (now.is_inactive()) continue;
    if (!is_complete(r, now)) {
      if (found.active < 0) found.active = static_cast<std::int32_t>(i);
      continue;
    }
    retire(r, now);
    store_after_loads(turn, std::uint64_t{i} + 1);
    found.index = static_cast<std::int32_t>(i);
    return found;
  }
  return found;
}

/// found.index stays negative where none is active.
MPIX_DEV_FN AnyFound wait_for_any(std::uint32_t count, const MPIX_Drequest* requests) {
  AnyFound found = look_for_any(count, requests);
  if (found.result != Post::ok || found.index >= 0 || found.active < 0) return found;
  const MPIX_Drequest& r = requests[found.active];
  const std::uint64_t started = load_relaxed(&r.state->started);
  if (!wait_as(
          Waiter{r.host, r.hooks, r.note}, [&] { return note_of_block(r, started); }, [&] { return is_released(r); },
          [&] {
            found = look_for_any(count, requests);
            return found.result != Post::ok || found.index >= 0 || found.active < 0;
          }))
    found.result = Post::released;
  return found;
}

/// Partitions low to high of a send that was started.
/// Kernels wait for those that are received, and the service for those that are sent.
MPIX_FN std::uint32_t partitions_apart(bool sends) { return sends ? 1 : words_apart; }
MPIX_DEV_FN std::uint64_t* partition_of(const MPIX_Drequest& r, std::uint32_t partition) {
  return r.partition + std::uint64_t{partition} * partitions_apart(r.sends != 0);
}

MPIX_DEV_FN Post set_ready(const MPIX_Drequest& r, std::int32_t low, std::int32_t high) {
  RequestNow now{};
  const Post valid = look_at(r, &now);
  if (valid != Post::ok) return valid;
  if (r.sends == 0 || low < 0 || high < low || static_cast<std::uint32_t>(high) >= r.partitions || now.is_inactive())
    return Post::argument;
  fence_stores();
  for (std::int32_t p = low; p <= high; ++p)
    store_after_loads(partition_of(r, static_cast<std::uint32_t>(p)), now.started);
  tell_service(r);
  return Post::ok;
}

/// Of an inactive receive: true, as in MPI.
MPIX_DEV_FN Post look_for_partition(const MPIX_Drequest& r, std::int32_t partition, bool* arrived) {
  RequestNow now{};
  const Post valid = look_at(r, &now);
  if (valid != Post::ok) return valid;
  if (r.sends != 0 || partition < 0 || static_cast<std::uint32_t>(partition) >= r.partitions) return Post::argument;
  *arrived = load_acquire(partition_of(r, static_cast<std::uint32_t>(partition))) >= now.started || now.is_inactive();
  return *arrived ? Post::ok : in_vain(r);
}

}  // namespace dev
}  // namespace mpix
