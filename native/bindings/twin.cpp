// genie_core.Simulator: the packet level of the twin.
#include "bindings/twin.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/plan.hpp"
#include "bindings/roce_config.hpp"
#include "twin/packet_level/simulator.hpp"
#include "twin/skip/episodes.hpp"
#include "twin/skip/recurrence.hpp"
#include "twin/skip/steady_flows.hpp"

namespace genie::bindings {
namespace {

using twin::Episodes;
using twin::Network;
using twin::Recurrence;
using twin::Simulator;
using twin::SteadyFlows;

void checked(const Network& network) {
  const std::string problem = network.check();
  if (!problem.empty()) throw std::invalid_argument(problem);
}

twin::Routes routes_of(const Column<std::int32_t>& group_of_host, const twin::NextHops& hops,
                       const Column<std::int64_t>& last_hop_start, const Column<std::int32_t>& last_hops) {
  return {.group_of_host = to_vector(group_of_host),
          .hops = hops,
          .last_hop_start = to_vector(last_hop_start),
          .last_hops = to_vector(last_hops)};
}

std::unique_ptr<Network> make_network(
    std::int32_t hosts, std::int32_t nodes, std::uint32_t frame_overhead_bytes,
    const Column<std::int32_t>& source, const Column<std::int32_t>& target,
    const Column<std::int64_t>& rate_bps, const Column<std::int64_t>& delay_ps,
    const Column<std::int64_t>& buffer_bytes, const Column<std::int32_t>& group_of_host,
    const twin::NextHops& hops, const Column<std::int64_t>& last_hop_start,
    const Column<std::int32_t>& last_hops, const Column<std::int64_t>& packet_latency_ps,
    const Column<std::int64_t>& message_latency_ps) {
  auto network = std::make_unique<Network>();
  network->hosts = hosts;
  network->nodes = nodes;
  network->frame_overhead_bytes = frame_overhead_bytes;
  network->link_source = to_vector(source);
  network->link_target = to_vector(target);
  network->link_rate_bps = to_vector(rate_bps);
  network->link_delay_ps = to_vector(delay_ps);
  network->link_buffer_bytes = to_vector(buffer_bytes);
  network->routes.push_back(routes_of(group_of_host, hops, last_hop_start, last_hops));
  network->packet_latency_ps = to_vector(packet_latency_ps);
  network->message_latency_ps = to_vector(message_latency_ps);
  network->link_ecn.resize(network->link_source.size());
  network->link_headroom_bytes.resize(network->link_source.size());
  network->link_burst_bytes.resize(network->link_source.size());
  network->shared_bytes.resize(static_cast<std::size_t>(nodes));
  checked(*network);
  return network;
}

std::unique_ptr<Simulator> make_simulator(const Network& network, const roce::QueuePairConfig& config,
                                          const Plan& plan, const Column<std::int32_t>& host_of_rank,
                                          std::uint64_t seed, std::uint32_t queue_pairs, bool split,
                                          std::uint32_t threads,
                                          const std::optional<Column<bool>>& keeps_records) {
  const std::vector<bool> keeps =
      keeps_records ? std::vector<bool>(keeps_records->data(), keeps_records->data() + keeps_records->size())
                    : std::vector<bool>{};
  if (!keeps.empty() && keeps.size() != plan.ranks.size()) throw nb::value_error("one for each rank");
  if (threads == 0) throw std::invalid_argument("the twin needs a thread");
  if (queue_pairs == 0) throw std::invalid_argument("a connection needs a queue pair");
  return std::make_unique<Simulator>(network, config, plan.shared, plans_of(plan),
                                     hosts_of(network, plan, host_of_rank), seed,
                                     roce::SpreadConfig{queue_pairs, split}, threads, keeps);
}

std::unique_ptr<Episodes> make_episodes(const Network& network, const roce::QueuePairConfig& config,
                                        const Plan& plan, const Column<std::int32_t>& host_of_rank,
                                        std::uint32_t queue_pairs, bool split, std::uint64_t memory_bytes) {
  return std::make_unique<Episodes>(network, config, plan.shared, plans_of(plan),
                                    hosts_of(network, plan, host_of_rank),
                                    roce::SpreadConfig{queue_pairs, split}, memory_bytes);
}

// The size of a job before it is played. `pairs`: of ranks that exchange messages, each in both directions.
nb::dict size_of(const Plan& plan, std::uint32_t mtu_bytes) {
  std::uint64_t pairs = 0, nodes = 0;
  for (const auto& rank : plan.ranks) {
    pairs += peers_of(plan.shared, *rank).size();
    nodes += static_cast<std::uint64_t>(rank->table->nodes());
  }
  nb::dict out;
  out["packets"] = twin::PlannedPackets(plan.shared, plans_of(plan), mtu_bytes).count();
  out["pairs"] = pairs;
  out["nodes"] = nodes;
  out["pair_bytes"] = sizeof(twin::HostQueuePair);
  return out;
}

nb::list trace_of(const Simulator& simulator) {
  nb::list out;
  for (const twin::PacketTrace& entry : simulator.trace()) {
    out.append(nb::make_tuple(entry.time, entry.source, entry.target, static_cast<int>(entry.packet.opcode),
                              entry.packet.psn, entry.packet.payload_bytes, entry.packet.syndrome,
                              entry.lost));
  }
  return out;
}

nb::dict links_of(const Simulator& simulator) {
  using twin::LinkCounters;
  std::vector<LinkCounters> links;
  for (std::uint32_t link = 0; link < simulator.links().links(); ++link)
    links.push_back(simulator.links().totals(link));
  nb::dict out;
  out["packets"] = column_of<std::int64_t>(links, &LinkCounters::packets);
  out["size_bytes"] = column_of<std::int64_t>(links, &LinkCounters::bytes);
  out["dropped"] = column_of<std::int64_t>(links, &LinkCounters::dropped);
  out["dropped_bytes"] = column_of<std::int64_t>(links, &LinkCounters::dropped_bytes);
  out["marked"] = column_of<std::int64_t>(links, &LinkCounters::marked);
  out["trimmed"] = column_of<std::int64_t>(links, &LinkCounters::trimmed);
  out["replays"] = column_of<std::int64_t>(links, &LinkCounters::replays);
  out["pauses"] = column_of<std::int64_t>(links, &LinkCounters::pauses);
  out["paused_ps"] = column_of<std::int64_t>(links, &LinkCounters::paused_ps);
  out["queue_bytes"] = column_of<std::int64_t>(links, &LinkCounters::queue_bytes);
  out["longest_queue_bytes"] = column_of<std::int64_t>(links, &LinkCounters::longest_queue_bytes);
  return out;
}

// Columns of both tables.
nb::dict take_samples(Simulator& simulator) {
  using twin::LinkSample;
  using twin::PairSample;
  const twin::Samples samples = simulator.take_samples();
  nb::dict links, pairs, out;
  links["time_ps"] = column_of<std::int64_t>(samples.links, &LinkSample::time);
  links["link"] = column_of<std::int32_t>(samples.links, &LinkSample::link);
  links["queue_bytes"] = column_of<std::int64_t>(samples.links, &LinkSample::queue_bytes);
  links["longest_queue_bytes"] = column_of<std::int64_t>(samples.links, &LinkSample::longest_queue_bytes);
  links["sent_bytes"] = column_of<std::int64_t>(samples.links, &LinkSample::sent_bytes);
  links["utilisation"] = column_of<double>(samples.links, &LinkSample::utilisation);
  links["marked"] = column_of<std::int64_t>(samples.links, &LinkSample::marked);
  links["pauses"] = column_of<std::int64_t>(samples.links, &LinkSample::pauses);
  links["paused_ns"] = column_of<std::int64_t>(samples.links, &LinkSample::paused_ns);
  links["dropped"] = column_of<std::int64_t>(samples.links, &LinkSample::dropped);
  pairs["time_ps"] = column_of<std::int64_t>(samples.pairs, &PairSample::time);
  pairs["source"] = column_of<std::int32_t>(samples.pairs, &PairSample::source);
  pairs["target"] = column_of<std::int32_t>(samples.pairs, &PairSample::target);
  pairs["rate_bps"] = column_of<std::int64_t>(samples.pairs, &PairSample::rate_bps);
  out["links"] = links;
  out["pairs"] = pairs;
  return out;
}

// Columns, by flow.
nb::dict flows_of(const SteadyFlows& steady, TimePs now) {
  using twin::Flow;
  const std::vector<Flow> flows = steady.flows(now);
  nb::dict out;
  out["queue_pair"] = column_of<std::int64_t>(flows, &Flow::queue_pair);
  out["rank"] = column_of<std::int64_t>(flows, &Flow::rank);
  out["peer"] = column_of<std::int64_t>(flows, &Flow::peer);
  out["messages"] = column_of<std::int64_t>(flows, &Flow::messages);
  out["unacked_psn"] = column_of<std::int64_t>(flows, &Flow::unacked_psn);
  out["end_psn"] = column_of<std::int64_t>(flows, &Flow::end_psn);
  out["packets"] = column_of<std::int64_t>(flows, &Flow::packets);
  out["left"] = column_of<std::int64_t>(flows, &Flow::left);
  out["allowed_bps"] = column_of<std::int64_t>(flows, &Flow::allowed_bps);
  return out;
}

void set_ecn(Network& network, const Column<std::int64_t>& minimum_bytes,
             const Column<std::int64_t>& maximum_bytes, const Column<double>& chance_at_maximum) {
  for (std::size_t link = 0; link < network.link_ecn.size(); ++link)
    network.link_ecn[link] = {minimum_bytes(link), maximum_bytes(link), chance_at_maximum(link)};
}

void set_buffers(Network& network, const Column<std::int64_t>& shared_bytes,
                 const Column<std::int64_t>& headroom_bytes, std::int64_t reserve_bytes,
                 std::int64_t resume_bytes, std::uint32_t alpha_numerator, std::uint32_t alpha_shift,
                 std::uint8_t lossless) {
  network.shared_bytes = to_vector(shared_bytes);
  network.link_headroom_bytes = to_vector(headroom_bytes);
  network.buffer = {reserve_bytes, resume_bytes, alpha_numerator, alpha_shift, lossless};
}

void set_errors(Network& network, const Column<double>& chance, const Column<std::int64_t>& round_trip_ps) {
  network.link_errors.resize(network.link_source.size());
  for (std::size_t link = 0; link < network.link_errors.size(); ++link)
    network.link_errors[link] = {chance(link), round_trip_ps(link)};
  checked(network);
}

void add_change(Network& network, std::int64_t time_ps, const std::string& kind, std::uint32_t number,
                std::int64_t rate_bps) {
  using Kind = twin::Change::Kind;
  const std::pair<const char*, Kind> kinds[] = {
      {"down", Kind::kDown}, {"up", Kind::kUp}, {"rate", Kind::kRate}, {"routes", Kind::kRoutes}};
  const auto* known = std::find_if(std::begin(kinds), std::end(kinds),
                                   [&](const auto& entry) { return kind == entry.first; });
  if (known == std::end(kinds)) throw nb::value_error("no such change");
  network.changes.push_back({time_ps, known->second, number, rate_bps});
  checked(network);
}

void set_source_ports(Network& network, const std::string& rule, std::uint16_t first, std::uint16_t last) {
  using Rule = twin::SourcePorts::Rule;
  if (first > last) throw nb::value_error("a range of ports is empty");
  network.source_ports = {rule == "nccl"   ? Rule::kQueuePairs
                          : rule == "pair" ? Rule::kRanks
                                           : Rule::kRange,
                          first, last};
}

}  // namespace

void register_twin(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Network>(m, "Network", "Hosts, directed links and routes, as the packet kernel sees them.")
      .def(nb::new_(&make_network), "hosts"_a, "nodes"_a, "frame_overhead_bytes"_a, "source"_a, "target"_a,
           "rate_bps"_a, "delay_ps"_a, "buffer_bytes"_a, "group_of_host"_a, "hops"_a, "last_hop_start"_a,
           "last_hops"_a, "packet_latency_ps"_a, "message_latency_ps"_a)
      .def("set_ecn", &set_ecn, "minimum_bytes"_a, "maximum_bytes"_a, "chance_at_maximum"_a,
           "Where links mark, each (links,).")
      .def("set_buffers", &set_buffers, "shared_bytes"_a, "headroom_bytes"_a, nb::kw_only(),
           "reserve_bytes"_a, "resume_bytes"_a, "alpha_numerator"_a, "alpha_shift"_a, "lossless"_a,
           "What switches share, (nodes,), and the headroom of their links, (links,).")
      .def(
          "set_frames",
          [](Network& n, std::uint32_t data_header_bytes, std::uint32_t control_bytes,
             std::uint32_t pause_bytes, std::int64_t unit_ps) {
            n.data_header_bytes = data_header_bytes;
            n.control_bytes = control_bytes;
            n.pause_bytes = pause_bytes;
            n.serialisation_unit = unit_ps;
          },
          "data_header_bytes"_a, "control_bytes"_a, "pause_bytes"_a, "serialisation_unit_ps"_a,
          "Frames as another model has them.")
      .def(
          "set_balance",
          [](Network& n, const std::string& mode, std::int64_t flowlet_gap_ps) {
            using twin::Balance;
            const std::pair<const char*, Balance> modes[] = {{"ecmp", Balance::kPath},
                                                             {"reps", Balance::kPath},
                                                             {"flowlet", Balance::kFlowlet},
                                                             {"spray", Balance::kSpray},
                                                             {"round-robin", Balance::kRoundRobin},
                                                             {"adaptive", Balance::kAdaptive}};
            const auto* known = std::find_if(std::begin(modes), std::end(modes),
                                             [&](const auto& entry) { return mode == entry.first; });
            if (known == std::end(modes)) throw nb::value_error("no such load balancing");
            n.balance = known->second;
            n.flowlet_gap = flowlet_gap_ps;
          },
          "mode"_a, "flowlet_gap_ps"_a, "How switches pick one of several equally short ways.")
      .def(
          "set_classes",
          [](Network& n, std::uint32_t data, std::uint32_t control, std::int64_t data_weight_bytes,
             std::int64_t control_weight_bytes) {
            n.data_class = data;
            n.control_class = control;
            if (data == control || data_weight_bytes == 0 || control_weight_bytes == 0) return;
            n.strict_classes = static_cast<std::uint8_t>(~(1u << data | 1u << control));
            n.weight_bytes[data] = data_weight_bytes;
            n.weight_bytes[control] = control_weight_bytes;
          },
          "data"_a, "control"_a, "data_weight_bytes"_a = 0, "control_weight_bytes"_a = 0,
          "Classes of packets, and what each may send in a turn; 0: the higher goes first.")
      .def(
          "set_bursts",
          [](Network& n, const Column<std::int64_t>& burst_bytes) {
            n.link_burst_bytes = to_vector(burst_bytes);
          },
          "burst_bytes"_a, "Token buckets of links, (links,); 0: none.")
      .def("set_errors", &set_errors, "chance"_a, "round_trip_ps"_a,
           "How many of their frames links corrupt, 0 to 0.5, and until when a port hears of it, each "
           "(links,); -1: never, and the frame is lost.")
      .def(
          "set_switches",
          [](Network& n, bool cut_through, bool trims) {
            n.cut_through = cut_through;
            n.trims = trims;
          },
          "cut_through"_a, "trims"_a)
      .def(
          "set_latencies",
          [](Network& n, std::int64_t doorbell_ps, std::int64_t notification_ps) {
            n.doorbell_latency = doorbell_ps;
            n.notification_latency = notification_ps;
          },
          "doorbell_ps"_a, "notification_ps"_a, "Of all hosts.")
      .def(
          "set_nics",
          [](Network& n, std::int64_t message_ps, std::int64_t packet_ps, std::int64_t pcie_rate_bps,
             std::int64_t prefetch_bytes, const Column<std::uint8_t>& on_link) {
            n.nic = {message_ps, packet_ps, pcie_rate_bps, prefetch_bytes, to_vector(on_link)};
          },
          "message_ps"_a, "packet_ps"_a, "pcie_rate_bps"_a, "prefetch_bytes"_a, "on_link"_a,
          "Costs of all hosts' NICs, and which links are their ports, (links,).")
      .def("set_source_ports", &set_source_ports, "rule"_a, "first"_a = 0xC000, "last"_a = 0xFFFF)
      .def(
          "pin",
          [](Network& n, std::int32_t from, std::int32_t to, std::vector<std::uint32_t> links,
             std::int32_t port) { n.pinned.push_back({from, to, std::move(links), port}); },
          "source"_a, "target"_a, "links"_a, "port"_a = -1,
          "A path that a pair of hosts keeps to; `port`: source port of a sprayed queue pair, from 0, whose "
          "packets keep to it.")
      .def(
          "add_routes",
          [](Network& n, const Column<std::int32_t>& group_of_host, const twin::NextHops& hops,
             const Column<std::int64_t>& last_hop_start, const Column<std::int32_t>& last_hops) {
            n.routes.push_back(routes_of(group_of_host, hops, last_hop_start, last_hops));
            checked(n);
            return n.routes.size() - 1;
          },
          "group_of_host"_a, "hops"_a, "last_hop_start"_a, "last_hops"_a,
          "Routes for add_change; gives their number.")
      .def("add_change", &add_change, "time_ps"_a, "kind"_a, "number"_a, "rate_bps"_a = 0,
           "A link is down, up or has another rate, or other routes hold, from a time on; in order of time.");
  m.def("size_of", &size_of, "plan"_a, "mtu_bytes"_a,
        "Counts of a plan: data packets with clear-to-sends, pairs of ranks that exchange messages (in both "
        "directions), nodes; the bytes of a queue pair.");
  nb::class_<Simulator>(m, "Simulator", "The twin at level packet; times in ps.")
      .def(nb::new_(&make_simulator), "network"_a, "config"_a, "plan"_a, "host_of_rank"_a, "seed"_a,
           "queue_pairs"_a = 1, "split"_a = false, "threads"_a = 1, "keeps_records"_a = nb::none(),
           nb::keep_alive<0, 2>(), nb::keep_alive<0, 4>(),
           "keeps_records: by rank, whether its nodes and messages are recorded; None: all.")
      .def(
          "lose",
          [](Simulator& simulator, std::int32_t source, std::int32_t target, std::uint64_t every,
             std::vector<std::uint64_t> numbers) {
            simulator.loss(source, target).every(every);
            simulator.loss(source, target).script(std::move(numbers));
          },
          "source"_a, "target"_a, "every"_a = 0, "numbers"_a = std::vector<std::uint64_t>{},
          "Lose data packets of one rank to another: one of every n, and those with these numbers, from 0. "
          "Before start().")
      .def("keep_trace", &Simulator::keep_trace, "keep"_a)
      .def("ends_ps", &ends<Simulator>, "By rank, when its last node ended.")
      .def("start", &Simulator::start)
      .def("run", &Simulator::run, "events"_a, "until_ps"_a = kNever,
           nb::call_guard<nb::gil_scoped_release>(),
           "Handle about so many of the events before a time; False when none of these are left, so that all "
           "have "
           "come to that time, or something failed.")
      .def_prop_ro("over", &Simulator::over, "No events are left at all, or something failed.")
      .def("sample", &Simulator::sample, "time_ps"_a,
           "Keep what links and pairs of ranks have come to at a time, to which run() has brought all; what "
           "is new "
           "since the last is an interval's. Gives the number of rows that wait to be taken.")
      .def_prop_ro("next_ps", &Simulator::next, "Between two calls of run() nothing happens before that.")
      .def("take_samples", &take_samples,
           "Hand over what sample() has kept: columns of `links`, without those in which nothing happened in "
           "an "
           "interval, and of `pairs` with messages that are not acknowledged (rate_bps -1: no limit).")
      .def_prop_ro("share_done", &Simulator::share_done,
                   "How many of the packets of the plan's messages have been sent, 0 to 1.")
      .def(
          "records", [](const Simulator& s, std::size_t rank) { return records_of(s.walkers().at(rank)); },
          "rank"_a)
      .def(
          "counters", [](const Simulator& s, std::int32_t rank) { return counters_of(s.totals(rank)); },
          "rank"_a)
      .def("links", &links_of)
      .def("trace", &trace_of)
      .def("problems", &Simulator::problems)
      .def(
          "deadlock", [](const Simulator& simulator) { return simulator.links().deadlock(); },
          "Links whose ports wait for each other to resume, in a circle; empty when there is none.")
      .def("dead_links", &Simulator::dead_links,
           "Links that are down on the ways of queue pairs that gave up.")
      .def_prop_ro("done", &Simulator::done)
      .def_prop_ro("now_ps", &Simulator::now)
      .def_prop_ro("events", &Simulator::events)
      .def_prop_ro("data_packets", &Simulator::data_packets)
      .def_prop_ro("dropped", &Simulator::dropped);
  nb::class_<Recurrence>(m, "Recurrence", "Skips what recurs in a simulation at level packet.")
      .def(nb::init<Simulator&>(), "simulator"_a, nb::keep_alive<1, 2>())
      .def("run", &Recurrence::run, "events"_a, "until_ps"_a = kNever,
           nb::call_guard<nb::gil_scoped_release>(),
           "Run the simulator as its own run() does; events that are skipped do not count.")
      .def("forget", &Recurrence::forget, "The simulator has been moved by other means.")
      .def_prop_ro("unfoldable", &Recurrence::unfoldable,
                   "The reason why nothing can be skipped; an empty text where something can.")
      .def_prop_ro("report", [](const Recurrence& recurrence) {
        const Recurrence::Report& report = recurrence.report();
        nb::dict out;
        out["jumps"] = report.jumps;
        out["periods"] = report.periods;
        out["packets"] = report.packets;
        out["time_ps"] = report.time;
        out["snapshots"] = report.snapshots;
        out["words"] = report.words;
        return out;
      });
  nb::class_<SteadyFlows>(m, "SteadyFlows",
                          "Flows of a simulation at level packet, and its movement by an estimate.")
      .def(nb::init<Simulator&>(), "simulator"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("unusable", &SteadyFlows::unusable,
                   "The reason why the simulation cannot be moved; an empty text where it can.")
      .def("flows", &flows_of, "now_ps"_a,
           "Queue pairs with messages that are not over: columns, each (flows,), of the first of these. "
           "`packets`, `left`: in it, and to be sent for the first time; allowed_bps: -1 without a limit.")
      .def("classes", &SteadyFlows::classes, "queue_pairs"_a,
           "A number for each of some queue pairs, equal where paths and what shares them are alike.")
      .def(
          "count", &SteadyFlows::count, "now_ps"_a, "since_ps"_a,
          "Take down all counters, and forget those from before since_ps. Estimates of their growth are from "
          "the oldest on.")
      .def("forget_counts", &SteadyFlows::forget_counts)
      .def_prop_ro("next_change_ps", &SteadyFlows::next_change, "Of the network.")
      .def_prop_ro("horizon_ps", &SteadyFlows::horizon, "The first event that no estimate is to pass.")
      .def("advance", &SteadyFlows::advance, "now_ps"_a, "by_ps"_a, "queue_pairs"_a, "packets"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Move the simulation, all of which has come to `now_ps`: each queue pair sends so many packets of "
           "its first message meanwhile. False: the state cannot be moved now, and nothing has changed.");
  nb::class_<Episodes>(m, "Episodes", "Collectives and messages of a job that are played once for all alike.")
      .def(nb::new_(&make_episodes), "network"_a, "config"_a, "plan"_a, "host_of_rank"_a, nb::kw_only(),
           "queue_pairs"_a = 1, "split"_a = false, "memory_bytes"_a = Episodes::kMemoryBytes,
           nb::keep_alive<0, 2>(), nb::keep_alive<0, 4>())
      .def("attach", &Episodes::attach, "simulator"_a, nb::keep_alive<2, 1>(),
           "Play apart what a simulator's ranks begin; call it before its start.")
      .def("begins_again", &Episodes::begins_again, "simulator"_a,
           "After a run: whether the job must begin again, in a new simulator.")
      .def("stop", &Episodes::stop,
           "After a run that was stopped: give the simulator the results of what is over.")
      .def_prop_ro("unusable", &Episodes::unusable,
                   "The reason why nothing is played apart; an empty text where something is.")
      .def_prop_ro("report", [](const Episodes& episodes) {
        const Episodes::Report& report = episodes.report();
        nb::dict out;
        out["distinct"] = report.distinct;
        out["replayed"] = report.replayed;
        out["packets"] = report.packets;
        out["played"] = report.played;
        out["beginnings"] = report.beginnings;
        out["reasons"] = report.reasons;
        return out;
      });
}

}  // namespace genie::bindings
