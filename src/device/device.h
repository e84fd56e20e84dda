// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wire/farewell.h"
#include "wire/guard.h"
#include "wire/program.h"
#include "wire/row_copy.h"

namespace mpix {

struct Settings;
struct NodeShape;
class Copier;
class NodeMemory;
struct Collective;
struct CollectiveWords;
struct CollectiveLaunch;
struct HaloGate;
struct HaloLaunch;
struct RailLaunch;
class TeamMemory;

/// A cudaStream_t, a hipStream_t or an MPIX_Host_stream; null: the default stream.
using Stream = void*;

/// Something that another process can map, as bytes that travel.
struct ExportedMemory {
  alignas(8) unsigned char bytes[96];
};

/// An allocation of memory that peers can map.
struct Allocation {
  char* base;
  std::size_t bytes;
};

/// Which call of the API a launch stands for; for reports.
enum class Call { post, complete, wait, complete_wait, free };
const char* name_of(Call call);

/// What a device does about a launch that waits too long; one for each window.
class StallHandler {
 public:
  virtual ~StallHandler() = default;
  /// Waited for so many seconds: 0 when nobody wants to know.
  virtual double patience() const = 0;
  /// `waiting`: the text of what is missing, by peer. True: stop waiting (the window is broken).
  virtual bool stalled(Call call, const std::string& waiting, double seconds) = 0;
  /// It can never end: stop waiting (the window is broken).
  virtual void failed(Call call, const std::string& why) = 0;
  /// For the text of what is missing.
  virtual Farewell farewell_of(int) const noexcept { return Farewell::none; }
};

/// A launch's part with ranks of other nodes: operations to start, signals to wait for. Served by the thread of a
/// host stream, in turn with what the launch has to do on this node.
class RemoteWork {
 public:
  virtual ~RemoteWork() = default;
  /// Serve who is ready. False when nobody was.
  virtual bool look() = 0;
  virtual bool done() const = 0;
  /// Let the network work, where it needs one of our threads for that.
  virtual void progress() = 0;
  /// The launch is served; called before the window can know.
  virtual void over() = 0;
  /// Append what is missing, by peer.
  virtual void describe(std::string& text) const = 0;
  /// Empty, or why it will never be done. Dearer than a look.
  virtual std::string failure() = 0;
  /// The same, after asking those that are missing whether they live. For when it has taken too long.
  virtual std::string probe() { return failure(); }
};

/// What a device remembers of a window's launches, to make those that come again cheaper.
class LaunchMemory {
 public:
  virtual ~LaunchMemory() = default;
};

/// A window's places on a device for kernels that wait for peers (device/gpu/places.h). It gives them back at its end.
class WaitingRoom {
 public:
  virtual ~WaitingRoom() = default;
  /// Of the process: the multiprocessors that it runs on; and the places that its windows have taken, this one too.
  virtual std::uint32_t all() const = 0;
  virtual std::uint32_t taken() const = 0;
  /// So many ranks are known to run there, this one too.
  virtual void share(std::uint32_t sharers) = 0;

  /// How many may be taken where so many ranks share the multiprocessors: one of these stays free.
  static std::uint32_t most(std::uint32_t all, std::uint32_t sharers) {
    return all / sharers > 0 ? all / sharers - 1 : 0;
  }
};

/// What a process has taken of a device's room for blocks that wait (device/gpu/places.h).
struct RoomUse {
  std::uint32_t multiprocessors, blocks;  ///< places for parts 0; and for others
  std::uint32_t sharers;                  ///< ranks that are known to run there
  std::uint32_t taken, blocks_taken;

