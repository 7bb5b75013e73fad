// The network as the kernel sees it: made once from simtwin/fabric/specification.py, and immutable.
#pragma once
#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <string>
#include <vector>

#include "core/time.hpp"
#include "twin/fabric/next_hops.hpp"
#include "twin/fabric/nic_costs.hpp"

namespace genie::twin {

// Random early detection by a queue's bytes (RFC 3168 marks instead of drops); a minimum below 0: none.
struct EcnProfile {
  std::int64_t minimum_bytes = -1, maximum_bytes = -1;
  double chance_at_maximum = 0;
};

// Classes of packets, each with a queue at every port; the higher goes first. Data and control have one each,
// or one together; pause frames (IEEE 802.1Qbb) are never paused.
inline constexpr std::uint32_t kClasses = 4, kPauseClass = kClasses - 1;

// Sharing of a switch's buffer among its ports. Each ingress and class has a reserve. Beyond it, each may
// take alpha times the bytes that are left for all. A lossless class may also take its headroom while its
// source pauses.
struct BufferConfig {
  std::int64_t reserve_bytes = 0;
  std::int64_t resume_bytes = 0;  // below the threshold by so much a pause ends
  std::uint32_t alpha_numerator = 1, alpha_shift = 3;
  std::uint8_t lossless = 0;  // bit of each class

  std::int64_t threshold_bytes(std::int64_t left_bytes) const {
    return (left_bytes * alpha_numerator) >> alpha_shift;
  }
};

// Choice of a switch among equally short paths for a data packet; control packets keep to their path.
enum class Balance : std::uint8_t {
  kPath,        // a path for each connection, drawn when it is made
  kFlowlet,     // drawn anew when a connection has paused for a while
  kSpray,       // drawn for each packet
  kRoundRobin,  // in turn
  kAdaptive,    // the shortest queue
};

// UDP source ports of queue pairs, which the five-tuples that switches hash differ in: as the live world has
// them, see genie/config/source_ports.py.
struct SourcePorts {
  enum class Rule : std::uint8_t { kQueuePairs, kRanks, kRange };
  Rule rule = Rule::kQueuePairs;
  std::uint16_t first = 0xC000, last = 0xFFFF;  // of a range
};

// Next links of shortest paths, see simtwin/fabric/routing.py. Links to a host are its last_hops,
// last_hops[last_hop_start[host] ...). Elsewhere they are the next hops to the host's group.
struct Routes {
  std::vector<std::int32_t> group_of_host;
  NextHops hops;
  std::vector<std::int64_t> last_hop_start;
  std::vector<std::int32_t> last_hops;
};

// Change of a link at a time, or of the routes from then on.
struct Change {
  enum class Kind : std::uint8_t { kDown, kUp, kRate, kRoutes };
  TimePs time = 0;
  Kind kind = Kind::kDown;
  std::uint32_t number = 0;   // link, or place of the routes
  std::int64_t rate_bps = 0;  // from now on
};

// A path that a pair of hosts keeps to, whatever the routes are.
struct Pinned {
  std::int32_t from = 0, to = 0;
  std::vector<std::uint32_t> links;
  std::int32_t port = -1;  // of a sprayed queue pair: only what leaves by this of its source ports
};

// Corruption of frames by a link.
struct LinkErrors {
  double chance = 0;  // of each frame
  // Link-level retry: from the end of a corrupted frame until its port hears of it; below 0: the frame is
  // lost.
  TimePs round_trip = -1;
};

// A new field of the network or its settings has its place in network_of (network_part.cpp) too, and in
// describe where parts may differ in it.

// Queues before links, the classes in them, and the frames that they hold.
struct QueueSettings {
  std::vector<EcnProfile> link_ecn;               // of the queues before the link
  std::vector<std::int64_t> link_headroom_bytes;  // at its target, of each lossless class
  std::vector<std::int64_t> shared_bytes;         // by node; 0: no shared buffer
  BufferConfig buffer;
  std::uint32_t control_class = 0, data_class = 0;
  std::uint8_t strict_classes = 0xFF;  // bit of each; the others share what these leave, by weight
  std::array<std::int64_t, kClasses> weight_bytes{};  // of a turn
  Balance balance = Balance::kPath;
  TimePs flowlet_gap = 0;
  // Another model's frames: what each has beside its payload, whatever the opcode; 0: as RoCEv2 has it.
  std::uint32_t data_header_bytes = 0, control_bytes = 0, pause_bytes = 0;
  TimePs serialisation_unit = 1;  // to which times of serialisation, and between paced packets, are rounded
};

// Hosts, their NICs, switches and cables.
struct DeviceSettings {
  std::vector<std::int64_t> link_burst_bytes;  // of its token bucket; 0: every packet takes its time
  std::vector<LinkErrors> link_errors;         // empty: none corrupts, and none retries
  TimePs doorbell_latency = 0;                 // from a message's posting until a host's port hears of it
  TimePs notification_latency = 0;             // from a congestion notification's arrival until it acts
  NicCosts nic;                                // of all hosts
  bool cut_through = false;                    // switches forward what they have the header of
  bool trims = false;                          // and forward the header of what has no room
  SourcePorts source_ports;
};

struct Network : QueueSettings, DeviceSettings {
  std::int32_t hosts = 0;  // nodes 0 .. hosts - 1
  std::int32_t nodes = 0;  // then the switches
  std::uint32_t frame_overhead_bytes = 0;
  // Directed links; each is the output port of its source.
  std::vector<std::int32_t> link_source, link_target;
  std::vector<std::int64_t> link_rate_bps;  // 0: unlimited
  std::vector<std::int64_t> link_delay_ps;
  std::vector<std::int64_t> link_buffer_bytes;                      // -1: unlimited
  std::vector<std::int64_t> packet_latency_ps, message_latency_ps;  // of hosts
  std::vector<Routes> routes;                                       // the first from the beginning
  std::vector<Change> changes;                                      // in the order of time
  std::vector<Pinned> pinned;
  bool is_pinned_in_order = false;  // by ends; each pair has one path

