// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/world.h"

/// Owners of what MPI and libmpix hand out, and the ring exchange that most test cases are made of.
namespace test {

/// A host stream. Destroying it waits for it.
class Stream {
 public:
  Stream() { MPI_OK(MPIX_Host_stream_create(&handle_)); }
  ~Stream() {
    if (handle_) MPIX_Host_stream_destroy(&handle_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator void*() const { return handle_; }
  MPIX_Host_stream handle() const { return handle_; }

  void launch(std::function<void()> work) { launch(handle_, std::move(work)); }
  void delay(int microseconds) {
    launch([=] { usleep(static_cast<useconds_t>(microseconds)); });
  }
  void synchronize() { MPI_OK(MPIX_Host_stream_synchronize(handle_)); }

  /// A null stream is the default stream.
  static void launch(MPIX_Host_stream stream, std::function<void()> work) {
    auto function = std::make_unique<std::function<void()>>(std::move(work));
    MPI_OK(MPIX_Host_stream_launch(stream, run, function.get()));
    function.release();
  }

 private:
  static void run(void* argument) {
    const std::unique_ptr<std::function<void()>> work(
        static_cast<std::function<void()>*>(argument));
    (*work)();
  }

  MPIX_Host_stream handle_ = nullptr;
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

/// Where a window's memory comes from.
enum class Memory {
  heap,         ///< MPI_Win_create over malloc memory: large puts are staged
  device_part,  ///< MPI_Win_create in the middle of MPI_Alloc_mem(mpix:device)
  device,       ///< MPI_Win_allocate(mpix:device)
  allocate,     ///< MPI_Win_allocate as MPI does it
};
constexpr Memory all_memories[] = {Memory::heap, Memory::device_part, Memory::device,
                                   Memory::allocate};

inline const char* name(Memory memory) {
  switch (memory) {
    case Memory::heap: return "heap";
    case Memory::device_part: return "part of device memory";
    case Memory::device: return "device";
    case Memory::allocate: return "allocate";
  }
  return "?";
}

/// A window, and its memory, zeroed. The size may differ from rank to rank, and so may heap and
/// device_part; errors are returned. The base may be skewed by some bytes where we choose it; the
/// program may promise what mpix_lazy_post asks for. Destroying it is collective.
class Window {
 public:
  Window(Memory memory, std::size_t bytes, int unit = 1, MPI_Comm comm = MPI_COMM_WORLD,
         std::size_t skew = 0, bool lazy_post = false) {
    const auto size = static_cast<MPI_Aint>(bytes);
    void* base = nullptr;
    Info info;
    if (memory == Memory::device) info.set("mpi_memory_alloc_kinds", "mpix:device");
    if (lazy_post) info.set("mpix_lazy_post", "true");
    switch (memory) {
      case Memory::heap:
        heap_.resize(bytes + 2 * margin_ + skew);
        surroundings_ = heap_.data();
        base = surroundings_ + margin_ + skew;
        MPI_OK(MPI_Win_create(base, size, unit, info, comm, &win_));
        break;
      case Memory::device_part:
        part_ = std::make_unique<DeviceMemory>(bytes + 2 * margin_ + skew);
        surroundings_ = part_->base();
        base = surroundings_ + margin_ + skew;
        MPI_OK(MPI_Win_create(base, size, unit, info, comm, &win_));
        break;
      case Memory::device:
      case Memory::allocate: MPI_OK(MPI_Win_allocate(size, unit, info, comm, &base, &win_)); break;
    }
    MPI_OK(MPI_Win_set_errhandler(win_, MPI_ERRORS_RETURN));
    base_ = static_cast<char*>(base);
    bytes_ = bytes;
    skew_ = skew;
    std::fill_n(base_, bytes, '\0');
    if (surroundings_) paint_surroundings();
    barrier(comm);  // nobody may write before the zeros
  }

  ~Window() {
    if (surroundings_) check_surroundings();
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
  static constexpr char canary_ = 0x5a;

  void paint_surroundings() {
    std::fill_n(surroundings_, margin_ + skew_, canary_);
    std::fill_n(base_ + bytes_, margin_, canary_);
  }

  void check_surroundings() const {
    const auto untouched = [](const char* from, std::size_t bytes) {
      return std::all_of(from, from + bytes, [](char c) { return c == canary_; });
    };
    EXPECT(untouched(surroundings_, margin_ + skew_), "something wrote before the window");
    EXPECT(untouched(base_ + bytes_, margin_), "something wrote behind the window");
  }

  MPI_Win win_ = MPI_WIN_NULL;
  std::vector<char> heap_;
  std::unique_ptr<DeviceMemory> part_;
  char* surroundings_ = nullptr;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t skew_ = 0;
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

/// The data that `origin` puts in epoch `epoch` of a ring exchange.
inline Pattern ring_data(int origin, int epoch, std::uint64_t salt = 0) {
  return Pattern(
      key({static_cast<std::uint64_t>(origin), static_cast<std::uint64_t>(epoch), salt}));
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
  void epoch(MPIX_Host_stream stream, const Hook& exposed = {}) {
    const int k = ++epochs_;
    MPI_OK(MPIX_Win_post_stream(from_, win_, stream));
    if (exposed) exposed();
    MPI_OK(MPI_Win_start(to_, MPIX_MODE_STREAM, win_));
    put(stream, k);
    MPI_OK(MPIX_Win_complete_stream(win_, stream));
    MPI_OK(MPIX_Win_wait_stream(win_, stream));
    check(stream, k);
  }

  /// The same, with the access epoch opened first, and the two closed by one call. The hook is
  /// called when the access epoch is open.
  void fused_epoch(MPIX_Host_stream stream, const Hook& accessing = {}) {
    const int k = ++epochs_;
    MPI_OK(MPI_Win_start(to_, MPIX_MODE_STREAM, win_));
    if (accessing) accessing();
    MPI_OK(MPIX_Win_post_stream(from_, win_, stream));
    put(stream, k);
    MPI_OK(MPIX_Win_complete_wait_stream(win_, stream));
    check(stream, k);
  }

  MPI_Group to() const { return to_; }
  MPI_Group from() const { return from_; }
  const char* source() const { return source_.data(); }

 private:
  void put(MPIX_Host_stream stream, int k) {
    const Pattern mine = ring_data(rank(), k, salt_);
    Stream::launch(stream, [=] { mine.write(source_.data(), bytes_); });
    MPI_OK(MPI_Put(source_.data(), static_cast<int>(bytes_), MPI_BYTE, right_of(rank()), 0,
                   static_cast<int>(bytes_), MPI_BYTE, win_));
  }

  void check(MPIX_Host_stream stream, int k) {
    const Pattern theirs = ring_data(left_of(rank()), k, salt_);
    Stream::launch(stream, [=] {
      const std::size_t right = theirs.agrees(window_, bytes_);
      EXPECT(right == bytes_, "epoch " << k << " of a ring of " << bytes_ << " bytes");
    });
  }

  const MPI_Win win_;
  char* const window_;
  const std::size_t bytes_;
  const std::uint64_t salt_;
  std::vector<char> source_;
  const Group to_;
  const Group from_;
  int epochs_ = 0;
};

}  // namespace test
