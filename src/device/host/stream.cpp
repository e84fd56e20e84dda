// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/stream.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "device/host/bell.h"
#include "device/host/collective_run.h"
#include "device/host/rail_run.h"
#include "device/host/run.h"

namespace mpix {

namespace {

/// The stream whose functions this thread runs.
thread_local HostStream* running_here = nullptr;

/// What a function of the program must not do, and what then nobody could wait for: end the thread of its stream.
class MustReturn {
 public:
  ~MustReturn() {
    if (returned_) return;
    log(LogLevel::error, "a function that was launched in a host stream has ended the stream's thread (pthread_exit)");
    std::abort();
  }
  void has_returned() { returned_ = true; }

 private:
  bool returned_ = false;
};

void call(void (*function)(void*), void* argument) {
  MustReturn guard;
  function(argument);
  guard.has_returned();
}

}  // namespace

HostStream::HostStream(Polling polling) : polling_(polling) {
  worker_ = start_thread("a host stream", [this] {
    wake_soon();
    work();
  });
}

HostStream::~HostStream() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stop_ = true;
    more_.notify_one();
  }
  worker_.join();
}

void HostStream::launch(void (*function)(void*), void* argument) {
  enqueue([=](Task& task) {
    task.function = function;
    task.argument = argument;
  });
}

void HostStream::launch(Launch&& launch) {
  enqueue([&](Task& task) { task.launch = std::move(launch); });
}

void HostStream::launch(MemoryOps ops) {
  auto memory = std::make_unique<MemoryOps>(std::move(ops));
  enqueue([&](Task& task) { task.memory = std::move(memory); });
}

void HostStream::launch(CollectiveLaunch&& launch) {
  auto collective = std::make_unique<CollectiveLaunch>(std::move(launch));
  enqueue([&](Task& task) { task.collective = std::move(collective); });
}

void HostStream::launch(RailLaunch&& launch) {
  auto rail = std::make_unique<RailLaunch>(std::move(launch));
  enqueue([&](Task& task) { task.rail = std::move(rail); });
}

/// In the queue itself: a task is large.
template <class Fill>
void HostStream::enqueue(Fill fill) {
  bool wake;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    fill(incoming_.emplace_back());
    enqueued_.store(enqueued_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    wake = worker_sleeps_;
    worker_sleeps_ = false;
  }
  if (wake) more_.notify_one();
}

bool HostStream::synchronize(const std::function<void()>& meanwhile) {
  const std::uint64_t target = enqueued_.load(std::memory_order_acquire);
  std::unique_lock<std::mutex> hold(mutex_);
  const auto entry = awaited_.insert(target);
  next_awaited_.store(*awaited_.begin());
  const auto all_done = [&] { return done_.load() >= target; };
  using std::chrono::milliseconds;
  for (auto nap = milliseconds(1); meanwhile && !progress_.wait_for(hold, nap, all_done);
       nap = std::min(2 * nap, milliseconds(10))) {
    hold.unlock();
    meanwhile();
    hold.lock();
  }
  progress_.wait(hold, all_done);
  awaited_.erase(entry);
  next_awaited_.store(awaited_.empty() ? no_target : *awaited_.begin());
  return !released_.exchange(false);
}

void HostStream::finished() {
  // Sequentially consistent, as is synchronize(): it sees the task done, or is seen here. A thread that
  // waits for the end of many tasks is not woken by each.
  if (done_.fetch_add(1) + 1 < next_awaited_.load()) return;
  std::lock_guard<std::mutex> hold(mutex_);
  progress_.notify_all();
}

void HostStream::work() {
  running_here = this;
  std::vector<Task> batch;
  while (take(batch)) {
    for (Task& task : batch) {
      const bool is_epoch = !task.function && !task.memory && !task.collective && !task.rail;
      HostWords* const words = is_epoch ? task.launch.program.host : nullptr;
      const bool ends_call = task.collective && task.collective->call.half != CallHalf::sends;
      CollectiveWords* const collective = ends_call ? task.collective->call.host : nullptr;
      // What the words lie in outlives the task.
      const std::shared_ptr<const void> keep = task.collective ? task.collective->keep : nullptr;
      run(task);
      task = Task{};
      if (collective) __atomic_fetch_add(&collective->run, 1, __ATOMIC_RELEASE);
      // Not before what it kept alive is gone: whoever reads that it has run may end the window, and MPI.
      if (words) __atomic_fetch_add(&words->executed, 1, __ATOMIC_RELEASE);
      finished();
    }
    batch.clear();
  }
}

