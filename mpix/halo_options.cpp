// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "halo_options.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/job_environment.h"
#include "errors.h"
#include "info_keys.h"

namespace mpix {
namespace {

constexpr std::uint64_t most_chunk = std::uint64_t{1} << 30, unit_of_chunks = 16;
/// The CPU copies them once more at each end, which takes less than what MPI does for a message.
constexpr std::uint64_t preset_gather = 8192, most_gather = 65536;
constexpr std::uint32_t most_packers = 1024;

std::string name_of(int index, const MPIX_Halo_message& message) {
  return "message " + std::to_string(index) + " (rank " + std::to_string(message.peer) + ", send tag " +
         std::to_string(message.send_tag) + ", receive tag " + std::to_string(message.recv_tag) + ")";
}

std::uint64_t magnitude(std::int64_t stride) {
  return stride < 0 ? -static_cast<std::uint64_t>(stride) : static_cast<std::uint64_t>(stride);
}

/// Its first or its last byte is none of the half of the address space that programs have.
bool leaves_memory(const HaloBox& box) {
  std::uint64_t before = 0, behind = box.row_bytes;
  bool is_too_far = false;
  for (int d = 0; d < 4; ++d) {
    std::uint64_t distance = 0, &side = box.stride[d] < 0 ? before : behind;
    is_too_far = is_too_far || __builtin_mul_overflow(magnitude(box.stride[d]), box.rows[d] - 1, &distance) ||
                 __builtin_add_overflow(side, distance, &side);
  }
  const auto base = reinterpret_cast<std::uint64_t>(box.base);
  return is_too_far || before > base || behind > INT64_MAX || base > INT64_MAX - behind;
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
    if (from.count[d] < 0 || from.count[d] > INT_MAX)
      wrong("a count of " + std::to_string(from.count[d]) + " (0 to 2147483647)");
    counts[d] = from.count[d];
    strides[d] = from.stride[d];
  }
  std::uint64_t bytes = std::find(counts, counts + 4, 0) == counts + 4 ? from.element : 0;
  bool is_too_long = false;
  for (const long count : counts)
    is_too_long = __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(count), &bytes) || is_too_long;
  if (is_too_long || bytes > INT_MAX) wrong("2 GiB or more");
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
  if (box.bytes() == 0) return box;
  if (!from.base) wrong("no memory");
  if (leaves_memory(box)) wrong("its strides lead out of the address space");
  return box;
}

/// Of what is received: several messages to one place.
void require_places(const std::vector<HaloBox>& boxes, const std::string& where) {
  for (const HaloBox& box : boxes)
    for (int d = 0; d < 4; ++d)
      if (box.rows[d] > 1 && magnitude(box.stride[d]) < box.row_bytes)
        throw Error(Fault::argument,
                    where + ": a stride of " + std::to_string(box.stride[d]) + " puts elements on top of each other");
}

std::vector<HaloBox> boxes_of(const MPIX_Box* from, int count, const std::string& where) {
  if (count < 0) throw Error(Fault::argument, where + ": " + std::to_string(count) + " boxes");
  if (count > 0 && !from) throw Error(Fault::argument, where + ": no boxes");
  std::vector<HaloBox> all;
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const HaloBox box = box_of(from[i], where + ", box " + std::to_string(i));
    bytes += box.bytes();
    if (box.bytes() > 0) all.push_back(box);
  }
  if (bytes > INT_MAX) throw Error(Fault::argument, where + ": 2 GiB or more");
  return all;
}

std::string halo_name(MPI_Info info, MPI_Comm comm) {
  const std::string name = name_in(info);
  char text[MPI_MAX_OBJECT_NAME + 1] = "";
  int length = 0;
  check(PMPI_Comm_get_name(comm, text, &length));
  return "halo" + (!name.empty() ? " '" + name + "'" : length > 0 ? " of '" + std::string(text) + "'" : "");
}

HaloBuffers buffers_in(MPI_Info info, const Device& device, const Settings& settings) {
  const auto buffers = choice_in<HaloBuffers>(
      info, "mpix_buffers", HaloBuffers::pinned,
      {{"pinned", HaloBuffers::pinned}, {"copied", HaloBuffers::copied}, {"device", HaloBuffers::device}});
  if (buffers == HaloBuffers::device && !device.is_host() && !settings.mpi_gpu_aware.value_or(mpi_says_gpu_aware()))
    throw Error(Fault::unsupported,
                "info mpix_buffers=device: MPI does not say that it takes memory of GPUs (MPIX_MPI_GPU_AWARE=on, where "
                "it does; or mpix_buffers=copied)");
  return buffers;
}

}  // namespace

