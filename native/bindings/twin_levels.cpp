// genie_core.FlowSimulator and AnalyticSimulator: the twin's levels without packets.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "bindings/twin.hpp"
#include "twin/fabric/even_shares.hpp"
#include "twin/levels/analytic_simulator.hpp"
#include "twin/levels/flow_simulator.hpp"

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
    const Plan& plan, const std::vector<Column<std::int32_t>>& key_of_binding,
    const Column<std::int64_t>& costs_ps, const Column<std::int64_t>& acknowledgements_ps,
    const Column<bool>& keeps_records) {
  std::vector<TimePs> costs = to_vector(costs_ps), acknowledgements = to_vector(acknowledgements_ps);
  if (costs.size() != acknowledgements.size()) throw nb::value_error("every key needs both costs");
  for (const std::vector<TimePs>& all : {costs, acknowledgements}) {
    for (const TimePs cost : all) {
      if (cost < 0) throw nb::value_error("a cost is negative");
    }
  }
  if (key_of_binding.size() != plan.ranks.size() || keeps_records.size() != plan.ranks.size())
    throw nb::value_error("every rank needs keys, and to be recorded or not");
  std::vector<std::vector<std::int32_t>> keys;
  for (std::size_t rank = 0; rank < key_of_binding.size(); ++rank) {
    const NodeTable& table = *plan.ranks[rank]->table;
    keys.push_back(to_vector(key_of_binding[rank]));
    if (keys.back().size() != table.of_collective.size())
      throw nb::value_error("every binding needs a key, or -1");
    for (std::size_t row = 0; row < table.kind.size(); ++row) {
      const auto kind = static_cast<NodeKind>(table.kind[row]);
      if (kind != NodeKind::kSend && kind != NodeKind::kColl) continue;
      const std::int32_t key = keys.back()[static_cast<std::size_t>(table.binding[row])];
      if (key < 0 || static_cast<std::size_t>(key) >= costs.size())
        throw nb::value_error("a collective or a send has no cost");
    }
  }
  return std::make_unique<AnalyticSimulator>(plan.shared, plans_of(plan), std::move(keys), std::move(costs),
                                             std::move(acknowledgements), to_vector(keeps_records));
}

// Keeps the arrays that a table of routes looks into.
class PythonEvenShares {
 public:
  PythonEvenShares(std::int32_t nodes, Column<std::int32_t> link_source, Column<std::int32_t> link_target,
                   Column<std::int64_t> rate_bps, Column<std::int64_t> delay_ps, const twin::Routes& routes,
                   Column<std::int64_t> own_rate_bps)
      : integers_{link_source, link_target},
        longs_{rate_bps, delay_ps, own_rate_bps},
        routes_(routes),
        shares_({.hosts = static_cast<std::int32_t>(routes_.group_of_host.size()),
                 .nodes = nodes,
                 .link_source = span_of(link_source),
                 .link_target = span_of(link_target),
                 .rate_bps = span_of(rate_bps),
                 .delay_ps = span_of(delay_ps),
                 .group_of_host = routes_.group_of_host,
                 .hops = routes_.hops,
                 .last_hop_start = routes_.last_hop_start,
                 .last_hops = routes_.last_hops,
                 .own_rate_bps = span_of(own_rate_bps)}) {
    hosts_ = routes_.group_of_host.size();
    if (own_rate_bps.size() != hosts_ || routes_.last_hop_start.size() != hosts_ + 1)
      throw nb::value_error("the columns of hosts differ in length");
    if (const std::string problem = routes_.hops.check(static_cast<std::size_t>(nodes), link_source.size());
        !problem.empty())
      throw std::invalid_argument(problem);
  }

  // (by transfer: delays, bytes' times of hops), the most loaded link's, the most loaded connection's
  nb::tuple load(const Column<std::int32_t>& source, const Column<std::int32_t>& target,
                 const Column<double>& part) {
    if (target.size() != source.size() || part.size() != source.size())
      throw nb::value_error("the columns of transfers differ in length");
    std::vector<twin::Transfer> transfers;
    for (std::size_t at = 0; at < source.size(); ++at) {
      for (const std::int32_t host : {source(at), target(at)}) {
        if (host < 0 || static_cast<std::size_t>(host) >= hosts_) throw nb::value_error("no such host");
      }
      transfers.push_back({source(at), target(at), part(at)});
    }
    twin::RouteLoad load = shares_.load(transfers);
    return nb::make_tuple(to_numpy(std::move(load.delay_ps)), to_numpy(std::move(load.hop_byte_ps)),
                          load.byte_ps, load.route_byte_ps);
  }

 private:
  template <class T>
  static std::span<const T> span_of(const Column<T>& column) {
    return {column.data(), column.size()};
  }
  std::vector<Column<std::int32_t>> integers_;
  std::vector<Column<std::int64_t>> longs_;
  twin::Routes routes_;
  std::size_t hosts_ = 0;
  twin::EvenShares shares_;
};

template <class Simulator>
nb::dict records(const Simulator& simulator, std::size_t rank) {
  return records_of(simulator.walkers().at(rank));
}

}  // namespace

void register_twin_levels(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PythonEvenShares>(
      m, "EvenShares", "Loads of messages that share all of their shortest routes evenly; times in ps.")
      .def(nb::init<std::int32_t, Column<std::int32_t>, Column<std::int32_t>, Column<std::int64_t>,
                    Column<std::int64_t>, const twin::Routes&, Column<std::int64_t>>(),
           "nodes"_a, "link_source"_a, "link_target"_a, "rate_bps"_a, "delay_ps"_a, "routes"_a,
           "own_rate_bps"_a)
      .def("load", &PythonEvenShares::load, "source"_a, "target"_a, "part"_a,
           "Transfers between hosts: delays and times of a byte on all hops but the slowest, by transfer; "
           "times of a "
           "counted byte on the most loaded link, and on the slowest link of the most loaded route.");
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
      .def(nb::new_(&make_analytic_simulator), "plan"_a, "key_of_binding"_a, "costs_ps"_a,
           "acknowledgements_ps"_a, "keeps_records"_a, nb::keep_alive<0, 2>())
      .def("start", &AnalyticSimulator::start)
      .def("run", &AnalyticSimulator::run, "events"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Handle about so many events; False when none are left or something failed.")
      .def("records", &records<AnalyticSimulator>, "rank"_a)
      .def("ends_ps", &ends<AnalyticSimulator>, "By rank, when its last node ended.")
      .def("problems", &AnalyticSimulator::problems)
      .def_prop_ro("done", &AnalyticSimulator::done)
      .def_prop_ro("now_ps", &AnalyticSimulator::now)
      .def_prop_ro("events", &AnalyticSimulator::events);
}

}  // namespace genie::bindings
