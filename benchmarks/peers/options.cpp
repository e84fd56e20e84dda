// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "benchmarks/command_line.h"

namespace peers {
namespace {

using benchmark::split;

double number(const std::string& text, double least) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= 1e9))
    throw std::runtime_error("'" + text + "' is not a number that fits");
  return value;
}

int integer(const std::string& text, int least) {
  int value = 0;
  if (!benchmark::read_number(text, least, 1000000000, value))
    throw std::runtime_error("'" + text + "' is not a whole number that fits");
  return value;
}

std::vector<std::size_t> sizes(const std::string& list) {
  std::vector<std::size_t> all;
  if (list != "none" && !benchmark::read_sizes(list, all))
    throw std::runtime_error(benchmark::wanted_sizes + std::string(" is needed"));
  return all;
}

std::vector<std::string> some_of(const std::string& list, const std::vector<std::string>& known) {
  std::vector<std::string> chosen = split(list);
  if (chosen.empty()) throw std::runtime_error("a name is needed");
  for (const std::string& name : chosen)
    if (!contains(known, name)) throw std::runtime_error("'" + name + "' is not known");
  return chosen;
}

struct Spec {
  const char* name;
  const char* preset;
  const char* help;
  std::function<void(Options&, const std::string&)> apply;
};

const std::vector<Spec>& specs() {
  static const std::vector<Spec> all = {
      {"exchange", "near,full",
       "of near (grid of 2 ranks a side), full (26 messages in a periodic grid), ring (2 neighbours), none",
       [](Options& o, const std::string& t) {
         o.exchanges = t == "none" ? std::vector<std::string>() : some_of(t, {"near", "full", "ring"});
       }},
      {"faces", "512,32k,128k,512k,2m", "bytes of a face",
       [](Options& o, const std::string& t) { o.faces = sizes(t); }},
      {"large", "64m,256m", "bytes of one put, for the bandwidth between pairs of GPUs; or none",
       [](Options& o, const std::string& t) { o.large = sizes(t); }},
      {"rows", "all",
       "of nccl, nccl-user, nccl-rma, nvshmem, nvshmem-all, mpi-p2p, mpi-rma (also where they are staged), mpix, "
       "mpix-lazy, "
       "mpix-fused, mpix-fused-lazy, "
       "mpix-user, mpix-user-lazy",
       [](Options& o, const std::string& t) {
         o.rows = some_of(t, {"all", "nccl", "nccl-user", "nccl-rma", "nvshmem", "nvshmem-all", "mpi-p2p", "mpi-rma",
                              "mpix", "mpix-lazy", "mpix-fused", "mpix-fused-lazy", "mpix-user", "mpix-user-lazy"});
         if (contains(o.rows, "all")) o.rows.clear();
       }},
      {"modes", "stream,graph,loop,unrolled",
       "how epochs are run; loop: all of them in one launch of a graph with a WHILE node, whose body is an epoch; "
       "unrolled: with as many epochs in its body as --body says",
       [](Options& o, const std::string& t) {
         o.modes = some_of(t, {"stream", "graph", "loop", "unrolled"});
       }},
      {"epochs", "1000", "in one measurement", [](Options& o, const std::string& t) { o.epochs = integer(t, 1); }},
      {"repeats", "7", "measurements of each row and mode, all of them in turn",
       [](Options& o, const std::string& t) { o.repeats = integer(t, 1); }},
      {"graph", "50", "epochs captured in a graph; even",
       [](Options& o, const std::string& t) {
         o.epochs_in_graph = integer(t, 2);
         if (o.epochs_in_graph % 2 != 0) throw std::runtime_error("an even number is needed");
       }},
      {"body", "200", "epochs captured in the body of an unrolled loop",
       [](Options& o, const std::string& t) { o.epochs_in_body = integer(t, 1); }},
      {"limit", "100", "milliseconds: a measurement that would take longer has fewer epochs",
       [](Options& o, const std::string& t) { o.limit_ms = number(t, 1); }},
      {"gpus", "0", "use so many GPUs, ranks in turn; 0: all. 1 makes the ranks share one",
       [](Options& o, const std::string& t) { o.gpus = integer(t, 0); }},
      {"mpi", "auto", "device, staged or auto: what the MPI rows hand to MPI; auto: as MPI says",
       [](Options& o, const std::string& t) {
         if (!contains({"auto", "device", "staged"}, t)) throw std::runtime_error("device, staged or auto is needed");
         o.mpi_memory = t;
       }},
      {"csv", "no", "rows as comma-separated values, all else in lines that start with #",
       [](Options& o, const std::string& t) {
         if (!contains({"yes", "no"}, t)) throw std::runtime_error("yes or no is needed");
         o.csv = t == "yes";
       }},
  };
  return all;
}

}  // namespace

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Options read_options(int argc, char** argv, bool* help) {
  Options options{};
  *help = false;
  for (const Spec& spec : specs()) spec.apply(options, spec.preset);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-h" || word == "--help") {
      *help = true;
      return options;
    }
    const std::size_t equals = std::min(word.find('='), word.size());
    const auto spec = std::find_if(specs().begin(), specs().end(), [&](const Spec& s) {
      return word.compare(0, equals, std::string("--") + s.name) == 0;
    });
    if (spec == specs().end()) throw std::runtime_error("unknown option " + word + " (-h lists them)");
    const bool flag = std::string(spec->name) == "csv";
    if (equals == word.size() && !flag) throw std::runtime_error(word + " needs a value: " + word + "=" + spec->preset);
    try {
      spec->apply(options, equals == word.size() ? "yes" : word.substr(equals + 1));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(word + ": " + error.what());
    }
  }
  return options;
}

void print_help() {
  std::printf(
      "peers: the halo exchange of GPUs on a node by libmpix, and by other libraries in the same run\n"
      "usage: mpiexec -n RANKS peers [OPTION...]; one GPU a rank\n\n");
  for (const Spec& spec : specs()) std::printf("  --%s=%s\n      %s\n", spec.name, spec.preset, spec.help);
  std::printf("  -h\n      this text, with the default of each option\n");
}

}  // namespace peers