HaloOptions halo_options(MPI_Info info, MPI_Comm comm, const Device& device, const Settings& settings) {
  warn_of_unknown_keys(
      "MPIX_Halo_create", info,
      {"mpix_form", "mpix_buffers", "mpix_sends", "mpix_receives", "mpix_order", "mpix_pack_order", "mpix_chunk",
       "mpix_gather", "mpix_packers", "mpix_halves", "mpix_coherence", "mpix_route", name_key});
  HaloOptions all;
  Halo::Options& engine = all.engine;
  engine.form = choice_in<HaloForm>(info, "mpix_form", HaloForm::stacked,
                                    {{"stacked", HaloForm::stacked},
                                     {"stream", HaloForm::stream},
                                     {"barrier", HaloForm::barrier},
                                     {"launches", HaloForm::launches},
                                     {"blocks", HaloForm::blocks},
                                     {"auto", HaloForm::stacked}});
  engine.buffers = buffers_in(info, device, settings);
  engine.halves = static_cast<std::uint32_t>(number_in(info, "mpix_halves", 1, 1, 2));
  all.by_memory = choice_in<bool>(info, "mpix_route", true, {{"auto", true}, {"mpi", false}});
  const std::uint64_t chunk = number_in(info, "mpix_chunk", 0, 0, most_chunk);
  engine.chunk = (chunk + unit_of_chunks - 1) / unit_of_chunks * unit_of_chunks;
  engine.blocks = static_cast<std::uint32_t>(number_in(info, "mpix_packers", 0, 0, most_packers));
  engine.largest_first = choice_in<bool>(info, "mpix_pack_order", false, {{"given", false}, {"largest", true}});
  engine.sends_first = choice_in<bool>(info, "mpix_order", false, {{"interleaved", false}, {"sends-first", true}});
  const std::string receives = choice_in<std::string>(
      info, "mpix_receives", "testsome", {{"testsome", "testsome"}, {"testany", "testany"}, {"waitall", "waitall"}});
  engine.waits_for_all = receives == "waitall";
  all.calls.tests_any = receives == "testany";
  all.calls.send_blocks = choice_in<bool>(info, "mpix_sends", false, {{"nonblocking", false}, {"blocking", true}});
  // Those in memory of the device are not the CPU's to gather, and blocking sends are of one after another.
  const std::uint64_t gather = number_in(info, "mpix_gather", preset_gather, 0, most_gather);
  const bool may_gather = !all.calls.send_blocks && (engine.buffers != HaloBuffers::device || device.is_host());
  all.calls.gather = may_gather ? gather : 0;
  if (choice_in<bool>(info, "mpix_coherence", false, {{"coherent", false}, {"noncoherent", true}}))
    throw Error(Fault::unsupported,
                "info mpix_coherence=noncoherent: kernels that run see nothing of what is written there");
  engine.name = halo_name(info, comm);
  engine.local_ranks = launcher_local_ranks();
  return all;
}

std::vector<HaloContent> halo_contents(int count, const MPIX_Halo_message* messages, MPI_Comm comm) {
  if (count < 0 || count > most_halo_messages)
    throw Error(Fault::argument, std::to_string(count) + " messages: 0 to 4096 there may be");
  if (count > 0 && !messages) throw Error(Fault::argument, "no messages");
  int size = 0, *most_tag = nullptr, known = 0;
  check(PMPI_Comm_size(comm, &size));
  check(PMPI_Comm_get_attr(mpi_is_up() ? MPI_COMM_WORLD : comm, MPI_TAG_UB, static_cast<void*>(&most_tag), &known));
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
        if (tag < 0 || (known && tag > *most_tag))
          throw Error(Fault::tag, content.name + ": tags are 0 to " + std::to_string(known ? *most_tag : INT_MAX));
      if (!sends.insert({one.peer, one.send_tag}).second || !receives.insert({one.peer, one.recv_tag}).second)
        throw Error(Fault::tag, content.name + ": another message of that rank has the same tag");
      content.send = boxes_of(one.send, one.send_boxes, content.name + ", send");
      content.recv = boxes_of(one.recv, one.recv_boxes, content.name + ", receive");
      require_places(content.recv, content.name + ", receive");
    }
    all.push_back(std::move(content));
  }
  return all;
}

}  // namespace mpix
