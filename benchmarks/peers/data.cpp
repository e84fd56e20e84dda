// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "data.h"

#include <cuda_runtime.h>
#include "support/abort.h"

namespace peers {
namespace {

Slot* uploaded(const std::vector<Slot>& slots) {
  Slot* there = nullptr;
  CHECK_CUDA(cudaMalloc(&there, slots.size() * sizeof(Slot)));
  CHECK_CUDA(cudaMemcpy(there, slots.data(), slots.size() * sizeof(Slot), cudaMemcpyHostToDevice));
  return there;
}

template <class Word>
Word* zeroed() {
  Word* word = nullptr;
  CHECK_CUDA(cudaMalloc(&word, sizeof(Word)));
  CHECK_CUDA(cudaMemset(word, 0, sizeof(Word)));
  return word;
}

}  // namespace

Data::Data(const Exchange& exchange, int rank, cudaStream_t stream)
    : stream_(stream), count_(exchange.messages.size()) {
  std::vector<Slot> outgoing, incoming;
  for (const Message& message : exchange.messages) {
    outgoing.push_back({message.slot, message.bytes / 8, rank, message.target});
    incoming.push_back({message.slot, message.bytes / 8, message.origin, rank});
  }
  outgoing_ = uploaded(outgoing);
  incoming_ = uploaded(incoming);
  round_ = zeroed<unsigned>();
  wrong_ = zeroed<unsigned long long>();
  CHECK_CUDA(cudaDeviceSynchronize());
}

Data::~Data() {
  CHECK_CUDA(cudaFree(outgoing_));
  CHECK_CUDA(cudaFree(incoming_));
  CHECK_CUDA(cudaFree(round_));
  CHECK_CUDA(cudaFree(wrong_));
}

void Data::fill(char* send) {
  launch_next_round(round_, stream_);
  launch_fill(send, outgoing_, count_, round_, stream_);
}

void Data::check(const char* received) { launch_check(received, incoming_, count_, round_, wrong_, stream_); }

unsigned long long Data::wrong_anywhere() {
  unsigned long long mine = 0, all = 0;
  CHECK_CUDA(cudaMemcpyAsync(&mine, wrong_, sizeof mine, cudaMemcpyDeviceToHost, stream_));
  CHECK_CUDA(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_));
  CHECK_CUDA(cudaStreamSynchronize(stream_));
  CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
  return all;
}

}  // namespace peers
