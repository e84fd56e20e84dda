// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/launching.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mpix {

Launching::Launching(Device& device, const Settings& settings, Neighbourhood& peers, OffNode& off_node,
                     StallReporter& stall, std::shared_ptr<HostWords> words, EnqueuedEpochs& enqueued, bool lazy_post,
                     std::uint64_t window_bytes)
    : device_(device),
      merge_(settings.merge),
      lazy_post_(lazy_post && settings.merge && !peers.needs_guards()),
      peers_(peers),
      off_node_(off_node),
      stall_(stall),
      words_(std::move(words)),
      enqueued_(enqueued),
      progress_(device, peers, off_node, *words_, enqueued),
      most_receive_bytes_(std::min<std::uint64_t>(window_bytes, peers.likely_bytes())) {
  if (merge_) memory_ = device.new_launch_memory();
  if (peers.needs_guards()) guards_ = std::make_unique<Guards>(peers, device, words_.get());
  if (settings.posts == Posts::prompt || !merge_ || guards_ || lazy_post_) return;
  if (PostStreams* streams = device.post_streams())
    free_posts_ = std::make_unique<FreePosts>(*streams, stall, settings.posts == Posts::free);
}

StreamNow Launching::check(Stream stream) const {
  const StreamNow in{stream, device_.check_stream(stream)};
  if (to_carry_.plan && !to_carry_.point && in.capture != to_carry_.in.capture)
    throw Error(Fault::synchronization,
                "the post before this call was made inside a capture, and this call is not in the same one, or the "
                "other way round: with mpix_lazy_post a post goes with the next call on its window");
  return in;
}

// ---- the calls ---------------------------------------------------------------------------------------

void Launching::post(const ExposurePlanOf& plan, const StreamNow& in, OperationBudget::Lease lease) {
  keep_behind_posts(in);
  if (lazy_post_ && plan->remote.empty()) {
    to_carry_ = CarriedPost{plan, in};
    if (in.capture) keep_for_graph(in, plan);
  } else if (!may_be_free(*plan, in) || !set_free_post(plan, in)) {
    launch_post(plan, in, std::move(lease));
    opened(plan, in);
  }
}

void Launching::complete(const AccessPlanOf& plan, const StreamNow& in, OperationBudget::Lease lease) {
  launch_complete(plan, nullptr, Call::complete, in, std::move(lease));
  // Where there is no target nothing has carried it, and the program may wait now for what a peer does with it.
  if (to_carry_.plan && !to_carry_.point) launch_carried_post(in);
  sent(plan, in);
}

void Launching::wait(const ExposurePlanOf& plan, const StreamNow& in) {
  launch_wait(plan, Call::wait, in);
  closed(plan, in);
}

void Launching::complete_wait(const AccessPlanOf& access, const ExposurePlanOf& exposure, const StreamNow& in,
                              OperationBudget::Lease lease) {
  if (merge_ && !guards_) {
    launch_fused(access, exposure, in, std::move(lease));
  } else {
    launch_complete(access, exposure.get(), Call::complete_wait, in, std::move(lease));
    launch_wait(exposure, Call::complete_wait, in);
  }
  sent(access, in);
  closed(exposure, in);
}

// ---- once it is enqueued -----------------------------------------------------------------------------

void Launching::opened(const ExposurePlanOf& plan, const StreamNow& in) {
  if (in.capture)
    keep_for_graph(in, plan);
  else
    enqueued_.add_opened(plan->origins);
}

void Launching::sent(const AccessPlanOf& plan, const StreamNow& in) {
  if (in.capture)
    keep_for_graph(in, plan);
  else
    enqueued_.add_sent(plan->targets);
  last_access_ = plan;
}

void Launching::closed(const ExposurePlanOf& plan, const StreamNow& in) {
  if (in.capture)
    keep_for_graph(in, plan);
  else
    enqueued_.add_closed(plan->origins);
}

/// The graph has a part of this window: what its kernels touch must stay until it is gone.
void Launching::keep_for_graph(const StreamNow& in, std::shared_ptr<const void> plan) {
  struct Parts {
    std::shared_ptr<const void> plan, control, words, relayed;
  };
  was_captured_ = true;
  device_.keep_for_graph(in.stream, std::make_shared<Parts>(Parts{std::move(plan), peers_.control_memory(), words_,
                                                                  off_node_.relayed_memory()}));
}

// ---- launches ----------------------------------------------------------------------------------------

void Launching::launch_post(const ExposurePlanOf& plan, const StreamNow& in, OperationBudget::Lease lease) {
  const auto remote = off_node_.queue_posts(plan->remote, std::move(lease));
  OperationBudget::Unserved unserved = off_node_.unserved(remote);
  for_batches(plan->posts.count(), plan->remote.size(), [&](Batch batch) {
    Launch launch = new_launch(Call::post, in);
    add_posts(launch, plan, batch.first, batch.count);
    off_node_.add_operations(launch, remote, batch.first_remote, batch.remote_count);
    enqueue(launch, in);
    if (batch.remote_count > 0) unserved.none();
  });
}

