// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The halo engine: include/mpix_halo.h has the contract.
#include "halo.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/job_environment.h"
#include "base/log.h"
#include "device_memory.h"
#include "errors.h"
#include "mpix.h"
#include "notify/halo.h"
#include "runtime.h"

/// What a handle stands for.
struct MPIX_Halo_s {
  MPI_Comm comm = MPI_COMM_NULL;  ///< its own
  std::unique_ptr<mpix::Halo> halo;
};

namespace mpix {
namespace {

constexpr int most_messages = 4096;

std::mutex handles_mutex;
std::set<MPIX_Halo>& handles() {
  static std::set<MPIX_Halo>& all = *new std::set<MPIX_Halo>;
  return all;
}

MPIX_Halo_s& of(MPIX_Halo halo) {
  const std::lock_guard<std::mutex> hold(handles_mutex);
  if (!halo || handles().count(halo) == 0) throw Error(Fault::argument, "no such halo");
  return *halo;
}

std::string name_of(int index, const MPIX_Halo_message& message) {
  return "message " + std::to_string(index) + " (rank " + std::to_string(message.peer) + ", send tag " +
         std::to_string(message.send_tag) + ", receive tag " + std::to_string(message.recv_tag) + ")";
}

HaloBox box_of(const MPIX_Box& from, const std::string& where) {
  const auto wrong = [&where](const std::string& what) { throw Error(Fault::argument, where + ": " + what); };
  if (from.dims < 1 || from.dims > 3) wrong(std::to_string(from.dims) + " dimensions: 1 to 3 there may be");
  if (from.element == 0) wrong("elements of no bytes");
  if (from.fields < 0) wrong("a negative number of fields");
  HaloBox box{};
  box.base = static_cast<char*>(from.base);
  box.row_bytes = from.element;
  long counts[4] = {1, 1, 1, std::max(from.fields, 1)}, strides[4] = {0, 0, 0, from.field_stride};
  for (int d = 0; d < from.dims; ++d) {
    if (from.count[d] < 0 || from.count[d] > INT_MAX) wrong("a count of " + std::to_string(from.count[d]));
    counts[d] = from.count[d];
    strides[d] = from.stride[d];
  }
  // Elements, and rows, that follow each other are longer rows.
  bool follows = true;
  for (int d = 0; d < 4; ++d) {
    follows = follows && (counts[d] == 1 || strides[d] == static_cast<long>(box.row_bytes));
    if (follows) {
      box.row_bytes *= static_cast<std::uint64_t>(counts[d]);
      counts[d] = 1;
    }
    box.rows[d] = static_cast<std::uint32_t>(counts[d]);
    box.stride[d] = strides[d];
  }
  if (box.bytes() > 0 && !from.base) wrong("no memory");
  if (box.bytes() > INT_MAX) wrong("more than 2 GiB");
  return box;
}

std::vector<HaloBox> boxes_of(const MPIX_Box* from, int count, const std::string& where) {
  if (count < 0 || (count > 0 && !from)) throw Error(Fault::argument, where + ": no boxes");
  std::vector<HaloBox> all;
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const HaloBox box = box_of(from[i], where + ", box " + std::to_string(i));
    bytes += box.bytes();
    if (box.bytes() > 0) all.push_back(box);
  }
  if (bytes > INT_MAX) throw Error(Fault::argument, where + ": more than 2 GiB");
  return all;
}

std::vector<HaloContent> contents_of(int count, const MPIX_Halo_message* messages, MPI_Comm comm) {
  if (count < 0 || count > most_messages)
    throw Error(Fault::argument, std::to_string(count) + " messages: 0 to 4096 there may be");
  if (count > 0 && !messages) throw Error(Fault::argument, "no messages");
  int size = 0, *most_tag = nullptr, known = 0;
  check(PMPI_Comm_size(comm, &size));
  check(PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most_tag), &known));
  std::vector<HaloContent> all;
  std::set<std::pair<int, int>> sends, receives;
  for (int i = 0; i < count; ++i) {
    const MPIX_Halo_message& one = messages[i];
    HaloContent content;
    content.name = name_of(i, one);
    content.is_null = one.peer == MPI_PROC_NULL;
    if (!content.is_null) {
      if (one.peer < 0 || one.peer >= size)
        throw Error(Fault::rank, content.name + ": ranks are 0 to " + std::to_string(size - 1));
      for (const int tag : {one.send_tag, one.recv_tag})
        if (tag < 0 || (known && tag > *most_tag)) throw Error(Fault::tag, content.name);
      if (!sends.insert({one.peer, one.send_tag}).second || !receives.insert({one.peer, one.recv_tag}).second)
        throw Error(Fault::tag, content.name + ": another message of that rank has the same tag");
      content.send = boxes_of(one.send, one.send_boxes, content.name + ", send");
      content.recv = boxes_of(one.recv, one.recv_boxes, content.name + ", receive");
    }
    all.push_back(std::move(content));
  }
  return all;
}

