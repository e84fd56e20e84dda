// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/halo_plan.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mpix {
namespace {

/// Of a message that several blocks share: what one moves in some microseconds.
constexpr std::uint64_t bytes_of_a_part = 32 * 1024;
constexpr std::uint32_t most_parts_of_a_message = 32;
/// Of one that a GPU reads from memory of the host: 6 to 8 blocks read 38 GB/s of it, 30 only 22, and 60 14; and beside
/// 30 that read, 6 that write there do so at 4 GB/s instead of 48 (H200, PCIe 5).
constexpr std::uint32_t most_parts_from_host = 6;
/// Twice as many travel, for which nobody has to fence.
constexpr std::uint64_t most_bytes_in_lines = 8 * 1024;
/// Each is a message of MPI, with words of its own.
constexpr std::uint64_t most_chunks_of_a_message = 2048;
constexpr std::uint64_t most_unit = 16;

constexpr std::uint64_t quotient_up(std::uint64_t all, std::uint64_t each) { return (all + each - 1) / each; }

std::uint64_t bytes_of(const std::vector<HaloBox>& boxes) {
  std::uint64_t all = 0;
  for (const HaloBox& box : boxes) all += box.bytes();
  return all;
}

/// What all rows of the box begin and end at, here and in the message.
std::uint32_t unit_of(const HaloBox& box) {
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(box.base) | box.row_bytes | box.at;
  for (int d = 0; d < 4; ++d)
    if (box.rows[d] > 1) all |= static_cast<std::uint64_t>(box.stride[d]);
  for (std::uint32_t unit = most_unit; unit > 1; unit /= 2)
    if (all % unit == 0) return unit;
  return 1;
}

/// Bytes `from` to `to` of a message, as boxes. Chunks begin at multiples of every unit.
std::vector<HaloBox> cut(const std::vector<HaloBox>& boxes, std::uint64_t from, std::uint64_t to) {
  std::vector<HaloBox> all;
  std::uint64_t at = 0;
  for (HaloBox box : boxes) {
    const std::uint64_t bytes = box.bytes();
    const std::uint64_t first = std::max(at, from), end = std::min(at + bytes, to);
    box.at = at;
    box.unit = unit_of(box);
    if (first < end) {
      box.first = (first - at) / box.unit;
      box.units = (end - first) / box.unit;
      box.at = first - from;
      all.push_back(box);
    }
    at += bytes;
  }
  return all;
}

HaloSide side_of(const std::vector<HaloBox>& boxes, std::vector<HaloBox>& table) {
  HaloSide side{};
  side.boxes = static_cast<std::uint32_t>(boxes.size());
  side.further_box = static_cast<std::uint32_t>(table.size());
  if (boxes.empty()) return side;
  side.box = boxes[0];
  table.insert(table.end(), boxes.begin() + 1, boxes.end());
  return side;
}

std::uint32_t parts_of(std::uint64_t bytes, const HaloShape& shape, bool from_host) {
  if (shape.form == HaloForm::stream || shape.form == HaloForm::blocks || shape.most_blocks == 1) return 1;
  const std::uint32_t most = from_host ? most_parts_from_host : most_parts_of_a_message;
  const std::uint64_t parts = std::clamp<std::uint64_t>(bytes / bytes_of_a_part, 1, most);
  if (shape.form == HaloForm::barrier) return parts > 1 ? shape.most_blocks : 1;
  return static_cast<std::uint32_t>(parts);
}

/// How a message goes one way.
struct Chunks {
  std::uint64_t each, count;
  Chunks(std::uint64_t bytes, const HaloShape& shape) {
    const std::uint64_t least = quotient_up(quotient_up(bytes, most_chunks_of_a_message), most_unit) * most_unit;
    each = shape.chunk == 0 || bytes == 0 ? std::max<std::uint64_t>(bytes, 1) : std::max(shape.chunk, least);
    count = std::max<std::uint64_t>(quotient_up(bytes, each), 1);
  }
};

void add_cargo(HaloPlan& plan, std::uint32_t given, const HaloContent& content, const HaloShape& shape) {
  const std::uint64_t send = bytes_of(content.send), recv = bytes_of(content.recv);
  const Chunks sent(send, shape), received(recv, shape);
  const std::uint64_t count = std::max(sent.count, received.count);
  plan.first.push_back(static_cast<std::uint32_t>(plan.cargo.size()));
  for (std::uint64_t c = 0; c < count; ++c) {
    HaloMessage message{};
    message.send.side = side_of(cut(content.send, c * sent.each, (c + 1) * sent.each), plan.boxes);
    message.recv.side = side_of(cut(content.recv, c * received.each, (c + 1) * received.each), plan.boxes);
    const auto share = [c](std::uint64_t all, std::uint64_t each) {
      return std::min(all, (c + 1) * each) - std::min(all, c * each);
    };
    HaloCargo cargo{given,
                    share(send, sent.each),
                    share(recv, received.each),
                    content.name,
                    !content.is_null && c < sent.count,
                    !content.is_null && c < received.count};
    if (count > 1) cargo.name += ", chunk " + std::to_string(c) + " of " + std::to_string(count);
    message.recv.unpacks = 1;
    for (HaloPart* const whole : {&message.send, &message.recv}) {
      whole->message = static_cast<std::uint32_t>(plan.messages.size());
      whole->parts = 1;
    }
    plan.cargo.push_back(std::move(cargo));
    plan.messages.push_back(message);
  }
}

}  // namespace

