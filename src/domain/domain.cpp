// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/domain.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "device/host/bell.h"
#include "team/differing.h"

namespace mpix {
namespace {

/// Control memory of a process that is mostly lanes; few ranks have long ones.
constexpr std::uint64_t usual_lanes_bytes = 64 << 20;
constexpr std::uint32_t preset_pending = 1024, most_preset_lines = 4096, least_preset_lines = 64;
constexpr std::uint32_t most_preset_inline = 4096;
constexpr std::uint32_t most_of_pending = 1u << 20;

bool is_power_of_two(std::uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

/// Lines of a notification with so many bytes.
std::uint32_t lines_with(std::uint32_t bytes) { return dev::lines_of(dev::how_in_lines(bytes, 0)); }

std::uint32_t preset_lines(std::uint64_t ranks_of_a_process, std::uint64_t processes) {
  std::uint32_t lines = most_preset_lines;
  while (lines > least_preset_lines && ranks_of_a_process * processes * lines * sizeof(Line) > usual_lanes_bytes)
    lines /= 2;
  return lines;
}

const char* name_of(dev::DevCall call) {
  switch (call) {
    case dev::DevCall::none:
      return "?";
    case dev::DevCall::init:
      return "MPIX_Dev_init";
    case dev::DevCall::put:
      return "MPIX_Dev_put";
    case dev::DevCall::get:
      return "MPIX_Dev_get";
    case dev::DevCall::put_notify:
      return "MPIX_Dev_put_notify";
    case dev::DevCall::get_notify:
      return "MPIX_Dev_get_notify";
    case dev::DevCall::notify:
      return "MPIX_Dev_notify";
    case dev::DevCall::wait:
      return "MPIX_Dev_wait";
    case dev::DevCall::test:
      return "MPIX_Dev_test";
    case dev::DevCall::flush:
      return "MPIX_Dev_flush";
    case dev::DevCall::barrier:
      return "MPIX_Dev_barrier";
    case dev::DevCall::win_open:
      return "MPIX_Dev_win_open";
    case dev::DevCall::win_close:
      return "MPIX_Dev_win_close";
  }
  return "?";
}

const char* reason(dev::Result result) {
  switch (result) {
    case dev::Result::ok:
      return "no error";
    case dev::Result::argument:
      return "the grid has not as many blocks as the process has ranks, or MPIX_Dev_finish was called before";
    case dev::Result::buffer:
      return "no buffer";
    case dev::Result::count:
      return "a negative count";
    case dev::Result::group:
      return "no such group of ranks";
    case dev::Result::memory:
      return "no room: notifications that nobody asked for fill the list of those set aside (info mpix_dev_pending), "
             "or "
             "too many windows are open";
    case dev::Result::not_attached:
      return "the memory is not attached";
    case dev::Result::other:
      return "the kernel was compiled with the headers of another libmpix";
    case dev::Result::range:
      return "outside of the target's part of the window";
    case dev::Result::rank:
      return "no such rank";
    case dev::Result::synchronization:
      return "the domain is broken: a wait ran into its time-out, or a process cannot be reached";
    case dev::Result::tag:
      return "not a tag";
    case dev::Result::window:
      return "no such window";
  }
  return "?";
}

}  // namespace

struct Domain::Card {
  std::uint32_t abi, ranks_here;
  std::int64_t lane_lines, most_pending, inline_bytes;  ///< as asked for; negative: not
  std::uint64_t place;
  std::uint32_t takes_turns;  ///< with other processes of the place
  std::uint32_t preferred_inline;
};

/// What a process puts into a window, or attaches.
struct Domain::Memory {
  ExportedMemory exported;
  std::uint64_t own_base;
  std::uint32_t present, unused;
};

std::vector<Domain::Card> Domain::introduce(Bootstrap& bootstrap, std::uint32_t ranks_here,
                                            const DomainOptions& options) {
  const auto or_none = [](const std::optional<std::uint32_t>& value) {
    return value ? static_cast<std::int64_t>(*value) : std::int64_t{-1};
  };
  Card card{};
  card.abi = MPIX_DEV_ABI;
  card.ranks_here = ranks_here;
  card.lane_lines = or_none(options.lane_lines);
  card.most_pending = or_none(options.most_pending);
  card.inline_bytes = or_none(options.inline_bytes);
  card.place = device_.place();
  card.takes_turns = device_.wants_guards_where_shared();
  card.preferred_inline =
      static_cast<std::uint32_t>(std::min<std::size_t>(device_.preferred_eager_bytes(), most_preset_inline));
  std::vector<Card> cards = bootstrap.allgather(card);

  const auto check = [&](const char* what, auto value_of) {
    std::vector<std::string> texts;
    for (const Card& one : cards)
      texts.push_back(value_of(one) < 0 ? std::string("none") : std::to_string(value_of(one)));
    const std::string by_rank = differing(texts);
    if (!by_rank.empty()) throw Error(Fault::argument, std::string(what) + " differs between the ranks: " + by_rank);
  };
  check("info mpix_dev_lane_lines", [](const Card& one) { return one.lane_lines; });
  check("info mpix_dev_pending", [](const Card& one) { return one.most_pending; });
  check("info mpix_dev_inline", [](const Card& one) { return one.inline_bytes; });
  std::uint64_t ranks = 0;
  for (const Card& one : cards) ranks += one.ranks_here;
  if (ranks == 0) throw Error(Fault::argument, "no process brings a rank");
  if (ranks >= dev::most_ranks) throw Error(Fault::argument, std::to_string(ranks) + " ranks are too many");
  for (const Card& one : cards) {
    if (one.place == 0 || !one.takes_turns) continue;
    if (std::count_if(cards.begin(), cards.end(), [&](const Card& other) { return other.place == one.place; }) > 1)
      throw Error(Fault::unsupported,
                  "processes share a GPU in turns: while the kernel of one waits for the other's, that cannot run. "
                  "MPS lets both run at once");
  }
  return cards;
}

void Domain::choose_sizes(const std::vector<Card>& cards, const DomainOptions& options) {
  std::uint64_t most_here = 1;
  std::uint32_t preferred = most_preset_inline;
  for (const Card& card : cards) {
    most_here = std::max<std::uint64_t>(most_here, card.ranks_here);
    preferred = std::min(preferred, card.preferred_inline);
  }
  param_.most_pending = options.most_pending.value_or(preset_pending);
  if (param_.most_pending < 1 || param_.most_pending > most_of_pending)
    throw Error(Fault::argument, "info mpix_dev_pending is 1 to " + std::to_string(most_of_pending));
  std::uint32_t lines = preset_lines(most_here, cards.size());
  // What was asked for travels with the notification, as far as there can be lanes for it.
  while (options.inline_bytes && lines < dev::most_lane_lines && lines_with(*options.inline_bytes) > lines / 2)
    lines *= 2;
  param_.lane_lines = options.lane_lines.value_or(lines);
  if (!is_power_of_two(param_.lane_lines) || param_.lane_lines < dev::least_lane_lines ||
      param_.lane_lines > dev::most_lane_lines)
    throw Error(Fault::argument, "info mpix_dev_lane_lines is a power of two from " +
                                     std::to_string(dev::least_lane_lines) + " to " +
                                     std::to_string(dev::most_lane_lines));
  while ((1u << param_.lane_shift) < param_.lane_lines) ++param_.lane_shift;
  std::uint32_t fitting = std::min(preferred, most_preset_inline);
  while (lines_with(fitting) > param_.lane_lines / 4) fitting /= 2;
  param_.inline_bytes = options.inline_bytes.value_or(fitting);
  if (param_.inline_bytes > dev::most_inline_bytes || lines_with(param_.inline_bytes) > param_.lane_lines)
    throw Error(Fault::argument, "info mpix_dev_inline: " + std::to_string(param_.inline_bytes) +
                                     " bytes do not fit into a lane of " + std::to_string(param_.lane_lines) +
                                     " lines");
}

Domain::Domain(std::uint32_t ranks_here, const DomainOptions& options, std::shared_ptr<const Team> team,
               Bootstrap& bootstrap, Device& device, const Settings& settings, OperationBudget* budget,
               const std::string& why_no_network)
    : team_(std::move(team)), device_(device), settings_(settings) {
  const std::vector<Card> cards = introduce(bootstrap, ranks_here, options);
  if (team_->group().size() != team_->locals().size())
    throw Error(Fault::unsupported,
                "the processes of a domain share memory on each node; some of these have another device, or other "
                "name spaces");
  if (team_->spans_nodes() && !budget)
    throw Error(Fault::unsupported, "the processes of a domain are on several nodes, and there is no network: " +
                                        (why_no_network.empty() ? team_->why_not() : why_no_network));
  choose_sizes(cards, options);
  param_.abi = MPIX_DEV_ABI;
  param_.process = static_cast<std::uint32_t>(team_->local(own_process()));
  param_.processes = static_cast<std::uint32_t>(team_->locals().size());
  for (const Card& card : cards) {
    first_ranks_.push_back(param_.ranks);
    param_.ranks += card.ranks_here;
  }
  first_ranks_.push_back(param_.ranks);
  param_.first_rank = first_ranks_[static_cast<std::size_t>(own_process())];
  param_.ranks_here = ranks_here;
  for (const int process : team_->locals()) {
    if (process < own_process()) param_.first_on_node += ranks_of(process);
    param_.ranks_on_node += ranks_of(process);
  }
  const Card& mine = cards[static_cast<std::size_t>(own_process())];
  if (mine.place != 0)
    sharers_ = static_cast<std::uint32_t>(
        std::count_if(cards.begin(), cards.end(), [&](const Card& card) { return card.place == mine.place; }));
  param_.lanes_at = dev::lanes_at(param_.processes, param_.most_pending);
  param_.inbox_bytes =
      (param_.lanes_at + std::uint64_t{param_.processes} * param_.lane_lines * sizeof(Line) + 255) / 256 * 256;
  places_ = dev::places(param_.ranks, param_.processes);
  try {
    make_segment(bootstrap);
    fill_segment(cards);
    if (team_->spans_nodes()) make_courier(bootstrap, *budget);
    // All have filled theirs, and mapped the others'.
    (void)bootstrap.allgather(std::uint64_t{0});
  } catch (...) {
    courier_.reset();
    release_mappings(segments_);
    if (segment_.base) device_.release(segment_.base);
    throw;
  }
}

void Domain::make_courier(Bootstrap& bootstrap, OperationBudget& budget) {
  CourierDomain domain;
  domain.process = own_process();
  domain.first_ranks = first_ranks_;
  domain.most_pending = param_.most_pending;
  domain.segment = segment_.base;
  domain.windows_at = places_.windows;
  domain.released = param_.released;
  domain.patience = settings_.timeout_seconds;
  domain.fails_on_timeout = settings_.fail_on_timeout;
  const bool rings = std::strcmp(device_.name(), "host") == 0;
  domain.wake_rank = [this, rings](std::uint32_t here) {
    if (rings) ring(reinterpret_cast<Bell*>(inbox(here)));
  };
  domain.wake_process = [this, rings] {
    if (rings) ring(reinterpret_cast<Bell*>(segment_.base));
  };
  domain.fail = [this](const std::string& why) {
    if (reports_->is_released()) return;
    log(LogLevel::error, "domain: " + why + "; its ranks wait no more, and their calls fail");
    reports_->release();
  };
  courier_ = std::make_unique<Courier>(std::move(domain), team_, bootstrap, device_, budget);
  param_.far_words = courier_->words();
  param_.far_ranks = courier_->ranks();
  param_.far_tasks = courier_->tasks();
  param_.far_data = courier_->data();
}

void Domain::make_segment(Bootstrap& bootstrap) {
  segment_ = device_.allocate(places_.inboxes + param_.ranks_here * param_.inbox_bytes);
  param_.segment = segment_.base;
  const std::vector<int>& locals = team_->locals();
  const auto all = bootstrap.node_allgather(device_.export_memory(segment_.base), locals.size());
  for (std::size_t i = 0; i < locals.size(); ++i) segments_.push_back(map(locals[i], all[i], segment_.base));

  std::vector<char*> bases, inboxes;
  for (int process = 0; process < team_->size(); ++process) {
    const int local = team_->local(process);
    char* const base = local < 0 ? nullptr : segments_[static_cast<std::size_t>(local)].base;
    if (base) bases.push_back(base);
    for (std::uint32_t i = 0; i < ranks_of(process); ++i)
      inboxes.push_back(base ? base + places_.inboxes + i * param_.inbox_bytes : nullptr);
  }
  segment_table_ = device_.upload(bases.data(), bases.size() * sizeof(char*));
  inbox_table_ = device_.upload(inboxes.data(), inboxes.size() * sizeof(char*));
  param_.segments = static_cast<char* const*>(segment_table_.get());
  param_.inboxes = static_cast<char* const*>(inbox_table_.get());
}

void Domain::fill_segment(const std::vector<Card>& cards) {
  const std::vector<std::uint64_t> room(param_.ranks, param_.lane_lines);
  device_.write(segment_.base + places_.room, room.data(), room.size() * sizeof room[0]);
  // Nobody arrives from where no ranks are.
  std::vector<std::uint64_t> there(std::size_t{dev::comms} * param_.processes, 0);
  for (std::uint32_t local = 0; local < param_.processes; ++local) {
    const bool has_none = cards[static_cast<std::size_t>(team_->locals()[local])].ranks_here == 0;
    for (const dev::Comm comm : {dev::world, dev::node})
      if (has_none) there[comm * param_.processes + local] = UINT64_MAX;
    if (local != param_.process) there[dev::device * param_.processes + local] = UINT64_MAX;
  }
  device_.write(segment_.base + places_.there, there.data(), there.size() * sizeof there[0]);

  constexpr std::size_t in_front = sizeof(dev::RankNote);
  const std::size_t notes = in_front + param_.ranks_here * sizeof(dev::RankNote);
  notes_ = device_.allocate_pinned(notes + dev::log_lines * sizeof(dev::LogLine));
  param_.released = reinterpret_cast<std::uint64_t*>(notes_.get());
  param_.notes = reinterpret_cast<dev::RankNote*>(notes_.get() + in_front);
  param_.log = reinterpret_cast<dev::LogLine*>(notes_.get() + notes);
  reports_ = std::make_unique<DomainReports>(param_.notes, param_.ranks_here, param_.first_rank,
                                             static_cast<std::uint32_t>(own_process()), param_.released, param_.log,
                                             settings_);
}

Domain::~Domain() {
  courier_.reset();
  reports_.reset();
  for (Attachment& one : attachments_) release_mappings(one.mappings);
  for (Attachment& one : windows_) release_mappings(one.mappings);
  release_mappings(segments_);
  device_.release(segment_.base);
}

void Domain::release_mappings(std::vector<Mapping>& mappings) noexcept {
  for (const Mapping& mapping : mappings)
    if (mapping.imported) device_.close_import(mapping.base);
  mappings.clear();
}

Domain::Mapping Domain::map(int process, const ExportedMemory& exported, char* own) {
  if (process == own_process()) return Mapping{own, false};
  return Mapping{device_.import_memory(exported), true};
}

dev::Inbox* Domain::inbox(std::uint32_t rank_here) const {
  return reinterpret_cast<dev::Inbox*>(segment_.base + places_.inboxes + rank_here * param_.inbox_bytes);
}

void Domain::attach(Bootstrap& bootstrap, void* base, std::size_t bytes) {
  const auto free = std::find_if(attachments_.begin(), attachments_.end(),
                                 [](const Attachment& one) { return one.mappings.empty(); });
  if (free == attachments_.end())
    throw Error(Fault::attach, std::to_string(attachments_.size()) + " attachments are there already");
  Memory mine{};
  std::uint64_t sizes[2] = {0, bytes};  // offset in the allocation, size
  if (bytes > 0) {
    device_.use_memory_of(base, bytes);
    const std::optional<Allocation> around = device_.shareable(base);
    char* const begin = static_cast<char*>(base);
    if (!around || begin + bytes > around->base + around->bytes)
      throw Error(Fault::attach, "other processes cannot map the memory: MPIX_Dev_alloc allocates some that they can");
    mine.exported = device_.export_memory(around->base);
    mine.present = 1;
    sizes[0] = static_cast<std::uint64_t>(begin - around->base);
    mine.own_base = reinterpret_cast<std::uintptr_t>(around->base);
  }
  const std::vector<Memory> all = bootstrap.allgather(mine);
  struct Sizes {
    std::uint64_t offset, bytes;
  };
  const std::vector<Sizes> all_sizes = bootstrap.allgather(Sizes{sizes[0], sizes[1]});
  Attachment made;
  made.own = static_cast<char*>(base);
  std::vector<dev::WindowEntry> entries(param_.processes);
  try {
    for (std::uint32_t local = 0; local < param_.processes; ++local) {
      const auto process = static_cast<std::size_t>(team_->locals()[local]);
      const Memory& memory = all[process];
      Mapping mapping;
      if (memory.present != 0)
        mapping = map(static_cast<int>(process), memory.exported,
                      reinterpret_cast<char*>(static_cast<std::uintptr_t>(memory.own_base)));
      made.mappings.push_back(mapping);
      if (memory.present != 0)
        entries[local] = {mapping.base + all_sizes[process].offset, all_sizes[process].bytes + 1};
    }
    const auto index = static_cast<std::size_t>(free - attachments_.begin());
    device_.write(segment_.base + places_.attached + index * param_.processes * sizeof(dev::WindowEntry),
                  entries.data(), entries.size() * sizeof entries[0]);
    (void)bootstrap.allgather(std::uint64_t{0});
  } catch (...) {
    release_mappings(made.mappings);
    throw;
  }
  *free = std::move(made);
}

void Domain::detach(Bootstrap& bootstrap, void* base) {
  const auto found = std::find_if(attachments_.begin(), attachments_.end(),
                                  [base](const Attachment& one) { return !one.mappings.empty() && one.own == base; });
  const std::uint64_t index = static_cast<std::uint64_t>(found - attachments_.begin());
  const std::vector<std::uint64_t> all = bootstrap.allgather(index);
  if (found == attachments_.end()) throw Error(Fault::attach, "this memory is not attached");
  if (std::any_of(all.begin(), all.end(), [index](std::uint64_t other) { return other != index; }))
    throw Error(Fault::attach, "the processes name different attachments");
  const std::vector<dev::WindowEntry> nothing(param_.processes);
  device_.write(segment_.base + places_.attached + index * param_.processes * sizeof(dev::WindowEntry), nothing.data(),
                nothing.size() * sizeof nothing[0]);
  (void)bootstrap.allgather(std::uint64_t{0});
  release_mappings(found->mappings);
}

int Domain::create_window(Bootstrap& bootstrap, void* const base[], const std::size_t bytes[]) {
  const auto free = std::find_if(windows_.begin(), windows_.end(), [](const Attachment& one) { return one.id == 0; });
  if (free == windows_.end())
    throw Error(Fault::memory, std::to_string(windows_.size()) + " windows are there already");
  // What this process has: allocations, and where in them each rank's part lies.
  struct Part {
    std::uint64_t allocation, offset, bytes;
  };
  std::vector<Part> parts;
  std::vector<Memory> allocations;
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) {
    Part part{0, 0, bytes[i]};
    if (bytes[i] >= dev::most_window_bytes) throw Error(Fault::argument, "a window's part is too large");
    if (bytes[i] > 0) {
      if (!base[i]) throw Error(Fault::argument, "rank " + std::to_string(param_.first_rank + i) + " has no base");
      device_.use_memory_of(base[i], bytes[i]);
      const std::optional<Allocation> around = device_.shareable(base[i]);
      char* const begin = static_cast<char*>(base[i]);
      if (!around || begin + bytes[i] > around->base + around->bytes)
        throw Error(Fault::attach,
                    "rank " + std::to_string(param_.first_rank + i) +
                        ": other processes cannot map its memory: MPIX_Dev_alloc allocates some that they "
                        "can");
      const auto own = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(around->base));
      const auto known = std::find_if(allocations.begin(), allocations.end(),
                                      [own](const Memory& one) { return one.own_base == own; });
      part.allocation = static_cast<std::uint64_t>(known - allocations.begin());
      part.offset = static_cast<std::uint64_t>(begin - around->base);
      if (known == allocations.end()) allocations.push_back(Memory{device_.export_memory(around->base), own, 1, 0});
    }
    parts.push_back(part);
  }
  const auto processes = static_cast<std::size_t>(team_->size());
  std::uint64_t most_here = 0;
  for (int process = 0; process < team_->size(); ++process)
    most_here = std::max<std::uint64_t>(most_here, ranks_of(process));
  const std::vector<std::uint64_t> counts = bootstrap.allgather(std::uint64_t{allocations.size()});
  const std::uint64_t most_allocations = std::max<std::uint64_t>(1, *std::max_element(counts.begin(), counts.end()));
  allocations.resize(most_allocations);
  parts.resize(std::max<std::uint64_t>(1, most_here));
  std::vector<Memory> all(most_allocations * processes);
  bootstrap.allgather(allocations.data(), most_allocations * sizeof(Memory), all.data());
  std::vector<Part> all_parts(parts.size() * processes);
  bootstrap.allgather(parts.data(), parts.size() * sizeof(Part), all_parts.data());