void Launching::launch_copies(const AccessPlanOf& plan, const StreamNow& in) {
  if (plan->copies.empty()) return;
  Launch launch = new_launch(Call::complete, in);
  carry_post(launch, in);
  add_sends(launch, plan, plan->before_copies, 0, plan->before_copies.count());
  launch.before_copies = true;
  enqueue(launch, in);
  for (const Copy& copy : plan->copies) device_.copy(in.stream, copy.to, copy.from, copy.bytes);
}

void Launching::launch_complete(const AccessPlanOf& plan, const ExposurePlan* exposure, Call call, const StreamNow& in,
                                OperationBudget::Lease lease) {
  const auto remote = off_node_.queue_sends(plan->remote, plan, call, std::move(lease));
  OperationBudget::Unserved unserved = off_node_.unserved(remote);
  if (guards_) guards_->before_send(*plan, exposure, call, in.stream);
  launch_copies(plan, in);
  const DeviceArray<SendPeer>& sends = merge_ ? plan->merged : plan->unmerged;
  for_batches(sends.count(), plan->remote.size(), [&](Batch batch) {
    Launch launch = new_launch(call, in);
    carry_post(launch, in);
    add_sends(launch, plan, sends, batch.first, batch.count);
    off_node_.add_operations(launch, remote, batch.first_remote, batch.remote_count);
    enqueue(launch, in);
    if (batch.remote_count > 0) unserved.none();
  });
}

void Launching::launch_wait(const ExposurePlanOf& plan, Call call, const StreamNow& in) {
  if (guards_) guards_->before_receive(*plan, call, in.stream);
  for_batches(plan->receives.count(), plan->remote.size(), [&](Batch batch) {
    Launch launch = new_launch(call, in);
    carry_post(launch, in);
    add_receives(launch, plan, batch.first, batch.count);
    off_node_.add_receives(launch, plan->remote, batch.first_remote, batch.remote_count);
    enqueue(launch, in);
  });
}

/// Both halves in one launch.
void Launching::launch_fused(const AccessPlanOf& access, const ExposurePlanOf& exposure, const StreamNow& in,
                             OperationBudget::Lease lease) {
  const auto remote = off_node_.queue_sends(access->remote, access, Call::complete_wait, std::move(lease));
  OperationBudget::Unserved unserved = off_node_.unserved(remote);
  launch_copies(access, in);
  Launch launch = new_launch(Call::complete_wait, in);
  carry_post(launch, in);
  add_sends(launch, access, access->merged, 0, access->merged.count());
  add_receives(launch, exposure, 0, exposure->receives.count());
  off_node_.add_operations(launch, remote, 0, access->remote.size());
  off_node_.add_receives(launch, exposure->remote, 0, exposure->remote.size());
  enqueue(launch, in);
  unserved.none();
}

// ---- posts that go later -----------------------------------------------------------------------------

/// See FreePosts; and GPUs have no atomic operations on the words of relayed ranks, which lie in memory of the host.
bool Launching::may_be_free(const ExposurePlan& plan, const StreamNow& in) const {
  if (!free_posts_ || in.capture || was_captured_ || !plan.remote.empty() || plan.posts.count() == 0) return false;
  return !off_node_.is_relayed() ||
         std::none_of(plan.origins.begin(), plan.origins.end(), [this](int rank) { return peers_.peer(rank).relayed; });
}

bool Launching::set_free_post(const ExposurePlanOf& plan, const StreamNow& in) {
  const std::uint64_t stream_number = device_.number_of(in.stream);
  auto point = free_posts_->add(in.stream, stream_number, *plan, enqueued_);
  if (!point) return false;
  to_carry_ = CarriedPost{plan, in, std::move(point), stream_number};
  return true;
}

/// The counters that a post advances are one stream's at a time.
void Launching::keep_behind_posts(const StreamNow& in) {
  if (last_aside_ && last_aside_->passed()) last_aside_ = nullptr;
  if (last_aside_) device_.post_streams()->hold_back(in.stream, in.capture != 0, last_aside_);
}

void Launching::carry_post(Launch& launch, const StreamNow& in) {
  if (!to_carry_.plan) return;
  const bool same_stream = to_carry_.point ? in.capture == 0 && device_.number_of(in.stream) == to_carry_.stream_number
                                           : to_carry_.in.stream == in.stream || !is_alive(to_carry_.in.stream);
  if (same_stream) {
    add_posts(launch, to_carry_.plan, 0, to_carry_.plan->posts.count());
  } else if (to_carry_.point) {
    launch_aside();
  } else {
    launch_carried_post(to_carry_.in);
  }
}

