// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "base/error.h"

extern char** environ;

namespace mpix {
const std::vector<std::pair<const char*, CollectiveWay>> collective_way_names = {
    {"auto", CollectiveWay::automatic},  {"lines", CollectiveWay::lines},     {"packs", CollectiveWay::packs},
    {"direct", CollectiveWay::direct},   {"gsb", CollectiveWay::gsb},         {"btb", CollectiveWay::btb},
    {"gsb-btb", CollectiveWay::gsb_btb}, {"btb-gsb", CollectiveWay::btb_gsb}, {"staged", CollectiveWay::staged},
    {"copies", CollectiveWay::copies}};

namespace {

constexpr const char prefix[] = "MPIX_";
constexpr std::size_t prefix_length = sizeof prefix - 1;

[[noreturn]] void reject(const SettingInfo& setting, const std::string& text) {
  throw Error(Fault::argument, std::string(setting.name) + "=" + text + ": expected " + setting.values);
}

bool parse_flag(const SettingInfo& setting, const std::string& text) {
  for (const char* yes : {"1", "on", "yes", "true"})
    if (text == yes) return true;
  for (const char* no : {"0", "off", "no", "false"})
    if (text == no) return false;
  reject(setting, text);
}

double parse_number(const SettingInfo& setting, const std::string& text, double least, double most) {
  char* end = nullptr;
  errno = 0;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || errno == ERANGE || !std::isfinite(value) || value < least || value > most)
    reject(setting, text);
  return value;
}

/// A size in bytes, with an optional k, m or g (powers of 1024).
std::size_t parse_size(const SettingInfo& setting, const std::string& text, double most) {
  std::string digits = text;
  double unit = 1;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k':
      case 'K':
        unit = 1024.0;
        break;
      case 'm':
      case 'M':
        unit = 1024.0 * 1024;
        break;
      case 'g':
      case 'G':
        unit = 1024.0 * 1024 * 1024;
        break;
      default:
        break;
    }
    if (unit != 1) digits.pop_back();
  }
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) reject(setting, text);
  const double bytes = std::strtod(digits.c_str(), nullptr) * unit;
  if (bytes > most) reject(setting, text);
  return static_cast<std::size_t>(bytes);
}

long parse_integer(const SettingInfo& setting, const std::string& text, long least, long most) {
  const double value = parse_number(setting, text, static_cast<double>(least), static_cast<double>(most));
  if (value != std::floor(value)) reject(setting, text);
  return static_cast<long>(value);
}

template <class Value>
Value parse_choice(const SettingInfo& setting, const std::string& text,
                   const std::vector<std::pair<const char*, Value>>& choices) {
  for (const auto& choice : choices)
    if (text == choice.first) return choice.second;
  reject(setting, text);
}

struct Row {
  SettingInfo info;
  void (*read)(Settings&, const SettingInfo&, const std::string&);
};

using Text = const std::string&;
using Info = const SettingInfo&;