  /// Places for other parts that are left, of which some are lent by parts 0.
  std::uint32_t blocks_left(std::uint32_t shared_by) const {
    const std::uint32_t most = WaitingRoom::most(multiprocessors, shared_by), free = most > taken ? most - taken : 0;
    // a call's are halves of a multiprocessor, however many of a window find room on one
    const std::uint32_t others = std::min(blocks, multiprocessors);
    const std::uint32_t all = std::min((others + multiprocessors / 2) / shared_by, others / shared_by + free);
    return all > blocks_taken ? all - blocks_taken : 0;
  }
};

/// A communicator's places on a device for the blocks of its collective calls, which wait for peers. It gives them back
/// at its end.
class CallRoom {
 public:
  virtual ~CallRoom() = default;
  /// When it was made.
  virtual RoomUse use() const = 0;
  /// What its ranks have agreed upon, and how many are now known to run there.
  virtual void settle(std::uint32_t places, std::uint32_t sharers) = 0;
  /// Whether a launch of a capture may be there while the one in front still waits; and whether the next one may while
  /// it does. Under the communicator's lock.
  struct Neighbours {
    bool starts_early, lets_next_start;
  };
  virtual Neighbours neighbours(std::uint64_t capture, std::uint32_t places) = 0;
};

struct Launch {
  Program program;                                ///< its tables in device memory
  Tables on_host;                                 ///< the same tables in host memory
  std::uint32_t sharers = 1;                      ///< ranks that run their kernels on the same processor
  const std::uint64_t* expected_bytes = nullptr;  ///< that receives are likely to move, by rank; null: not known
  Call call = Call::post;
  std::uint64_t packs_above = SIZE_MAX;  ///< so many bytes go in packs, where there are any
  bool before_copies = false;            ///< the first part of a complete whose largest puts the copy engine carries
  StallHandler* stall = nullptr;         ///< outlives the launch; not for a device that stalls_silently()
  using Keep = std::array<std::shared_ptr<const void>, 2>;
  LaunchMemory* memory = nullptr;  ///< the window's; null: none
  WaitingRoom* room = nullptr;     ///< the window's; null: it does not wait in kernels, or they take no places
  Keep keep;                       ///< what program points to, alive for as long as the launch may run
  std::array<std::shared_ptr<RemoteWork>, 2> remote;  ///< null: nothing
  bool relayed = false;                               ///< some of its peers are: they ring no bells
};

/// A point of a stream: behind all that was enqueued there when it was set.
class StreamPoint {
 public:
  virtual ~StreamPoint() = default;
  virtual void set(Stream stream) = 0;
  /// All before it has run. Of one that was never set, too.
  virtual bool passed() noexcept = 0;
};

/// What a peer shall know at least: so many epochs are posted to it.
struct PostRaise {
  PairWords* there;
  Bell* bell;
  std::uint64_t epochs;
};

/// Ways for posts that do not go with a launch of the stream that they were called in (epoch/free_posts.h). Calls of
/// several windows, and of the service, may come at once.
class PostStreams {
 public:
  virtual ~PostStreams() = default;
  virtual std::shared_ptr<StreamPoint> new_point() = 0;
  /// At once, whatever streams wait for.
  virtual void raise(const std::vector<PostRaise>& raises) = 0;
  /// None is under way.
  virtual bool have_raised() noexcept = 0;
  /// Behind the point, and behind nothing else. Returns the point behind the launch.
  virtual std::shared_ptr<StreamPoint> launch_behind(const std::shared_ptr<StreamPoint>& point, Launch&& launch) = 0;
  /// What is enqueued in `stream` from now on is behind the point; captured: in every launch of the graph, which keeps
  /// the point.
  virtual void hold_back(Stream stream, bool captured, const std::shared_ptr<StreamPoint>& point) = 0;
};

/// A stream that the library has made. Its end waits for what is enqueued.
class OwnStream {
 public:
  virtual ~OwnStream() = default;
  virtual Stream handle() const noexcept = 0;
  virtual void synchronize() = 0;
};

/// Operations of a stream on words of memory, one after another.
struct MemoryOps {
  std::vector<MemoryOp> ops;
  Bell* bell = nullptr;  ///< mine
  // A host stream waits no more where these say so; null: the words alone let pass.
  const HostWords* window = nullptr;
  const CollectiveWords* calls = nullptr;
};

/// A place where streams run and window memory lies: the engine's only view of it. One back end a directory
/// (host/, …). Functions throw Error; those marked noexcept cannot fail in a way that matters.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const noexcept = 0;
  bool is_host() const noexcept { return std::string_view(name()) == "host"; }

  /// What the user should know about how the device is set up; as a rule nothing.
  virtual std::string advice() const { return ""; }
  /// What may be the matter when a stream has waited for too long; as a rule nothing.
  virtual std::string hang_advice() const { return ""; }
  /// A range of the calling thread's time, for the vendor's profiler.
  virtual void begin_range(const char*) noexcept {}
  virtual void end_range() noexcept {}

  /// Memory that the CPU cannot read: an MPI that is not GPU-aware must not get it into its hands.
  virtual bool hidden_from_host(const void* p) const noexcept = 0;

  /// Called for each window, before anything else: throws when kernels cannot reach its memory.
  virtual void use_memory_of(const void* base, std::size_t bytes) = 0;
  /// Throws when kernels cannot reach a buffer of the program; `what` names it in the text.
  virtual void check_buffer(const void*, [[maybe_unused]] const char* what) {}
  /// How much of an epoch's data for one target is worth two copies, to save waiting for its post.
  virtual std::size_t preferred_eager_bytes() const noexcept = 0;
  /// Of these, more goes in packs (wire/pack.h) where links carry them; SIZE_MAX: none do.
  virtual std::size_t packs_above() const noexcept { return SIZE_MAX; }

