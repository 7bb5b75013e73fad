// The twin's event wheel: events come out by (time, source), whatever was wished for, forgotten and wished for
// again, near and far, in wheels of few and many buckets.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "check.hpp"
#include "twin/event_wheel.hpp"

namespace {

using genie::kNever;
using genie::TimePs;
using genie::twin::Event;
using genie::twin::EventWheel;
using Random = std::mt19937_64;

constexpr std::uint32_t kSources = 40;

// What a wheel does, slowly.
class Oracle {
 public:
  void schedule(std::uint32_t source, TimePs time) { times_[source] = time; }
  void cancel(std::uint32_t source) { times_.erase(source); }
  bool empty() const { return times_.empty(); }
  std::pair<TimePs, std::uint32_t> take() {
    const auto first = std::min_element(times_.begin(), times_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second, a.first) < std::pair(b.second, b.first);
    });
    const std::pair<TimePs, std::uint32_t> taken{first->second, first->first};
    times_.erase(first);
    return taken;
  }

 private:
  std::map<std::uint32_t, TimePs> times_;
};

// From the same instant, over the next bucket, to far beyond the horizon.
TimePs drawn_delay(Random& random) {
  return static_cast<TimePs>(random() % (std::uint64_t{1} << (random() % 34)));
}

void test_drawn_wishes() {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const auto shift = static_cast<unsigned>(random() % 12), bits = static_cast<unsigned>(6 + random() % 6);
    EventWheel wheel(shift, bits);
    wheel.resize(kSources);
    Oracle oracle;
    TimePs now = 0;
    const std::string context = "seed " + std::to_string(seed);
    const auto take = [&] {
      Event event{};
      const auto [time, source] = oracle.take();
      CHECK_IN(wheel.take(event), context);
      CHECK_EQUAL_IN(event.time, time, context);
      CHECK_EQUAL_IN(event.source, source, context);
      now = event.time;
    };
    for (int step = 0; step < 3000; ++step) {
      const auto source = static_cast<std::uint32_t>(random() % kSources);
      const std::uint64_t what = random() % 16;
      if (what < 8) {
        // Often the time that a source has had already, so that what was forgotten looks like what is wanted.
        const TimePs before = wheel.time_of(source);
        const TimePs time = what < 2 && before != kNever ? before : now + drawn_delay(random);
        if (what == 1) wheel.cancel(source);
        wheel.schedule(source, time);
        oracle.schedule(source, time);
      } else if (what < 10) {
        wheel.cancel(source);
        oracle.cancel(source);
      } else if (!oracle.empty()) {
        take();
      }
      CHECK_EQUAL_IN(wheel.empty(), oracle.empty(), context);
    }
    while (!oracle.empty()) take();
    Event event{};
    CHECK_IN(!wheel.take(event) && wheel.empty() && wheel.next_time() == kNever, context);
  }
}

void test_the_next_time_is_told_without_taking() {
  EventWheel wheel(4, 6);
  wheel.resize(3);
  wheel.schedule(2, 1'000'000);
  wheel.schedule(1, 70);
  wheel.schedule(0, 70);
  CHECK_EQUAL(wheel.next_time(), 70);
  wheel.cancel(0);
  wheel.cancel(1);
  CHECK_EQUAL(wheel.next_time(), 1'000'000);
  CHECK(wheel.pending(2));
  CHECK(!wheel.pending(1));
}

}  // namespace

int main() {
  test_drawn_wishes();
  test_the_next_time_is_told_without_taking();
  return genie::test::check_result("test_event_wheel");
}
