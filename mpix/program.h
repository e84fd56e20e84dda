// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace mpix {

/// Whether libmpix is in this process because somebody asked for it: the program, or one of its libraries, is linked
/// with it, or has made a stream call. Else it was preloaded, and errors of RMA calls are MPI's alone, as without it.
bool program_uses_libmpix();
void note_stream_call();

/// Fortran interfaces of MPI, some of which make their calls past libmpix: free groups, open epochs. They may be loaded
/// at any time.
bool fortran_is_loaded();

}  // namespace mpix
