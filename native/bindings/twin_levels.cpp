// genie_core.FlowSimulator and AnalyticSimulator: the twin's levels without packets.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "bindings/twin.hpp"
#include "twin/analytic_simulator.hpp"
#include "twin/flow_simulator.hpp"

namespace genie::bindings {
namespace {

using twin::AnalyticSimulator;
using twin::FlowSimulator;
using twin::Network;

std::unique_ptr<FlowSimulator> make_flow_simulator(const Network& network, const Plan& plan,
                                                   const Column<std::int32_t>& host_of_rank,
                                                   std::uint64_t seed, const std::string& sharing,
                                                   std::uint32_t mtu_bytes, std::uint32_t window_packets,
                                                   std::uint32_t queue_pairs, bool split,
                                                   std::uint32_t circuit_ports, std::int64_t circuit_setup_ps,
                                                   std::int64_t circuit_rate_bps) {
  if (sharing != "max-min" && sharing != "equal") throw nb::value_error("no such sharing of links");
  if (queue_pairs == 0) throw nb::value_error("a connection needs a queue pair");
  if (mtu_bytes == 0) throw nb::value_error("a packet needs a payload");
  const twin::FlowConfig config{
      .rule = sharing == "equal" ? twin::SharingRule::kEqual : twin::SharingRule::kMaxMin,
      .circuits = {circuit_ports, circuit_setup_ps, circuit_rate_bps},
      .mtu_bytes = mtu_bytes,
      .window_packets = window_packets,
      .spread = {queue_pairs, split}};
  return std::make_unique<FlowSimulator>(network, config, plan.shared, plans_of(plan),
                                         hosts_of(network, plan, host_of_rank), seed);
}

std::unique_ptr<AnalyticSimulator> make_analytic_simulator(
    const Plan& plan, const std::vector<Column<std::int32_t>>& key_of_node,
    const Column<std::int64_t>& costs_ps, const Column<std::int64_t>& acknowledgements_ps) {
  std::vector<TimePs> costs = to_vector(costs_ps), acknowledgements = to_vector(acknowledgements_ps);
  if (costs.size() != acknowledgements.size()) throw nb::value_error("every key needs both costs");
  for (const std::vector<TimePs>& all : {costs, acknowledgements}) {
    for (const TimePs cost : all) {
      if (cost < 0) throw nb::value_error("a cost is negative");
    }
  }
  if (key_of_node.size() != plan.ranks.size()) throw nb::value_error("every rank needs keys");
  std::vector<std::vector<std::int32_t>> keys;
  for (std::size_t rank = 0; rank < key_of_node.size(); ++rank) {
    const std::vector<std::uint8_t>& kinds = plan.ranks[rank]->kind;
    keys.push_back(to_vector(key_of_node[rank]));
    if (keys.back().size() != kinds.size()) throw nb::value_error("every node needs a key, or -1");
    for (std::size_t row = 0; row < kinds.size(); ++row) {
      const auto kind = static_cast<NodeKind>(kinds[row]);
      const bool has_cost = kind == NodeKind::kSend || kind == NodeKind::kColl;
      if (has_cost && (keys.back()[row] < 0 || static_cast<std::size_t>(keys.back()[row]) >= costs.size()))
        throw nb::value_error("a collective or a send has no cost");
    }
  }
  return std::make_unique<AnalyticSimulator>(plan.shared, plans_of(plan), std::move(keys), std::move(costs),
                                             std::move(acknowledgements));
}

template <class Simulator>
nb::dict records(const Simulator& simulator, std::size_t rank) {
  return records_of(simulator.walkers().at(rank));
}

}  // namespace

void register_twin_levels(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<FlowSimulator>(m, "FlowSimulator", "The twin at level flow; times in ps.")
      .def(nb::new_(&make_flow_simulator), "network"_a, "plan"_a, "host_of_rank"_a, "seed"_a,
           "sharing"_a = "max-min", "mtu_bytes"_a = 4096, "window_packets"_a = 0, "queue_pairs"_a = 1,
           "split"_a = false, "circuit_ports"_a = 0, "circuit_setup_ps"_a = 0, "circuit_rate_bps"_a = 0,
           nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>())
      .def("start", &FlowSimulator::start)
      .def("run", &FlowSimulator::run, "events"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Handle about so many events; False when none are left or something failed.")
      .def("records", &records<FlowSimulator>, "rank"_a)
      .def("links",
           [](const FlowSimulator& simulator) {
             std::vector<std::int64_t> packets, size_bytes;
             for (const FlowSimulator::LinkUse& use : simulator.links()) {
               packets.push_back(std::llround(use.packets));
               size_bytes.push_back(std::llround(use.bytes));
             }
             nb::dict out;
             out["packets"] = to_numpy(std::move(packets));
             out["size_bytes"] = to_numpy(std::move(size_bytes));
             return out;
           })
      .def("problems", &FlowSimulator::problems)
      .def_prop_ro("done", &FlowSimulator::done)
      .def_prop_ro("now_ps", &FlowSimulator::now)
      .def_prop_ro("events", &FlowSimulator::events)
      .def_prop_ro("share_done", &FlowSimulator::share_done,
                   "How many of the packets of the plan's messages have flowed, 0 to 1.")
      .def_prop_ro("circuits_set_up", &FlowSimulator::circuits_set_up)
      .def_prop_ro("data_packets", &FlowSimulator::data_packets);
  nb::class_<AnalyticSimulator>(m, "AnalyticSimulator", "The twin at level analytic; times in ps.")
      .def(nb::new_(&make_analytic_simulator), "plan"_a, "key_of_node"_a, "costs_ps"_a,
           "acknowledgements_ps"_a, nb::keep_alive<0, 2>())
      .def("start", &AnalyticSimulator::start)
      .def("run", &AnalyticSimulator::run, "events"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Handle about so many events; False when none are left or something failed.")
      .def("record", &AnalyticSimulator::record, "The messages of collectives, for records(); once.")
      .def("records", &records<AnalyticSimulator>, "rank"_a)
      .def("problems", &AnalyticSimulator::problems)
      .def_prop_ro("done", &AnalyticSimulator::done)
      .def_prop_ro("now_ps", &AnalyticSimulator::now)
      .def_prop_ro("events", &AnalyticSimulator::events);
}

}  // namespace genie::bindings