const Row rows[] = {
    {{"MPIX_DEVICE", "auto|cuda|hip|host", "auto",
      "where streams and window memory live; auto: the first that is built and has a device"},
     [](Settings& s, Info i, Text t) {
       s.device =
           parse_choice<const char*>(i, t, {{"auto", "auto"}, {"cuda", "cuda"}, {"hip", "hip"}, {"host", "host"}});
     }},
    {{"MPIX_LOG", "error|warn|info|debug", "warn", "what is told on standard error; info: one line at start"},
     [](Settings& s, Info i, Text t) {
       s.log = parse_choice<LogLevel>(i, t,
                                      {{"error", LogLevel::error},
                                       {"warn", LogLevel::warn},
                                       {"info", LogLevel::info},
                                       {"debug", LogLevel::debug}});
     }},
    {{"MPIX_STATS", "on|off", "off", "print each window's counters when it is freed"},
     [](Settings& s, Info i, Text t) { s.stats = parse_flag(i, t); }},
    {{"MPIX_EAGER_SIZE", "bytes (k, m), 0 to 1m, or auto", "auto",
      "most bytes an epoch sends to one target through its mailbox; with more, all its puts go direct. The same on all "
      "ranks. auto: 64 on the host, 128k on a GPU, 512k where packs are used"},
     [](Settings& s, Info i, Text t) {
       if (t != "auto") s.eager_bytes = parse_size(i, t, 1024 * 1024);
     }},
    {{"MPIX_PACKS_ABOVE", "bytes (k, m), off, or auto", "auto",
      "what an epoch sends to one target through its mailbox goes in packs if it is more, where the link carries these "
      "whole. auto: 64k where NVLink connects GPUs, else off"},
     [](Settings& s, Info i, Text t) {
       if (t == "off")
         s.packs_above = SIZE_MAX;
       else if (t != "auto")
         s.packs_above = parse_size(i, t, 1024 * 1024);
     }},
    {{"MPIX_MAILBOX_SLOTS", "1, 2, 4, … 64", "4",
      "an origin may be so many epochs, less one, ahead of the posts of each target. The same on all ranks"},
     [](Settings& s, Info i, Text t) {
       const long slots = parse_integer(i, t, 1, 64);
       if ((slots & (slots - 1)) != 0) reject(i, t);
       s.mailbox_slots = static_cast<std::uint32_t>(slots);
     }},
    {{"MPIX_MERGE", "on|off", "on", "one kernel for all operations of an epoch, or (for comparison) one for each"},
     [](Settings& s, Info i, Text t) { s.merge = parse_flag(i, t); }},
    {{"MPIX_POST", "auto|prompt|free", "auto",
      "when a post goes: at once, in a launch of its own; or with the window's next call, and where none comes "
      "soon, by itself. Prompt all the same in graphs and to other nodes. auto: free on a GPU, for windows whose next "
      "calls come soon"},
     [](Settings& s, Info i, Text t) {
       s.posts =
           parse_choice<Posts>(i, t, {{"auto", Posts::automatic}, {"prompt", Posts::prompt}, {"free", Posts::free}});
     }},
    {{"MPIX_WAIT", "auto|kernel|memory", "auto",
      "how streams of a GPU wait: in kernels that poll, or in memory operations, which let other processes have the "
      "GPU meanwhile. The same on all ranks. auto: memory where ranks of a window, or of collectives, share a GPU "
      "without MPS"},
     [](Settings& s, Info i, Text t) {
       s.waits = parse_choice<Waits>(
           i, t, {{"auto", Waits::automatic}, {"kernel", Waits::kernel}, {"memory", Waits::memory}});
     }},
    {{"MPIX_LAUNCH", "auto|plain|dependent|graph", "auto",
      "how kernels are launched on a GPU outside of captures: plainly, set up while the kernel in front still runs, or "
      "as prepared graphs of one kernel; auto: each window tries which calls are faster as graphs, and launches the "
      "others dependent where the GPU can, else plain"},
     [](Settings& s, Info i, Text t) {
       s.launch_form = parse_choice<LaunchForm>(i, t,
                                                {{"auto", LaunchForm::automatic},
                                                 {"plain", LaunchForm::plain},
                                                 {"dependent", LaunchForm::dependent},
                                                 {"graph", LaunchForm::graph}});
     }},
    {{"MPIX_COPY_ENGINE_SIZE", "bytes (k, m, g)", "16m",
      "from which size on the GPU's copy engine carries a put, instead of a kernel"},
     [](Settings& s, Info i, Text t) { s.copy_engine_bytes = parse_size(i, t, 1e18); }},
    {{"MPIX_RANGES", "on|off", "off", "mark each stream call for the vendor's profiler (NVTX)"},
     [](Settings& s, Info i, Text t) { s.ranges = parse_flag(i, t); }},
    {{"MPIX_TIMEOUT", "seconds, 0: never", "60", "a stream that waits longer reports which ranks it misses"},
     [](Settings& s, Info i, Text t) { s.timeout_seconds = parse_number(i, t, 0, 1e9); }},
    {{"MPIX_ON_TIMEOUT", "report|error", "report",
      "after the report wait on; or release the wait and mark the window broken"},
     [](Settings& s, Info i, Text t) {
       s.fail_on_timeout = parse_choice<bool>(i, t, {{"report", false}, {"error", true}});
     }},
    {{"MPIX_MPI_GPU_AWARE", "on|off, or auto", "auto",
      "whether MPI itself may touch memory of the GPU; auto: as MPIX_Query_cuda_support or …_rocm_support of MPI says"},
     [](Settings& s, Info i, Text t) {
       if (t != "auto") s.mpi_gpu_aware = parse_flag(i, t);
     }},
    {{"MPIX_COLL", "auto|lines|packs|direct|staged|copies|gsb|btb|gsb-btb|btb-gsb", "auto",
      "how the data of collectives on streams travel: with their flags, through memory of the library; likewise, with "
      "a flag for 15 words, between GPUs of NVIDIA that NVLink connects (elsewhere as auto); by reading and writing "
      "memory of the other ranks; by the copy engine and the CPU; or (all-reduce, reduce, bcast) along a tree, to "
      "compare with. The same on all ranks. auto: as MPIX_COLL_TABLE says, or by their size"},
     [](Settings& s, Info i, Text t) { s.collective_way = parse_choice<CollectiveWay>(i, t, collective_way_names); }},
    {{"MPIX_COLL_SELECT", "static|model|dynamic", "static",
      "what chooses the way of collectives on streams where MPIX_COLL is auto. static: MPIX_COLL_TABLE, or their size; "
      "model: likewise, with sizes that are measured when a communicator is prepared; dynamic: the calls, where they "
      "run, by how long those before took. The same on all ranks"},
     [](Settings& s, Info i, Text t) {
       s.collective_selection = parse_choice<WaySelection>(
           i, t, {{"static", WaySelection::fixed}, {"model", WaySelection::model}, {"dynamic", WaySelection::dynamic}});
     }},
    {{"MPIX_COLL_TABLE", "a file that mpix-tune has written, or none", "none",
      "which way collectives on streams take on a node, and in how many blocks, as it was measured. What it has no "
      "line for goes by size. The same on all ranks"},
     [](Settings& s, Info i, Text t) {
       if (t == "none") return;
       if (access(t.c_str(), R_OK) != 0)
         throw Error(Fault::argument,
                     std::string(i.name) + "=" + t + ": expected " + i.values + ": " + std::strerror(errno));
       s.collective_table = t;
     }},
    {{"MPIX_COLL_SCRATCH", "bytes (k, m, g), from 64k to 931g, or auto", "auto",
      "memory that a communicator's collectives on streams take on each rank; more where there are very many ranks. "
      "The same on all ranks. auto: 48m on GPUs, 4m on the host"},
     [](Settings& s, Info i, Text t) {
       if (t == "auto") return;
       s.collective_scratch = parse_size(i, t, 1e12);
       if (*s.collective_scratch < 64 * 1024) reject(i, t);
     }},
    {{"MPIX_COLL_ROUNDS_ABOVE", "number of nodes", "8",
      "where a communicator's ranks are on more nodes than that, as many on each, small collectives on streams go "
      "between nodes in rounds, in which a rank sends few messages; else each rank sends to all others at once. The "
      "same on all ranks"},
     [](Settings& s, Info i, Text t) {
       s.rail_rounds_above = static_cast<std::uint32_t>(parse_integer(i, t, 0, 1 << 20));
     }},
    {{"MPIX_CHANNEL_THREAD", "on|off", "off",
      "whether MPI_Init asks MPI for all threads, for handlers of channels that call MPI; off: as the program asks, "
      "and without them the program serves its channels itself"},
     [](Settings& s, Info i, Text t) { s.channel_thread = parse_flag(i, t); }},
    {{"MPIX_CHANNEL_CORE", "number of a core, or any", "any", "where the threads of channels run"},
     [](Settings& s, Info i, Text t) {
       s.channel_core = t == "any" ? -1 : static_cast<int>(parse_integer(i, t, 0, 1 << 16));
     }},
    {{"MPIX_NODE_SIZE", "ranks, 0: as the machine is", "0", "pretend that nodes hold so many ranks (for tests)"},
     [](Settings& s, Info i, Text t) { s.node_size = static_cast<int>(parse_integer(i, t, 0, 1 << 20)); }},
    {{"MPIX_SPIN", "microseconds, or auto", "auto",
      "how long a host stream polls before it sleeps; auto: 1000 for ranks of other nodes; else 200 where ranks have "
      "cores of their own, and 50 where not"},
     [](Settings& s, Info i, Text t) { s.spin_seconds = t == "auto" ? -1 : parse_number(i, t, 0, 1e9) * 1e-6; }},
    {{"MPIX_NIC", "auto|cxi|sockets|mpi|none", "auto",
      "how ranks of other nodes are reached: by the triggered operations of a provider of libfabric (cxi, sockets), by "
      "messages of MPI and a thread (mpi), or not at all; auto: cxi, else mpi where MPI has MPI_THREAD_MULTIPLE, else "
      "sockets. The same on all ranks"},
     [](Settings& s, Info i, Text t) {
       s.nic = parse_choice<const char*>(i, t,
                                         {{"auto", "auto"},
                                          {"cxi", "cxi"},
                                          {"sockets", "sockets"},
                                          {"mpi", "mpi"},
                                          {"proxy", "mpi"},  // its former name
                                          {"none", "none"}});
     }},
    {{"MPIX_NIC_EAGER_SIZE", "bytes (k, m), 0 to 1m, or auto", "auto",
      "most bytes an epoch sends to one target of another node in one gathered message; larger puts go direct. The "
      "same on all ranks. auto: 16k"},
     [](Settings& s, Info i, Text t) {
       if (t != "auto") s.nic_eager_bytes = parse_size(i, t, 1024 * 1024);
     }},
    {{"MPIX_THROTTLE", "adaptive|static|application", "adaptive",
      "what a call does that finds the budget of triggered operations used up: wait until as many as it needs are "
      "over, until all of the window's are, or fail"},
     [](Settings& s, Info i, Text t) {
       s.throttle = parse_choice<Throttle>(
           i, t,
           {{"adaptive", Throttle::adaptive}, {"static", Throttle::fixed}, {"application", Throttle::application}});
     }},
    {{"MPIX_TRIGGERED_OPS", "operations, at least 1, or auto", "auto",
      "budget of triggered operations of this process; auto: its share of the NIC's, 512 where the provider does not "
      "tell, no limit over messages of MPI"},
     [](Settings& s, Info i, Text t) {
       if (t != "auto") s.triggered_operations = static_cast<std::size_t>(parse_integer(i, t, 1, 1 << 20));
     }},
    {{"MPIX_NIC_GPU_DIRECT", "on|off", "off",
      "whether a GPU-aware MPI that carries epochs between nodes takes large puts from memory of the GPU, and leaves "
      "them there; off: through pinned memory of the library"},
     [](Settings& s, Info i, Text t) { s.nic_gpu_direct = parse_flag(i, t); }},
    {{"MPIX_NIC_CHAIN", "on|auto", "auto",
      "a signal is triggered by the delivery of the data before it always, or only where the provider does not keep "
      "them in order"},
     [](Settings& s, Info i, Text t) {
       s.always_chain = parse_choice<bool>(i, t, {{"on", true}, {"auto", false}});
     }},
    {{"MPIX_RELAY", "on|auto", "auto",
      "a thread carries what goes to and comes from ranks of other nodes always, or only for devices that need it, "
      "which are GPUs. The same on all ranks (for tests)"},
     [](Settings& s, Info i, Text t) {
       s.relay = parse_choice<bool>(i, t, {{"on", true}, {"auto", false}});
     }},
    {{"MPIX_COUNTER_LIMIT", "count, at least 1", "1073741824",
      "a counter of the NIC that has passed it is reset when it is idle (for tests)"},
     [](Settings& s, Info i, Text t) {
       s.counter_limit = static_cast<std::uint64_t>(parse_integer(i, t, 1, 1 << 30));
     }},
};

}  // namespace

