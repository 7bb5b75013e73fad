// Bytes of frames beside their payload, as RoCEv2 or as another model has it.
#pragma once
#include <cstdint>

#include "roce/opcode.hpp"
#include "twin/fabric/network.hpp"

namespace genie::twin {

inline std::uint32_t frame_header_bytes(const Network& network, roce::Opcode opcode) {
  const std::uint32_t other = roce::is_request(opcode) ? network.data_header_bytes : network.control_bytes;
  return other != 0 ? other : roce::wire_bytes(opcode, 0, network.frame_overhead_bytes);
}

}  // namespace genie::twin
