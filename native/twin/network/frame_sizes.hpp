// Bytes of frames on the wire, by opcode.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "twin/fabric/frames.hpp"
#include "twin/fabric/network.hpp"
#include "twin/port/packet.hpp"
#include "twin/port/pause_frame.hpp"

namespace genie::twin {

class FrameSizes {
 public:
  explicit FrameSizes(const Network& network) {
    for (unsigned opcode = 0; opcode < header_bytes_.size(); ++opcode)
      header_bytes_[opcode] =
          static_cast<std::uint16_t>(frame_header_bytes(network, static_cast<roce::Opcode>(opcode)));
    // A pause frame has the Ethernet header and FCS in it that the frame overhead counts.
    constexpr std::uint32_t kPauseBytes = 64, kFramingBytes = 18;
    const std::uint32_t pause =
        kPauseBytes + std::max(network.frame_overhead_bytes, kFramingBytes) - kFramingBytes;
    header_bytes_[static_cast<std::uint8_t>(kPauseOpcode)] =
        static_cast<std::uint16_t>(network.pause_bytes != 0 ? network.pause_bytes : pause);
  }
  std::uint32_t of(const Packet& packet) const {
    return header_bytes_[static_cast<std::uint8_t>(packet.opcode)] + ((packet.payload_bytes + 3u) & ~3u);
  }
  std::uint32_t least() const { return *std::min_element(header_bytes_.begin(), header_bytes_.end()); }

 private:
  std::array<std::uint16_t, 256> header_bytes_{};  // by opcode: all that a frame has beside its payload
};

}  // namespace genie::twin
