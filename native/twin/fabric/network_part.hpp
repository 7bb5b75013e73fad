// A part of a network: some of its hosts and switches, the cables between them, and pinned paths.
#pragma once
#include <cstdint>
#include <vector>

#include "twin/fabric/network.hpp"

namespace genie::twin {

// Numbers of nodes and links in the whole network, ascending: the part numbers them in this order. Links come
// in pairs, one for each direction of a cable.
struct NetworkPart {
  std::vector<std::int32_t> hosts, switches;
  std::vector<std::uint32_t> links;
  std::vector<Pinned> paths;  // by the whole network's numbers

  std::int32_t node(std::int32_t whole) const;
  std::uint32_t link(std::uint32_t whole) const;
};

// The part as a network of its own. Nothing changes in it, and its only paths are pinned.
Network network_of(const NetworkPart& part, const Network& whole);

// All that a simulation on the part depends on. Parts with equal descriptions are alike up to numbers.
std::vector<std::int64_t> describe(const Network& part);

}  // namespace genie::twin
