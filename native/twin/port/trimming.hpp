// Packet trimming (Handley et al., NDP, SIGCOMM 2017): the header of a packet for which there is no room goes
// on with the control packets.
#pragma once
#include <cassert>
#include <cstdint>

#include "roce/opcode.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

// Headers of answers, and headers that are left already, are of no use.
inline bool can_be_trimmed(const Packet& packet) {
  return roce::is_request(packet.opcode) && packet.trimmed == 0;
}
inline Packet trimmed_header(const Packet& packet, std::uint32_t control_class) {
  assert(can_be_trimmed(packet));
  Packet header = packet;
  header.payload_bytes = 0;
  header.trimmed = 1;
  header.priority = control_class & 7u;
  header.ect = 0;
  return header;
}

}  // namespace genie::twin
