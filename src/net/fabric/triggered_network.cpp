// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/fabric/triggered_network.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/log.h"
#include "net/fabric/cxi.h"
#include "net/fabric/endpoint.h"
#include "net/fabric/fabric_inlet.h"
#include "net/fabric/process_kept.h"
#include "net/fabric/provider.h"
#include "net/fabric/triggered_queue.h"
#include "net/progress_agent.h"

namespace mpix {
namespace {

/// What a provider gets that has no limit of its own to ask for.
constexpr std::size_t preset_operations = 512;

/// More than any epoch needs at a time, and few enough to leave a NIC's counters to others.
constexpr std::size_t most_chains = 64;

class TriggeredNetwork final : public Network {
 public:
  TriggeredNetwork(const Settings& settings, int local_ranks)
      : endpoint_(std::make_shared<Endpoint>(find_provider(settings.nic))),
        queue_(std::make_shared<TriggeredQueue>(endpoint_, settings.counter_limit,
                                                settings.always_chain ? 0 : endpoint_->ordered_bytes())),
        keeps_words_whole_(!settings.always_chain && endpoint_->keeps_words_whole()),
        depth_(triggered_depth(endpoint_->domain())) {
    std::size_t operations = preset_operations;
    // Of what the NIC has, an eighth stays for MPI and for work that the library does not know of.
    if (depth_) operations = std::max<std::size_t>(1, (*depth_ - *depth_ / 8) / static_cast<std::size_t>(local_ranks));
    if (settings.triggered_operations > 0) operations = settings.triggered_operations;
    const std::size_t most = most_operations(endpoint_->info());
    if (operations > most) {
      log(LogLevel::warn, "MPIX_TRIGGERED_OPS=" + std::to_string(operations) + " is more than the " +
                              std::to_string(most) + " that the provider " + endpoint_->provider() + " can take");
      operations = most;
    }
    capacity_.operations = operations;
    // Software counters are only memory: opened when needed.
    capacity_.transfers = depth_ ? queue_->open_chains(std::min(operations, most_chains)) : operations;
  }

  std::string name() const override { return endpoint_->provider(); }
  void begin() override {
    std::lock_guard<std::mutex> hold(mutex_);
    if (!agent_) agent_.emplace(queue_);
  }
  NetworkAddress address() const override { return endpoint_->address(); }
  Connection connect(const NetworkAddress& peer) override { return endpoint_->insert(peer); }

  std::shared_ptr<const Registration> expose(void* base, std::size_t bytes) override {
    return endpoint_->register_memory(base, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE);
  }

  std::shared_ptr<const Registration> register_source(const void* base, std::size_t bytes) override {
    if (!endpoint_->sources_need_registration()) return nullptr;
    return sources_.find_or_add(
        base, bytes, [&] { return endpoint_->register_memory(const_cast<void*>(base), bytes, FI_READ | FI_WRITE); });
  }

  std::unique_ptr<Inlet> open_inlet(char* base, std::size_t places, std::size_t bytes) override {
    if (!keeps_words_whole_) return nullptr;
    return std::make_unique<FabricInlet>(endpoint_, base, places, bytes);
  }

  bool keeps_words_whole() const override { return keeps_words_whole_; }
  bool read_still(const std::function<void()>& read) override { return queue_->read_still(read); }
  Capacity capacity() const override { return capacity_; }

  std::unique_ptr<Transfer> queue(Connection peer, const NetworkWrite* writes, std::size_t count,
                                  const NetworkSignal* signal) override {
    return queue_->queue(peer, writes, count, signal);
  }

  void progress() override { queue_->progress(); }
  std::string failure() override { return queue_->failure(); }

  std::string probe(Connection peer, const RemoteMemory& memory, std::uint64_t offset) override {
    return queue_->probe(peer, memory, offset);
  }

 private:
  /// Registrations in use, by the memory that they are of. A plan keeps those of its puts, so an epoch that is
  /// repeated registers nothing; when the last plan is gone the memory is unregistered.
  class SourceCache {
   public:
    template <class Register>
    std::shared_ptr<const Registration> find_or_add(const void* base, std::size_t bytes, Register make) {
      std::lock_guard<std::mutex> hold(mutex_);
      std::weak_ptr<const Registration>& known = known_[{base, bytes}];
      if (auto registration = known.lock()) return registration;
      std::shared_ptr<const Registration> registration = make();
      known = registration;
      for (auto at = known_.begin(); at != known_.end();) at = at->second.expired() ? known_.erase(at) : std::next(at);
      return registration;
    }

   private:
    std::mutex mutex_;
    std::map<std::pair<const void*, std::size_t>, std::weak_ptr<const Registration>> known_;
  };

  const std::shared_ptr<Endpoint> endpoint_;
  const std::shared_ptr<TriggeredQueue> queue_;
  std::mutex mutex_;
  std::optional<ProgressAgent> agent_;  ///< guarded by mutex_
  const bool keeps_words_whole_;
  const std::optional<std::size_t> depth_;
  Capacity capacity_;
  SourceCache sources_;
};

}  // namespace

std::unique_ptr<Network> make_triggered_network(const Settings& settings, int local_ranks) {
  const ProcessKept kept;
  return std::make_unique<TriggeredNetwork>(settings, local_ranks);
}

bool triggered_network_built() { return true; }

}  // namespace mpix
