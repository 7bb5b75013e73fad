// Pauses by priority (IEEE 802.1Qbb): when switches send them, and what the ports do that get them.
#include <algorithm>
#include <cassert>

#include "core/index.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

// True if a packet may wait in a switch near a threshold. Tells its sender to pause when it takes headroom,
// or all that the threshold leaves it.
[[gnu::noinline]] bool Links::admit_near(std::int32_t node, std::uint32_t ingress, std::uint32_t priority,
                                         std::uint32_t wire_bytes, TimePs now) {
  const bool first = !buffers_.is_pausing(node);
  if (first) drain_all(node, now);
  const SharedBuffers::Admission admission = buffers_.admit(node, ingress, priority, wire_bytes, now);
  if (admission == SharedBuffers::Admission::kTakenAndPause) {
    if (first) watch(node);
    tell(ingress, priority, true, now);
  }
  return admission != SharedBuffers::Admission::kNoRoom;
}

void Links::drain_all(std::int32_t node, TimePs now) {
  for (const std::uint32_t number : ports_of_node_[index(node)]) {
    if (ports_[number].waiting != 0) drain(ports_[number], number, now);
  }
}

// From now on every start at this switch has an event, so that it resumes in time.
void Links::watch(std::int32_t node) {
  for (const std::uint32_t number : ports_of_node_[index(node)])
    expect_start(ports_[number], number, ports_[number].free);
}

// A pause frame, or one that ends a pause, to the source of a link: back along its cable.
void Links::tell(std::uint32_t ingress, std::uint32_t priority, bool pause, TimePs now) {
  if (pause) counters_.pause(ingress);
  const std::uint32_t number = ingress ^ 1;
  Port& port = ports_[number];
  if (port.is(Port::kDown)) return;
  if (port.waiting != 0) drain(port, number, now);
  const Packet frame = pause_frame(priority, pause);
  const std::uint32_t wire_bytes = wire_bytes_of(frame);
  if (port.is(Port::kErrors) && send_beside_replay(port, number, frame, wire_bytes, now)) return;
  if (port.free <= now && (port.waiting >> kPauseClass & 1) == 0) {
    start(port, number, frame, wire_bytes, now);
    return;
  }
  put(port, number, frame, ingress, wire_bytes);
  if (has_start_events(port)) expect_start(port, number, now);
}

// A pause frame has come by `number`: what is said of the port beside it. True when that may send again.
bool Links::paused_by(const Packet& frame, std::uint32_t number, TimePs now) {
  const std::uint32_t other = number ^ 1, priority = priority_of(frame);
  assert(priority < kPauseClass);
  Port& port = ports_[other];
  if (port.waiting != 0) drain(port, other, now);
  if (pauses(frame)) {
    port.pause(priority);
  } else {
    port.resume(priority);
    if ((port.waiting >> priority & 1) != 0) port.free = std::max(port.free, now);
  }
  if (has_start_events(port)) expect_start(port, other, now);
  return !port.is_paused(priority);
}

}  // namespace genie::twin