  /// From which size on a put is worth an operation of the copy engine.
  virtual std::size_t preferred_copy_bytes() const noexcept = 0;
  /// How many of a pair's parts its launches advance: 1, or most_parts.
  virtual std::uint32_t parts_in_use() const noexcept = 0;

  /// Zeroed memory that kernels and peers can reach.
  virtual Allocation allocate(std::size_t bytes) = 0;
  virtual void release(void* base) noexcept = 0;
  /// Whether networks that reach memory of the device may have this in their hands. (MPICH ends the program over memory
  /// that processes cannot map.)
  virtual bool lets_networks_reach(const void*) const { return true; }
  /// A thread of the library, before it calls a network that does: what it begins there belongs to this device, and
  /// into nobody's graph.
  virtual void settle_thread() {}

  /// The allocation around p when peers can map it: p may lie anywhere inside.
  virtual std::optional<Allocation> shareable(const void* p) const = 0;

  virtual ExportedMemory export_memory(const void* base) = 0;
  /// The base, here, of a peer's allocation. Memory of this very process comes back as it is.
  virtual char* import_memory(const ExportedMemory& memory) = 0;
  /// A device may keep what is closed mapped, and use it again: where to unmap is to wait for all that runs there.
  virtual void close_import(char* base) noexcept = 0;
  /// Bytes that are mapped still, though closed.
  virtual std::size_t closed_imports() const noexcept { return 0; }
  /// Unmap them. Waits for what runs on the device.
  virtual void unmap_closed_imports() noexcept {}
  /// What import_memory calls to unmap them, where it cannot map before. It knows whether something waits for peers,
  /// and returns false if something may. Where there is no such function, nothing waits.
  void set_unmapper(std::function<bool(Device&)> unmapper) { unmapper_ = std::move(unmapper); }

  /// For the ranks of a communicator, and for each of their windows; see device/node_memory.h.
  virtual std::unique_ptr<TeamMemory> new_team_memory();
  virtual std::unique_ptr<NodeMemory> new_node_memory(const NodeShape& shape);
  /// Ranks of one node share memory only where this is the same.
  virtual std::uint64_t sharing_group() const { return 0; }

  /// A copy, for kernels to read. Lives as long as the pointer.
  virtual std::shared_ptr<const void> upload(const void* data, std::size_t bytes) = 0;
  /// Copy kernels' memory to the host.
  virtual void read(void* to, const void* from, std::size_t bytes) = 0;
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  /// One word that streams and peers may change meanwhile.
  virtual std::uint64_t read_word(const std::uint64_t* word) = 0;
  virtual void write_word(std::uint64_t* word, std::uint64_t value) = 0;
  virtual std::unique_ptr<OwnStream> new_stream() = 0;
  /// For the service; see device/copier.h.
  virtual std::unique_ptr<Copier> new_copier() = 0;
  /// Words that kernels and the host share, with a note for each rank. Zeroed; live as long as the pointer.
  virtual std::shared_ptr<HostWords> host_words(std::size_t ranks) = 0;

  /// Whether its calls wait for a launch that another thread makes. Where the stream's queue is full, that waits for
  /// what is enqueued, and so perhaps for what the caller was to do next.
  virtual bool waits_for_launches() const noexcept { return false; }
  /// Zeroed memory of the host that kernels, the CPU and the network reach at the same address.
  virtual std::shared_ptr<char> allocate_pinned(std::size_t bytes) = 0;
  /// Memory of the host that processes share, which kernels, copies and streams reach at the same address from now on.
  virtual std::shared_ptr<char> pin(std::shared_ptr<char> memory, std::size_t) { return memory; }
  /// Whether its streams serve the remote work of launches; else a relay does what is to do for them (offnode/relay.h).
  virtual bool serves_remote_work() const noexcept { return false; }

