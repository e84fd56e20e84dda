// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Stream capture: an iteration with its kernels and its epochs, captured once and replayed, each replay with
// data of its own.
#include <cstdlib>
#include <memory>
#include <set>
#include <vector>

#include "gpu/cuda.h"
#include "support/catch.h"
#include "support/random_graphs.h"

using namespace test;

namespace {

constexpr cudaStreamCaptureMode all_modes[] = {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed,
                                               cudaStreamCaptureModeGlobal};
constexpr std::size_t eager = 1000;
constexpr std::size_t direct = 700000;  // beyond what goes by mailbox on a GPU

/// Ranks share a GPU without MPS: scripts/run-gpu-tests says so.
bool in_turns() { return parameter("TEST_GPU_IN_TURNS", 0) != 0; }

/// A GPU and queues enough for each rank, and all on one node: kernels of ours may overlap.
bool kernels_overlap() {
  int devices = 0;
  CHECK_GPU(cudaGetDeviceCount(&devices));
  return devices >= size() && !spans_nodes() && parameter("CUDA_DEVICE_MAX_CONNECTIONS", 8) >= 8;
}

/// What a stream is being captured into.
cudaGraph_t captured_graph(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  CHECK_GPU(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph));
#else
  CHECK_GPU(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph));
#endif
  return graph;
}

std::size_t captured_nodes(cudaStream_t stream) {
  std::size_t nodes = 0;
  CHECK_GPU(cudaGraphGetNodes(captured_graph(stream), nullptr, &nodes));
  return nodes;
}

/// Those that nothing is behind, yet.
std::size_t loose_ends(cudaStream_t stream) {
  const cudaGraph_t graph = captured_graph(stream);
  std::size_t edges = 0;
#if CUDART_VERSION >= 13000
  const auto edges_of = [&](cudaGraphNode_t* from, cudaGraphNode_t* to) {
    return cudaGraphGetEdges(graph, from, to, nullptr, &edges);
  };
#else
  const auto edges_of = [&](cudaGraphNode_t* from, cudaGraphNode_t* to) {
    return cudaGraphGetEdges_v2(graph, from, to, nullptr, &edges);
  };
#endif
  CHECK_GPU(edges_of(nullptr, nullptr));
  std::vector<cudaGraphNode_t> from(edges), to(edges);
  if (edges > 0) CHECK_GPU(edges_of(from.data(), to.data()));
  return captured_nodes(stream) - std::set<cudaGraphNode_t>(from.begin(), from.end()).size();
}

void replay(Graph& graph, Stream& stream, int times) {
  for (int k = 0; k < times; ++k) {
    graph.launch(stream);
    if (k % 1000 == 999) alive("replay " + std::to_string(k + 1));
  }
}

void capture_and_replay(Memory memory, std::size_t bytes, bool fused, cudaStreamCaptureMode mode, int times) {
  INFO(name(memory) << ", " << bytes << " bytes, fused: " << fused << ", mode " << mode);
  Window window(memory, bytes);
  Ring ring(window, window.base(), bytes);
  Stream stream;
  Iteration iteration;
  Graph graph(stream, mode, [&] {
    iteration.next(stream);
    ring.counted_epoch(stream, iteration.number(), fused);
  });
  replay(graph, stream, times);
  stream.synchronize();
  CHECK(iteration.reached() == static_cast<std::uint64_t>(times));
}

}  // namespace

TEST_CASE("a captured iteration replays 10,000 times") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct})
    for (bool fused : {false, true})
      capture_and_replay(Memory::device, bytes, fused, cudaStreamCaptureModeThreadLocal, scaled(10000));
}

TEST_CASE("capture in all modes, of windows in all kinds of memory") {
  NEEDS_CUDA();
  for (cudaStreamCaptureMode mode : all_modes)
    for (Memory memory : all_memories)
      for (std::size_t bytes : {eager, direct})
        for (bool fused : {false, true}) capture_and_replay(memory, bytes, fused, mode, scaled(100));
}

