// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "mpix_device/channel.h"
#include "wire/collective.h"

/// Between nodes: what a rank's stream hands to its service (collective/rails.h), and what comes from there.
///
/// The *partners* of a rank are ranks of other nodes: those whose number on their node is its own, modulo the number of
/// ranks on the smaller of both nodes. Of each other node one of them is its *source*: all that it gets from that node
/// comes from there. A call has one or more *exchanges*; they have numbers from 1 on, which are the same on all ranks,
/// and grow for ever. In each exchange each rank sends a message to each partner: a header, which says what was called,
/// and data where there are some for it.
///
/// Memory of the host, that the streams, the service and the network reach:
///
/// | word                  | written by                           | read by                 | order                    |
/// |-----------------------|--------------------------------------|-------------------------|--------------------------|
/// | out[k mod 2][p]       | the stream: data; the service: the header | the network, until the transfer is over | the task of k |
/// | a task                | the stream, one at a time: its out is filled, and what lay in in[k - 1] is used | the service | channel.h |
/// | in[k mod 2][p]        | p's network; the number in the header is its signal | the service; the stream, its data | who sees the signal sees the data |
/// | arrived = k           | the service                          | the stream, one thread  | release, acquire         |
/// | notes[p].waits        | p's network: k, and a rank of its node that it waits for before k + 1 | reports | none |
/// | notes[p].difference   | p's network, once; its ranks are the signal | reports | who sees the signal sees the calls |
/// | over = k              | the stream: data of k are where they belong | the host         | release, acquire         |
///
/// **A rank sends k to p when it has got k - 1 from p**, in its service, which has compared what both have called. Two
/// places are enough: p has sent k - 1 when its stream had come to k - 1, and so had used what lay in in[k - 2], where
/// k goes. And numbers in a header do not overtake each other: p has k - 2 of this rank, or it would not have sent k
/// - 1.
///
/// **arrived = k** says that the data this rank needs in k have come; of others, as in a broadcast, not even the header
/// need have. And all that it sent in k - 1 and before has left its out places, so that k + 1 may be written there.
///
/// Nobody is told by a GPU that there is a task, and so the service looks for it; a host stream serves by itself for as
/// long as it waits. tests/model/rail.pml has the numbers.
///
/// **Where there are many nodes, with as many ranks each**, a rank does not send to all partners what they need not
/// have: that all have begun an exchange is told in rounds (collective/rail_rounds.h), from one to some, and these to
/// others. With that go the data that each rank has for all (`gathered`), as far as they have come. What one rank has
/// for all goes along a tree, from service to service (`passed_on`), and other data as they are (`direct`).
///
/// | word                       | written by              | read by     | order                                 |
/// |----------------------------|-------------------------|-------------|---------------------------------------|
/// | told[k mod 2][round][i]    | the i-th of those that tell this rank in a round; the number is the signal | the service | a service that sees the signal sees the word, and the data |
/// | gathered[k mod 2][node]    | the same                | the stream; the service, which tells them on; the network, until that transfer is over | the signal |
/// | in[k mod 2][p]             | p's network, data alone; or along a tree another partner's, for p | the same | its signal |
///
/// **A rank sends k when it knows that all have begun k - 1**, and nothing that it was to pass on of that is under way
/// any more. Two places are enough: a rank that has begun k - 1 has used what came in k - 2, has heard all that it was
/// told in it, and has passed on what it was to pass on; so all that k overwrites is read. tests/model/rounds.pml has
/// that.
namespace mpix {

/// In front of the data in a slot.
struct alignas(64) RailHeader {
  std::uint64_t number;  ///< of the exchange; written last
  std::uint64_t word;    ///< CallWord
  std::uint64_t unused[6];
};
static_assert(sizeof(RailHeader) == 64, "it is written from another node");

/// That a rank has heard of so many that they have begun an exchange.
struct alignas(16) RailTold {
  std::uint64_t number;  ///< of the exchange; written last
  std::uint64_t word;    ///< CallWord
};

/// In memory of the host.
struct alignas(64) RailWords {
  std::uint64_t arrived, over;
  std::uint64_t unused[6];
  Task tasks[2];
};

/// Of Task::word.
enum RailWord : std::uint32_t { rail_word, rail_bytes, rail_to, rail_needs, rail_same, rail_route };
/// How data go; see above. Without rounds all are direct.
enum class RailRoute : std::uint32_t { direct, gathered, passed_on };
/// Of what lies in the places for all nodes: one behind the other, each at a multiple of this.
constexpr std::uint64_t rail_unit = 16;
/// To whom, and from whom: a partner, or these.
constexpr std::uint32_t rail_nobody = UINT32_MAX, rail_everybody = UINT32_MAX - 1, rail_leaders = UINT32_MAX - 2;

/// What a rank knows of a partner. In memory that kernels read.
struct RailPartner {
  std::uint32_t rank, node;
  std::uint32_t column;  ///< among those that this rank is the source for
  std::uint32_t gives;   ///< 1: this rank is its source
  std::uint32_t leads;   ///< 1: of all partners of its node it gets what this rank has for the node

