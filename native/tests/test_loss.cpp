// Fault plans' losses: their rate and places, and that they never make a retry pattern go round for ever.
#include <cstdint>
#include <vector>

#include "core/loss.hpp"
#include "pair_world.hpp"

namespace genie::test {
namespace {

LossPlan one_of_every(std::uint64_t n, std::int32_t source = 0, std::int32_t target = 1) {
  LossPlan plan(source, target);
  plan.every(n);
  return plan;
}

std::vector<bool> losses(LossPlan plan, std::size_t count) {
  std::vector<bool> lost(count);
  for (std::size_t at = 0; at < count; ++at) lost[at] = plan.lose_next();
  return lost;
}

void one_of_every_n_is_lost() {
  for (const std::size_t n : {1, 2, 3, 7, 16, 100, 1000}) {
    const std::vector<bool> lost = losses(one_of_every(n), 40 * n);
    std::set<std::size_t> places;
    for (std::size_t block = 0; block < 40; ++block) {
      std::size_t count = 0;
      for (std::size_t place = 0; place < n; ++place) {
        if (!lost[block * n + place]) continue;
        ++count;
        places.insert(place);
      }
      CHECK_EQUAL_IN(count, std::size_t{1}, "every " + std::to_string(n));
    }
    // Of 40 draws from few places each comes up, from many few come up twice.
    const std::size_t least = n < 4 ? n : n < 100 ? n / 2 : 30;
    CHECK_IN(places.size() >= least, "every " + std::to_string(n));
  }
}

void places_are_the_pairs_own_and_fixed() {
  const std::vector<bool> lost = losses(one_of_every(100, 3, 4), 2000);
  CHECK(lost == losses(one_of_every(100, 3, 4), 2000));
  CHECK(lost != losses(one_of_every(100, 4, 3), 2000));
  CHECK(lost != losses(one_of_every(100, 3, 5), 2000));
}

// So that a fault plan loses the same packets in every version.
void places_stay_as_they_are() {
  const auto first_three = [](std::int32_t source, std::int32_t target) {
    const std::vector<bool> lost = losses(one_of_every(1000, source, target), 3000);
    std::vector<std::size_t> places;
    for (std::size_t number = 0; number < lost.size(); ++number) {
      if (lost[number]) places.push_back(number);
    }
    return places;
  };
  CHECK((first_three(0, 1) == std::vector<std::size_t>{158, 1915, 2227}));
  CHECK((first_three(3, 4) == std::vector<std::size_t>{260, 1823, 2623}));
}

void a_script_is_exact() {
  LossPlan plan(0, 1);
  plan.script({9, 2, 3});
  const std::vector<bool> lost = losses(plan, 20);
  for (std::size_t number = 0; number < lost.size(); ++number)
    CHECK_EQUAL(lost[number], number == 2 || number == 3 || number == 9);
  CHECK(losses(LossPlan(0, 1), 20) == std::vector<bool>(20));
}

// Status of a message of n packets after one of `before`, each in one window. The peer answers when a window
// has left.
Status end_of_message(std::uint32_t n, std::uint32_t before, LossPlan plan) {
  QueuePairConfig config;
  config.mtu_bytes = 8;
  config.window_packets = n;
  config.ack_every_packets = n;
  config.ack_timeout = 1000;
  config.retry_limit = 7;
  World world(config, 0, 0, std::to_string(before) + " and " + std::to_string(n) + " packets");
  End &sender = world.ends[0], &receiver = world.ends[1];
  for (const std::uint32_t packets : {before, n}) {
    world.post(0, Verb::kWriteImm, packets * config.mtu_bytes);
    while (sender.pair.pending() > 0) {
      if (world.send(0)) {
        if (plan.lose_next()) receiver.arriving.pop_back();
      } else if (!receiver.arriving.empty()) {
        world.deliver(1, 0);
      } else if (world.send(1)) {
        world.deliver(0, 0);
      } else {
        world.fire(0);
      }
    }
  }
  return sender.posted[1].status;
}

// A first packet that is lost makes a retry of n packets. If the n-th of every n were lost, it would be the
// first again each time.
void a_retry_as_long_as_the_interval_gets_through() {
  for (std::uint32_t n = 2; n <= 64; ++n) {
    const std::string name = std::to_string(n) + " packets";
    LossPlan fixed;
    std::vector<std::uint64_t> nth;
    for (std::uint64_t block = 1; block <= 10; ++block) nth.push_back(block * n - 1);
    fixed.script(nth);
    CHECK_IN(end_of_message(n, n - 1, fixed) == Status::kRetryExceeded, name);
    for (std::uint32_t before = 1; before < n; ++before)
      CHECK_IN(end_of_message(n, before, one_of_every(n)) == Status::kOk, name);
  }
  CHECK(end_of_message(4, 3, one_of_every(1)) == Status::kFlushed);
}

}  // namespace
}  // namespace genie::test

int main() {
  using namespace genie::test;
  one_of_every_n_is_lost();
  places_are_the_pairs_own_and_fixed();
  places_stay_as_they_are();
  a_script_is_exact();
  a_retry_as_long_as_the_interval_gets_through();
  return check_result("test_loss");
}
