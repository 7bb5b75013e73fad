// DCQCN's reaction point against its equations, worked out by hand, and over drawn schedules.
#include <cmath>
#include <random>
#include <string>

#include "check.hpp"
#include "congestion/dcqcn.hpp"

namespace genie::test {
namespace {

using congestion::Dcqcn;
using congestion::DcqcnConfig;

constexpr std::int64_t kLine = 40'000'000'000;
constexpr TimePs kTimer = 55 * kPsPerUs;

DcqcnConfig paper() {
  DcqcnConfig config;
  return config;
}

void without_notifications_it_sends_at_the_line_rate() {
  const DcqcnConfig config = paper();
  Dcqcn flow(config, kLine);
  flow.sent(1'000'000'000, 1000 * kTimer);
  CHECK_EQUAL(flow.rate_bps(2000 * kTimer), kLine);
  CHECK(!flow.paced());
}

// The first notification halves (alpha is 1); five timers close half of the gap each, then the target rises.
void a_cut_and_its_recovery() {
  const DcqcnConfig config = paper();
  Dcqcn flow(config, kLine);
  flow.notified(0);
  CHECK_EQUAL(flow.rate_bps(0), kLine / 2);
  CHECK_EQUAL(flow.target_bps(), kLine);
  std::int64_t expected = kLine / 2;
  for (int step = 1; step <= 5; ++step) {
    CHECK_EQUAL(flow.rate_bps(step * kTimer - 1), expected);
    expected = (expected + kLine + 1) / 2;
    CHECK_EQUAL(flow.rate_bps(step * kTimer), expected);
  }
  // The target is the line rate already and goes no higher.
  CHECK_EQUAL(flow.rate_bps(6 * kTimer), (expected + kLine + 1) / 2);
  CHECK_EQUAL(flow.target_bps(), kLine);
}

// Two cuts: the second starts from the cut rate, which becomes the target, and additive increase lifts it.
void additive_increase_lifts_the_target() {
  const DcqcnConfig config = paper();
  Dcqcn flow(config, kLine);
  flow.notified(0);
  flow.notified(1);
  const std::int64_t target = kLine / 2;
  CHECK_EQUAL(flow.target_bps(), target);
  CHECK_EQUAL(flow.rate_bps(1), target / 2);  // alpha stays 1: it was notified before any timer
  for (int step = 1; step <= 5; ++step) flow.rate_bps(1 + step * kTimer);
  CHECK_EQUAL(flow.target_bps(), target);
  flow.rate_bps(1 + 6 * kTimer);
  CHECK_EQUAL(flow.target_bps(), target + config.additive_bps);
  flow.rate_bps(1 + 7 * kTimer);
  CHECK_EQUAL(flow.target_bps(), target + 2 * config.additive_bps);
}

// When both counters have passed F, the target rises by a multiple of R_HAI.
void hyper_increase_needs_time_and_bytes() {
  const DcqcnConfig config = paper();
  Dcqcn flow(config, kLine);
  flow.notified(0);
  flow.notified(1);
  for (int step = 1; step <= 6; ++step) flow.rate_bps(1 + step * kTimer);
  const std::int64_t before = flow.target_bps();
  flow.sent(5 * config.byte_counter, 1 + 6 * kTimer);
  CHECK_EQUAL(flow.target_bps(), before + 5 * config.additive_bps);  // the larger counter has passed F
  flow.sent(config.byte_counter, 1 + 6 * kTimer);
  CHECK_EQUAL(flow.target_bps(), before + 5 * config.additive_bps + config.hyper_bps);
}

// Alpha decays by (1 - g) a timer without notifications, whether the rate is limited or not.
void alpha_forgets() {
  const DcqcnConfig config = paper();
  Dcqcn flow(config, kLine);
  flow.notified(0);
  double expected = 1.0;
  for (int step = 1; step <= 400; ++step) {
    expected *= 1 - 1.0 / 256;
    flow.rate_bps(step * kTimer);
    CHECK(std::abs(flow.alpha() - expected) < 1e-6);
  }
  CHECK(!flow.paced());
  flow.notified(400 * kTimer);
  const auto cut = static_cast<double>(kLine) * (1 - expected / 2);
  CHECK(std::abs(static_cast<double>(flow.rate_bps(400 * kTimer)) - cut) < 1e6);
}

// To ask often or once, the answer is the same; and it stays between its limits.
void who_asks_seldom_gets_the_same() {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    DcqcnConfig config = paper();
    config.byte_counter = seed % 3 == 0 ? 0 : 300'000;
    Dcqcn often(config, kLine), seldom(config, kLine);
    const std::string name = "seed " + std::to_string(seed);
    TimePs now = 0;
    for (int event = 0; event < 400; ++event) {
      const TimePs next = now + static_cast<TimePs>(random() % (4 * kTimer));
      for (; now < next; now += kTimer / 7) {
        const std::int64_t rate = often.rate_bps(now);
        CHECK_IN(rate >= config.minimum_rate_bps && rate <= kLine, name);
      }
      now = next;
      const std::uint64_t bytes = random() % 500'000;
      if (random() % 3 == 0) {
        often.notified(now);
        seldom.notified(now);
      } else {
        often.sent(bytes, now);
        seldom.sent(bytes, now);
      }
      CHECK_EQUAL_IN(often.rate_bps(now), seldom.rate_bps(now), name);
    }
  }
}

void many_notifications_stop_at_the_least_rate() {
  const DcqcnConfig config = paper();
  Dcqcn flow(config, kLine);
  for (TimePs at = 0; at < 40; ++at) flow.notified(at);
  CHECK_EQUAL(flow.rate_bps(40), config.minimum_rate_bps);
}

}  // namespace
}  // namespace genie::test

int main() {
  using namespace genie::test;
  without_notifications_it_sends_at_the_line_rate();
  a_cut_and_its_recovery();
  additive_increase_lifts_the_target();
  hyper_increase_needs_time_and_bytes();
  alpha_forgets();
  who_asks_seldom_gets_the_same();
  many_notifications_stop_at_the_least_rate();
  return check_result("test_dcqcn");
}