  // By which a packet for a host may leave a node, fn(link).
  template <class Function>
  void each_next_hop(const Routes& by, std::int32_t node, std::int32_t host, Function fn) const {
    assert(node >= 0 && node < nodes && host >= 0 && host < hosts);
    bool beside = false;
    for (auto at = static_cast<std::size_t>(by.last_hop_start[static_cast<std::size_t>(host)]);
         at < static_cast<std::size_t>(by.last_hop_start[static_cast<std::size_t>(host) + 1]); ++at) {
      if (link_source[static_cast<std::size_t>(by.last_hops[at])] != node) continue;
      beside = true;
      fn(static_cast<std::uint32_t>(by.last_hops[at]));
    }
    if (beside) return;
    for (const std::int32_t link : by.hops.of(node, by.group_of_host[static_cast<std::size_t>(host)]))
      fn(static_cast<std::uint32_t>(link));
  }

  std::int32_t links() const { return static_cast<std::int32_t>(link_source.size()); }

  // The error in the arrays, or "".
  std::string check() const {
    const std::size_t count = link_source.size();
    if (link_target.size() != count || link_rate_bps.size() != count || link_delay_ps.size() != count ||
        link_buffer_bytes.size() != count)
      return "the network's link columns differ in length";
    if (link_ecn.size() != count || link_headroom_bytes.size() != count || link_burst_bytes.size() != count)
      return "the settings of the network's links differ in length";
    if (shared_bytes.size() != static_cast<std::size_t>(nodes))
      return "the network's shared buffers differ in length from its nodes";
    if (packet_latency_ps.size() != static_cast<std::size_t>(hosts) ||
        message_latency_ps.size() != static_cast<std::size_t>(hosts))
      return "the network's host columns differ in length";
    for (std::size_t link = 0; link < count; ++link) {
      if (link_source[link] < 0 || link_source[link] >= nodes || link_target[link] < 0 ||
          link_target[link] >= nodes)
        return "a link ends outside the network";
      if (link_rate_bps[link] < 0 || link_delay_ps[link] < 0) return "a link has a negative rate or delay";
    }
    if (!link_errors.empty() && link_errors.size() != count)
      return "the network's link errors differ in length";
    for (const LinkErrors& errors : link_errors) {
      if (errors.chance < 0 || errors.chance > 0.5) return "a link corrupts more than half of its frames";
    }
    if (routes.empty()) return "the network has no routes";
    if (!nic.on_link.empty() && nic.on_link.size() != count)
      return "the network's ports of NICs differ in length from its links";
    for (const Routes& by : routes) {
      if (std::string problem = check(by); !problem.empty()) return problem;
    }
    for (const Change& change : changes) {
      const std::size_t most = change.kind == Change::Kind::kRoutes ? routes.size() : count;
      if (change.time < 0 || change.number >= most) return "a change names no link and no routes";
    }
    if (!std::ranges::is_sorted(changes, {}, &Change::time)) return "changes are not in the order of time";
    for (const Pinned& path : pinned) {
      if (path.from < 0 || path.from >= hosts || path.to < 0 || path.to >= hosts)
        return "a pinned path has no such host";
      if (path.links.empty() || std::ranges::any_of(path.links, [&](auto link) { return link >= count; }))
        return "a pinned path has no such link";
    }
    return "";
  }

 private:
  std::string check(const Routes& by) const {
    const auto host_count = static_cast<std::size_t>(hosts);
    if (by.group_of_host.size() != host_count || by.last_hop_start.size() != host_count + 1 ||
        by.last_hop_start.front() != 0 ||
        by.last_hop_start.back() != static_cast<std::int64_t>(by.last_hops.size()))
      return "the network's last-hop links do not fit its hosts";
    if (std::string problem = by.hops.check(static_cast<std::size_t>(nodes), link_source.size());
        !problem.empty())
      return problem;
    for (std::size_t host = 0; host < host_count; ++host) {
      if (by.last_hop_start[host] > by.last_hop_start[host + 1])
        return "the network's last-hop links are out of order";
      if (by.group_of_host[host] < 0) return "a host has no group";
    }
    for (const std::int32_t link : by.last_hops) {
      if (link < 0 || link >= links()) return "a route names no link";
    }
    return "";
  }
};

}  // namespace genie::twin
