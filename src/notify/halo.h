// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/service.h"
#include "base/settings.h"
#include "device/copier.h"
#include "device/device.h"
#include "device/halo_launch.h"
#include "device/unmapping.h"
#include "notify/channel.h"
#include "notify/halo_plan.h"
#include "notify/halo_segment.h"

namespace mpix {

/// Who carries the messages of a halo: those of MPI, by their index, each with two buffers in turns. One thread at a
/// time; calls throw Error when it cannot go on.
class HaloTransport {
 public:
  struct Over {
    std::uint32_t message, half;
    bool is_send;
  };
  virtual ~HaloTransport() = default;
  virtual void start_send(std::uint32_t message, std::uint32_t half) = 0;
  virtual void start_receive(std::uint32_t message, std::uint32_t half) = 0;
  /// Until the other side has begun to receive.
  virtual bool sends_block() const noexcept { return false; }
  /// That went, so far: of MPI.
  virtual std::uint64_t sends() const noexcept = 0;
  /// Appends what is over since the last look.
  virtual void look(bool only_sends, std::vector<Over>* over) = 0;
  /// Nothing is received any more. False: something is still being sent, from memory that has to stay.
  virtual bool cancel() noexcept = 0;
};

/// Where MPI finds what is sent, and puts what is received.
enum class HaloBuffers {
  pinned,  ///< memory of the host that kernels reach
  copied,  ///< memory of the host; the copy engine carries it from memory of the device, and there
  device,  ///< memory of the device
};

/// Buffers of a message of MPI, of exchange s those with index s mod halves.
struct HaloBufferPair {
  std::array<char*, 2> send{}, recv{};
};

/// The halo engine: launches that pack and unpack (mpix_device/halo.h). What goes by memory needs no more; for the rest
/// there is a service that sends what is packed and receives what is to be unpacked, while they run. For h halves, of
/// each such message:
///
/// | by the service           | when |
/// |--------------------------|------|
/// | copy s out, if copied    | packed is s |
/// | start send s             | that; or the copy is over; where sends block, all receives of s were started. When the send is over, `sent` becomes s |
/// | start receive s          | unpacked is s - h |
/// | copy s in, if copied     | the receive is over |
/// | `received` becomes s     | that; or the copy is over. With waits_for_all when all messages have come as far |
///
/// The program orders its exchanges, as each reads and writes the same boxes. A launch for steps begins when the launch
/// before is over, in whatever stream that is. An exchange by itself is refused while steps are to come.
///
/// | state of steps | begins with | calls |
/// |----------------|-------------|-------|
/// | none           | birth, the last step is ready, end_steps | exchange, begin_steps, free |
/// | to come        | begin_steps | step_ready (one less), wait_for_steps, end_steps |
class Halo final : public Poller, public WaitsForPeers {
 public:
  struct Options {
    HaloForm form = HaloForm::stacked;
    HaloBuffers buffers = HaloBuffers::pinned;
    std::uint32_t halves = 1;
    std::uint64_t chunk = 0;
    std::uint32_t blocks = 0;  ///< of a launch, at most; 0: by the device and the messages
    bool largest_first = false;
    bool sends_first = false;    ///< receives are looked at when all sends of the exchange are over
    bool waits_for_all = false;  ///< of an exchange, before one is unpacked
    std::string name;
    int local_ranks = 1;
    std::uint32_t sharers = 1;  ///< ranks whose kernels run where this one's do
    std::string no_steps_why;   ///< not empty: kernels that live for many exchanges are refused
  };
  Halo(const Options& options, const std::vector<HaloContent>& messages, Device& device, const Settings& settings);
  ~Halo() override;