TEST_CASE("replays and epochs that are not captured, in turns") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct}) {
    Window window(Memory::device, bytes);
    Ring ring(window, window.base(), bytes);
    Stream stream;
    Iteration iteration;
    const auto body = [&](bool fused) {
      return [&, fused] {
        iteration.next(stream);
        ring.counted_epoch(stream, iteration.number(), fused);
      };
    };
    ring.epoch(stream);  // an epoch may be under way when the capture begins
    Graph plain(stream, cudaStreamCaptureModeThreadLocal, body(false));
    Graph fused(stream, cudaStreamCaptureModeThreadLocal, body(true));
    for (int round = scaled(200); round > 0; --round) {
      replay(plain, stream, 1 + round % 7);
      ring.epoch(stream);
      replay(fused, stream, 1 + round % 3);
      ring.fused_epoch(stream);
      if (round % 5 == 0) stream.synchronize();
    }
    stream.synchronize();
    CHECK(iteration.reached() > 0);
  }
}

TEST_CASE("a capture begins behind a post, and closes its epoch") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct}) {
    Window window(Memory::device, bytes);
    Ring ring(window, window.base(), bytes);
    Buffer source(bytes);
    const Group to(right_of(rank())), from(left_of(rank()));
    Stream stream;
    Iteration iteration;
    stream.delay(1000);  // the post is not over when the capture begins
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    Graph graph(stream, cudaStreamCaptureModeGlobal, [&] {
      iteration.next(stream);
      device().fill(stream, source.data(), bytes, ring_data(rank(), iteration.number()));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      device().check(stream, window.base(), bytes, ring_data(left_of(rank()), iteration.number()), HERE("captured"));
    });
    graph.launch(stream);  // once, as there is one post
    for (int k = scaled(20); k > 0; --k) ring.epoch(stream);
    stream.synchronize();
    CHECK(iteration.reached() == 1);
    barrier();
  }
}

TEST_CASE("a capture begins behind a post, and has another") {
  NEEDS_CUDA();
  Window window(Memory::device, direct);
  Ring ring(window, window.base(), direct);
  const Group from(left_of(rank()));
  Stream stream;
  Iteration iteration;
  std::unique_ptr<Graph> graph;
  stream.delay(1000);
  ring.epoch(stream, [&] {
    // Within the exposure epoch: a graph of nothing of this window's, which ends before the next call.
    graph = std::make_unique<Graph>(stream, cudaStreamCaptureModeGlobal, [&] { iteration.next(stream); });
  });
  Graph epochs(stream, cudaStreamCaptureModeGlobal, [&] {
    iteration.next(stream);
    ring.counted_epoch(stream, iteration.number(), false);
  });
  graph->launch(stream);
  replay(epochs, stream, scaled(100));
  ring.epoch(stream);
  stream.synchronize();
  CHECK(iteration.reached() == static_cast<std::uint64_t>(scaled(100) + 1));
}

TEST_CASE("one graph with epochs of several windows, open at the same time") {
  NEEDS_CUDA();
  Window small(Memory::device, eager), large(Memory::part, direct), staged(Memory::unmapped, direct);
  Ring rings[] = {
      {small, small.base(), eager, 1}, {large, large.base(), direct, 2}, {staged, staged.base(), direct, 3}};
  Stream stream;
  Iteration iteration;
  Graph graph(stream, cudaStreamCaptureModeThreadLocal, [&] {
    iteration.next(stream);
    for (Ring& ring : rings) {
      ring.counted_epoch(stream, iteration.number(), false);
      ring.counted_epoch(stream, iteration.number(), true);
    }
  });
  for (int round = 0; round < 3; ++round) {
    replay(graph, stream, scaled(300));
    for (Ring& ring : rings) ring.epoch(stream);
    stream.synchronize();
  }
}

TEST_CASE("several iterations in one graph") {
  NEEDS_CUDA();
  constexpr int epochs = 10;  // more than a mailbox has slots
  Window window(Memory::device, eager);
  Ring ring(window, window.base(), eager);
  Stream stream;
  Iteration iteration;
  Graph graph(stream, cudaStreamCaptureModeThreadLocal, [&] {
    for (int k = 0; k < epochs; ++k) {
      iteration.next(stream);
      ring.counted_epoch(stream, iteration.number(), k % 2 == 0);
    }
  });
  const int times = scaled(1000);
  replay(graph, stream, times);
  stream.synchronize();
  CHECK(iteration.reached() == static_cast<std::uint64_t>(epochs * times));
}