  MPIX_FN bool gets_from(std::uint32_t to, std::uint32_t number) const {
    return to == rail_leaders ? leads != 0 : gives != 0 && (to == rail_everybody || to == number);
  }
};

/// Where what a rank contributes is to be found.
struct RailRank {
  std::uint32_t partner;  ///< in the slot of this one; rail_nobody: it is of this node
  std::uint32_t local;    ///< its number on its node
};

/// Of a communicator, on this rank; the same in all its steps.
struct RailPlaces {
  std::uint32_t ranks, nodes, partners, node;  ///< node: this one's number
  std::uint32_t locals, me;                    ///< of this node
  std::uint32_t columns;                       ///< most that a rank of this node is the source for, with itself
  std::uint32_t column;                        ///< its own
  std::uint64_t slot_bytes;                    ///< of data
  std::uint32_t rounds;                        ///< 0: each rank tells all partners
  std::uint64_t node_bytes;                    ///< of what is gathered, most of a node
  RailWords* words;
  char* out;
  char* in;
  char* gathered;
  std::uint64_t* number;        ///< of the last exchange; in memory of the device
  const RailPartner* partner;   ///< by number
  const std::uint32_t* source;  ///< by node: which partner; of this node: rail_nobody
  const RailRank* rank;         ///< by rank
  const std::uint32_t* target;  ///< by local rank and column: a rank; the last one again where there is none

  MPIX_FN std::uint64_t slot() const { return sizeof(RailHeader) + slot_bytes; }
  MPIX_FN std::uint64_t at(std::uint64_t number, std::uint32_t of) const {
    return (number % 2 * partners + of) * slot();
  }
  /// Of all slots. Behind those of partners are their notes.
  MPIX_FN std::uint64_t slots_bytes() const { return std::uint64_t{2} * partners * slot(); }
  MPIX_FN RailHeader* out_header(std::uint64_t number, std::uint32_t to) const {
    return reinterpret_cast<RailHeader*>(out + at(number, to));
  }
  MPIX_FN RailHeader* in_header(std::uint64_t number, std::uint32_t from) const {
    return reinterpret_cast<RailHeader*>(in + at(number, from));
  }
  MPIX_FN char* out_data(std::uint64_t number, std::uint32_t to) const {
    return reinterpret_cast<char*>(out_header(number, to) + 1);
  }
  MPIX_FN const char* in_data(std::uint64_t number, std::uint32_t from) const {
    return reinterpret_cast<const char*>(in_header(number, from) + 1);
  }
  /// `bytes`: of a node.
  MPIX_FN std::uint64_t gathered_at(std::uint64_t number, std::uint32_t of_node, std::uint64_t bytes) const {
    return number % 2 * nodes * node_bytes + of_node * ((bytes + rail_unit - 1) / rail_unit * rail_unit);
  }
};

/// Some of what a rank does for an exchange.
struct RailStep {
  enum Phase : std::uint32_t { pack = 1, fill = 2, meet = 4, take = 8, leave = 16 };
  /// Which of several blocks goes to a partner.
  enum class By : std::uint32_t { same, node, column, rank };
  enum class Take : std::uint32_t { combine_nodes, combine_ranks, nodes, ranks, partner };

  std::uint32_t phases;
  bool lets_next_start;  ///< on a GPU, while this one waits
  RailPlaces places;
  std::uint64_t word;   ///< CallWord of the call
  std::uint64_t bytes;  ///< of a block, in all phases
  RailRoute route;

  /// pack: blocks for all ranks, by rank, become those for ranks of this node by column.
  struct {
    const char* from;
    std::uint64_t stride;
    char* to;
  } packing;

  /// fill: for each partner so many blocks.
  struct {
    std::uint32_t to;  ///< those that this rank is the source for; one of them; or leaders
    By by;
    std::uint32_t blocks;
    const char* from;
    std::uint64_t stride, block_stride;
  } filling;

  std::uint32_t needs;

  /// take: what each node, or each rank, contributes is combined, in that order, or put one beside the other; or what a
  /// partner has sent.
  struct {
    Take how;
    std::uint32_t only;  ///< of `nodes`: from this one only, or rail_everybody; of `partner`: which
    const char* own;     ///< what this rank has of its own node; blocks of its ranks, in their order, and a stride
    std::uint64_t own_stride;
    char* to;
    std::uint64_t stride;
    Operation operation;
    Element element;
  } taking;

  void (*function)(void* context, const void* in, void* inout, std::uint64_t bytes);
  void* context;
  CollectiveWords* host;

  MPIX_FN bool does(Phase phase) const { return (phases & phase) != 0; }
  MPIX_FN std::uint64_t sent_bytes() const { return filling.blocks * bytes; }  ///< to a partner
  MPIX_FN bool sends_data(std::uint32_t partner) const {
    return places.partner[partner].gets_from(filling.to, partner);
  }
};

}  // namespace mpix
