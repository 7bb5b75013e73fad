// A queue pair's packet as the twin carries it, and back.
#pragma once
#include "core/clear_to_send.hpp"
#include "roce/opcode.hpp"
#include "roce/types.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

inline Packet on_wire_of(const roce::Packet& packet) {
  Packet on_wire;
  on_wire.psn = packet.psn & roce::kPsnMask;
  on_wire.opcode = packet.opcode;
  on_wire.ack_request = packet.ack_request ? 1 : 0;
  on_wire.solicited = packet.solicited ? 1 : 0;
  on_wire.echo = packet.echo;
  on_wire.trimmed = packet.trimmed;
  on_wire.port = packet.port & 0x3F;
  on_wire.payload_bytes = static_cast<std::uint16_t>(packet.payload_bytes);
  if (roce::has_aeth(packet.opcode)) {
    on_wire.value = packet.msn << 8 | packet.syndrome;
  } else {
    on_wire.value = roce::has_immediate(packet.opcode)                       ? packet.immediate
                    : roce::plain(packet.opcode) == roce::Opcode::kWriteOnly ? fifo_tag(packet.remote_address)
                                                                             : packet.message_bytes;
  }
  return on_wire;
}

inline roce::Packet packet_of(const Packet& on_wire) {
  roce::Packet packet;
  packet.opcode = on_wire.opcode;
  packet.psn = on_wire.psn;
  packet.ack_request = on_wire.ack_request != 0;
  packet.solicited = on_wire.solicited != 0;
  packet.congested = on_wire.ce != 0;
  packet.echo = on_wire.echo;
  packet.trimmed = on_wire.trimmed != 0;
  packet.port = on_wire.port;
  packet.payload_bytes = on_wire.payload_bytes;
  if (roce::has_aeth(on_wire.opcode)) {
    packet.syndrome = static_cast<std::uint8_t>(on_wire.value & 0xFF);
    packet.msn = on_wire.value >> 8;
  } else if (roce::has_immediate(on_wire.opcode)) {
    packet.immediate = on_wire.value;
    packet.message_bytes = on_wire.payload_bytes;  // of a message of one packet
  } else if (roce::plain(on_wire.opcode) == roce::Opcode::kWriteOnly) {
    packet.remote_address = fifo_address(on_wire.value);
    packet.message_bytes = on_wire.payload_bytes;
  } else {
    packet.message_bytes = on_wire.value;
  }
  return packet;
}

}  // namespace genie::twin
