// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What goes over messages of MPI: packets of records, and the memory that they are applied to.
#include "net/packet.h"

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/exposed_memory.h"
#include "net/remote_message.h"
#include "support/catch.h"

using namespace mpix;

namespace {

using Kind = PacketRecord::Kind;

NetworkWrite write_of(const std::string& text, std::uint64_t offset) {
  return {text.data(), nullptr, text.size(), {7, 100}, offset};
}

bool add_all(PacketWriter& writer, const NetworkWrite& write) {
  std::size_t from = 0;
  return writer.add(write, from);
}

}  // namespace

TEST_CASE("a packet gives back what was put into it, in order", "[packet]") {
  alignas(8) char bytes[512];
  PacketWriter writer(bytes, sizeof bytes);
  CHECK(writer.size() == 0);
  const std::string odd = "thirteen byte", empty;
  REQUIRE(writer.add(NetworkSignal{NetworkSignal::Kind::add, 3, {8, 0}, 16}));
  REQUIRE(add_all(writer, write_of(odd, 5)));
  REQUIRE(add_all(writer, write_of(empty, 6)));
  REQUIRE(writer.add(NetworkSignal{NetworkSignal::Kind::set, ~0ull, {9, 8}, 24}));
  CHECK(writer.size() > 0);
  CHECK(writer.size() % 8 == 0);

  PacketReader reader(bytes, writer.size());
  PacketRecord record;
  REQUIRE(reader.next(record));
  CHECK((record.kind == Kind::add && record.key == 8 && record.offset == 16 && record.amount == 3));
  REQUIRE(reader.next(record));
  CHECK((record.kind == Kind::write && record.key == 7 && record.offset == 105));
  CHECK(std::string(reader.data(), record.amount) == odd);
  REQUIRE(reader.next(record));
  CHECK((record.kind == Kind::write && record.amount == 0));
  CHECK_FALSE(reader.at_end());
  REQUIRE(reader.next(record));
  CHECK((record.kind == Kind::set && record.key == 9 && record.offset == 32 && record.amount == ~0ull));
  CHECK(reader.at_end());
  CHECK_FALSE(reader.next(record));
}

TEST_CASE("what has no room in a packet goes on in the next", "[packet]") {
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 256);
  for (std::size_t length : {0u, 1u, 63u, 64u, 223u, 224u, 225u, 448u, 1000u})
    for (std::size_t used = 0; used < 8; ++used) {
      const std::string put = text.substr(0, length);
      std::string got;
      std::size_t from = 0, packets = 0;
      for (bool all = false; !all; ++packets) {
        alignas(8) char bytes[256];
        PacketWriter writer(bytes, sizeof bytes);
        for (std::size_t i = 0; packets == 0 && i < used; ++i)
          REQUIRE(writer.add(NetworkSignal{NetworkSignal::Kind::add, 1, {1, 0}, 0}));
        all = writer.add(write_of(put, 5), from);
        REQUIRE(writer.size() <= sizeof bytes);
        PacketReader reader(bytes, writer.size());
        for (PacketRecord record; reader.next(record);) {
          if (record.kind != Kind::write) continue;
          CHECK((record.key == 7 && record.offset == 105 + got.size()));
          CHECK((got.size() + record.amount == length || record.amount % 8 == 0));
          CHECK((record.amount >= 64 || got.size() + record.amount == length));
          got.append(reader.data(), record.amount);
        }
        CHECK(reader.at_end());
        CHECK(from == got.size());
        REQUIRE(packets < 10);
      }
      CHECK(got == put);
    }
}

TEST_CASE("a write that comes apart takes a record", "[packet]") {
  alignas(8) char bytes[256];
  const std::string text(1000, 't');
  PacketWriter writer(bytes, sizeof bytes);
  std::size_t added = 0;
  while (writer.add_apart(write_of(text, 0))) ++added;
  CHECK(added == sizeof bytes / sizeof(PacketRecord));
  CHECK_FALSE(writer.add(NetworkSignal{NetworkSignal::Kind::add, 1, {1, 0}, 0}));
  std::size_t from = 0;
  CHECK_FALSE(writer.add(write_of(text, 0), from));
  CHECK(from == 0);
  PacketReader reader(bytes, writer.size());
  PacketRecord record;
  for (; reader.next(record); --added) CHECK((record.kind == Kind::write_apart && record.amount == text.size()));
  CHECK(added == 0);
}

TEST_CASE("pieces that others follow are whole words, whatever the room", "[packet]") {
  const std::string text(1000, 't');
  for (std::size_t capacity = 200; capacity < 216; ++capacity) {
    alignas(8) char bytes[216];
    PacketWriter writer(bytes, capacity);
    std::size_t from = 0;
    CHECK_FALSE(writer.add(write_of(text, 0), from));
    CHECK(from == (capacity - sizeof(PacketRecord)) / 8 * 8);
    CHECK(writer.size() <= capacity);
  }
}

