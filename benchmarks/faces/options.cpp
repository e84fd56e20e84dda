// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "options.h"

#include <mpi.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "mpi_check.h"

namespace faces {

const Variant all_variants[variants] = {
    {"p2p", Variant::p2p, {}},
    {"rma", Variant::rma, {}},
    {"st", Variant::st, {false, false, false}},
    {"st-fused", Variant::st, {true, false, false}},
    {"st-lazy", Variant::st, {false, true, false}},
    {"st-lazy-fused", Variant::st, {true, true, false}},
    {"st-captured", Variant::st, {false, false, true}},
    {"st-captured-fused", Variant::st, {true, false, true}},
    {"st-captured-lazy", Variant::st, {false, true, true}},
    {"st-captured-lazy-fused", Variant::st, {true, true, true}},
};

namespace {

struct Preset {
  const char* name;
  const char* about;
  int value[Options::values];
};

// Sizes differ along the axes so that a mix-up of two shows.
const Preset presets[] = {
    {"tiny", "bytes a face: latency", {0, 0, 0, 1, 1, 1, 2, 1, 2, 15}},
    {"small", "some KB a face", {0, 0, 0, 4, 3, 2, 8, 1, 2, 15}},
    {"public",
     "the small input of the public Faces, 1.4 MB a rank, repeated less (there: 10 10 100)",
     {0, 0, 0, 15, 14, 13, 12, 1, 1, 10}},
    {"large", "2 MB a face, 1 GB of memory a rank", {0, 0, 0, 32, 31, 30, 16, 1, 1, 10}},
};
constexpr int default_preset = 1;

/// What the command line says, before presets and standard input fill the gaps.
struct CommandLine {
  Options options{};
  bool given[Options::values] = {};
  int input_value[Options::values] = {};
  bool preset_given = false;
  bool stdin_wanted = false;
  bool stdin_refused = false;
};

/// One option: the only place that knows its name, default, help and effect.
struct OptionSpec {
  const char* name;
  const char* argument;  ///< null: takes none
  const char* help;
  void (*apply)(CommandLine&, const std::string& argument);
};

template <Options::Value value>
void set_value(CommandLine& line, const std::string& argument) {
  line.input_value[value] = parse_integer(argument);
  line.given[value] = true;
}

void set_preset(CommandLine& line, const std::string& argument) {
  for (const Preset& preset : presets)
    if (argument == preset.name) {
      line.options.preset = static_cast<int>(&preset - presets);
      line.preset_given = true;
      return;
    }
  throw InputError("'" + argument + "' is none of tiny, small, public, large");
}

std::string names_of_variants() {
  std::string names;
  for (const Variant& variant : all_variants) names += std::string(names.empty() ? "" : ", ") + variant.name;
  return names;
}

void set_variants(CommandLine& line, const std::string& argument) {
  for (bool& run : line.options.run) run = false;
  line.options.variants_given = true;
  for (std::size_t at = 0; at <= argument.size();) {
    const std::size_t comma = std::min(argument.find(',', at), argument.size());
    const std::string name = argument.substr(at, comma - at);
    at = comma + 1;
    bool known = false;
    for (int variant = 0; variant < variants; ++variant) {
      if (name != all_variants[variant].name) continue;
      line.options.run[variant] = true;
      known = true;
    }
    if (!known) throw InputError("'" + name + "' is none of " + names_of_variants());
  }
}

void set_device(CommandLine& line, const std::string& argument) {
  if (argument != "auto" && argument != "host" && argument != "cuda" && argument != "hip")
    throw InputError("'" + argument + "' is none of auto, host, cuda, hip");
  argument.copy(line.options.device, sizeof line.options.device - 1);
  line.options.device[argument.size()] = '\0';
}

bool yes_or_no(const std::string& argument, const char* yes, const char* no) {
  if (argument != yes && argument != no) throw InputError("'" + argument + "' is neither " + yes + " nor " + no);
  return argument == yes;
}

void set_gpu_aware(CommandLine& line, const std::string& argument) {
  line.options.gpu_aware = yes_or_no(argument, "yes", "no") ? GpuAware::yes : GpuAware::no;
}

void set_compute(CommandLine& line, const std::string& argument) {
  line.options.compute = yes_or_no(argument, "on", "off") ? Compute::on : Compute::off;
}

void set_window(CommandLine& line, const std::string& argument) {
  if (argument != "allocate" && argument != "create")
    throw InputError("'" + argument + "' is none of allocate, create");
  line.options.window = argument == "create" ? WindowMemory::create : WindowMemory::allocate;
}

void set_repeat(CommandLine& line, const std::string& argument) {
  line.options.repeat = parse_integer(argument);
  if (line.options.repeat < 1) throw InputError("at least 1 is needed");
}

void set_sync(CommandLine& line, const std::string& argument) {
  line.options.sync = parse_integer(argument);
  if (line.options.sync < 1) throw InputError("at least 1 is needed");
}

/// The ten input values first, in the order of Options::Value.
const OptionSpec option_specs[] = {
    {"lx", "N", "processes along x (default: MPI_Dims_create chooses)", set_value<Options::lx>},
    {"ly", "N", "processes along y (default: MPI_Dims_create chooses)", set_value<Options::ly>},
    {"lz", "N", "processes along z (default: MPI_Dims_create chooses)", set_value<Options::lz>},
    {"mx", "N", "elements of a process along x (default: from --size)", set_value<Options::mx>},
    {"my", "N", "elements of a process along y (default: from --size)", set_value<Options::my>},
    {"mz", "N", "elements of a process along z (default: from --size)", set_value<Options::mz>},
    {"n", "N", "points along an element's edge (default: from --size)", set_value<Options::n>},
    {"niface", "N", "times that buffers and windows are made anew (default: from --size)", set_value<Options::niface>},
    {"niel", "N", "timed runs with each of them, after one untimed (default: from --size)", set_value<Options::niel>},
    {"nshare", "N", "exchanges in a run; negative: without compute kernels (default: from --size)",
     set_value<Options::nshare>},
    {"size", "NAME", "preset of these values, see below (default: small)", set_preset},
    {"variant", "LIST", "see below, separated by commas (default: all that the device can do)", set_variants},
    {"device", "NAME", "auto, host, cuda, hip (default: auto, which is what libmpix uses)", set_device},
    {"gpu-aware", "yes|no",
     "no: MPI does not take memory of the device, so p2p and rma copy messages through memory of the CPU "
     "(default: GPU: MPIX_MPI_GPU_AWARE, or what MPI says; host: yes)",
     set_gpu_aware},
    {"compute", "on|off", "with or without compute kernels (default: the sign of nshare)", set_compute},
    {"window", "HOW", "allocate or create: MPI_Win_allocate, or MPI_Win_create over own memory (default: allocate)",
     set_window},
    {"baseline-streams", nullptr,
     "host: kernels of p2p and rma on a host stream too, as on a GPU (default: called on the main thread)",
     [](CommandLine& line, const std::string&) { line.options.baseline_streams = true; }},
    {"sync", "K",
     "st, st-fused, st-lazy, st-lazy-fused: synchronize the stream after every K exchanges, as for "
     "MPIX_THROTTLE=application "
     "(default: at the end of a run)",
     set_sync},
    {"repeat", "K", "measure so often, the variants in turn, and give medians (default: 1)", set_repeat},
    {"stdin", nullptr, "wait for standard input (default: use it if it comes within a second)",
     [](CommandLine& line, const std::string&) { line.stdin_wanted = true; }},
    {"no-stdin", nullptr, "do not read standard input (default when a value or --size is given)",
     [](CommandLine& line, const std::string&) { line.stdin_refused = true; }},
    {"csv", nullptr, "table as comma-separated values, all else in lines that start with # (default: text)",
     [](CommandLine& line, const std::string&) { line.options.csv = true; }},
    {"inject-error", nullptr, "change one result, to see the correctness check fail (default: off)",
     [](CommandLine& line, const std::string&) { line.options.inject_error = true; }},
    {"help", nullptr, "this text (also -h)", [](CommandLine&, const std::string&) { throw HelpWanted(); }},
};

const OptionSpec& find_option(const std::string& name) {
  for (const OptionSpec& spec : option_specs)
    if (name == spec.name) return spec;
  throw InputError("unknown option --" + name + " (-h lists them)");
}

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  line.options.preset = default_preset;
  line.options.window = WindowMemory::allocate;
  set_device(line, "auto");
  line.options.sync = 0;
  line.options.repeat = 1;
  for (bool& run : line.options.run) run = true;
  for (int k = 1; k < argc; ++k) {
    std::string word = argv[k];
    if (word == "-h") throw HelpWanted();
    if (word.rfind("--", 0) != 0) throw InputError("'" + word + "' is not an option (-h lists them)");
    const std::size_t equals = word.find('=');
    const OptionSpec& spec = find_option(word.substr(2, equals == std::string::npos ? equals : equals - 2));
    std::string argument;
    if (equals != std::string::npos) {
      if (spec.argument == nullptr) throw InputError("--" + std::string(spec.name) + " takes no value");
      argument = word.substr(equals + 1);
    } else if (spec.argument != nullptr) {
      if (++k == argc) throw InputError("--" + std::string(spec.name) + " needs a value");
      argument = argv[k];
    }
    try {
      spec.apply(line, argument);
    } catch (const InputError& error) {
      throw InputError("--" + std::string(spec.name) + ": " + error.what());
    }
  }
  if (line.stdin_wanted && line.stdin_refused) throw InputError("--stdin and --no-stdin contradict each other");
  return line;
}

}  // namespace

