// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <type_traits>

#include "base/settings.h"
#include "device/device.h"
#include "device/gpu/check.h"
#include "device/gpu/kernel.h"
#include "device/gpu/launch_history.h"
#include "device/gpu/loaded_kernel.h"
#include "device/gpu/places.h"
#include "device/gpu/window_launches.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// How many queues the environment gives the streams of the process; 0: it does not say.
inline int queues_asked_for() {
  const char* const queues = std::getenv(GPU_QUEUES_VARIABLE);
  return queues ? std::atoi(queues) : 0;
}

/// Turns a program into a launch: which kernel, how many blocks, and in which form.
class Launcher {
 public:
  explicit Launcher(const Settings& settings) : form_(settings.launch_form) {}

  /// The GPU is known. Load all kernels: at a first use later on, loading might wait for a kernel that waits for a
  /// peer.
  void open(int device) {
    load();
    const Kernel& largest = for_programs<FarProgram, Reach::any>(Role::both, Form::any);
    const std::uint32_t places = gpu_multiprocessors(device) * gpu_blocks_at_once(largest.symbol, most_threads);
    most_blocks_ = std::clamp(places / 2, 1u, most_blocks_worth_it);
    places_for_blocks_ = places;
  }

  /// Room that the GPU has for blocks of ours.
  std::uint32_t places() const { return places_for_blocks_; }

  static void load() {
    (void)for_posts(), (void)for_raises();
    for (const Role role : {Role::send, Role::receive, Role::both})
      for (const Form form : {Form::any, Form::one, Form::few})
        (void)for_programs<NearProgram<1, 1>>(role, form), (void)for_programs<NearProgram<4, 4>>(role, form),
            (void)for_programs<NearProgram<8, 32>>(role, form), (void)for_programs<FarProgram>(role, form),
            (void)for_programs<NearProgram<8, 32>, Reach::any>(role, form),
            (void)for_programs<FarProgram, Reach::any>(role, form);
  }

  static void raise(gpuStream_t stream, NearRaises& near) {
    MPIX_CHECK_GPU(gpu_launch(for_raises().function, dim3(1), NearRaises::most, &near, sizeof near, stream, false));
  }

  /// A kernel that is none of a window's is in the stream, and lets the next one start while it waits for peers.
  void know_of_other(gpuStream_t stream, bool captured) {
    if (captured)
      captured_.add(gpu_capture_of(stream), {Kind::foreign, true});
    else
      last_.set(stream, true);
  }

  static std::unique_ptr<LaunchMemory> new_memory() { return std::make_unique<WindowLaunches>(); }

  void launch(gpuStream_t stream, const Launch& launch) {
    if (launch.program.captured) join_post(launch, stream);
    const std::uint32_t sends = launch.program.send_count, receives = launch.program.receive_count;
    const std::uint32_t peers =
        launch.room ? static_cast<WindowPlaces*>(launch.room)->peers_for(sends, receives) : std::max(sends, receives);
    if (std::max(sends, receives) <= peers)
      launch_one(stream, launch);
    else
      launch_in_pieces(stream, launch, peers);
  }

 private:
  using Kind = CapturedKernels::Kind;

  static std::uint64_t likely_bytes(const Launch& launch, std::uint32_t receive) {
    return launch.expected_bytes ? launch.expected_bytes[launch.on_host.receives[receive].rank]
                                 : launch.program.receive_bytes;
  }

  static bool expects_packs(const Launch& launch, std::uint32_t receive) {
    return launch.on_host.receives[receive].ring.slot_packs > 0 && likely_bytes(launch, receive) > launch.packs_above;
  }