/// Persistent requests of MPI: first the sends, then the receives.
class MessagesOfMpi final : public HaloTransport {
 public:
  /// `blocks`: by MPI_Send, one after another.
  MessagesOfMpi(MPI_Comm comm, const std::vector<HaloContent>& contents, const MPIX_Halo_message* messages,
                const std::vector<HaloBuffers>& buffers, bool blocks)
      : comm_(comm),
        blocks_(blocks),
        buffers_(buffers),
        messages_(messages, messages + buffers.size()),
        count_(buffers.size()),
        requests_(2 * buffers.size(), MPI_REQUEST_NULL),
        started_(2 * buffers.size()),
        indices_(2 * buffers.size()),
        statuses_(2 * buffers.size()) {
    for (std::size_t m = 0; m < count_; ++m) {
      bytes_.push_back(static_cast<int>(buffers[m].recv_bytes));
      names_.push_back(contents[m].name);
      if (contents[m].is_null) continue;
      check(PMPI_Send_init(buffers[m].send, static_cast<int>(buffers[m].send_bytes), MPI_BYTE, messages[m].peer,
                           messages[m].send_tag, comm, &requests_[m]));
      check(PMPI_Recv_init(buffers[m].recv, bytes_[m], MPI_BYTE, messages[m].peer, messages[m].recv_tag, comm,
                           &requests_[count_ + m]));
    }
  }
  ~MessagesOfMpi() override {
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL) PMPI_Request_free(&request);
  }
  void start_send(std::uint32_t message) override {
    if (!blocks_) return start(message);
    const HaloBuffers& from = buffers_[message];
    if (PMPI_Send(from.send, static_cast<int>(from.send_bytes), MPI_BYTE, messages_[message].peer,
                  messages_[message].send_tag, comm_) != MPI_SUCCESS)
      throw Error(Fault::other, "MPI_Send has failed for " + names_[message]);
    over_.push_back(message);
  }
  void start_receive(std::uint32_t message) override { start(count_ + message); }

  void look(std::vector<std::uint32_t>* sent, std::vector<std::uint32_t>* received) override {
    sent->insert(sent->end(), over_.begin(), over_.end());
    over_.clear();
    int over = 0;
    const int tested =
        PMPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &over, indices_.data(), statuses_.data());
    if (tested != MPI_SUCCESS) throw Error(Fault::other, "MPI_Testsome has failed");
    if (over == MPI_UNDEFINED) return;
    for (int i = 0; i < over; ++i) {
      const auto index = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
      started_[index] = false;
      if (index < count_) {
        sent->push_back(static_cast<std::uint32_t>(index));
        continue;
      }
      int bytes = 0;
      PMPI_Get_count(&statuses_[static_cast<std::size_t>(i)], MPI_BYTE, &bytes);
      if (bytes != bytes_[index - count_])
        throw Error(Fault::truncation, names_[index - count_] + " has come with " + std::to_string(bytes) +
                                           " bytes of " + std::to_string(bytes_[index - count_]));
      received->push_back(static_cast<std::uint32_t>(index - count_));
    }
  }

  void cancel() noexcept override {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (!started_[i]) continue;
      PMPI_Cancel(&requests_[i]);
      PMPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
      started_[i] = false;
    }
  }

 private:
  void start(std::size_t index) {
    if (PMPI_Start(&requests_[index]) != MPI_SUCCESS)
      throw Error(Fault::other, "MPI_Start has failed for " + names_[index % count_]);
    started_[index] = true;
  }

  const MPI_Comm comm_;
  const bool blocks_;
  const std::vector<HaloBuffers> buffers_;
  const std::vector<MPIX_Halo_message> messages_;
  const std::size_t count_;
  std::vector<std::uint32_t> over_;  ///< sends that blocked
  std::vector<MPI_Request> requests_;
  std::vector<bool> started_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> bytes_;
  std::vector<std::string> names_;
};

