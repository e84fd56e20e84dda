// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/device.h"
#include "support/random.h"
#include "support/world.h"

/// Owners of what MPI and libmpix hand out, and the ring exchange that most test cases are made of.
namespace test {

/// A stream of the device in use. Destroying it waits for it.
class Stream {
 public:
  Stream() : handle_(device().create_stream()) {}
  ~Stream() {
    device().destroy_stream(handle_);
    device().collect();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator void*() const { return handle_; }

  void fill(void* to, std::size_t bytes, Pattern pattern) { device().fill(handle_, to, bytes, pattern); }
  void set(void* to, std::size_t bytes, char value) { device().set(handle_, to, bytes, value); }
  void check(const void* at, std::size_t bytes, Pattern pattern, const Place& place) {
    device().check(handle_, at, bytes, pattern, place);
  }
  void delay(int microseconds) { device().delay(handle_, microseconds); }
  void synchronize() { synchronize(handle_); }

  static void synchronize(void* stream) {
    device().wait_for(stream);
    device().collect();
  }

 private:
  void* const handle_;
};

/// Run a function in a host stream; a null stream is the default stream.
void launch_on_host(void* stream, std::function<void()> work);

/// Memory for origin buffers, which streams write and the host can look at. Zeroed.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, Kind kind = Kind::unmapped)
      : kind_(kind), bytes_(bytes), base_(device().allocate(kind, bytes)) {
    set_now(base_, bytes, '\0');
  }
  ~Buffer() { device().release(kind_, base_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data() const { return base_; }
  std::size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(base_);
  }
  void write(const void* from, std::size_t bytes) { device().write(base_, from, bytes); }

  static void set_now(void* to, std::size_t bytes, char value) {
    device().set(device().own_stream(), to, bytes, value);
    device().wait_for(device().own_stream());
  }

 private:
  const Kind kind_;
  const std::size_t bytes_;
  char* const base_;
};

/// What lies in memory of the device, for the host to look at.
template <class T>
std::vector<T> contents(const void* from, std::size_t count) {
  std::vector<T> all(count);
  device().read(all.data(), from, count * sizeof(T));
  return all;
}

/// A buffer with one value in it, or some.
template <class T>
class Values : public Buffer {
 public:
  Values(std::initializer_list<T> values) : Values(std::vector<T>(values)) {}
  explicit Values(const std::vector<T>& values) : Buffer(values.size() * sizeof(T)) { write(values.data(), size()); }
};

class Info {
 public:
  Info() { MPI_OK(MPI_Info_create(&info_)); }
  ~Info() { MPI_Info_free(&info_); }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
  operator MPI_Info() const { return info_; }
  void set(const char* key, const char* value) { MPI_OK(MPI_Info_set(info_, key, value)); }