  /// How many parts a launch may have for one peer, and whether those that wait for long have to leave (places.h), or
  /// some of its peers are relayed.
  struct Room {
    std::uint32_t most_parts;
    bool is_short;
  };
  Room room_for(const Launch& launch) const {
    if (launch.relayed || !launch.room) return {most_parts_worth_it, launch.relayed};
    const Program& program = launch.program;
    // Eager data do with fewer, of more words a thread. What goes direct fills the links with as many as it can have.
    std::uint32_t parts = 1, fewest = 1;
    const auto want = [&](std::uint64_t bytes, std::uint32_t unit, std::uint32_t of_a_thread) {
      parts = std::max(parts, parts_for(bytes, unit, most_parts_worth_it));
      fewest = std::max(fewest, parts_for(bytes, unit * of_a_thread, most_parts_worth_it));
    };
    for (std::uint32_t i = 0; i < program.receive_count; ++i) {
      const bool is_packed = expects_packs(launch, i);
      want(likely_bytes(launch, i), is_packed ? packed_bytes_of_a_part : eager_bytes_of_a_part, most_each);
    }
    for (std::uint32_t i = 0; i < program.send_count; ++i) {
      const SendPeer& send = launch.on_host.sends[i];
      if (send.awaits_post)
        want(send.bytes, direct_bytes_of_a_part, 1);
      else if (send.header.is_packed())
        want(send.bytes, packed_bytes_of_a_part, most_each);
      else
        want(send.bytes, eager_bytes_of_a_part, most_each);
    }
    if (parts == 1) return {1, false};
    // More than a few blocks gain nothing, and places are for other windows, too (places.h).
    const std::uint32_t peers = std::max(program.send_count, program.receive_count);
    while (parts > fewest && parts * peers > eager_blocks_worth_it) parts = std::max(parts / 2, fewest);
    const std::uint32_t most = std::max(1u, most_blocks_ / launch.sharers);
    auto* const places = static_cast<WindowPlaces*>(launch.room);
    for (;; parts = std::max(parts / 2, fewest)) {
      if (places->blocks_for(std::min(most, parts * program.send_count), std::min(most, parts * program.receive_count),
                             parts > fewest))
        return {parts, false};
      if (parts == fewest) return {most_parts_worth_it, true};
    }
  }

  void launch_one(gpuStream_t stream, const Launch& launch) {
    const Program& program = launch.program;
    if (program.send_count == 0 && program.receive_count == 0 && program.post_count <= NearPosts::most) {
      NearPosts near;
      near.count = program.post_count;
      near.captured = program.captured;
      near.guarded = program.guards != nullptr;
      near.raises = program.raises_posts;
      std::copy_n(launch.on_host.posts, near.count, near.posts);
      launch_posts(near, stream, launch);
      return;
    }
    const auto [most, is_short] = room_for(launch);
    if (is_short) {
      if (NearProgram<8, 32>::fits(program))
        launch_program<Reach::any>(NearProgram<8, 32>(program, launch.on_host), stream, launch, most);
      else
        launch_program<Reach::any>(FarProgram{program}, stream, launch, most);
    } else if (NearProgram<1, 1>::fits(program)) {
      launch_program(NearProgram<1, 1>(program, launch.on_host), stream, launch, most);
    } else if (NearProgram<4, 4>::fits(program)) {
      launch_program(NearProgram<4, 4>(program, launch.on_host), stream, launch, most);
    } else if (NearProgram<8, 32>::fits(program)) {
      launch_program(NearProgram<8, 32>(program, launch.on_host), stream, launch, most);
    } else {
      launch_program(FarProgram{program}, stream, launch, most);
    }
  }

  void launch_apart(gpuStream_t stream, const Launch& launch) {
    Launch sends = launch, receives = launch;
    sends.program.receive_count = 0;
    sends.program.receive_bytes = 0;
    receives.program.post_count = receives.program.send_count = receives.program.op_count = 0;
    receives.program.send_bytes = 0;
    launch_one(stream, sends);
    launch_one(stream, receives);
  }