bool HostStream::take(std::vector<Task>& batch) {
  // The next task often follows at once: a short look before going to sleep.
  const std::uint64_t done = done_.load(std::memory_order_relaxed);
  const auto until = std::chrono::steady_clock::now() + polling_.limit;
  for (unsigned looks = 1; enqueued_.load(std::memory_order_acquire) == done && !stop_.load(); ++looks) {
    if (polling_.own_core && looks % 64 != 0)
      relax();
    else if (std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    else
      break;
  }
  std::unique_lock<std::mutex> hold(mutex_);
  while (incoming_.empty() && !stop_) {
    worker_sleeps_ = true;
    more_.wait(hold);
  }
  worker_sleeps_ = false;
  batch.swap(incoming_);
  return !batch.empty();
}

void HostStream::run(Task& task) {
  if (task.function)
    call(task.function, task.argument);
  else if (!(task.memory       ? run_on_host(*task.memory, polling_)
             : task.collective ? run_on_host(*task.collective, polling_)
             : task.rail       ? run_on_host(*task.rail, polling_)
                               : run_on_host(task.launch, polling_)))
    released_.store(true);
}

// ---- handles -----------------------------------------------------------------------------------------

namespace {

struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<Stream, std::unique_ptr<HostStream>> streams;
  std::unique_ptr<HostStream> preset;
  Polling polling{};
};

/// Never destroyed: a worker of a stream that the program did not destroy may outlive static objects. A child of fork()
/// begins with an empty one: it has not the workers of its parent's streams, and what they held is held for ever.
struct Registries {
  std::atomic<Registry*> of_process{new Registry};
  std::atomic<bool> is_child{false};

  Registries() {
    (void)pthread_atfork(nullptr, nullptr, [] { get().begin_child(); });
  }
  void begin_child() {
    is_child = true;
    auto* const own = new (std::nothrow) Registry;
    if (!own) return;
    own->polling = of_process.load()->polling;
    of_process = own;
  }
  static Registries& get() {
    static Registries& all = *new Registries;
    return all;
  }
};

Registry& registry() { return *Registries::get().of_process.load(std::memory_order_acquire); }

[[noreturn]] void no_such_stream() {
  throw Error(Fault::argument,
              "the stream is not a live stream of the host device (MPIX_Host_stream_create makes one; "
              "NULL is the default stream)");
}

/// The stream, held alive by the lock on the registry.
template <class Use>
auto with_stream(Stream stream, Use use) {
  Registry& all = registry();
  if (!stream) {
    {
      std::shared_lock<std::shared_mutex> hold(all.mutex);
      if (all.preset) return use(*all.preset);
    }
    std::unique_lock<std::shared_mutex> hold(all.mutex);
    if (!all.preset) all.preset = std::make_unique<HostStream>(all.polling);
    return use(*all.preset);
  }
  std::shared_lock<std::shared_mutex> hold(all.mutex);
  const auto found = all.streams.find(stream);
  if (found == all.streams.end()) no_such_stream();
  return use(*found->second);
}

}  // namespace

HostStream* create_host_stream() {
  Registry& all = registry();
  std::unique_lock<std::shared_mutex> hold(all.mutex);
  auto stream = std::make_unique<HostStream>(all.polling);
  HostStream* handle = stream.get();
  all.streams.emplace(handle, std::move(stream));
  return handle;
}

bool destroy_host_stream(Stream stream, const std::function<void()>& meanwhile) {
  std::unique_ptr<HostStream> dying;
  {
    Registry& all = registry();
    std::unique_lock<std::shared_mutex> hold(all.mutex);
    const auto found = all.streams.find(stream);
    if (found == all.streams.end()) {
      if (Registries::get().is_child) return true;  // by what runs at exit, say: its parent has it still
      no_such_stream();
    }
    if (found->second->is_own_thread())
      throw Error(Fault::argument, "a stream cannot be destroyed by a function that runs on it");
    dying = std::move(found->second);
    all.streams.erase(found);
  }
  return dying->synchronize(meanwhile);  // outside the lock: it waits
}

void check_host_stream(Stream stream) {
  if (stream) with_stream(stream, [](HostStream&) {});
}

bool is_host_stream(Stream stream) {
  Registry& all = registry();
  std::shared_lock<std::shared_mutex> hold(all.mutex);
  return all.streams.count(stream) > 0;
}

void host_stream_launch(Stream stream, void (*function)(void*), void* argument) {
  if (!function) throw Error(Fault::argument, "the function to launch is NULL");
  with_stream(stream, [&](HostStream& live) { live.launch(function, argument); });
}

void host_stream_launch(Stream stream, Launch&& launch) {
  with_stream(stream, [&](HostStream& live) { live.launch(std::move(launch)); });
}

void host_stream_launch(Stream stream, MemoryOps ops) {
  with_stream(stream, [&](HostStream& live) { live.launch(std::move(ops)); });
}

void host_stream_launch(Stream stream, CollectiveLaunch&& launch) {
  with_stream(stream, [&](HostStream& live) { live.launch(std::move(launch)); });
}

void host_stream_launch(Stream stream, RailLaunch&& launch) {
  with_stream(stream, [&](HostStream& live) { live.launch(std::move(launch)); });
}

void host_stream_note_release() {
  if (running_here) running_here->note_release();
}

bool host_stream_synchronize(Stream stream, const std::function<void()>& meanwhile) {
  HostStream* live = with_stream(stream, [](HostStream& found) { return &found; });
  if (live->is_own_thread())
    throw Error(Fault::argument, "a stream cannot be synchronized by a function that runs on it");
  // Not under the lock, which others need meanwhile. Destroying a stream while another thread
  // synchronizes it is the program's error.
  return live->synchronize(meanwhile);
}

void set_host_polling(Polling polling) {
  Registry& all = registry();
  std::unique_lock<std::shared_mutex> hold(all.mutex);
  all.polling = polling;
}

}  // namespace mpix
