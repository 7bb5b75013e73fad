// Logical processes of drawn networks: their partition, and that none plays a window too early.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "twin/kernel/regions.hpp"

namespace {

using namespace genie::twin;
using Random = std::mt19937_64;

struct Drawn {
  std::int32_t hosts, nodes;
  std::vector<Cable> cables;
};

// Tiers of switches with cables up, across, and past a tier; hosts cabled to hosts; islands.
Drawn draw(Random& random) {
  const auto below = [&](std::size_t bound) { return static_cast<std::int32_t>(random() % bound); };
  Drawn it{1 + below(12), 0, {}};
  it.nodes = it.hosts + below(14);
  const auto timeless = [&] { return random() % 12 == 0; };
  for (std::int32_t node = it.hosts; node < it.nodes; ++node) {
    for (std::int32_t more = below(4); more > 0; --more)
      it.cables.push_back({below(static_cast<std::size_t>(node)), node, timeless()});
  }
  for (std::int32_t more = below(6); more > 0; --more) {
    const auto nodes = static_cast<std::size_t>(it.nodes);
    it.cables.push_back({below(nodes), below(nodes), timeless()});
  }
  return it;
}

void check_turns(const Drawn& drawn, const std::string& context) {
  const Regions found = regions_of(drawn.hosts, drawn.nodes, drawn.cables);
  const std::vector<std::uint32_t>& process = found.process_of_node;
  CHECK_IN(process.size() == static_cast<std::size_t>(drawn.nodes), context);
  CHECK_IN(std::set<std::uint32_t>(process.begin(), process.end()).size() == found.processes, context);
  std::vector<std::set<std::uint32_t>> beside(found.processes);
  for (const Cable& cable : drawn.cables) {
    const std::uint32_t a = process[static_cast<std::size_t>(cable.a)],
                        b = process[static_cast<std::size_t>(cable.b)];
    CHECK_IN(!cable.timeless || a == b, context);
    if (a == b) continue;
    beside[a].insert(b);
    beside[b].insert(a);
  }
  std::vector<std::uint32_t> played(found.processes, 0);  // windows
  for (const Turn& turn : found.turns) {
    // Inside a turn processes play in any order: all of them must be allowed to before one has.
    for (std::uint32_t one = turn.first; one < turn.end; ++one) {
      CHECK_IN(played[one] == turn.window, context);
      for (const std::uint32_t other : beside[one]) CHECK_IN(played[other] >= turn.window, context);
    }
    for (std::uint32_t one = turn.first; one < turn.end; ++one) ++played[one];
  }
  for (const std::uint32_t windows : played) CHECK_IN(windows == 2, context);
}

void nobody_plays_too_early() {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    check_turns(draw(random), "seed " + std::to_string(seed));
  }
}

// Hosts 0 to 3 at switches 4 and 5, which switch 6 joins: a leaf and its hosts play both windows in a row.
void a_leaf_plays_both_windows_at_once() {
  const std::vector<Cable> cables{{0, 4, false}, {1, 4, false}, {2, 5, false},
                                  {3, 5, false}, {4, 6, false}, {5, 6, false}};
  const Regions found = regions_of(4, 7, cables);
  const std::vector<std::uint32_t> process{0, 2, 3, 5, 1, 4, 6};
  CHECK(found.process_of_node == process);
  const std::vector<std::vector<std::uint32_t>> turns{{6, 7, 0}, {0, 3, 0}, {0, 3, 1},
                                                      {3, 6, 0}, {3, 6, 1}, {6, 7, 1}};
  CHECK_EQUAL(found.turns.size(), turns.size());
  for (std::size_t at = 0; at < std::min(turns.size(), found.turns.size()); ++at) {
    const Turn& turn = found.turns[at];
    CHECK((std::vector<std::uint32_t>{turn.first, turn.end, turn.window} == turns[at]));
  }
}

}  // namespace

int main() {
  nobody_plays_too_early();
  a_leaf_plays_both_windows_at_once();
  return genie::test::check_result("test_regions");
}
