// genie_core.QueuePair: one end of a reliable connection with a sink that writes down its effects. For tests
// and tools; the engine and the twin drive the same class natively.
#include <nanobind/stl/string.h>

#include <string>
#include <string_view>

#include "bindings/bindings.hpp"
#include "bindings/roce_config.hpp"
#include "roce/queue_pair.hpp"
#include "roce/spraying.hpp"

namespace genie::bindings {
namespace {

using roce::Packet;
using roce::QueuePair;
using roce::QueuePairConfig;

const char* name_of(roce::RequesterState state) {
  switch (state) {
    case roce::RequesterState::kIdle:
      return "idle";
    case roce::RequesterState::kActive:
      return "active";
    case roce::RequesterState::kRnrWait:
      return "RNR wait";
    default:
      return "error";
  }
}

// A queue pair, its own configuration, and the knobs and notes of a sink.
struct Endpoint {
  Endpoint(const QueuePairConfig& its_config, std::uint32_t first_psn, std::uint32_t peer_first_psn)
      : config(its_config), pair(config, 0, first_psn, peer_first_psn) {}
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void ready(QueuePair&) { effects.append(nb::make_tuple("ready")); }
  void arm_timer(QueuePair&, TimePs at) { effects.append(nb::make_tuple("arm", at)); }
  void sent(QueuePair&, std::uint64_t handle, roce::Status status, std::uint32_t retransmits) {
    effects.append(nb::make_tuple("sent", handle, status_name(status), retransmits));
  }
  bool may_write(QueuePair&, std::uint32_t key, std::uint64_t address, std::uint32_t size_bytes) {
    return key == rkey && address >= memory_start && address - memory_start <= memory_bytes &&
           size_bytes <= memory_bytes - (address - memory_start);
  }
  bool may_read(QueuePair& queue_pair, std::uint32_t key, std::uint64_t address, std::uint32_t size_bytes) {
    return may_write(queue_pair, key, address, size_bytes);
  }
  bool readable(QueuePair&) const { return memory_readable; }
  void refused(QueuePair&, const Packet&, roce::Refusal) {}  // the counters say it
  std::int64_t receives_left(QueuePair&) const { return credits ? receives : -1; }
  bool take_receive(QueuePair&) {
    if (receives == 0) return false;
    if (receives > 0) --receives;
    return true;
  }
  bool place(QueuePair&, const Packet& packet, std::uint64_t address) {
    if (packet.placed) return packet.remote_address == address;
    effects.append(nb::make_tuple("place", address, packet.payload_bytes, packet.psn));
    return true;
  }
  void fetched(QueuePair&, const Packet& packet, std::uint64_t address) {
    effects.append(nb::make_tuple("fetched", address, packet.payload_bytes, packet.psn));
  }
  void delivered(QueuePair&, const roce::Delivery& delivery) {
    const nb::object immediate = delivery.has_immediate ? nb::cast(delivery.immediate) : nb::none();
    effects.append(
        nb::make_tuple("delivered", delivery.size_bytes, immediate, delivery.is_send, delivery.first));
  }