  const auto index = static_cast<std::uint32_t>(free - windows_.begin());
  Attachment made;
  made.id = 1;
  std::vector<dev::WindowEntry> entries, own;
  try {
    for (std::size_t process = 0; process < processes; ++process) {
      // What lies on other nodes has no address here.
      const bool is_near = team_->same_node(static_cast<int>(process));
      const std::size_t first = made.mappings.size();
      for (std::uint64_t i = 0; is_near && i < counts[process]; ++i) {
        const Memory& one = all[process * most_allocations + i];
        made.mappings.push_back(map(static_cast<int>(process), one.exported,
                                    reinterpret_cast<char*>(static_cast<std::uintptr_t>(one.own_base))));
      }
      for (std::uint32_t i = 0; i < ranks_of(static_cast<int>(process)); ++i) {
        const Part& part = all_parts[process * parts.size() + i];
        char* const at =
            is_near && part.bytes > 0 ? made.mappings[first + part.allocation].base + part.offset : nullptr;
        entries.push_back({at, part.bytes + 1});
        if (static_cast<int>(process) == own_process()) own.push_back(entries.back());
      }
    }
    if (courier_) courier_->know_window(index, own);
    device_.write(segment_.base + places_.windows + std::uint64_t{index} * param_.ranks * sizeof(dev::WindowEntry),
                  entries.data(), entries.size() * sizeof entries[0]);
    (void)bootstrap.allgather(std::uint64_t{0});
  } catch (...) {
    release_mappings(made.mappings);
    throw;
  }
  *free = std::move(made);
  return static_cast<int>(index);
}

