// genie_core.Engine: softroce, the live driver of one rank.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <sched.h>
#include <sys/prctl.h>

#include <csignal>
#include <memory>
#include <span>
#include <stdexcept>

#include "bindings/arrays.hpp"
#include "bindings/nic.hpp"
#include "bindings/plan.hpp"
#include "live/engine.hpp"
#include "live/verify_pattern.hpp"

namespace genie::bindings {
namespace {

using live::Engine;
using live::EngineConfig;
using live::Peer;
using live::RunState;

const char* name_of(RunState state) {
  switch (state) {
    case RunState::kDone:
      return "done";
    case RunState::kTimeout:
      return "timeout";
    default:
      return "failed";
  }
}

void connect(Engine& engine, const std::vector<Peer>& peers) {
  const std::string error = engine.connect(peers);
  if (!error.empty()) throw std::runtime_error(error);
}

nb::dict engine_counters(const Engine& engine) {
  nb::dict out = nic_counters_of(engine.nic());
  out["verified_bytes"] = engine.counters().verified_bytes;
  out["wrong_bytes"] = engine.counters().wrong_bytes;
  return out;
}

nb::list trace_of(const Engine& engine) {
  nb::list out;
  for (const live::SoftNic::TraceEntry& entry : engine.nic().trace()) {
    out.append(nb::make_tuple(entry.time, engine.rank_of(entry.queue_pair),
                              static_cast<int>(entry.packet.opcode), entry.packet.psn,
                              entry.packet.payload_bytes, entry.packet.syndrome, entry.lost));
  }
  return out;
}

// Asks for a real-time class and exact timers; returns the scheduling class that it got.
std::string claim_real_time(int priority) {
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const sched_param parameters{.sched_priority = priority};
  if (priority > 0) sched_setscheduler(0, SCHED_FIFO, &parameters);
  switch (sched_getscheduler(0)) {
    case SCHED_FIFO:
      return "SCHED_FIFO";
    case SCHED_RR:
      return "SCHED_RR";
    default:
      return "SCHED_OTHER";
  }
}

}  // namespace

void register_live(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<EngineConfig>(m, "EngineConfig", "One rank's soft NIC and how it plays; times in ps.")
      .def(nb::init<>())
      .def_rw("rank", &EngineConfig::rank)
      .def_rw("message_max_bytes", &EngineConfig::message_max_bytes)
      .def_rw("spin", &EngineConfig::spin)
      .def_rw("verify", &EngineConfig::verify)
      .def_rw("stall_limit_ps", &EngineConfig::stall_limit)
      .def_prop_rw(
          "queue_pairs", [](const EngineConfig& c) { return c.spread.queue_pairs; },
          [](EngineConfig& c, std::uint32_t count) { c.spread.queue_pairs = count; }, "Of each connection.")
      .def_prop_rw(
          "split", [](const EngineConfig& c) { return c.spread.split; },
          [](EngineConfig& c, bool split) { c.spread.split = split; },
          "Whether each message is split over them, or goes whole to the next.")
      .def_rw("queue_pair", &EngineConfig::queue_pair, "How each of them works.")
      .def_rw("nic", &EngineConfig::nic);

  nb::class_<Peer>(m, "Peer", "A rank as the others reach it; one entry a queue pair of the connection.")
      .def(
          "__init__",
          [](Peer* self, const std::string& address, std::vector<std::uint32_t> qpns,
             std::vector<std::uint32_t> first_psns, std::vector<std::uint32_t> our_first_psns,
             std::vector<std::uint16_t> source_ports, bool exact_ports, std::uint32_t rkey,
             std::uint64_t memory_address, bool foreign, std::vector<std::uint64_t> places,
             std::uint64_t slot_bytes, std::uint32_t slots, std::uint32_t window_packets) {
            new (self) Peer{address_of(address),
                            std::move(qpns),
                            std::move(first_psns),
                            std::move(our_first_psns),
                            std::move(source_ports),
                            window_packets,
                            exact_ports,
                            rkey,
                            memory_address,
                            foreign,
                            std::move(places),
                            slot_bytes,
                            slots};
            if (self->first_psns.size() != self->qpns.size() ||
                self->our_first_psns.size() != self->qpns.size() ||
                (self->slots && self->places.size() != self->qpns.size()))
              throw std::invalid_argument("a peer's lists differ in length");
          },
          nb::kw_only(), "address"_a, "qpns"_a, "first_psns"_a, "our_first_psns"_a, "source_ports"_a,
          "exact_ports"_a = false, "rkey"_a = 0, "memory_address"_a = 0, "foreign"_a = false,
          "places"_a = std::vector<std::uint64_t>{}, "slot_bytes"_a = 0, "slots"_a = 0,
          "window_packets"_a = 0);

  nb::class_<Engine>(m, "Engine",
                     "softroce: walker and queue pairs of one rank on UDP sockets and the wall clock.")
      .def(nb::init<const EngineConfig&>(), "config"_a)
      .def(
          "open",
          [](Engine& engine) {
            const std::string error = engine.open();
            if (!error.empty()) throw std::runtime_error(error);
          },
          "Bind the receiving socket. RuntimeError says what is in the way.")
      .def(
          "open_with",
          [](Engine& engine, int descriptor) {
            const std::string error = engine.open_with(descriptor);
            if (!error.empty()) throw std::runtime_error(error);
          },
          "descriptor"_a, "Receive from a bound socket, which it then owns.")
      .def(
          "qpn", [](const Engine& engine, std::uint32_t id) { return engine.nic().qpn(id); }, "queue_pair"_a,
          "The number that peers send to: queue pair k of the connection to rank r is the k * ranks + r-th.")
      .def("connect", &connect, "peers"_a, "Connect to all ranks, in rank order; the own entry is ignored.")
      .def(
          "set_plan",
          [](Engine& engine, const Plan& plan) { engine.set_plan(plan.shared, *plan.ranks.at(0)); }, "plan"_a,
          nb::keep_alive<1, 2>())
      .def(
          "begin", [](Engine& engine, TimePs origin) { return name_of(engine.begin(origin)); }, "origin"_a,
          nb::call_guard<nb::gil_scoped_release>(), "Wait for the plan's time 0 and start it.")
      .def(
          "run", [](Engine& engine, TimePs deadline) { return name_of(engine.run(deadline)); }, "deadline"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "Play on until `deadline`: 'done', 'timeout' or 'failed'.")
      .def(
          "serve", [](Engine& engine, TimePs deadline) { return name_of(engine.serve(deadline)); },
          "deadline"_a, nb::call_guard<nb::gil_scoped_release>(), "Answer peers until `deadline`.")
      .def(
          "add_rate_fault",
          [](Engine& engine, TimePs from, TimePs until, double factor) {
            engine.nic().add_rate_fault({from, until, factor});
          },
          "from_ps"_a, "until_ps"_a, "factor"_a)
      .def("clear_rate_faults", [](Engine& engine) { engine.nic().clear_rate_faults(); })
      .def("delay_path", &Engine::delay_path, "peer"_a, "delay_ps"_a)
      .def(
          "lose",
          [](Engine& engine, std::int32_t peer, std::uint64_t every, std::vector<std::uint64_t> numbers) {
            engine.loss(peer).every(every);
            engine.loss(peer).script(std::move(numbers));
          },
          "peer"_a, "every"_a = 0, "numbers"_a = std::vector<std::uint64_t>{},
          "Lose data packets to a peer: one of every n, and those with these numbers, from 0.")
      .def(
          "keep_trace", [](Engine& engine, bool keep) { engine.nic().keep_trace(keep); }, "keep"_a)
      .def("trace", &trace_of)
      .def("records", [](const Engine& engine) { return records_of(*engine.walker()); })
      .def("counters", &engine_counters)
      .def("source_ports", &Engine::source_ports, "peer"_a, "UDP source ports of the queue pairs to a rank.")
      .def("certain_ports", &Engine::certain_ports, "peer"_a,
           "The same, but 0 where another may take its place when the socket is opened.")
      .def("expect_ports", &Engine::expect_ports, "peer"_a, "ports"_a,
           "Refuse what a rank's address sends to these queue pairs from other UDP ports; 0: nothing.")
      .def(
          "refused_senders", [](const Engine& engine) { return refused_senders_of(engine.nic()); },
          nb::sig("def refused_senders(self) -> list[tuple[str, str, int, int]]"),
          "Where packets came from that were refused: counter, address, UDP port of the first, packets.")
      .def("waiting", &Engine::waiting)
      .def_prop_ro("error", &Engine::error)
      .def_prop_ro(
          "failure",
          [](const Engine& engine) {
            constexpr const char* kNames[] = {"", "stalled", "refused", "ended", "other"};
            return kNames[static_cast<std::size_t>(engine.failure())];
          },
          "Why it failed: stalled, refused by a peer, ended by itself, or other; empty while it has not "
          "failed.")
      .def_prop_ro("now_ps", &Engine::now)
      .def_prop_ro("epoch_ns", &Engine::epoch_ns);

  m.attr("PATTERN_BYTES") = live::kPatternBytes;
  m.attr("PHASE_BYTES") = live::kPhaseBytes;
  m.def(
      "pattern",
      [](std::size_t size_bytes) {
        std::vector<std::uint8_t> source(size_bytes);
        live::fill_pattern(std::as_writable_bytes(std::span(source)));
        return to_numpy(std::move(source));
      },
      "size_bytes"_a, "The first bytes that an engine sends from where receivers check them.");
  m.def("pattern_phase", &live::pattern_phase, "source"_a, "target"_a, "queue_pair"_a, "message"_a,
        "Where in them a message begins, a multiple of PHASE_BYTES.");
  m.def("claim_real_time", &claim_real_time, "priority"_a,
        "Ask for SCHED_FIFO at this priority (0: do not) and a timer slack of 1 ns; returns the class in "
        "force.");
}

}  // namespace genie::bindings