bool fits_lines(const HaloSide& side, const std::vector<HaloBox>& table, std::uint64_t bytes) {
  if (bytes == 0 || bytes > most_bytes_in_lines) return false;
  for (std::uint32_t b = 0; b < side.boxes; ++b)
    if ((b == 0 ? side.box : table[side.further_box + b - 1]).unit < sizeof(std::uint64_t)) return false;
  return true;
}

HaloPlan plan_halo(const std::vector<HaloContent>& contents, const HaloShape& shape) {
  HaloPlan plan;
  for (std::uint32_t m = 0; m < contents.size(); ++m) add_cargo(plan, m, contents[m], shape);
  plan.first.push_back(static_cast<std::uint32_t>(plan.cargo.size()));
  plan_parts(plan, shape, std::vector<bool>(plan.cargo.size()));
  return plan;
}

void plan_parts(HaloPlan& plan, const HaloShape& shape, const std::vector<bool>& from_host) {
  plan.parts.clear();
  plan.launches.clear();
  for (std::uint32_t m = 0; m < plan.cargo.size(); ++m) {
    const HaloCargo& cargo = plan.cargo[m];
    HaloMessage& message = plan.messages[m];
    message.send.side.parts = cargo.sends ? parts_of(cargo.send_bytes, shape, false) : 0;
    message.recv.side.parts = cargo.receives ? parts_of(cargo.recv_bytes, shape, from_host[m]) : 0;
    message.send.counts = message.recv.counts = 0;
  }
  std::vector<std::uint32_t> order(plan.cargo.size());
  for (std::uint32_t m = 0; m < order.size(); ++m) order[m] = m;
  for (const std::uint32_t unpacks : {0u, 1u}) {
    const auto bytes = [&](std::uint32_t m) { return unpacks ? plan.cargo[m].recv_bytes : plan.cargo[m].send_bytes; };
    const auto side = [&](std::uint32_t m) -> const HaloSide& {
      return unpacks ? plan.messages[m].recv.side : plan.messages[m].send.side;
    };
    std::sort(order.begin(), order.end());
    if (shape.largest_first)
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return bytes(a) > bytes(b); });
    // Those that all blocks share come first: so block b has part b of each.
    if (shape.form == HaloForm::barrier)
      std::stable_partition(order.begin(), order.end(), [&](auto m) { return side(m).parts > 1; });
    const auto first = static_cast<std::uint32_t>(plan.parts.size());
    for (const std::uint32_t m : order) {
      const auto own = static_cast<std::uint32_t>(plan.parts.size());
      const std::uint32_t count = side(m).parts, meets = shape.form == HaloForm::barrier && count > 1 ? 1 : 0;
      for (std::uint32_t part = 0; part < count; ++part)
        plan.parts.push_back(HaloPart{side(m), m, part, count, unpacks, meets, 0, nullptr, nullptr, nullptr, 1});
      if (shape.form == HaloForm::blocks && count > 0) plan.launches.push_back({own, own + count});
    }
    const auto end = static_cast<std::uint32_t>(plan.parts.size());
    if (shape.form == HaloForm::launches && end > first) plan.launches.push_back({first, end});
  }
  const auto all = static_cast<std::uint32_t>(plan.parts.size());
  if (all > most_halo_parts)
    throw Error(Fault::argument,
                "the halo has " + std::to_string(all) + " parts, more than " + std::to_string(most_halo_parts));
  if (all > 0) plan.parts.front().counts = one_exchange - (all - 1);
  for (const HaloPart& part : plan.parts) {
    HaloMessage& message = plan.messages[part.message];
    (part.unpacks ? message.recv : message.send).counts += part.counts;
  }
  if (all > 0 && plan.launches.empty()) plan.launches.push_back({0, all});
}

}  // namespace mpix