  const std::vector<HaloCargo>& cargo() const { return plan_.cargo; }
  /// Of a cargo, at this end.
  bool may_send_lines(std::size_t cargo) const {
    return fits_lines(plan_.messages[cargo].send.side, plan_.boxes, plan_.cargo[cargo].send_bytes);
  }
  bool may_take_lines(std::size_t cargo) const {
    return fits_lines(plan_.messages[cargo].recv.side, plan_.boxes, plan_.cargo[cargo].recv_bytes);
  }
  /// Next, and once: what goes by memory, and how. `segment`: null: nothing does.
  void use_ends(std::unique_ptr<HaloSegment> segment, const std::vector<HaloEnd>& ends);
  /// What goes by MPI, by cargo, and its buffers.
  bool sends_by_mpi(std::size_t cargo) const { return plan_.cargo[cargo].sends && !known_->by_memory[cargo]; }
  bool receives_by_mpi(std::size_t cargo) const { return plan_.cargo[cargo].receives && !known_->by_memory[cargo]; }
  bool serves_any() const { return !sends_.empty() || !receives_.empty(); }
  const std::vector<HaloBufferPair>& buffers() const { return for_mpi_; }
  std::uint32_t halves() const { return options_.halves; }
  /// Before the first exchange. Null: serves_any() is false.
  void serve_by(std::unique_ptr<HaloTransport> transport);

  void exchange(Stream stream);
  /// `steps` exchanges in one launch, each when the program says that it is ready.
  void begin_steps(std::uint64_t steps, Stream stream);
  void step_ready(Stream stream);
  void wait_for_steps(Stream stream);
  /// No further ones.
  void end_steps(Stream stream);
  /// For kernels of the program.
  MPIX_Dev_halo param();

  /// Throws while steps are to come.
  void require_no_steps();
  /// Asleep, until all that was enqueued here, but for graphs, has run. False: it is broken.
  bool wait_for_all(const std::function<void()>& meanwhile = nullptr);
  /// Of what kernels have packed: no kernel waits for the last ones.
  void wait_for_sends(const std::function<void()>& meanwhile, Clock::time_point until);
  std::unique_lock<std::mutex> held_if_idle(bool or_unseen) override;
  /// Nobody serves it any more.
  void end_service();
  void break_for(const std::string& why) { channel_.break_for(why); }
  /// Something of it goes by memory: it ends when all ranks that it has messages with have come to its end; or else is
  /// abandoned, and they may still write.
  /// Behind wait_for_all().
  bool have_launches_left() const { return !launches_stay_; }
  /// Streams may still look at what the device and the library have.
  bool leaves_work() const { return launches_stay_ || waits_untold_; }
  bool is_shared() const { return segment_ != nullptr; }
  void abandon() {
    if (segment_) segment_->abandon();
  }
  std::string cause() const { return channel_.cause(); }
  const std::string& name() const { return options_.name; }
  bool is_broken() const { return channel_.is_broken(); }

  struct Counts {
    std::uint64_t exchanges = 0, sent = 0, received = 0, send_bytes = 0, recv_bytes = 0, blocks = 0, by_memory = 0,
                  mpi_sends = 0;
  };
  Counts counts();

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override { channel_.break_for(why); }

 private:
  /// Exchanges: the last one that has begun, of which MPI is done; and further ones that are, by half.
  struct Way {
    std::uint64_t begun = 0, over = 0;
    std::array<bool, 2> is_over{};
    bool is_moving() const { return begun != over; }
  };
  struct Progress {
    Way send, receive;
    std::uint64_t told_sent = 0, told_received = 0;
  };
  struct Copy {
    std::uint64_t number;
    HaloTransport::Over of;
  };
  static constexpr std::size_t most_waiting = 64;
  using Waiting = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

  /// A launch, or a step of one: over when a flag of the kernels has come as far.
  struct InFlight {
    std::uint32_t flag;
    std::uint64_t exchange;
  };
  struct Memory;

  /// What reports say, and the channel's thread asks for.
  struct Known {
    std::atomic<std::uint64_t> last_step{0};  ///< that was begun
    std::vector<std::string> names;           ///< of cargo
    std::vector<bool> by_memory;
  };

