// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace mpix {

/// MPI error codes with texts of our own. MPI never gives a code back, and holds a few thousand at
/// most: equal texts share a code, and after `most_texts` different ones each class goes on with
/// one general code.
class ErrorCodes {
 public:
  /// The process's. Never destroyed: codes outlive every call.
  static ErrorCodes& instance();

  /// The code of this class and text; the plain class when MPI has no more codes.
  int code_for(int error_class, const std::string& text);

  /// The class of a code of ours, whatever MPI takes it for. False: not ours.
  bool class_of(int code, int* error_class);

  /// Whether codes still carry the text that they are asked to.
  bool exhausted();

 private:
  static constexpr std::size_t most_texts = 500;

  int add(int error_class, const std::string& text);
  static bool carries(int code, int error_class, const std::string& text);

  /// Not held over calls of MPI: MPICH runs error handlers under a lock of its own, and these ask for classes.
  std::mutex mutex_;
  std::map<std::pair<int, std::string>, int> codes_;
  std::map<int, int> classes_;  ///< by code
  std::atomic<bool> standard_classes_work_{true};
  std::atomic<int> own_class_{-1};  ///< where they do not; -1: not asked for yet
};

}  // namespace mpix