  /// So many peers at a time, first those to send to: a send waits for no receive.
  void launch_in_pieces(gpuStream_t stream, const Launch& launch, std::uint32_t peers) {
    Launch piece = launch;
    piece.memory = nullptr;  // it knows launches by their call: one of these would be taken for another
    Program& program = piece.program;
    program.receive_count = 0;
    program.receive_bytes = 0;
    for (std::uint32_t first = 0; first < launch.program.send_count; first += peers) {
      program.tables.sends = launch.program.tables.sends + first;
      piece.on_host.sends = launch.on_host.sends + first;
      program.send_count = std::min(peers, launch.program.send_count - first);
      launch_one(stream, piece);
      program.post_count = 0;
    }
    program.send_count = program.op_count = 0;
    program.send_bytes = 0;
    program.receive_bytes = launch.program.receive_bytes;
    for (std::uint32_t first = 0; first < launch.program.receive_count; first += peers) {
      program.tables.receives = launch.program.tables.receives + first;
      piece.on_host.receives = launch.on_host.receives + first;
      program.receive_count = std::min(peers, launch.program.receive_count - first);
      launch_one(stream, piece);
      program.post_count = 0;
    }
  }

  static const Kernel& for_posts() {
    static const Kernel kernel(run_posts);
    return kernel;
  }
  static const Kernel& for_raises() {
    static const Kernel kernel(run_raises);
    return kernel;
  }
  template <Role role, Form form, Reach reach, class AnyProgram>
  static const Kernel& the_kernel() {
    static const Kernel kernel(run_program<role, form, reach, AnyProgram>);
    return kernel;
  }
  /// Far programs, and those that may have to leave, need no kernels for what is small.
  template <class AnyProgram, Reach reach = Reach::node>
  static const Kernel& for_programs(Role role, Form form) {
    if constexpr (reach == Reach::node && !std::is_same_v<AnyProgram, FarProgram>) {
      if (form == Form::one && role != Role::receive) return for_role<Form::one, reach, AnyProgram>(role);
      if (form == Form::few && role == Role::receive) return the_kernel<Role::receive, Form::few, reach, AnyProgram>();
    }
    // A receive by itself finds out what is usual.
    if (role == Role::receive) return the_kernel<Role::receive, Form::any, reach, AnyProgram>();
    return form == Form::any ? for_role<Form::any, reach, AnyProgram>(role)
                             : for_role<Form::few, reach, AnyProgram>(role);
  }
  template <Form form, Reach reach, class AnyProgram>
  static const Kernel& for_role(Role role) {
    return role == Role::send ? the_kernel<Role::send, form, reach, AnyProgram>()
                              : the_kernel<Role::both, form, reach, AnyProgram>();
  }

