// Numbers of queue pairs that packets under way are relative to, by the queue pair that gets them.
#pragma once
#include <cstdint>
#include <vector>

#include "core/fold.hpp"
#include "roce/opcode.hpp"
#include "roce/types.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

class PacketBases {
 public:
  struct Bases {
    Fold::Base expected_psn, unacked_psn;  // of requests; of acknowledgements
    Fold::Base peer_msn;
  };

  void resize(std::uint32_t queue_pairs) { bases_.resize(queue_pairs); }
  Bases& of(std::uint32_t queue_pair) { return bases_[queue_pair]; }

  // All but the time of its arrival.
  void fold(Fold& fold, Packet& packet) const {
    fold.exact(packet.connection, packet.route, packet.opcode, packet.payload_bytes, packet.telemetry);
    fold.exact(std::uint32_t{packet.priority} | packet.ack_request << 3 | packet.solicited << 4 |
               packet.ect << 5 | packet.ce << 6 | packet.trimmed << 7 | (packet.echo ? 1u : 0u) << 8 |
               (packet.paced ? 1u : 0u) << 9 | std::uint32_t{packet.port} << 10);
    if (packet.connection >= bases_.size() ||
        packet.opcode == roce::Opcode::kCnp)  // a pause frame has no PSN
      return fold.exact(std::uint32_t{packet.psn}, packet.value);
    const Bases& bases = bases_[packet.connection];
    const bool is_answer = packet.opcode == roce::Opcode::kAcknowledge;
    std::uint32_t psn = packet.psn;
    fold.relative(is_answer ? bases.unacked_psn : bases.expected_psn, psn, roce::kPsnMask);
    packet.psn = psn & roce::kPsnMask;
    if (!roce::has_aeth(packet.opcode)) return fold.exact(packet.value);
    std::uint32_t msn = packet.value >> 8;
    const std::uint32_t syndrome = packet.value & 0xFF;
    fold.exact(syndrome);
    fold.relative(bases.peer_msn, msn, roce::kPsnMask);
    packet.value = msn << 8 | syndrome;
  }

 private:
  std::vector<Bases> bases_;
};

}  // namespace genie::twin
