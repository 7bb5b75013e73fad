// Ports whose links corrupt frames or replay them; see ErrorModels.
#include <cassert>

#include "twin/network/links.hpp"

namespace genie::twin {

// When a packet that starts at `at` and takes `time` is dealt with, on a link that is not like most.
TimePs Links::other_arrival(Port& port, const Packet& packet, TimePs at, TimePs time) {
  const auto number = static_cast<std::uint32_t>(&port - ports_.data());
  bool arrives = true;
  if (port.is(Port::kErrors) && !is_pause_frame(packet)) {
    const ErrorModels::Turn turn = errors_.start(number, at, time);
    assert(turn.at >= at);
    at = turn.at;
    arrives = turn.arrives;
    port.free = at + time;
  }
  TimePs arrival = at + time + port.delay;
  if (port.is(Port::kBucket)) {
    arrival = leave_bucket(port, number, at, time);
  } else if (port.is(Port::kCutThrough)) {
    arrival = header_arrival(port, at, time);
  }
  return arrives ? arrival : kNever;
}

void Links::start_apart(Port& port, std::uint32_t number, const Packet& packet, std::uint32_t wire_bytes,
                        TimePs arrival) {
  if (arrival == kNever) return drop(number, packet, wire_bytes);
  if (port.is(Port::kAbroad)) return post(port, number, packet, arrival);
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
  const TimePs at = errors_.discarded_at(number, now);
  if (at == kNever) return false;
  ++port.packets;
  port.bytes += wire_bytes;
  const TimePs arrival = at + serialisation(port, wire_bytes) + port.delay;
  if (port.is(Port::kAbroad)) {
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
  if (port.is(Port::kToSwitch)) {
    schedule_->wake(port.target_process, arrival);
  } else if (arrival < schedule_->time_of(number)) {
    schedule_->set_afar(number, arrival);
  }
}

}  // namespace genie::twin
