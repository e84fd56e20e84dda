// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <vector>

#include "collective/call_guards.h"
#include "collective/collectives.h"
#include "collective/led_calls.h"
#include "collective/node_notes.h"
#include "collective/rails.h"
#include "collective/reports.h"

namespace mpix {

/// In the order in which its parts are made; the destructor ends them in the opposite one.
struct Collectives::Memory {
  explicit Memory(Device& to) : device(to) {}
  ~Memory() {
    rails.reset();
    if (reports) reports->set_watch({});
    led.reset();
    reports.reset();
    guards.reset();
    for (char* import : imports) device.close_import(import);
    if (attached) device.release(attached);
    if (base) device.release(base);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device& device;
  char* base = nullptr;
  char* attached = nullptr;  ///< most_attached addresses by rank
  std::vector<char*> imports;
  std::shared_ptr<const void> segments;  ///< by rank
  std::shared_ptr<char> words;
  std::unique_ptr<CallRoom> room;      ///< null: kernels do not wait, or take no places
  std::unique_ptr<CallGuards> guards;  ///< null: kernels wait
  std::unique_ptr<NodeNotes> notes;    ///< null: kernels do not wait, and calls by guards are heard by all
  std::unique_ptr<CollectiveReports> reports;
  AttachedMaps maps;
  std::unique_ptr<LedCalls> led;  ///< null: the service leads none
  std::unique_ptr<Rails> rails;   ///< null: there is one node
};

}  // namespace mpix
