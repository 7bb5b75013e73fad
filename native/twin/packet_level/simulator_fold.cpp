// Fold of a simulation that stands at one time.
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

std::string Simulator::unfoldable() const {
  return hosts_.asks_telemetry() ? "HPCC reads clocks in whole nanoseconds" : unadvanceable();
}

std::string Simulator::unadvanceable() const {
  if (hosts_.keeps_trace()) return "a trace of all packets was asked for";
  if (hosts_.queue_pairs().has_losses()) return "lost packets are planned";
  return hosts_.can_fold() ? "" : "sprayed packets are not folded";
}

void Simulator::fold(Fold& fold) {
  PacketBases bases;
  hosts_.fold(fold, bases);
  links_.fold(fold, bases);
  for (std::uint32_t number = 0; number < processes_.count(); ++number)
    fold.total(processes_[number].data_packets);
}

void Simulator::move(TimePs by, TimePs now) {
  schedule_.move(by, now);
  for (std::uint32_t number = 0; number < processes_.count(); ++number) processes_[number].now += by;
  hosts_.ranks().renew_events();
}

}  // namespace genie::twin
