// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/receive_part.h"
#include "device/gpu/send_part.h"

/// The GPU's way to run a program: a grid of parts × peers. Block (part, i) does its part of the i-th send, then
/// its part of the i-th receive. Sends wait only for what peers have enqueued before (wire/program.h), and, where
/// the network reads origin buffers, for the network (wire/relayed.h), so no
/// block's wait keeps another rank's block from what this one waits for.
///
/// What a small epoch costs is its chain of dependent loads, some 0.5 µs each, so:
/// - tables of few entries travel in the kernel's arguments (arguments.h), not in device memory;
/// - every thread polls by itself: no barrier between the look at a word and the data;
/// - the header of the usual epoch says all about its one put;
/// - loads are issued before the first of them is used, and a thread looks for its own first word together with the
///   header: where that would be is known before (0.1 of 3.2 µs);
/// - the usual epoch, one put of whole words through the mailbox, one for each thread, has a kernel of its own: short
///   straight code in few registers; and so has one of a few words, or packs, for each, which are all looked for
///   together with the header, too;
/// - where the kernel in front in the stream is known to be ours, work starts before that one has ended (Early).
namespace mpix {
inline namespace GPU_NAMESPACE {

constexpr unsigned most_threads = 512;

template <Role role, Form form, Reach reach, class AnyProgram>
__global__ void __launch_bounds__(most_threads, 2)
    run_program(const GPU_GRID_CONSTANT Arguments<AnyProgram> arguments) {
  const AnyProgram& any = arguments.any;
  const Shape& shape = arguments.shape;
  const Program& program = any.program;
  const std::uint32_t part = blockIdx.x, index = blockIdx.y;
  const bool may_send_here = role != Role::receive && (role == Role::send || blockIdx.z == 0);
  const bool may_receive_here = role != Role::send && (role == Role::receive || blockIdx.z == 1);
  const Share sent = index < program.send_count ? any.share_of_send(index, shape) : Share{};
  const Share expected = index < program.receive_count ? any.share_of_receive(index, shape) : Share{};
  const bool sends = may_send_here && part < sent.parts, receives = may_receive_here && part < expected.parts;
  EpochCounter closed{};
  if (receives) {
    if (!shape.early.receive) gpu_wait_for_front();
    closed = load_counter(any.receive(index).words->own.closed, part);
  }
  if (part == 0 && index == 0 && blockIdx.z == 0 && program.post_count > 0) {
    gpu_wait_for_front();
    // By the last warps, which have least to do besides: the first must not wait for these counters.
    for (std::uint32_t i = blockDim.x - 1 - threadIdx.x; i < program.post_count; i += blockDim.x)
      announce(any.post(i), any.post(i).words->own.opened.load(), program.captured, program.guards,
               program.raises_posts);
  }
  if (program.guards && part == 0 && index == 0 && threadIdx.x == 0) {
    if (program.send_count > 0) program.guards->targets = 0;
    if (program.receive_count > 0) program.guards->origins = 0;
  }
  if (sends) send_part<form, reach>(any, index, part, sent, shape);
  if (receives) receive_part<form, reach>(any, index, part, expected, closed);
  // A kernel does not end before those in front of it. Blocks without work need not keep their place for that.
  if (sends || receives || (part == 0 && index == 0 && blockIdx.z == 0)) gpu_wait_for_front();
}

__global__ void __launch_bounds__(NearPosts::most) run_posts(const GPU_GRID_CONSTANT NearPosts near) {
  if (!near.early) gpu_wait_for_front();
  gpu_let_next_start();
  const bool posts = threadIdx.x < near.count;
  EpochCounter opened{};
  if (posts) opened = near.posts[threadIdx.x].words->own.opened.load();
  if (near.early) gpu_wait_for_front();
  if (posts) announce(near.posts[threadIdx.x], opened, near.captured, near.guarded, near.raises);
}

/// Posts ahead of what streams have enqueued (epoch/free_posts.h).
__global__ void __launch_bounds__(NearRaises::most) run_raises(const GPU_GRID_CONSTANT NearRaises near) {
  if (threadIdx.x < near.count) raise_after_loads(near.raises[threadIdx.x].posted, near.raises[threadIdx.x].epochs);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
