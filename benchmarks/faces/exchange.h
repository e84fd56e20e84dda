// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "field.h"

namespace faces {

enum class WindowMemory { allocate, create };

/// How stream epochs are used.
struct StreamUse {
  bool fused;      ///< both epochs closed by MPIX_Win_complete_wait_stream
  bool lazy_post;  ///< the window promises mpix_lazy_post
  bool captured;   ///< in a graph, which is launched again and again
};

/// One way to do a share: every process gets its neighbours' copies of the points on its surface,
/// and sums all copies of every shared point.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Enqueue: NaN in all message buffers. Not while a neighbour may write to them.
  virtual void poison_buffers() = 0;
  /// Share so many times, and return when the field holds the result.
  virtual void share(int times) = 0;
};

// Each is collective over MPI_COMM_WORLD, and so is its destruction. The same exchange three times:
// these are the files to read side by side when porting a program.

/// MPI_Isend and MPI_Irecv (p2p.cpp). `staged`: MPI cannot reach the device's memory, so messages are copied
/// through the CPU's.
std::unique_ptr<Exchange> make_point_to_point(Field& field, bool staged);
/// Active-target one-sided: post, start, put, complete, wait (rma.cpp).
std::unique_ptr<Exchange> make_active_rma(Field& field, WindowMemory memory, bool staged);
/// The same epochs, enqueued on the device's stream (st.cpp).
/// Not captured: the stream is synchronized after every `sync` steps, and at the end; 0: then only.
std::unique_ptr<Exchange> make_stream_triggered(Field& field, WindowMemory memory, StreamUse use, int sync);

}  // namespace faces
