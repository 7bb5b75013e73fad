// Numbers of queue pairs that packets under way are relative to, by the queue pair that gets them.
#pragma once
#include <cstdint>
#include <vector>

#include "core/fold.hpp"
#include "core/mix.hpp"
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

  // All but the time of its arrival and its telemetry.
  void fold(Fold& fold, Packet& packet) const {
    const std::uint32_t flags = std::uint32_t{packet.priority} | packet.ack_request << 3 |
                                packet.solicited << 4 | packet.ect << 5 | packet.ce << 6 |
                                packet.trimmed << 7 | (packet.echo ? 1u : 0u) << 8 |
                                (packet.paced ? 1u : 0u) << 9 | std::uint32_t{packet.port} << 10;
    const auto opcode = static_cast<std::uint32_t>(packet.opcode);
    const std::uint32_t has_telemetry = packet.telemetry != 0 ? 1 : 0;  // places differ in equal states
    fold.exact(pair_key(packet.connection, packet.route),
               pair_key(flags, opcode << 16 | packet.payload_bytes));
    if (packet.connection >= bases_.size() ||
        packet.opcode == roce::Opcode::kCnp)  // a pause frame has no PSN
      return fold.exact(std::uint32_t{packet.psn}, pair_key(packet.value, has_telemetry));
    const Bases& bases = bases_[packet.connection];
    const bool is_answer = packet.opcode == roce::Opcode::kAcknowledge;
    std::uint32_t psn = packet.psn;
    fold.relative(is_answer ? bases.unacked_psn : bases.expected_psn, psn, roce::kPsnMask);
    packet.psn = psn & roce::kPsnMask;
    if (!roce::has_aeth(packet.opcode)) return fold.exact(pair_key(packet.value, has_telemetry));
    std::uint32_t msn = packet.value >> 8;
    const std::uint32_t syndrome = packet.value & 0xFF;
    fold.exact(pair_key(syndrome, has_telemetry));
    fold.relative(bases.peer_msn, msn, roce::kPsnMask);
    packet.value = msn << 8 | syndrome;
  }

 private:
  std::vector<Bases> bases_;
};

}  // namespace genie::twin