/// All ranks go on, or none. A rank whose own part is well says that another's is not.
void agree(MPI_Comm comm, const std::optional<Error>& own) {
  const int mine = own ? 1 + static_cast<int>(own->fault()) : 0;
  int any = 0;
  check(PMPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, comm));
  if (own) throw Error(*own);
  if (any != 0) throw Error(static_cast<Fault>(any - 1), "another rank cannot go along: see what it says");
}

/// Both ends of each message have the same bytes.
void compare_bytes(MPI_Comm comm, const std::vector<HaloContent>& contents, const MPIX_Halo_message* messages,
                   const std::vector<HaloBuffers>& buffers) {
  const std::size_t count = contents.size();
  std::vector<unsigned long long> mine(count), theirs(count);
  std::vector<MPI_Request> requests;
  for (std::size_t m = 0; m < count; ++m) {
    if (contents[m].is_null) continue;
    mine[m] = buffers[m].send_bytes;
    requests.emplace_back();
    check(PMPI_Irecv(&theirs[m], 1, MPI_UNSIGNED_LONG_LONG, messages[m].peer, messages[m].recv_tag, comm,
                     &requests.back()));
  }
  for (std::size_t m = 0; m < count; ++m) {
    if (contents[m].is_null) continue;
    requests.emplace_back();
    check(PMPI_Isend(&mine[m], 1, MPI_UNSIGNED_LONG_LONG, messages[m].peer, messages[m].send_tag, comm,
                     &requests.back()));
  }
  check(PMPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
  std::optional<Error> own;
  for (std::size_t m = 0; m < count && !own; ++m)
    if (!contents[m].is_null && theirs[m] != buffers[m].recv_bytes)
      own = Error(Fault::truncation, contents[m].name + ": that rank sends " + std::to_string(theirs[m]) +
                                         " bytes, and this one receives " + std::to_string(buffers[m].recv_bytes));
  agree(comm, own);
}

bool sends_block(MPI_Info info) {
  const std::string sends = info_value(info, "mpix_sends");
  if (!sends.empty() && sends != "blocking" && sends != "nonblocking")
    throw Error(Fault::info_value, "info mpix_sends=" + sends + ": expected nonblocking|blocking");
  return sends == "blocking";
}

Halo::Options options_from(MPI_Info info, MPI_Comm comm) {
  Halo::Options options;
  const std::string form = info_value(info, "mpix_form"), name = name_in(info);
  if (!form.empty() && form != "stream" && form != "stacked" && form != "auto")
    throw Error(Fault::info_value, "info mpix_form=" + form + ": expected auto|stream|stacked");
  options.is_stacked = form != "stream";
  char text[MPI_MAX_OBJECT_NAME + 1] = "";
  int length = 0;
  check(PMPI_Comm_get_name(comm, text, &length));
  options.name = "halo" + (!name.empty() ? " '" + name + "'" : length > 0 ? " of '" + std::string(text) + "'" : "");
  options.local_ranks = launcher_local_ranks();
  int level = MPI_THREAD_SINGLE;
  check(PMPI_Query_thread(&level));
  if (level != MPI_THREAD_MULTIPLE)
    throw Error(Fault::unsupported,
                "a thread of the library sends the messages, and MPI gives one thread at a time only (MPI_Init_thread "
                "with MPI_THREAD_MULTIPLE, or MPIX_CHANNEL_THREAD=on)");
  return options;
}

void build(MPIX_Halo_s& made, MPI_Comm comm, int count, const MPIX_Halo_message* messages, MPI_Info info) {
  Runtime& runtime = ensure_runtime(launcher_local_ranks());
  std::vector<HaloContent> contents;
  std::optional<Error> own;
  bool blocking = false;
  try {
    Device& device = usable_device(runtime);
    blocking = sends_block(info);
    const Halo::Options options = options_from(info, comm);
    contents = contents_of(count, messages, comm);
    made.halo = std::make_unique<Halo>(options, contents, device, runtime.settings);
  } catch (const Error& error) {
    own = error;
  }
  agree(made.comm, own);
  compare_bytes(made.comm, contents, messages, made.halo->buffers());
  made.halo->serve_by(std::make_unique<MessagesOfMpi>(made.comm, contents, messages, made.halo->buffers(), blocking));
}

}  // namespace