// Captured posts go beside what is captured next. They stay in order all the same, and their graph does not end
// without them.
TEST_CASE("captured posts of two windows beside kernels, and a post in a graph of its own") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct})
    for (bool apart : {false, true}) {
      Window one(Memory::device, bytes), other(Memory::device, bytes);
      Buffer source(bytes);
      const Group to(right_of(rank())), from(left_of(rank()));
      Stream stream;
      Iteration iteration;
      const auto mine = [&](int salt) { return ring_data(rank(), iteration.number(), std::uint64_t(salt)); };
      const auto theirs = [&](int salt) { return ring_data(left_of(rank()), iteration.number(), std::uint64_t(salt)); };
      const auto post = [&] {
        iteration.next(stream);
        MPI_OK(MPIX_Win_post_stream(from, one, stream));
        MPI_OK(MPIX_Win_post_stream(from, other, stream));
      };
      const auto rest = [&] {
        int salt = 0;
        for (Window* window : {&one, &other}) {
          stream.fill(source.data(), bytes, mine(++salt));
          MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, *window));
          MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, *window));
          MPI_OK(MPIX_Win_complete_stream(*window, stream));
        }
        salt = 0;
        for (Window* window : {&one, &other}) {
          MPI_OK(MPIX_Win_wait_stream(*window, stream));
          stream.check(window->base(), bytes, theirs(++salt), HERE(bytes << " bytes, apart: " << apart));
        }
      };
      constexpr auto mode = cudaStreamCaptureModeThreadLocal;
      if (apart) {
        std::size_t ends = 0;
        Graph posts(stream, mode, [&] {
          post();
          ends = loose_ends(cuda(stream));
        });
        Graph others(stream, mode, rest);
        // With ranks of other nodes, on a shared GPU, or with few queues they stay in line.
        if (kernels_overlap()) CHECK(ends == 2);
        for (int k = scaled(1000); k > 0; --k) {
          posts.launch(stream);
          others.launch(stream);
        }
        stream.synchronize();
      } else {
        Graph graph(stream, mode, [&] {
          for (int k = 0; k < 3; ++k) {
            post();
            rest();
          }
        });
        replay(graph, stream, scaled(1000));
        stream.synchronize();
      }
    }
}

// With many blocks a captured complete_wait goes as two kernels (Launcher::is_faster_apart).
TEST_CASE("captured fused epochs with all ranks, as one kernel and as two") {
  NEEDS_CUDA();
  std::vector<int> peers;
  for (int r = 0; r < size(); ++r)
    if (r != rank() || size() <= 2) peers.push_back(r);
  const Group group(peers);
  for (bool lazy : {false, true})
    for (int puts : {1, 2})
      for (std::size_t bytes : {eager, std::size_t{100000}, std::size_t{131072}, direct, std::size_t{1} << 20}) {
        Window window(Memory::device, bytes * std::size_t(size()), 1, MPI_COMM_WORLD, 0, lazy);
        Buffer source(bytes * std::size_t(size()));
        Stream stream;
        Iteration iteration;
        std::size_t kernels = 0;
        const auto data = [&](int from, int to) { return ring_data(from, iteration.number(), std::uint64_t(to)); };
        const auto part = [&](char* base, int of) { return base + bytes * std::size_t(of); };
        const auto exchange = [&] {
          iteration.next(stream);
          MPI_OK(MPIX_Win_post_stream(group, window, stream));
          for (int to : peers) stream.fill(part(source.data(), to), bytes, data(rank(), to));
          MPI_OK(MPI_Win_start(group, MPIX_MODE_STREAM, window));
          for (int to : peers)
            for (int k = 0; k < puts; ++k) {
              const std::size_t first = bytes / 8 / 2 * 8 * std::size_t(k),
                                end = k + 1 < puts ? bytes / 8 / 2 * 8 : bytes;
              MPI_OK(MPI_Put(part(source.data(), to) + first, int(end - first), MPI_BYTE, to,
                             MPI_Aint(bytes * std::size_t(rank()) + first), int(end - first), MPI_BYTE, window));
            }
        };
        const auto close = [&] { MPI_OK(MPIX_Win_complete_wait_stream(window, stream)); };
        const auto check = [&] {
          for (int from : peers)
            stream.check(part(window.base(), from), bytes, data(from, rank()),
                         HERE(puts << " puts of " << bytes << " bytes from " << from << ", lazy: " << lazy));
        };
        Graph graph(stream, cudaStreamCaptureModeThreadLocal, [&] {
          for (int k = 0; k < 2; ++k) {
            exchange();
            const std::size_t before = captured_nodes(cuda(stream));
            close();
            kernels = captured_nodes(cuda(stream)) - before;
            check();
          }
        });
        INFO(puts << " puts of " << bytes << " bytes, lazy: " << lazy);
        // With more ranks it depends on the places that are left how many blocks a large put has, and with those
        // whether halves are faster (Launcher::is_faster_apart).
        if (kernels_overlap() && size() > 1) CHECK((kernels == 1 || kernels == 2));
        if (kernels_overlap() && (puts > 1 || bytes == eager)) CHECK(kernels == 1);
        if (kernels_overlap() && size() == 2 && puts == 1 && bytes == std::size_t{1} << 20) CHECK(kernels == 2);
        for (int round = 0; round < 10; ++round) {
          replay(graph, stream, scaled(100));
          exchange();
          close();
          check();
        }
        stream.synchronize();
      }
}

