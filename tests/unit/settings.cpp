// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <list>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/job_environment.h"
#include "support/catch.h"

using namespace mpix;

namespace {

/// Sets a variable for one scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    setenv(name, value, 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

/// Takes all variables of launchers out of the environment for one scope.
struct NoLauncher {
  ScopedVariable variables[6] = {{"PMI_SIZE", ""},
                                 {"MPI_LOCALNRANKS", ""},
                                 {"OMPI_COMM_WORLD_SIZE", ""},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", ""},
                                 {"SLURM_STEP_NUM_NODES", ""},
                                 {"FLUX_JOB_NNODES", ""}};
};

std::string rejection(const char* name, const char* value) {
  ScopedVariable variable(name, value);
  try {
    Settings::from_environment();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every default is accepted by its own parser", "[settings]") {
  for (const SettingInfo& setting : settings_table()) unsetenv(setting.name);
  const Settings settings = Settings::from_environment();
  CHECK(settings.device == "auto");
  CHECK(settings.log == LogLevel::warn);
  CHECK(settings.timeout_seconds == 60);
  CHECK_FALSE(settings.fail_on_timeout);
  CHECK(settings.merge);
  CHECK(settings.waits == Waits::automatic);
  CHECK(settings.spin_seconds < 0);
}

TEST_CASE("values are read in their units", "[settings]") {
  ScopedVariable eager("MPIX_EAGER_SIZE", "64k");
  ScopedVariable copies("MPIX_COPY_ENGINE_SIZE", "3g");
  ScopedVariable network_eager("MPIX_NIC_EAGER_SIZE", "1m");
  ScopedVariable spin("MPIX_SPIN", "25");
  ScopedVariable timeout("MPIX_TIMEOUT", "0.5");
  ScopedVariable merge("MPIX_MERGE", "off");
  ScopedVariable on_timeout("MPIX_ON_TIMEOUT", "error");
  ScopedVariable wait("MPIX_WAIT", "memory");
  const Settings settings = Settings::from_environment();
  CHECK(settings.eager_bytes == 65536);
  CHECK(settings.copy_engine_bytes == std::size_t{3} << 30);
  CHECK(settings.nic_eager_bytes == std::size_t{1} << 20);
  CHECK(std::abs(settings.spin_seconds - 25e-6) < 1e-12);
  CHECK(settings.timeout_seconds == 0.5);
  CHECK_FALSE(settings.merge);
  CHECK(settings.fail_on_timeout);
  CHECK(settings.waits == Waits::memory);
}

TEST_CASE("a bad value is refused with its name, its text and what would be right", "[settings]") {
  for (const auto& bad :
       {std::make_pair("MPIX_DEVICE", "gpu"),       std::make_pair("MPIX_LOG", "loud"),
        std::make_pair("MPIX_EAGER_SIZE", "2m"),    std::make_pair("MPIX_EAGER_SIZE", "-1"),
        std::make_pair("MPIX_COUNTER_LIMIT", "0"),  std::make_pair("MPIX_EAGER_SIZE", "k"),
        std::make_pair("MPIX_MAILBOX_SLOTS", "3"),  std::make_pair("MPIX_MAILBOX_SLOTS", "0"),
        std::make_pair("MPIX_TIMEOUT", "soon"),     std::make_pair("MPIX_TIMEOUT", "nan"),
        std::make_pair("MPIX_TIMEOUT", "1s"),       std::make_pair("MPIX_STATS", "2"),
        std::make_pair("MPIX_NODE_SIZE", "1.5"),    std::make_pair("MPIX_SPIN", "-3"),
        std::make_pair("MPIX_NIC", "tcp"),          std::make_pair("MPIX_THROTTLE", "none"),
        std::make_pair("MPIX_TRIGGERED_OPS", "0"),  std::make_pair("MPIX_NIC_EAGER_SIZE", "2m"),
        std::make_pair("MPIX_ON_TIMEOUT", "abort"), std::make_pair("MPIX_MERGE", "maybe"),
        std::make_pair("MPIX_WAIT", "spin"),        std::make_pair("MPIX_COUNTER_LIMIT", "1073741825")}) {
    CAPTURE(bad.first, bad.second);
    const std::string text = rejection(bad.first, bad.second);
    CHECK(text.find(std::string(bad.first) + "=" + bad.second) == 0);
    CHECK(text.find("expected") != std::string::npos);
  }
}

TEST_CASE("no setting takes any text", "[settings]") {
  for (const SettingInfo& setting : settings_table())
    CHECK(rejection(setting.name, "?").find("expected") != std::string::npos);
}

TEST_CASE("an empty setting is one that is not set", "[settings]") {
  for (const SettingInfo& setting : settings_table()) {
    CAPTURE(setting.name);
    ScopedVariable empty(setting.name, "");
    CHECK(setting_text(setting) == setting.preset);
    CHECK_NOTHROW(Settings::from_environment());
  }
}

TEST_CASE("a misspelt setting is noticed, and the nearest one named", "[settings]") {
  const auto complaints = [](const char* name, const char* value) {
    ScopedVariable variable(name, value);
    std::string all;
    for (const std::string& complaint : unknown_settings()) all += complaint + "\n";
    return all;
  };
  const std::string nothing = complaints("MPIX_TIMEOUT", "3");
  CHECK(nothing == "");
  CHECK(complaints("MPIX_TIMEUOT", "3") == "unknown setting MPIX_TIMEUOT: did you mean MPIX_TIMEOUT?\n");
  CHECK(complaints("MPIX_EAGR_SIZE", "3") == "unknown setting MPIX_EAGR_SIZE: did you mean MPIX_EAGER_SIZE?\n");
  CHECK(complaints("MPIX_NIC_EAGR_SIZE", "3") ==
        "unknown setting MPIX_NIC_EAGR_SIZE: did you mean MPIX_NIC_EAGER_SIZE?\n");
  CHECK(complaints("MPIX_timeout", "3") == "unknown setting MPIX_timeout: did you mean MPIX_TIMEOUT?\n");
  CHECK(complaints("MPIX_STAT", "1") == "unknown setting MPIX_STAT: did you mean MPIX_STATS?\n");
  CHECK(complaints("MPIX_EAGER", "1") == "unknown setting MPIX_EAGER: did you mean MPIX_EAGER_SIZE?\n");
  CHECK(complaints("MPIX_SLOTS", "1") == "unknown setting MPIX_SLOTS: did you mean MPIX_MAILBOX_SLOTS?\n");
  CHECK(complaints("MPIX_mailboxes", "1") == "unknown setting MPIX_mailboxes: did you mean MPIX_MAILBOX_SLOTS?\n");
  CHECK(complaints("MPIX_NODES", "1") == "unknown setting MPIX_NODES: did you mean MPIX_NODE_SIZE?\n");
  CHECK(complaints("MPIX_SIZE_OF_NODES", "1") == "unknown setting MPIX_SIZE_OF_NODES: mpix-info lists the settings\n");
  CHECK(complaints("MPIX_WORLD", "1") == "unknown setting MPIX_WORLD: mpix-info lists the settings\n");
  CHECK(complaints("MPIX_", "1") == "unknown setting MPIX_: mpix-info lists the settings\n");
  CHECK(complaints("MPIX_TIMEUOT", "") == "");
}

TEST_CASE("launchers say whether there are several nodes", "[settings]") {
  const NoLauncher none;
  CHECK_FALSE(launcher_has_several_nodes());
  const auto says = [](std::initializer_list<std::pair<const char*, const char*>> variables) {
    std::list<ScopedVariable> set;
    for (const auto& [name, value] : variables) set.emplace_back(name, value);
    return launcher_has_several_nodes();
  };
  CHECK(says({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}}));
  CHECK_FALSE(says({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}}));
  CHECK(says({{"OMPI_COMM_WORLD_SIZE", "12"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  CHECK_FALSE(says({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  CHECK(says({{"SLURM_STEP_NUM_NODES", "2"}}));
  CHECK_FALSE(says({{"SLURM_STEP_NUM_NODES", "1"}}));
  CHECK(says({{"FLUX_JOB_NNODES", "2"}}));
  // half of what is needed, or no number
  CHECK_FALSE(says({{"PMI_SIZE", "4"}}));
  CHECK_FALSE(says({{"PMI_SIZE", "many"}, {"MPI_LOCALNRANKS", "1"}}));
}
