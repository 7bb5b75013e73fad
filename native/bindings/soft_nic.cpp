// genie_core.Endpoint: softroce's NIC for programs that post and poll.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/nic.hpp"
#include "bindings/roce_config.hpp"
#include "live/endpoint.hpp"

namespace genie::bindings {

using live::Endpoint;
using live::IpAddress;
using live::NicConfig;
using live::SoftNic;

live::IpAddress address_of(const std::string& text) {
  IpAddress address;
  if (!IpAddress::parse(text, address)) throw std::invalid_argument("'" + text + "' is no IP address");
  return address;
}

nb::dict nic_counters_of(const SoftNic& nic) {
  const live::NicCounters& counters = nic.counters();
  nb::dict out = counters_of(nic.totals());
  out["datagrams_sent"] = counters.datagrams_sent;
  out["datagrams_received"] = counters.datagrams_received;
  out["bytes_sent"] = counters.bytes_sent;
  out["bytes_received"] = counters.bytes_received;
  out["send_calls"] = counters.send_calls;
  out["receive_calls"] = counters.receive_calls;
  out["sleeps"] = counters.sleeps;
  out["bad_icrc"] = counters.bad_icrc;
  out["identifications_unseen"] = counters.identifications_unseen;
  out["malformed"] = counters.malformed;
  out["strangers"] = counters.strangers;
  out["wrong_port"] = counters.wrong_port;
  out["bad_pkey"] = counters.bad_pkey;
  out["wrong_rank"] = counters.wrong_rank;
  out["injected_losses"] = counters.injected_losses;
  out["offload_refused"] = counters.offload_refused;
  out["latest_departure_ns"] = counters.latest_departure / kPsPerNs;
  return out;
}

nb::list refused_senders_of(const SoftNic& nic) {
  nb::list out;
  for (const live::RefusedSenders::Sender& sender : nic.refused_senders().list())
    out.append(nb::make_tuple(sender.counter, sender.address.text(), sender.port, sender.packets));
  return out;
}

namespace {

void check(const std::string& problem) {
  if (!problem.empty()) throw std::runtime_error(problem);
}

// An index that exists, for what trusts it.
std::uint32_t known(const Endpoint& endpoint, std::uint32_t queue_pair) {
  if (queue_pair >= endpoint.nic().queue_pairs())
    throw std::invalid_argument("there is no queue pair " + std::to_string(queue_pair));
  return queue_pair;
}

nb::list events_of(const std::vector<live::Event>& events) {
  nb::list out;
  for (const live::Event& event : events) {
    const bool imm = event.is_receive && event.delivery.has_immediate;
    out.append(nb::make_tuple(event.is_receive ? "receive" : "sent", event.queue_pair, event.handle,
                              status_name(event.status), event.is_receive ? event.delivery.size_bytes : 0u,
                              imm ? nb::cast(event.delivery.immediate) : nb::none(), event.delivery.solicited,
                              event.retransmits));
  }
  return out;
}

void register_config(nb::module_& m) {
  nb::class_<NicConfig>(m, "NicConfig", "A soft NIC; times in ps, the rate in bits/s (0: no limit).")
      .def(nb::init<>())
      .def_prop_rw(
          "address", [](const NicConfig& c) { return c.address.text(); },
          [](NicConfig& c, const std::string& text) { c.address = address_of(text); }, "IPv4 or IPv6.")
      .def_rw("port", &NicConfig::port)
      .def_rw("local_rank", &NicConfig::local_rank)
      .def_rw("draw_numbers", &NicConfig::draw_numbers,
              "Whether queue pair numbers are secrets, or follow one another.")
      .def_rw("offload", &NicConfig::offload)
      .def_rw("see_headers", &NicConfig::see_headers, "Check ICRCs with the identifications that came.")
      .def_rw("rate_bps", &NicConfig::rate_bps)
      .def_rw("frame_overhead_bytes", &NicConfig::frame_overhead_bytes)
      .def_rw("traffic_class", &NicConfig::traffic_class)
      .def_rw("rkey", &NicConfig::rkey)
      .def_rw("memory_bytes", &NicConfig::memory_bytes)
      .def_rw("writable_bytes", &NicConfig::writable_bytes)
      .def_rw("readable_bytes", &NicConfig::readable_bytes);
}

}  // namespace

void register_soft_nic(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "open_receivers",
      [](const std::string& address, std::uint16_t port, std::uint32_t ranks) {
        std::string error;
        std::vector<live::Socket> sockets = live::open_receivers(address_of(address), port, ranks, error);
        check(error);
        std::vector<int> descriptors;
        for (live::Socket& socket : sockets) descriptors.push_back(socket.release());
        return descriptors;
      },
      "address"_a, "port"_a, "ranks"_a,
      "Descriptors of the receiving sockets of ranks that share an address, by local rank: whoever uses one "
      "must hold them all. RuntimeError says what is in the way.");
  register_config(m);
  nb::class_<Endpoint>(
      m, "Endpoint",
      "softroce for programs that post and poll. Addresses, local and remote, count from the start "
      "of its memory; times in ps. RuntimeError says what cannot be done.")
      .def(nb::init<const NicConfig&>(), "config"_a)
      .def(
          "open", [](Endpoint& e) { check(e.nic().open()); }, "Bind the receiving socket.")
      .def(
          "add_queue_pair",
          [](Endpoint& e, const roce::QueuePairConfig& config, bool receives_counted) {
            if (e.nic().queue_pairs() == 0x10000) throw std::length_error("a queue pair's index has 16 bits");
            if (config.mtu_bytes == 0) throw std::invalid_argument("a path MTU of 0");
            return e.nic().add_queue_pair(config, receives_counted);
          },
          "config"_a, "receives_counted"_a = true,
          "A queue pair's index; without counting there is always a receive, and SENDs are refused.")
      .def(
          "qpn", [](const Endpoint& e, std::uint32_t id) { return e.nic().qpn(known(e, id)); },
          "queue_pair"_a, "The number that the peer sends to.")
      .def(
          "connect",
          [](Endpoint& e, std::uint32_t id, const std::string& address, std::uint32_t qpn,
             std::uint32_t first_psn, std::uint32_t peer_first_psn, std::uint16_t source_port,
             bool exact_port, bool foreign) {
            check(e.nic().connect(known(e, id), first_psn,
                                  {.address = address_of(address),
                                   .qpn = qpn,
                                   .first_psn = peer_first_psn,
                                   .source_ports = {source_port},
                                   .exact_port = exact_port,
                                   .foreign = foreign}));
            check(e.nic().open_path(id));
          },
          "queue_pair"_a, nb::kw_only(), "address"_a, "qpn"_a, "first_psn"_a = 0, "peer_first_psn"_a = 0,
          "source_port"_a = 0xC000, "exact_port"_a = false, "foreign"_a = false,
          "`foreign`: a peer whose IP identifications are not softroce's.")
      .def(
          "post_send",
          [](Endpoint& e, std::uint32_t id, const std::string& verb, std::uint32_t size_bytes,
             std::uint64_t handle, std::uint64_t local_address, std::uint64_t remote_address,
             std::uint32_t rkey, std::uint32_t immediate, bool solicited) {
            check(e.nic().post(known(e, id), {verb_named(verb), solicited, handle, size_bytes, immediate,
                                              local_address, remote_address, rkey}));
          },
          "queue_pair"_a, "verb"_a, "size_bytes"_a, nb::kw_only(), "handle"_a = 0, "local_address"_a = 0,
          "remote_address"_a = 0, "rkey"_a = 0, "immediate"_a = 0, "solicited"_a = false,
          "'send', 'send_imm', 'write', 'write_imm' or 'read'.")
      .def(
          "post_receive",
          [](Endpoint& e, std::uint32_t id, std::uint64_t handle, std::uint64_t address,
             std::uint32_t size_bytes) {
            check(e.nic().post_receive(known(e, id), {handle, address, size_bytes}));
          },
          "queue_pair"_a, nb::kw_only(), "handle"_a = 0, "address"_a = 0, "size_bytes"_a = 0)
      .def(
          "poll",
          [](Endpoint& e, double timeout_s) {
            std::vector<live::Event> events;
            {
              nb::gil_scoped_release release;
              events = e.poll(e.nic().now() + static_cast<TimePs>(timeout_s * 1e12));
            }
            return events_of(events);
          },
          "timeout_s"_a = 0.0,
          nb::sig("def poll(self, timeout_s: float = 0.0) -> list[tuple[typing.Any, ...]]"),
          "Work until something completes: ('sent' or 'receive', queue pair, handle, status, size_bytes, "
          "immediate or None, solicited, packets sent again).")
      .def(
          "serve",
          [](Endpoint& e, double timeout_s, std::uint64_t messages) {
            const live::Arrivals arrivals =
                e.serve(e.nic().now() + static_cast<TimePs>(timeout_s * 1e12), messages);
            return std::vector<std::uint64_t>{arrivals.messages, arrivals.bytes,
                                              static_cast<std::uint64_t>(arrivals.last - arrivals.first)};
          },
          "timeout_s"_a, "messages"_a = ~std::uint64_t{0}, nb::call_guard<nb::gil_scoped_release>(),
          "Answer the peer until so many messages have arrived: messages, bytes, ps from the first packet to "
          "the last.")
      .def("forget_arrivals", &Endpoint::forget_arrivals)
      .def(
          "stream",
          [](Endpoint& e, const std::vector<std::uint32_t>& queue_pairs, const std::string& verb,
             std::uint32_t size_bytes, std::uint64_t messages, std::uint32_t depth,
             std::uint64_t remote_address, std::uint32_t rkey, double timeout_s) {
            for (const std::uint32_t id : queue_pairs) known(e, id);
            nb::gil_scoped_release release;
            return e.stream({.request = {.verb = verb_named(verb),
                                         .size_bytes = size_bytes,
                                         .remote_address = remote_address,
                                         .rkey = rkey},
                             .queue_pairs = queue_pairs,
                             .depth = depth,
                             .messages = messages},
                            e.nic().now() + static_cast<TimePs>(timeout_s * 1e12));
          },
          "queue_pairs"_a, "verb"_a, "size_bytes"_a, nb::kw_only(), "messages"_a, "depth"_a = 16,
          "remote_address"_a = 0, "rkey"_a = 0, "timeout_s"_a = 60.0,
          "Send as fast as it goes, `depth` messages under way on each: ps, or -1.")
      .def(
          "pingpong",
          [](Endpoint& e, std::uint32_t id, const std::string& verb, std::uint32_t size_bytes,
             std::uint64_t rounds, bool begins, bool spin, std::uint64_t remote_address, std::uint32_t rkey,
             double timeout_s) {
            known(e, id);
            nb::gil_scoped_release release;
            return e.pingpong(id,
                              {.verb = verb_named(verb),
                               .size_bytes = size_bytes,
                               .remote_address = remote_address,
                               .rkey = rkey},
                              rounds, begins, spin, e.nic().now() + static_cast<TimePs>(timeout_s * 1e12));
          },
          "queue_pair"_a, "verb"_a, "size_bytes"_a, nb::kw_only(), "rounds"_a, "begins"_a, "spin"_a = false,
          "remote_address"_a = 0, "rkey"_a = 0, "timeout_s"_a = 60.0,
          "Round-trip times, ps, at the end that begins.")
      .def("counters", [](const Endpoint& e) { return nic_counters_of(e.nic()); })
      .def(
          "refused_senders", [](const Endpoint& e) { return refused_senders_of(e.nic()); },
          nb::sig("def refused_senders(self) -> list[tuple[str, str, int, int]]"),
          "Where packets came from that were refused: counter, address, UDP port of the first, packets.")
      .def_prop_ro(
          "ended", [](const Endpoint& e) { return e.nic().ended() ? e.nic().ended()->text : std::string(); },
          "The first packet that ended a connection, in words; '' while none has.")
      .def(
          "open_path",
          [](Endpoint& e, std::uint32_t id) {
            check(e.nic().open_path(known(e, id)));
            return e.nic().source_ports(id).front();
          },
          "queue_pair"_a, "Open the socket that it sends from; its UDP port.")
      .def(
          "expect_port",
          [](Endpoint& e, std::uint32_t id, std::uint16_t port) {
            e.nic().expect_ports(known(e, id), {port});
          },
          "queue_pair"_a, "port"_a, "Refuse what its peer's address sends from another UDP port; 0: nothing.")
      .def_prop_ro(
          "memory",
          [](Endpoint& e) {
            const std::span<std::byte> memory = e.nic().memory();
            return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(
                reinterpret_cast<std::uint8_t*>(memory.data()), {memory.size()}, nb::find(e));
          },
          "What peers write to and read, and messages come from: bytes.")
      .def_prop_ro("error", &Endpoint::error);
}

}  // namespace genie::bindings
