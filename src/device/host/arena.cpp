// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/arena.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "base/error.h"

namespace mpix {

// ---- places ------------------------------------------------------------------------------------------

/// Those that all have left. Under the lock.
void Arena::collect() {
  taken_.remove_if([&](const Taken& taken) {
    std::uint32_t& word = entry(taken.place.entry);
    if ((__atomic_load_n(&word, __ATOMIC_ACQUIRE) & ~touched) <= taken.ranks) return false;
    __atomic_store_n(&word, 0, __ATOMIC_RELAXED);
    return true;
  });
}

bool Arena::has_room() {
  constexpr std::size_t being_created = 64;
  std::lock_guard<std::mutex> hold(mutex_);
  if (taken_.size() + being_created >= entries()) collect();
  return taken_.size() + being_created < entries();
}

NodeExtent Arena::take(std::uint64_t bytes, std::uint32_t ranks) {
  std::lock_guard<std::mutex> hold(mutex_);
  collect();
  std::vector<bool> in_use(entries());
  for (const Taken& taken : taken_) in_use[taken.place.entry] = true;
  const auto free_entry = std::find(in_use.begin(), in_use.end(), false);
  if (free_entry == in_use.end()) throw Error(Fault::memory, "too many windows of the same ranks");
  NodeExtent place{places_offset(), static_cast<std::uint32_t>(free_entry - in_use.begin())};
  auto next = taken_.begin();
  while (next != taken_.end() && next->place.offset - place.offset < bytes) {
    place.offset = next->place.offset + next->bytes;
    ++next;
  }
  if (place.offset > file_->size() || bytes > file_->size() - place.offset)
    throw Error(Fault::memory, "no room for " + std::to_string(bytes) + " bytes of shared memory (its file may have " +
                                   std::to_string(file_->size()) + "; ulimit -f)");
  taken_.insert(next, Taken{place, bytes, ranks});
  return place;
}

void Arena::give_back(const NodeExtent& place) {
  std::lock_guard<std::mutex> hold(mutex_);
  taken_.remove_if([&](const Taken& taken) { return taken.place.entry == place.entry; });
}

void Arena::touch(const NodeExtent& place) { __atomic_fetch_or(&entry(place.entry), touched, __ATOMIC_RELAXED); }

void Arena::leave(const NodeExtent& place, std::uint64_t bytes, std::uint32_t ranks) noexcept {
  std::uint32_t& word = entry(place.entry);
  const std::uint32_t left = __atomic_add_fetch(&word, 1, __ATOMIC_ACQ_REL);
  if ((left & ~touched) < ranks) return;
  if (left & touched) file_->discard(place.offset, bytes);
  __atomic_add_fetch(&word, 1, __ATOMIC_RELEASE);
}

unsigned char& Arena::farewell(const NodeExtent& place, int local) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (!farewells_) farewells_ = file_->map(SharedFile::page(), farewells_bytes());
  const std::uint64_t at = std::uint64_t{place.entry} * locals_ + static_cast<std::uint32_t>(local);
  return reinterpret_cast<unsigned char&>(farewells_[at]);
}

// ---- a window's memory -------------------------------------------------------------------------------

namespace {

/// The clock of the node tells processes with the same number apart.
std::uint64_t new_id() {
  static std::atomic<std::uint64_t> count{0};
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return ((now << 20) ^ (static_cast<std::uint64_t>(getpid()) << 12) ^ ++count) | 1;
}

class ArenaNodeMemory final : public NodeMemory {
 public:
  ArenaNodeMemory(SharedMemory& memory, const NodeShape& shape)
      : memory_(memory),
        team_(static_cast<TeamArena&>(*shape.team)),
        shape_(shape),
        peers_(static_cast<std::size_t>(shape.locals)) {}
  ~ArenaNodeMemory() override;
  ArenaNodeMemory(const ArenaNodeMemory&) = delete;
  ArenaNodeMemory& operator=(const ArenaNodeMemory&) = delete;

