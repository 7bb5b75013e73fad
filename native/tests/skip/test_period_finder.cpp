// The finder of periods: it knows the shortest, ignores times that are missing, and forgets what has changed.
#include <cstdint>
#include <vector>

#include "tests/check.hpp"
#include "twin/skip/period_finder.hpp"

namespace {

using namespace genie;
using twin::PeriodFinder;

// Adds times with these intervals, again and again.
TimePs add(PeriodFinder& finder, TimePs from, const std::vector<TimePs>& intervals, int times) {
  for (int round = 0; round < times; ++round) {
    for (const TimePs interval : intervals) finder.add(from += interval);
  }
  return from;
}

void the_shortest_period_is_found() {
  for (std::uint32_t lag = 1; lag <= 100; ++lag) {
    PeriodFinder finder(128);
    std::vector<TimePs> intervals(lag, 1000);
    intervals.back() += lag;  // no shorter period
    TimePs now = add(finder, 0, intervals, 1);
    CHECK_EQUAL(finder.shortest().lag, 0u);
    now = add(finder, now, intervals, 4);
    if (lag > 4) finder.add(now += 1000);
    CHECK(finder.multiple_of(lag).time == lag * 1000 + lag);
  }
}

void a_changed_rhythm_is_no_period() {
  PeriodFinder finder(16);
  TimePs now = add(finder, 0, {10, 20}, 8);
  CHECK_EQUAL(finder.shortest().lag, 2u);
  CHECK_EQUAL(finder.shortest().time, TimePs{30});
  now = add(finder, now, {11, 23, 5}, 1);
  CHECK_EQUAL(finder.shortest().lag, 0u);
  add(finder, now, {7}, 5);
  CHECK_EQUAL(finder.shortest().time, TimePs{7});
}

void equal_times_are_no_period() {
  PeriodFinder finder(16);
  for (int time = 0; time < 6; ++time) finder.add(100);
  CHECK_EQUAL(finder.shortest().lag, 0u);
}

// Times after a gap are compared with those before it.
void missing_times_do_not_count() {
  PeriodFinder finder(64);
  const std::vector<TimePs> loop = {5, 5, 5, 5, 5, 9, 9};
  TimePs now = add(finder, 0, loop, 1);
  for (int round = 0; round < 5; ++round) {
    finder.add(now += 5);
    finder.skip(4);
    now += 20;
    finder.add(now += 9);
    finder.add(now += 9);
  }
  CHECK_EQUAL(finder.multiple_of(7).time, TimePs{43});
  CHECK_EQUAL(finder.count(), std::uint64_t{42});
  finder.skip(1000);
  CHECK_EQUAL(finder.count(), std::uint64_t{1042});
  CHECK_EQUAL(finder.multiple_of(65).time, TimePs{0});
  finder.clear();
  CHECK_EQUAL(finder.multiple_of(7).time, TimePs{0});
}

// Seven loops of two times are equally long, and the eighth is longer. A search that has found nothing asks
// for a period that shows more often.
void a_period_that_shows_often_is_the_whole() {
  PeriodFinder finder(64);
  std::vector<TimePs> intervals(16, 50);
  intervals.back() = 70;
  TimePs now = add(finder, 0, intervals, 3);
  now = add(finder, now, {50, 50, 50, 50, 50, 50}, 1);
  CHECK_EQUAL(finder.multiple_of(2, 3).lag, 2u);
  CHECK_EQUAL(finder.multiple_of(2, 12).lag, 16u);
  CHECK_EQUAL(finder.multiple_of(2, 12).time, TimePs{820});
  CHECK_EQUAL(finder.multiple_of(5, 12).lag, 0u);
  CHECK_EQUAL(finder.shortest(12).lag, 16u);
  CHECK(finder.shows({16, 820}));
  CHECK(!finder.shows({16, 800}));
  CHECK(!finder.shows({0, 0}));
  finder.add(now + 60);
  CHECK(!finder.shows({16, 820}));
}

}  // namespace

int main() {
  the_shortest_period_is_found();
  equal_times_are_no_period();
  a_changed_rhythm_is_no_period();
  missing_times_do_not_count();
  a_period_that_shows_often_is_the_whole();
  return genie::test::check_result("test_period_finder");
}