  QueuePairConfig config;
  QueuePair pair;
  nb::list effects;
  std::int64_t receives = -1;  // posted; -1: as many as are asked for
  bool credits = false;        // ACKs say how many
  bool memory_readable = true;
  std::uint32_t rkey = 0;
  std::uint64_t memory_start = 0, memory_bytes = ~std::uint64_t{0};
};

// The packet that `take` fills in, or None.
template <class Take>
nb::object taken(Take take) {
  Packet packet;
  return take(packet) ? nb::cast(packet) : nb::none();
}

nb::list take_effects(Endpoint& endpoint) {
  nb::list out = endpoint.effects;
  endpoint.effects = nb::list();
  return out;
}

std::string text_of(const Packet& p) {
  std::string text = "Packet(opcode=" + std::to_string(static_cast<int>(p.opcode)) +
                     ", psn=" + std::to_string(p.psn) + ", payload_bytes=" + std::to_string(p.payload_bytes);
  if (p.ack_request) text += ", ack_request=True";
  if (p.solicited) text += ", solicited=True";
  if (has_aeth(p.opcode))
    text += ", syndrome=" + std::to_string(p.syndrome) + ", msn=" + std::to_string(p.msn);
  return text + ")";
}

void register_packet(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Packet>(m, "Packet", "What a queue pair knows of a packet: headers and length, no bytes.")
      .def(
          "__init__",
          [](Packet* self, int opcode, std::uint32_t psn, std::uint32_t payload_bytes, bool ack_request,
             std::uint8_t syndrome, std::uint32_t msn, std::uint32_t immediate, std::uint32_t rkey,
             std::uint32_t message_bytes, std::uint64_t remote_address, std::uint64_t local_address,
             bool solicited, bool congested, bool echo) {
            new (self) Packet{static_cast<roce::Opcode>(opcode),
                              ack_request,
                              syndrome,
                              solicited,
                              congested,
                              echo,
                              false,
                              false,
                              0,
                              psn,
                              payload_bytes,
                              immediate,
                              msn,
                              rkey,
                              message_bytes,
                              remote_address,
                              local_address};
          },
          nb::kw_only(), "opcode"_a, "psn"_a, "payload_bytes"_a = 0, "ack_request"_a = false,
          "syndrome"_a = 0, "msn"_a = 0, "immediate"_a = 0, "rkey"_a = 0, "message_bytes"_a = 0,
          "remote_address"_a = 0, "local_address"_a = 0, "solicited"_a = false, "congested"_a = false,
          "echo"_a = false)
      .def_prop_ro("opcode", [](const Packet& p) { return static_cast<int>(p.opcode); })
      .def_ro("psn", &Packet::psn)
      .def_ro("payload_bytes", &Packet::payload_bytes)
      .def_ro("ack_request", &Packet::ack_request)
      .def_prop_ro("solicited", [](const Packet& p) { return bool{p.solicited}; })
      .def_prop_ro("congested", [](const Packet& p) { return bool{p.congested}; })
      .def_ro("syndrome", &Packet::syndrome)
      .def_ro("msn", &Packet::msn)
      .def_ro("immediate", &Packet::immediate)
      .def_ro("port", &Packet::port, "Which of its queue pair's source ports it leaves by, from 0.")
      .def_ro("rkey", &Packet::rkey)
      .def_ro("message_bytes", &Packet::message_bytes)
      .def_ro("remote_address", &Packet::remote_address)
      .def_ro("local_address", &Packet::local_address)
      .def("__repr__", &text_of);
}

void register_recycled_ports(nb::module_& m) {
  using namespace nb::literals;
  using roce::RecycledPorts;
  nb::class_<RecycledPorts>(m, "RecycledPorts", "The source ports of a sender by REPS; times in ps.")
      .def(nb::init<std::uint64_t>(), "seed"_a)
      .def("next", &RecycledPorts::next, "ports"_a, "The port of the next packet, of so many.")
      .def("acknowledged", &RecycledPorts::acknowledged, "port"_a, "marked"_a, "now_ps"_a, "window_packets"_a)
      .def("failed", &RecycledPorts::failed, "now_ps"_a, "A timeout: nothing is drawn for a while.");
}

}  // namespace

void register_roce_endpoint(nb::module_& m) {
  using namespace nb::literals;
  register_packet(m);
  register_recycled_ports(m);
  nb::class_<Endpoint>(m, "QueuePair",
                       "One end of a reliable connection, driven by hand; times in ps. What it does is noted "
                       "until effects() is called.")
      .def(nb::init<const QueuePairConfig&, std::uint32_t, std::uint32_t>(), "config"_a, "first_psn"_a = 0,
           "peer_first_psn"_a = 0)
      .def(
          "post",
          [](Endpoint& e, const std::string& verb, std::uint32_t size_bytes, std::uint64_t handle,
             std::uint32_t immediate, std::uint64_t local_address, std::uint64_t remote_address,
             std::uint32_t rkey, bool solicited) {
            e.pair.post({verb_named(verb), solicited, handle, size_bytes, immediate, local_address,
                         remote_address, rkey},
                        e);
          },
          "verb"_a, "size_bytes"_a, "handle"_a = 0, "immediate"_a = 0, "local_address"_a = 0,
          "remote_address"_a = 0, "rkey"_a = 0, "solicited"_a = false,
          "Hand over a message: 'send', 'send_imm', 'write', 'write_imm' or 'read'.")
      .def(
          "take_control",
          [](Endpoint& e) { return taken([&](Packet& p) { return e.pair.take_control(p, e); }); },
          nb::sig("def take_control(self) -> Packet | None"))
      .def(
          "take_data",
          [](Endpoint& e, TimePs now) {
            return taken([&](Packet& p) { return e.pair.take_data(now, p, e); });
          },
          "now_ps"_a, nb::sig("def take_data(self, now_ps: int) -> Packet | None"))
      .def(
          "receive", [](Endpoint& e, const Packet& p, TimePs now) { e.pair.receive(p, now, e); }, "packet"_a,
          "now_ps"_a)
      .def(
          "timer", [](Endpoint& e, TimePs now) { e.pair.timer(now, e); }, "now_ps"_a)
      .def(
          "effects", &take_effects, nb::sig("def effects(self) -> list[tuple[typing.Any, ...]]"),
          "What happened since the last call, in order: ('ready',), ('arm', at_ps), ('sent', handle, status, "
          "retransmits), ('place', address, size_bytes, psn), ('delivered', size_bytes, immediate or None, "
          "is_send, first_ps).")
      .def(
          "counters", [](const Endpoint& e) { return counters_of(e.pair.counters()); },
          nb::sig("def counters(self) -> dict[str, int]"))
      .def(
          "set_memory",
          [](Endpoint& e, std::uint32_t rkey, std::uint64_t start, std::uint64_t size_bytes) {
            e.rkey = rkey;
            e.memory_start = start;
            e.memory_bytes = size_bytes;
          },
          "rkey"_a, "start"_a, "size_bytes"_a, "Where the peer may write; at first everywhere, with rkey 0.")
      .def_rw("receives", &Endpoint::receives, "Receives posted; -1: as many as are asked for.")
      .def_rw("readable", &Endpoint::memory_readable, "Whether the peer may read anything at all.")
      .def_rw("credits", &Endpoint::credits, "Whether acknowledgements say how many receives are left.")
      .def(
          "receives_posted", [](Endpoint& e) { e.pair.receives_posted(e); },
          "Tell the peer of receives posted since.")
      .def(
          "departed",
          [](Endpoint& e, std::uint32_t wire_bytes, TimePs start) { e.pair.departed(wire_bytes, start); },
          "wire_bytes"_a, "start_ps"_a)
      .def_prop_ro("data_from_ps", [](const Endpoint& e) { return e.pair.data_from(); })
      .def_prop_ro("state", [](const Endpoint& e) { return name_of(e.pair.state()); })
      .def_prop_ro("pending", [](const Endpoint& e) { return e.pair.pending(); })
      .def_prop_ro("has_data", [](const Endpoint& e) { return e.pair.has_data(); })
      .def_prop_ro("send_psn", [](const Endpoint& e) { return e.pair.send_psn(); })
      .def_prop_ro("unacked_psn", [](const Endpoint& e) { return e.pair.unacked_psn(); })
      .def_prop_ro("expected_psn", [](const Endpoint& e) { return e.pair.expected_psn(); });
}

}  // namespace genie::bindings