  NodeOffer offer() override;
  void join(const std::vector<NodeRank>& group, const NodeOffer& offer) override;
  void join(const NodeRank& rank, const NodeOffer& its_offer) override;
  bool takes_place() const override { return true; }
  NodeExtent choose_extent() override {
    give_back_choice();
    place_ = arena_->take(bytes_, group_size());
    is_chosen_ = true;
    return place_;
  }
  void open(const NodeExtent& place, bool all_joined) noexcept override;

  char* header(int local) override;
  char* mailbox(int owner, int origin) override;
  char* window(int local) override;
  const char* own_staging() override { return shape_.me.staged ? window(shape_.me.local) : nullptr; }
  void say_farewell(Farewell farewell) override {
    own_farewell_ = &arena_->farewell(place_, shape_.me.local);
    __atomic_store_n(own_farewell_, static_cast<unsigned char>(farewell), __ATOMIC_RELAXED);
  }
  Farewell farewell_of(int local) override {
    return static_cast<Farewell>(__atomic_load_n(&arena_->farewell(place_, local), __ATOMIC_RELAXED));
  }
  std::shared_ptr<const void> own_control() const override { return nullptr; }  // no graph has a part of it

 private:
  struct Peer {
    int position = -1;  ///< in the group; -1: not in it
    std::size_t window_bytes = 0;
    bool staged = false;
    std::uint64_t staging_offset = 0;  ///< in the place
    std::shared_ptr<SharedFile> file;  ///< of a window that is not staged, which is this part of it:
    SharedMemory::Exported allocation{};
    std::uint64_t window_offset = 0;
    char* mailboxes = nullptr;  ///< of the pair; null: not mapped yet, as
    char* window = nullptr;
  };

  Peer& peer(int local) { return peers_[static_cast<std::size_t>(local)]; }
  std::uint32_t group_size() const { return static_cast<std::uint32_t>(group_size_); }
  std::size_t header_stride() const { return SharedFile::in_pages(header_bytes(shape_.locals)); }
  std::uint64_t headers_bytes() const {
    return std::uint64_t{header_stride()} * static_cast<std::uint64_t>(shape_.locals);
  }
  std::uint64_t pairs() const { return std::uint64_t{group_size_} * (group_size_ + 1) / 2; }
  std::uint64_t pair_offset(int one, int other) {
    const auto least = static_cast<std::uint64_t>(std::min(peer(one).position, peer(other).position));
    const auto most = static_cast<std::uint64_t>(std::max(peer(one).position, peer(other).position));
    return headers_bytes() + (most * (most + 1) / 2 + least) * 2 * mailbox_bytes_;
  }
  char* map(std::uint64_t offset, std::size_t bytes);
  void give_back_choice() {
    if (is_chosen_) arena_->give_back(place_);
    is_chosen_ = false;
  }