  /// Throws unless `stream` is a stream of this device. Returns the capture that it is in (what is enqueued now becomes
  /// part of a graph, to run later and perhaps often), or 0.
  virtual std::uint64_t check_stream(Stream stream) const = 0;
  /// Whether launches read their plans when they run, without keeping them alive.
  virtual bool reads_plans_later() const noexcept = 0;
  /// For one window. Null: it remembers nothing.
  virtual std::unique_ptr<LaunchMemory> new_launch_memory() { return nullptr; }
  /// Keep something alive for as long as the graph can be launched that the stream is being captured into.
  virtual void keep_for_graph(Stream stream, std::shared_ptr<const void> what) = 0;
  /// Enqueue; returns at once. What the launch keeps alive may be taken out of it.
  virtual void launch(Stream stream, Launch&& launch) = 0;
  virtual void launch(Stream stream, CollectiveLaunch&& launch) = 0;
  virtual void launch(Stream stream, RailLaunch&& launch) = 0;
  /// Before the first communicator's: what calls would else wait for.
  virtual void prepare_collectives() {}
  virtual void launch(Stream stream, HaloLaunch&& launch) = 0;
  /// `keep`: what it points to, alive for as long as the stream may come to it, where memory that is released does not
  /// wait for that.
  virtual void launch(Stream stream, const HaloGate& gate, const std::shared_ptr<const void>& keep) = 0;
  /// Before the first exchange: likewise.
  virtual void prepare_halos() {}
  /// How many calls of the communicator of `any` have run here; not exact beyond 2^32.
  virtual std::uint64_t collectives_run(const Collective& any) = 0;
  /// Null: streams cannot be captured, so what has run can be counted.
  virtual std::shared_ptr<StreamPoint> new_point() { return nullptr; }
  /// Up to what size of a block collectives of so many ranks go by lines, where they may go direct, too.
  virtual std::size_t preferred_line_bytes(std::uint32_t ranks) const noexcept = 0;
  /// How calls of so many ranks go by packs (wire/collective_packs.h), if links carry them.
  struct PackForm {
    std::uint32_t groups = 0;  ///< of a part; 0: not at all
    std::uint32_t turns = 0;   ///< at once
    /// Where that is the best way: what is smaller goes by lines.
    struct Above {
      std::size_t allreduce = 0, bcast = 0, reduce = 0, others = 0;
    } above;
    /// And up to where memory is attached, and where none is.
    std::size_t most_attached_bytes = 0, most_bytes = 0;
    std::size_t shared_above_bytes = SIZE_MAX;          ///< all-reduce is in shares
    std::size_t most_attached_rooted_bytes = SIZE_MAX;  ///< of two ranks, bcast and reduce
  };
  virtual PackForm pack_form(std::uint32_t) const noexcept { return {}; }
  /// Whether the link to the device of this processor, which may be the own, carries packs.
  virtual bool carries_packs(std::uint64_t processor) {
    (void)processor;
    return false;
  }
  /// From what size of a block on calls of so many ranks may choose their way where they run: what is smaller is faster
  /// when it is settled before.
  virtual std::size_t least_chosen_bytes(std::uint32_t ranks) const noexcept = 0;
  /// Whether such calls may go by lines, too.
  virtual bool chooses_lines() const noexcept { return true; }
  /// How many of those have gone direct, on the communicator of `any`.
  virtual std::uint64_t chosen_direct(const Collective& any) = 0;
  /// Memory of the library that collectives may take for a communicator.
  virtual std::size_t preferred_scratch_bytes() const noexcept = 0;
  /// Enqueue copies by the copy engine.
  virtual void copy(Stream stream, const RowCopy& rows) = 0;
  void copy(Stream stream, void* to, const void* from, std::size_t bytes) {
    copy(stream, RowCopy{static_cast<char*>(to), 0, static_cast<const char*>(from), 0, bytes, 1});
  }
  virtual void run_memory_ops(Stream stream, MemoryOps ops) = 0;
  /// False: that does nothing.
  virtual bool has_memory_ops() { return true; }
  /// Another for a later stream with the same handle, unless the end of the first has waited for all that was in it.
  virtual std::uint64_t number_of(Stream stream) const noexcept = 0;
  /// Null: every post is a launch.
  virtual PostStreams* post_streams() { return nullptr; }

  /// A number that stands for what kernels run on, and for that of no other node: ranks with the same one share it. 0:
  /// not known, or of no interest.
  virtual std::uint64_t processor() = 0;
  /// Kernels of several processes run there in turns, not at once. Kernels that wait for each other then keep each
  /// other from running, and guards help against that.
  virtual bool wants_guards_where_shared() = 0;
  /// Places for a window whose kernels wait; null where they take none.
  virtual std::shared_ptr<WaitingRoom> new_waiting_room() { return nullptr; }
  /// The same for a communicator.
  virtual std::unique_ptr<CallRoom> new_call_room() { return nullptr; }
  /// Whether guards keep kernels from waiting (wire/guard.h).
  virtual bool has_guards() { return true; }
  /// Streams cannot report by themselves that they wait: the service has to look for them.
  virtual bool stalls_silently() const noexcept = 0;
  /// Whether a post may be on its way to a peer when the counter here says that it has run.
  virtual bool posts_may_be_late() const noexcept { return false; }
  /// Whether all of a window's launches have left its memory alone for good, once the counters of its epochs
  /// say that they are over.
  virtual bool have_ended(const HostWords& words, std::uint64_t launches) const = 0;

 protected:
  bool unmap_for_import() {
    if (unmapper_) return unmapper_(*this);
    unmap_closed_imports();
    return true;
  }

 private:
  std::function<bool(Device&)> unmapper_;
};

/// The device that the settings ask for; throws when it is not built, or not there.
std::unique_ptr<Device> make_device(const Settings& settings, int local_ranks);

}  // namespace mpix
