// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "geometry.h"

#include <cuda_runtime.h>
#include "kernels.h"

namespace peers {

/// The data of an exchange: written before each epoch that is checked, and every word compared after it, by
/// kernels, in stream order. Rounds differ, so what is left over from an earlier epoch is wrong.
class Data {
 public:
  Data(const Exchange& exchange, int rank, cudaStream_t stream);
  ~Data();
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  /// Enqueue: the next round's words into memory to send from.
  void fill(char* send);
  /// Enqueue: compare what has arrived with the words of the round.
  void check(const char* received);
  /// Waits for the stream. Words that were wrong on any rank since the last call.
  unsigned long long wrong_anywhere();

 private:
  cudaStream_t stream_;
  std::size_t count_;
  Slot* outgoing_ = nullptr;
  Slot* incoming_ = nullptr;
  unsigned* round_ = nullptr;
  unsigned long long* wrong_ = nullptr;
};

}  // namespace peers
