#include "twin/fabric/network_part.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "core/index.hpp"

namespace genie::twin {
namespace {

template <class Number>
Number place_in(const std::vector<Number>& sorted, Number value) {
  return static_cast<Number>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
}

template <class Value, class Number>
std::vector<Value> chosen(const std::vector<Value>& all, const std::vector<Number>& places) {
  std::vector<Value> out;
  out.reserve(places.size());
  for (const Number place : places) out.push_back(all[static_cast<std::size_t>(place)]);
  return out;
}

}  // namespace

std::int32_t NetworkPart::node(std::int32_t whole) const {
  const std::int32_t host = place_in(hosts, whole);
  if (index(host) < hosts.size() && hosts[index(host)] == whole) return host;
  const std::int32_t place = place_in(switches, whole);
  assert(index(place) < switches.size() && switches[index(place)] == whole);
  return static_cast<std::int32_t>(hosts.size()) + place;
}

std::uint32_t NetworkPart::link(std::uint32_t whole) const {
  const std::uint32_t place = place_in(links, whole);
  assert(place < links.size() && links[place] == whole);
  return place;
}

Network network_of(const NetworkPart& part, const Network& whole) {
  Network own;
  own.hosts = static_cast<std::int32_t>(part.hosts.size());
  own.nodes = own.hosts + static_cast<std::int32_t>(part.switches.size());
  own.frame_overhead_bytes = whole.frame_overhead_bytes;
  own.data_header_bytes = whole.data_header_bytes;
  own.control_bytes = whole.control_bytes;
  own.pause_bytes = whole.pause_bytes;
  own.serialisation_unit = whole.serialisation_unit;
  for (const std::uint32_t link : part.links) {
    own.link_source.push_back(part.node(whole.link_source[link]));
    own.link_target.push_back(part.node(whole.link_target[link]));
  }
  own.link_rate_bps = chosen(whole.link_rate_bps, part.links);
  own.link_delay_ps = chosen(whole.link_delay_ps, part.links);
  own.link_buffer_bytes = chosen(whole.link_buffer_bytes, part.links);
  own.link_ecn = chosen(whole.link_ecn, part.links);
  own.link_headroom_bytes = chosen(whole.link_headroom_bytes, part.links);
  own.link_burst_bytes = chosen(whole.link_burst_bytes, part.links);
  if (!whole.link_errors.empty()) own.link_errors = chosen(whole.link_errors, part.links);
  own.shared_bytes.assign(part.hosts.size(), 0);
  for (const std::int32_t node : part.switches) own.shared_bytes.push_back(whole.shared_bytes[index(node)]);
  own.buffer = whole.buffer;
  own.strict_classes = whole.strict_classes;
  own.weight_bytes = whole.weight_bytes;
  own.packet_latency_ps = chosen(whole.packet_latency_ps, part.hosts);
  own.message_latency_ps = chosen(whole.message_latency_ps, part.hosts);
  own.doorbell_latency = whole.doorbell_latency;
  own.nic = whole.nic;
  own.nic.on_link = whole.nic.on_link.empty() ? whole.nic.on_link : chosen(whole.nic.on_link, part.links);
  own.notification_latency = whole.notification_latency;
  own.cut_through = whole.cut_through;
  own.trims = whole.trims;
  own.control_class = whole.control_class;
  own.data_class = whole.data_class;
  own.balance = whole.balance;
  own.flowlet_gap = whole.flowlet_gap;
  own.routes.push_back({.group_of_host = std::vector<std::int32_t>(part.hosts.size(), 0),
                        .hops = NextHops::none(index(own.nodes)),
                        .last_hop_start = std::vector<std::int64_t>(part.hosts.size() + 1, 0),
                        .last_hops = {}});
  own.is_pinned_in_order = true;
  for (const Pinned& path : part.paths) {
    Pinned& pinned = own.pinned.emplace_back(
        Pinned{.from = part.node(path.from), .to = part.node(path.to), .links = {}, .port = path.port});
    for (const std::uint32_t link : path.links) pinned.links.push_back(part.link(link));
  }
  return own;
}

std::vector<std::int64_t> describe(const Network& part) {
  std::vector<std::int64_t> words{part.hosts, part.nodes, part.links()};
  for (std::size_t link = 0; link < part.link_source.size(); ++link) {
    words.insert(
        words.end(),
        {part.link_source[link], part.link_target[link], part.link_rate_bps[link], part.link_delay_ps[link],
         part.link_buffer_bytes[link], part.link_ecn[link].minimum_bytes, part.link_ecn[link].maximum_bytes,
         std::bit_cast<std::int64_t>(part.link_ecn[link].chance_at_maximum), part.link_headroom_bytes[link]});
  }
  words.insert(words.end(), part.shared_bytes.begin(), part.shared_bytes.end());
  words.insert(words.end(), part.packet_latency_ps.begin(), part.packet_latency_ps.end());
  words.insert(words.end(), part.message_latency_ps.begin(), part.message_latency_ps.end());
  for (const Pinned& path : part.pinned) {
    words.insert(words.end(), {path.from, path.to, path.port, static_cast<std::int64_t>(path.links.size())});
    words.insert(words.end(), path.links.begin(), path.links.end());
  }
  return words;
}

}  // namespace genie::twin