int parse_integer(const std::string& text) {
  constexpr long limit = 1000000000;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') throw InputError("'" + text + "' is not an integer");
  if (errno == ERANGE || value < -limit || value > limit) throw InputError(text + " is out of range");
  return static_cast<int>(value);
}

const char* preset_name(int preset) { return presets[preset].name; }

Options read_options(int argc, char** argv) {
  CommandLine line = parse_command_line(argc, argv);
  bool any_given = line.preset_given;
  for (const bool given : line.given) any_given = any_given || given;

  Options options = line.options;
  for (int v = 0; v < Options::values; ++v) options.value[v] = presets[options.preset].value[v];
  options.source = InputSource::preset;
  const bool look_for_input = line.stdin_wanted || (!any_given && !line.stdin_refused);
  if (look_for_input && read_standard_input(line.stdin_wanted, options.value))
    options.source = InputSource::standard_input;
  else if (line.stdin_wanted)
    throw InputError("--stdin: standard input is empty; it should hold lx ly lz mx my mz n niface niel nshare");
  for (int v = 0; v < Options::values; ++v)
    if (line.given[v]) options.value[v] = line.input_value[v];

  for (int v = Options::lx; v <= Options::lz; ++v)
    if (options.value[v] < 1 && (line.given[v] || options.source == InputSource::standard_input))
      throw InputError(std::string(option_specs[v].name) + "=" + std::to_string(options.value[v]) +
                       ": a grid needs at least 1 process in each direction");
  return options;
}

