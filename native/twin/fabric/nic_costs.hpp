// The time that a host's NIC takes beside its port's. The NIC takes time for messages of a queue pair, for
// what it reads from memory over PCIe, and for packets. All hosts have the same costs. Without any,
// everything here is 0.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

struct NicCosts {
  TimePs message_time = 0;            // between the starts of two messages of a queue pair, at least
  TimePs packet_time = 0;             // between the starts of two packets of a port, at least
  std::int64_t pcie_rate_bps = 0;     // of payload; 0: no limit
  std::int64_t prefetch_bytes = 0;    // of a message, read before its first packet leaves
  std::vector<std::uint8_t> on_link;  // by link: whether it is a NIC's port towards the network

  bool is_port(std::uint32_t link) const { return link < on_link.size() && on_link[link] != 0; }
  bool delays_messages() const { return message_time > 0 || prefetch_bytes > 0; }
  bool limits_ports() const { return packet_time > 0 || pcie_rate_bps > 0; }

  TimePs reading(std::int64_t size_bytes) const { return serialisation_ps(size_bytes, pcie_rate_bps); }
  // Time for which a packet occupies a port, at least.
  TimePs occupancy(std::int64_t payload_bytes) const { return std::max(packet_time, reading(payload_bytes)); }

  // Of one queue pair, whose messages stay in order.
  struct Queue {
    TimePs next_start = 0;  // of a message
    TimePs ready = 0;       // the last one
  };
  // When a message that is posted at `now` may begin to leave.
  TimePs ready(Queue& queue, std::int64_t size_bytes, TimePs now) const {
    const TimePs start = std::max(now, queue.next_start);
    queue.next_start = start + message_time;
    queue.ready = std::max(queue.ready, start + reading(std::min(size_bytes, prefetch_bytes)));
    return queue.ready;
  }
};

}  // namespace genie::twin