void Domain::free_window(Bootstrap& bootstrap, int window) {
  const std::vector<std::int64_t> all = bootstrap.allgather(std::int64_t{window});
  if (std::any_of(all.begin(), all.end(), [window](std::int64_t other) { return other != window; }))
    throw Error(Fault::window, "the processes name different windows");
  if (window < 0 || window >= static_cast<int>(windows_.size()) || windows_[static_cast<std::size_t>(window)].id == 0)
    throw Error(Fault::window, "no such window");
  const std::vector<dev::WindowEntry> nothing(param_.ranks);
  device_.write(
      segment_.base + places_.windows + static_cast<std::uint64_t>(window) * param_.ranks * sizeof(dev::WindowEntry),
      nothing.data(), nothing.size() * sizeof nothing[0]);
  (void)bootstrap.allgather(std::uint64_t{0});
  if (courier_) courier_->know_window(static_cast<std::uint32_t>(window), {});
  Attachment& gone = windows_[static_cast<std::size_t>(window)];
  release_mappings(gone.mappings);
  gone = Attachment{};
}

MPIX_Dev_param Domain::begin_launch() {
  if (reports_->is_released()) throw Error(Fault::synchronization, "the domain is broken: it can only be freed");
  reports_->begin();
  MPIX_Dev_param param = param_;
  param.launch = ++launches_;
  return param;
}

