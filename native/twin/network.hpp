// The network as the kernel sees it: immutable arrays from simtwin/topology.py and simtwin/routing.py.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

// Random early detection by a queue's bytes (RFC 3168 marks instead of drops); a minimum below 0: none.
struct EcnProfile {
  std::int64_t minimum_bytes = -1, maximum_bytes = -1;
  double chance_at_maximum = 0;
};

// Classes of packets, each with a queue at every port; the higher goes first. Data and control have one each,
// or one together; pause frames (IEEE 802.1Qbb) are never paused.
inline constexpr std::uint32_t kWaysMax = 64;  // that a switch picks from
inline constexpr std::uint32_t kClasses = 4, kPauseClass = kClasses - 1;

// How a switch's ports share its buffer. Each ingress and class has a reserve; beyond that it may take alpha
// times of what is left for all, and of a lossless class its headroom while its source pauses.
struct BufferConfig {
  std::int64_t reserve_bytes = 0;
  std::int64_t resume_bytes = 0;  // below the threshold by so much a pause ends
  std::uint32_t alpha_numerator = 1, alpha_shift = 3;
  std::uint8_t lossless = 0;  // bit of each class

  std::int64_t threshold_bytes(std::int64_t left_bytes) const {
    return (left_bytes * alpha_numerator) >> alpha_shift;
  }
};

// How a switch picks one of several equally short ways for a data packet; control packets keep to theirs.
enum class Balance : std::uint8_t {
  kPath,        // a path for each connection, drawn when it is made
  kFlowlet,     // drawn anew when a connection has paused for a while
  kSpray,       // drawn for each packet
  kRoundRobin,  // in turn
  kAdaptive,    // the shortest queue
};

struct Network {
  std::int32_t hosts = 0;  // nodes 0 .. hosts - 1
  std::int32_t nodes = 0;  // then the switches
  std::uint32_t frame_overhead_bytes = 0;
  // Another model's frames: what each has beside its payload, whatever the opcode; 0: as RoCEv2 has it.
  std::uint32_t data_header_bytes = 0, control_bytes = 0;
  TimePs serialisation_unit = 1;  // to which times of serialisation are rounded
  // Directed links; each is the output port of its source.
  std::vector<std::int32_t> link_source, link_target;
  std::vector<std::int64_t> link_rate_bps;  // 0: unlimited
  std::vector<std::int64_t> link_delay_ps;
  std::vector<std::int64_t> link_buffer_bytes;    // -1: unlimited
  std::vector<EcnProfile> link_ecn;               // of the queues before the link
  std::vector<std::int64_t> link_headroom_bytes;  // at its target, of each lossless class
  std::vector<std::int64_t> shared_bytes;         // by node; 0: no shared buffer
  BufferConfig buffer;
  std::uint8_t strict_classes = 0xFF;  // bit of each; the others share what these leave, by weight
  std::array<std::int64_t, kClasses> weight_bytes{};  // of a turn
  // Next links of shortest paths, see simtwin/routing.py: links to a host are its doors,
  // doors[door_start[host]
  // ...); elsewhere they are route_links[route_start[node * groups + group] ...) of the host's group.
  std::vector<std::int32_t> group_of_host;
  std::int32_t group_count = 0;
  std::vector<std::int64_t> route_start;
  std::vector<std::int32_t> route_links;
  std::vector<std::int64_t> door_start;
  std::vector<std::int32_t> doors;
  std::vector<std::int64_t> packet_latency_ps, message_latency_ps;  // of hosts

  std::uint32_t control_class = 0, data_class = 0;
  Balance balance = Balance::kPath;
  TimePs flowlet_gap = 0;

  std::int32_t groups() const {
    std::int32_t most = -1;
    for (const std::int32_t group : group_of_host) most = std::max(most, group);
    return most + 1;
  }

  // By which a packet for a host may leave a node, fn(link).
  template <class Function>
  void each_way(std::int32_t node, std::int32_t host, Function fn) const {
    bool beside = false;
    for (auto at = static_cast<std::size_t>(door_start[static_cast<std::size_t>(host)]);
         at < static_cast<std::size_t>(door_start[static_cast<std::size_t>(host) + 1]); ++at) {
      if (link_source[static_cast<std::size_t>(doors[at])] != node) continue;
      beside = true;
      fn(static_cast<std::uint32_t>(doors[at]));
    }
    if (beside) return;
    const std::size_t row = static_cast<std::size_t>(node) * static_cast<std::size_t>(group_count) +
                            static_cast<std::size_t>(group_of_host[static_cast<std::size_t>(host)]);
    for (auto at = static_cast<std::size_t>(route_start[row]);
         at < static_cast<std::size_t>(route_start[row + 1]); ++at)
      fn(static_cast<std::uint32_t>(route_links[at]));
  }

  std::int32_t links() const { return static_cast<std::int32_t>(link_source.size()); }

  // What is wrong with the arrays, or "".
  std::string check() const {
    const std::size_t count = link_source.size();
    const auto host_count = static_cast<std::size_t>(hosts);
    if (link_target.size() != count || link_rate_bps.size() != count || link_delay_ps.size() != count ||
        link_buffer_bytes.size() != count)
      return "the network's link columns differ in length";
    if (packet_latency_ps.size() != host_count || message_latency_ps.size() != host_count)
      return "the network's host columns differ in length";
    if (group_of_host.size() != host_count || door_start.size() != host_count + 1 ||
        door_start.front() != 0 || door_start.back() != static_cast<std::int64_t>(doors.size()))
      return "the network's doors do not fit its hosts";
    if (route_start.size() != static_cast<std::size_t>(nodes) * static_cast<std::size_t>(groups()) + 1 ||
        route_start.front() != 0 || route_start.back() != static_cast<std::int64_t>(route_links.size()))
      return "the network's routes do not fit its nodes";
    for (std::size_t link = 0; link < count; ++link) {
      if (link_source[link] < 0 || link_source[link] >= nodes || link_target[link] < 0 ||
          link_target[link] >= nodes)
        return "a link ends outside the network";
      if (link_rate_bps[link] < 0 || link_delay_ps[link] < 0) return "a link has a negative rate or delay";
    }
    for (std::size_t at = 0; at + 1 < route_start.size(); ++at) {
      if (route_start[at] > route_start[at + 1]) return "the network's routes are out of order";
    }
    for (std::size_t host = 0; host < host_count; ++host) {
      if (door_start[host] > door_start[host + 1]) return "the network's doors are out of order";
    }
    for (const std::vector<std::int32_t>* links_named : {&route_links, &doors}) {
      for (std::int32_t link : *links_named) {
        if (link < 0 || static_cast<std::size_t>(link) >= count) return "a route names no link";
      }
    }
    return "";
  }
};

}  // namespace genie::twin