  template <Reach reach = Reach::node, class AnyProgram>
  void launch_program(const AnyProgram& filled, gpuStream_t stream, const Launch& launch, std::uint32_t most_parts) {
    const Program& program = launch.program;
    Arguments<AnyProgram> arguments{filled, Shape{}};
    AnyProgram& any = arguments.any;
    Shape& shape = arguments.shape;
    const std::uint32_t peers = std::max({1u, program.send_count, program.receive_count});
    shape.eager_bytes_of_a_part = eager_bytes_of_a_part;
    shape.packed_bytes_of_a_part = packed_bytes_of_a_part;
    shape.direct_bytes_of_a_part = direct_bytes_of_a_part;
    shape.most_parts = std::clamp(most_blocks_ / peers / launch.sharers, 1u, most_parts);
    shape.receive_parts = 1;
    std::uint64_t most_expected = 0;
    for (std::uint32_t i = 0; i < program.receive_count; ++i) {
      const std::uint64_t bytes = likely_bytes(launch, i);
      const bool is_packed = expects_packs(launch, i);
      const std::uint32_t own = shape.parts_of(launch.on_host.receives[i], bytes, is_packed);
      if (Share* const expected = share_of_receive(any, i)) *expected = {static_cast<std::uint16_t>(own), 1, is_packed};
      most_expected = std::max(most_expected, bytes);
      shape.receive_parts = std::max(shape.receive_parts, own);
    }
    const Role role = program.receive_count == 0 ? Role::send : program.send_count == 0 ? Role::receive : Role::both;
    const unsigned roles = role == Role::both ? 2 : 1;
    std::uint32_t parts = program.receive_count > 0 ? shape.receive_parts : 1;
    bool lets_next_start = false;  // before it has what it sends for
    for (std::uint32_t i = 0; i < program.send_count; ++i) {
      const std::uint32_t own = shape.parts_of(launch.on_host.sends[i]);
      parts = std::max(parts, own);
      lets_next_start = lets_next_start || reach == Reach::node || own == 1;
    }
    const unsigned entries = peers * roles * launch.sharers, blocks = parts * entries;
    const unsigned wanted =
        threads_for(std::max(program.send_bytes, most_expected)) + (program.post_count > 0 ? threads_of_posts : 0);
    const unsigned threads = std::min({wanted, most_threads, threads_beside(entries)});
    const Kernel& kernel = kernel_for<reach>(role, any, shape, launch, threads);
    if (role == Role::both && may_overlap(kernel, program) && is_faster_apart(program, blocks)) {
      launch_apart(stream, launch);
      return;
    }
    // What starts early keeps its places until the kernel in front has ended. Several parts of it do not if that waits.
    bool dependent = may_overlap(kernel, program);
    if (program.captured && dependent) {
      const GpuCapture capture = gpu_capture_of(stream);
      const std::optional<CapturedKernels::Found> front = captured_.find(capture);
      dependent = reach == Reach::node || parts == 1 || !front || !front->may_wait;
      if (dependent) shape.early = early_behind(front ? front->kind : Kind::other);
    } else if (reach == Reach::any && dependent && parts > 1) {
      dependent = !last_.may_wait(stream);
    }
    launch_kernel(kernel, dim3(parts, peers, roles), threads, &arguments, sizeof arguments, stream, launch, dependent);
    if (program.captured)
      captured_.add(gpu_capture_of(stream), {kind_of(program, blocks), lets_next_start});
    else
      last_.set(stream, lets_next_start);
  }

  template <Reach reach, class AnyProgram>
  static const Kernel& kernel_for(Role role, AnyProgram& any, const Shape& shape, const Launch& launch,
                                  unsigned threads) {
    Form form = Form::one;
    for (std::uint32_t i = 0; i < launch.program.receive_count; ++i) {
      Share* const expected = share_of_receive(any, i);
      if (expected && set_each(*expected, likely_bytes(launch, i), threads)) form = Form::few;
    }
    for (std::uint32_t i = 0; i < launch.program.send_count; ++i) {
      const SendPeer& send = launch.on_host.sends[i];
      if (Share* const sent = share_of_send(any, i)) {
        *sent = {static_cast<std::uint16_t>(shape.parts_of(send)), 1, send.header.is_packed()};
        (void)set_each(*sent, send.bytes, threads);
      }
      const Form own = shape.form_of(send, launch.on_host.ops, threads);
      if (own == Form::any || (own == Form::few && form == Form::one)) form = own;
    }
    return for_programs<AnyProgram, reach>(role, form);
  }

  void launch_posts(NearPosts& near, gpuStream_t stream, const Launch& launch) {
    Kind kind = Kind::post;
    bool may_wait = false;
    if (near.captured && may_overlap(for_posts(), launch.program)) {
      const GpuCapture capture = gpu_capture_of(stream);
      const std::optional<CapturedKernels::Found> front = captured_.find(capture);
      near.early = front && (front->kind == Kind::receive || front->kind == Kind::both);
      may_wait = near.early && front->may_wait;
      if (near.early) kind = Kind::other;
      // Behind kernels of windows there is nothing to gain: they overlap.
      if ((!front || front->kind == Kind::foreign) && post_beside(near, stream, capture, launch)) return;
    }
    launch_kernel(for_posts(), dim3(1), NearPosts::most, &near, sizeof near, stream, launch,
                  may_overlap(for_posts(), launch.program));
    if (near.captured)
      captured_.add(gpu_capture_of(stream), {kind, may_wait});
    else
      last_.set(stream, false);
  }