void end_halos() noexcept {
  const std::lock_guard<std::mutex> hold(handles_mutex);
  for (const MPIX_Halo halo : handles()) {
    log(LogLevel::warn, "MPI_Finalize: a halo was not freed");
    halo->halo->break_for("MPI_Finalize was called");
    halo->halo->end_service();
  }
}

bool any_halo_alive() {
  const std::lock_guard<std::mutex> hold(handles_mutex);
  return !handles().empty();
}

}  // namespace mpix

using mpix::Caller;
using mpix::Error;
using mpix::Fault;
using mpix::guarded;

MPIX_INTERPOSED int MPIX_Halo_create(MPI_Comm comm, int messages, const MPIX_Halo_message message[], MPI_Info info,
                                     MPIX_Halo* halo) {
  return guarded(Caller::on_comm("MPIX_Halo_create", comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm), [&] {
    if (comm == MPI_COMM_NULL) throw Error(Fault::communicator, "the communicator is MPI_COMM_NULL");
    auto made = std::make_unique<MPIX_Halo_s>();
    // Its own, so that its messages meet nobody else's.
    mpix::check(PMPI_Comm_dup(comm, &made->comm));
    mpix::check(PMPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN));
    try {
      std::optional<Error> own;
      if (!halo) own = Error(Fault::argument, "no place for the halo");
      mpix::agree(made->comm, own);
      *halo = MPIX_HALO_NULL;
      mpix::build(*made, comm, messages, message, info);
    } catch (...) {
      made->halo.reset();
      PMPI_Comm_free(&made->comm);
      throw;
    }
    const std::lock_guard<std::mutex> hold(mpix::handles_mutex);
    mpix::handles().insert(made.get());
    *halo = made.release();
  });
}

MPIX_INTERPOSED int MPIX_Halo_free(MPIX_Halo* halo) {
  return guarded(Caller::on_world("MPIX_Halo_free"), [&] {
    if (!halo) throw Error(Fault::argument, "no such halo");
    MPIX_Halo_s& gone = mpix::of(*halo);
    const bool over = gone.halo->wait_for_all();
    const std::string cause = gone.halo->cause();
    {
      const std::lock_guard<std::mutex> hold(mpix::handles_mutex);
      mpix::handles().erase(&gone);
    }
    // What others still send me for exchanges that this process has made is there: nobody is cut off.
    gone.halo.reset();
    PMPI_Comm_free(&gone.comm);
    delete &gone;
    *halo = MPIX_HALO_NULL;
    if (!over) throw Error(Fault::other, "the halo was broken: " + cause + "; it has been freed");
  });
}

MPIX_INTERPOSED int MPIX_Halo_exchange_stream(MPIX_Halo halo, void* stream) {
  return guarded(Caller::on_world("MPIX_Halo_exchange_stream"), [&] { mpix::of(halo).halo->enqueue(stream); });
}

MPIX_INTERPOSED int MPIX_Halo_get_stats(MPIX_Halo halo, MPIX_Halo_stats* stats, size_t size) {
  return guarded(Caller::on_world("MPIX_Halo_get_stats"), [&] {
    MPIX_Halo_s& from = mpix::of(halo);
    if (!stats) throw Error(Fault::argument, "no place for the counters");
    const mpix::Halo::Counts counts = from.halo->counts();
    MPIX_Halo_stats all{};
    all.exchanges = counts.exchanges;
    all.sent = counts.sent;
    all.received = counts.received;
    all.send_bytes = counts.send_bytes;
    all.recv_bytes = counts.recv_bytes;
    all.blocks = counts.blocks;
    std::memset(stats, 0, size);
    std::memcpy(stats, &all, std::min(size, sizeof all));
  });
}
