// Frames that links corrupt, and link-level retry (Ultra Ethernet specification 1.0, section 5.1: LLR).
//
// The far end of a link that retries answers a corrupted frame with a NACK, and discards all that follow
// until the frame comes again. Its port replays from that frame on (go-back-N). What it has sent meanwhile
// was for nothing: the port is busy until the NACK is there, and frames behind keep waiting in their order.
// So a corruption is a longer turn on the port, known when the frame starts, and no event.
#include <cmath>
#include <utility>

#include "core/mix.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

void Links::set_errors(std::uint32_t number, const LinkErrors& errors) {
  if (errors.chance == 0 && errors.round_trip < 0) return;
  errors_.resize(count_);
  errors_[number].below = static_cast<std::uint64_t>(std::ldexp(errors.chance, 64));
  errors_[number].round_trip = errors.round_trip;
  ports_[number].flags |= kErrors;
}

// How often in a row the frame that is next on a link is corrupted; without retry, whether it is.
std::uint32_t Links::corruptions(std::uint32_t link) {
  Errors& errors = errors_[link];
  std::uint32_t count = std::exchange(errors.planned, 0);
  const auto is_corrupted = [&] {
    return mixed(seed_ ^ mixed((std::uint64_t{link} << 32 ^ ++errors.drawn) + kGoldenGamma)) < errors.below;
  };
  if (errors.below == 0) return count;
  while (is_corrupted()) {
    ++count;
    if (errors.round_trip < 0) break;
  }
  return count;
}

// When a packet that starts at `at` and takes `time` is dealt with, on a link that is not like most.
TimePs Links::other_arrival(Port& port, const Packet& packet, TimePs at, TimePs time) {
  bool arrives = true;
  if ((port.flags & kErrors) != 0 && packet.connection != kPauseFrame) {
    const auto number = static_cast<std::uint32_t>(&port - ports_.data());
    const std::uint32_t count = corruptions(number);
    Errors& errors = errors_[number];
    errors.time = time;
    errors.first = at + time;
    arrives = count == 0 || errors.round_trip >= 0;
    if (errors.round_trip >= 0) {
      errors.replays += count;
      at += count * (time + errors.round_trip);
      port.free = at + time;
    }
    errors.until = at + time;
  }
  const bool early = (port.flags & (kCutThrough | kBucket)) != 0;
  const TimePs arrival = early ? early_arrival(port, at, time) : at + time + port.delay;
  return arrives ? arrival : kNever;
}

void Links::start_apart(Port& port, std::uint32_t number, const Packet& packet, std::uint32_t wire_bytes,
                        TimePs arrival) {
  if (arrival == kNever) return drop(number, packet, wire_bytes);
  if ((port.flags & kAbroad) != 0) return post(port, number, packet, arrival);
  put_on_wire(port, number, packet, arrival);
}

// The first packet that waits has started and is lost: those on the wire close up.
void Links::lose_waiting(std::uint32_t number, PriorityQueue& queue, std::uint32_t wire_bytes) {
  drop(number, queue.at(queue.flying), wire_bytes);
  for (std::uint32_t place = queue.flying; place > 0; --place) queue.at(place) = queue.at(place - 1);
  queue.head = (queue.head + 1) & (queue.capacity - 1);
}

// A pause frame has no part in retries (it is a MAC control frame): while its port would send what is going
// to be discarded, it goes at once.
bool Links::send_beside_replay(Port& port, std::uint32_t number, const Packet& frame,
                               std::uint32_t wire_bytes, TimePs now) {
  const Errors& errors = errors_[number];
  const TimePs at = std::max(now, errors.first);
  if (at >= errors.until - errors.time) return false;
  ++port.packets;
  port.bytes += wire_bytes;
  const TimePs arrival = at + serialisation(port, wire_bytes) + port.delay;
  if ((port.flags & kAbroad) != 0) {
    post(port, number, frame, arrival);
  } else {
    put_before(port, number, frame, arrival);
  }
  return true;
}

// A pause frame may arrive before what is on the wire: its target, told of that, is told anew.
void Links::put_before(Port& port, std::uint32_t number, const Packet& frame, TimePs arrival) {
  const bool first = port.flying == 0;
  put_on_wire(port, number, frame, arrival);
  if (first) return;
  if ((port.flags & kToSwitch) != 0) {
    schedule_->wake(port.target_process, arrival);
  } else if (arrival < schedule_->time_of(number)) {
    schedule_->set_afar(number, arrival);
  }
}

}  // namespace genie::twin
