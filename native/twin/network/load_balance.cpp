// How a switch picks one of several equally short next_hops for a packet.
#include <algorithm>

#include "core/mix.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

std::uint32_t Links::choose(Packet& packet, std::uint32_t ingress, TimePs now) {
  const std::int32_t node = targets_[ingress], host = host_of_connection_[packet.connection];
  packet.route = Packet::kFree | ingress;
  Balancer& own = balancers_[static_cast<std::size_t>(node)];
  std::vector<std::uint32_t>& next_hops = own.next_hops;
  next_hops.clear();
  network_->each_next_hop(*routes_, node, host, [&](std::uint32_t link) { next_hops.push_back(link); });
  const auto count = static_cast<std::uint32_t>(next_hops.size());
  if (count == 0) return kNowhere;
  if (count == 1) return next_hops[0];
  const auto drawn = [&] {
    return static_cast<std::uint32_t>(
        mixed(seed_ ^ mixed(static_cast<std::uint64_t>(node) << 40 ^ ++own.drawn)) % count);
  };
  switch (network_->balance) {
    case Balance::kRoundRobin:
      return next_hops[own.drawn++ % count];
    case Balance::kFlowlet: {
      Flowlet& flowlet = own.flowlets[packet.connection];
      if (flowlet.last == 0 || now - flowlet.last > network_->flowlet_gap ||
          std::find(next_hops.begin(), next_hops.end(), flowlet.link) == next_hops.end())
        flowlet.link = next_hops[drawn()];
      flowlet.last = now;
      return flowlet.link;
    }
    case Balance::kAdaptive: {
      for (std::uint32_t at = 0; at < count; ++at) {
        if (ports_[next_hops[at]].waiting != 0) drain(ports_[next_hops[at]], next_hops[at], now);
      }
      const std::uint32_t first = drawn();  // of equal ones a drawn one
      std::uint32_t best = next_hops[first];
      for (std::uint32_t step = 1; step < count; ++step) {
        const std::uint32_t other = next_hops[(first + step) % count];
        if (backlog(ports_[other], now) < backlog(ports_[best], now)) best = other;
      }
      return best;
    }
    default:
      return next_hops[drawn()];
  }
}

}  // namespace genie::twin
