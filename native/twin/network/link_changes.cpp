// Failures, degradations and repairs of links.
#include <cassert>

#include "twin/network/links.hpp"

namespace genie::twin {

void Links::set_rate(Port& port, std::int64_t rate_bps) const {
  port.rate_bps = rate_bps;
  const bool whole = network_->serialisation_unit == 1 && rate_bps > 0 && 8 * kPsPerSecond % rate_bps == 0 &&
                     8 * kPsPerSecond / rate_bps < 1u << 31;
  port.ps_per_byte = whole ? static_cast<std::uint32_t>(8 * kPsPerSecond / rate_bps) : 0;
}

void Links::apply(const Change& change, TimePs now) {
  Port& port = ports_[change.number];
  switch (change.kind) {
    case Change::Kind::kRoutes:
      assert(change.number < network_->routes.size());
      routes_ = &network_->routes[change.number];
      return;
    case Change::Kind::kRate:
      if (port.waiting != 0) drain(port, change.number, now);
      if (port.is(Port::kBucket)) change_bucket_rate(change.number, change.rate_bps, now);
      set_rate(port, change.rate_bps);
      set_cut_through(change.number);
      for (std::uint32_t link = 0; link < count_; ++link) {
        if (targets_[link] == port.node) set_cut_through(link);
      }
      return;
    case Change::Kind::kUp:
      if (!port.is(Port::kDown)) return;
      port.clear(Port::kDown);
      port.free = now;
      // Pause frames that its source could not send meanwhile.
      for (std::uint32_t own = 0; own < kPauseClass; ++own) {
        if (buffers_.is_pausing(change.number ^ 1, own)) tell(change.number ^ 1, own, true, now);
      }
      return;
    case Change::Kind::kDown:
      if (!port.is(Port::kDown)) take_down(change.number, now);
      return;
  }
}

// Packets that wait for the link or are on it are lost. It sends nothing until it is up again.
void Links::take_down(std::uint32_t number, TimePs now) {
  Port &port = ports_[number], &far = ports_[inbound_[number]];
  if (port.waiting != 0) drain(port, number, now);
  port.set(Port::kDown);  // no pause frame is sent by it any more
  port.free = kNever;
  if (port.is(Port::kErrors)) errors_.cut(number, now);
  for (std::uint32_t own = 0; own < kClasses; ++own) {
    PriorityQueue& queue = port.queues[own];
    for (std::uint32_t place = queue.flying; place < queue.flying + queue.waiting; ++place) {
      const Packet& packet = queue.at(place);
      if (is_pause_frame(packet)) continue;
      const std::uint32_t wire_bytes = wire_bytes_of(packet);
      if (buffers_.is_shared(port.node)) release(port.node, packet.ingress(), own, wire_bytes, now);
      drop(number, packet, wire_bytes);
    }
    queue.waiting = 0;
    queue.waiting_bytes = 0;
    PriorityQueue& wire = far.queues[own];
    for (std::uint32_t place = 0; place < wire.flying; ++place) {
      const Packet& packet = wire.at(place);
      if (!is_pause_frame(packet)) drop(number, packet, wire_bytes_of(packet));
    }
    wire.flying = 0;
  }
  port.waiting = far.flying = port.flying = 0;
  port.waiting_bytes = 0;
  port.paused = 0;
  if (!port.is(Port::kToSwitch)) schedule_->set(number, kNever);
  if (port.node >= network_->hosts && has_start_events(port)) schedule_->set(count_ + number, kNever);
  buffers_.forget_pauses(targets_[number], number, now);
  lift_pauses(number, now);
}

// Pauses do not outlive the cable by which they are said, in either direction: a frame that ends one would
// not come (real ones run out, IEEE 802.1Qbb).
void Links::lift_pauses(std::uint32_t number, TimePs now) {
  const std::uint32_t back = number ^ 1;
  if (number >= network_->link_rate_bps.size()) return;
  // The switch that sent the frames on their way back has just forgotten these pauses: they end them now.
  for (Port* const port : {&ports_[back], &ports_[inbound_[back]]}) {
    PriorityQueue& queue = port->queues[kPauseClass];
    for (std::uint32_t place = 0; place < queue.flying + queue.waiting; ++place)
      revoke_pause(queue.at(place));
  }
  for (std::uint32_t own = 0; own < kPauseClass; ++own) {
    if (ports_[back].is_paused(own)) paused_by(pause_frame(own, false), number, now);
  }
}

}  // namespace genie::twin
