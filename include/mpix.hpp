/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_HPP
#define MPIX_HPP

/* libmpix for C++17, on top of mpix.h: streams, groups and epochs that end with their scope, functions that are
 * copied into a stream, errors as exceptions. Header only; the calls of mpix.h may be used beside it.
 *
 *     mpix::Stream stream;                                // a host stream; on a GPU a cudaStream_t takes its place
 *     mpix::throw_errors(win);
 *     for (int step = 0; step < steps; ++step) {
 *       mpix::Exposure exposure(neighbours, win, stream);  // post
 *       stream.launch([=] { pack(out, step); });           // copied: what it captures by value lives as long as it
 *       mpix::Access access(neighbours, win, stream);      // start
 *       access.put(out, count, right, 0);
 *       mpix::complete_wait(access, exposure);             // or access.complete(), and later exposure.wait()
 *       stream.launch([=] { unpack(in, step); });
 *     }
 *     stream.synchronize();
 *
 * Errors. A call that fails throws mpix::Error, if it returns: MPI's preset error handler ends the program before.
 * throw_errors(win) sets MPI_ERRORS_RETURN for a window, and for MPI_COMM_WORLD, whose handler streams use.
 * Destructors throw nothing: call complete(), wait(), synchronize() and close() to hear of their errors. */

#include <mpix.h>

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace mpix {
inline namespace cxx0 { /* nothing of the library's own has this name */

/// A call that failed: MPI's code and class, and as text the call and MPI_Error_string.
class Error : public std::runtime_error {
 public:
  Error(const char* call, int code) : std::runtime_error(std::string(call) + ": " + text_of(code)), code_(code) {}

  int code() const noexcept { return code_; }
  int error_class() const noexcept {
    int of_code = code_;
    MPI_Error_class(code_, &of_code);
    return of_code;
  }

 private:
  static std::string text_of(int code) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return std::string(text, static_cast<std::size_t>(length));
  }

  int code_;
};

inline void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw Error(call, code);
}

/// Errors of this window and of streams come back, and are thrown.
inline void throw_errors(MPI_Win win) {
  check(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

/// libmpix is in front of MPI: the calls of this header work.
inline bool is_active() {
  int active = 0;
  check(MPIX_Query_stream_rma(&active), "MPIX_Query_stream_rma");
  return active != 0;
}

/// The MPI datatype of an arithmetic type.
template <class T>
MPI_Datatype datatype() {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, double>)
    return MPI_DOUBLE;
  else if constexpr (std::is_same_v<Plain, float>)
    return MPI_FLOAT;
  else if constexpr (std::is_same_v<Plain, long double>)
    return MPI_LONG_DOUBLE;
  else if constexpr (std::is_same_v<Plain, char>)
    return MPI_CHAR;
  else if constexpr (std::is_same_v<Plain, signed char>)
    return MPI_SIGNED_CHAR;
  else if constexpr (std::is_same_v<Plain, unsigned char>)
    return MPI_UNSIGNED_CHAR;
  else if constexpr (std::is_same_v<Plain, short>)
    return MPI_SHORT;
  else if constexpr (std::is_same_v<Plain, unsigned short>)
    return MPI_UNSIGNED_SHORT;
  else if constexpr (std::is_same_v<Plain, int>)
    return MPI_INT;
  else if constexpr (std::is_same_v<Plain, unsigned>)
    return MPI_UNSIGNED;
  else if constexpr (std::is_same_v<Plain, long>)
    return MPI_LONG;
  else if constexpr (std::is_same_v<Plain, unsigned long>)
    return MPI_UNSIGNED_LONG;
  else if constexpr (std::is_same_v<Plain, long long>)
    return MPI_LONG_LONG;
  else {
    static_assert(std::is_same_v<Plain, unsigned long long>, "name the MPI datatype: put(origin, count, type, …)");
    return MPI_UNSIGNED_LONG_LONG;
  }
}

/// Some ranks of a communicator.
class Group {
 public:
  Group(MPI_Comm comm, std::initializer_list<int> ranks) : Group(comm, ranks.begin(), ranks.size()) {}
  Group(MPI_Comm comm, const int* ranks, std::size_t count) {
    MPI_Group all = MPI_GROUP_NULL;
    check(MPI_Comm_group(comm, &all), "MPI_Comm_group");
    const int code = MPI_Group_incl(all, static_cast<int>(count), const_cast<int*>(ranks), &group_);
    MPI_Group_free(&all);
    check(code, "MPI_Group_incl");
  }
  Group(Group&& other) noexcept : group_(std::exchange(other.group_, MPI_GROUP_NULL)) {}
  Group& operator=(Group&& other) noexcept {
    std::swap(group_, other.group_);
    return *this;
  }
  ~Group() {
    if (group_ != MPI_GROUP_NULL && group_ != MPI_GROUP_EMPTY) MPI_Group_free(&group_);
  }
  operator MPI_Group() const noexcept { return group_; }

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
};

/// A host stream. The destructor waits until everything enqueued has run.
class Stream {
 public:
  Stream() : thrown_(std::make_shared<Thrown>()) {
    check(MPIX_Host_stream_create(&stream_), "MPIX_Host_stream_create");
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)), thrown_(std::move(other.thrown_)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(thrown_, other.thrown_);
    return *this;
  }
  ~Stream() {
    if (stream_) MPIX_Host_stream_destroy(&stream_);
  }

  operator void*() const noexcept { return stream_; }
  MPIX_Host_stream get() const noexcept { return stream_; }

  /// Enqueue function(), a copy of which is kept until it has run. It runs on the stream's thread:
  /// MPIX_Host_stream_launch says what it may do there. The first exception that leaves such a function comes out of
  /// synchronize().
  template <class Function>
  void launch(Function&& function) {
    struct Launched {
      std::decay_t<Function> function;
      std::shared_ptr<Thrown> thrown;
      static void run(void* argument) {
        const std::unique_ptr<Launched> self(static_cast<Launched*>(argument));
        try {
          self->function();
        } catch (...) {
          self->thrown->keep(std::current_exception());
        }
      }
    };
    std::unique_ptr<Launched> launched(new Launched{std::forward<Function>(function), thrown_});
    check(MPIX_Host_stream_launch(stream_, Launched::run, launched.get()), "MPIX_Host_stream_launch");
    launched.release();  // run has it now
  }

  /// Wait, asleep, until everything enqueued so far has run.
  void synchronize() {
    check(MPIX_Host_stream_synchronize(stream_), "MPIX_Host_stream_synchronize");
    thrown_->rethrow();
  }

  /// What the destructor does, with its errors.
  void close() {
    if (!stream_) return;
    check(MPIX_Host_stream_destroy(&stream_), "MPIX_Host_stream_destroy");
    thrown_->rethrow();
  }

 private:
  class Thrown {
   public:
    void keep(std::exception_ptr exception) {
      std::lock_guard<std::mutex> hold(mutex_);
      if (!first_) first_ = std::move(exception);
    }
    void rethrow() {
      std::unique_lock<std::mutex> hold(mutex_);
      const std::exception_ptr first = std::exchange(first_, nullptr);
      hold.unlock();
      if (first) std::rethrow_exception(first);
    }

   private:
    std::mutex mutex_;
    std::exception_ptr first_;
  };

  MPIX_Host_stream stream_ = nullptr;
  std::shared_ptr<Thrown> thrown_;
};

