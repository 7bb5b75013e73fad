// HPCC's telemetry in a state that recurs. It is read in units of 1 ns and 128 B, of which no period here is
// a multiple. The tape goes on with the readings of each period to come, for as long as the rate is the same.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "congestion/control_tape.hpp"
#include "congestion/controllers.hpp"
#include "core/snapshot.hpp"
#include "tests/check.hpp"

using namespace genie;

namespace {

constexpr std::int64_t kRateBps = 100'000'000'000;

// True if the rate is the same in all periods.
bool check_telemetry(std::int64_t period_bytes, std::int64_t additive_bps) {
  constexpr TimePs kBegin = 100 * kPsPerUs, kPeriod = 4'000'333;
  constexpr std::int64_t kPeriods = 200;
  constexpr congestion::ControlBounds kBounds{4096, 1 << 20, 1};
  congestion::Config config;
  config.control = congestion::Control::kHpcc;
  config.line_rate_bps = kRateBps;
  config.base_round_trip = 2 * kPsPerUs;
  config.hpcc.additive_bps = additive_bps;
  const std::unique_ptr<congestion::Controller> played = congestion::make_controller(config, 4096),
                                                jumped = congestion::make_controller(config, 4096);
  congestion::ControlTape tape(*jumped, kBounds);
  const auto state = [&](TimePs now, std::uint64_t periods) {
    Observe seen(now);
    seen.replayed(tape);
    for (const std::uint32_t port : {3u, 8u}) {
      std::uint64_t bytes = port + periods * static_cast<std::uint64_t>(period_bytes), skipped = 0;
      seen.odometer(port, bytes, skipped);
    }
    return seen.take();
  };
  const std::string name = std::to_string(period_bytes) + " B in a period of HPCC";
  std::uint64_t acknowledged = 0;
  std::int64_t same = kPeriods;
  Snapshot earlier, later;
  std::vector<congestion::ControlLimits> limits;
  for (std::int64_t period = 0; period <= kPeriods; ++period) {
    const TimePs begin = kBegin + period * kPeriod;
    if (period == 0) earlier = state(begin, 0);
    if (period == 1) later = state(begin, 1);
    for (std::size_t place = 0; place < 2; ++place) {
      congestion::Telemetry told;
      const TimePs time = begin - kPsPerUs + static_cast<TimePs>(place) * kPeriod / 3;
      const auto bytes =
          static_cast<std::uint64_t>(period * period_bytes + (place == 0 ? 0 : period_bytes / 3));
      told.count = 2;
      told.hops[0] = {time, 4096, 3 + bytes, kRateBps, 3};
      told.hops[1] = {time + 7'777, 0, 8 + bytes, kRateBps, 8};
      const congestion::Acknowledgement given{.now = begin + static_cast<TimePs>(place) * kPeriod / 3,
                                              .bytes = 4096,
                                              .acknowledged = ++acknowledged,
                                              .sent = acknowledged + 2,
                                              .telemetry = &told};
      const congestion::ControlLimits before = congestion::ControlLimits::of(*played, kBounds);
      if (period == 0) {
        limits.push_back(before);
        tape.add(given);
        jumped->acknowledged(given);
      } else if (same >= period && !before.lets_pass_as(limits[place], 3)) {
        same = period - 1;
      }
      played->acknowledged(given);
    }
  }
  tape.set_in_flight(2);
  const std::int64_t periods = tape.repeats({earlier, later}, kPeriods);
  CHECK_IN(periods == same || periods == same - 1, name);  // the end of a period is compared, too
  if (periods < kPeriods) return false;
  tape.replay({earlier, later}, kPeriods);
  Observe one(kBegin), other(kBegin);
  played->fold(one, {});
  jumped->fold(other, {});
  CHECK_IN(one.found() == other.found(), name);
  return true;
}

}  // namespace

int main() {
  std::size_t held = 0;
  for (const std::int64_t period_bytes : {9'001, 25'007, 49'999}) {
    CHECK(check_telemetry(period_bytes, kRateBps));
    held += check_telemetry(period_bytes, 50'000'000) ? 1 : 0;
  }
  CHECK(held > 0 && held < 3);
  return test::check_result("test_telemetry");
}