TEST_CASE("a captured iteration in two branches: exposure here, access there") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct}) {
    Window window(Memory::device, bytes);
    Buffer source(bytes);
    const Group to(right_of(rank())), from(left_of(rank()));
    Stream exposure, access;
    Iteration iteration;
    cudaEvent_t fork, join;
    CHECK_GPU(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK_GPU(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    Graph graph(exposure, cudaStreamCaptureModeThreadLocal, [&] {
      iteration.next(exposure);
      CHECK_GPU(cudaEventRecord(fork, cuda(exposure)));
      CHECK_GPU(cudaStreamWaitEvent(cuda(access), fork, 0));
      MPI_OK(MPIX_Win_post_stream(from, window, exposure));
      access.fill(source.data(), bytes, ring_data(rank(), iteration.number()));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_stream(window, access));
      CHECK_GPU(cudaEventRecord(join, cuda(access)));
      MPI_OK(MPIX_Win_wait_stream(window, exposure));
      exposure.check(window.base(), bytes, ring_data(left_of(rank()), iteration.number()), HERE(bytes << " bytes"));
      CHECK_GPU(cudaStreamWaitEvent(cuda(exposure), join, 0));
    });
    replay(graph, exposure, scaled(1000));
    exposure.synchronize();
    CHECK_GPU(cudaEventDestroy(fork));
    CHECK_GPU(cudaEventDestroy(join));
  }
}

TEST_CASE("a window whose posts are lazy") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct}) {
    Window window(Memory::device, bytes, 1, MPI_COMM_WORLD, 0, true);
    Ring ring(window, window.base(), bytes);
    Stream stream;
    Iteration iteration;
    Graph graph(stream, cudaStreamCaptureModeThreadLocal, [&] {
      iteration.next(stream);
      ring.counted_epoch(stream, iteration.number(), false);
    });
    for (int round = 0; round < 10; ++round) {
      replay(graph, stream, scaled(20));
      ring.epoch(stream);
    }
    stream.synchronize();
  }
}

// What the promise of lazy posts cannot mean.
TEST_CASE("a lazy post before a capture, and its next call inside") {
  NEEDS_CUDA();
  NEEDS(!in_turns(), "where ranks share a GPU in turns no post is lazy");
  Window window(Memory::device, eager, 1, MPI_COMM_WORLD, 0, true);
  Ring ring(window, window.base(), eager);
  Buffer source(eager);
  const Group to(right_of(rank())), from(left_of(rank()));
  Stream stream;
  MPI_OK(MPIX_Win_post_stream(from, window, stream));
  MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
  stream.fill(source.data(), eager, ring_data(rank(), 77));
  MPI_OK(MPI_Put(source.data(), int(eager), MPI_BYTE, right_of(rank()), 0, int(eager), MPI_BYTE, window));
  {
    const Graph nothing(stream, cudaStreamCaptureModeThreadLocal, [&] {
      for (const int code : {MPIX_Win_complete_stream(window, stream), MPIX_Win_wait_stream(window, stream),
                             MPIX_Win_complete_wait_stream(window, stream)}) {
        INFO(error_text(code));
        CHECK(error_class(code) == MPI_ERR_RMA_SYNC);
        CHECK(error_text(code).find("capture") != std::string::npos);
      }
    });
  }
  MPI_OK(MPIX_Win_complete_stream(window, stream));
  MPI_OK(MPIX_Win_wait_stream(window, stream));
  stream.check(window.base(), eager, ring_data(left_of(rank()), 77), HERE("after the errors"));
  ring.epoch(stream);
  stream.synchronize();
}

