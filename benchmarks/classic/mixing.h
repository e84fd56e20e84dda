// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>

/// Copies by memory of the host (HS: staged), and by mapped memory of the GPU (IPC), side by side: chapter 5.
namespace classic {

enum Mechanism { staged, ipc, mechanisms };
inline Mechanism other_than(Mechanism how) { return how == ipc ? staged : ipc; }

/// Which mechanism the next copies take.
class Mixing {
 public:
  virtual ~Mixing() = default;
  /// So many copies are to come. `used`: in the stage before, by mechanism; all true in the first.
  virtual void begin(int copies, const bool (&used)[mechanisms]) = 0;
  /// Whether a rank that has arrived may copy now, and how.
  virtual bool next(Mechanism* how) = 0;
  /// One of its copies is over.
  virtual void completed(Mechanism) {}
  /// Whether the only copy that is pending, of this mechanism, is to be sent again by the other.
  virtual bool sends_again(Mechanism) const { return false; }
};

/// Static: the first ranks to arrive take HS, so many as the table says, the others IPC; all at once.
class Static final : public Mixing {
 public:
  void set(int staged_ones) { staged_ones_ = staged_ones; }
  void begin(int copies, const bool (&)[mechanisms]) override { left_ = std::min(staged_ones_, copies); }
  bool next(Mechanism* how) override {
    *how = left_-- > 0 ? staged : ipc;
    return true;
  }

 private:
  int staged_ones_ = 0, left_ = 0;
};

/// Dynamic: one copy of each to begin with. Where a copy ends, and its mechanism has ended d more than the other one,
/// it gets 2^d more, or one if d ≤ 0. The last copy, if its mechanism has not ended any, is taken for extremely slow:
/// it is sent again by the other.
class Dynamic final : public Mixing {
 public:
  void begin(int, const bool (&used)[mechanisms]) override {
    for (int how = 0; how < mechanisms; ++how) {
      ended_[how] = 0;
      may_begin_[how] = used[how] ? 1 : 0;
    }
  }
  bool next(Mechanism* how) override {
    if (may_begin_[staged] + may_begin_[ipc] == 0) return false;
    *how = may_begin_[ipc] >= may_begin_[staged] ? ipc : staged;
    --may_begin_[*how];
    return true;
  }
  void completed(Mechanism how) override {
    ++ended_[how];
    const int ahead = ended_[how] - ended_[other_than(how)];
    may_begin_[how] += ahead <= 0 ? 1 : 1 << std::min(ahead, 10);
  }
  bool sends_again(Mechanism how) const override { return ended_[how] == 0 && ended_[other_than(how)] > 0; }

 private:
  int ended_[mechanisms] = {}, may_begin_[mechanisms] = {};
};

}  // namespace classic
