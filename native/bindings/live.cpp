// genie._core.Engine: softroce, the live driver of one rank.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <sched.h>
#include <sys/prctl.h>

#include <csignal>
#include <memory>
#include <stdexcept>

#include "bindings/arrays.hpp"
#include "bindings/plan.hpp"
#include "bindings/roce_config.hpp"
#include "live/engine.hpp"

namespace genie::bindings {
namespace {

using live::Engine;
using live::EngineConfig;
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

// Peers as columns: address (host integer), local rank, memory key and first PSN of what each sends to us.
void connect(Engine& engine, const Column<std::uint32_t>& ipv4, const Column<std::int32_t>& local_rank,
             const Column<std::uint32_t>& rkey, const Column<std::uint32_t>& their_first_psn,
             const Column<std::uint32_t>& our_first_psn) {
  if (local_rank.size() != ipv4.size() || rkey.size() != ipv4.size() ||
      their_first_psn.size() != ipv4.size() || our_first_psn.size() != ipv4.size())
    throw std::invalid_argument("the peers' columns differ in length");
  std::vector<live::PeerAddress> peers;
  for (std::size_t at = 0; at < ipv4.size(); ++at)
    peers.push_back({ipv4.data()[at], local_rank.data()[at], rkey.data()[at], their_first_psn.data()[at]});
  const std::string error = engine.connect(peers, to_vector(our_first_psn));
  if (!error.empty()) throw std::runtime_error(error);
}

nb::dict engine_counters(const Engine& engine) {
  const live::EngineCounters& counters = engine.counters();
  nb::dict out = counters_of(engine.totals());
  out["datagrams_sent"] = counters.datagrams_sent;
  out["datagrams_received"] = counters.datagrams_received;
  out["bytes_sent"] = counters.bytes_sent;
  out["bytes_received"] = counters.bytes_received;
  out["send_calls"] = counters.send_calls;
  out["receive_calls"] = counters.receive_calls;
  out["sleeps"] = counters.sleeps;
  out["bad_icrc"] = counters.bad_icrc;
  out["malformed"] = counters.malformed;
  out["strangers"] = counters.strangers;
  out["wrong_rank"] = counters.wrong_rank;
  out["injected_losses"] = counters.injected_losses;
  out["latest_departure_ns"] = counters.latest_departure / kPsPerNs;
  return out;
}

nb::list trace_of(const Engine& engine) {
  nb::list out;
  for (const Engine::TraceEntry& entry : engine.trace()) {
    out.append(nb::make_tuple(entry.time, entry.target, static_cast<int>(entry.packet.opcode),
                              entry.packet.psn, entry.packet.payload_bytes, entry.packet.syndrome,
                              entry.lost));
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
  nb::class_<EngineConfig>(m, "EngineConfig", "One rank's soft NIC; times in ps, addresses as host integers.")
      .def(nb::init<>())
      .def_rw("rank", &EngineConfig::rank)
      .def_rw("local_rank", &EngineConfig::local_rank)
      .def_rw("ipv4", &EngineConfig::ipv4)
      .def_rw("port", &EngineConfig::port)
      .def_rw("shared_port", &EngineConfig::shared_port)
      .def_rw("offload", &EngineConfig::offload)
      .def_rw("spin", &EngineConfig::spin)
      .def_rw("rate_bps", &EngineConfig::rate_bps)
      .def_rw("frame_overhead_bytes", &EngineConfig::frame_overhead_bytes)
      .def_rw("rkey", &EngineConfig::rkey)
      .def_rw("memory_bytes", &EngineConfig::memory_bytes)
      .def_rw("stall_limit_ps", &EngineConfig::stall_limit)
      .def_rw("queue_pair", &EngineConfig::queue_pair);

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
      .def("connect", &connect, "ipv4"_a, "local_rank"_a, "rkey"_a, "their_first_psn"_a, "our_first_psn"_a)
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
            engine.add_rate_fault({from, until, factor});
          },
          "from_ps"_a, "until_ps"_a, "factor"_a)
      .def("clear_rate_faults", &Engine::clear_rate_faults)
      .def("delay_path", &Engine::delay_path, "peer"_a, "delay_ps"_a)
      .def(
          "lose",
          [](Engine& engine, std::int32_t peer, std::uint64_t every, std::vector<std::uint64_t> numbers) {
            engine.loss(peer).every(every);
            engine.loss(peer).script(std::move(numbers));
          },
          "peer"_a, "every"_a = 0, "numbers"_a = std::vector<std::uint64_t>{},
          "Lose data packets to a peer: one of every n, and those with these numbers, from 0.")
      .def("keep_trace", &Engine::keep_trace, "keep"_a)
      .def("trace", &trace_of)
      .def("records", [](const Engine& engine) { return records_of(*engine.walker()); })
      .def("counters", &engine_counters)
      .def("source_port", &Engine::source_port, "peer"_a)
      .def("waiting", &Engine::waiting)
      .def_prop_ro("error", &Engine::error)
      .def_prop_ro("now_ps", &Engine::now)
      .def_prop_ro("epoch_ns", &Engine::epoch_ns);

  m.def("claim_real_time", &claim_real_time, "priority"_a,
        "Ask for SCHED_FIFO at this priority (0: do not) and a timer slack of 1 ns; returns the class in "
        "force.");
}

}  // namespace genie::bindings
