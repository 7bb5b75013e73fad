// Failures, degradations and repairs of links; cut-through and token buckets.
#include <algorithm>
#include <cmath>

#include "core/index.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

void Links::set_rate(Port& port, std::int64_t rate_bps) const {
  port.rate_bps = rate_bps;
  const bool whole = network_->serialisation_unit == 1 && rate_bps > 0 && 8 * kPsPerSecond % rate_bps == 0 &&
                     8 * kPsPerSecond / rate_bps < 1u << 31;
  port.ps_per_byte = whole ? static_cast<std::uint32_t>(8 * kPsPerSecond / rate_bps) : 0;
}

// A switch may send on what it has only the header of if it never runs dry: no port that it sends by may be
// faster than the link it came by, neither as it is built, which the windows' length rests on, nor now, and
// none has a token bucket, from which a packet leaves at once.
void Links::set_cut_through(std::uint32_t number) {
  Port& port = ports_[number];
  port.flags &= static_cast<std::uint8_t>(~kCutThrough);
  if (!network_->cut_through || port.to_host || number >= network_->link_rate_bps.size()) return;
  const std::vector<std::uint32_t>& ports = ports_of_node_[index(targets_[number])];
  const std::vector<std::int64_t>& built = network_->link_rate_bps;
  const bool fits = std::all_of(ports.begin(), ports.end(), [&](std::uint32_t own) {
    return built[own] > 0 && built[own] <= built[number] && ports_[own].rate_bps <= port.rate_bps &&
           network_->link_burst_bytes[own] == 0;
  });
  if (fits) port.flags |= kCutThrough;
}

// Another rate fills a bucket that lacks as many tokens as before.
void Links::set_bucket(std::uint32_t number, std::int64_t rate_bps, TimePs now) {
  Port& port = ports_[number];
  TokenBucket& bucket = buckets_[number];
  const double slower = static_cast<double>(port.rate_bps) / static_cast<double>(rate_bps);
  bucket.burst = serialisation_ps(network_->link_burst_bytes[number], rate_bps);
  if (bucket.due > now) bucket.due = now + std::llround(static_cast<double>(bucket.due - now) * slower);
  if ((port.flags & kDown) != 0) return;
  port.free = now;  // what is next waits for its tokens anew
  if (port.node < network_->hosts || !has_start_events(port)) return;
  schedule_->set(count_ + number, kNever);
  expect_start(port, number, now);
}

// When a packet that starts at `at` is dealt with, where that is not when its last bit has come.
TimePs Links::early_arrival(Port& port, TimePs at, TimePs time) {
  if ((port.flags & kBucket) != 0) {
    TokenBucket& bucket = buckets_[static_cast<std::size_t>(&port - ports_.data())];
    port.free = at;  // what comes next waits for as many tokens as it needs
    bucket.take(at, time);
    return at + port.delay;
  }
  return at + std::min(time, serialisation(port, kHeaderBytes)) + port.delay;
}

void Links::apply(const Change& change, TimePs now) {
  Port& port = ports_[change.number];
  switch (change.kind) {
    case Change::Kind::kRoutes:
      routes_ = &network_->routes[change.number];
      return;
    case Change::Kind::kRate:
      if (port.waiting != 0) drain(port, change.number, now);
      if ((port.flags & kBucket) != 0) set_bucket(change.number, change.rate_bps, now);
      set_rate(port, change.rate_bps);
      set_cut_through(change.number);
      for (std::uint32_t link = 0; link < count_; ++link) {
        if (targets_[link] == port.node) set_cut_through(link);
      }
      return;
    case Change::Kind::kUp:
      if ((port.flags & kDown) == 0) return;
      port.flags &= static_cast<std::uint8_t>(~kDown);
      port.free = now;
      // Pause frames that its source could not send meanwhile.
      for (std::uint32_t own = 0; own < kPauseClass; ++own) {
        if (buffers_.is_pausing(change.number ^ 1, own)) tell(change.number ^ 1, own, true, now);
      }
      return;
    case Change::Kind::kDown:
      if ((port.flags & kDown) == 0) take_down(change.number, now);
      return;
  }
}

// Packets that wait for the link or are on it are lost. It sends nothing until it is up again.
void Links::take_down(std::uint32_t number, TimePs now) {
  Port &port = ports_[number], &far = ports_[inbound_[number]];
  if (port.waiting != 0) drain(port, number, now);
  port.flags |= kDown;  // no pause frame is sent by it any more
  port.free = kNever;
  if ((port.flags & kErrors) != 0) {  // nothing is replayed
    errors_[number].until = now;
    errors_[number].planned = 0;
  }
  for (std::uint32_t own = 0; own < kClasses; ++own) {
    PriorityQueue& queue = port.queues[own];
    for (std::uint32_t place = queue.flying; place < queue.flying + queue.waiting; ++place) {
      const Packet& packet = queue.at(place);
      if (packet.connection == kPauseFrame) continue;
      const std::uint32_t wire_bytes = wire_bytes_of(packet);
      if (buffers_.is_shared(port.node)) release(port.node, ingress_of(packet), own, wire_bytes, now);
      drop(number, packet, wire_bytes);
    }
    queue.waiting = 0;
    queue.waiting_bytes = 0;
    PriorityQueue& wire = far.queues[own];
    for (std::uint32_t place = 0; place < wire.flying; ++place) {
      const Packet& packet = wire.at(place);
      if (packet.connection != kPauseFrame) drop(number, packet, wire_bytes_of(packet));
    }
    wire.flying = 0;
  }
  port.waiting = far.flying = port.flying = 0;
  port.waiting_bytes = 0;
  port.paused = 0;
  if ((port.flags & kToSwitch) == 0) schedule_->set(number, kNever);
  if (port.node >= network_->hosts && has_start_events(port)) schedule_->set(count_ + number, kNever);
  buffers_.forget_pauses(targets_[number], number, now);
  lift_pauses(number, now);
}

// Pauses do not outlive the cable by which they are said, in either direction: a frame that ends one would
// not come (real ones run out, IEEE 802.1Qbb).
void Links::lift_pauses(std::uint32_t number, TimePs now) {
  const std::uint32_t back = number ^ 1;
  if (number >= network_->link_rate_bps.size()) return;
  // Frames on their way back have been said by who has just forgotten them: they end pauses now.
  for (Port* const port : {&ports_[back], &ports_[inbound_[back]]}) {
    PriorityQueue& queue = port->queues[kPauseClass];
    for (std::uint32_t place = 0; place < queue.flying + queue.waiting; ++place) queue.at(place).value &= ~1u;
  }
  for (std::uint32_t own = 0; own < kPauseClass; ++own) {
    if ((ports_[back].paused >> own & 1) == 0) continue;
    Packet frame;
    frame.value = own << 1;
    paused_by(frame, number, now);
  }
}

// The header of a packet for which there is no room goes on with the control packets (Handley et al., NDP,
// SIGCOMM 2017). False where that is of no use.
bool Links::trim(const Packet& packet, std::uint32_t ingress, std::uint32_t number, TimePs now) {
  if (!roce::is_request(packet.opcode) || packet.trimmed != 0) return false;
  Packet header = packet;
  header.payload_bytes = 0;
  header.trimmed = 1;
  header.priority = network_->control_class & 7u;
  header.ect = 0;
  ++counters_[number].trimmed;
  forward(header, ingress, number, now);
  return true;
}

}  // namespace genie::twin
