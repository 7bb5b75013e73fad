#include "twin/fabric/even_shares.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {
namespace {

constexpr double kPsPerSecond = 1e12;

}  // namespace

EvenShares::EvenShares(RouteTable table)
    : table_(std::move(table)),
      carried_(table_.rate_bps.size() + index(table_.hosts), 0.0),
      share_(table_.rate_bps.size(), 0.0),
      at_(index(table_.nodes), 0.0) {}

RouteLoad EvenShares::load(std::span<const Transfer> transfers) {
  RouteLoad out;
  for (const Transfer& transfer : transfers) {
    assert(transfer.source < table_.hosts && transfer.target < table_.hosts && transfer.part >= 0);
    const Route route = transfer.source == transfer.target ? beside(transfer) : spread(transfer);
    out.delay_ps.push_back(route.delay_ps);
    out.hop_byte_ps.push_back(route.hop_byte_ps);
    out.route_byte_ps = std::max(out.route_byte_ps, transfer.part * route.slowest_byte_ps);
  }
  const std::size_t links = table_.rate_bps.size();
  for (const std::size_t link : std::exchange(touched_, {})) {
    const std::int64_t rate_bps = link < links ? table_.rate_bps[link] : table_.own_rate_bps[link - links];
    const double part = std::exchange(carried_[link], 0.0);
    if (rate_bps > 0)
      out.byte_ps = std::max(out.byte_ps, part * 8 * kPsPerSecond / static_cast<double>(rate_bps));
  }
  return out;
}

// Ranks of one host exchange data through its port.
EvenShares::Route EvenShares::beside(const Transfer& transfer) {
  carry(table_.rate_bps.size() + index(transfer.source), transfer.part);
  return {};
}

EvenShares::Route EvenShares::spread(const Transfer& transfer) {
  Route route;
  double hop_sum_ps = 0;
  front_.assign(1, {transfer.source, 1.0});
  while (!front_.empty()) {
    double hop_delay_ps = 0, hop_byte_ps = 0;
    for (const auto& [node, part] : front_) {
      const std::span<const std::int32_t> links = choices(node, transfer.target);
      const double each = part / static_cast<double>(links.size());
      for (const std::int32_t number : links) {
        const std::size_t link = index(number);
        if (share_[link] == 0.0) shared_.push_back(link);
        share_[link] += each;
        const std::int64_t rate_bps = table_.rate_bps[link];
        if (rate_bps > 0)
          hop_byte_ps = std::max(hop_byte_ps, 8 * kPsPerSecond / static_cast<double>(rate_bps));
        hop_delay_ps = std::max(hop_delay_ps, static_cast<double>(table_.delay_ps[link]));
        const std::int32_t other = table_.link_target[link];
        if (other == transfer.target) continue;
        if (at_[index(other)] == 0.0) next_.push_back(other);
        at_[index(other)] += each;
      }
    }
    front_.clear();
    for (const std::int32_t node : next_) front_.emplace_back(node, std::exchange(at_[index(node)], 0.0));
    next_.clear();
    route.delay_ps += hop_delay_ps;
    hop_sum_ps += hop_byte_ps;
    route.slowest_byte_ps = std::max(route.slowest_byte_ps, hop_byte_ps);
  }
  route.hop_byte_ps = hop_sum_ps - route.slowest_byte_ps;
  for (const std::size_t link : shared_) carry(link, transfer.part * std::exchange(share_[link], 0.0));
  shared_.clear();
  return route;
}

// By which a packet for a host may leave a node, as Network::each_next_hop.
std::span<const std::int32_t> EvenShares::choices(std::int32_t node, std::int32_t host) {
  const auto first = static_cast<std::size_t>(table_.last_hop_start[index(host)]);
  const auto last = static_cast<std::size_t>(table_.last_hop_start[index(host) + 1]);
  beside_.clear();
  for (const std::int32_t door : table_.last_hops.subspan(first, last - first)) {
    if (table_.link_source[index(door)] == node) beside_.push_back(door);
  }
  if (!beside_.empty()) return beside_;
  return table_.hops.of(node, table_.group_of_host[index(host)]);
}

void EvenShares::carry(std::size_t link, double part) {
  if (part == 0.0) return;
  if (carried_[link] == 0.0) touched_.push_back(link);
  carried_[link] += part;
}

}  // namespace genie::twin