void Domain::cancel_launch() { --launches_; }

bool Domain::wait_for_launches() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto nap_until = begin + std::chrono::milliseconds(1);
  double reported = 0;
  for (std::uint32_t i = 0; i < param_.ranks_here;) {
    if (load_acquire(&param_.notes[i].launch) >= launches_) {
      ++i;
      continue;
    }
    if (reports_->is_released()) return false;
    if (Clock::now() < nap_until)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (reports_->patience() <= 0 || seconds - reported < reports_->patience()) continue;
    reported = seconds;
    log(LogLevel::warn, "MPIX_Dev_free has waited for " + std::to_string(static_cast<int>(seconds)) + " s for rank " +
                            std::to_string(param_.first_rank + i) + ", which has not called MPIX_Dev_finish");
    if (!reports_->releases()) continue;
    reports_->release();
    return false;
  }
  return true;
}

bool Domain::wait_for_puts() {
  if (!courier_) return true;
  const auto* const header = reinterpret_cast<const dev::Header*>(segment_.base);
  return courier_->drain(device_.read_word(&header->tasks_given));
}

Domain::Failure Domain::failure() const {
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) {
    const dev::RankNote& note = param_.notes[i];
    if (load_acquire(&note.failed) == 0) continue;
    const auto result = static_cast<dev::Result>(note.failure);
    std::string text = "rank " + std::to_string(param_.first_rank + i) + ", " +
                       name_of(static_cast<dev::DevCall>(note.failed_call)) + ": " + reason(result) + " (window " +
                       std::to_string(note.failed_window) + ", rank " + std::to_string(note.failed_rank) + ", " +
                       std::to_string(note.failed_values[0]) + ", " + std::to_string(note.failed_values[1]) + ")";
    return Failure{result, std::move(text)};
  }
  return {};
}

void Domain::forget_failures() {
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) store_release(&param_.notes[i].failed, 0);
}

Domain::Counts Domain::counts() const {
  Counts counts;
  for (std::uint32_t i = 0; i < param_.ranks_here; ++i) {
    dev::Inbox one{};
    device_.read(&one, inbox(i), sizeof one);
    counts.taken += one.reading.taken;
    counts.pending += one.reading.live;
  }
  if (courier_) counts.pending += courier_->waiting();
  return counts;
}

}  // namespace mpix
