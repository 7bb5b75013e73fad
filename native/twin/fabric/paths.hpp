// Queue pairs and their paths through the network: which of them exist, their UDP source ports, and the links
// that switches choose. The same at every level.
#pragma once
#include <cstdint>
#include <vector>

#include "twin/fabric/network.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

// The two ends of a queue pair: ranks, its own number, its peer's, and its place among those of the two
// ranks.
struct Ends {
  std::int32_t rank = 0, peer = 0;
  std::uint32_t own = 0, other = 0, number = 0;
};

// (rank, peer) of all that exchange messages, in both directions, by rank, then by peer, as pair_key has
// them.
std::vector<std::uint64_t> connected_pairs(const std::vector<Walker>& walkers);

// As genie/config/source_ports.py has it.
std::uint16_t source_port(const SourcePorts& ports, std::uint64_t seed, std::uint32_t queue_pairs,
                          const Ends& ends);
// Those of a sprayed connection, which has one queue pair.
std::vector<std::uint16_t> sprayed_ports(const SourcePorts& ports, std::uint64_t seed, std::uint32_t count,
                                         const Ends& ends);

// `place`: among the source ports of a sprayed queue pair.
const Pinned* pinned_path(const Network& network, std::int32_t from, std::int32_t to, std::int32_t place = 0);

// The place of a UDP source port among those of a sprayed queue pair, and the link of the host's port. That
// port sends the packets of all these source ports.
struct SprayedPlace {
  static constexpr std::uint32_t kAnyLink = ~std::uint32_t{0};
  std::int32_t place = 0;
  std::uint32_t first_link = kAnyLink;
};

// The links from a host to another, by a hash of the packets' five-tuple or as the pair is pinned. For a host
// to itself, the link links() + host. Empty: there is no path.
void find_path(const Network& network, const Routes& routes, std::int32_t from, std::int32_t to,
               std::uint16_t port, std::vector<std::uint32_t>& path, const SprayedPlace& sprayed = {});

}  // namespace genie::twin
