// Pauses by priority (IEEE 802.1Qbb): when switches send them, and what ports do that are told.
#include <algorithm>

#include "core/index.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

// Whether a packet may wait in a switch near a threshold. Tells who sent it to pause when it takes headroom,
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
  if (pause) ++counters_[ingress].pauses;
  const std::uint32_t number = ingress ^ 1;
  Port& port = ports_[number];
  if ((port.flags & kDown) != 0) return;
  if (port.waiting != 0) drain(port, number, now);
  Packet frame;
  frame.connection = kPauseFrame;
  frame.priority = kPauseClass;
  frame.value = priority << 1 | (pause ? 1u : 0u);
  frame.opcode = kPauseOpcode;
  const std::uint32_t wire_bytes = wire_bytes_of(frame);
  if ((port.flags & kErrors) != 0 && send_beside_replay(port, number, frame, wire_bytes, now)) return;
  if (port.free <= now && (port.waiting >> kPauseClass & 1) == 0) {
    start(port, number, frame, wire_bytes, now);
    return;
  }
  put(port, number, frame, wire_bytes);
  if (has_start_events(port)) expect_start(port, number, now);
}

// A pause frame has come by `number`: what is said of the port beside it. True when that may send again.
bool Links::paused_by(const Packet& frame, std::uint32_t number, TimePs now) {
  const std::uint32_t other = number ^ 1, priority = frame.value >> 1;
  Port& port = ports_[other];
  if (port.waiting != 0) drain(port, other, now);
  const auto bit = static_cast<std::uint8_t>(1u << priority);
  if ((frame.value & 1) != 0) {
    port.paused |= bit;
  } else {
    port.paused &= static_cast<std::uint8_t>(~bit);
    if ((port.waiting & bit) != 0) port.free = std::max(port.free, now);
  }
  if (has_start_events(port)) expect_start(port, other, now);
  return (port.paused & bit) == 0;
}

std::vector<std::uint32_t> Links::deadlock() const {
  const auto is_stuck = [&](std::uint32_t link, unsigned priority) {
    return (ports_[link].waiting & ports_[link].paused & (1u << priority)) != 0;
  };
  // From a stuck port to those of the next switch in which its packets are stuck.
  const auto waits_for = [&](std::uint32_t link, unsigned priority) {
    std::vector<std::uint32_t> next;
    for (const std::uint32_t other : ports_of_node_[index(targets_[link])]) {
      if (!is_stuck(other, priority)) continue;
      const PriorityQueue& queue = ports_[other].queues[priority];
      bool from_link = false;
      for (std::uint32_t place = 0; place < queue.waiting; ++place)
        from_link |= ingress_of(queue.at(queue.flying + place)) == link;
      if (from_link) next.push_back(other);
    }
    return next;
  };
  for (unsigned priority = 0; priority < kPauseClass; ++priority) {
    std::vector<bool> seen(count_, false);
    for (std::uint32_t first = 0; first < count_; ++first) {
      if (seen[first] || !is_stuck(first, priority)) continue;
      std::vector<std::uint32_t> path{first};
      std::vector<std::vector<std::uint32_t>> ahead{waits_for(first, priority)};
      seen[first] = true;
      while (!path.empty()) {
        if (ahead.back().empty()) {
          path.pop_back();
          ahead.pop_back();
          continue;
        }
        const std::uint32_t next = ahead.back().back();
        ahead.back().pop_back();
        const auto known = std::find(path.begin(), path.end(), next);
        if (known != path.end()) return {known, path.end()};
        if (seen[next]) continue;
        seen[next] = true;
        path.push_back(next);
        ahead.push_back(waits_for(next, priority));
      }
    }
  }
  return {};
}

}  // namespace genie::twin