  SharedMemory& memory_;
  TeamArena& team_;  ///< until it is open: the team may end before the window
  const NodeShape shape_;
  std::shared_ptr<Arena> arena_;
  NodeExtent place_{};
  bool is_chosen_ = false, is_open_ = false;
  std::size_t group_size_ = 0;
  std::size_t mailbox_bytes_ = 0;  ///< the most that one has, in pages
  std::uint64_t bytes_ = 0;        ///< of the place, that are used
  std::vector<Peer> peers_;        ///< by number on the node
  char* headers_ = nullptr;
  unsigned char* own_farewell_ = nullptr;  ///< null: nothing is said
};

NodeOffer ArenaNodeMemory::offer() {
  NodeOffer offer{};
  if (shape_.around) {
    offer.window = memory_.export_memory(shape_.around->base);
    offer.window_offset = static_cast<std::uint64_t>(static_cast<const char*>(shape_.window) - shape_.around->base);
  }
  arena_ = team_.current;
  if (shape_.is_least) {
    offer.is_new = !arena_ || !arena_->has_room();
    if (offer.is_new) arena_ = std::make_shared<Arena>(memory_.create_file(), new_id(), shape_.locals);
    const SharedMemory::Exported all{arena_->file().ticket(), 0, 0};
    std::memcpy(offer.control.bytes, &all, sizeof all);
  }
  if (arena_) offer.id = arena_->id();
  return offer;
}

void ArenaNodeMemory::join(const std::vector<NodeRank>& group, const NodeOffer& offer) {
  if (offer.is_new && !shape_.is_least)
    arena_ = std::make_shared<Arena>(memory_.join(SharedMemory::exported(offer.control).file), offer.id, shape_.locals);
  if (!arena_ || arena_->id() != offer.id) throw Error(Fault::memory, "an earlier window could not map it");
  group_size_ = mailbox_bytes_ = 0;
  for (const NodeRank& rank : group) {
    Peer& one = peer(rank.local);
    one.position = static_cast<int>(group_size_++);
    one.window_bytes = rank.window_bytes;
    one.staged = rank.staged;
    mailbox_bytes_ = std::max(mailbox_bytes_, SharedFile::in_pages(rank.mailbox_bytes));
  }
  bytes_ = headers_bytes() + pairs() * 2 * mailbox_bytes_;
  for (const NodeRank& rank : group) {
    peer(rank.local).staging_offset = bytes_;
    if (rank.staged) bytes_ += SharedFile::in_pages(rank.window_bytes);
  }
}

void ArenaNodeMemory::join(const NodeRank& rank, const NodeOffer& its_offer) {
  if (rank.staged || rank.window_bytes == 0) return;
  Peer& one = peer(rank.local);
  one.allocation = SharedMemory::exported(its_offer.window);
  one.window_offset = its_offer.window_offset;
  one.file = memory_.join(one.allocation.file);
}

/// All have joined, so nobody needs the descriptor. Only now is it the team's: a window may fail until here, on all
/// ranks alike.
void ArenaNodeMemory::open(const NodeExtent& place, bool all_joined) noexcept {
  place_ = place;
  is_open_ = true;
  arena_->file().close_descriptor();
  team_.current = all_joined ? arena_ : nullptr;
}

char* ArenaNodeMemory::map(std::uint64_t offset, std::size_t bytes) {
  arena_->touch(place_);
  return arena_->file().map(place_.offset + offset, bytes);
}

char* ArenaNodeMemory::header(int local) {
  if (!headers_) headers_ = map(0, headers_bytes());
  return headers_ + static_cast<std::size_t>(local) * header_stride();
}

char* ArenaNodeMemory::mailbox(int owner, int origin) {
  const int other = owner == shape_.me.local ? origin : owner;
  Peer& one = peer(other);
  if (!one.mailboxes) one.mailboxes = map(pair_offset(owner, origin), 2 * mailbox_bytes_);
  return one.mailboxes + (owner < origin ? mailbox_bytes_ : 0);
}

char* ArenaNodeMemory::window(int local) {
  Peer& one = peer(local);
  if (!one.window)
    one.window = one.staged ? map(one.staging_offset, one.window_bytes)
                            : one.file->map(one.allocation.offset, one.allocation.bytes);
  return one.window + one.window_offset;
}

ArenaNodeMemory::~ArenaNodeMemory() {
  for (Peer& one : peers_) {
    if (one.mailboxes) arena_->file().unmap(one.mailboxes);
    if (one.window) (one.staged ? arena_->file() : *one.file).unmap(one.window);
  }
  if (headers_) arena_->file().unmap(headers_);
  if (own_farewell_) __atomic_store_n(own_farewell_, static_cast<unsigned char>(Farewell::none), __ATOMIC_RELAXED);
  if (is_open_)
    arena_->leave(place_, bytes_, group_size());
  else
    give_back_choice();
}

}  // namespace

std::unique_ptr<NodeMemory> make_arena_node_memory(SharedMemory& memory, const NodeShape& shape) {
  return std::make_unique<ArenaNodeMemory>(memory, shape);
}

}  // namespace mpix