  static ChannelOptions channel_options(const Options& options, std::shared_ptr<const Known> known, std::uint32_t flags,
                                        const std::string& hang_advice);
  static std::string wait_text(const Known& known, std::uint32_t flag, std::uint64_t packed, const std::string& advice);
  std::uint32_t places() const;
  std::uint32_t most_blocks() const;
  HaloShape shape() const;
  void make_buffers();
  void upload_tables(const std::vector<HaloEnd>& ends);
  std::uint32_t half_of(std::uint64_t exchange) const { return options_.halves == 2 ? exchange & 1 : 0; }
  void require_whole() const;
  void require_no_steps_to_come() const;
  void require_not_stepping(Stream stream) const;
  void gate(Stream stream, HaloGate::What what, std::uint64_t value);
  void gate(Stream stream, const HaloGate& gate);
  void wait_for_early_end(Stream stream);
  void wait_for_end_of_steps(Stream stream);
  HaloRun run_of(HaloPlan::Range range, std::uint32_t blocks) const;
  void launch(Stream stream, const HaloRun& run, bool captured);
  void wait_for_room();
  void enqueued(HaloPlan::Range range);
  template <class Enqueue>
  void announced(Enqueue enqueue);
  void expect_unseen_runs();
  void launch_exchange(Stream stream, std::uint64_t number);
  bool serve();
  Waiting::iterator word_of(std::uint64_t stream);
  bool has_passed(const Waiting::value_type& one) const;
  bool have_streams_passed();
  bool is_all_sent();
  bool start_moves();
  void end_move(const HaloTransport::Over& of);
  void end_copies();
  bool are_all_sent() const;
  void tell();

  const Options options_;
  Device& device_;
  const std::shared_ptr<WaitingRoom> room_;
  HaloPlan plan_;
  const std::shared_ptr<Known> known_;
  Channel channel_;
  std::unique_ptr<HaloSegment> segment_;
  std::vector<std::uint32_t> sends_, receives_;  ///< cargo that goes by MPI
  std::vector<HaloBufferPair> for_mpi_, for_kernels_;
  std::shared_ptr<Memory> memory_;
  MPIX_Dev_halo param_{};
  std::unique_ptr<HaloTransport> transport_;
  const Clock::duration patience_;  ///< nothing: for ever
  const bool fails_on_timeout_;

  std::mutex calls_;           ///< guards what follows: of the program
  std::uint64_t ready_ = 0;    ///< steps, so far
  std::uint64_t to_come_ = 0;  ///< steps: that were begun, and are not ready
  Stream stepping_ = nullptr;  ///< the stream whose launch runs them
  std::uint64_t launches_ = 0;
  std::uint64_t stopped_ = 0;  ///< the last launch, where it was ended early
  std::uint64_t stepped_ = 0;  ///< the last launch for steps, where nothing has waited for its end
  std::deque<InFlight> in_flight_;
  /// Streams that wait for steps, by number, each with a word, and the waits that it counts. A word is another stream's
  /// when all of its waits are over.
  Waiting waiting_;
  /// How many of them the stream has come through. Memory of the host: calls look at it, and a copy from a GPU may have
  /// to wait for what the call is to make possible.
  std::uint64_t* passed_ = nullptr;
  bool launches_stay_ = false;  ///< of a broken one, which is freed
  bool waits_untold_ = false;   ///< more streams than there are words

  std::mutex mutex_;  ///< guards what follows, and the transport
  std::vector<Progress> progress_;
  std::vector<HaloTransport::Over> over_;
  std::unique_ptr<Copier> copier_;
  std::deque<Copy> copies_;
  Counts counts_;
  std::uint64_t received_by_memory_ = 0;  ///< cargo; counts_ has what is sent so
  BackOff back_off_;
  std::atomic<std::uint64_t> exchanges_{0}, run_so_far_{0};
  std::atomic<std::uint64_t> enqueued_{0};     ///< exchanges, in graphs, too
  std::atomic<std::uint64_t> sent_by_all_{0};  ///< `sent` of all messages is no less
  std::atomic<bool> runs_unseen_{false};       ///< kernels that nobody announces: in graphs, and of the program
  bool is_serving_ = false, is_moving_ = false;
  std::optional<AskedBeforeUnmapping> asked_;
};

}  // namespace mpix
