// The twin's event queue: events come out by (time, source, data), whatever order they went in.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "check.hpp"
#include "twin/event_queue.hpp"

namespace {

using genie::twin::Event;
using genie::twin::EventQueue;
using Random = std::mt19937_64;
using Key = std::tuple<genie::TimePs, std::uint32_t, std::uint32_t>;

Key key_of(const Event& event) { return {event.time, event.source, event.data}; }

Event drawn_event(Random& random, std::uint64_t range) {
  return {static_cast<genie::TimePs>(random() % range), static_cast<std::uint32_t>(random() % 5),
          static_cast<std::uint32_t>(random() % 3)};
}

void test_drawn_pushes_and_pops() {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::uint64_t range = seed % 2 == 0 ? 4 : 1'000'000'000;  // many ties, or none
    EventQueue queue;
    std::multiset<Key> oracle;
    const std::string context = "seed " + std::to_string(seed);
    for (int step = 0; step < 2000; ++step) {
      if (random() % 5 < 3 || oracle.empty()) {
        const Event event = drawn_event(random, range);
        queue.push(event);
        oracle.insert(key_of(event));
      } else {
        CHECK_IN(key_of(queue.top()) == *oracle.begin(), context);
        oracle.erase(oracle.begin());
        queue.pop();
      }
    }
    while (!oracle.empty()) {
      CHECK_IN(!queue.empty() && key_of(queue.top()) == *oracle.begin(), context);
      oracle.erase(oracle.begin());
      queue.pop();
    }
    CHECK_IN(queue.empty(), context);
  }
}

void test_order_does_not_depend_on_insertion() {
  std::vector<Event> events;
  for (std::uint32_t source = 0; source < 4; ++source) {
    for (std::uint32_t data = 0; data < 2; ++data)
      events.push_back({static_cast<genie::TimePs>(source % 2), source, data});
  }
  std::vector<std::size_t> order(events.size());
  for (std::size_t at = 0; at < order.size(); ++at) order[at] = at;
  std::vector<Key> first;
  do {
    EventQueue queue;
    for (std::size_t at : order) queue.push(events[at]);
    std::vector<Key> out;
    for (; !queue.empty(); queue.pop()) out.push_back(key_of(queue.top()));
    if (first.empty()) first = out;
    CHECK(out == first);
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(std::is_sorted(first.begin(), first.end()));
}

}  // namespace

int main() {
  test_drawn_pushes_and_pops();
  test_order_does_not_depend_on_insertion();
  return genie::test::check_result("test_event_queue");
}
