// Pause frames of priority flow control (IEEE 802.1Qbb) as packets of the twin.
#pragma once
#include <cassert>
#include <cstdint>

#include "twin/fabric/network.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

inline constexpr std::uint32_t kPauseFrame = ~std::uint32_t{0};        // in place of a connection
inline constexpr auto kPauseOpcode = static_cast<roce::Opcode>(0xFF);  // none of InfiniBand's

inline bool is_pause_frame(const Packet& packet) { return packet.connection == kPauseFrame; }

// Pauses a priority, or ends its pause.
inline Packet pause_frame(std::uint32_t priority, bool pause) {
  assert(priority < kPauseClass);
  Packet frame;
  frame.connection = kPauseFrame;
  frame.priority = kPauseClass;
  frame.value = priority << 1 | (pause ? 1u : 0u);
  frame.opcode = kPauseOpcode;
  return frame;
}
inline std::uint32_t priority_of(const Packet& frame) { return frame.value >> 1; }
inline bool pauses(const Packet& frame) { return (frame.value & 1) != 0; }
// A frame that is under way ends the pause that it was going to begin.
inline void revoke_pause(Packet& frame) { frame.value &= ~1u; }

}  // namespace genie::twin