  /// With few queues a post might come behind a kernel of another branch that waits for a peer.
  static bool has_queues_for_branches() {
    const int queues = queues_asked_for();
    return queues == 0 || queues >= 8;
  }

  static bool post_beside(NearPosts& near, gpuStream_t stream, const GpuCapture& capture, const Launch& launch) {
    static const bool has_queues = has_queues_for_branches();
    auto* const memory = static_cast<WindowLaunches*>(launch.memory);
    if (!memory || !has_queues) return false;
    memory->post.node = gpu_add_beside(stream, capture, for_posts().symbol, NearPosts::most, &near);
    memory->post.capture = capture;
    memory->post.stream = stream;
    return memory->post.node != nullptr;
  }

  /// The stream goes on behind the window's last post, if that is beside it.
  void join_post(const Launch& launch, gpuStream_t stream) {
    auto* const memory = static_cast<WindowLaunches*>(launch.memory);
    if (!memory || !memory->post.node) return;
    const PostBeside post = memory->post;
    if (stream != post.stream && launch.program.post_count == 0) return;
    memory->post.node = nullptr;
    const GpuCapture now = gpu_capture_of(stream);
    if (now.id != post.capture.id || now.graph != post.capture.graph) return;  // that graph has ended
    const bool nothing_between = now.front && now.front == post.capture.front;
    MPIX_CHECK_GPU(gpu_continue_behind(stream, post.node, nothing_between));
    if (nothing_between) captured_.add(gpu_capture_of(stream), {Kind::post, false});
  }

  /// Behind a guard, a kernel starts when that has passed.
  static bool may_overlap(const Kernel& kernel, const Program& program) {
    return kernel.may_be_dependent && !program.guards;
  }

  void launch_kernel(const Kernel& kernel, dim3 grid, unsigned threads, void* argument, std::size_t bytes,
                     gpuStream_t stream, const Launch& launch, bool dependent) {
    if (launch.program.captured) {
      MPIX_CHECK_GPU(gpu_launch(kernel.function, grid, threads, argument, bytes, stream, dependent));
      return;
    }
    if (launch_prepared(kernel, grid, threads, argument, stream, launch)) return;
    const bool overlaps = form_ != LaunchForm::plain && dependent && usual_streams_.has_many_in(stream);
    MPIX_CHECK_GPU(gpu_launch(kernel.function, grid, threads, argument, bytes, stream, overlaps));
  }

  /// False: this one is to be launched as it is.
  bool launch_prepared(const Kernel& kernel, dim3 grid, unsigned threads, void* argument, gpuStream_t stream,
                       const Launch& launch) const {
    auto* const memory = static_cast<WindowLaunches*>(launch.memory);
    if (!memory || launch.before_copies) return false;
    if (form_ != LaunchForm::automatic && form_ != LaunchForm::graph) return false;
    // Behind a guard a stream has waited, and nothing is gained.
    if (form_ == LaunchForm::automatic && (launch.program.guards || !memory->trials.as_graph(launch.call, stream)))
      return false;
    PreparedKernels::Entry& entry = memory->prepared.of(launch, stream);
    if (!entry.comes_often() || entry.failed) return false;
    try {
      if (!entry.kernel) entry.kernel.emplace(kernel.symbol, grid, threads, argument, stream);
      MPIX_CHECK_GPU(entry.kernel->launch(stream));
      return true;
    } catch (const Error&) {
      if (form_ == LaunchForm::graph) throw;
      entry.failed = true;  // no memory for a graph, say: nothing has been launched
      return false;
    }
  }

  // Far programs find them out.
  static Share* share_of_send(FarProgram&, std::uint32_t) { return nullptr; }
  static Share* share_of_receive(FarProgram&, std::uint32_t) { return nullptr; }
  template <std::uint32_t peers, std::uint32_t ops>
  static Share* share_of_send(NearProgram<peers, ops>& near, std::uint32_t i) {
    return &near.sent[i];
  }
  template <std::uint32_t peers, std::uint32_t ops>
  static Share* share_of_receive(NearProgram<peers, ops>& near, std::uint32_t i) {
    return &near.expected[i];
  }
  /// Whether it needs a kernel for a few.
  static bool set_each(Share& share, std::uint64_t bytes, unsigned threads) {
    const std::uint64_t all = std::uint64_t{threads} * share.parts,
                        lanes = share.packed ? packs_for(static_cast<std::uint32_t>(bytes)) * Pack::lanes : bytes / 8;
    share.each = static_cast<std::uint8_t>(std::clamp<std::uint64_t>((lanes + all - 1) / all, 1, most_each));
    return share.packed || share.each > 1;
  }