class Exposure;

/// A stream access epoch: started here, completed by complete() or by the destructor. It is completed also where an
/// exception passes, with the puts recorded so far: the targets wait for it.
class Access {
 public:
  Access(MPI_Group targets, MPI_Win win, void* stream) : win_(win), stream_(stream) {
    check(MPI_Win_start(targets, MPIX_MODE_STREAM, win), "MPI_Win_start");
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
  ~Access() {
    if (open_) MPIX_Win_complete_stream(win_, stream_);
  }

  /// Record a put of `count` elements; `displacement` in units of the target's window.
  template <class T>
  void put(const T* origin, int count, int target, MPI_Aint displacement) {
    put(origin, count, datatype<T>(), target, displacement);
  }
  void put(const void* origin, int count, MPI_Datatype type, int target, MPI_Aint displacement) {
    check(MPI_Put(origin, count, type, target, displacement, count, type, win_), "MPI_Put");
  }

  void complete() {
    check(MPIX_Win_complete_stream(win_, stream_), "MPIX_Win_complete_stream");
    open_ = false;
  }

 private:
  friend void complete_wait(Access& access, Exposure& exposure);

  MPI_Win win_;
  void* stream_;
  bool open_ = true;
};

/// A stream exposure epoch: posted here, closed by wait() or by the destructor.
class Exposure {
 public:
  Exposure(MPI_Group origins, MPI_Win win, void* stream) : win_(win), stream_(stream) {
    check(MPIX_Win_post_stream(origins, win, stream), "MPIX_Win_post_stream");
  }
  Exposure(const Exposure&) = delete;
  Exposure& operator=(const Exposure&) = delete;
  ~Exposure() {
    if (open_) MPIX_Win_wait_stream(win_, stream_);
  }

  void wait() {
    check(MPIX_Win_wait_stream(win_, stream_), "MPIX_Win_wait_stream");
    open_ = false;
  }

 private:
  friend void complete_wait(Access& access, Exposure& exposure);

  MPI_Win win_;
  void* stream_;
  bool open_ = true;
};

/// Both epochs of a window and stream at once, which is cheaper.
inline void complete_wait(Access& access, Exposure& exposure) {
  if (access.win_ != exposure.win_ || access.stream_ != exposure.stream_)
    throw std::invalid_argument("mpix::complete_wait: the epochs are of two windows or streams");
  check(MPIX_Win_complete_wait_stream(access.win_, access.stream_), "MPIX_Win_complete_wait_stream");
  access.open_ = exposure.open_ = false;
}

} /* namespace cxx0 */
} /* namespace mpix */

#endif /* MPIX_HPP */
