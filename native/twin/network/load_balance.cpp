// How a switch picks one of several equally short ways for a packet.
#include <algorithm>

#include "core/mix.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

std::uint32_t Links::choose(Flight& flight, std::uint32_t ingress, TimePs now) {
  const std::int32_t node = targets_[ingress], host = host_of_connection_[flight.connection];
  flight.route = Flight::kFree | ingress;
  Balancer& own = balancers_[static_cast<std::size_t>(node)];
  std::vector<std::uint32_t>& ways = own.ways;
  ways.clear();
  network_->each_way(*routes_, node, host, [&](std::uint32_t link) { ways.push_back(link); });
  const auto count = static_cast<std::uint32_t>(ways.size());
  if (count == 0) return kNowhere;
  if (count == 1) return ways[0];
  const auto drawn = [&] {
    return static_cast<std::uint32_t>(
        mixed(seed_ ^ mixed(static_cast<std::uint64_t>(node) << 40 ^ ++own.drawn)) % count);
  };
  switch (network_->balance) {
    case Balance::kRoundRobin:
      return ways[own.drawn++ % count];
    case Balance::kFlowlet: {
      Flowlet& flowlet = own.flowlets[flight.connection];
      if (flowlet.last == 0 || now - flowlet.last > network_->flowlet_gap ||
          std::find(ways.begin(), ways.end(), flowlet.link) == ways.end())
        flowlet.link = ways[drawn()];
      flowlet.last = now;
      return flowlet.link;
    }
    case Balance::kAdaptive: {
      for (std::uint32_t way = 0; way < count; ++way) {
        if (blocks_[ways[way]].waiting != 0) work_out(blocks_[ways[way]], ways[way], now);
      }
      const std::uint32_t first = drawn();  // of equal ones a drawn one
      std::uint32_t best = ways[first];
      for (std::uint32_t step = 1; step < count; ++step) {
        const std::uint32_t other = ways[(first + step) % count];
        if (backlog(blocks_[other], now) < backlog(blocks_[best], now)) best = other;
      }
      return best;
    }
    default:
      return ways[drawn()];
  }
}

}  // namespace genie::twin
