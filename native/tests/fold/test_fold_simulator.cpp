// Fold of a whole simulation: ports, switches, buffers and hosts. A ring that has come to the same state
// twice may be moved by whole periods. Each field of a shift that is left out shows, or
// makes the simulation crash. Timers are not judged, as they only set themselves again.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/snapshot.hpp"
#include "tests/check.hpp"
#include "tests/fold/incomplete.hpp"
#include "tests/fold/simulator_world.hpp"
#include "tests/fold/visits.hpp"

using namespace genie;
using test::Case, test::World;
using twin::Simulator;

namespace {

// Two times at which the state is the same.
struct Period {
  TimePs from = 0, to = 0;
};
std::optional<Period> period_of(const Case& each) {
  constexpr std::size_t kWarm = 40, kMost = 400;
  constexpr TimePs kStep = 50 * kPsPerNs, kAfter = 400 * kPsPerNs;
  World world(each);
  std::vector<Snapshot> before;
  std::size_t seen = 0;
  while (before.size() < kMost && !world.simulator().over()) {
    world.play(world.now() + kStep);
    const std::vector<TimePs> came = world.take_seen();
    seen += came.size();
    if (came.empty() || seen < kWarm) continue;
    world.play(came.front() + kAfter);
    Snapshot now = world.snapshot();
    for (const Snapshot& earlier : before) {
      if (earlier.recurs_in(now)) return Period{earlier.now, now.now};
    }
    before.push_back(std::move(now));
  }
  return std::nullopt;
}

constexpr std::int64_t kPeriods = 3;
constexpr std::size_t kNone = ~std::size_t{0};

enum class Mutant : std::uint8_t { kMeansNothing, kLives, kCaught };

// A state that lacks a field may be none that its owner can work with: a crash catches the mutant too.
template <class Function>
Mutant in_a_process_of_its_own(Function function) {
  constexpr int kFirst = 40;  // apart from the exit codes of sanitizers
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
    _exit(kFirst + static_cast<int>(function()));
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) - kFirst : -1;
  return code < 0 || code > static_cast<int>(Mutant::kCaught) ? Mutant::kCaught : static_cast<Mutant>(code);
}

// Its events are later, and then where they were; nothing else moves.
void check_displacement(const Case& each, TimePs now) {
  constexpr TimePs kBy = 70 * kPsPerUs;
  World world(each);
  world.play(now);
  const Snapshot before = world.snapshot();
  Displacement away(now, kBy), back(now, -kBy);
  world.simulator().fold(away);
  Observe later(now + kBy);
  world.simulator().fold(later);
  CHECK_IN(later.found().words == before.words && later.found().counters == before.counters, each.name);
  world.simulator().fold(back);
  CHECK_IN(world.snapshot() == before, each.name);
}

// The number of fields without which a shift is wrong.
std::size_t check(const Case& each) {
  const std::optional<Period> period = period_of(each);
  CHECK_IN(period.has_value(), each.name);
  if (!period) return 0;
  World played(each);
  played.play(period->from);
  const Snapshot earlier = played.snapshot();
  played.play(period->to);
  const Snapshot later = played.snapshot();
  CHECK_IN(earlier.recurs_in(later), each.name);
  const TimePs target = period->to + kPeriods * (period->to - period->from);
  played.play(target);
  const Snapshot expected = played.snapshot();
  World whole(each), jumped(each);
  for (World* world : {&whole, &jumped}) {
    world->play(period->from);
    world->snapshot();
    world->play(period->to);
  }
  CHECK_IN(whole.snapshot() == later, each.name);  // and a walker's steps count from here
  test::Visits visits;
  whole.simulator().fold(visits);
  CHECK_EQUAL_IN(visits.text(), each.visits, each.name + ", visits of its fold");
  test::Incomplete nothing(earlier, later, kPeriods, kNone);
  whole.shift(nothing, period->to);
  CHECK_IN(whole.snapshot() == expected && whole.now() == target, each.name);
  check_displacement(each, period->to);
  jumped.snapshot();
  std::size_t caught = 0;
  for (std::size_t without = 0; without < nothing.fields(); ++without) {
    const Mutant found = in_a_process_of_its_own([&] {
      test::Incomplete shift(earlier, later, kPeriods, without);
      jumped.shift(shift, period->to);
      if (shift.means_nothing()) return Mutant::kMeansNothing;
      return jumped.snapshot() == expected ? Mutant::kLives : Mutant::kCaught;
    });
    CHECK_IN(found != Mutant::kLives, each.name + ", without field " + std::to_string(without));
    caught += found == Mutant::kCaught ? 1 : 0;
  }
  return caught;
}

}  // namespace