TEST_CASE("random graphs, captured and not") {
  NEEDS_CUDA();
  const Replay replays = [](void* stream, const std::function<void()>& body, int times) {
    Graph graph(stream, cudaStreamCaptureModeThreadLocal, body);
    for (int k = 0; k < times; ++k) graph.launch(stream);
    Stream::synchronize(stream);
  };
  run_random_graphs(static_cast<std::uint64_t>(parameter("SOAK_SEED", 5)),
                    scaled(static_cast<int>(parameter("SOAK_EPOCHS", 400))), replays);
}

// What is captured has not been enqueued: MPI_Win_free does not wait for it.
TEST_CASE("a capture that is never launched") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct}) {
    Stream stream;
    Iteration iteration;
    Window window(Memory::device, bytes);
    Ring ring(window, window.base(), bytes);
    ring.epoch(stream);
    const Graph graph(stream, cudaStreamCaptureModeThreadLocal, [&] {
      iteration.next(stream);
      ring.counted_epoch(stream, iteration.number(), false);
    });
    ring.epoch(stream);
  }
}

// Replays do not count for what MPI_Win_free waits for: the epoch that is enqueued last has to run.
TEST_CASE("a window that is freed after many replays with work under way") {
  NEEDS_CUDA();
  Stream stream;
  Iteration iteration;
  Window window(Memory::device, direct);
  Ring ring(window, window.base(), direct);
  const Group to(right_of(rank())), from(left_of(rank()));
  Graph graph(stream, cudaStreamCaptureModeThreadLocal, [&] {
    iteration.next(stream);
    ring.counted_epoch(stream, iteration.number(), false);
  });
  replay(graph, stream, 50);
  stream.synchronize();
  stream.delay(20000);
  ring.epoch(stream);
  MPI_OK(MPI_Win_free(window.handle()));
  CHECK(cudaStreamQuery(cuda(stream)) != cudaErrorLaunchFailure);
  const Memory kinds[] = {Memory::device, Memory::unmapped};
  for (Memory memory : kinds) {  // takes the memory that the window has left
    Window other(memory, direct);
    Ring next(other, other.base(), direct, 9);
    for (int k = 0; k < 5; ++k) next.epoch(stream);
    stream.synchronize();
  }
}

// doc/limits.md: a graph that is launched after its window gives up, and harms nobody.
TEST_CASE("a graph that outlives its window") {
  NEEDS_CUDA();
  for (std::size_t bytes : {eager, direct}) {
    Stream stream;
    Buffer source(bytes);
    std::unique_ptr<Graph> graph;
    const Group to(right_of(rank())), from(left_of(rank()));
    {
      Window window(Memory::device, bytes);
      graph = std::make_unique<Graph>(stream, cudaStreamCaptureModeThreadLocal, [&] {
        MPI_OK(MPIX_Win_post_stream(from, window, stream));
        MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
        MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
        MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
      });
      replay(*graph, stream, scaled(20));
      stream.synchronize();
    }
    Window other(Memory::device, bytes);  // as a rule in the memory that the first has left
    Ring ring(other, other.base(), bytes, 3);
    for (int k = 0; k < 5; ++k) {
      graph->launch(stream);
      ring.epoch(stream);
    }
    stream.synchronize();
    EXPECT(true, "the launches have ended");
  }
}

// The body of a WHILE node: the whole loop is one launch, and the CPU has no part in it.
TEST_CASE("a captured iteration as the body of a WHILE node") {
  NEEDS_CUDA();
  NEEDS(!in_turns(),
        "where ranks share a GPU in turns, graphs have memory operations, which CUDA refuses in such a body");
  for (std::size_t bytes : {eager, direct}) {
    for (bool fused : {false, true}) {
      Window window(Memory::device, bytes);
      Ring ring(window, window.base(), bytes);
      Stream stream;
      Iteration iteration;
      const auto end = static_cast<std::uint64_t>(scaled(10000));

      Loop loop(stream, iteration.number(), end, [&] {
        iteration.next(stream);
        ring.counted_epoch(stream, iteration.number(), fused);
      });
      loop.launch(stream, end);
      stream.synchronize();
      CHECK(iteration.reached() == end);
      ring.epoch(stream);
      stream.synchronize();
    }
  }
}
