// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Tables of the halo engine: what all parts of all messages move is what the boxes are, whatever the form.
#include "notify/halo_plan.h"
#include "mpix_device/halo_move.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/random.h"

using namespace mpix;

namespace {

constexpr std::size_t memory_bytes = 1 << 16;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) { return (state_ = test::mix(state_ + 1)) % n; }

 private:
  std::uint64_t state_;
};

HaloBox random_box(char* memory, Random& random) {
  HaloBox box{};
  const std::uint64_t unit = std::uint64_t{1} << random.below(5);
  box.row_bytes = unit * (1 + random.below(9));
  std::uint64_t extent = box.row_bytes;
  for (int d = 0; d < 4; ++d) {
    box.rows[d] = static_cast<std::uint32_t>(1 + random.below(4));
    const std::uint64_t stride = extent + unit * random.below(3);
    box.stride[d] = static_cast<std::int64_t>(stride);
    extent = stride * box.rows[d];
  }
  box.base = memory + random.below((memory_bytes - extent) / unit) * unit;
  return box;
}

template <class Row>
void each_row(const HaloBox& box, Row row) {
  for (std::uint32_t l = 0; l < box.rows[3]; ++l)
    for (std::uint32_t k = 0; k < box.rows[2]; ++k)
      for (std::uint32_t j = 0; j < box.rows[1]; ++j)
        for (std::uint32_t i = 0; i < box.rows[0]; ++i)
          row(box.base + i * box.stride[0] + j * box.stride[1] + k * box.stride[2] + l * box.stride[3]);
}

std::vector<char> packed(const std::vector<HaloBox>& boxes) {
  std::vector<char> all;
  for (const HaloBox& box : boxes)
    each_row(box, [&](const char* row) { all.insert(all.end(), row, row + box.row_bytes); });
  return all;
}

void unpack(const std::vector<HaloBox>& boxes, const std::vector<char>& from) {
  std::size_t at = 0;
  for (const HaloBox& box : boxes)
    each_row(box, [&](char* row) {
      std::memcpy(row, from.data() + at, box.row_bytes);
      at += box.row_bytes;
    });
}

/// Runs the parts of one direction. `buffers`: by cargo.
void run(const HaloPlan& plan, bool unpacks, std::vector<std::vector<char>>& buffers) {
  for (const HaloPart& part : plan.parts) {
    if ((part.unpacks != 0) != unpacks) continue;
    move_side(part.side, plan.boxes.data(), buffers[part.message].data(), unpacks, part.part, part.parts);
  }
}

}  // namespace

TEST_CASE("parts of messages, and of their chunks, move what the boxes are", "[halo]") {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<char> source(memory_bytes), target(memory_bytes), expected(memory_bytes);
    for (char& byte : source) byte = static_cast<char>(random.below(256));
    std::vector<HaloContent> contents(1 + random.below(5));
    for (HaloContent& content : contents) {
      content.is_null = random.below(6) == 0;
      for (std::uint64_t boxes = random.below(4); boxes > 0 && !content.is_null; --boxes)
        content.send.push_back(random_box(source.data(), random));
      // What comes has the shape of what goes, elsewhere.
      content.recv = content.send;
      for (HaloBox& box : content.recv) box.base = target.data() + (box.base - source.data());
    }
    HaloShape shape;
    shape.form = static_cast<HaloForm>(random.below(5));
    shape.chunk = random.below(2) == 0 ? 0 : 16 * (1 + random.below(20));
    shape.most_blocks = static_cast<std::uint32_t>(1 + random.below(6));
    shape.largest_first = random.below(2) == 0;
    const HaloPlan plan = plan_halo(contents, shape);

    REQUIRE(plan.first.size() == contents.size() + 1);
    REQUIRE(plan.first.back() == plan.cargo.size());
    std::vector<std::vector<char>> buffers;
    for (const HaloCargo& cargo : plan.cargo) {
      REQUIRE(cargo.send_bytes == cargo.recv_bytes);
      if (shape.chunk != 0) REQUIRE(cargo.send_bytes <= shape.chunk);
      buffers.emplace_back(cargo.send_bytes + 16);  // no data() that is null
    }
    run(plan, false, buffers);
    for (std::size_t m = 0; m < contents.size(); ++m) {
      std::vector<char> all;
      for (std::uint32_t k = plan.first[m]; k < plan.first[m + 1]; ++k) {
        REQUIRE(plan.cargo[k].given == m);
        all.insert(all.end(), buffers[k].begin(), buffers[k].end() - 16);
      }
      REQUIRE(all == packed(contents[m].send));
    }
    run(plan, true, buffers);
    for (std::size_t m = 0; m < contents.size(); ++m) {
      std::vector<HaloBox> there = contents[m].recv;
      for (HaloBox& box : there) box.base = expected.data() + (box.base - target.data());
      unpack(there, packed(contents[m].send));
    }
    // Boxes of several messages may overlap: then it is the last one's, in either order.
    if (contents.size() == 1 && contents[0].recv.size() == 1) REQUIRE(target == expected);
  }
}