int main() {
  for (const Case& each : {
           Case{.name = "a ring",
                .visits = "exact 804, time 74, base 106, relative 62, total 88, rare 244, latest 12, either "
                          "24, left 8"},
           Case{.name = "GPUs that take time",
                .has_gpus = true,
                .visits = "exact 786, time 84, base 106, relative 58, total 88, rare 244, latest 12, either "
                          "22, left 6"},
           Case{.name = "links that retry",
                .has_retries = true,
                .visits = "exact 824, time 94, base 106, relative 62, total 98, rare 254, latest 12, either "
                          "24, left 8"},
           Case{.name = "NICs that take time",
                .has_nic_costs = true,
                .visits = "exact 806, time 88, base 106, relative 60, total 88, rare 244, latest 12, either "
                          "24, left 8"},
           Case{.name = "flowlets",
                .has_flowlets = true,
                .visits = "exact 866, time 82, base 110, relative 62, total 98, rare 256, latest 12, either "
                          "24, left 8"},
           Case{.name = "messages in parts",
                .size_bytes = 60'000,
                .spread = {.queue_pairs = 2, .split = true},
                .visits = "exact 1184, time 110, base 170, relative 118, total 104, rare 396, latest 12, "
                          "either 36, left 12"},
           Case{.name = "messages on two queue pairs in turn",
                .spread = {.queue_pairs = 2},
                .visits = "exact 1148, time 106, base 162, relative 102, total 104, rare 396, latest 12, "
                          "either 32, left 8"},
           Case{.name = "HPCC at the line rate",
                .control = congestion::Control::kHpcc,
                .visits = "exact 936, time 94, base 106, relative 70, total 106, rare 244, latest 12, either "
                          "24, left 8, replayed 8"},
           Case{.name = "Swift",
                .control = congestion::Control::kSwift,
                .visits = "exact 844, time 94, base 106, relative 62, total 88, rare 244, latest 12, either "
                          "24, left 8, replayed 8"},
           Case{.name = "other starts",
                .apart = 300 * kPsPerNs,
                .visits = "exact 799, time 72, base 106, relative 59, total 88, rare 244, latest 13, either "
                          "24, left 7"},
           Case{.name = "shared buffers",
                .shares_buffers = true,
                .visits = "exact 804, time 74, base 106, relative 62, total 88, rare 244, latest 12, either "
                          "24, left 8"},
           Case{.name = "token buckets",
                .has_buckets = true,
                .visits = "exact 818, time 84, base 106, relative 64, total 88, rare 244, latest 12, either "
                          "24, left 8"},
           Case{.name = "weighted classes",
                .has_weights = true,
                .size_bytes = 4096,
                .visits = "exact 866, time 70, base 106, relative 60, total 88, rare 244, latest 12, either "
                          "24, left 8"},
           Case{.name = "DCQCN, thresholds that are not reached",
                .marks = true,
                .control = congestion::Control::kDcqcn,
                .visits = "exact 860, time 82, base 106, relative 62, total 88, rare 244, latest 12, either "
                          "24, left 8"},
       }) {
    const std::size_t caught = check(each);
    std::printf("%s: %zu fields caught\n", each.name.c_str(), caught);
    CHECK_IN(caught > 50, each.name);
  }
  return test::check_result("test_fold_simulator");
}
