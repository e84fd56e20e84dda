// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <stdexcept>
#include <string>

#include "exchange.h"
#include "geometry.h"

namespace faces {

/// One way to do the exchange.
struct Variant {
  enum Kind { p2p, rma, st };
  const char* name;
  Kind kind;
  StreamUse use;  ///< of st
};
constexpr int variants = 10;
extern const Variant all_variants[variants];

enum class GpuAware { automatic, yes, no };
enum class Compute { as_nshare_says, on, off };

/// Where an input value comes from; later ones win.
enum class InputSource { preset, standard_input };

/// What the user asked for. Plain bytes: one rank reads it and sends it to the others.
struct Options {
  enum Value { lx, ly, lz, mx, my, mz, n, niface, niel, nshare, values };
  int value[values];  ///< in the order of the public Faces; 0 for a grid size that MPI shall choose
  int preset;
  InputSource source;
  bool run[variants];
  bool variants_given;  ///< false: all that the device can do
  char device[8];
  GpuAware gpu_aware;
  Compute compute;
  WindowMemory window;
  bool baseline_streams;
  int sync;  ///< st: exchanges between synchronizations of the stream; 0: all of a run
  int repeat;
  bool csv;
  bool inject_error;

  /// The grid sizes that are 0 are chosen by MPI_Dims_create.
  Problem problem_for(int ranks) const;
};

/// Input that makes no sense; the text is for the user.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The user asked for the help text.
struct HelpWanted {};

const char* preset_name(int preset);
std::string help_text();

/// From the command line and standard input; throws InputError or HelpWanted.
Options read_options(int argc, char** argv);

/// The ten input values on standard input. False: there is nothing (end of file, or, unless `wait`,
/// nothing came within a second: below mpiexec an unused standard input looks like one that may
/// still be written to).
bool read_standard_input(bool wait, int (&value)[Options::values]);

/// The whole of `text` as an integer.
int parse_integer(const std::string& text);

}  // namespace faces
