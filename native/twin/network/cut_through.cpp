// Cut-through: a switch that sends a packet on as soon as it has the header.
#include <algorithm>

#include "core/index.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

// A switch may send on what it has only the header of if it never runs dry: no port that it sends by may be
// faster than the link it came by, neither as it is built, which the windows' length rests on, nor now, and
// none has a token bucket, from which a packet leaves at once.
void Links::set_cut_through(std::uint32_t number) {
  Port& port = ports_[number];
  port.clear(Port::kCutThrough);
  if (!network_->cut_through || port.to_host || number >= network_->link_rate_bps.size()) return;
  const std::vector<std::uint32_t>& ports = ports_of_node_[index(targets_[number])];
  const std::vector<std::int64_t>& built = network_->link_rate_bps;
  const bool fits = std::all_of(ports.begin(), ports.end(), [&](std::uint32_t own) {
    return built[own] > 0 && built[own] <= built[number] && ports_[own].rate_bps <= port.rate_bps &&
           network_->link_burst_bytes[own] == 0;
  });
  if (fits) port.set(Port::kCutThrough);
}

// When the header of a packet that starts at `at` and takes `time` is dealt with.
TimePs Links::header_arrival(const Port& port, TimePs at, TimePs time) const {
  return at + std::min(time, serialisation(port, kHeaderBytes)) + port.delay;
}

}  // namespace genie::twin
