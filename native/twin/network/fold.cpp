// Fold of links: their ports, switches and packets. All have come to one time.
#include "core/index.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

void Links::fold(Fold& fold, const PacketBases& bases, const Scope& scope) {
  static_assert(has_size<Links>(1232));
  fold_ports(fold, bases, scope);
  fold.part(Fold::Part::kShared, 0);
  for (std::int32_t node = network_->hosts; node < network_->nodes; ++node) {
    buffers_.fold_node(fold, node);
    balancers_[index(node)].fold(fold, *network_);
  }
  inputs_.fold(fold, scope);
}

void Links::fold_own(Fold& fold, const PacketBases& bases, const Scope& scope) {
  fold_ports(fold, bases, scope);
  inputs_.fold_services(fold, scope);
}

void Links::fold_ports(Fold& fold, const PacketBases& bases, const Scope& scope) {
  for (std::uint32_t number = 0; number < ports_.size(); ++number) {
    if (number < count_ && scope.links[number] == 0) continue;
    fold.part(Fold::Part::kPort, number);
    fold_port(fold, number, bases);
  }
}

// Readings are as far behind their odometers in equal states.
void Links::fold_telemetry(Fold& fold, std::uint32_t place) {
  telemetry_.fold(fold, place, [this](std::uint32_t port) { return ports_[port].bytes; });
}

void Links::fold_port(Fold& fold, std::uint32_t number, const PacketBases& bases) {
  constexpr std::uint32_t kLargestFrame = 1 << 16;
  Port& port = ports_[number];
  fold.exact(port.packets != 0 || port.flying != 0 || port.waiting != 0);
  fold.total(port.packets);
  fold.odometer(number, port.bytes, skipped_bytes_[number]);
  fold.exact(port.flags, port.flying, port.waiting, port.paused, port.waiting_bytes, port.longest_bytes);
  fold.not_before(port.free, 1);
  for (PriorityQueue& queue : port.queues) {
    fold.exact(queue.flying, queue.waiting);
    for (std::uint32_t place = 0; place < queue.flying + queue.waiting; ++place) {
      Packet& packet = queue.at(place);
      bases.fold(fold, packet);
      if (packet.telemetry != 0) [[unlikely]]
        fold_telemetry(fold, packet.telemetry);
      if (place < queue.flying) {
        fold.moment(packet.arrival);
      } else {
        fold.exact(packet.ingress());
      }
    }
  }
  if (number >= count_) return;  // the far end of a link to another thread
  counters_.fold(fold, number);
  marker_.fold(fold, number);
  buffers_.fold_ingress(fold, number);
  if (port.is(Port::kBucket)) buckets_[number].fold(fold, serialisation(port, kLargestFrame));
  if (port.is(Port::kErrors)) errors_.fold(fold, number);
  if (network_->strict_classes != 0xFF) round_robins_[number].fold(fold);
  if (TimePs start = schedule_->time_of(count_ + number); port.node >= network_->hosts) fold.moment(start);
}

}  // namespace genie::twin