 private:
  MPI_Info info_ = MPI_INFO_NULL;
};

class DeviceInfo : public Info {
 public:
  DeviceInfo() { set("mpi_memory_alloc_kinds", "mpix:device"); }
};

/// Memory of the device, which peers can map.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    void* base = nullptr;
    MPI_OK(MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), DeviceInfo(), &base));
    base_ = static_cast<char*>(base);
  }
  ~DeviceMemory() { MPI_Free_mem(base_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  char* base() const { return base_; }

 private:
  char* base_ = nullptr;
};

/// A relay carries what goes to ranks of other nodes: all puts to a target go one way then, and they may not be too
/// many.
inline bool goes_by_relay() {
  const char* setting = std::getenv("MPIX_RELAY");
  return !device().is_host() || (setting && std::string(setting) == "on");
}
/// Some of the ranks are on other nodes, or pretend to be.
inline bool spans_nodes() {
  const char* setting = std::getenv("MPIX_NODE_SIZE");
  const int ranks = setting ? std::atoi(setting) : 0;
  return ranks > 0 && ranks < size();
}

/// Where a window's memory comes from.
enum class Memory {
  unmapped,  ///< MPI_Win_create over what peers cannot map: large puts are staged
  part,      ///< MPI_Win_create in the middle of an allocation of the program's, which peers can map
  device,    ///< MPI_Win_allocate(mpix:device)
  other,     ///< MPI_Win_allocate as MPI does it; where a GPU is in use, MPI_Win_create over pinned memory
};
constexpr Memory all_memories[] = {Memory::unmapped, Memory::part, Memory::device, Memory::other};

inline const char* name(Memory memory) {
  const bool host = device().is_host();
  switch (memory) {
    case Memory::unmapped:
      return host ? "heap" : "stream-ordered pool";
    case Memory::part:
      return "part of an allocation";
    case Memory::device:
      return "device";
    case Memory::other:
      return host ? "allocate" : "pinned";
  }
  return "?";
}

/// A window, and its memory, zeroed. The size may differ from rank to rank, and so may unmapped and
/// part; errors are returned. The base may be skewed by some bytes where we choose it; the program may
/// promise what mpix_lazy_post asks for. Destroying it is collective.
class Window {
 public:
  Window(Memory memory, std::size_t bytes, int unit = 1, MPI_Comm comm = MPI_COMM_WORLD, std::size_t skew = 0,
         bool lazy_post = false) {
    const auto size = static_cast<MPI_Aint>(bytes);
    void* base = nullptr;
    Info info;
    if (memory == Memory::device) info.set("mpi_memory_alloc_kinds", "mpix:device");
    if (lazy_post) info.set("mpix_lazy_post", "true");
    if (memory == Memory::device || (memory == Memory::other && device().is_host())) {
      MPI_OK(MPI_Win_allocate(size, unit, info, comm, &base, &win_));
    } else {
      const Kind kind = memory == Memory::unmapped ? Kind::unmapped
                        : memory == Memory::part   ? Kind::mapped
                                                   : Kind::pinned;
      memory_ = std::make_unique<Buffer>(bytes + 2 * margin_ + skew, kind);
      base = memory_->data() + margin_ + skew;
      MPI_OK(MPI_Win_create(base, size, unit, info, comm, &win_));
    }
    MPI_OK(MPI_Win_set_errhandler(win_, MPI_ERRORS_RETURN));
    base_ = static_cast<char*>(base);
    bytes_ = bytes;
    before_ = margin_ + skew;
    Buffer::set_now(base_, bytes, '\0');
    if (memory_) paint_surroundings();
    barrier(comm);  // nobody may write before the zeros
  }

  ~Window() {
    if (memory_) check_surroundings();
    if (win_ != MPI_WIN_NULL) MPI_Win_free(&win_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  operator MPI_Win() const { return win_; }
  /// For MPI_Win_free.
  MPI_Win* handle() { return &win_; }
  char* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(base_);
  }

 private:
  static constexpr std::size_t margin_ = 4096;
  static constexpr Pattern canary_{0x5a};

  void paint_surroundings() {
    void* own = device().own_stream();
    device().fill(own, memory_->data(), before_, canary_);
    device().fill(own, base_ + bytes_, margin_, canary_);
    device().wait_for(own);
  }

  void check_surroundings() const {
    void* own = device().own_stream();
    device().check(own, memory_->data(), before_, canary_, HERE("something wrote before the window"));
    device().check(own, base_ + bytes_, margin_, canary_, HERE("something wrote behind the window"));
    Stream::synchronize(own);
  }

  MPI_Win win_ = MPI_WIN_NULL;
  std::unique_ptr<Buffer> memory_;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t before_ = 0;
};

/// Ranks of MPI_COMM_WORLD, or of another communicator.
class Group {
 public:
  Group() = default;
  explicit Group(const std::vector<int>& ranks, MPI_Comm comm = MPI_COMM_WORLD) {
    if (ranks.empty()) return;
    MPI_Group all;
    MPI_OK(MPI_Comm_group(comm, &all));
    MPI_OK(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &group_));
    MPI_OK(MPI_Group_free(&all));
  }
  explicit Group(int rank, MPI_Comm comm = MPI_COMM_WORLD) : Group(std::vector<int>{rank}, comm) {}
  ~Group() {
    if (group_ != MPI_GROUP_EMPTY) MPI_Group_free(&group_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  operator MPI_Group() const { return group_; }

 private:
  MPI_Group group_ = MPI_GROUP_EMPTY;
};

inline int right_of(int r) { return (r + 1) % size(); }
inline int left_of(int r) { return (r + size() - 1) % size(); }

/// The data that `origin` puts in a ring exchange: in epoch `epoch`, and in the epoch whose number lies
/// at `epoch` when the stream gets there.
inline Pattern ring_data(int origin, const std::uint64_t* epoch, std::uint64_t salt = 0) {
  return Pattern(key({static_cast<std::uint64_t>(origin), salt})).counted_by(epoch);
}
inline Pattern ring_data(int origin, int epoch, std::uint64_t salt = 0) {
  return ring_data(origin, nullptr, salt).at(static_cast<std::uint64_t>(epoch));
}

/// `bytes` from every rank to its right neighbour, at the start of its window: each epoch's data is
/// written in stream order, checked in stream order, and differs from every other's.
class Ring {
 public:
  Ring(MPI_Win win, char* window, std::size_t bytes, std::uint64_t salt = 0)
      : win_(win),
        window_(window),
        bytes_(bytes),
        salt_(salt),
        source_(bytes),
        to_(right_of(rank())),
        from_(left_of(rank())) {}

  /// What a test case does besides, in the middle of an epoch.
  using Hook = std::function<void()>;

  /// Enqueue one epoch. The hook is called when the exposure epoch is open.
  void epoch(void* stream, const Hook& exposed = {}) {
    const int k = ++epochs_;
    post_complete_wait(stream, ring_data(rank(), k, salt_), ring_data(left_of(rank()), k, salt_), exposed,
                       HERE("epoch " << k << " of a ring of " << bytes_ << " bytes"));
  }

  /// The same, with the access epoch opened first, and the two closed by one call. The hook is
  /// called when the access epoch is open.
  void fused_epoch(void* stream, const Hook& accessing = {}) {
    const int k = ++epochs_;
    post_fused(stream, ring_data(rank(), k, salt_), ring_data(left_of(rank()), k, salt_), accessing,
               HERE("fused epoch " << k << " of a ring of " << bytes_ << " bytes"));
  }

  /// One or the other, with the data that `number` in memory of the device says: for capture.
  void counted_epoch(void* stream, const std::uint64_t* number, bool fused) {
    const Pattern mine = ring_data(rank(), number, salt_ + 1000);
    const Pattern theirs = ring_data(left_of(rank()), number, salt_ + 1000);
    const Place place = HERE("captured epoch of a ring of " << bytes_ << " bytes");
    if (fused) {
      post_fused(stream, mine, theirs, {}, place);
    } else {
      post_complete_wait(stream, mine, theirs, {}, place);
    }
  }

  MPI_Group to() const { return to_; }
  MPI_Group from() const { return from_; }

 private:
  void post_complete_wait(void* stream, Pattern mine, Pattern theirs, const Hook& exposed, const Place& place) {
    MPI_OK(MPIX_Win_post_stream(from_, win_, stream));
    if (exposed) exposed();
    MPI_OK(MPI_Win_start(to_, MPIX_MODE_STREAM, win_));
    put(stream, mine);
    MPI_OK(MPIX_Win_complete_stream(win_, stream));
    MPI_OK(MPIX_Win_wait_stream(win_, stream));
    device().check(stream, window_, bytes_, theirs, place);
  }

  void post_fused(void* stream, Pattern mine, Pattern theirs, const Hook& accessing, const Place& place) {
    MPI_OK(MPI_Win_start(to_, MPIX_MODE_STREAM, win_));
    if (accessing) accessing();
    MPI_OK(MPIX_Win_post_stream(from_, win_, stream));
    put(stream, mine);
    MPI_OK(MPIX_Win_complete_wait_stream(win_, stream));
    device().check(stream, window_, bytes_, theirs, place);
  }

  void put(void* stream, Pattern mine) {
    device().fill(stream, source_.data(), bytes_, mine);
    MPI_OK(MPI_Put(source_.data(), static_cast<int>(bytes_), MPI_BYTE, right_of(rank()), 0, static_cast<int>(bytes_),
                   MPI_BYTE, win_));
  }

  const MPI_Win win_;
  char* const window_;
  const std::size_t bytes_;
  const std::uint64_t salt_;
  Buffer source_;
  const Group to_;
  const Group from_;
  int epochs_ = 0;
};

}  // namespace test
