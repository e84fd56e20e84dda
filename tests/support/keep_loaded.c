/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * MPI libraries load plug-ins, leak in them, and unload them, and then the leak checker cannot tell
 * whose leak it was. Preloaded in sanitizer builds, this keeps them loaded, so that
 * tests/sanitizer/lsan.supp can name them. */
int dlclose(void* handle);

__attribute__((visibility("default"))) int dlclose(void* handle) {
  (void)handle;
  return 0;
}
