// Loads of messages that are sent at once, each in even shares over all of its equally short routes.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "twin/fabric/next_hops.hpp"

namespace genie::twin {

// A network's links and routes by shortest paths; see Routes in network.hpp. The caller that makes it keeps
// the arrays.
struct RouteTable {
  std::int32_t hosts = 0, nodes = 0;
  std::span<const std::int32_t> link_source, link_target;
  std::span<const std::int64_t> rate_bps, delay_ps;
  std::span<const std::int32_t> group_of_host;
  NextHops hops;
  std::span<const std::int64_t> last_hop_start;
  std::span<const std::int32_t> last_hops;
  std::span<const std::int64_t>
      own_rate_bps;  // by host: of the port through which its ranks reach each other
};

struct Transfer {
  std::int32_t source = 0, target = 0;  // hosts
  double part = 0;                      // of the counted bytes
};

// `delay_ps`: of the longest route, without hosts; `hop_byte_ps`: for each byte of a packet on all links of a
// route but the slowest. `byte_ps`: time of the most loaded link for each counted byte, and `route_byte_ps`
// of the most loaded connection's slowest link.
struct RouteLoad {
  std::vector<double> delay_ps, hop_byte_ps;  // by transfer
  double byte_ps = 0, route_byte_ps = 0;
};

class EvenShares {
 public:
  explicit EvenShares(RouteTable table);
  RouteLoad load(std::span<const Transfer> transfers);

 private:
  struct Route {
    double delay_ps = 0, hop_byte_ps = 0, slowest_byte_ps = 0;
  };
  Route spread(const Transfer& transfer);
  Route beside(const Transfer& transfer);
  std::span<const std::int32_t> choices(std::int32_t node, std::int32_t host);
  void carry(std::size_t link, double part);

  RouteTable table_;
  std::vector<double> carried_;       // by link, then by host for its own port
  std::vector<std::size_t> touched_;  // links that carry something
  // Of one transfer: its part on each link and its links; nodes it has reached, and the next with their
  // parts.
  std::vector<double> share_;
  std::vector<std::size_t> shared_;
  std::vector<std::pair<std::int32_t, double>> front_;
  std::vector<std::int32_t> next_;
  std::vector<double> at_;            // by node
  std::vector<std::int32_t> beside_;  // last_hops of one node
};

}  // namespace genie::twin
