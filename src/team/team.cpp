// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "team/team.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "config.h"
#include "team/differing.h"

namespace mpix {
namespace {

/// Grows with every change of what ranks write into each other's memory, or tell each other.
constexpr std::uint32_t wire_version = 10;

/// In front of all that ranks tell each other, and the same for ever: which library this is.
struct Build {
  char name[8];
  std::uint32_t version;
  std::uint32_t shape;  ///< of what two compilers could lay out differently
  char release[16];

  static Build mine() {
    Build build{"libmpix", wire_version, 0, {}};
    for (std::size_t bytes :
         {sizeof(Bell), sizeof(GuardMarks), sizeof(PairWords), sizeof(Line), sizeof(NodeOffer), sizeof(void*)})
      build.shape = build.shape * 31 + static_cast<std::uint32_t>(bytes);
    std::snprintf(build.release, sizeof build.release, "%s", PACKAGE_VERSION);
    return build;
  }
  std::string text() const {
    return "libmpix " + std::string(release, strnlen(release, sizeof release)) + " (" + std::to_string(version) + "." +
           std::to_string(shape) + ")";
  }
};

constexpr std::uint32_t not_set = UINT32_MAX;

/// Settings of sizes are far below 4 GiB.
std::uint32_t told_size(const std::optional<std::size_t>& setting) {
  return setting ? static_cast<std::uint32_t>(std::min<std::size_t>(*setting, not_set - 1)) : not_set;
}

std::string number_text(std::uint32_t value) { return value == not_set ? "the preset" : std::to_string(value); }

const char* waits_text(Waits waits) {
  return waits == Waits::automatic ? "auto" : waits == Waits::kernel ? "kernel" : "memory";
}

}  // namespace

struct Team::Card {
  Build build;
  char device[8];
  std::uint64_t group;  ///< see Device::sharing_group()
  std::uint32_t eager_setting;
  std::uint16_t depth;
  std::uint8_t waits;
  // Where all ranks are on one node, what follows does not travel: what is in front of it fits one packet of
  // MpiBootstrap, and so takes one call of MPI, and not two.
  std::uint32_t network_eager_setting;
  bool needs_relay;  ///< this rank's kernels cannot reach other nodes, or so it shall seem
  bool gathers_small;
  bool marks_messages;  ///< see Network::keeps_words_whole()
  char nic_setting[8];
  char network[16];  ///< its name; empty: none
  NetworkAddress address;

  static std::size_t bytes(bool spans_nodes) {
    static_assert(offsetof(Card, network_eager_setting) <= 60, "it fits one packet of MpiBootstrap");
    return spans_nodes ? sizeof(Card) : offsetof(Card, network_eager_setting);
  }
  std::string device_name() const { return std::string(device, strnlen(device, sizeof device)); }
};

Team::Card Team::make_card(Device& device, const Settings& settings, const Network* network) {
  Card card{};
  card.build = Build::mine();
  std::snprintf(card.device, sizeof card.device, "%s", device.name());
  card.group = device.sharing_group();
  card.eager_setting = told_size(settings.eager_bytes);
  card.network_eager_setting = told_size(settings.nic_eager_bytes);
  card.depth = static_cast<std::uint16_t>(settings.mailbox_slots);
  card.waits = static_cast<std::uint8_t>(settings.waits);
  card.needs_relay = settings.relay || !device.serves_remote_work();
  std::snprintf(card.nic_setting, sizeof card.nic_setting, "%s", settings.nic.c_str());
  if (!network) return card;
  try {
    card.address = network->address();
    card.marks_messages = network->keeps_words_whole();
    card.gathers_small = !settings.nic_eager_bytes && network->capacity().operations != Capacity::any;
    std::snprintf(card.network, sizeof card.network, "%s", network->name().c_str());
  } catch (const Error& error) {
    why_not_ = error.what();
    log(LogLevel::info, why_not_);  // a call that needs it tells
  }
  return card;
}

/// "MPIX_NIC differs between the ranks: mpi on rank 0, none on rank 1"; empty: it does not.
template <class Text>
std::string Team::difference(const std::vector<Card>& cards, const std::string& what, Text text_of) {
  const std::string by_rank = differing(cards, text_of);
  return by_rank.empty() ? "" : what + " between the ranks: " + by_rank;
}

std::vector<Team::Card> Team::exchange(Bootstrap& ranks, const Card& mine) const {
  const std::size_t bytes = Card::bytes(spans_nodes());
  std::vector<Card> cards(nodes_.size());
  std::vector<char> told(bytes * cards.size());
  ranks.allgather(&mine, bytes, told.data());
  for (std::size_t rank = 0; rank < cards.size(); ++rank) std::memcpy(&cards[rank], &told[rank * bytes], bytes);
  return cards;
}

/// Every rank sees the same cards, so all throw or none, with the same text.
void Team::check_cards(const std::vector<Card>& cards) {
  const auto check = [&](const std::string& what, auto text_of) {
    const std::string text = difference(cards, what, text_of);
    if (!text.empty()) throw Error(Fault::unsupported, text);
  };
  const auto same = [&](auto value_of) {
    return std::all_of(cards.begin(), cards.end(),
                       [&](const Card& card) { return value_of(card) == value_of(cards.front()); });
  };
  const auto compare = [&](const char* setting, auto value_of, auto text_of) {
    if (!same(value_of))
      check(std::string(setting) + " differs", [&](const Card& card) { return std::string(text_of(value_of(card))); });
  };
  const bool one_build = std::all_of(cards.begin(), cards.end(), [&](const Card& card) {
    return std::memcmp(&card.build, &cards.front().build, sizeof card.build) == 0;
  });
  if (!one_build) check("the library differs", [](const Card& card) { return card.build.text(); });
  compare(
      "MPIX_EAGER_SIZE", [](const Card& card) { return card.eager_setting; }, number_text);
  compare(
      "MPIX_MAILBOX_SLOTS", [](const Card& card) { return std::uint32_t{card.depth}; }, number_text);
  compare(
      "MPIX_WAIT", [](const Card& card) { return static_cast<Waits>(card.waits); }, waits_text);
}

/// A pair needs both sides, so each tells what it found out.
void Team::connect(const std::vector<Card>& cards, Network& network) {
  const Card& mine = cards[static_cast<std::size_t>(me_)];
  const auto refusal = [&](const Card& there) -> std::string {
    if (std::strcmp(mine.network, there.network) != 0)
      return difference(cards, "the network differs",
                        [](const Card& card) { return card.network[0] ? std::string(card.network) : "none"; });
    if (mine.network_eager_setting != there.network_eager_setting)
      return difference(cards, "MPIX_NIC_EAGER_SIZE differs",
                        [](const Card& card) { return number_text(card.network_eager_setting); });
    if (mine.marks_messages == there.marks_messages) return "";
    return difference(cards, "MPIX_NIC_CHAIN differs",
                      [](const Card& card) { return std::string(card.marks_messages ? "auto" : "on"); });
  };
  for (int rank = 0; rank < size(); ++rank) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    if (same_node(rank) || card.network[0] == '\0') continue;
    if (const std::string refused = refusal(card); !refused.empty()) {
      why_not_ = refused;
      continue;
    }
    Far& far = far_[static_cast<std::size_t>(rank)];
    try {
      far.connection = network.connect(card.address);
      far.reachable = true;
    } catch (const Error& error) {
      why_not_ = error.what();
    }
  }
}