void Launching::launch_carried_post(const StreamNow& in) {
  const ExposurePlanOf plan = to_carry_.plan;  // it is carried by the first launch of those that there may be
  launch_post(plan, is_alive(to_carry_.in.stream) ? to_carry_.in : in, {});
}

/// Behind the point of the post, and not in its stream, which may be gone, or captured by now.
void Launching::launch_aside() {
  Launch launch = new_launch(Call::post, StreamNow{});
  add_posts(launch, to_carry_.plan, 0, to_carry_.plan->posts.count());
  keep_and(launch, [&] { last_aside_ = device_.post_streams()->launch_behind(to_carry_.point, std::move(launch)); });
  enqueued_.add_opened(to_carry_.plan->origins);
  to_carry_ = CarriedPost{};
}

/// The work of a stream that was destroyed meanwhile has run: any stream comes after it.
bool Launching::has_lost_post() const {
  const StreamNow& in = to_carry_.in;
  return to_carry_.plan && !to_carry_.point && in.capture != 0 &&
         !(is_alive(in.stream) && device_.check_stream(in.stream) == in.capture);
}

bool Launching::is_alive(Stream stream) const {
  try {
    (void)device_.check_stream(stream);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Launching::enqueue(Launch& launch, const StreamNow& in) {
  launch.memory = memory_.get();
  const bool carries = launch.program.post_count > 0 && to_carry_.plan;
  keep_and(launch, [&] { device_.launch(in.stream, std::move(launch)); });
  off_node_.wake();
  if (!carries) return;
  // Only now is it enqueued.
  if (!to_carry_.in.capture) enqueued_.add_opened(to_carry_.plan->origins);
  to_carry_ = CarriedPost{};
}

template <class Enqueue>
void Launching::keep_and(Launch& launch, Enqueue enqueue_it) {
  // Before the launch is in flight itself: only those before it may have run.
  if (device_.reads_plans_later() && in_flight_.add(launch.keep)) {
    if (progress_.has_run()) {
      in_flight_.have_run();
      in_flight_.add(launch.keep);
    } else {
      in_flight_.have_not_run();
    }
  }
  enqueue_it();
  progress_.launched();
}

// ---- what a launch holds -----------------------------------------------------------------------------

/// Merged: all entries in one launch. Else a launch for each, first those of this node.
template <class Enqueue>
void Launching::for_batches(std::uint32_t entries, std::size_t remote, Enqueue enqueue_batch) {
  if (merge_) {
    if (entries + remote > 0) enqueue_batch(Batch{0, entries, 0, remote});
    return;
  }
  for (std::uint32_t first = 0; first < entries; ++first) enqueue_batch(Batch{first, 1, 0, 0});
  for (std::size_t first = 0; first < remote; ++first) enqueue_batch(Batch{0, 0, first, 1});
}

Launch Launching::new_launch(Call call, const StreamNow& in) {
  Launch launch;
  launch.call = call;
  launch.stall = &stall_;
  launch.program.captured = in.capture != 0;
  launch.program.raises_posts = free_posts_ != nullptr && in.capture == 0;
  launch.program.guards = guards_ ? peers_.guard_marks() : nullptr;
  launch.sharers = peers_.sharers();
  launch.room = peers_.waiting_room();
  launch.packs_above = peers_.packs_above();
  launch.relayed = off_node_.is_relayed();
  launch.program.bell = peers_.bell();
  launch.program.host = words_.get();
  return launch;
}

void Launching::add_posts(Launch& launch, const ExposurePlanOf& plan, std::uint32_t first, std::uint32_t count) {
  launch.program.tables.posts = plan->posts.data() + first;
  launch.on_host.posts = plan->posts.on_host.data() + first;
  launch.program.post_count = count;
  launch.keep[0] = plan;
}

void Launching::add_sends(Launch& launch, const AccessPlanOf& plan, const DeviceArray<SendPeer>& sends,
                          std::uint32_t first, std::uint32_t count) {
  launch.program.tables.sends = sends.data() + first;
  launch.on_host.sends = sends.on_host.data() + first;
  launch.program.send_count = count;
  launch.program.tables.ops = plan->ops.data();
  launch.on_host.ops = plan->ops.on_host.data();
  launch.program.op_count = plan->ops.count();
  launch.program.send_bytes = plan->most_bytes;
  launch.keep[1] = plan;
}

void Launching::add_receives(Launch& launch, const ExposurePlanOf& plan, std::uint32_t first, std::uint32_t count) {
  launch.program.tables.receives = plan->receives.data() + first;
  launch.on_host.receives = plan->receives.on_host.data() + first;
  launch.program.receive_count = count;
  launch.keep[0] = plan;
  if (!launch.keep[1]) launch.keep[1] = last_access_;
  const auto* expected = static_cast<const AccessPlan*>(launch.keep[1].get());
  launch.expected_bytes = expected ? expected->bytes_to_move.data() : nullptr;
  launch.program.receive_bytes = most_receive_bytes_;
}

}  // namespace mpix
