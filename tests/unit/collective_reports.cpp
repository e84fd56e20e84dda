// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// For how long a collective call has waited, as its reports see it: by notes, at times that the test chooses. And for
// whom partners on other nodes wait, as they tell.
#include "collective/reports.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/rail_waits.h"
#include "device/host/host_device.h"
#include "fake_network.h"
#include "support/catch.h"

using namespace mpix;
using std::chrono::milliseconds;

namespace {

/// Reports of two ranks on two nodes, after one second, with whatever follows an error.
class Bench {
 public:
  Bench() {
    Settings settings;
    settings.timeout_seconds = 1;
    settings.fail_on_timeout = true;
    words_ = reinterpret_cast<CollectiveWords*>(memory_.data());
    reports_ = std::make_unique<CollectiveReports>(words_, std::vector<int>{0}, 0, 2, "reports", settings, "");
  }
  void note(std::uint32_t call) { reports_->note_wait(1, collective_note(call, ++beat_), -1); }
  void look(int at) { (void)reports_->look(begin_ + milliseconds(at)); }
  bool is_reported() const { return reports_->is_broken(); }

 private:
  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(32);
  CollectiveWords* words_;
  std::unique_ptr<CollectiveReports> reports_;
  std::uint32_t beat_ = 0;
  const Poller::Clock::time_point begin_ = Poller::Clock::now();
};

class Partner final : public Recipient {
 public:
  Connection connection() const override { return 1; }
  std::string name() const override { return "the partner"; }
  std::string probe() override { return ""; }
  bool is_broken() const override { return false; }
};

}  // namespace

TEST_CASE("collective reports: a wait that lasts is reported") {
  Bench bench;
  int at = 0;
  for (; at <= 1000; at += 50) {
    bench.note(7);
    bench.look(at);
    CHECK_FALSE(bench.is_reported());
  }
  for (; at <= 1100; at += 50) {
    bench.note(7);
    bench.look(at);
  }
  CHECK(bench.is_reported());
}

TEST_CASE("collective reports: a short wait is not taken for a long one by looks that are late") {
  Bench bench;
  bench.note(7);
  bench.look(0);
  bench.note(7);  // and then the wait ends; nobody looks for a while
  bench.look(1200);
  bench.look(1250);
  CHECK_FALSE(bench.is_reported());
  bench.note(8);
  bench.look(1300);
  CHECK_FALSE(bench.is_reported());
}

TEST_CASE("collective reports: a long wait is reported after looks that were late") {
  Bench bench;
  bench.note(7);
  bench.look(0);
  bench.note(7);
  bench.look(1200);
  bench.note(7);
  bench.look(1250);
  CHECK(bench.is_reported());
}

TEST_CASE("collective reports: whom a partner waited for before another exchange is not told") {
  const Settings settings = Settings::from_environment();
  auto fake = std::make_unique<FakeNetwork>(Capacity{64, 64}, 1, false);
  FakeNetwork& network = *fake;
  OperationBudget budget(std::move(fake), settings);
  CollectiveNote told[2] = {};  // the second is that of another partner
  CallDifference out{};
  const auto exposed = budget.network().expose(told, sizeof told);
  RailWaits waits(budget, told, told, &out, budget.network().register_source(&out, sizeof out),
                  {{std::make_shared<Partner>(), exposed->remote(), 0}});
  CHECK(waits.of_partner(0, 0) == -1);
  for (const std::uint64_t number : {0, 1, 7}) {
    CHECK(waits.tell(number, 4, {}));  // nobody
    CHECK(waits.tell(number, 5, {0}));
    while (network.is_moving()) network.progress();
    CHECK(waits.of_partner(0, number) == 5);
    CHECK(waits.of_partner(0, number + 1) == -1);
    CHECK(waits.of_partner(1, number) == -1);
  }
  CHECK_FALSE(waits.difference_of_partner(0).is_known());
  waits.tell_partners(CallDifference::of(0, 41, 6, 42));
  while (waits.go_on_telling()) network.progress();
  const CallDifference heard = waits.difference_of_partner(0);
  CHECK(heard.is_known());
  CHECK(heard.rank(0) == 0);
  CHECK(heard.calls[0] == 41);
  CHECK(heard.rank(1) == 6);
  CHECK(heard.calls[1] == 42);
  CHECK_FALSE(waits.difference_of_partner(1).is_known());
}
