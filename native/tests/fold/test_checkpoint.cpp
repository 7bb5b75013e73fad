// A simulation that goes on from a checkpoint is, from then on, the one that the checkpoint is of.
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/snapshot.hpp"
#include "tests/check.hpp"
#include "tests/fold/simulator_world.hpp"

using namespace genie;
using test::Case, test::World;

namespace {

constexpr TimePs kFirst = 5 * kPsPerUs, kApart = 137 * kPsPerNs, kLater = 3 * kPsPerUs;
constexpr int kCheckpoints = 60;

bool is_same(const Snapshot::Either& one, const Snapshot::Either& other) {
  return one.value == other.value && one.base == other.base && one.mask == other.mask;
}

void compare(World& own, World& other, const std::string& name) {
  const Snapshot one = own.snapshot(), two = other.snapshot();
  CHECK_IN(!one.words.empty() && one.words == two.words, name);
  CHECK_IN(one.counters == two.counters, name);
  CHECK_IN(one.latest == two.latest, name);
  CHECK_IN(one.rare == two.rare && one.left == two.left, name);
  CHECK_IN(std::ranges::equal(one.either, two.either, is_same), name);
  CHECK_IN(one.horizon == two.horizon, name);
}

void check(const Case& each, World::State state, const std::string& how) {
  World whole(each);
  std::optional<twin::Checkpoint> at;  // each in the memory of the one before
  for (int number = 0; number < kCheckpoints; ++number) {
    const std::string name = each.name + how + ", checkpoint " + std::to_string(number);
    whole.play(kFirst + number * kApart);
    at = whole.simulator().checkpoint(whole.now(), std::exchange(at, std::nullopt));
    World resumed(each, state, &*at);
    resumed.play(whole.now());
    compare(whole, resumed, name);
    World beside(each);
    beside.play(whole.now() + kLater);
    resumed.play(whole.now() + kLater);
    compare(beside, resumed, name + ", later");
    CHECK_IN(at->memory_bytes() > 0, name);
    if (number % 20 != 0) continue;
    beside.play(kNever - 1);
    resumed.play(kNever - 1);
    CHECK_IN(beside.simulator().done() && resumed.simulator().done(), name);
    CHECK_IN(beside.simulator().now() == resumed.simulator().now(), name);
    CHECK_IN(beside.simulator().data_packets() == resumed.simulator().data_packets(), name);
    for (std::int32_t rank = 0; rank < test::kHosts; ++rank) {
      const Walker &one = beside.simulator().hosts().ranks().walker(rank),
                   &two = resumed.simulator().hosts().ranks().walker(rank);
      CHECK_IN(one.end_order() == two.end_order(), name);
      CHECK_IN(one.nodes().back().end == two.nodes().back().end, name);
      CHECK_IN(one.receives().back().last == two.receives().back().last, name);
    }
  }
}

}  // namespace

int main() {
  for (const Case& each : {
           Case{.name = "a ring", .is_episode = true},
           Case{.name = "short messages", .size_bytes = 900, .is_episode = true},
           Case{.name = "other starts", .apart = 300 * kPsPerNs, .is_episode = true},
           Case{.name = "starts after checkpoints", .apart = 4 * kPsPerUs, .is_episode = true},
           Case{.name = "shared buffers", .shares_buffers = true, .is_episode = true},
           Case{.name = "DCQCN", .marks = true, .control = congestion::Control::kDcqcn, .is_episode = true},
       }) {
    check(each, World::State::kTaken, " taken over");
    check(each, World::State::kRestored, " restored");
  }
  return test::check_result("test_checkpoint");
}
