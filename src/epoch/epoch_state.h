// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace mpix {

/// Which epochs of a window are open at this process, by the order of its calls. Every rule about which call
/// may follow which is here; each check throws Error(Fault::synchronization) with a sentence for the user.
///
/// | call                          | access side       | exposure side     |
/// |-------------------------------|-------------------|-------------------|
/// | start, stream                 | closed → stream   |                   |
/// | put, get, … on it             | stream            |                   |
/// | complete_stream               | stream → closed   |                   |
/// | post_stream                   |                   | closed → stream   |
/// | wait_stream                   |                   | stream → closed   |
/// | complete_wait_stream          | stream → closed   | stream → closed   |
/// | start / complete, ordinary    | closed ⇄ ordinary |                   |
/// | post / wait or test, ordinary |                   | closed ⇄ ordinary |
/// | lock, lock_all / unlock…      | closed, + a lock  |                   |
/// | flush…, request-based RMA     | not stream        |                   |
/// | fence                         | not stream        | not stream        |
/// | free                          | not stream        | not stream        |
///
/// Put, get, … where nothing is open are MPI's to judge, too, but on a window that has had stream epochs. For ordinary
/// epochs only what collides with stream epochs is checked; the rest is MPI's to judge.
class EpochState {
 public:
  enum class Side { closed, ordinary, stream };

  Side access() const { return access_; }
  Side exposure() const { return exposure_; }

  /// RMA calls have no epoch that they could belong to: MPI_Win_start is missing, or what opened one did it past
  /// libmpix.
  bool lacks_access() const { return access_ == Side::closed && locks_ == 0 && !fenced_; }

  bool has_stream_epochs() const { return has_stream_epochs_; }
  /// The last access epoch that was opened here.
  bool last_access_was_stream() const { return last_access_was_stream_; }

  // Stream epochs: check, then change once the call has succeeded.
  void check_start_stream() const;
  void check_complete_stream() const;
  void check_post_stream() const;
  void check_wait_stream() const;
  void start_stream() {
    access_ = Side::stream;
    has_stream_epochs_ = last_access_was_stream_ = true;
    fenced_ = false;
  }
  void complete_stream() { access_ = Side::closed; }
  void post_stream() {
    exposure_ = Side::stream;
    has_stream_epochs_ = true;
  }
  void wait_stream() { exposure_ = Side::closed; }

  // Ordinary epochs.
  void check_start() const;
  void check_complete() const;
  void check_post() const;
  void check_wait() const;
  void check_lock() const;
  void check_passive_operation() const;  ///< flush, request-based RMA
  void check_fence() const;
  void check_free() const;
  void started() {
    access_ = Side::ordinary;
    fenced_ = last_access_was_stream_ = false;
  }
  void completed() { access_ = Side::closed; }
  void posted() { exposure_ = Side::ordinary; }
  void waited() { exposure_ = Side::closed; }
  /// `succeeds`: RMA calls may follow it.
  void fenced(bool succeeds) { fenced_ = succeeds; }
  void locked() {
    ++locks_;
    fenced_ = false;
  }
  void unlocked() { locks_ = locks_ > 0 ? locks_ - 1 : 0; }

 private:
  Side access_ = Side::closed;
  Side exposure_ = Side::closed;
  int locks_ = 0;
  bool fenced_ = false;  ///< a fence was the last that opened an access epoch
  bool has_stream_epochs_ = false;
  bool last_access_was_stream_ = false;
};

}  // namespace mpix
