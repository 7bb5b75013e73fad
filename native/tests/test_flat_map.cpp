// FlatMap against std::unordered_map: drawn insertions and removals, colliding keys, growth.
#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "core/flat_map.hpp"

namespace {

using genie::FlatMap;
using Random = std::mt19937_64;

// Keys as the walker and the twin make them: (peer, tag) in two halves, many of them close together.
std::uint64_t drawn_key(Random& random, std::uint64_t range) {
  return (random() % range) << 32 | (random() % 4 == 0 ? 1u << 30 | random() % range << 6 : random() % range);
}

void compare(FlatMap<std::string>& map, const std::unordered_map<std::uint64_t, std::string>& oracle,
             const std::string& context) {
  CHECK_EQUAL_IN(map.size(), oracle.size(), context);
  for (const auto& [key, value] : oracle) {
    const std::string* found = map.find(key);
    CHECK_IN(found != nullptr && *found == value, context);
  }
}

void test_drawn_operations() {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const std::uint64_t range = 1 + random() % (seed % 3 == 0 ? 4 : 200);
    const std::uint64_t erasing = random() % 10;
    FlatMap<std::string> map;
    std::unordered_map<std::uint64_t, std::string> oracle;
    const std::string context = "seed " + std::to_string(seed);
    for (int step = 0; step < 4000; ++step) {
      const std::uint64_t key = drawn_key(random, range);
      if (random() % 10 < erasing) {
        map.erase(key);
        oracle.erase(key);
        CHECK_IN(map.find(key) == nullptr, context);
      } else {
        const std::string value = std::to_string(random());
        map[key] = value;
        oracle[key] = value;
      }
    }
    compare(map, oracle, context);
    map.clear();
    CHECK_EQUAL_IN(map.size(), 0u, context);
    for (const auto& [key, value] : oracle) CHECK_IN(map.find(key) == nullptr, context);
    CHECK_IN(map[7].empty(), context);
  }
}

void test_empty() {
  FlatMap<int> map;
  CHECK(map.find(0) == nullptr);
  map.erase(0);
  CHECK_EQUAL(map.size(), 0u);
  CHECK_EQUAL(map[0], 0);
  CHECK_EQUAL(map.size(), 1u);
}

void test_a_value_is_new_after_it_was_erased() {
  FlatMap<int> map;
  map[5] = 9;
  map.erase(5);
  CHECK_EQUAL(map[5], 0);
}

// Every order of removal from a run of entries must leave the others findable.
void test_removal_from_runs() {
  for (std::uint64_t first = 0; first < 12; ++first) {
    for (std::uint64_t second = 0; second < 12; ++second) {
      FlatMap<std::uint64_t> map;
      for (std::uint64_t key = 0; key < 12; ++key) map[key] = key + 1;  // 12 of 16 places
      map.erase(first);
      map.erase(second);
      for (std::uint64_t key = 0; key < 12; ++key) {
        const std::uint64_t* found = map.find(key);
        const std::string context = std::to_string(first) + ", " + std::to_string(second);
        if (key == first || key == second) {
          CHECK_IN(found == nullptr, context);
        } else {
          CHECK_IN(found != nullptr && *found == key + 1, context);
        }
      }
    }
  }
}

}  // namespace

int main() {
  test_drawn_operations();
  test_empty();
  test_a_value_is_new_after_it_was_erased();
  test_removal_from_runs();
  return genie::test::check_result("test_flat_map");
}
