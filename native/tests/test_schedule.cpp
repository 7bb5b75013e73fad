// The tournament tree against a sorted set, and the calendar against a plain list: drawn times, ties, far and
// near.
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "twin/kernel/schedule.hpp"

namespace {

using namespace genie;
using namespace genie::twin;
using Random = std::mt19937_64;

void the_tree_gives_the_first_of_all() {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const auto sources = static_cast<std::uint32_t>(1 + random() % 70);
    const TimePs range = seed % 3 == 0 ? 4 : 1'000'000;  // few times: many ties
    TournamentTree tree(sources, static_cast<std::uint32_t>(random() % (sources + 1)));
    std::set<std::pair<TimePs, std::uint32_t>> oracle;
    std::vector<TimePs> times(sources, kNever);
    const std::string context = "seed " + std::to_string(seed);
    for (int step = 0; step < 5000; ++step) {
      const auto source = static_cast<std::uint32_t>(random() % sources);
      const TimePs time =
          random() % 5 == 0 ? kNever : static_cast<TimePs>(random() % static_cast<std::uint64_t>(range));
      oracle.erase({times[source], source});
      if (time != kNever) oracle.insert({time, source});
      times[source] = time;
      tree.set(source, time);
      CHECK_EQUAL_IN(tree.time_of(source), time, context);
      CHECK_EQUAL_IN(tree.next_time(), oracle.empty() ? kNever : oracle.begin()->first, context);
      if (!oracle.empty()) CHECK_EQUAL_IN(tree.next_source(), oracle.begin()->second, context);
    }
  }
}

// The calendar visits a process in every window for which the process has asked. After each visit, the
// process must ask for the next of them. The test plays windows one at a time or two, by all processes or by
// two parts of them.
void the_calendar_misses_nobody() {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const auto processes = static_cast<std::uint32_t>(1 + random() % 150);
    const TimePs window_ps = static_cast<TimePs>(1 + random() % 1000);
    const std::string context = "seed " + std::to_string(seed);
    Calendar calendar(processes, window_ps);
    std::vector<std::set<TimePs>> wanted(processes);
    const auto wake = [&](TimePs from) {
      const std::size_t process = random() % processes;
      const TimePs time = from + static_cast<TimePs>(random() % (random() % 8 == 0 ? 200'000u : 3000u));
      calendar.wake(static_cast<std::uint32_t>(process), time);
      wanted[process].insert(time);
    };
    for (int step = 0; step < 60; ++step) wake(0);
    std::uint64_t now = 0;
    int visits = 0;
    while (calendar.next() != Calendar::kNone) {
      CHECK_IN(calendar.next() >= now, context);
      now = calendar.next();
      calendar.enter(now);
      const std::uint64_t last = now + random() % 2;
      const auto part = static_cast<std::uint32_t>(random() % (processes + 1));
      for (std::uint64_t window = now; window <= last; ++window) {
        const TimePs end = calendar.end_of(window);
        const auto play = [&](std::uint32_t process) {
          std::set<TimePs>& own = wanted[process];
          own.erase(own.begin(), own.lower_bound(end));
          if (!own.empty()) calendar.wake(process, *own.begin());
          if (++visits < 3000) wake(end);
        };
        calendar.each(window, 0, part, play);
        calendar.each(window, part, processes, play);
        calendar.leave(window);
        for (const std::set<TimePs>& own : wanted) CHECK_IN(own.empty() || *own.begin() >= end, context);
      }
    }
    for (const std::set<TimePs>& own : wanted) CHECK_IN(own.empty(), context);
    CHECK_IN(visits >= 3000, context);
  }
}

void who_is_stopped_stays_in_its_window() {
  Calendar calendar(3, 10);
  calendar.wake(2, 5);
  calendar.enter(calendar.next());
  int visits = 0;
  calendar.each(0, 0, 3, [&](std::uint32_t process) {
    ++visits;
    calendar.wake(process, 7);
  });
  calendar.leave(0);
  CHECK_EQUAL(visits, 1);
  CHECK_EQUAL(calendar.next(), std::uint64_t{0});
  calendar.each(0, 0, 3, [&](std::uint32_t) { ++visits; });
  calendar.leave(0);
  CHECK_EQUAL(visits, 2);
  CHECK_EQUAL(calendar.next(), Calendar::kNone);
}

void a_process_without_others_has_one_window() {
  Calendar calendar(1, kNever);
  calendar.wake(0, 1'000'000'000'000);
  CHECK_EQUAL(calendar.next(), std::uint64_t{0});
  CHECK_EQUAL(calendar.end_of(0), kNever);
}

}  // namespace

int main() {
  the_tree_gives_the_first_of_all();
  the_calendar_misses_nobody();
  who_is_stopped_stays_in_its_window();
  a_process_without_others_has_one_window();
  return genie::test::check_result("test_schedule");
}