TEST_CASE("a packet that is cut short ends early", "[packet]") {
  alignas(8) char bytes[256];
  PacketWriter writer(bytes, sizeof bytes);
  const std::string text(50, 't');
  REQUIRE(add_all(writer, write_of(text, 0)));
  for (std::size_t size = 0; size < writer.size(); ++size) {
    PacketReader reader(bytes, size);
    PacketRecord record;
    CHECK_FALSE(reader.next(record));
    CHECK(reader.at_end() == (size == 0));
  }
  // A size that no packet can have must not wrap around.
  PacketRecord record;
  std::memcpy(&record, bytes, sizeof record);
  record.amount = ~0ull - 3;
  std::memcpy(bytes, &record, sizeof record);
  PacketReader reader(bytes, writer.size());
  CHECK_FALSE(reader.next(record));
}

TEST_CASE("records are applied to exposed memory only", "[packet]") {
  std::vector<std::uint64_t> memory(8, 1), other(2, 1);
  ExposedMemory exposed;
  const std::uint64_t key = exposed.add(memory.data() + 1, 48);
  const std::uint64_t key_of_other = exposed.add(other.data(), 16);
  CHECK(key != key_of_other);
  const std::string data = "eight by";
  const auto writes = [&](std::uint64_t to, std::uint64_t offset, std::uint64_t bytes) {
    return exposed.write({Kind::write, to, offset, bytes}, data.data());
  };
  CHECK(writes(key, 0, 8));
  CHECK(writes(key, 40, 8));
  CHECK(writes(key, 48, 0));
  CHECK(std::memcmp(&memory[1], data.data(), 8) == 0);
  CHECK(std::memcmp(&memory[6], data.data(), 8) == 0);
  CHECK_FALSE(writes(key, 41, 8));
  CHECK_FALSE(writes(key, 49, 0));
  CHECK_FALSE(writes(key, ~0ull - 3, 8));
  CHECK_FALSE(writes(key, 8, ~0ull));
  CHECK_FALSE(writes(key_of_other + 1, 0, 8));

  CHECK(exposed.signal({Kind::add, key, 8, 5}));
  CHECK(exposed.signal({Kind::add, key, 8, 5}));
  CHECK(memory[2] == 11);
  CHECK(exposed.signal({Kind::set, key, 8, 5}));
  CHECK(memory[2] == 5);
  CHECK_FALSE(exposed.signal({Kind::set, key, 12, 5}));  // not one store
  CHECK_FALSE(exposed.signal({Kind::set, key, 44, 5}));
  CHECK_FALSE(exposed.signal({Kind::set, key, 48, 5}));
  const std::uint64_t word_and_half = exposed.add(other.data(), 12);
  CHECK(exposed.signal({Kind::set, word_and_half, 0, 1}));
  CHECK_FALSE(exposed.signal({Kind::set, word_and_half, 8, 5}));

  // What comes late hits nothing, also where the memory is exposed anew.
  exposed.remove(key);
  CHECK_FALSE(writes(key, 0, 8));
  const std::uint64_t again = exposed.add(memory.data() + 1, 48);
  CHECK(again != key);
  CHECK_FALSE(exposed.signal({Kind::set, key, 8, 6}));
  CHECK(memory[2] == 5);
  CHECK((memory[0] == 1 && memory[7] == 1 && other[0] == 1 && other[1] == 1));
}

TEST_CASE("a gathered message is applied within the window and its own room only", "[packet]") {
  const std::string text = "thirteen byte";
  std::vector<char> message(256, 0);
  const auto gather = [&](std::uint64_t offset) {
    RemoteMessage::gather(message.data(), {{text.data(), text.size(), offset}});
  };
  const std::size_t length = RemoteMessage::head + RemoteMessage::share(text.size());
  std::string window(20, '.');
  gather(7);
  CHECK(RemoteMessage::scatter(message.data(), length, &window[0], window.size()) == length);
  CHECK(window == "......." + text);

  window.assign(20, '.');
  for (const std::uint64_t offset : {std::uint64_t{8}, std::uint64_t{21}, ~std::uint64_t{0}}) {
    gather(offset);
    CHECK_THROWS_AS(RemoteMessage::scatter(message.data(), length, &window[0], window.size()), Error);
  }
  gather(0);
  for (std::size_t room = 0; room < length - 3; ++room)  // the last three bytes fill up a word
    CHECK_THROWS_AS(RemoteMessage::scatter(message.data(), room, &window[0], window.size()), Error);
  const std::uint64_t many = ~std::uint64_t{0} / 16;
  std::memcpy(message.data(), &many, sizeof many);
  CHECK_THROWS_AS(RemoteMessage::scatter(message.data(), message.size(), &window[0], window.size()), Error);
  CHECK(window == std::string(20, '.'));
}