const std::vector<SettingInfo>& settings_table() {
  static const std::vector<SettingInfo> table = [] {
    std::vector<SettingInfo> all;
    for (const Row& row : rows) all.push_back(row.info);
    return all;
  }();
  return table;
}

std::string setting_text(const SettingInfo& setting) {
  const char* text = std::getenv(setting.name);
  return text && *text ? text : setting.preset;
}

Settings Settings::from_environment() {
  Settings settings{};
  for (const Row& row : rows) row.read(settings, row.info, setting_text(row.info));
  return settings;
}

namespace {

/// Settings are matched by their letters, whatever case they are in.
bool same_letter(char a, char b) {
  return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
}

/// How many letters to change, add, take away or exchange with their neighbour (the way of Damerau, with whole rows).
std::size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      std::size_t& here = least[i][j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      here = std::min(
          {least[i - 1][j] + 1, least[i][j - 1] + 1, least[i - 1][j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
        here = std::min(here, least[i - 2][j - 2] + 1);
    }
  return least[a.size()][b.size()];
}

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words;
  for (std::size_t at = prefix_length; at <= name.size();) {
    const std::size_t end = std::min(name.find('_', at), name.size());
    words.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Of letters enough to mean the same.
bool one_begins_with_other(const std::string& a, const std::string& b) {
  const std::size_t length = std::min(a.size(), b.size());
  return length >= 3 && std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(length), b.begin(), same_letter);
}

/// The shortest setting that has all words of this name: EAGER is short for EAGER_SIZE. Null: none has.
const char* setting_of_words(const std::string& name) {
  const std::vector<std::string> asked = words_of(name);
  const char* shortest = nullptr;
  std::size_t least = 0;
  for (const Row& row : rows) {
    const std::vector<std::string> its = words_of(row.info.name);
    const bool has_all = std::all_of(asked.begin(), asked.end(), [&](const std::string& word) {
      return std::any_of(its.begin(), its.end(),
                         [&](const std::string& one) { return one_begins_with_other(word, one); });
    });
    if (!has_all || (shortest && its.size() >= least)) continue;
    shortest = row.info.name;
    least = its.size();
  }
  return shortest;
}

/// The setting that may have been meant: at most a third of its letters are wrong, or some of its words are there.
/// Null: none is near.
const char* nearest_setting(const std::string& name) {
  const char* nearest = nullptr;
  std::size_t least = 0;
  for (const Row& row : rows) {
    const std::size_t edits = edits_between(name, row.info.name);
    if (nearest && edits >= least) continue;
    nearest = row.info.name;
    least = edits;
  }
  return 3 * least <= std::strlen(nearest) - prefix_length ? nearest : setting_of_words(name);
}

}  // namespace

std::vector<std::string> unknown_settings() {
  std::vector<std::string> complaints;
  for (char** entry = environ; entry && *entry; ++entry) {
    if (std::strncmp(*entry, prefix, prefix_length) != 0) continue;
    const std::string name(*entry, std::strcspn(*entry, "="));
    const bool is_empty = std::strlen(*entry) <= name.size() + 1;
    const bool known =
        std::any_of(std::begin(rows), std::end(rows), [&](const Row& row) { return name == row.info.name; });
    if (known || is_empty) continue;
    const char* const nearest = nearest_setting(name);
    complaints.push_back("unknown setting " + name + ": " +
                         (nearest ? std::string("did you mean ") + nearest + "?" : "mpix-info lists the settings"));
  }
  return complaints;
}

}  // namespace mpix