Team::Team(Bootstrap& ranks, Device& device, const Settings& settings, Network* network,
           const std::string& why_no_network)
    : me_(ranks.rank()), why_not_(why_no_network) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    nodes_.push_back(ranks.node_of(rank));
    if (ranks.same_node(rank)) locals_.push_back(rank);
  }
  const std::vector<Card> cards = exchange(ranks, make_card(device, settings, network));
  check_cards(cards);
  const auto card_of = [&](int rank) -> const Card& { return cards[static_cast<std::size_t>(rank)]; };
  for (int rank : locals_) {
    devices_.push_back(card_of(rank).device_name());
    if (devices_.back() == card_of(me_).device_name() && card_of(rank).group == card_of(me_).group)
      group_.push_back(rank);
  }
  memory_ = device.new_team_memory();
  if (!spans_nodes()) return;  // on all ranks or on none
  relays_ = std::any_of(cards.begin(), cards.end(), [](const Card& card) { return card.needs_relay; });
  far_.resize(nodes_.size());
  for (int rank = 0; rank < size(); ++rank) {
    Far& there = far_[static_cast<std::size_t>(rank)];
    there.gathers_small = card_of(rank).gathers_small;
    there.other_device = card_of(rank).device_name() != card_of(me_).device_name();
  }
  if (network) connect(cards, *network);
  Unreached unreached;
  for (int rank = 0; rank < size(); ++rank)
    if (!same_node(rank) && !far(rank).reachable) unreached.add(rank);
  const std::vector<Unreached> all = ranks.allgather(unreached);
  bool reaches_all = true;
  for (int rank = 0; rank < size(); ++rank) {
    Far& there = far_[static_cast<std::size_t>(rank)];
    if (all[static_cast<std::size_t>(rank)].has(me_)) there.reachable = false;
    reaches_all = reaches_all && (same_node(rank) || there.reachable);
  }
  // Whatever else was noticed follows from that.
  if (reaches_all) return;
  const std::string differs = difference(cards, "MPIX_NIC differs", [](const Card& card) {
    return std::string(card.nic_setting, strnlen(card.nic_setting, sizeof card.nic_setting));
  });
  if (!differs.empty()) why_not_ = differs;
}

int Team::local(int rank) const {
  const auto found = std::lower_bound(locals_.begin(), locals_.end(), rank);
  return found != locals_.end() && *found == rank ? static_cast<int>(found - locals_.begin()) : -1;
}

}  // namespace mpix
