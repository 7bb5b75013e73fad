// genie_core.Network: made once, from its parts.
#include "twin/fabric/network.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"

namespace genie::bindings {
namespace {

using twin::Change;
using twin::DeviceSettings;
using twin::Network;
using twin::Pinned;
using twin::QueueSettings;
using twin::Routes;

// The value of a name in a list of names. Throws nb::value_error.
template <class Value>
Value named(const std::string& name, std::initializer_list<std::pair<const char*, Value>> names,
            const char* problem) {
  for (const auto& [known, value] : names) {
    if (name == known) return value;
  }
  throw nb::value_error(problem);
}

Routes make_routes(const Column<std::int32_t>& group_of_host, const twin::NextHops& hops,
                   const Column<std::int64_t>& last_hop_start, const Column<std::int32_t>& last_hops) {
  return {.group_of_host = to_vector(group_of_host),
          .hops = hops,
          .last_hop_start = to_vector(last_hop_start),
          .last_hops = to_vector(last_hops)};
}

QueueSettings make_queues(const Column<std::int64_t>& ecn_minimum_bytes,
                          const Column<std::int64_t>& ecn_maximum_bytes,
                          const Column<double>& ecn_probability, const Column<std::int64_t>& shared_bytes,
                          const Column<std::int64_t>& headroom_bytes, std::int64_t reserve_bytes,
                          std::int64_t resume_bytes, std::uint32_t alpha_numerator, std::uint32_t alpha_shift,
                          std::uint8_t lossless, std::uint32_t data_class, std::uint32_t control_class,
                          std::pair<std::int64_t, std::int64_t> weights_bytes, const std::string& balance,
                          std::int64_t flowlet_gap_ps, std::uint32_t data_header_bytes,
                          std::uint32_t control_bytes, std::uint32_t pause_bytes,
                          std::int64_t serialisation_unit_ps) {
  if (ecn_maximum_bytes.size() != ecn_minimum_bytes.size() ||
      ecn_probability.size() != ecn_minimum_bytes.size())
    throw nb::value_error("the columns of ECN differ in length");
  if (data_class >= twin::kPauseClass || control_class >= twin::kPauseClass)
    throw nb::value_error("no such class of packets");
  QueueSettings own;
  for (std::size_t link = 0; link < ecn_minimum_bytes.size(); ++link)
    own.link_ecn.push_back({ecn_minimum_bytes(link), ecn_maximum_bytes(link), ecn_probability(link)});
  own.shared_bytes = to_vector(shared_bytes);
  own.link_headroom_bytes = to_vector(headroom_bytes);
  own.buffer = {reserve_bytes, resume_bytes, alpha_numerator, alpha_shift, lossless};
  own.data_class = data_class;
  own.control_class = control_class;
  if (const auto [data, control] = weights_bytes; data_class != control_class && data > 0 && control > 0) {
    own.strict_classes = static_cast<std::uint8_t>(~(1u << data_class | 1u << control_class));
    own.weight_bytes[data_class] = data;
    own.weight_bytes[control_class] = control;
  }
  using twin::Balance;
  own.balance = named<Balance>(balance,
                               {{"ecmp", Balance::kPath},
                                {"reps", Balance::kPath},
                                {"flowlet", Balance::kFlowlet},
                                {"spray", Balance::kSpray},
                                {"round-robin", Balance::kRoundRobin},
                                {"adaptive", Balance::kAdaptive}},
                               "no such load balancing");
  own.flowlet_gap = flowlet_gap_ps;
  own.data_header_bytes = data_header_bytes;
  own.control_bytes = control_bytes;
  own.pause_bytes = pause_bytes;
  own.serialisation_unit = serialisation_unit_ps;
  return own;
}

DeviceSettings make_devices(const Column<std::int64_t>& burst_bytes, const Column<double>& loss,
                            const Column<std::int64_t>& retry_ps, std::int64_t doorbell_ps,
                            std::int64_t notification_ps, const twin::NicCosts& nic, bool cut_through,
                            bool trims, const std::string& source_ports,
                            std::pair<std::uint16_t, std::uint16_t> port_range) {
  if (loss.size() != retry_ps.size()) throw nb::value_error("the columns of link errors differ in length");
  if (port_range.first > port_range.second) throw nb::value_error("a range of ports is empty");
  DeviceSettings own;
  own.link_burst_bytes = to_vector(burst_bytes);
  for (std::size_t link = 0; link < loss.size(); ++link)
    own.link_errors.push_back({loss(link), retry_ps(link)});
  own.doorbell_latency = doorbell_ps;
  own.notification_latency = notification_ps;
  own.nic = nic;
  own.cut_through = cut_through;
  own.trims = trims;
  using Rule = twin::SourcePorts::Rule;
  own.source_ports = {
      named<Rule>(source_ports,
                  {{"nccl", Rule::kQueuePairs}, {"pair", Rule::kRanks}, {"range", Rule::kRange}},
                  "no such rule of source ports"),
      port_range.first, port_range.second};
  return own;
}

twin::NicCosts make_nic(std::int64_t message_ps, std::int64_t packet_ps, std::int64_t pcie_rate_bps,
                        std::int64_t prefetch_bytes, const Column<std::uint8_t>& on_link) {
  return {message_ps, packet_ps, pcie_rate_bps, prefetch_bytes, to_vector(on_link)};
}

Change make_change(std::int64_t time_ps, const std::string& kind, std::uint32_t number,
                   std::int64_t rate_bps) {
  using Kind = Change::Kind;
  const Kind own = named<Kind>(
      kind, {{"down", Kind::kDown}, {"up", Kind::kUp}, {"rate", Kind::kRate}, {"routes", Kind::kRoutes}},
      "no such change");
  return {time_ps, own, number, rate_bps};
}

std::unique_ptr<Network> make_network(
    std::int32_t hosts, std::int32_t nodes, std::uint32_t frame_overhead_bytes,
    const Column<std::int32_t>& source, const Column<std::int32_t>& target,
    const Column<std::int64_t>& rate_bps, const Column<std::int64_t>& delay_ps,
    const Column<std::int64_t>& buffer_bytes, const Column<std::int64_t>& packet_latency_ps,
    const Column<std::int64_t>& message_latency_ps, const QueueSettings& queues,
    const DeviceSettings& devices, std::vector<Routes> routes, std::vector<Change> changes,
    std::vector<Pinned> pinned) {
  auto own = std::make_unique<Network>();
  static_cast<QueueSettings&>(*own) = queues;
  static_cast<DeviceSettings&>(*own) = devices;
  own->hosts = hosts;
  own->nodes = nodes;
  own->frame_overhead_bytes = frame_overhead_bytes;
  own->link_source = to_vector(source);
  own->link_target = to_vector(target);
  own->link_rate_bps = to_vector(rate_bps);
  own->link_delay_ps = to_vector(delay_ps);
  own->link_buffer_bytes = to_vector(buffer_bytes);
  own->packet_latency_ps = to_vector(packet_latency_ps);
  own->message_latency_ps = to_vector(message_latency_ps);
  own->routes = std::move(routes);
  own->changes = std::move(changes);
  own->pinned = std::move(pinned);
  if (const std::string problem = own->check(); !problem.empty()) throw std::invalid_argument(problem);
  return own;
}

}  // namespace

void register_network(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Routes>(m, "Routes", "Next links of shortest paths, by node and group of hosts.")
      .def(nb::new_(&make_routes), "group_of_host"_a, "hops"_a, "last_hop_start"_a, "last_hops"_a);
  nb::class_<QueueSettings>(m, "QueueSettings", "Queues before links, the classes in them, and the frames.")
      .def(
          nb::new_(&make_queues), nb::kw_only(), "ecn_minimum_bytes"_a, "ecn_maximum_bytes"_a,
          "ecn_probability"_a, "shared_bytes"_a, "headroom_bytes"_a, "reserve_bytes"_a = 0,
          "resume_bytes"_a = 0, "alpha_numerator"_a = 1, "alpha_shift"_a = 3, "lossless"_a = 0,
          "data_class"_a = 0, "control_class"_a = 0, "weights_bytes"_a = std::pair(0, 0),
          "balance"_a = "ecmp", "flowlet_gap_ps"_a = 0, "data_header_bytes"_a = 0, "control_bytes"_a = 0,
          "pause_bytes"_a = 0, "serialisation_unit_ps"_a = 1,
          "ecn_*, (links,): where links mark; a minimum below 0: never. shared_bytes, (nodes,); 0: no shared "
          "buffer. headroom_bytes, (links,): at the target, for each lossless class. lossless: a bit for "
          "each "
          "class. weights_bytes: of data and of control, in a turn; 0: the higher class goes first. "
          "data_header_bytes and on: another model's frames; 0: RoCEv2's.");
  nb::class_<twin::NicCosts>(m, "NicCosts", "Costs of each host's NIC.")
      .def(nb::new_(&make_nic), nb::kw_only(), "message_ps"_a, "packet_ps"_a, "pcie_rate_bps"_a,
           "prefetch_bytes"_a, "on_link"_a, "on_link, (links,): 1 for ports of hosts towards the network.");
  nb::class_<DeviceSettings>(m, "DeviceSettings", "Hosts, their NICs, switches and cables.")
      .def(nb::new_(&make_devices), nb::kw_only(), "burst_bytes"_a, "loss"_a, "retry_ps"_a,
           "doorbell_ps"_a = 0, "notification_ps"_a = 0, "nic"_a = twin::NicCosts{}, "cut_through"_a = false,
           "trims"_a = false, "source_ports"_a = "nccl", "port_range"_a = std::pair(0xC000, 0xFFFF),
           "burst_bytes, (links,): of token buckets; 0: none. loss, (links,): share of frames that a link "
           "corrupts, 0 to 0.5. retry_ps, (links,): until its port hears of it; -1: never. source_ports: "
           "nccl, "
           "pair or range.");
  nb::class_<Change>(m, "Change", "A link goes down or up or has another rate, or other routes hold.")
      .def(nb::new_(&make_change), "time_ps"_a, "kind"_a, "number"_a, "rate_bps"_a = 0,
           "kind: down, up, rate or routes. number: of the link, or of the routes.");
  nb::class_<Pinned>(m, "Pinned", "A path that a pair of hosts keeps to.")
      .def(nb::new_([](std::int32_t source, std::int32_t target, std::vector<std::uint32_t> links,
                       std::int32_t port) { return Pinned{source, target, std::move(links), port}; }),
           "source"_a, "target"_a, "links"_a, "port"_a = -1,
           "port: source port of a sprayed queue pair, from 0, whose packets keep to the path; -1: all.");
  nb::class_<Network>(m, "Network", "Hosts, directed links and routes, as the packet kernel sees them.")
      .def(nb::new_(&make_network), nb::kw_only(), "hosts"_a, "nodes"_a, "frame_overhead_bytes"_a, "source"_a,
           "target"_a, "rate_bps"_a, "delay_ps"_a, "buffer_bytes"_a, "packet_latency_ps"_a,
           "message_latency_ps"_a, "queues"_a, "devices"_a, "routes"_a, "changes"_a = std::vector<Change>{},
           "pinned"_a = std::vector<Pinned>{},
           "routes: the first hold from the beginning. changes: in the order of time.");
}

}  // namespace genie::bindings
