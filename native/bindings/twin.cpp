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
#include "twin/episodes/episodes.hpp"
#include "twin/estimate/steady_flows.hpp"
#include "twin/packet_level/simulator.hpp"
#include "twin/skip/recurrence.hpp"

namespace genie::bindings {
namespace {

using twin::Episodes;
using twin::Network;
using twin::Recurrence;
using twin::Simulator;
using twin::SteadyFlows;

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
                                        std::uint32_t queue_pairs, bool split, std::uint64_t memory_bytes,
                                        std::uint64_t checkpoint_packets, std::uint64_t free_packets) {
  if (checkpoint_packets == 0) throw nb::value_error("checkpoint_packets is 1 or more");
  return std::make_unique<Episodes>(
      network, config, plan.shared, plans_of(plan), hosts_of(network, plan, host_of_rank),
      roce::SpreadConfig{queue_pairs, split}, memory_bytes, checkpoint_packets, free_packets);
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

}  // namespace

void register_twin(nb::module_& m) {
  using namespace nb::literals;
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
           "Links that are down on the paths of queue pairs that gave up.")
      .def_prop_ro("done", &Simulator::done)
      .def_prop_ro("now_ps", &Simulator::now)
      .def_prop_ro("threads", &Simulator::threads)
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
           "checkpoint_packets"_a = Episodes::kCheckpointPackets, "free_packets"_a = Episodes::kFreePackets,
           nb::keep_alive<0, 2>(), nb::keep_alive<0, 4>())
      .def("attach", &Episodes::attach, "simulator"_a, nb::keep_alive<2, 1>(),
           "Play apart what a simulator's ranks begin; call it before its start.")
      .def("begins_again", &Episodes::begins_again, "simulator"_a, "skipped_packets"_a,
           "After a run: whether the job must begin again, in a new simulator. `skipped_packets`: data "
           "packets that recurrence has skipped in this one.")
      .def(
          "stop_when",
          [](Episodes& episodes, nb::callable is_asked) {
            episodes.stop_when([is_asked = std::move(is_asked)] {
              const nb::gil_scoped_acquire gil;
              return nb::cast<bool>(is_asked());
            });
          },
          "is_asked"_a,
          "Call is_asked() now and then during plays that take long. If it returns true, the run ends soon. "
          "If it raises, so does the run.")
      .def_prop_ro("is_interrupted", &Episodes::is_interrupted, "Whether is_asked() has returned true.")
      .def("stop", &Episodes::stop,
           "After a run that was stopped: give the simulator the results of what is over.")
      .def_prop_ro("unusable", &Episodes::unusable,
                   "The reason why nothing is played apart; an empty text where something is.")
      .def_prop_ro("report", [](const Episodes& episodes) {
        const Episodes::Report report = episodes.report();
        nb::dict out;
        out["distinct"] = report.distinct;
        out["replayed"] = report.plays.replayed;
        out["packets"] = report.plays.replaced;
        out["played"] = report.plays.played;
        out["continued"] = report.plays.continued;
        out["resumed"] = report.plays.resumed;
        out["joined"] = report.plays.joined;
        out["beginnings"] = report.beginnings;
        out["needs_one_thread"] = report.needs_one_thread;
        out["is_too_costly"] = report.is_too_costly;
        out["reasons"] = report.reasons;
        return out;
      });
}

}  // namespace genie::bindings