  /// The table beside Early.
  static Early early_behind(Kind front) {
    switch (front) {
      case Kind::post:
        return Early{true, true, true};
      case Kind::send:
        return Early{false, false, true};
      case Kind::receive:
        return Early{true, false, false};
      case Kind::both:
      case Kind::other:
      case Kind::foreign:
        break;
    }
    return Early{};
  }

  static Kind kind_of(const Program& program, unsigned blocks) {
    if (program.receive_count == 0) return program.send_count > 0 ? Kind::send : Kind::other;
    if (program.post_count > 0) return Kind::other;
    if (program.send_count == 0) return Kind::receive;
    return blocks <= most_blocks_in_front ? Kind::both : Kind::other;
  }

  /// In a graph, where a launch costs the CPU nothing, a kernel of both roles that no post is early behind is slower
  /// than its two halves: 128 KiB to each of 2 neighbours take 6.6 and 5.5 µs on 4 H200, 2 MiB 19.1 and 18.5. Several
  /// puts to a target have more to gain from both roles at once: 26 messages of 128 KiB take 9.1 and 9.9.
  static bool is_faster_apart(const Program& program, unsigned blocks) {
    return program.captured && program.op_count <= program.send_count && blocks > most_blocks_in_front &&
           blocks <= most_blocks_worth_parting;
  }

  /// So many that the launches of all who share the GPU find room, with one part a peer.
  unsigned threads_beside(unsigned entries) const {
    constexpr unsigned warps = 64;
    return std::clamp(most_blocks_ * most_threads / entries / warps * warps, warps, most_threads);
  }

  /// A thread for each word, in whole warps: small blocks start and end sooner.
  static unsigned threads_for(std::uint64_t bytes) {
    constexpr std::uint64_t warps = 64;  // as wide as any vendor's warp, and enough for receive_any
    return static_cast<unsigned>(
        std::clamp<std::uint64_t>((bytes / 8 + warps - 1) / warps * warps, warps, most_threads));
  }

  // Measured on 4 H200: a word for each of 512 threads; and enough stores under way to fill the links.
  static constexpr unsigned threads_of_posts = 64;
  static constexpr std::uint32_t eager_bytes_of_a_part = 8 * most_threads;
  static constexpr std::uint32_t packed_bytes_of_a_part = Pack::words * 8 * (most_threads / Pack::lanes);
  static constexpr std::uint32_t direct_bytes_of_a_part = 32 * 1024;
  static constexpr std::uint32_t most_parts_worth_it = 32;
  static constexpr std::uint32_t most_blocks_worth_it = 128;
  static constexpr std::uint32_t eager_blocks_worth_it = 16;
  static_assert(most_parts_worth_it <= most_parts, "a part has counters");
  static_assert(most_parts_worth_it <= most_parts_that_leave, "a part has a bit");
  // The sends of a kernel of both roles may still wait for posts, and keep their places, when behind an early post the
  // blocks of the next kernel come. So a post is early only behind a small one.
  static constexpr std::uint32_t most_blocks_in_front = 64;
  // As far as it was measured.
  static constexpr std::uint32_t most_blocks_worth_parting = 192;

  const LaunchForm form_;
  std::uint32_t most_blocks_ = most_blocks_worth_it;  ///< of a launch: half of the room that the GPU has (places.h)
  std::uint32_t places_for_blocks_ = 0;
  CapturedKernels captured_;
  LastLaunches last_;
  UsualStreams usual_streams_;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
