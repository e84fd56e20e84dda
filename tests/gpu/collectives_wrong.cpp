// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What is wrong with a collective on a stream that only a GPU can tell: memory and streams of another GPU, and memory
// that it cannot reach.
#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda.h"
#include "support/catch.h"
#include "support/wrong_collectives.h"

using namespace test;

namespace {

/// The GPU behind that of this rank; this one where there is no other.
int other_gpu() {
  int devices = 0, mine = 0;
  CHECK_GPU(cudaGetDeviceCount(&devices));
  CHECK_GPU(cudaGetDevice(&mine));
  return (mine + 1) % devices;
}
bool has_other_gpu() {
  int mine = 0;
  CHECK_GPU(cudaGetDevice(&mine));
  return other_gpu() != mine;
}

/// A call that is wrong because of one buffer, which its text has to name.
WrongCall wrong_buffer(What what, bool is_sent, void* buffer) {
  Call call = call_of(100);
  call.what = what;
  call.root = rank();  // who is the root looks at both
  const char* const side = what == What::bcast ? "the buffer" : is_sent ? "the send buffer" : "the receive buffer";
  return {std::string(name(what)) + ", " + side, MPI_ERR_ARG, name(what), [=](Bench& bench) {
            const void* const send = is_sent ? buffer : bench.send();
            void* const recv = is_sent && what != What::bcast ? bench.recv() : buffer;
            const int code = enqueue(call, send, recv, bench.comm, bench.stream);
            INFO(error_text(code));
            CHECK(contains(error_text(code), side));
            return code;
          }};
}

std::vector<WrongCall> wrong_buffers(void* buffer) {
  std::vector<WrongCall> calls;
  for (What what : all_kinds) {
    if (what == What::barrier) continue;
    calls.push_back(wrong_buffer(what, true, buffer));
    if (what != What::bcast) calls.push_back(wrong_buffer(what, false, buffer));
  }
  return calls;
}

/// Memory of another GPU.
class MemoryThere {
 public:
  explicit MemoryThere(std::size_t bytes) {
    const support::CurrentGpu there(other_gpu());
    CHECK_GPU(cudaMalloc(&base_, bytes));
  }
  ~MemoryThere() { (void)cudaFree(base_); }
  MemoryThere(const MemoryThere&) = delete;
  MemoryThere& operator=(const MemoryThere&) = delete;
  char* base() const { return static_cast<char*>(base_); }

 private:
  void* base_ = nullptr;
};

}  // namespace

TEST_CASE("memory of the host that the GPU cannot reach") {
  NEEDS_CUDA();
  int mine = 0, pageable = 0;
  CHECK_GPU(cudaGetDevice(&mine));
  CHECK_GPU(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, mine));
  NEEDS(!pageable, "this GPU reaches all memory");
  std::vector<char> host(4096 * static_cast<std::size_t>(size()));
  try_out_all(wrong_buffers(host.data()));
  // and while a stream is captured
  Bench bench;
  MPI_OK(MPIX_Comm_prepare_stream(bench.comm, MPI_INFO_NULL));
  const Graph nothing(bench.stream, cudaStreamCaptureModeGlobal, [&] {
    for (const WrongCall& wrong : wrong_buffers(host.data())) try_out(bench, wrong);
  });
  try_call(call_of(100), bench.stream, "behind the capture", bench.comm);
}

TEST_CASE("buffers on another GPU") {
  NEEDS_CUDA();
  NEEDS(has_other_gpu(), "needs a second GPU");
  constexpr std::size_t most = 100000;
  const std::size_t room = most * sizeof(double) * static_cast<std::size_t>(size()) + 4096;
  const MemoryThere send(room), recv(room);
  int mine = 0, reachable = 0;
  CHECK_GPU(cudaGetDevice(&mine));
  CHECK_GPU(cudaDeviceCanAccessPeer(&reachable, mine, other_gpu()));
  if (!on_all_ranks(reachable != 0)) {
    NEEDS(on_all_ranks(reachable == 0), "some GPUs reach each other");
    return try_out_all(wrong_buffers(send.base()));
  }
  const Comm comm(Comm::duplicate());
  Stream stream;
  std::uint64_t salt = 0;
  for (const std::size_t count : {std::size_t{10}, std::size_t{5000}, most}) {
    for (What what : all_kinds) {
      for (const bool both : {false, true}) {
        Call call = call_of(static_cast<int>(count), MPI_DOUBLE);
        call.what = what;
        call.salt = ++salt;
        call.root = size() - 1;
        alive(describe(call));
        Trial trial(call, rank(), size(), Kind::unmapped, send.base(), both ? recv.base() : nullptr);
        MPI_OK(trial.make(comm, stream));
        stream.synchronize();
        trial.check(both ? "both there" : "sent from there");
      }
    }
  }
}

TEST_CASE("streams of another GPU") {
  NEEDS_CUDA();
  NEEDS(has_other_gpu(), "needs a second GPU");
  const int other = other_gpu();
  cudaStream_t foreign = nullptr;
  {
    const support::CurrentGpu there(other);
    CHECK_GPU(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking));
  }
  std::vector<WrongCall> calls;
  for (What what : all_kinds) {
    Call call = call_of(4);
    call.what = what;
    calls.push_back({std::string(name(what)) + " in a stream of another GPU", MPI_ERR_ARG, name(what), [=](Bench& b) {
                       const int code = enqueue(call, b.send(), b.recv(), b.comm, foreign);
                       INFO(error_text(code));
                       CHECK(contains(error_text(code), "is one of GPU " + std::to_string(other)));
                       return code;
                     }});
  }
  try_out_all(calls);
  CHECK_GPU(cudaStreamDestroy(foreign));
}
