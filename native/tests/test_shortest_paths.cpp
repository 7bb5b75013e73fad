// Drawn networks: distances against relaxation until nothing changes, and the links that lie on shortest
// paths.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "twin/fabric/shortest_paths.hpp"

namespace {

using genie::twin::components_of;
using genie::twin::NextHops;
using genie::twin::ShortestPaths;
using Numbers = std::vector<std::int32_t>;

// As ShortestPaths::add returns it.
Numbers relaxed(std::int32_t nodes, const Numbers& source, const Numbers& target, const Numbers& length,
                const Numbers& nearest) {
  Numbers distance(static_cast<std::size_t>(nodes), ShortestPaths::kUnreachable);
  for (const std::int32_t node : nearest) distance[node] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t link = 0; link < source.size(); ++link) {
      if (distance[target[link]] < 0) continue;
      const std::int32_t by_link = distance[target[link]] + length[link];
      std::int32_t& known = distance[source[link]];
      if (known >= 0 && known <= by_link) continue;
      known = by_link;
      changed = true;
    }
  }
  return distance;
}

void paths_are_the_shortest() {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const std::string name = "seed " + std::to_string(seed);
    const auto below = [&](std::size_t bound) { return static_cast<std::int32_t>(random() % bound); };
    const std::int32_t nodes = 1 + below(20);
    Numbers source, target, length;
    for (std::int32_t more = below(60); more > 0; --more) {
      source.push_back(below(static_cast<std::size_t>(nodes)));
      target.push_back(below(static_cast<std::size_t>(nodes)));
      length.push_back(1 + below(5));
    }
    ShortestPaths paths(nodes, source, target, length);
    const std::size_t groups = 1 + static_cast<std::size_t>(below(4));
    std::vector<Numbers> distances;
    for (std::size_t group = 0; group < groups; ++group) {
      Numbers nearest;
      for (std::int32_t more = below(3); more > 0; --more)
        nearest.push_back(below(static_cast<std::size_t>(nodes)));
      distances.push_back(paths.add(nearest));
      CHECK_IN(distances.back() == relaxed(nodes, source, target, length, nearest), name);
    }
    const NextHops hops = paths.take();
    CHECK_IN(hops.check(static_cast<std::size_t>(nodes), source.size()).empty(), name);
    for (std::int32_t node = 0; node < nodes; ++node) {
      for (std::size_t group = 0; group < groups; ++group) {
        Numbers expected;
        for (std::size_t link = 0; link < source.size(); ++link) {
          const std::int32_t after = distances[group][target[link]];
          if (source[link] == node && after >= 0 && after + length[link] == distances[group][node])
            expected.push_back(static_cast<std::int32_t>(link));
        }
        CHECK_IN(std::ranges::equal(hops.of(node, static_cast<std::int32_t>(group)), expected), name);
      }
    }
  }
}

void components_are_numbered_in_the_order_of_nodes() {
  CHECK(components_of(6, {4, 1, 5}, {2, 3, 3}) == (Numbers{0, 1, 2, 1, 2, 1}));
  CHECK(components_of(0, {}, {}).empty());
}

}  // namespace

int main() {
  paths_are_the_shortest();
  components_are_numbered_in_the_order_of_nodes();
  return genie::test::check_result("test_shortest_paths");
}
