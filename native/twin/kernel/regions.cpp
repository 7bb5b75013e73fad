#include "twin/kernel/regions.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

#include "core/index.hpp"

namespace genie::twin {
namespace {

using Nodes = std::vector<std::int32_t>;

// Sets of nodes, of which the first stands for all.
class Sets {
 public:
  explicit Sets(std::int32_t nodes) : above_(index(nodes)) { std::iota(above_.begin(), above_.end(), 0); }
  std::int32_t of(std::int32_t node) {
    while (above_[index(node)] != node) node = above_[index(node)] = above_[index(above_[index(node)])];
    return node;
  }
  void join(std::int32_t a, std::int32_t b) {
    a = of(a), b = of(b);
    above_[index(std::max(a, b))] = std::min(a, b);
  }

 private:
  Nodes above_;
};

// Links from a host to a node, and the first of the hosts that are so near.
struct Place {
  std::int32_t tier, host;
  friend bool operator<(const Place& a, const Place& b) {
    return std::tie(a.tier, a.host) < std::tie(b.tier, b.host);
  }
};

std::vector<Place> places_of(std::int32_t hosts, std::int32_t nodes, const std::vector<Cable>& cables) {
  std::vector<Place> places(index(nodes), Place{nodes, nodes});
  for (std::int32_t host = 0; host < hosts; ++host) places[index(host)] = {0, host};
  for (bool changed = true; changed;) {
    changed = false;
    const auto hear = [&](std::int32_t node, std::int32_t from) {
      const Place place{places[index(from)].tier + 1, places[index(from)].host};
      if (!(place < places[index(node)])) return;
      places[index(node)] = place;
      changed = true;
    };
    for (const Cable& cable : cables) {
      hear(cable.a, cable.b);
      hear(cable.b, cable.a);
    }
  }
  return places;
}

// By node: the region that processes up to a tier make, -1 of a process above it. Tiers are by
// process.
Nodes joined_up_to(std::int32_t most, const Nodes& tier, Sets processes, const std::vector<Cable>& cables) {
  Sets near = processes;
  for (const Cable& cable : cables) {
    const std::int32_t a = processes.of(cable.a), b = processes.of(cable.b);
    if (std::max(tier[index(a)], tier[index(b)]) <= most) near.join(a, b);
  }
  Nodes joined(tier.size(), -1);
  for (std::size_t node = 0; node < joined.size(); ++node) {
    const auto own = static_cast<std::int32_t>(node);
    if (tier[index(processes.of(own))] <= most) joined[node] = near.of(own);
  }
  return joined;
}

// The turns of processes that are joined up to tier `most` + 1. `joined`: by tier from 1 on, by process.
void take_turns(std::uint32_t first, std::uint32_t end, std::size_t most, const std::vector<Nodes>& joined,
                std::vector<Turn>& turns) {
  if (most == 0) {
    turns.push_back({first, end, 0});
    turns.push_back({first, end, 1});
    return;
  }
  const Nodes& within = joined[most - 1];
  std::uint32_t above = first;  // where what joins the regions begins
  while (above < end && within[above] >= 0) ++above;
  if (above < end) turns.push_back({above, end, 0});
  for (std::uint32_t from = first, to = first; from < above; from = to) {
    while (to < above && within[to] == within[from]) ++to;
    take_turns(from, to, most - 1, joined, turns);
  }
  if (above < end) turns.push_back({above, end, 1});
}

}  // namespace

Regions regions_of(std::int32_t hosts, std::int32_t nodes, const std::vector<Cable>& cables) {
  Sets processes(nodes);
  for (const Cable& cable : cables) {
    if (cable.timeless) processes.join(cable.a, cable.b);
  }
  const std::vector<Place> places = places_of(hosts, nodes, cables);
  Nodes tier(index(nodes));  // by process
  for (std::int32_t node = 0; node < nodes; ++node) {
    std::int32_t& own = tier[index(processes.of(node))];
    if (places[index(node)].tier < nodes) own = std::max(own, places[index(node)].tier);
  }
  const std::int32_t highest = tier.empty() ? 0 : *std::max_element(tier.begin(), tier.end());
  std::vector<Nodes> joined;  // by tier from 1 on
  for (std::int32_t most = 1; most < highest; ++most)
    joined.push_back(joined_up_to(most, tier, processes, cables));
  Nodes order(index(nodes));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    for (std::size_t own = joined.size(); own-- > 0;) {
      // Nodes above a region come last.
      const auto first = static_cast<std::uint32_t>(joined[own][index(a)]),
                 second = static_cast<std::uint32_t>(joined[own][index(b)]);
      if (first != second) return first < second;
    }
    return places[index(a)].host < places[index(b)].host;
  });
  Regions found;
  Nodes number(index(nodes), -1), first_of;  // of a process: its number; by number: its first node
  for (const std::int32_t node : order) {
    const std::int32_t process = processes.of(node);
    if (number[index(process)] >= 0) continue;
    number[index(process)] = static_cast<std::int32_t>(first_of.size());
    first_of.push_back(process);
  }
  for (std::int32_t node = 0; node < nodes; ++node)
    found.process_of_node.push_back(static_cast<std::uint32_t>(number[index(processes.of(node))]));
  found.processes = static_cast<std::uint32_t>(first_of.size());
  std::vector<Nodes> by_process;
  for (const Nodes& own : joined) {
    Nodes& sorted = by_process.emplace_back();
    for (const std::int32_t process : first_of) sorted.push_back(own[index(process)]);
  }
  take_turns(0, found.processes, by_process.size(), by_process, found.turns);
  return found;
}

}  // namespace genie::twin
