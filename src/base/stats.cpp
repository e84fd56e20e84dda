// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/stats.h"

namespace mpix {

void Stats::add(const Stats& other) {
  exposure_epochs += other.exposure_epochs;
  access_epochs += other.access_epochs;
  posts_raised += other.posts_raised;
  puts += other.puts;
  bytes_mailbox += other.bytes_mailbox;
  bytes_direct += other.bytes_direct;
  bytes_staged += other.bytes_staged;
  bytes_copied += other.bytes_copied;
  plans_built += other.plans_built;
  plans_reused += other.plans_reused;
  bytes_network_eager += other.bytes_network_eager;
  bytes_network_direct += other.bytes_network_direct;
  network_operations += other.network_operations;
  throttle_waits += other.throttle_waits;
  throttle_nanoseconds += other.throttle_nanoseconds;
}

std::string describe(const Stats& stats) {
  const auto n = [](std::uint64_t value) { return std::to_string(value); };
  std::string text = n(stats.exposure_epochs) + " exposure epochs, " + n(stats.access_epochs) + " access epochs, " +
                     n(stats.puts) + " puts; bytes: mailbox " + n(stats.bytes_mailbox) + ", direct " +
                     n(stats.bytes_direct) + ", staged " + n(stats.bytes_staged) + ", copy engine " +
                     n(stats.bytes_copied) + "; plans: " + n(stats.plans_built) + " built, " + n(stats.plans_reused) +
                     " reused";
  if (stats.posts_raised > 0) text += "; posts that did not wait for a call: " + n(stats.posts_raised);
  if (stats.network_operations > 0)
    text += "; to other nodes: " + n(stats.network_operations) + " operations, bytes: eager " +
            n(stats.bytes_network_eager) + ", direct " + n(stats.bytes_network_direct) + "; at most " +
            n(stats.network_operations_peak) + " of " + n(stats.network_operations_budget) + " queued, " +
            n(stats.throttle_waits) + " waits of " + n(stats.throttle_nanoseconds / 1000) + " us in all";
  return text;
}

}  // namespace mpix