namespace {

std::string grid_text(const Options& options) {
  std::string text;
  for (int v = Options::lx; v <= Options::lz; ++v) {
    if (!text.empty()) text += " x ";
    text += options.value[v] > 0 ? std::to_string(options.value[v]) : "any";
  }
  return text;
}

}  // namespace

Problem Options::problem_for(int ranks) const {
  Problem problem{};
  int fixed = 1;
  for (int axis = 0; axis < 3; ++axis) {
    problem.grid[axis] = value[lx + axis];
    problem.elements[axis] = value[mx + axis];
    // Sizes whose product does not divide the number of ranks would be an MPI error.
    if (problem.grid[axis] > 0) fixed = problem.grid[axis] > ranks / fixed ? 0 : fixed * problem.grid[axis];
    if (fixed == 0 || ranks % fixed != 0)
      throw InputError(std::to_string(ranks) + " processes do not form a grid of " + grid_text(*this));
  }
  FACES_MPI(MPI_Dims_create(ranks, 3, problem.grid));
  problem.points = value[n];
  problem.niface = value[niface];
  problem.niel = value[niel];
  problem.nshare = std::abs(value[nshare]);
  problem.compute = compute == Compute::as_nshare_says ? value[nshare] >= 0 : compute == Compute::on;
  const std::string reason = why_invalid(problem, ranks);
  if (!reason.empty()) throw InputError(reason);
  return problem;
}

std::string help_text() {
  std::string text =
      "usage: mpiexec -n RANKS faces [OPTION]...\n"
      "       echo lx ly lz mx my mz n niface niel nshare | mpiexec -n RANKS faces [OPTION]...\n"
      "\n"
      "Nearest-neighbour exchange of faces, edges and corners with up to 26 neighbours, and\n"
      "the sum of shared points: by point-to-point messages (p2p), by active-target one-sided\n"
      "MPI (rma), and stream-triggered (st). The ten input values are those of the public\n"
      "Faces, on standard input or as options:\n\n";
  for (const OptionSpec& spec : option_specs) {
    std::string left = std::string("  --") + spec.name + (spec.argument != nullptr ? " " : "") +
                       (spec.argument != nullptr ? spec.argument : "");
    left.resize(std::max<std::size_t>(left.size() + 1, 22), ' ');
    text += left + spec.help + "\n";
  }
  text += "\nSizes (mx my mz n niface niel nshare):\n";
  for (const Preset& preset : presets) {
    std::string left = std::string("  ") + preset.name;
    left.resize(10, ' ');
    std::string numbers;
    for (int v = Options::mx; v < Options::values; ++v) numbers += std::to_string(preset.value[v]) + " ";
    numbers.resize(std::max<std::size_t>(numbers.size(), 22), ' ');
    text += left + numbers + preset.about + "\n";
  }
  text +=
      "\nVariants:\n"
      "  p2p               MPI_Isend, MPI_Irecv\n"
      "  rma               MPI_Win_post, MPI_Win_start, MPI_Put, MPI_Win_complete, MPI_Win_wait\n"
      "  st                the same epochs, enqueued on a stream\n"
      "  st-fused          both epochs closed by MPIX_Win_complete_wait_stream\n"
      "  st-lazy           with the promise mpix_lazy_post\n"
      "  st-captured       in a graph of up to 32 exchanges, launched again and again (GPU only)\n"
      "  st-lazy-fused, st-captured-fused, st-captured-lazy, st-captured-lazy-fused\n";
  text += "\nExit status: 0, results correct; 1, not; 2, the input makes no sense.\n";
  return text;
}

}  // namespace faces
