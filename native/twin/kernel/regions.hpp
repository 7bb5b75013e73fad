// Regions: which nodes of a network are one logical process, how processes are numbered, and in what order
// they play two windows at once. See ARCHITECTURE.md, "Two windows while state is near".
#pragma once
#include <cstdint>
#include <vector>

namespace genie::twin {

struct Cable {
  std::int32_t a, b;  // nodes
  bool timeless;      // what one end does is felt at once at the other: they are one process
};

// Processes from `first` to the one before `end` play a window, of two the one with this number (0 or 1).
struct Turn {
  std::uint32_t first, end, window;
};

struct Regions {
  std::vector<std::uint32_t> process_of_node;
  std::uint32_t processes = 0;
  std::vector<Turn> turns;
};

// Hosts are the first nodes. A region of tier t is what nodes up to t links from the nearest host
// join; others are reached by nodes of higher tiers alone. Processes of a region follow one another,
// whatever its tier: first smaller regions in it, then what joins them. In the order of `turns` no
// process plays a window before all its neighbours have played the one before.
Regions regions_of(std::int32_t hosts, std::int32_t nodes, const std::vector<Cable>& cables);

}  // namespace genie::twin
