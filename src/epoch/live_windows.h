// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <functional>

#include "wire/farewell.h"

namespace mpix {

class Window;

/// All windows with stream epochs of this process, for what its end tells and waits for.
void add_live(Window& window);
void remove_live(Window& window);

/// By MPI_Finalize, for the windows that the program has not freed.
void say_farewell_on_all_windows(Farewell farewell);

/// By MPI_Finalize, while messages of MPI still go: what windows have enqueued over them has run. Callbacks of
/// MPI_COMM_SELF may free windows later. `meanwhile`: as of Window::drain().
void drain_windows_between_nodes(const std::function<void()>& meanwhile);

}  // namespace mpix