TEST_CASE("launches have all parts once, and packing comes first", "[halo]") {
  Random random(5);
  std::vector<char> memory(memory_bytes);
  for (int round = 0; round < 200; ++round) {
    std::vector<HaloContent> contents(random.below(6));
    for (HaloContent& content : contents) {
      content.send.push_back(random_box(memory.data(), random));
      if (random.below(2) == 0) content.send[0].row_bytes *= 100;
      content.recv = content.send;
    }
    HaloShape shape;
    shape.form = static_cast<HaloForm>(random.below(5));
    shape.most_blocks = static_cast<std::uint32_t>(1 + random.below(40));
    HaloPlan plan = plan_halo(contents, shape);
    const std::size_t parts = plan.parts.size();
    std::vector<bool> from_host;
    for (std::size_t m = 0; m < plan.cargo.size(); ++m) from_host.push_back(random.below(2) == 0);
    plan_parts(plan, shape, from_host);
    REQUIRE(plan.parts.size() <= parts);
    std::uint32_t next = 0;
    for (const HaloPlan::Range& range : plan.launches) {
      REQUIRE(range.first == next);
      REQUIRE(range.end > range.first);
      next = range.end;
    }
    REQUIRE(next == plan.parts.size());
    if (shape.form == HaloForm::launches) REQUIRE(plan.launches.size() == (contents.empty() ? 0 : 2));
    if (shape.form == HaloForm::blocks) REQUIRE(plan.launches.size() == 2 * contents.size());
    REQUIRE(std::is_sorted(plan.parts.begin(), plan.parts.end(),
                           [](const HaloPart& a, const HaloPart& b) { return a.unpacks < b.unpacks; }));
    for (const HaloPart& part : plan.parts) {
      const HaloMessage& message = plan.messages[part.message];
      REQUIRE(part.parts == (part.unpacks != 0 ? message.recv : message.send).side.parts);
      if (part.unpacks != 0 && part.met == 0 && from_host[part.message]) REQUIRE(part.parts <= 6);
      // Where blocks meet, each has a part.
      if (part.met != 0) REQUIRE(part.parts == shape.most_blocks);
    }
  }
}

TEST_CASE("a message is cut into so many chunks at most, each but the last a multiple of every unit", "[halo]") {
  HaloBox box{};
  std::fill_n(box.rows, 4, 1);
  for (const std::uint64_t bytes :
       {std::uint64_t{1} << 15, std::uint64_t{34758}, std::uint64_t{65537}, (std::uint64_t{1} << 20) - 24}) {
    box.row_bytes = bytes;
    HaloContent content;
    content.send = content.recv = {box};
    HaloShape shape;
    shape.chunk = 16;
    const HaloPlan plan = plan_halo({content}, shape);
    CHECK(plan.cargo.size() > 1000);
    CHECK(plan.cargo.size() <= 2048);
    for (std::size_t c = 0; c + 1 < plan.cargo.size(); ++c) REQUIRE(plan.cargo[c].send_bytes % 16 == 0);
  }
}

TEST_CASE("short messages of whole words may go in lines", "[halo]") {
  const auto fits = [](std::uint64_t row_bytes, std::uint32_t rows, std::int64_t stride, std::uint64_t at) {
    alignas(16) static char memory[1 << 16];
    HaloBox box{};
    box.base = memory + at;
    box.row_bytes = row_bytes;
    for (std::uint32_t& one : box.rows) one = 1;
    box.rows[0] = rows;
    box.stride[0] = stride;
    HaloContent content;
    content.send = {box, box};
    content.recv = content.send;
    const HaloPlan plan = plan_halo({content}, HaloShape{});
    return fits_lines(plan.messages[0].send.side, plan.boxes, plan.cargo[0].send_bytes);
  };
  CHECK(fits(8, 1, 0, 0));
  CHECK(fits(24, 5, 40, 8));
  CHECK(fits(4096, 1, 0, 0));
  CHECK(!fits(4104, 1, 0, 0));
  CHECK(!fits(4, 2, 4, 0));
  CHECK(!fits(8, 2, 12, 0));
  CHECK(!fits(8, 1, 0, 4));
  CHECK(!fits(0, 1, 0, 0));
}
